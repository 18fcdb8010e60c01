"""Which guests take part in a pool, in which role, and what is said about those that cannot. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from tidepool_api import ConditionType, Provider, Reason, Role, RoleChoice, Status, names
from tidepool_api.fields import readable, total
from tidepool_operator.planning import roles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, Network, Ref, Selector
    from tidepool_operator.planning.inventory import Inventory
    from tidepool_operator.planning.roles import Roles

NAMED_AT_MOST = 10  # guests in one message


class ProblemReason(StrEnum):
    """What can be in the way of a pool."""

    CLASS_NOT_FOUND = "ClassNotFound"
    CLASS_UNREADABLE = "ClassUnreadable"
    MAX_LEND_MISSING = "MaxLendMissing"
    NO_LENDERS = "NoLenders"
    NO_NODES = "NoNodes"
    NO_DONORS = "NoDonors"
    NO_BORROWERS = "NoBorrowers"
    NOT_GRANTED = "NotGranted"
    ROLE_CONFLICT = "RoleConflict"
    GUEST_CLAIMED = "GuestClaimed"
    GUEST_NOT_READY = "GuestNotReady"
    GUEST_MIGRATES = "GuestMigrates"
    NODE_CORDONED = "NodeCordoned"
    OVERCOMMITTED = "Overcommitted"
    NODE_PRESSED = "NodeUnderMemoryPressure"
    NOT_ON_NETWORK = "NotOnNetwork"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    NOBODY_WHERE_REQUIRED = "NobodyWhereRequired"
    QUOTA_REACHED = "QuotaReached"
    DEVICES_NOT_READY = "DevicesNotReady"
    SWAP_NOT_READY = "SwapNotReady"
    APPLICATIONS_NOT_READY = "ApplicationsNotReady"

    @property
    def condition(self) -> ConditionType:
        """The condition of the pool that this makes False."""
        return _CONDITIONS[self]


_CONDITIONS = {
    ProblemReason.CLASS_NOT_FOUND: ConditionType.SPEC_COMPLETE,
    ProblemReason.CLASS_UNREADABLE: ConditionType.SPEC_COMPLETE,
    ProblemReason.MAX_LEND_MISSING: ConditionType.SPEC_COMPLETE,
    ProblemReason.NO_LENDERS: ConditionType.LENDERS_FOUND,
    ProblemReason.NO_NODES: ConditionType.LENDERS_FOUND,
    ProblemReason.NO_DONORS: ConditionType.LENDERS_FOUND,
    ProblemReason.NO_BORROWERS: ConditionType.BORROWERS_FOUND,
    ProblemReason.NOT_GRANTED: ConditionType.LENDERS_GRANTED,
    ProblemReason.ROLE_CONFLICT: ConditionType.ROLES_CONSISTENT,
    ProblemReason.GUEST_CLAIMED: ConditionType.ROLES_CONSISTENT,
    ProblemReason.GUEST_NOT_READY: ConditionType.GUESTS_READY,
    ProblemReason.GUEST_MIGRATES: ConditionType.GUESTS_READY,
    ProblemReason.NODE_CORDONED: ConditionType.GUESTS_READY,
    ProblemReason.OVERCOMMITTED: ConditionType.LENDERS_BACKED,
    ProblemReason.NODE_PRESSED: ConditionType.LENDERS_BACKED,
    ProblemReason.NOT_ON_NETWORK: ConditionType.LENDERS_ON_NETWORK,
    ProblemReason.INSUFFICIENT_CAPACITY: ConditionType.CAPACITY_SUFFICIENT,
    ProblemReason.NOBODY_WHERE_REQUIRED: ConditionType.PLACEMENT_SATISFIED,
    ProblemReason.QUOTA_REACHED: ConditionType.QUOTA_SUFFICIENT,
    ProblemReason.DEVICES_NOT_READY: ConditionType.DEVICES_READY,
    ProblemReason.SWAP_NOT_READY: ConditionType.SWAP_READY,
    ProblemReason.APPLICATIONS_NOT_READY: ConditionType.APPLICATIONS_READY,
}


@dataclass(frozen=True)
class Problem:
    """Something that the user has to know, and what to do about it."""

    reason: ProblemReason
    message: str
    guests: tuple[Ref, ...] = ()

    def leaves_out(self, unserved: Collection[Ref]) -> bool:
        """Whether somebody is not served for it; a guest that only could take part does without."""
        return self.reason not in _PASSING or not set(unserved).isdisjoint(self.guests)


# What is worth a word, and no harm to a pool as such: some guest of many is always being restarted, and who has the
# minimum could always have more. A guest that is selected as both would borrow, and does not: that is harm.
_PASSING = frozenset(
    {
        ProblemReason.NO_NODES,
        ProblemReason.NO_DONORS,
        ProblemReason.NOT_GRANTED,
        ProblemReason.GUEST_CLAIMED,
        ProblemReason.GUEST_NOT_READY,
        ProblemReason.GUEST_MIGRATES,
        ProblemReason.NODE_CORDONED,
        ProblemReason.OVERCOMMITTED,
        ProblemReason.NODE_PRESSED,
        ProblemReason.NOT_ON_NETWORK,
        ProblemReason.QUOTA_REACHED,
    }
)


@dataclass(frozen=True)
class Selection:
    """The guests of a pool by role, and those that can take part now."""

    lenders: Mapping[Ref, MemoryGuest]
    borrowers: Mapping[Ref, MemoryGuest]
    unready: Mapping[Ref, str]  # name -> why
    cordoned: frozenset[Ref]  # guests whose nodes take nothing new, and neither do they
    migrating: frozenset[Ref]  # guests that take nothing new until they have arrived
    roles: Roles
    taken: frozenset[Ref]  # guests that other pools have
    missed: frozenset[Ref]  # guests that are left out, and would borrow
    problems: tuple[Problem, ...]
    ended: Mapping[Ref, str] = field(default_factory=dict)  # name -> how its machine ended
    network: Network | None = None  # that pages take
    off_network: frozenset[Ref] = frozenset()  # lenders that have no address there

    @property
    def absent(self) -> frozenset[Ref]:
        """The guests that keep what they have and get nothing new."""
        return self.cordoned | self.migrating | self.unready.keys()

    @property
    def offering(self) -> list[Ref]:
        """The lenders that can take more."""
        absent = self.absent | self.roles.resting | self.off_network
        return [name for name in self.lenders if name not in absent]

    def is_off_network(self, one: MemoryPairing) -> bool:
        """Whether pages of a pairing take another network, and there is no address to go to on the right one.

        A lender whose address there is not known for a while is still looked for where it was.
        """
        end = one.spec.lender
        if self.network is None or one.lender_ref not in self.off_network or end.network == self.network:
            return False
        return not all(self.network.covers(address) for address in end.addresses)


def select(
    pool: MemoryPool,
    inventory: Inventory,
    granted: Mapping[Ref, MemoryGuest],
    claimed: Mapping[Ref, str],
    at: datetime,
    ended: Mapping[Ref, MemoryGuest],
    ungranted: Collection[str] = (),
) -> Selection:
    """Sorts the guests into roles; those that are wanted twice are left out and named.

    `ended` are those of other namespaces that would lend, had their machines not ended, `ungranted` the namespaces that
    the pool would borrow from and that give it nothing.
    """
    known = {**inventory.guests, **granted} if granted else inventory.guests
    matched = roles.matched(pool, inventory) | granted.keys()
    taken = {name for name in matched if claimed.get(name, pool.name) != pool.name}
    given = roles.assign(pool, inventory, granted, taken, at)
    conflicting = given.lenders & given.borrowers
    left_out = conflicting | taken
    lenders = {name: known[name] for name in sorted(given.lenders - left_out)}
    borrowers = {name: known[name] for name in sorted(given.borrowers - left_out)}
    unready = {
        name: why
        for role, group in ((Role.LENDER, lenders), (Role.BORROWER, borrowers))
        for name, one in group.items()
        if (why := _unready(one, role, inventory) or _elsewhere(one, pool))
    }
    cordoned = frozenset(
        name for name, one in (lenders | borrowers).items() if one.spec.node_name in inventory.cordoned
    )
    migrating = frozenset(name for name, one in (lenders | borrowers).items() if one.status.migrating)
    reported = {name: one for name, one in lenders.items() if name not in unready}
    off_network = frozenset(name for name, one in reported.items() if not one.status.addresses_on(pool.spec.network))
    over = _ended(pool, inventory, ended)
    problems = (
        *_not_found(pool, inventory, given, matched, at, over),
        *_no_nodes(pool, inventory, given, granted, ungranted),
        *_no_donors(pool, inventory, granted),
        *_not_granted(pool, ungranted),
        *_conflicts(sorted(conflicting)),
        *_claims(sorted(taken), claimed),
        *_unready_guests({**unready, **over}),
        *_unbacked(pool, lenders, given, known),
    )
    return Selection(
        lenders,
        borrowers,
        unready,
        cordoned,
        migrating,
        given,
        frozenset(taken),
        _missed(pool, given, left_out, matched),
        problems,
        ended=over,
        network=pool.spec.network,
        off_network=off_network,
    )


def _missed(pool: MemoryPool, given: Roles, left_out: set[Ref], matched: set[Ref]) -> frozenset[Ref]:
    """The guests that are left out and would borrow. Those of an Auto pool might: they count if it has no other."""
    if pool.spec.role is RoleChoice.AUTO:
        return frozenset(left_out if left_out == matched else ())
    return frozenset(left_out & given.borrowers)


def _ended(pool: MemoryPool, inventory: Inventory, elsewhere: Mapping[Ref, MemoryGuest]) -> dict[Ref, str]:
    """The guests that would take part and whose machines have ended, each with how."""
    spec = pool.spec
    selectors = [one for one in (spec.selector, spec.lenders.selector, spec.borrowers.selector) if one is not None]
    found = {
        name: one
        for name, one in inventory.ended.items()
        if any(selector.matches(one.metadata.labels) for selector in selectors)
    }
    return {name: _words(one, name) for name, one in {**found, **elsewhere}.items()}


def _words(guest: MemoryGuest, name: Ref) -> str:
    """How a guest's machine ended, such as `VMI lender is Failed`."""
    said = guest.ready.message if guest.ready else ""
    return said if name == guest.name else f"{said} (namespace {guest.namespace})"


def unbelieved(guest: MemoryGuest, inventory: Inventory) -> str:
    """Why this is not what an agent reports of a virtual machine; empty if it may be.

    Kubernetes itself deletes an object whose owner is gone or never was, so that an instance that owns one is real: if
    it is of a kind that the cluster has, that is, for what belongs to an unknown one stays for ever.
    """
    if not inventory.is_on_a_node(guest):
        return f"NodeUnknown: the cluster has no node {guest.spec.node_name}"
    if guest.is_node and guest.name != guest.spec.node_name:
        return f"NodeUnknown: it is called {guest.name}, and says to be node {guest.spec.node_name}; delete it"
    if guest.spec.provider is Provider.KUBEVIRT and not any(
        (one.uid, one.name, one.kind, one.api_version)
        == (guest.spec.vm.uid, guest.name, names.INSTANCE_KIND, names.INSTANCE_API)
        for one in guest.metadata.owner_references
    ):
        return (
            "InstanceUnknown: it does not belong to the VirtualMachineInstance of its name; "
            "delete the MemoryGuest, and the agent makes it anew if there is such an instance"
        )
    return ""


def _elsewhere(guest: MemoryGuest, pool: MemoryPool) -> str:
    """Why a node cannot lend to this pool: it listens on another port; empty if it can."""
    port = guest.status.node.port if guest.status.node else pool.spec.port
    if port == pool.spec.port:
        return ""
    return (
        f"PortDiffers: node lenders listen on port {port}, and {pool.origin('port')} is {pool.spec.port}; "
        f"give the pool that port, or the chart's nodeLender.port the pool's"
    )


def _unready(guest: MemoryGuest, role: Role, inventory: Inventory) -> str:
    """Why this guest cannot take part now; empty if it can."""
    if why := unbelieved(guest, inventory):
        return why
    if guest.spec.node_name in inventory.silent:
        return (
            f"{Reason.AGENT_NOT_RESPONDING}: no heartbeat of the Tidepool agent on node {guest.spec.node_name}; "
            f"look at its pod there"
        )
    ready = guest.ready
    if ready is None:
        return "NoReport: its agent has not looked at it yet"
    if ready.status is not Status.TRUE:
        return f"{ready.reason}: {ready.message}" if ready.message else ready.reason
    if role is Role.LENDER and guest.status.memory is None:
        return "NoReport: its memory is not known yet"
    if role is Role.LENDER and not guest.status.addresses:
        return "NoAddress: it has no IP address that borrowers could reach; give it a network interface"
    return ""


def _not_found(
    pool: MemoryPool,
    inventory: Inventory,
    given: Roles,
    matched: set[Ref],
    at: datetime,
    ended: Mapping[Ref, str],
) -> Iterable[Problem]:
    if pool.spec.role is RoleChoice.AUTO:
        return _nobody_of_one_kind(pool, inventory, given, matched, at, ended)
    wanted = (
        (given.lenders, ProblemReason.NO_LENDERS, "lenders.selector", pool.spec.lenders.selector),
        (given.borrowers, ProblemReason.NO_BORROWERS, "borrowers.selector", pool.spec.borrowers.selector),
    )
    return [
        _nobody(pool, inventory, reason, path, one, ended)
        for found, reason, path, one in wanted
        if not found and one is not None
    ]


def _nobody_of_one_kind(
    pool: MemoryPool,
    inventory: Inventory,
    given: Roles,
    matched: set[Ref],
    at: datetime,
    ended: Mapping[Ref, str],
) -> Iterable[Problem]:
    """With role Auto it is well if nobody is short, but not if nobody can help those who are."""
    if not matched:
        yield _nobody(pool, inventory, ProblemReason.NO_LENDERS, "selector", pool.spec.selector, ended)
    elif given.borrowers and not given.lenders:
        short = listed(sorted(given.borrowers))
        message = f"nobody has memory to spare for {short}; lower spec.lenders.reserve, or select more guests"
        message = "; ".join([message, *how_ended(ended), *under_pressure(pool, given, at)])
        yield Problem(ProblemReason.NO_LENDERS, message, tuple(sorted(given.borrowers)))


def _nobody(
    pool: MemoryPool,
    inventory: Inventory,
    reason: ProblemReason,
    path: str,
    selector: Selector | None,
    ended: Mapping[Ref, str],
) -> Problem:
    where = f"namespace {pool.namespace} matches spec.{path} ({selector})"
    gone, excluded = (
        sorted(name for name, labels in those.items() if selector is None or selector.matches(labels))
        for those in (inventory.gone, inventory.excluded)
    )
    over = {name: words for name, words in ended.items() if _is_meant(inventory, name, reason, selector)}
    if over:
        advice = f"{', '.join(how_ended(over))}: start it again"
    elif gone:
        advice = f"{listed(gone)} did, until the virtual machine failed, was stopped or was deleted: start it again"
    elif excluded:
        advice = f"{listed(excluded)} would, and Tidepool is kept out: condition Ready of the MemoryGuest says by what"
    elif inventory.guests:
        advice = f"label a virtual machine so, or correct spec.{path}"
    else:
        advice = "there is no MemoryGuest at all: start a virtual machine on a node where the Tidepool agent runs"
    return Problem(reason, f"no MemoryGuest of {where}; {advice}")


def how_ended(ended: Mapping[Ref, str]) -> list[str]:
    """Of guests whose machines have ended, how; of some, in the order of their names."""
    return [words for _, words in sorted(ended.items())][:NAMED_AT_MOST]


def _is_meant(inventory: Inventory, name: Ref, reason: ProblemReason, selector: Selector | None) -> bool:
    """Whether a selector matches a guest that has ended; those of other namespaces are there to lend."""
    one = inventory.ended.get(name)
    if one is None:
        return reason is ProblemReason.NO_LENDERS
    return selector is None or selector.matches(one.metadata.labels)


def _no_nodes(
    pool: MemoryPool,
    inventory: Inventory,
    given: Roles,
    granted: Mapping[Ref, MemoryGuest],
    ungranted: Collection[str],
) -> Iterable[Problem]:
    """That no node lends though the pool names some; where others do, it is worth a word, and no harm."""
    nodes = pool.spec.lenders.nodes
    if nodes is None or any(one.is_node for one in granted.values()):
        return
    if not inventory.node_lenders:
        message = (
            "spec.lenders.nodes asks for nodes, and none lends: have nodeLender.enabled, the chart's value, set; if it "
            f"is, look at the pods of the node lender in namespace {inventory.home}"
        )
    elif inventory.home in ungranted:
        message = "spec.lenders.nodes asks for nodes, and none is granted: condition LendersGranted says what to do"
    else:
        which = f"spec.lenders.nodes.selector ({nodes.selector})" if nodes.selector else "spec.lenders.nodes"
        message = (
            f"no node of the {inventory.node_lenders} that lend matches {which}, or a MemoryGrant leaves it out; label "
            "a Node so, or correct the selector"
        )
    yield Problem(ProblemReason.NO_NODES if given.lenders else ProblemReason.NO_LENDERS, message)


def _no_donors(pool: MemoryPool, inventory: Inventory, granted: Mapping[Ref, MemoryGuest]) -> Iterable[Problem]:
    """That there is no guest from which memory could be gathered, though the pool asks for some."""
    balloon, nodes = pool.spec.balloon, {one.name for one in granted.values() if one.is_node}
    if balloon is None or not nodes:
        return
    matching = sorted(inventory.matching(balloon.selector))
    if not any(inventory.guests[name].spec.node_name in nodes for name in matching):
        elsewhere = f"; {listed(matching)} would, on other nodes" if matching else ""
        message = (
            f"no MemoryGuest on the nodes of spec.lenders.nodes matches spec.lenders.nodes.balloon.selector "
            f"({balloon.selector}){elsewhere}; label a virtual machine there so, or correct the selector"
        )
        yield Problem(ProblemReason.NO_DONORS, message)


def _not_granted(pool: MemoryPool, ungranted: Collection[str]) -> Iterable[Problem]:
    """Which namespaces give a pool nothing; one that it does not name is asked for its nodes."""
    nodes = sorted(set(ungranted) - {*pool.spec.lenders.namespaces})
    ungranted = sorted(set(ungranted) - {*nodes})
    for home in nodes:
        message = (
            f"spec.lenders.nodes asks for nodes, and no MemoryGrant of namespace {home}, whose administrator they are "
            f"of, is for pool {pool.namespace}/{pool.name}: have one written, or remove spec.lenders.nodes"
        )
        yield Problem(ProblemReason.NOT_GRANTED, message)
    if ungranted:
        names = ", ".join(ungranted)
        message = (
            f"spec.lenders.namespaces has {names}, and no MemoryGrant there is for pool {pool.namespace}/{pool.name}: "
            f"have one written, if there is such a namespace, or remove it from the list"
        )
        yield Problem(ProblemReason.NOT_GRANTED, message)


def under_pressure(pool: MemoryPool, given: Roles, at: datetime) -> list[str]:
    """Which guests need their memory themselves, and until when at least."""
    relieved = {name: one for name, one in given.entries.items() if one.reason == roles.Why.RELIEVED}
    said = []
    for name, one in sorted(relieved.items())[:NAMED_AT_MOST]:
        until = one.since + timedelta(seconds=pool.spec.cool_down_seconds)
        when = f"until {until:%Y-%m-%d %H:%M:%S} UTC at least" if at < until else "until that ends"
        said.append(f"guest {name} is under memory pressure itself and does not lend {when}")
    if receding := given.on_pressed_nodes:
        said.append(f"{listed(receding)} on nodes that are under memory pressure, or were within spec.coolDown")
    if resting := sorted(given.resting - relieved.keys() - given.receding):
        said.append(f"{listed(resting)} under memory pressure: nobody new is given any of it until that ends")
    return said


def not_promised(pool: MemoryPool, lenders: Mapping[Ref, MemoryGuest]) -> list[str]:
    """Which lenders lend less because nobody has promised them all of their memory."""
    found = {name: size for name, one in lenders.items() if (size := pool.spec.left_out(one.status))}
    if not found:
        return []
    return [f"{readable(total(found.values()))} of {listed(sorted(found))} not lent, for no pod requests it"]


def _unbacked(
    pool: MemoryPool, lenders: Mapping[Ref, MemoryGuest], given: Roles, known: Mapping[Ref, MemoryGuest]
) -> Iterable[Problem]:
    """What keeps lenders from lending as much as their own use would let them: their hosts."""
    if found := [name for name in given.on_pressed_nodes if name in known]:
        nodes = ", ".join(sorted({known[name].spec.node_name for name in found})[:NAMED_AT_MOST])
        message = (
            f"nothing new is lent by {listed(found)}, and what is goes step by step: {nodes} under memory pressure, or "
            f"within spec.coolDown ({pool.spec.cool_down}); if that lasts, move virtual machines elsewhere"
        )
        yield Problem(ProblemReason.NODE_PRESSED, message, tuple(found))
    for said in not_promised(pool, lenders):
        yield Problem(ProblemReason.OVERCOMMITTED, f"{said}; spec.lenders.overcommitted: Lend would lend it, too")


def _conflicts(conflicting: list[Ref]) -> Iterable[Problem]:
    if conflicting:
        yield Problem(
            ProblemReason.ROLE_CONFLICT,
            f"{listed(conflicting)} left out, selected both as lender and as borrower: no guest is both at a time; "
            f"change the labels or the selectors so that only one matches",
            tuple(conflicting),
        )


def _claims(taken: list[Ref], claimed: Mapping[Ref, str]) -> Iterable[Problem]:
    if taken:
        pools = sorted({claimed[name] for name in taken})
        yield Problem(
            ProblemReason.GUEST_CLAIMED,
            f"{listed(taken)} left out: pool {', '.join(pools)}, which is older or paused, has them already; "
            f"change the selectors so that a guest belongs to one pool",
            tuple(taken),
        )


def _unready_guests(unready: Mapping[Ref, str]) -> Iterable[Problem]:
    if unready:
        shown = [f"{name} ({why})" for name, why in sorted(unready.items())[:NAMED_AT_MOST]]
        more = f" and {len(unready) - len(shown)} more" if len(unready) > len(shown) else ""
        yield Problem(ProblemReason.GUEST_NOT_READY, f"not ready: {'; '.join(shown)}{more}", tuple(sorted(unready)))


def with_short(problems: Iterable[Problem], short: Iterable[Ref]) -> Iterable[Problem]:
    """The problems; what other pools have is missed by those borrowers, too, who have not enough."""
    for one in problems:
        is_missed = one.reason is ProblemReason.GUEST_CLAIMED
        yield replace(one, guests=(*one.guests, *short)) if is_missed else one


def off_the_network(pool: MemoryPool, selection: Selection, short: Iterable[Ref]) -> Iterable[Problem]:
    """Which lenders have no address on the pool's network, and what they have; `short` are borrowers without enough."""
    if found := sorted(selection.off_network):
        shown = [f"{name} has {_interfaces(selection.lenders[name])}" for name in found[:NAMED_AT_MOST]]
        more = f" and {len(found) - NAMED_AT_MOST} more" if len(found) > NAMED_AT_MOST else ""
        message = (
            f"no address on {pool.origin('network')} ({selection.network}): {'; '.join(shown)}{more}; give them an "
            f"interface there, or name another one in spec.network"
        )
        yield Problem(ProblemReason.NOT_ON_NETWORK, message, tuple(short))


def _interfaces(guest: MemoryGuest) -> str:
    known = [str(one) for one in guest.status.interfaces] or list(guest.status.addresses)
    return ", ".join(known[:NAMED_AT_MOST]) or "none at all"


def on_cordoned_nodes(names: Iterable[Ref]) -> Iterable[Problem]:
    """What is said of these guests when some borrower lacks something."""
    if found := sorted(names):
        message = f"{listed(found)} on cordoned nodes: they keep what they have, and take part again elsewhere"
        yield Problem(ProblemReason.NODE_CORDONED, message, tuple(found))


def on_their_way(selection: Selection) -> Iterable[Problem]:
    """What is said of guests that migrate when some borrower waits for that to end; nobody has to do anything."""
    if found := sorted(selection.migrating):
        message = (
            f"live migration of {listed(found)}: until that ends they keep what they have, and get and give nothing new"
        )
        yield Problem(ProblemReason.GUEST_MIGRATES, message)


def listed(names: list[Ref]) -> str:
    """`guest a`, `guests a, b`, and no more than anyone reads."""
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return f"guest{'s' if len(names) > 1 else ''} {', '.join(names[:NAMED_AT_MOST])}{more}"
