"""MemoryPool: what a user writes to have the guests of a namespace share memory."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, PlainSerializer, PrivateAttr, WithJsonSchema, model_validator

from tidepool_api.applications import Applications
from tidepool_api.base import ApiModel, ApiObject, Time
from tidepool_api.conditions import Condition
from tidepool_api.defaults import MOST_LENDERS, BorrowerDefaults, LenderDefaults, PoolDefaults, described, together
from tidepool_api.devices import Devices, Forced, Swap, device_rules
from tidepool_api.fields import (
    LEAST_MEMORY,
    MOST_MEMORY,
    Bytes,
    ClassName,
    Count,
    Memory,
    ObjectName,
    Ratio,
    Selector,
    are_amounts,
    readable,
    rule,
    rules,
)
from tidepool_api.guest import GuestStatus
from tidepool_api.keys import PoolKey
from tidepool_api.names import DRY_RUN_ANNOTATION, Overcommitted, PoolPhase, Role, RoleChoice
from tidepool_api.reading import Understood
from tidepool_api.units import SECOND, parse_duration, parse_quantity

MOST_ROLES = 256  # that a status remembers


class Balloon(ApiModel):
    """Guests whose idle memory is gathered for the node that they run on, by their balloon."""

    selector: Selector
    """Which guests of the pool's own namespace, by their labels; those that lend or borrow themselves are left out."""

    reserve: Memory = "1Gi"
    """Memory that stays available in each of them."""

    @property
    def reserve_bytes(self) -> int:
        """`reserve` as a number."""
        return parse_quantity(self.reserve)


class Nodes(ApiModel):
    """Nodes that lend memory which no virtual machine has."""

    selector: Selector | None = None
    """Which nodes, by the labels of the Node; all that have the node lender if this is left out."""

    max_lend: Memory
    """The most that one node lends to this pool; nodeLender.maxLend, the chart's value, bounds what all have of it."""

    reserve: Memory = "1Gi"
    """Memory that has to stay available on the node; the chart's nodeLender.reserve where that is more."""

    balloon: Balloon | None = None
    """Guests on these nodes that give them what they have lying idle, and get it back before they miss it."""

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether a node with these labels is one of them."""
        return self.selector is None or self.selector.matches(labels)


class Lenders(LenderDefaults):
    """Who lends, and how much at most."""

    selector: Selector | None = None
    """The guests that lend, by their labels; absent when the role is Auto, and where nodes alone lend."""

    namespaces: tuple[ObjectName, ...] = Field(default=(), max_length=16)
    """Further namespaces whose guests lend too, if the selector matches them and a MemoryGrant there allows it."""

    nodes: Nodes | None = None
    """Nodes that lend, too, where the chart's nodeLender.enabled has them do so.

    For a pool of another namespace than that of the release, a MemoryGrant there has to allow it. Several pools may use
    a node at the same time.
    """


class Weight(ApiModel):
    """How much the reads of some borrowers count."""

    selector: Selector
    """Which borrowers, by their labels."""

    weight: int = Field(ge=1, le=100)
    """How much: twice the weight is twice the share, or as much for half the reads."""


class Borrowers(BorrowerDefaults):
    """Who borrows, and how much."""

    selector: Selector | None = None
    """The guests that borrow, by their labels; absent when the role is Auto."""

    size: Memory | None = None
    """How much each borrower gets, from one lender if one has it, else from several."""

    minimum: Memory | None = None
    """Instead of size, together with maximum: what each borrower gets at least, before anybody gets more."""

    maximum: Memory | None = None
    """Instead of size: what a borrower gets at most.

    What lenders have is shared out by what it brings. Where a guest's ghost mode has measured a curve, the memory goes
    where it answers most reads a second; where none has, each gets a fair share. A size changes only by an eighth or
    more, unless there is not enough otherwise.
    """

    weights: tuple[Weight, ...] = Field(default=(), max_length=8)
    """With maximum: who counts for more than others. The first that matches a guest holds; the others weigh 1."""

    devices: Devices = ()
    """Disks and partitions of each borrower to put the lenders in front of, by their paths in the guest.

    What lies on one stays there. It is used as /dev/mapper/tidepool-NAME from then on, which the MemoryGuest's status
    names. One that is mounted, open, read-only or smaller than 16Mi is left alone.
    """

    swap: Swap | None = None
    """A swap area of each borrower, with the lenders in front of it; without it swap is left alone."""

    force: Forced = ()
    """Those of devices and swap.device that are taken though something lies on them; swap overwrites it."""

    applications: Applications | None = None
    """Memory for programs of each borrower: its /dev/tidepool. Without it there is no such device."""

    model_config = {
        "json_schema_extra": rules(
            *device_rules(),
            rule(
                "has(self.size) != has(self.maximum)",
                "give either size, or maximum to have the sizes planned",
            ),
            rule(
                "!has(self.size) || (!has(self.minimum) && (!has(self.weights) || self.weights.size() == 0))",
                "minimum and weights go with maximum, not with size, which each borrower gets",
            ),
            rule(
                "!has(self.minimum) || !has(self.maximum) || "
                f"!({are_amounts('self.minimum', 'self.maximum')}) || "
                "quantity(self.minimum).compareTo(quantity(self.maximum)) <= 0",
                says="'minimum (' + self.minimum + ') is more than maximum (' + self.maximum + ')'",
                path=".minimum",
            ),
            *(
                rule(
                    f"!has(self.applications) || !has(self.{most}) || "
                    f"!({are_amounts('self.applications.size', f'self.{most}')}) || "
                    f"quantity(self.applications.size).compareTo(quantity(self.{most})) <= 0",
                    says=f"self.applications.size + ' is more than {most} (' + self.{most} + "
                    "'), of which it is a part'",
                    path=".applications.size",
                )
                for most in ("size", "maximum")
            ),
        )
    }


class PoolSpec(PoolDefaults):
    """Which guests share memory, and how."""

    class_name: ClassName | None = None
    """The MemoryPoolClass that gives what this spec leaves out, field by field; what is said here holds.

    Without it that is the default class of the cluster, if there is one; "" is for none.
    """

    role: RoleChoice = RoleChoice.SELECTED
    """Selected: lenders and borrowers are told apart by their two selectors.

    Auto: the guests that spec.selector matches are told apart by their need. Those borrow that read back what they had
    to evict, that a pool would spare many reads by their ghost mode's curve, or that wait for memory. Those with memory
    to spare lend. The others do neither, and nobody does both. For the cool-down a guest that has begun to lend or
    borrow goes on, and one that has ended begins neither.
    """

    selector: Selector | None = None
    """With role Auto: the guests that take part, by their labels."""

    lenders: Lenders
    """The guests with memory to spare."""

    borrowers: Borrowers
    """The guests whose page cache is too small."""

    paused: bool = False
    """Whether everything stays as it is.

    The pool keeps the guests that it has, and takes no others. The condition ChangesPending says what would change. The
    annotation tidepool.dev/dry-run: "true" does the same, to try out an edit; any value but "false" counts as that.
    """

    model_config = {
        "json_schema_extra": rules(
            rule(
                "self.role != 'Auto' || has(self.selector)",
                "is missing: role Auto chooses among the guests that it matches",
                path=".selector",
            ),
            rule(
                "self.role == 'Auto' || !has(self.selector)",
                "is for role Auto only; set spec.role to Auto, or use the selectors of spec.lenders and spec.borrowers",
                path=".selector",
            ),
            *(
                rule(
                    f"self.role == 'Auto' ? !has(self.{side}.selector) : has(self.{side}.selector){otherwise}",
                    says="self.role == 'Auto' ? 'has no place with role Auto, which chooses among the guests of "
                    f"spec.selector; remove it' : 'is missing: say which guests, {hint}or set spec.role to Auto'",
                    path=f".{side}.selector",
                )
                for side, otherwise, hint in (
                    ("lenders", " || has(self.lenders.nodes)", "or which nodes in spec.lenders.nodes, "),
                    ("borrowers", "", ""),
                )
            ),
            rule(
                "has(self.lenders.selector) || !has(self.lenders.namespaces) || self.lenders.namespaces.size() == 0 || "
                "self.role == 'Auto'",
                "is missing: it says which guests of spec.lenders.namespaces lend",
                path=".lenders.selector",
            ),
            rule(
                "self.role != 'Auto' || !has(self.lenders.namespaces) || self.lenders.namespaces.size() == 0",
                "has no place with role Auto: what guests of other namespaces do is decided there",
                path=".lenders.namespaces",
            ),
            rule(
                "!has(self.lenders.selector) || !has(self.borrowers.selector) || "
                "dyn(self.lenders.selector) != dyn(self.borrowers.selector)",
                "is the same as spec.lenders.selector, but no guest both lends and borrows; select by different labels",
                path=".borrowers.selector",
            ),
            *(
                rule(
                    "!has(self.lenders.nodes) || !has(self.lenders.nodes.balloon) || "
                    f"!has(self.{side}.selector) || "
                    f"dyn(self.lenders.nodes.balloon.selector) != dyn(self.{side}.selector)",
                    f"is the same as spec.{side}.selector, but memory is gathered only from guests that neither lend "
                    "nor borrow; select by different labels",
                    path=".lenders.nodes.balloon.selector",
                )
                for side in ("lenders", "borrowers")
            ),
            rule(
                "has(self.lenders.maxLend) || !has(self.className) || self.className != '' || "
                "(self.role != 'Auto' && has(self.lenders.nodes) && !has(self.lenders.selector))",
                'is missing, and className is "", so that no class gives it; say the most that one lender lends',
                path=".lenders.maxLend",
            ),
            rule(
                "!has(self.borrowers.size) || !has(self.lenders.maxLend) || has(self.lenders.nodes) || "
                f"!({are_amounts('self.borrowers.size', 'self.lenders.maxLend')}) || "
                f"quantity(self.borrowers.size).asApproximateFloat() <= "
                f"{MOST_LENDERS}.0 * quantity(self.lenders.maxLend).asApproximateFloat()",
                says=f"'a borrower has at most {MOST_LENDERS} lenders, and {MOST_LENDERS} times maxLend (' + "
                "self.lenders.maxLend + ') is less than size (' + self.borrowers.size + "
                "'); lower spec.borrowers.size or raise spec.lenders.maxLend'",
                path=".borrowers.size",
            ),
        )
    }

    @property
    def cool_down_seconds(self) -> float:
        """`coolDown` in seconds."""
        return parse_duration(self.cool_down) / SECOND

    @property
    def least_bytes(self) -> int:
        """What each borrower gets at least, as a number."""
        borrowers = self.borrowers
        return parse_quantity(borrowers.size or borrowers.minimum or LEAST_MEMORY)

    @property
    def most_bytes(self) -> int:
        """What each borrower gets at most, as a number; `least_bytes` where the size is given."""
        return parse_quantity(self.borrowers.size or self.borrowers.maximum or LEAST_MEMORY)

    @property
    def needs_max_lend(self) -> bool:
        """Whether guests lend, so that `lenders.maxLend` has to be said."""
        return self.role is RoleChoice.AUTO or self.lenders.selector is not None or self.lenders.nodes is None

    @property
    def max_lend_bytes(self) -> int:
        """What each guest gives at most, as a number; of a spec that is complete."""
        return parse_quantity(self.lenders.max_lend or LEAST_MEMORY)

    @property
    def balloon(self) -> Balloon | None:
        """The guests from which memory is gathered, if there are to be any."""
        return self.lenders.nodes.balloon if self.lenders.nodes else None

    def max_lend_of(self, lender: GuestStatus) -> int:
        """What a lender gives to this pool at most, in bytes; a node no more than its administrator lets it."""
        if lender.node is None:
            return self.max_lend_bytes
        asked = parse_quantity(self.lenders.nodes.max_lend) if self.lenders.nodes else 0
        return min(asked, lender.node.max_lend_bytes)

    @property
    def reserve_bytes(self) -> int:
        """What each lender keeps, as a number."""
        return parse_quantity(self.lenders.reserve)

    def left_out(self, lender: GuestStatus) -> int:
        """Memory of a lender that is not lent because its host has promised it to nobody, in bytes."""
        return 0 if self.lenders.overcommitted is Overcommitted.LEND else lender.overcommitted_bytes

    def reserve_of(self, lender: GuestStatus) -> int:
        """What a lender keeps, in bytes: the reserve, and what is left out."""
        if lender.node is None:
            return min(self.reserve_bytes + self.left_out(lender), parse_quantity(MOST_MEMORY))
        asked = parse_quantity(self.lenders.nodes.reserve) if self.lenders.nodes else 0
        return min(max(asked, lender.node.reserve_bytes), parse_quantity(MOST_MEMORY))

    @property
    def margin_bytes(self) -> int:
        """What each lender is left to grow by, as a number."""
        return parse_quantity(self.lenders.margin) if self.lenders.margin else 0


class GuestRole(ApiModel):
    """The role that a pool has given to a guest, which its selectors alone would not say."""

    guest: ObjectName
    """The guest."""

    role: Role
    """What it is for this pool since then."""

    since: Time
    """When it became that."""

    reason: str = Field(max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")
    """Why, in one word."""


def _said(values: PoolDefaults) -> dict[str, Any]:
    return values.said()


_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

FromClass = Annotated[PoolDefaults, PlainSerializer(_said, return_type=dict), WithJsonSchema(_ANYTHING)]


class HitShares(ApiModel):
    """What the pages are of that lenders have answered: parts of all hits."""

    files: Ratio
    """Of files, in the page cache."""

    devices: Ratio
    """Of spec.borrowers.devices."""

    swap: Ratio
    """Of spec.borrowers.swap."""

    applications: Ratio | None = None
    """Of values of programs, by spec.borrowers.applications; absent where no borrower has such."""


class PoolStatus(ApiModel):
    """What became of it."""

    observed_generation: Count | None = None
    """The generation of the spec that this is about."""

    phase: PoolPhase | None = None
    """The pool in one word.

    Ready: everybody has what it promises. Pending: something is under way, or an agent does not answer. Degraded:
    somebody has less, and waiting does not help. Paused: it is held, and something would change. Terminating: it is
    being deleted.
    """

    class_name: ObjectName | None = None
    """The MemoryPoolClass of the pool, be it the default one; absent without any. While it is gone: that it had."""

    from_class: FromClass | None = None
    """What its class gives: what the spec leaves out, with the fields of a MemoryPoolClass."""

    lenders: Count | None = None
    """Guests that the lenders' selector matches."""

    borrowers: Count | None = None
    """Guests that the borrowers' selector matches."""

    pairings: Count | None = None
    """Pairings made for it."""

    ready_pairings: Count | None = None
    """Pairings whose borrower is connected, and stays so."""

    lent_bytes: Bytes | None = None
    """What lenders have promised to borrowers that are connected."""

    used_bytes: Bytes | None = None
    """What borrowers keep with lenders at the moment."""

    lent: str | None = Field(default=None, max_length=20)
    """lentBytes for people to read."""

    used: str | None = Field(default=None, max_length=20)
    """usedBytes for people to read."""

    hit_ratio: Ratio | None = None
    """Reads of pages that lenders were believed to have and that they answered, among all such reads."""

    devices: Count | None = None
    """Devices of its borrowers that its lenders are in front of; absent while there are none."""

    swap_bytes: Bytes | None = None
    """Swap areas of its borrowers that its lenders are in front of; absent while there are none."""

    swap: str | None = Field(default=None, max_length=20)
    """swapBytes for people to read."""

    applications_bytes: Bytes | None = None
    """What programs of its borrowers keep; absent where none of them has /dev/tidepool."""

    applications: str | None = Field(default=None, max_length=20)
    """applicationsBytes for people to read."""

    hit_shares: HitShares | None = None
    """What the hits are of, where there are devices, swap or applications; they are of files otherwise."""

    roles: tuple[GuestRole, ...] | None = Field(default=None, max_length=MOST_ROLES)
    """Guests whose role the pool has changed within the cool-down, the latest ones, or has relieved."""

    conditions: tuple[Condition, ...] = Field(default=(), max_length=24)
    """Ready, Progressing and Degraded sum up: all is as the spec asks, something is under way, somebody has too little.

    These say why, where they are False: SpecComplete, LendersFound, LendersGranted, LendersBacked, BorrowersFound,
    RolesConsistent, LendersOnNetwork, CapacitySufficient, PlacementSatisfied, QuotaSufficient, GuestsReady,
    DevicesReady, SwapReady, ApplicationsReady.
    ChangesPending is there while the pool is paused or tried out, WriteRefused while the API server refuses something.
    """

    @model_validator(mode="before")
    @classmethod
    def _say_it_readably(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        names = ("lent", "used", "swap", "applications")
        sizes = {name: values.get(f"{name}_bytes", values.get(f"{name}Bytes")) for name in names}
        return {**{name: readable(size) for name, size in sizes.items() if isinstance(size, int)}, **values}


class Lack(NamedTuple):
    """Why a spec is not complete."""

    reason: str
    """In one word."""

    message: str
    """What is missing, and what to do about it."""


class Source(NamedTuple):
    """Where the values of a spec come from that its author has left out."""

    class_name: str = ""
    """The class; empty for none."""

    given: PoolDefaults = PoolDefaults()
    """What the class gives beyond what the spec says."""

    lack: Lack | None = None
    """Why there is no telling what the values are, if so."""

    remark: str = ""
    """What else there is to say about the class."""

    @property
    def note(self) -> str:
        """What the class gives, for people to read; empty without one."""
        if not self.class_name:
            return ""
        values = ", ".join(described(self.given.said())) or "nothing that the spec leaves out"
        return f"MemoryPoolClass {self.class_name} gives {values}{self.remark and f'; {self.remark}'}"


class MemoryPool(ApiObject):
    """Guests of this namespace that share memory: what some have to spare becomes page cache of others."""

    kind: str = "MemoryPool"
    spec: PoolSpec
    status: Understood[PoolStatus] = Field(default_factory=PoolStatus)

    _written: PoolSpec | None = PrivateAttr(default=None)
    _source: Source = PrivateAttr(default=Source())

    @property
    def key(self) -> PoolKey:
        """By which it is known everywhere."""
        return PoolKey(self.namespace, self.name)

    @property
    def written(self) -> PoolSpec:
        """The spec as its author has written it."""
        return self._written or self.spec

    @property
    def source(self) -> Source:
        """Where the rest of the spec comes from."""
        return self._source

    def completed(self, source: Source) -> Self:
        """The pool with the values of a source where its author has written none."""
        written, given = self.written, source.given.said()
        spec = PoolSpec.model_validate(together(given, written.said())) if given else written
        pool = self.model_copy(update={"spec": spec})
        pool._written, pool._source = written, source  # noqa: SLF001 - of the same class
        return pool

    def origin(self, field: str) -> str:
        """Where the value of a field comes from, for people to read; not for those of `lenders` and `borrowers`."""
        source = self.source
        is_given = field in source.given.said()
        return f"MemoryPoolClass {source.class_name}'s {field}" if is_given else f"spec.{field}"

    @property
    def in_effect(self) -> Self:
        """The pool as its status says that it is in effect."""
        name, given = self.status.class_name, self.status.from_class
        return self.completed(Source(name or "", given or PoolDefaults()))

    @property
    def dry_run(self) -> str | None:
        """The value of its annotation, if that asks for nothing but what would change: all but `false` do."""
        value = self.metadata.annotations.get(DRY_RUN_ANNOTATION)
        return None if value == "false" else value

    @property
    def is_held(self) -> bool:
        """Whether it stays as it is: it has the guests that it has, and takes no others."""
        return not self.terminating and (self.spec.paused or self.dry_run is not None or self.source.lack is not None)

    model_config = {
        "json_schema_extra": rules(
            rule(
                "self.metadata.name.size() <= 63",
                says="'metadata.name ' + self.metadata.name + ' is longer than 63 characters, the most for a label'",
            )
        )
    }
