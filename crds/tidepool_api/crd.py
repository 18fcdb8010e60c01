"""The CRDs, generated from the models: `python -m tidepool_api.crd` prints them; given a folder, it writes them there.

The API server wants structural schemas: no references, no unions, no titles. What pydantic makes of the models is
brought into that form; rules, lengths and descriptions are the models' own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidepool_api import names
from tidepool_api.base import ApiObject
from tidepool_api.conditions import Condition
from tidepool_api.defaults import PARTS, BorrowerDefaults, LenderDefaults, PoolDefaults
from tidepool_api.fields import FORM, VALIDATIONS
from tidepool_api.grant import MemoryGrant
from tidepool_api.guest import MemoryGuest
from tidepool_api.pairing import MemoryPairing
from tidepool_api.pool import MemoryPool
from tidepool_api.poolclass import MemoryPoolClass
from tidepool_api.quota import MemoryQuota

Schema = dict[str, Any]

CATEGORY = "tidepool"  # `kubectl get tidepool`

_DROPPED = {"title", "$defs", "additionalProperties", FORM}
_NULL = {"type": "null"}
_NOTHING: tuple[Any, ...] = (None, "", [], {})  # defaults that the API server need not write into objects


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def build(self) -> Schema:
        """As the CRD has it."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path} | priority


@dataclass(frozen=True)
class Kind:
    """What a CRD says beyond its schema."""

    model: type[ApiObject]
    plural: str
    short: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    scope: str = "Namespaced"

    @property
    def categories(self) -> list[str]:
        """By which names kubectl asks for it together with others.

        What is the whole cluster's is not among them: `kubectl delete tidepool --all -n NAMESPACE` would delete all of
        it, and whoever has rights in that namespace alone would be refused everything.
        """
        return [CATEGORY] if self.scope == "Namespaced" else []


def _reason(of: str = ".status") -> Column:
    return Column("Message", f'{of}.conditions[?(@.type=="Ready")].message', wide=True)


_DEFAULT_CLASS = ".metadata.annotations['" + names.DEFAULT_CLASS_ANNOTATION.replace(".", r"\.") + "']"
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

KINDS = (
    Kind(
        MemoryPool,
        names.POOLS,
        "tpool",
        (
            Column("Phase", ".status.phase"),
            Column("Lenders", ".status.lenders", "integer"),
            Column("Borrowers", ".status.borrowers", "integer"),
            Column("Lent", ".status.lent"),
            Column("Used", ".status.used"),
            Column("Hit Ratio", ".status.hitRatio"),
            Column("Pairings", ".status.pairings", "integer", wide=True),
            Column("Connected", ".status.readyPairings", "integer", wide=True),
            Column("Devices", ".status.devices", "integer", wide=True),
            Column("Swap", ".status.swap", wide=True),
            Column("File Hits", ".status.hitShares.files", wide=True),
            Column("Device Hits", ".status.hitShares.devices", wide=True),
            Column("Swap Hits", ".status.hitShares.swap", wide=True),
            Column("Applications", ".status.applications", wide=True),
            Column("Application Hits", ".status.hitShares.applications", wide=True),
            Column("Class", ".status.className", wide=True),
            _reason(),
            _AGE,
        ),
    ),
    Kind(
        MemoryPairing,
        names.PAIRINGS,
        "tpair",
        (
            Column("Lender", ".spec.lender.guest"),
            Column("Borrower", ".spec.borrower.guest"),
            Column("Size", ".spec.size"),
            Column("Phase", ".status.phase"),
            Column("Hit Ratio", ".status.borrower.hitRatio"),
            Column("Lender Node", ".spec.lender.nodeName", wide=True),
            Column("Borrower Node", ".spec.borrower.nodeName", wide=True),
            _reason(),
            _AGE,
        ),
        (".spec.lender.nodeName", ".spec.borrower.nodeName", ".spec.lender.guest", ".spec.borrower.guest"),
    ),
    Kind(
        MemoryGuest,
        names.GUESTS,
        "tguest",
        (
            Column("Provider", ".spec.provider"),
            Column("Node", ".spec.nodeName"),
            Column("Role", ".status.role"),
            Column("Kernel", ".status.kernelRelease"),
            Column("Module", ".status.moduleVersion"),
            Column("Memory", ".status.memory.total"),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("VM", ".spec.vm.name", wide=True),
            Column("Address", ".status.addresses[0]", wide=True),
            Column("Devices", ".status.devices[*].name", wide=True),
            Column("Swap", ".status.swap.name", wide=True),
            Column("Values", ".status.applications.values", "integer", wide=True),
            Column("Gathered", ".status.balloon.gathered", wide=True),
            Column("Migrating", ".status.migrating", "boolean", wide=True),
            _reason(),
            _AGE,
        ),
        (".spec.nodeName",),
    ),
    Kind(
        MemoryGrant,
        names.GRANTS,
        "tgrant",
        (
            Column("To", ".spec.to[*].namespace"),
            Column("Pairings", ".status.pairings", "integer"),
            Column("Lent", ".status.lent"),
            _AGE,
        ),
    ),
    Kind(
        MemoryQuota,
        names.QUOTAS,
        "tquota",
        (
            Column("Borrowed", ".status.borrowed"),
            Column("Max Borrowed", ".spec.maxBorrowed"),
            Column("Lent", ".status.lent"),
            Column("Max Lent", ".spec.maxLent"),
            _AGE,
        ),
    ),
    Kind(
        MemoryPoolClass,
        names.CLASSES,
        "tclass",
        (
            Column("Default", _DEFAULT_CLASS),
            Column("Max Lend", ".spec.lenders.maxLend"),
            Column("Reserve", ".spec.lenders.reserve"),
            Column("Encryption", ".spec.encryption"),
            _AGE,
        ),
        scope="Cluster",
    ),
)


def build(kind: Kind) -> Schema:
    """The CustomResourceDefinition of a kind."""
    name = kind.model.__name__
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        **({"subresources": {"status": {}}} if "status" in kind.model.model_fields else {}),
        "additionalPrinterColumns": [column.build() for column in kind.columns],
        "schema": {"openAPIV3Schema": schema(kind.model)},
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{names.GROUP}", "labels": {"app.kubernetes.io/name": "tidepool"}},
        "spec": {
            "group": names.GROUP,
            "scope": kind.scope,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": [kind.short],
                **({"categories": kind.categories} if kind.categories else {}),
            },
            "versions": [version],
        },
    }


def schema(model: type[ApiObject]) -> Schema:
    """The structural schema of a kind."""
    raw = model.model_json_schema(by_alias=True)
    root = _structural(raw, raw.get("$defs", {}))
    properties = root["properties"]
    properties["metadata"] = {"type": "object"}
    properties["kind"] = properties["apiVersion"] = {"type": "string"}
    if "status" in properties:
        properties["status"].pop("default", None)
    if model in (MemoryPool, MemoryPoolClass):
        _leave_to_class(properties["spec"])
    root["required"] = ["spec"]
    return root


def _leave_to_class(spec: Schema) -> None:
    """Has the API server fill in nothing that a pool's class may give; the defaults are in the descriptions instead."""
    lenders, borrowers = (spec["properties"][part] for part in PARTS)
    for part, model in ((spec, PoolDefaults), (lenders, LenderDefaults), (borrowers, BorrowerDefaults)):
        part.pop("default", None)
        for one in (part["properties"][_camel(name)] for name in model.model_fields):
            default = one.pop("default", None)
            if default is not None and not isinstance(default, dict):
                one["description"] += f" Default where no class says otherwise: {default}."


def _structural(node: Schema, defs: dict[str, Schema]) -> Schema:
    node = _resolved(node, defs)
    result = {key: value for key, value in node.items() if key not in _DROPPED}
    if FORM in node:  # `kubectl explain` says `<Object>` of what has no type
        result["description"] = f"{result['description']} {node[FORM]}"
    if "properties" in node:
        result["properties"] = {name: _structural(one, defs) for name, one in node["properties"].items()}
    if "items" in node:
        result["items"] = _structural(node["items"], defs)
        result |= _as_map(result["items"])
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(node["additionalProperties"], defs)
    return result


def _as_map(items: Schema) -> Schema:
    """Conditions are a map by type, so that each can have an owner of its own."""
    if set(items.get("properties", ())) != {_camel(name) for name in Condition.model_fields}:
        return {}
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)


def _resolved(node: Schema, defs: dict[str, Schema]) -> Schema:
    """The node with its reference followed and `X or null` taken as `X`; what stands beside them wins."""
    beside = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "allOf")}
    if isinstance(default := beside.get("default"), dict):
        beside["default"] = {key: value for key, value in default.items() if value is not None}
    if beside.get("default", ...) in _NOTHING:
        del beside["default"]
    if "$ref" in node:
        return _both(_resolved(defs[node["$ref"].rsplit("/", 1)[1]], defs), beside)
    if "anyOf" in node:
        (only,) = (one for one in node["anyOf"] if one != _NULL)
        return _both(_resolved(only, defs), beside)
    return beside


def _both(inner: Schema, outer: Schema) -> Schema:
    rules = inner.get(VALIDATIONS, []) + outer.get(VALIDATIONS, [])
    return inner | outer | ({VALIDATIONS: rules} if rules else {})


class _Dumper(yaml.SafeDumper):
    """Writes the same list or rule in full each time it occurs, and indents lists."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


def dump(kind: Kind) -> str:
    """The YAML file of a kind."""
    text: str = yaml.dump(build(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return f"# Generated from the models by `python -m tidepool_api.crd`; change those.\n{text}"


def file_name(kind: Kind) -> str:
    """The name of its file."""
    return f"{names.GROUP}_{kind.plural}.yaml"


def main(arguments: list[str]) -> None:
    """Writes the files into the folder that is given, else prints all."""
    if arguments:
        for kind in KINDS:
            (Path(arguments[0]) / file_name(kind)).write_text(dump(kind))
    else:
        sys.stdout.write("---\n".join(dump(kind) for kind in KINDS))


if __name__ == "__main__":
    main(sys.argv[1:])
