"""How often figures are written, so that the API server of a large cluster is not kept busy by them.

Whatever somebody acts on is written at once: a state, a condition, an address, a lender that needs its memory itself.
Mere figures wait: there are so many writes of them a second, however many guests there are and whatever moves.
"""

from __future__ import annotations

AGENTS_WRITES = 40.0  # a second, by the agents of all nodes together
OPERATOR_WRITES = 5.0  # a second, of the status of pools
GRANT_WRITES = 20.0  # a second, of the status of grants
QUOTA_WRITES = 20.0  # likewise, of quotas
GUEST_WRITES = 20.0  # likewise, of guests, in place of agents that are dead
LEAST_SECONDS = 30.0
IDLE_SECONDS = 120.0  # at least, for a guest without a pairing


def figures_seconds(guests: int, pairings: int) -> float:
    """How long the figures of a guest, or of an end of a pairing, wait: until all others had their turn."""
    return max(LEAST_SECONDS, (guests + 2 * pairings) / AGENTS_WRITES)
