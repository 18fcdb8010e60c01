"""What an object is known by wherever it is spoken of: namespace and name, together and typed.

A name alone means another guest in another namespace. So what crosses a namespace is a `GuestKey`. A plan is made for
one namespace and looks guests up all the time; there each is a `Ref`, what that namespace calls it, as quick as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NewType, Self

Ref = NewType("Ref", str)
"""A guest as a namespace calls it: by its name, behind its namespace where that is another one."""


class ObjectKey(NamedTuple):
    """An object of one kind. Prints as `namespace/name`, or `name` where it belongs to the cluster."""

    namespace: str  # empty for what belongs to the cluster
    name: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Self:
        """That of an object as the API server has it."""
        metadata = item["metadata"]
        return cls(metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        return "/".join(filter(None, self))


class PoolKey(ObjectKey):
    """A MemoryPool."""

    __slots__ = ()


class GuestKey(ObjectKey):
    """A guest: its MemoryGuest, and the virtual machine of the same name."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """One that was printed; raises ValueError for anything else."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"{text!r} is no guest: give NAMESPACE/NAME")
        return cls(namespace, name)

    @classmethod
    def meant(cls, ref: str, home: str) -> Self:
        """The guest that a namespace calls so."""
        return cls.parse(ref) if "/" in ref else cls(home, ref)

    def seen_from(self, home: str) -> Ref:
        """What a namespace calls it."""
        namespace, name = self
        return Ref(name if namespace == home else f"{namespace}/{name}")
