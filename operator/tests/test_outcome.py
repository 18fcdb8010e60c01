"""A write that the API server refuses: one object's trouble, tried again by itself, told in the server's words."""

from __future__ import annotations

import asyncio

import pytest

from tidepool_api.kube import Refused
from tidepool_api.turns import AT_ONCE, at_once
from tidepool_api_testing.pace import within
from tidepool_operator.status.outcome import HANGS, REVOKED, Outcome


class Server:
    """An API server that refuses everything with one status, and counts; its clock stands still unless told."""

    def __init__(self, status: int = 403) -> None:
        self.status, self.asked, self.time = status, 0, 0.0

    async def write(self) -> str:
        """A write of some object."""
        self.asked += 1
        if self.status:
            raise Refused(self.status, "POST /somewhere", "exceeded quota")
        return "written"

    def attempt(
        self, outcome: Outcome, what: str = "make pairing a", wish: object = 1, pool: str = "pool"
    ) -> str | None:
        """One try."""
        return asyncio.run(outcome.attempt(pool, what, what, wish, self.write))

    def outcome(self, before: Outcome | None = None) -> Outcome:
        """Of a new pass."""
        return Outcome("ns", before, clock=lambda: self.time)


def test_a_refusal_is_told_of_its_pool_and_its_object_alone() -> None:
    server = Server()
    outcome = server.outcome()
    assert server.attempt(outcome) is None
    server.status = 0
    assert server.attempt(outcome, "make pairing b", pool="another") == "written"
    said = ["could not make pairing a: exceeded quota"]
    assert outcome.of_pool("pool") == outcome.of_object("make pairing a") == said
    assert outcome.of_pool("another") == outcome.of_object("make pairing b") == []
    assert (outcome.pools, outcome.failures) == ({"pool": 1}, 1)


def test_five_thousand_refusals_are_told_in_half_a_second() -> None:
    """Each pairing of a large namespace asks for its own."""
    server = Server()
    outcome = server.outcome()

    async def everybody() -> None:
        for at in range(5000):
            await outcome.attempt("pool", f"{at}", "change", 1, server.write)

    asyncio.run(everybody())
    told: list[list[str]] = []
    assert within(0.5, lambda: told.extend(outcome.of_object(f"{at}") for at in range(5000)), tries=1)
    assert told == [["could not change: exceeded quota"]] * 5000


def test_it_is_tried_again_ever_more_slowly_and_told_all_the_time() -> None:
    """Passes come as often as anything happens; it is asked for after 1, 3, 7 s, and then each minute."""
    server, outcome = Server(), None
    asked = []
    for second in range(300):
        server.time = second
        before = server.asked
        outcome = server.outcome(outcome)
        server.attempt(outcome)
        assert outcome.of_pool("pool")
        asked += [second] * (server.asked - before)
    assert asked == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert outcome is not None
    assert outcome.again == 4


def test_something_else_is_tried_at_once_and_what_is_no_longer_wanted_is_forgotten() -> None:
    server = Server()
    first = server.outcome()
    server.attempt(first)
    second = server.outcome(first)
    server.attempt(second, wish=2)
    assert server.asked == 2
    assert server.outcome(second).of_pool("pool") == []


def test_what_succeeds_is_forgotten() -> None:
    server = Server()
    first = server.outcome()
    server.attempt(first)
    server.time, server.status = 2, 0
    second = server.outcome(first)
    assert server.attempt(second) == "written"
    assert (second.of_pool("pool"), second.again, second.failures) == ([], None, 0)


@pytest.mark.parametrize("status", [403, 404, 409, 503])
def test_a_webhook_refuses_with_any_status(status: int) -> None:
    """What it says is neither that the object is gone, or is there already, nor that the API server is busy."""
    refusal = Refused(status, "POST /somewhere", 'admission webhook "x" denied the request: no')
    assert refusal.is_about_object
    assert (refusal.is_gone, refusal.is_conflict) == (False, False)


@pytest.mark.parametrize("status", [0, 401, 429, 503])
def test_a_server_that_cannot_be_asked_is_no_objects_trouble(status: int) -> None:
    """Then nothing else could be written either: the whole namespace waits."""

    async def write() -> None:
        raise Refused(status, "POST /somewhere", "not now")

    with pytest.raises(Refused):
        asyncio.run(Outcome("ns").attempt("pool", "uid", "make pairing a", None, write))


PATIENT = 30.0  # with a server that answers at once, on a busy machine


async def turns() -> None:
    """Lets all that waits for nobody go on as far as it can, whatever the clock says meanwhile."""
    for _ in range(100):
        await asyncio.sleep(0)


class Deaf(Server):
    """An API server that answers nothing until it is told to; then it refuses everything, or nothing with status 0."""

    def __init__(self) -> None:
        super().__init__(status=504)
        self.answers = asyncio.Event()

    async def write(self) -> str:
        """A write of some object, whose answer may be long in coming."""
        self.asked += 1
        await self.answers.wait()
        if self.status:
            raise Refused(self.status, "POST /somewhere", "context deadline exceeded", "Timeout")
        return "written"

    async def answer(self) -> None:
        """Answers what it was asked so far."""
        self.answers.set()
        await turns()
        self.answers.clear()

    def outcome(self, before: Outcome | None = None, patience: float = 0.01) -> Outcome:
        """Of a new pass, which has little patience."""
        return Outcome("ns", before, clock=lambda: self.time, patience=patience)

    async def try_(
        self, outcome: Outcome, what: str = "make pairing a", *, wish: object = 1, pool: str = "pool", **more: bool
    ) -> str | None:
        """One try."""
        return await outcome.attempt(pool, what, what, wish, self.write, **more)


def test_a_write_that_hangs_holds_up_no_pass_and_is_said_and_taken_in_later() -> None:
    """It is written once, whatever passes there are meanwhile; then it is a refusal like any other, with its reason."""

    async def passes() -> None:
        server = Deaf()
        first = server.outcome()
        async with asyncio.timeout(PATIENT):
            assert await server.try_(first) is None
        assert "no answer yet: an admission webhook that does not answer" in first.of_pool("pool")[0]
        assert first.again == pytest.approx(0.01)
        second = server.outcome(first)
        await server.try_(second, wish=2)
        assert (server.asked, second.pools) == (1, {"pool": 1}), "two writes of one object at a time"
        server.answers.set()
        await asyncio.sleep(0)
        third = server.outcome(second)
        await server.try_(third)
        assert server.asked == 1
        assert third.of_pool("pool") == [f"could not make pairing a: context deadline exceeded: {HANGS}"]
        assert (third.failures, third.again) == (1, 1.0)

    asyncio.run(passes())


def test_a_write_that_was_long_in_coming_is_done() -> None:
    async def passes() -> None:
        server = Deaf()
        first = server.outcome()
        await server.try_(first)
        server.status = 0
        server.answers.set()
        await asyncio.sleep(0)
        second = server.outcome(first)
        assert await server.try_(second, wish=2) == "written", "of another wish the old answer is none"
        assert (server.asked, second.of_pool("pool"), second.again) == (2, [], None)

    asyncio.run(passes())


def test_a_refusal_that_comes_before_its_pass_is_over_is_one() -> None:
    """And what nobody wants any more is forgotten."""

    async def passes() -> None:
        server = Deaf()
        first = server.outcome()
        await server.try_(first)
        await server.try_(first, "make pairing b")
        await server.answer()
        first.forget_answered()
        server.time = 10
        second = server.outcome(first)
        await server.try_(second)
        assert (server.asked, second.failures, second.again) == (2, 1, 1.0)
        second.forget_answered()
        assert second.hanging == {}

    asyncio.run(passes())


def test_what_was_long_in_coming_may_not_be_what_is_to_be_written_now() -> None:
    """Of statuses nobody compares what they say: the next pass does, at once, with what is there then."""

    async def passes() -> None:
        server = Deaf()
        first = server.outcome()
        await server.try_(first, wish=None)
        server.status = 0
        await server.answer()
        second = server.outcome(first)
        assert await server.try_(second, wish=None) == "written"
        assert (server.asked, second.again, second.pools) == (1, 0.0, {})
        server.answers.set()
        third = server.outcome(second)
        assert await server.try_(third, wish=None) == "written"
        assert (server.asked, third.again) == (2, None)

    asyncio.run(passes())


def test_of_a_pool_few_writes_hang_and_another_pool_and_its_own_status_are_written() -> None:
    async def passes() -> None:
        server, fine = Deaf(), Server(status=0)
        outcome = server.outcome()
        for at in range(10):
            await server.try_(outcome, f"make pairing {at}")
        assert server.asked == 4
        assert sum("not tried while 4 others of pool pool" in one for one in outcome.of_pool("pool")) == 6
        assert await outcome.attempt("pool", "uid", "write the status of pool pool", None, fine.write, anyway=True)
        assert await outcome.attempt("other", "uid", "make pairing b", None, fine.write)
        for at in range(100):
            await server.try_(outcome, f"make pairing of {at}", pool=f"{at}", anyway=True)
        assert server.asked == 24, "a namespace takes all threads of those that write"
        outcome.end()

    asyncio.run(passes())


def test_however_many_begin_at_a_time_few_hang_and_a_namespace_that_hung_is_probed() -> None:
    """Ten pools of twenty pairings, as a pass writes them: eight pools, and eight of each, at a time."""

    async def passes() -> None:
        server, fine = Deaf(), Server(status=0)

        async def pool(outcome: Outcome, number: int) -> None:
            await at_once(one(outcome, number, at) for at in range(20))

        async def one(outcome: Outcome, number: int, at: int) -> None:
            await server.try_(outcome, f"make pairing {number} {at}", pool=f"{number}")

        first = server.outcome()
        await pool(first, 0)
        assert server.asked == 4, "a pool has too many on their way"
        await at_once(pool(first, number) for number in range(1, 10))
        assert server.asked == 24, "a namespace takes all threads of those that write"
        await server.answer()
        server.time, asked = 1000, server.asked
        second = server.outcome(first)
        await at_once(pool(second, number) for number in range(10))
        assert server.asked - asked == 4, "it takes as many again each time"
        assert "others that hung before" in " ".join(second.of_pool("9"))
        assert await second.attempt("new", "uid", "make pairing b", None, fine.write), "a pool where nothing hung"
        await server.answer()
        server.time, server.status = 2000, 0
        server.answers.set()
        third = server.outcome(second, PATIENT)
        await at_once(pool(third, number) for number in range(10))
        server.time = 3000
        fourth = server.outcome(third, PATIENT)
        await at_once(pool(fourth, number) for number in range(10))
        assert fourth.pools == {}, "what is answered is tried one at a time"

    asyncio.run(passes())


def test_a_write_waits_for_one_that_is_about_to_be_answered() -> None:
    """Four of a pool are on their way, and are well: the fifth is no refusal."""

    async def passes() -> None:
        server = Deaf()
        outcome = Outcome("ns", patience=PATIENT)
        five = [asyncio.create_task(server.try_(outcome, f"{at}")) for at in range(5)]
        await turns()
        assert server.asked == 4
        server.status = 0
        await server.answer()
        assert await asyncio.wait_for(asyncio.gather(*five), PATIENT) == ["written"] * 5
        more = [asyncio.create_task(server.try_(outcome, f"more {at}")) for at in range(9)]
        await turns()
        assert server.asked == 5 + AT_ONCE, "a pool that is answered has no more slots than one that is not"
        server.answers.set()
        assert await asyncio.gather(*more) == ["written"] * 9

    asyncio.run(passes())


def test_a_pool_may_be_called_as_the_group_of_what_is_revoked() -> None:
    async def passes() -> None:
        server, fine = Deaf(), Server(status=0)
        outcome = server.outcome()
        for at in range(4):
            await server.try_(outcome, f"{at}", pool="revoked")
        assert await outcome.attempt("other", "uid", "delete pairing", None, fine.write, group=REVOKED) == "written"
        outcome.end()

    asyncio.run(passes())


def test_what_is_revoked_waits_for_no_status_that_hangs() -> None:
    """Who borrows and has a webhook of his own would else keep what is no longer granted to him."""

    async def passes() -> None:
        server, fine = Deaf(), Server(status=0)
        outcome = server.outcome()
        for at in range(40):
            await server.try_(outcome, f"write the status of pairing {at}", pool=f"{at % 10}")
        assert server.asked == 24
        revoke = outcome.attempt("0", "uid", "delete pairing 0", None, fine.write, group=REVOKED)
        assert await revoke == "written"
        for at in range(10):
            await outcome.attempt("0", f"{at}", "delete pairing", None, server.write, group=REVOKED)
        assert server.asked == 24 + 4
        outcome.end()

    asyncio.run(passes())


def test_who_no_longer_acts_leaves_no_write_behind() -> None:
    async def passes() -> None:
        server = Deaf()
        outcome = server.outcome()
        acting = asyncio.create_task(Outcome("ns").attempt("pool", "uid", "change", None, server.write))
        await server.try_(outcome)
        acting.cancel()
        outcome.end()
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(passes())
