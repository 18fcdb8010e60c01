"""MemoryGrant: what the owners of a namespace write to let pools of other namespaces borrow from its guests."""

from __future__ import annotations

from pydantic import Field

from tidepool_api.base import ApiModel, ApiObject
from tidepool_api.fields import ObjectName, Selector


class Grantee(ApiModel):
    """Who may borrow."""

    namespace: ObjectName
    """The namespace of the pools."""

    pool: ObjectName | None = None
    """The pool; absent for all pools of that namespace."""


class GrantSpec(ApiModel):
    """Who may borrow from which guests."""

    to: tuple[Grantee, ...] = Field(min_length=1, max_length=16)
    """The pools that may borrow. They name this namespace in their spec.lenders.namespaces."""

    selector: Selector | None = None
    """From which guests of this namespace, by their labels; absent for all of them."""


class MemoryGrant(ApiObject):
    """The permission for pools of other namespaces to borrow memory from guests of this one.

    Without one no memory leaves a namespace. When it is deleted, what was lent under it is given back. A guest that a
    pool of its own namespace selects is not lent to others.
    """

    kind: str = "MemoryGrant"
    spec: GrantSpec

    def allows(self, namespace: str, pool: str, labels: dict[str, str] | None) -> bool:
        """Whether that pool may borrow from a guest with these labels; where they are not known, from any guest."""
        is_meant = any(one.namespace == namespace and one.pool in (None, pool) for one in self.spec.to)
        selector = self.spec.selector
        return is_meant and not self.terminating and (selector is None or labels is None or selector.matches(labels))
