"""What a pool may leave to its class: how lenders, borrowers and pages are treated, whoever they are.

The defaults here hold where neither the pool nor its class says anything. The CRDs do not have them: what the API
server fills in nobody could tell from what a user has written, and no class would ever be asked.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tidepool_api.base import ApiModel
from tidepool_api.fields import Deadline, Memory, NumberOrPercent, Pause, Port, Selector, rule, rules
from tidepool_api.latency import Latency
from tidepool_api.names import DEFAULT_PORT, Apart, Encryption, Filter, Near, Overcommitted, Strategy
from tidepool_api.network import Network

Values = dict[str, Any]

MOST_LENDERS = 8  # of one borrower
MOST_BORROWERS = 64  # of one node: its node lender takes no more
PARTS = ("lenders", "borrowers")  # whose fields count one by one


class LenderDefaults(ApiModel):
    """How much lenders lend, and how much they keep."""

    max_lend: Memory | None = None
    """The most that one lender lends to all its borrowers together; the pool or its class has to say it."""

    reserve: Memory = "256Mi"
    """Memory that a lender always keeps available for itself."""

    margin: Memory | None = None
    """Memory beyond the reserve that nobody new is given, so that a lender can grow by it before it takes any back."""

    overcommitted: Overcommitted = Overcommitted.EXCLUDE
    """Exclude: a lender lends as if it had only the memory that its pod requests. Lend: as if it had been promised all.

    Lent memory is memory in use on the host. With Lend the node may come under memory pressure, swap, and evict pods.
    """

    spread: int = Field(default=1, ge=1, le=MOST_LENDERS)
    """Over how many lenders at least the memory of a borrower is spread, so that it never loses all of it at a time."""


class Priority(ApiModel):
    """Who comes before others when memory is short."""

    selector: Selector
    """Which borrowers, by their labels."""

    priority: int = Field(ge=-1000, le=1000)
    """Whoever has the higher one comes first."""


class BorrowerDefaults(ApiModel):
    """Who of the borrowers comes first."""

    priorities: tuple[Priority, ...] = Field(default=(), max_length=8)
    """Who is served first, and keeps what it has longest, when memory is short.

    The first that matches a guest holds; the others have 0. With size, nobody is given up for somebody who comes later.
    With maximum, the minimum of those that come first is planned before that of others, who give up theirs for it.
    """


class Placement(ApiModel):
    """Where the lenders of a borrower may be; without it anywhere, the nearest first."""

    require: Near | None = None
    """SameNode: only on the borrower's own node. SameZone: only in its zone, by topology.kubernetes.io/zone of nodes.

    A borrower that has moved elsewhere, or was served before this was asked for, changes over as maxUnavailable says.
    """

    apart: Apart | None = None
    """Node: no two lenders of a borrower on one node. Zone: no two in one zone.

    So a failure takes one of them; lenders.spread says how many there are at least.
    """

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.to_dict().items())

    model_config = {
        "json_schema_extra": rules(
            rule(
                "!has(self.require) || !has(self.apart) || (self.require == 'SameZone' && self.apart == 'Node')",
                says="'require: ' + self.require + ' leaves a borrower one place, and apart: ' + self.apart + "
                "' asks for several; remove one of them'",
            )
        )
    }


class PoolDefaults(ApiModel):
    """What pools get where they say nothing themselves.

    Each field counts as a whole, and so does each field of `lenders` and `borrowers`.
    """

    cool_down: Pause = "10m"
    """How long a guest keeps a role at least that it was given.

    A lender that comes under memory pressure, by its kernel's pressure stall information, is relieved at once, whatever
    the role says. Those on a node with the condition MemoryPressure are relieved, too, as maxUnavailable says. Both
    lend again after this time at the earliest.
    """

    lenders: LenderDefaults = LenderDefaults()
    """How much lenders lend, and how much they keep."""

    borrowers: BorrowerDefaults = BorrowerDefaults()
    """Who of the borrowers comes first."""

    placement: Placement = Placement()
    """Which lenders are near enough to a borrower, and far enough from each other."""

    strategy: Strategy = Strategy.NON_INCLUSIVE
    """NonInclusive: a page that was read back stays with the lender too. Exclusive: it does not."""

    encryption: Encryption = Encryption.AES_GCM
    """AES-GCM: lenders see ciphertext only. None: lender and network can read pages and change them."""

    filter: Filter = Filter.NONE
    """Sequential: pages that are read in order stay out of the pool; a disk reads those well. None: all go there."""

    network: Network | None = None
    """The network that pages take, by one of its fields: lenders are looked for at their addresses there, at no others.

    Without it at the addresses that their MemoryGuests have in `status.addresses`.
    """

    port: Port = DEFAULT_PORT
    """The TCP port on which lenders listen, on all their addresses."""

    deadline: Deadline = "200ms"
    """A read that the lender has not answered after this time goes to the disk."""

    latency: Latency = Latency()
    """When a borrower leaves a lender alone because it is slow; what the lender holds stays there meanwhile."""

    max_unavailable: NumberOrPercent = "25%"
    """How many borrowers may lose pages at a time: a number, or a percentage of those that have some.

    It holds when the pool is edited, its sizes are planned anew, guests are relabelled, or a node comes under memory
    pressure. The next ones follow when these are connected again. Another encryption or port takes all pages of a
    borrower, a smaller size a part. The borrowers of one lender change its port together, even if they are more. Other
    fields change while in use, for all at once. A lender never waits for it: one that is gone, under pressure itself,
    or over its reserve or maxLend gets its memory back at once.
    """

    def said(self) -> Values:
        """The JSON form of what is said here, without the defaults of what is not."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def beyond(given: Values, said: Values) -> Values:
    """What is given and not said."""
    rest: Values = {}
    for name, value in given.items():
        if name not in PARTS:
            rest |= {} if name in said else {name: value}
        elif inner := {key: one for key, one in value.items() if key not in said.get(name, {})}:
            rest[name] = inner
    return rest


def together(given: Values, said: Values) -> Values:
    """What is said, and what is given besides."""
    return given | said | {part: given.get(part, {}) | said.get(part, {}) for part in PARTS}


def described(values: Values, path: str = "") -> list[str]:
    """Values for people to read, each with its path: `lenders.maxLend: 1Gi`."""
    found: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += described(value, f"{path}{name}.")
        else:
            found.append(f"{path}{name}: {_readable(value)}")
    return found


def _readable(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return " ".join(value) if all(isinstance(one, str) for one in value) else f"{len(value)} of them"
