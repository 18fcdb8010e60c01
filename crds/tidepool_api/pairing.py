"""MemoryPairing: one guest that lends to another, made by the operator for a pool and carried out by two agents."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from tidepool_api import names
from tidepool_api.applications import Applications
from tidepool_api.base import ApiModel, ApiObject
from tidepool_api.conditions import Condition
from tidepool_api.devices import Devices, Forced, Swap, device_rules
from tidepool_api.fields import (
    Address,
    Bytes,
    Count,
    Deadline,
    Identity,
    Memory,
    ObjectName,
    Port,
    Ratio,
    immutable,
    rule,
    rules,
)
from tidepool_api.keys import GuestKey, PoolKey, Ref
from tidepool_api.latency import Latency
from tidepool_api.names import BorrowerState, Encryption, Filter, LenderState, PairingPhase, Strategy
from tidepool_api.network import MOST_ADDRESSES, Network
from tidepool_api.reading import Understood
from tidepool_api.units import parse_duration, parse_quantity

_ANOTHER = "delete the pairing and let the pool make another"


class LenderEnd(ApiModel):
    """The guest that lends, and where it is reached."""

    guest: ObjectName = Field(json_schema_extra=rules(immutable("the lender of a pairing", _ANOTHER)))
    """The name of its MemoryGuest."""

    namespace: ObjectName | None = Field(
        default=None, json_schema_extra=rules(immutable("the lender of a pairing", _ANOTHER))
    )
    """The namespace of its MemoryGuest where that is not the pairing's own; a MemoryGrant there allows it."""

    node_name: ObjectName
    """The node on which it runs."""

    address: Address
    """The IP address at which the borrower looks for it first."""

    other_addresses: tuple[Address, ...] = Field(default=(), max_length=MOST_ADDRESSES - 1)
    """Its further IP addresses: the borrower goes on to the next where it is not found, and stays where it is."""

    network: Network | None = None
    """The network that these addresses are on, where the pool names one: the borrower stays at no other."""

    port: Port = 7470
    """The TCP port on which it listens."""

    identity: Identity | None = None
    """Its module's public key, as its MemoryGuest reports it; absent until that is known."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All its addresses, the first one first."""
        return (self.address, *self.other_addresses)

    @property
    def place(self) -> str:
        """Where it is looked for, for people to read."""
        return f"{' or '.join(self.addresses)} port {self.port}"


class BorrowerEnd(ApiModel):
    """The guest that borrows."""

    guest: ObjectName = Field(json_schema_extra=rules(immutable("the borrower of a pairing", _ANOTHER)))
    """The name of its MemoryGuest."""

    node_name: ObjectName
    """The node on which it runs."""

    identity: Identity | None = None
    """Its module's public key, as its MemoryGuest reports it; absent until that is known."""

    devices: Devices = ()
    """Devices in its guest to put its lenders in front of, as its pool names them."""

    swap: Swap | None = None
    """The swap area that it is to have, with its lenders in front."""

    force: Forced = ()
    """Those of devices and swap.device that are taken though something lies on them."""

    applications: Applications | None = None
    """The memory that its programs are to have, in its /dev/tidepool."""

    model_config = {"json_schema_extra": rules(*device_rules())}


class PairingSpec(ApiModel):
    """Who lends how much to whom, and how."""

    pool: str = Field(
        min_length=1, max_length=63, json_schema_extra=rules(immutable("the pool of a pairing", _ANOTHER))
    )
    """The pool that it belongs to."""

    lender: LenderEnd
    """Who lends."""

    borrower: BorrowerEnd
    """Who borrows."""

    size: Memory
    """How much the borrower may keep with this lender."""

    reserve: Memory
    """Memory that the lender always keeps available for itself: below it no page is taken."""

    max_lend: Memory
    """The most that this lender may lend to all its borrowers together."""

    strategy: Strategy = Strategy.NON_INCLUSIVE
    """Whether a page that was read back stays with the lender."""

    filter: Filter = Filter.NONE
    """Whether pages read in order stay out of the pool."""

    encryption: Encryption = Encryption.AES_GCM
    """How pages are protected on the way and with the lender."""

    deadline: Deadline = "200ms"
    """A read that the lender has not answered after this time goes to the disk."""

    latency: Latency = Latency()
    """When the borrower leaves the lender alone because it is slow."""

    model_config = {
        "json_schema_extra": rules(
            rule(
                "has(self.lender.__namespace__) || self.lender.guest != self.borrower.guest",
                says="'the guest ' + self.lender.guest + ' cannot lend to itself; name two guests'",
            ),
            rule(
                "!has(self.lender.identity) || !has(self.borrower.identity) || "
                "self.lender.identity != self.borrower.identity",
                "is the lender's identity too; give each guest's own, as its MemoryGuest reports it",
                path=".borrower.identity",
            ),
        )
    }

    @property
    def size_bytes(self) -> int:
        """`size` as a number."""
        return parse_quantity(self.size)

    @property
    def reserve_bytes(self) -> int:
        """`reserve` as a number."""
        return parse_quantity(self.reserve)

    @property
    def max_lend_bytes(self) -> int:
        """`maxLend` as a number."""
        return parse_quantity(self.max_lend)

    @property
    def deadline_us(self) -> int:
        """`deadline` in microseconds."""
        return parse_duration(self.deadline)


class LenderStatus(ApiModel):
    """The lending end, applied by the agent of the lender's node."""

    boot_id: str | None = Field(default=None, alias="bootID", max_length=64)
    """The boot of the guest in which this was set up."""

    state: LenderState = LenderState.PENDING
    """How far it is."""

    lent_bytes: Bytes | None = None
    """What it holds for the borrower."""

    observed_generation: Count | None = None
    """The generation of the spec that is set up in the guest."""

    peer_identity: Identity | None = None
    """The identity of the borrower, as the guest has been given it."""

    conditions: tuple[Condition, ...] = Field(default=(), max_length=8)
    """Configured: whether the guest is set up as the spec says, and if not why and what to do."""


class BorrowerStatus(ApiModel):
    """The borrowing end, applied by the agent of the borrower's node."""

    boot_id: str | None = Field(default=None, alias="bootID", max_length=64)
    """The boot of the guest in which this was set up."""

    state: BorrowerState = BorrowerState.PENDING
    """How far it is."""

    reason: str | None = Field(default=None, max_length=32, pattern=r"^[A-Z][A-Za-z]*$")
    """Why it is not connected, in the module's word (kernel-module/ABI.md); absent if it is, or is not set up."""

    used_bytes: Bytes | None = None
    """What the borrower keeps with the lender."""

    hits: Count | None = None
    """Reads of pages that the lender was believed to have, and that it answered."""

    misses: Count | None = None
    """Reads of such pages that went to the disk after all."""

    hit_ratio: Ratio | None = None
    """Hits among both, with two digits."""

    observed_generation: Count | None = None
    """The generation of the spec that is set up in the guest."""

    peer_identity: Identity | None = None
    """The identity of the lender, as the guest has been given it."""

    conditions: tuple[Condition, ...] = Field(default=(), max_length=8)
    """Configured: whether the guest is set up as the spec says, and if not why and what to do."""


class PairingStatus(ApiModel):
    """The two ends as their agents see them, and what follows from both."""

    phase: PairingPhase | None = None
    """The pairing in one word.

    Pending: the guests are being set up. Connecting: the borrower looks for its lender. Connected: pages flow.
    Unstable: the connection is lost again and again, and Ready says what is known of the cause. Paused: the virtual
    machine of one is paused. Failed: Ready says why, and what to do. Terminating: it is being taken down.
    """

    observed_generation: Count | None = None
    """The generation that the phase and conditions are about."""

    conditions: tuple[Condition, ...] = Field(default=(), max_length=8)
    """Ready: whether pages can go from the borrower to the lender and back, and if not why.

    IdentitiesExchanged: whether each guest has been given the other's identity, and if not whose is missing where.
    WriteRefused: what the API server refuses, while it does.
    """

    lender: LenderStatus | None = None
    """The lending end."""

    borrower: BorrowerStatus | None = None
    """The borrowing end."""


def ends(pairing: Mapping[str, Any]) -> tuple[GuestKey, GuestKey]:
    """The lender and the borrower of a pairing as the API server has it."""
    home, lender = pairing["metadata"]["namespace"], pairing["spec"]["lender"]
    elsewhere = lender.get("namespace")  # of a lender that a MemoryGrant lets lend to another namespace
    return GuestKey(elsewhere or home, lender["guest"]), GuestKey(home, pairing["spec"]["borrower"]["guest"])


class MemoryPairing(ApiObject):
    """One guest that lends memory to another.

    The operator makes it for a MemoryPool. Its UID is the name of the peer's directory in the module of both guests.
    """

    kind: str = "MemoryPairing"
    spec: PairingSpec
    status: Understood[PairingStatus] = Field(default_factory=PairingStatus)

    @cached_property
    def lender(self) -> GuestKey:
        """Who lends."""
        return GuestKey(self.spec.lender.namespace or self.namespace, self.spec.lender.guest)

    @cached_property
    def borrower(self) -> GuestKey:
        """Who borrows: a guest of the pairing's own namespace."""
        return GuestKey(self.namespace, self.spec.borrower.guest)

    @property
    def lends_node(self) -> bool:
        """Whether a node lends, and no virtual machine: its MemoryGuest is called like it."""
        return self.spec.lender.guest == self.spec.lender.node_name

    @property
    def ends(self) -> tuple[GuestKey, GuestKey]:
        """The lender and the borrower."""
        return self.lender, self.borrower

    @cached_property
    def pool(self) -> PoolKey:
        """The pool that it belongs to."""
        return PoolKey(self.namespace, self.spec.pool)

    @property
    def is_taken_down(self) -> bool:
        """Whether it is there only because of somebody else's finalizer: both ends are taken down."""
        ours = {names.LENDER_FINALIZER, names.BORROWER_FINALIZER}
        return self.terminating and bool(self.metadata.finalizers) and ours.isdisjoint(self.metadata.finalizers)

    @cached_property
    def lender_ref(self) -> Ref:
        """The lender as the pairing's namespace calls it."""
        return self.lender.seen_from(self.namespace)

    @cached_property
    def borrower_ref(self) -> Ref:
        """The borrower as the pairing's namespace calls it: its name."""
        return Ref(self.spec.borrower.guest)
