"""What an edit reaches, and what it costs: from a field of a pool by one of its pairings to the module's attributes.

The one place that says what the module takes while it is in use. The agent writes by it, the operator counts by it, and
the module's own tests try each attribute of it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from tidepool_api.pairing import PairingSpec
    from tidepool_api.pool import PoolSpec

# What the module refuses to change while a peer is enabled: of one peer, and of the guest as a whole.
FIXED = frozenset({"lenders/encryption", "port"})

_WHO = (
    *("role", "selector", "cool_down", "placement.require", "placement.apart"),
    *("lenders.selector", "lenders.namespaces", "lenders.nodes", "lenders.margin", "lenders.spread"),
    *("borrowers.selector", "borrowers.priorities"),
)
_SIZE = ("borrowers.size", "borrowers.minimum", "borrowers.maximum", "borrowers.weights")


class Way(NamedTuple):
    """The way of an edit to the guests."""

    field: str
    """Of a pairing's spec."""

    pool: tuple[str, ...] = ()
    """The fields of the pool's spec that it follows from; none where it follows from the guests."""

    attributes: tuple[str, ...] = ()
    """The module's: `FOLDER/NAME` of a peer, `NAME` of the guest as a whole; none where it says who is concerned."""

    is_costly: bool = False
    """Whether it costs the borrower what it has, though no attribute is fixed."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """Those of the attributes that do not change while in use."""
        return tuple(one for one in self.attributes if one in FIXED)

    @property
    def is_live(self) -> bool:
        """Whether all of it changes while in use, so that no page is lost by the change."""
        return not self.fixed and not self.is_costly


WAYS = (
    Way("pool"),
    Way("lender.guest", _WHO),
    Way("lender.namespace", _WHO),
    Way("lender.node_name"),
    Way("lender.address", ("network",), ("lenders/address",)),
    Way("lender.other_addresses", ("network",), ("lenders/address",)),
    Way("lender.network", ("network",), ("lenders/address",)),
    Way("lender.port", ("port",), ("port", "lenders/port")),
    Way("lender.identity", (), ("lenders/identity",)),
    Way("borrower.guest", _WHO),
    Way("borrower.node_name"),
    Way("borrower.identity", (), ("borrowers/identity",)),
    Way("borrower.devices", ("borrowers.devices",)),
    Way("borrower.force", ("borrowers.force",)),
    Way("borrower.swap", ("borrowers.swap",), is_costly=True),  # what is swapped out comes back into memory for it
    Way("borrower.applications", ("borrowers.applications",)),
    Way("size", _SIZE, ("lenders/size_bytes", "borrowers/quota_bytes")),
    Way("reserve", ("lenders.reserve", "lenders.overcommitted", "lenders.nodes"), ("reserve_bytes",)),
    Way("max_lend", ("lenders.max_lend", "lenders.nodes"), ("lend_bytes",)),
    Way("strategy", ("strategy",), ("lenders/strategy",)),
    Way("filter", ("filter",), ("lenders/sequential_filter",)),
    Way("encryption", ("encryption",), ("lenders/encryption",)),
    Way("deadline", ("deadline",), ("lenders/deadline_us",)),
    Way("latency.mode", ("latency.mode",), ("lenders/breaker",)),
    Way("latency.short", ("latency.short",), ("lenders/breaker_short",)),
    Way("latency.long", ("latency.long",), ("lenders/breaker_long",)),
)

_DISRUPTIVE = tuple(one for one in WAYS if not one.is_live)
_OF_PEERS = tuple(one for one in _DISRUPTIVE if one.is_costly or any("/" in name for name in one.fixed))
_OF_GUESTS = tuple(one for one in _DISRUPTIVE if one not in _OF_PEERS)


def changeable(folder: str) -> frozenset[str]:
    """The attributes of the peers in a folder of the module's that change while the peer is enabled."""
    every = (name for one in WAYS for name in one.attributes if name not in FIXED)
    return frozenset(name.removeprefix(f"{folder}/") for name in every if name.startswith(f"{folder}/"))


def renews(pool: PoolSpec, pairing: PairingSpec) -> bool:
    """Whether the borrower of a pairing loses what it has when the pairing becomes as the pool says."""
    return _differ(_OF_PEERS, pool, pairing)


def renews_lender(pool: PoolSpec, pairing: PairingSpec) -> bool:
    """Whether all borrowers of its lender do, for it is one attribute of that guest."""
    return _differ(_OF_GUESTS, pool, pairing)


def _differ(ways: tuple[Way, ...], pool: PoolSpec, pairing: PairingSpec) -> bool:
    return any(attrgetter(*one.pool)(pool) != attrgetter(one.field)(pairing) for one in ways)


def live_part(patch: dict[str, Any]) -> dict[str, Any]:
    """A patch of a pairing's spec without what is not live."""
    found = dict(patch)
    for one in _DISRUPTIVE:
        _drop(found, [to_camel(part) for part in one.field.split(".")])
    return found


def _drop(patch: dict[str, Any], path: list[str]) -> None:
    head, *rest = path
    if head not in patch:
        return
    if rest:
        patch[head] = dict(patch[head])
        _drop(patch[head], rest)
    if not rest or not patch[head]:
        del patch[head]
