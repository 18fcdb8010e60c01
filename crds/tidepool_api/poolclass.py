"""MemoryPoolClass: what an administrator writes once for the pools of a cluster, and what a pool gets of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidepool_api.base import ApiObject
from tidepool_api.defaults import PoolDefaults, beyond
from tidepool_api.names import DEFAULT_CLASS_ANNOTATION
from tidepool_api.pool import Lack, MemoryPool, Source

_KEPT = "the pool keeps what it has until then"


class MemoryPoolClass(ApiObject):
    """What the pools of this class get where they say nothing themselves: defaults, not limits.

    A pool names its class in spec.className. The annotation tidepool.dev/is-default-class: "true" makes this the class
    of all pools that name none; of several with it the youngest holds.
    """

    kind: str = "MemoryPoolClass"
    spec: PoolDefaults


@dataclass(frozen=True)
class Unusable:
    """A class whose newest version cannot be read."""

    head: ApiObject
    why: str


@dataclass(frozen=True)
class Classes:
    """The classes of a cluster, by name; one that is in both counts as it was when it could be read."""

    known: Mapping[str, MemoryPoolClass] = field(default_factory=dict)
    unusable: Mapping[str, Unusable] = field(default_factory=dict)

    @property
    def defaults(self) -> list[str]:
        """Those that are marked as the default, the one that holds first."""
        heads = {**self.known, **{name: one.head for name, one in self.unusable.items()}}
        marked = [one for one in heads.values() if one.metadata.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true"]
        return [one.name for one in sorted(marked, key=lambda one: (-_created(one), one.name))]


def _created(one: ApiObject) -> float:
    at = one.metadata.creation_timestamp
    return at.timestamp() if at else 0.0


def complete(pool: MemoryPool, classes: Classes) -> MemoryPool:
    """A pool with what its class gives; `source.lack` says so where its spec is not complete with that."""
    written, defaults = pool.written, classes.defaults
    is_named = written.class_name is not None
    name = written.class_name if written.class_name is not None else next(iter(defaults), "")
    if lack := _no_class(name, classes) if is_named or name else _no_default(pool.status.class_name):
        return pool.completed(Source(name, lack=lack))
    given = beyond(classes.known[name].spec.said(), written.said()) if name else {}
    remarks = (_outdated(name, classes), "" if is_named else _rivals(defaults))
    source = Source(name, PoolDefaults.model_validate(given), remark="; ".join(one for one in remarks if one))
    found = pool.completed(source)
    is_said = found.spec.lenders.max_lend or not found.spec.needs_max_lend
    return found if is_said else pool.completed(source._replace(lack=_no_max_lend(name, is_named)))


def _no_class(name: str, classes: Classes) -> Lack | None:
    """Why a class that a pool has cannot give anything."""
    if not name or name in classes.known:
        return None
    if name in classes.unusable:
        why = classes.unusable[name].why
        return Lack("ClassUnreadable", f"MemoryPoolClass {name} cannot be read: {why}; have it corrected; {_KEPT}")
    message = (
        f"spec.className is {name}, and there is no MemoryPoolClass of that name: have it written, name another one, "
        f'or "" for none; {_KEPT}'
    )
    return Lack("ClassNotFound", message)


def _no_default(former: str | None) -> Lack | None:
    """Why a pool that names no class, while none is marked as the default, cannot do without: it has had one."""
    if not former:
        return None
    message = (
        f"spec.className is missing, no MemoryPoolClass is marked as the default, and what the pool has is of "
        f'MemoryPoolClass {former}: have one marked, or write a name into spec.className, or "" for none; {_KEPT}'
    )
    return Lack("ClassNotFound", message)


def _outdated(name: str, classes: Classes) -> str:
    """That a class counts as it was, if so."""
    if name not in classes.unusable:
        return ""
    return f"it has become one that cannot be read ({classes.unusable[name].why}) and counts as before: correct it"


def _no_max_lend(name: str, is_named: bool) -> Lack:
    why = f"MemoryPoolClass {name} does not give it"
    if not name:
        why = 'className is ""' if is_named else "no MemoryPoolClass is marked as the default"
    message = (
        f"spec.lenders.maxLend is missing, and {why}: say the most that one lender lends, or name a class that does"
    )
    return Lack("MaxLendMissing", f"{message}; {_KEPT}")


def _rivals(defaults: list[str]) -> str:
    """That there is more than one default class, if so."""
    if len(defaults) < 2:
        return ""
    return f"{', '.join(sorted(defaults))} are all marked as the default class: {defaults[0]}, the youngest, holds"
