"""MemoryGuest: whoever can lend or borrow, as the agent of its node reports it: a virtual machine, or a node itself."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from tidepool_api.applications import GuestApplications
from tidepool_api.base import ApiModel, ApiObject, Time
from tidepool_api.conditions import Condition, find
from tidepool_api.devices import MOST_DEVICES
from tidepool_api.fields import (
    Address,
    Bytes,
    Count,
    Identity,
    ObjectName,
    Percent,
    Port,
    Ratio,
    immutable,
    readable,
    rule,
    rules,
)
from tidepool_api.keys import GuestKey
from tidepool_api.names import ConditionType, Provider, Reason, Role
from tidepool_api.network import MOST_ADDRESSES, MOST_INTERFACES, Interface, Network
from tidepool_api.reading import Understood

SEVERE_SOME, SEVERE_FULL = 20, 5  # percent of the time waiting for memory
CALM_SOME = 5  # the same, below which a guest may begin to lend
MOST_PEERS = 16


class VirtualMachine(ApiModel):
    """Which virtual machine, in the words of its provider."""

    name: ObjectName
    """The name of the VirtualMachineInstance or of the Nova instance, or that of any other libvirt domain."""

    uid: str = Field(min_length=1, max_length=64)
    """Its UID; another one under the same name is another machine."""


class GuestSpec(ApiModel):
    """Which virtual machine this is, and where it runs."""

    provider: Provider = Field(json_schema_extra=rules(immutable("the provider", "delete the object")))
    """What runs the virtual machine. Node: it is none, but a node, whose free memory the node lender lends."""

    vm: VirtualMachine
    """Which virtual machine; of a node its Node."""

    node_name: ObjectName
    """The node on which it runs now, or which it is."""


class GuestMemory(ApiModel):
    """The guest's memory as its kernel counts it."""

    total_bytes: Bytes
    """MemTotal."""

    available_bytes: Bytes
    """MemAvailable. Pages lent to others count as available, because they can be dropped at any time."""

    working_set_bytes: Bytes | None = None
    """What it uses and would miss: active page cache, anonymous memory and what cannot be evicted."""

    lent_bytes: Bytes = 0
    """What it holds for others."""

    borrowed_bytes: Bytes = 0
    """What others hold for it."""

    total: str | None = Field(default=None, max_length=20)
    """totalBytes for people to read."""

    @property
    def spare_bytes(self) -> int:
        """What the guest does not use itself: available, and no part of its working set; what it lends is among it."""
        if self.working_set_bytes is None:
            return self.available_bytes
        return min(self.available_bytes, self.total_bytes - self.working_set_bytes)

    @model_validator(mode="before")
    @classmethod
    def _say_it_readably(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "total" in values:
            return values
        size = values.get("total_bytes", values.get("totalBytes"))
        return {**values, "total": readable(size)} if isinstance(size, int) else values


class GuestBacking(ApiModel):
    """What is behind the guest's memory on its host."""

    request_bytes: Bytes | None = None
    """What its pod requests of the node, huge pages included; absent where no pod does, as with libvirt alone."""

    overcommitted_bytes: Bytes = 0
    """Memory of the virtual machine that this leaves out, once virt-launcher has its part: nobody has promised it."""

    huge_pages: bool = False
    """Whether it is huge pages, which the host has set apart for it."""

    free_page_reporting: bool = False
    """Whether the host gets pages back that the guest has freed. Without that it keeps all that it ever touched."""

    swap: bool = False
    """Whether the host may swap it out: there is swap space, and the memory is neither huge pages nor locked."""


class GuestPressure(ApiModel):
    """How short of memory the guest is, by its kernel's pressure stall information and its refaults.

    Rounded, and changed only when it has clearly moved: these are figures to plan with, not to draw.
    """

    memory_some: Percent | None = None
    """Part of the last minute in which some task waited for memory."""

    memory_full: Percent | None = None
    """Part of the last minute in which all tasks waited for memory."""

    io_some: Percent | None = None
    """Part of the last minute in which some task waited for I/O."""

    io_full: Percent | None = None
    """Part of the last minute in which all tasks waited for I/O."""

    refaults_per_second: Count | None = None
    """Pages of the page cache that were read again soon after they had been evicted."""

    @property
    def is_severe(self) -> bool:
        """Whether the guest needs all of its memory itself: a lender is relieved."""
        return (self.memory_some or 0) >= SEVERE_SOME or (self.memory_full or 0) >= SEVERE_FULL

    @property
    def is_calm(self) -> bool:
        """Whether the guest waits so little for memory that it may begin to lend."""
        return (self.memory_some or 0) < CALM_SOME and not self.is_severe


class CurvePoint(ApiModel):
    """What a pool of one size would be worth to the guest."""

    size_bytes: Bytes
    """How large the pool would be."""

    hit_ratio: Ratio
    """The part of its reads from disk that such a pool would have answered."""


class GuestPeer(ApiModel):
    """Who lends to this guest or borrows from it: one guest, or all those of one other namespace that borrow.

    It names whom pairings of the guest's own namespace name, and nobody else: their readers learn no name from it.
    """

    namespace: ObjectName
    """Its namespace."""

    guest: ObjectName | None = None
    """Its name. Absent for guests of another namespace that borrow: pairings there name them."""

    role: Role
    """What it is to this guest: Lender or Borrower."""

    held_bytes: Bytes
    """What the lender holds for the borrower, as the module of this guest counts it."""


class GuestDevice(ApiModel):
    """A block device of the guest that is behind a pool, or a swap area of its pool."""

    name: str = Field(min_length=1, max_length=127)
    """By which device-mapper has it: it is /dev/mapper/NAME in the guest."""

    below: str = Field(default="", max_length=127)
    """What it lies on: a device, or the file that a swap area is in."""

    size_bytes: Bytes
    """How large it is."""

    lent: bool
    """Whether lenders are in front of it; without them it is its disk alone."""

    hits: Count = 0
    """Blocks of 4 KiB that lenders have answered, since it was set up."""

    misses: Count = 0
    """Blocks that came from the disk."""

    puts: Count = 0
    """Blocks that went to lenders."""

    swapped_bytes: Bytes | None = None
    """Of a swap area: how much of it is in use; absent while it is not in use at all, and of other devices."""


class GuestBalloon(ApiModel):
    """What a guest gives to its node by its balloon."""

    full_bytes: Bytes
    """What the guest has without it, as its machine is defined."""

    gathered_bytes: Bytes
    """What the balloon holds at the moment: the guest has so much less, until it wants it back."""

    reserve_bytes: Bytes | None = None
    """What stays available in the guest; absent while all is given back because no pool asks for it any more."""

    gathered: str | None = Field(default=None, max_length=20)
    """gatheredBytes for people to read."""

    @model_validator(mode="before")
    @classmethod
    def _say_it_readably(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "gathered" in values:
            return values
        size = values.get("gathered_bytes", values.get("gatheredBytes"))
        return {**values, "gathered": readable(size)} if isinstance(size, int) else values


class NodeTerms(ApiModel):
    """What the cluster's administrator lets a node lend, by nodeLender, the chart's value."""

    max_lend_bytes: Bytes
    """The most that it lends to all borrowers of all pools together."""

    reserve_bytes: Bytes
    """What stays available on it beside what is lent."""

    port: Port
    """The TCP port on which its node lender listens, whatever pools say."""

    gathered_bytes: Bytes | None = None
    """What balloons of guests hold for it, in all. It is part of what is available on it, and counted nowhere else."""

    borrowers: Count | None = None
    """How many borrowers have a pairing with it; one node takes 64 at most. Absent if there is none."""


class GuestStatus(ApiModel):
    """What the agent found out about the guest."""

    addresses: tuple[Address, ...] = Field(default=(), max_length=MOST_ADDRESSES)
    """IP addresses at which other guests reach it where no pool names a network, the preferred one first."""

    interfaces: tuple[Interface, ...] = Field(default=(), max_length=MOST_INTERFACES)
    """All its network interfaces that are known, each with its addresses."""

    kernel_release: str | None = Field(default=None, max_length=128)
    """What `uname -r` says."""

    boot_id: str | None = Field(default=None, alias="bootID", max_length=64)
    """The kernel's boot_id; another one means that the guest has rebooted."""

    module_version: str | None = Field(default=None, max_length=64)
    """The version of the loaded module; absent when none is loaded."""

    identity: Identity | None = None
    """The public key of the loaded module, which draws another one each time it is loaded; absent when none is."""

    memory: GuestMemory | None = None
    """Its memory."""

    backing: GuestBacking | None = None
    """What is behind it on the host."""

    pressure: GuestPressure | None = None
    """How short of memory it is."""

    curve: tuple[CurvePoint, ...] = Field(default=(), max_length=16)
    """What it would gain by borrowing, by size, found out by the module's ghost mode while it borrows nothing."""

    curve_references: Count | None = None
    """Reads that the curve rests on, rounded down to 1, 2 or 5 and zeros; with fewer than 1000 it says little."""

    misses_per_second: Count | None = None
    """Reads that its page cache could not answer, from disk or from a lender: what the curve's ratios are parts of."""

    role: Role = Role.NONE
    """What it does now."""

    migrating: bool | None = None
    """True from the preparation of a live migration to its end: it keeps what it has, and gets and gives nothing new.

    Absent otherwise.
    """

    peers: tuple[GuestPeer, ...] = Field(default=(), max_length=MOST_PEERS)
    """With whom it shares memory, as its pairings say: those with the most first."""

    more_peers: Count | None = None
    """How many more there are, with less memory each; absent if there are no more."""

    devices: tuple[GuestDevice, ...] = Field(default=(), max_length=MOST_DEVICES)
    """Its block devices that are behind a pool, or were."""

    swap: GuestDevice | None = None
    """The swap area that a pool has it use, or had it use."""

    applications: GuestApplications | None = None
    """What its programs keep in /dev/tidepool; absent while it has none."""

    balloon: GuestBalloon | None = None
    """What its node has of it by its balloon; absent while no pool asks for that, and nothing is held."""

    node: NodeTerms | None = None
    """Of a node: what it may lend. Absent of a virtual machine."""

    conditions: tuple[Condition, ...] = Field(default=(), max_length=16)
    """GuestAgentReady, ModuleAvailable, ModuleLoaded, and Ready: whether it can lend or borrow, and if not why.

    LendingPaired: whether every borrower for which its module holds memory is named by a pairing; while its agent is
    dead, the operator says so in its place. MemoryBacked: whether its pod requests all of its memory; Unknown where no
    pod does. DevicesReady, SwapReady and ApplicationsReady, while there are some: whether they are as the pool asks,
    and if not why and what to do. BalloonReady, where a pool has memory gathered from it: whether its node gets what it
    has lying idle.

    A node has others beside Ready. LenderRunning: whether its node lender answers. LenderFit: whether swap and limits
    are as they should be, and if not what to do.
    """

    observed_at: Time | None = None
    """When the agent last looked."""

    @property
    def overcommitted_bytes(self) -> int:
        """Memory that nobody has promised it, as far as is known."""
        return self.backing.overcommitted_bytes if self.backing else 0

    def addresses_on(self, network: Network | None) -> tuple[str, ...]:
        """At which of its addresses it is reached on a network, or wherever it is where none is named."""
        return self.addresses if network is None else network.addresses(self.addresses, self.interfaces)


class MemoryGuest(ApiObject):
    """A virtual machine that can lend memory to others or borrow it from them, or a node that lends its free memory.

    Its agent writes it, and nobody else. A KubeVirt instance gives it its name, namespace and labels, but for those in
    which KubeVirt notes where it runs. Of more than 128 labels it has those of `tidepool.dev/`, and then the first ones
    by name. A domain of a host's own libvirt gives it its UUID as a name, a label `tidepool.dev/vm` with what people
    call it, and those of Nova as `tidepool.dev/nova-…`.

    A node with the node lender is one of provider Node, in the namespace of the release, with name and labels of the
    Node. It has no kind of its own: a pairing has one kind of lender then, and all are planned alike. One command lists
    who takes part. Who may see or use nodes follows from their namespace.
    """

    kind: str = "MemoryGuest"
    spec: GuestSpec
    status: Understood[GuestStatus] = Field(default_factory=GuestStatus)

    @property
    def key(self) -> GuestKey:
        """By which it is known everywhere."""
        return GuestKey(self.namespace, self.name)

    @property
    def is_node(self) -> bool:
        """Whether it is a node, and no virtual machine."""
        return self.spec.provider is Provider.NODE

    @property
    def ready(self) -> Condition | None:
        """The condition that says whether it can lend or borrow."""
        return find(self.status.conditions, ConditionType.READY)

    @cached_property
    def is_excluded(self) -> bool:
        """Whether its owner, or that of its namespace, keeps Tidepool out of it."""
        return self.ready is not None and self.ready.reason == Reason.EXCLUDED

    @cached_property
    def has_ended(self) -> bool:
        """Whether its virtual machine has come to its end, which the condition Ready tells in words."""
        return self.ready is not None and self.ready.reason == Reason.ENDED

    model_config = {
        "json_schema_extra": rules(
            rule(
                "self.spec.provider != 'Node' || self.metadata.name == self.spec.nodeName",
                says="'metadata.name ' + self.metadata.name + ' is not the node ' + self.spec.nodeName + "
                "', which a MemoryGuest of provider Node is named after'",
            )
        )
    }
