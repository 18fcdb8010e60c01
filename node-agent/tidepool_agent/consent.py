"""Which guests Tidepool is kept out of, and why: pure, from their namespaces and labels.

Asked before anything is run in a guest, by the agent itself: nobody who plans or pairs can overrule it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidepool_agent.errors import Excluded
from tidepool_agent.provider import Machine
from tidepool_api import names

# The namespaces that do not want Tidepool; the value "false" is the only one that says nothing.
SELECTOR = f"{names.EXCLUDE_LABEL},{names.EXCLUDE_LABEL}!=false"
MAX_LABELS = 128


def serves(namespaces: Collection[str], namespace: str) -> bool:
    """Whether the guests of a namespace are looked at; with no namespaces named, all are."""
    return not namespaces or namespace in namespaces


def kept(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that a guest has from its owner: with all of them it would be as large as he likes, also elsewhere.

    The first ones by name. For none of them one of Tidepool's is left out, and least of all the one that excludes.
    """

    def place(key: str) -> tuple[bool, bool, str]:
        return key != names.EXCLUDE_LABEL, not key.startswith(f"{names.GROUP}/"), key

    return {key: labels[key] for key in sorted(labels, key=place)[:MAX_LABELS]}


def excluded(machine: Machine, namespaces: Collection[str], unwilling: Collection[str]) -> Excluded | None:
    """Why no command may be run in a machine; `namespaces` are those that are served, `unwilling` those labelled."""
    label = names.EXCLUDE_LABEL
    if not serves(namespaces, machine.namespace):
        return Excluded(f"namespace {machine.namespace} is not among agent.namespaces, the chart's value")
    if machine.namespace in unwilling:
        return Excluded(f"namespace {machine.namespace} has the label {label}; without it its guests take part")
    if machine.labels.get(label, "false") != "false":
        return Excluded(f"the virtual machine has the label {label}; without it it takes part")
    return None
