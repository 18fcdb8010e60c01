"""A connection that is there at every look, and was lost between them (issue 28, faults 9 and 12)."""

from __future__ import annotations

from pathlib import Path

import pytest
from objects import observation, pairing, want
from playing import Played

from tidepool_agent import report
from tidepool_agent.guest import Guest
from tidepool_agent.guestfs import Peer, Side
from tidepool_agent.losses import AGAIN_SECONDS, WINDOW_SECONDS, Losses, Paths, Reach
from tidepool_agent.report import Finding
from tidepool_agent.store import Store
from tidepool_api import Status

BORROWED = want(Side.LENDERS, pairing())


def look(losses: Losses, now: float, lost: int, side: Side = Side.LENDERS) -> bool:
    """Whether the lender counts as one that is lost again and again, after so many losses."""
    peer = Peer({"enabled": "1", "state": "Connected"}, {"disconnects": lost})
    return (side, "p1") in losses.add(observation(loaded=True, peers={(side, "p1"): peer}), now)


def test_a_connection_that_is_lost_every_ten_seconds_is_noticed() -> None:
    losses = Losses()
    assert [look(losses, 10.0 * at, at) for at in range(5)] == [False, False, False, True, True]
    assert look(losses, 10 + WINDOW_SECONDS, 4)
    assert not look(losses, 11 + WINDOW_SECONDS, 4)


def test_a_few_losses_are_nothing_to_speak_of() -> None:
    """Nor is one that counts anew, nor a borrower that comes and goes: that one says it itself."""
    losses = Losses()
    assert not any(look(losses, 60.0 * at, at) for at in range(20))
    assert not look(losses, 1201.0, 0)
    assert not look(losses, 1202.0, 2)
    assert not any(look(losses, 1300.0 + at, 5 * at, Side.BORROWERS) for at in range(5))


def test_the_borrower_says_what_makes_a_connection_be_lost_like_that() -> None:
    """It is set up as it should be; what is in the way is the path."""
    peer = Peer({"enabled": "1", "state": "Connected"})
    seen = observation(loaded=True, peers={BORROWED.key: peer})
    (fine,) = report.end(BORROWED, Finding(seen=seen)).conditions
    assert fine.reason == "Configured"
    for reach, words in (
        (None, "lost again and again, as where large packets are dropped on the way (MTU)"),
        (Reach("10.0.0.1", 1400, 1500), "of more than 1400 bytes do not get to 10.0.0.1, and the guest's network card"),
        (Reach("10.0.0.1", 1400, 1500), "sends up to 1500; give the guests' network an MTU of 1400"),
        (Reach("10.0.0.1", 1500, 1500), "though packets of 1500 bytes, the largest of the guest's network card, get"),
    ):
        (said,) = report.end(BORROWED, Finding(seen=seen, losing={BORROWED.key: reach})).conditions
        assert (said.status, said.reason) == (Status.TRUE, "ConnectionUnstable")
        assert words in said.message


def test_a_path_is_tried_when_it_begins_to_lose_and_then_seldom() -> None:
    paths, key, reach = Paths(), BORROWED.key, Reach("10.0.0.1", 1400, 1500)
    assert paths.due({key}, 0.0) == [key]
    paths.note(key, reach, 1.0)
    assert (paths.due({key}, 100.0), paths.known) == ([], {key: reach})
    assert paths.due({key}, 1 + AGAIN_SECONDS) == [key]
    assert (paths.due((), 2.0), paths.known) == ([], {})
    assert paths.due({key}, 3.0) == [key]


PING = """#!/bin/sh
# -n -c 2 -i 0.2 -W 1 -M do -s PAYLOAD ADDRESS, on a path that drops what is larger than it takes
[ "$1 $2 $3 $4 $5 $6 $7 $8 $9" = "-n -c 2 -i 0.2 -W 1 -M do" ] || exit 2
shift 9
[ "$1" = -s ] && [ "$(($2 + {headers}))" -le "$(cat {folder}/takes)" ]
"""


@pytest.mark.parametrize(("address", "headers"), [("127.0.0.1", 28), ("fe80::1%lo", 48)])
def test_the_guest_finds_the_largest_packet_that_gets_there(tmp_path: Path, address: str, headers: int) -> None:
    """By packets of several sizes that nobody may break into pieces: nothing to say where even small ones are lost."""
    played = Played(tmp_path)
    (tmp_path / "bin/ping").write_text(PING.format(headers=headers, folder=tmp_path))
    (tmp_path / "bin/ping").chmod(0o755)
    played.script = played.script.replace("/sys/class/net/$device/mtu", f"{tmp_path}/$device-mtu")
    (tmp_path / "lo-mtu").write_text("1500\n")
    guest = Guest(played, Store(tmp_path))  # type: ignore[arg-type]  # all that it needs of one
    for takes, passes in ((9000, 1500), (1500, 1500), (1499, 1499), (1400, 1400), (1281, 1281), (1280, 1280)):
        (tmp_path / "takes").write_text(f"{takes}\n")
        assert guest.reach(address) == Reach(address, passes, 1500)
    (tmp_path / "takes").write_text("100\n")
    assert guest.reach(address) is None
    (tmp_path / "bin/ping").write_text("#!/bin/sh\nexit 1\n")  # as busybox's, which forbids no fragments
    assert guest.reach(address) is None
