"""What rounds write, one beside the other, and what they remember of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from objects import key, machine, observation, pairing

from tidepool_agent import report
from tidepool_agent.guestfs import Side
from tidepool_agent.metrics import Figures
from tidepool_agent.plan import desired
from tidepool_agent.report import Finding
from tidepool_agent.rounds import Rounds
from tidepool_api import GuestKey, MemoryPairing
from tidepool_api.kube import Refused
from tidepool_api.kube.client import TIMEOUT

FOUND = Finding(seen=observation())


class Written:
    """A cluster that notes which ends of pairings are written, and may refuse what is said of guests."""

    node, figures_wait = "here", timedelta(seconds=30)

    def __init__(self, refusal: Refused | None = None) -> None:
        self.refusal, self.ends = refusal, list[str]()

    async def claim(self, _: Any) -> None:
        if self.refusal:
            raise self.refusal

    async def write_guest(self, _: Any) -> None:
        pass

    async def write_end(self, one: MemoryPairing, _: Any) -> None:
        self.ends.append(one.metadata.uid)


class Lender(Rounds):
    """A guest that lends in these pairings."""

    _about = key("lender")
    _name = "lender"

    def __init__(self, cluster: Written) -> None:
        written: Any = cluster
        super().__init__(written, Figures())

    async def _round(self) -> float:
        raise AssertionError

    def _close(self) -> None:
        raise AssertionError

    def write(self, *uids: str) -> None:
        """Reports, as the last thing of a round."""
        about: GuestKey = self._about
        wants = desired(about, [pairing(uid, borrower=f"of-{uid}") for uid in uids]).peers
        assert all(want.side is Side.BORROWERS for want in wants)
        fresh = report.guest(machine("lender"), "here", FOUND, wants, None)
        asyncio.run(self._write(fresh, None, None, wants, FOUND))

    @property
    def remembered(self) -> set[str]:
        """What has been written."""
        return set(self._written)


@pytest.mark.parametrize("refusal", [Refused(422, "apply", "no"), Refused(0, "PATCH", "no answer in 30 s", TIMEOUT)])
def test_a_guest_that_cannot_be_written_keeps_no_end_of_a_pairing_unwritten(refusal: Refused) -> None:
    """A webhook refuses it, or hangs for longer than anybody waits."""
    cluster = Written(refusal)
    with pytest.raises(Refused, match=refusal.why):
        Lender(cluster).write("p1", "p2")
    assert cluster.ends == ["p1", "p2"]


@pytest.mark.parametrize("status", [0, 429, 503])
def test_who_cannot_be_asked_is_asked_once(status: int) -> None:
    cluster = Written(Refused(status, "apply", "no"))
    with pytest.raises(Refused):
        Lender(cluster).write("p1", "p2")
    assert cluster.ends == []


def test_pairings_that_are_gone_are_forgotten() -> None:
    """A guest lives for a year, and its pairings come and go."""
    lender = Lender(Written())
    lender.write("p1", "p2")
    lender.write("p2", "p3")
    assert lender.remembered == {"guest", "p2", "p3"}
