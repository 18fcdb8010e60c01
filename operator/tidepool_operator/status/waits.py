"""How long pairings have waited: what takes longer than it may has failed.

That cannot be told by the time of the condition Ready alone, which is that of its status: one that was paused, or had
failed for another reason, was not Ready either, and has only begun to wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidepool_api import ConditionType, PairingPhase, Status, find

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from tidepool_api import MemoryPairing
    from tidepool_operator.status.report import Verdict

_WAITING = (PairingPhase.PENDING, PairingPhase.CONNECTING, PairingPhase.FAILED)  # what one that waits has been called


class Waits:
    """Since when each pairing waits, from one look to the next."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}  # by UID

    def keep(self, uids: Collection[str]) -> None:
        """Forgets the pairings that are gone."""
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}

    def judged(self, pairing: MemoryPairing, verdict: Verdict, at: datetime) -> Verdict:
        """A verdict of a moment in the light of those before: whether it is a failure by now, and when it will be."""
        uid = pairing.metadata.uid
        if verdict.patience is None:
            self._since.pop(uid, None)
            return verdict
        since = self._since.setdefault(uid, _waits_since(pairing, verdict) or at)
        late = since + verdict.patience
        return replace(verdict, late=late) if at < late else verdict.failed


def _waits_since(pairing: MemoryPairing, verdict: Verdict) -> datetime | None:
    """Since when one waits that nobody has looked at since the operator started; None if it did not, as it says."""
    ready = find(pairing.status.conditions, ConditionType.READY)
    waits = ready is not None and (ready.status, ready.reason) == (Status.FALSE, verdict.reason)
    return ready.last_transition_time if ready and waits and pairing.status.phase in _WAITING else None
