"""When figures are written to the API server (issue 28, fault 11)."""

from __future__ import annotations

from tidepool_operator.cluster.writing import Turns, gist


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def test_so_many_a_second_however_many_ask() -> None:
    """200 pools whose figures move all the time, each looked at twice a second for a minute; all have their turns."""
    clock, written = Clock(), dict.fromkeys(map(str, range(200)), 0)
    turns = Turns(5, clock=clock)
    for _ in range(120):
        for uid in written:
            written[uid] += turns.wait(uid) == 0
        clock.time += 0.5
    assert 290 <= sum(written.values()) <= 301
    assert {1, 2} >= set(written.values())


def test_who_is_alone_does_not_wait() -> None:
    clock = Clock()
    turns = Turns(5, clock=clock)
    assert turns.wait("a") == 0
    assert turns.wait("b") > 0
    clock.time += 10
    assert turns.wait("b") == 0
    clock.time += 10
    assert turns.wait("a") == 0


def test_a_message_whose_numbers_move_says_the_same() -> None:
    assert gist("the lenders have about 64Mi left") == gist("the lenders have about 128Mi left")
    assert gist("guest g1 is gone") != gist("guest g2 is gone")
