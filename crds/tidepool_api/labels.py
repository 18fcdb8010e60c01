"""Objects by their labels: whom a selector matches costs what it matches, not what there is. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from tidepool_api.fields import Requirement, Selector

K = TypeVar("K", bound=Hashable)


class Labelled(Generic[K]):
    """Keys of objects, each with its labels; built once for many selectors."""

    def __init__(self, objects: Iterable[tuple[K, Mapping[str, str]]]) -> None:
        self._all: set[K] = set()
        self._with_value: dict[tuple[str, str], set[K]] = defaultdict(set)
        self._with_key: dict[str, set[K]] = defaultdict(set)
        for one, labels in objects:
            self._all.add(one)
            for key, value in labels.items():
                self._with_value[key, value].add(one)
                self._with_key[key].add(one)

    def matching(self, selector: Selector) -> set[K]:
        """Those that a selector matches."""
        parts = [self._with_value.get(label, set()) for label in selector.match_labels.items()]
        parts += [self._meeting(one) for one in selector.match_expressions]
        return set.intersection(*sorted(parts, key=len)) if parts else set(self._all)

    def _meeting(self, one: Requirement) -> set[K]:
        match one.operator:
            case "In" | "NotIn":
                found = {key for value in one.values for key in self._with_value.get((one.key, value), ())}
            case _:
                found = self._with_key.get(one.key, set())
        return found if one.operator in ("In", "Exists") else self._all - found
