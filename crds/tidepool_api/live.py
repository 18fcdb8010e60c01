"""What an edit reaches, and what it costs: from a field of a pool by one of its pairings to the module's attributes.

The one place that says what the module takes while it is in use. The agent writes by it, the operator counts by it, and
the module's own tests try each attribute of it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

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


def _nothing(_had: object, _wanted: object) -> bool:
    return False


def _all(_had: object, _wanted: object) -> bool:
    return True


def _of_some(had: Collection[object], wanted: Collection[object]) -> bool:
    """Whether one of the things that there are goes."""
    return not set(had) <= set(wanted)


def _if_gone(had: object, wanted: object) -> bool:
    """Whether it goes as a whole; what is left of it keeps what it has, as long as it may."""
    return had is not None and wanted is None


class Way(NamedTuple):
    """The way of an edit to the guests."""

    field: str
    """Of a pairing's spec."""

    pool: tuple[str, ...] = ()
    """The fields of the pool's spec that it follows from; none where it follows from the guests."""

    attributes: tuple[str, ...] = ()
    """The module's: `FOLDER/NAME` of a peer, `NAME` of the guest as a whole; none where it says who is concerned."""

    loses: Callable[[Any, Any], bool] = _nothing
    """Whether going from one value to another costs the borrower what it has, though no attribute is fixed."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """Those of the attributes that do not change while in use."""
        return tuple(one for one in self.attributes if one in FIXED)

    @property
    def is_live(self) -> bool:
        """Whether it changes while in use, whatever the change, so that no page is lost by it."""
        return not self.fixed and self.loses is _nothing

    def costs(self, had: object, wanted: object) -> bool:
        """Whether pages are lost by a change from one value to another."""
        return had != wanted and (bool(self.fixed) or self.loses(had, wanted))


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
    Way("borrower.devices", ("borrowers.devices",), loses=_of_some),
    Way("borrower.force", ("borrowers.force",)),
    Way("borrower.swap", ("borrowers.swap",), loses=_all),  # what is swapped out comes back into memory for it
    Way("borrower.applications", ("borrowers.applications",), loses=_if_gone),
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
_OF_GUESTS = tuple(one for one in _DISRUPTIVE if one.fixed and not any("/" in name for name in one.fixed))
_OF_PEERS = tuple(one for one in _DISRUPTIVE if one not in _OF_GUESTS)


def changeable(folder: str) -> frozenset[str]:
    """The attributes of the peers in a folder of the module's that change while the peer is enabled."""
    every = (name for one in WAYS for name in one.attributes if name not in FIXED)
    return frozenset(name.removeprefix(f"{folder}/") for name in every if name.startswith(f"{folder}/"))


def renews(pool: PoolSpec, pairing: PairingSpec) -> bool:
    """Whether the borrower of a pairing loses what it has when the pairing becomes as the pool says."""
    return _costs(_OF_PEERS, pool, pairing)


def renews_lender(pool: PoolSpec, pairing: PairingSpec) -> bool:
    """Whether all borrowers of its lender do, for it is one attribute of that guest."""
    return _costs(_OF_GUESTS, pool, pairing)


def _costs(ways: tuple[Way, ...], pool: PoolSpec, pairing: PairingSpec) -> bool:
    return any(one.costs(attrgetter(one.field)(pairing), attrgetter(*one.pool)(pool)) for one in ways)


def live_part(patch: dict[str, Any], pairing: PairingSpec) -> dict[str, Any]:
    """A patch of a pairing's spec without what would cost the borrower what it has."""
    found = dict(patch)
    for one in _DISRUPTIVE:
        _drop(found, one, [to_camel(part) for part in one.field.split(".")], attrgetter(one.field)(pairing))
    _force_what_is_named(found, pairing)
    return found


def _drop(patch: dict[str, Any], way: Way, path: list[str], had: object) -> None:
    head, *rest = path
    if head not in patch:
        return
    if rest:
        patch[head] = dict(patch[head])
        _drop(patch[head], way, rest, had)
    if patch[head] == {} if rest else way.costs(had, patch[head]):
        del patch[head]


def _force_what_is_named(patch: dict[str, Any], pairing: PairingSpec) -> None:
    """Keeps `force` to the devices that there are meanwhile, for no other may be in it; swap stays until it is due."""
    borrower, present = patch.get("borrower", {}), pairing.borrower
    if "force" not in borrower:
        return
    named = {*borrower.get("devices", present.devices), *([present.swap.device] if present.swap else [])}
    borrower["force"] = [one for one in dict.fromkeys((*borrower["force"], *present.force)) if one in named]
    if borrower["force"] == list(present.force):
        del borrower["force"]
    if not borrower:
        del patch["borrower"]
