"""What has to be done in a guest: pairings and the guest's state in, steps out. No I/O, no memory of its own.

Called again after every change and on every tick, so that a reboot, a lost agent or a half-done configuration needs
no code of its own: whatever differs from what is wanted is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from tidepool_agent import applications, devices
from tidepool_agent.addresses import chosen, reachable, spelled
from tidepool_agent.applications import AppStep, Give, LoadApp, Offer, UnloadApp
from tidepool_agent.devices import Block, BlockStep
from tidepool_agent.guestfs import GHOST_OFF, PAGE, Module, Observation, Peer, Side
from tidepool_api import Filter, GuestKey, LenderEnd, MemoryPairing, Strategy, Thresholds
from tidepool_api.live import changeable

Key = tuple[Side, str]  # what tells a peer directory from others of the guest

# What the module lets change while a peer is in use; anything else stops the peer first.
CHANGEABLE: Mapping[Side, frozenset[str]] = {side: changeable(side) for side in Side}

# What a guest that borrows nothing is asked to find out: what borrowing with the default strategy would bring.
GHOST = Strategy.NON_INCLUSIVE.value


class Source(Enum):
    """Where the module for a guest comes from, best first."""

    INSTALLED = "installed in the guest"
    STORE = "from the agent's module store"
    DKMS = "built in the guest by DKMS"


@dataclass(frozen=True)
class Want:
    """A peer directory as it should be, for one pairing."""

    pairing: MemoryPairing
    side: Side
    attributes: Mapping[str, str]

    @property
    def name(self) -> str:
        """The directory's name, the same at both ends."""
        return self.pairing.metadata.uid

    @property
    def key(self) -> Key:
        """What tells it from other directories of the guest."""
        return self.side, self.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where a lender may be found, the preferred address first; none of a borrower, which comes by itself.

        What names them may be anybody's agent: a guest does not look for a lender in itself, or on its own link.
        """
        return () if self.side is Side.BORROWERS else reachable(self.pairing.spec.lender.addresses)

    def aimed(self, peer: Peer | None) -> Want:
        """With the address that is to be used now."""
        if not self.addresses:
            return self
        address = chosen(self.addresses, peer, self.pairing.spec.lender.network)
        return replace(self, attributes={**self.attributes, "address": address})

    @property
    def is_known(self) -> bool:
        """Whether the peer has an identity, and a lender an address; else the module has nothing to do with it."""
        return "identity" in self.attributes and (self.side is Side.BORROWERS or bool(self.addresses))


@dataclass(frozen=True)
class Desired:
    """How a guest should be set up."""

    settings: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[Want, ...] = ()
    following: frozenset[str] = frozenset()
    """Peers by name whose pairings say that the guest is on another node, until they have followed it: they stay."""
    block: Block = devices.NONE
    """Its block devices and swap."""
    applications: Offer | None = None
    """The memory of its programs."""

    @property
    def ghost(self) -> str:
        """The module's ghost mode: on while nothing is borrowed."""
        return GHOST_OFF if any(want.side is Side.LENDERS for want in self.peers) else GHOST


@dataclass(frozen=True)
class Load:
    """Bring the module into the guest."""

    source: Source


@dataclass(frozen=True)
class Replace:
    """Bring the store's build of the module into the guest in place of the one that is loaded, and back if it fails."""


@dataclass(frozen=True)
class Remove:
    """Remove peer directories."""

    peers: tuple[Key, ...]


@dataclass(frozen=True)
class Set:
    """Set attributes of the module as a whole."""

    settings: Mapping[str, str]


@dataclass(frozen=True)
class Configure:
    """Make or stop a peer directory, configure it and enable it."""

    want: Want


@dataclass(frozen=True)
class Change:
    """Change a peer that stays in use."""

    want: Want
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Turn:
    """Look for a lender at the next of its addresses."""

    want: Want
    address: str


@dataclass(frozen=True)
class Measure:
    """Switch the module's ghost mode."""

    mode: str


@dataclass(frozen=True)
class Unload:
    """Take the module out of the guest."""


Step = Load | Replace | Remove | Set | Configure | Change | Turn | Measure | Unload | BlockStep | AppStep


def subject(step: Step) -> tuple[str, ...]:
    """What a step is about: after a failure, steps about the same thing wait."""
    match step:
        case Configure(want) | Change(want, _) | Turn(want, _):
            return ("peer", want.side, want.name, str(want.pairing.metadata.generation))
        case Set():
            return ("settings",)
        case Remove():
            return ("removal",)
        case Measure():
            return ("ghost",)
        case Replace():
            return ("replacement",)
        case Load() | Unload():
            return ("module",)
        case LoadApp() | Give() | UnloadApp():
            return applications.subject(step)
        case _:
            return devices.subject(step)


def desired(guest: GuestKey, pairings: Iterable[MemoryPairing], *, migrating: bool = False) -> Desired:
    """How a guest should be set up for these pairings; those being deleted are wanted no more.

    A lender that is `migrating` takes nothing more meanwhile: what changes has to be copied again and again.
    """
    live = sorted((p for p in pairings if not p.terminating), key=lambda p: p.metadata.uid)
    lent = [p for p in live if p.lender == guest]
    borrowed = [p for p in live if p.borrower == guest]
    peers = [Want(p, Side.BORROWERS, _borrower(p)) for p in lent]
    peers += [Want(p, Side.LENDERS, _lender(p)) for p in borrowed]
    return Desired(
        _settings(lent, migrating=migrating),
        tuple(peers),
        block=devices.block(borrowed),
        applications=applications.offer(borrowed),
    )


def _settings(lent: list[MemoryPairing], *, migrating: bool) -> dict[str, str]:
    """Attributes of a lender as a whole. Pairings of one pool agree on them; if not, the guest's own safety wins."""
    if not lent:
        return {}
    return {
        "port": str(lent[0].spec.lender.port),
        "reserve_bytes": _bytes(max(p.spec.reserve_bytes for p in lent)),
        "lend_bytes": _bytes(min(p.spec.max_lend_bytes for p in lent)),
        "hold": "1" if migrating else "0",
    }


def _borrower(pairing: MemoryPairing) -> dict[str, str]:
    return {**_identity(pairing.spec.borrower.identity), "quota_bytes": _bytes(pairing.spec.size_bytes)}


def _lender(pairing: MemoryPairing) -> dict[str, str]:
    spec = pairing.spec
    return {
        **_identity(spec.lender.identity),
        **_address(spec.lender),
        "port": str(spec.lender.port),
        "size_bytes": _bytes(spec.size_bytes),
        "strategy": spec.strategy.value,
        "encryption": spec.encryption.value,
        "deadline_us": str(spec.deadline_us),
        "breaker": spec.latency.mode.value,
        "breaker_short": _thresholds(spec.latency.short),
        "breaker_long": _thresholds(spec.latency.long),
        "sequential_filter": "1" if spec.filter is Filter.SEQUENTIAL else "0",
    }


def _identity(known: str | None) -> dict[str, str]:
    return {"identity": known} if known else {}


def _address(lender: LenderEnd) -> dict[str, str]:
    """Where a lender is looked for first."""
    found = reachable(lender.addresses)
    return {"address": found[0]} if found else {}


def _thresholds(pair: Thresholds) -> str:
    return f"{pair.resume_us} {pair.stop_us}"


def _bytes(size: int) -> str:
    """A size as the module shows it: whole pages."""
    return str(size - size % PAGE)


def source(seen: Observation, *, in_store: bool, may_build: bool = False) -> Source | None:
    """Where the module for this guest would come from; None when nothing fits its kernel.

    `may_build` says that one may be built in the guest.
    """
    if seen.installed:
        return Source.INSTALLED
    if in_store:
        return Source.STORE
    return Source.DKMS if may_build and seen.buildable else None


def steps(wanted: Desired, seen: Observation, where: Source | None, *, replace: bool = False) -> list[Step]:
    """What leads from the state that was seen to the one that is wanted, in order.

    `replace` says that another build of the module is loaded than the store has, and that it is this guest's turn to
    get that: it is drained first, which costs it its remote cache. It waits while programs hold the module.
    """
    if not wanted.peers:
        return _nothing_wanted(wanted, seen)
    if seen.module is None:
        return _from_nothing(wanted, seen, where)
    if replace and not applications.is_held(seen.app):
        drained: list[Step] = [Remove(tuple(sorted(seen.peers)))] if seen.peers else []
        anew = [*_set_up(wanted, {}, {}), *_measure(wanted, GHOST_OFF)]
        return [*applications.released(seen.app), *devices.released(seen), *drained, Replace(), *anew]
    gone = _unwanted(wanted, seen.module, seen.peers)
    peers = {key: peer for key, peer in seen.peers.items() if key not in gone}
    return [
        *_removal(gone),
        *_set_up(wanted, seen.module.settings, peers),
        *_measure(wanted, seen.module.ghost),
        *devices.steps(wanted.block, seen, where, is_settled=not wanted.following),
        *applications.steps(wanted.applications, seen.app, where, is_settled=not wanted.following),
    ]


def _from_nothing(wanted: Desired, seen: Observation, where: Source | None) -> list[Step]:
    plain = devices.plain(wanted.block, seen, is_settled=not wanted.following)
    if where is None:
        return list(plain)
    up = [*_set_up(wanted, {}, {}), *_measure(wanted, GHOST_OFF)]
    given = applications.steps(wanted.applications, seen.app, where)
    return [*plain, Load(where), *up, *devices.lent(wanted.block, seen, where), *given]


def _measure(wanted: Desired, ghost: str) -> list[Step]:
    """An older module has no ghost mode; it is left alone, and so is one that may borrow what is to follow."""
    return [] if wanted.following or ghost in ("", wanted.ghost) else [Measure(wanted.ghost)]


def _unwanted(wanted: Desired, module: Module, peers: Mapping[Key, Peer]) -> set[Key]:
    """Peers that nobody wants, and those that hold the guest to a port which it should leave."""
    unwanted = {key for key in peers.keys() - {want.key for want in wanted.peers} if key[1] not in wanted.following}
    if wanted.settings.get("port") in (None, module.settings.get("port")):
        return unwanted
    return unwanted | {key for key, peer in peers.items() if key[0] is Side.BORROWERS and peer.enabled}


def _nothing_wanted(wanted: Desired, seen: Observation) -> list[Step]:
    if seen.module is None:
        return [*devices.given_up(seen), *devices.unloaded(seen)]
    removal = _removal(key for key in seen.peers if key[1] not in wanted.following)
    if wanted.following:
        return removal
    out: list[Step] = [*devices.unloaded(seen), *applications.given_up(seen.app)]
    return [*devices.given_up(seen), *removal, *out, *([] if applications.is_held(seen.app) else [Unload()])]


def _removal(gone: Iterable[Key]) -> list[Step]:
    peers = tuple(sorted(gone))
    return [Remove(peers)] if peers else []


def _set_up(wanted: Desired, settings: Mapping[str, str], peers: Mapping[Key, Peer]) -> list[Step]:
    changed = {name: value for name, value in wanted.settings.items() if settings.get(name) != value}
    result: list[Step] = [Set(changed)] if changed else []
    for want in wanted.peers:
        result += _peer(want, peers.get(want.key))
    return result


def _peer(want: Want, peer: Peer | None) -> list[Step]:
    """A peer whose identity is not known yet waits; one in use stays, and another identity of it is a change."""
    want = want.aimed(peer)
    if peer is None or not peer.enabled:
        return [Configure(want)] if want.is_known else []
    changed = {name: value for name, value in want.attributes.items() if not _same(peer.attributes.get(name), value)}
    if not changed.keys() <= CHANGEABLE[want.side]:
        return [Configure(want)]
    if changed.keys() == {"address"} and not is_adrift(want, peer):
        return [Turn(want, changed["address"])]
    return [Change(want, changed)] if changed else []


def is_adrift(want: Want, peer: Peer | None) -> bool:
    """Whether a borrower looks for its lender, or has it, where the lender is not said to be (any more)."""
    if peer is None or not want.addresses:
        return False
    return spelled(peer.attributes.get("address", "")) not in want.addresses


def _same(present: str | None, value: str) -> bool:
    """Equal as text, or two spellings of one IP address."""
    return present == value or (spelled(value) != "" and spelled(present or "") == spelled(value))
