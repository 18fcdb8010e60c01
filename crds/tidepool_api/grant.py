"""MemoryGrant: what the owners of a namespace write to let pools of other namespaces borrow from its guests."""

from __future__ import annotations

from pydantic import Field

from tidepool_api.base import ApiModel, ApiObject
from tidepool_api.fields import Bytes, Count, ObjectName, Selector
from tidepool_api.reading import Understood

MOST_USES = 64


class Grantee(ApiModel):
    """Who may borrow."""

    namespace: ObjectName
    """The namespace of the pools."""

    pool: ObjectName | None = None
    """The pool; absent for all pools of that namespace."""


class GrantSpec(ApiModel):
    """Who may borrow from which guests."""

    to: tuple[Grantee, ...] = Field(min_length=1, max_length=16)
    """The pools that may borrow. They name this namespace in spec.lenders.namespaces, or ask for spec.lenders.nodes."""

    selector: Selector | None = None
    """From which guests of this namespace, by their labels; absent for all of them.

    In the namespace of the release nodes are among them, with the labels of the Node.
    """


class GrantUse(ApiModel):
    """What the guests of this namespace lend to one pool."""

    namespace: ObjectName
    """The namespace of the pool, and of those that borrow."""

    pool: ObjectName
    """The pool."""

    pairings: Count
    """How many pairings borrow for it here."""

    size_bytes: Bytes
    """What these pairings may take."""

    lent_bytes: Bytes
    """What the guests of this namespace hold for them, to a sixteenth of that."""


class GrantStatus(ApiModel):
    """Who makes use of it."""

    pairings: Count | None = None
    """How many pairings borrow under it."""

    lent: str | None = Field(default=None, max_length=20)
    """What guests of this namespace hold for others under it, for people to read."""

    uses: tuple[GrantUse, ...] = Field(default=(), max_length=MOST_USES)
    """By pool, those that may take most first."""


class MemoryGrant(ApiObject):
    """The permission for pools of other namespaces to borrow memory from guests of this one.

    Without one no memory leaves a namespace. When it is deleted, what was lent under it is given back. A guest that a
    pool of its own namespace selects is not lent to others.
    """

    kind: str = "MemoryGrant"
    spec: GrantSpec
    status: Understood[GrantStatus] = Field(default_factory=GrantStatus)

    def is_for(self, namespace: str, pool: str) -> bool:
        """Whether that pool may borrow from the guests that the selector matches."""
        is_meant = any(one.namespace == namespace and one.pool in (None, pool) for one in self.spec.to)
        return is_meant and not self.terminating

    def allows(self, namespace: str, pool: str, labels: dict[str, str] | None) -> bool:
        """Whether that pool may borrow from a guest with these labels; where they are not known, from any guest."""
        selector = self.spec.selector
        return self.is_for(namespace, pool) and (selector is None or labels is None or selector.matches(labels))
