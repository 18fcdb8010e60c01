"""The YAML in the tree is what the models say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tidepool_api.crd import KINDS, Kind, Schema, build, dump, file_name, schema
from tidepool_api.fields import INT_OR_STRING, IS_TEXT, VALIDATIONS

COUNTED = ("quantity", "duration")
YAML = Path(__file__).parents[1] / "yaml"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_yaml_has_not_drifted(kind: Kind) -> None:
    """Passes when generating the CRD again changes nothing; else run `python -m tidepool_api.crd crds/yaml`."""
    assert (YAML / file_name(kind)).read_text() == dump(kind)


def test_there_is_no_other_yaml() -> None:
    """A file that no model stands behind would be installed for ever."""
    assert {path.name for path in YAML.iterdir()} == {file_name(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_field_is_explained(kind: Kind) -> None:
    """`kubectl explain` has a sentence for every field of spec and status."""
    fields = yaml.safe_load(dump(kind))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert list(_silent(fields["spec"], "spec")) == []
    assert list(_silent(fields.get("status", {}), "status")) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_what_looks_like_a_number_is_of_no_type(kind: Kind) -> None:
    """Else the API server refuses `size: 512` with `must be of type string`, and no word about what to write."""
    for one in _fields(schema(kind.model)):
        is_counted = any(f"{what}(self)" in rule["rule"] for rule in one.get(VALIDATIONS, ()) for what in COUNTED)
        assert is_counted == any(rule["rule"] == IS_TEXT for rule in one.get(VALIDATIONS, ())), one
        assert not is_counted or (one[INT_OR_STRING], "type" in one) == (True, False), one


def _fields(node: Schema) -> Iterator[Schema]:
    for one in [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else ())]:
        yield one
        yield from _fields(one)


def _silent(schema: dict[str, object], path: str) -> list[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    silent = [f"{path}.{name}" for name, one in properties.items() if not one.get("description")]
    return silent + [deeper for name, one in properties.items() for deeper in _silent(one, f"{path}.{name}")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_what_is_the_clusters_is_not_asked_for_with_the_rest(kind: Kind) -> None:
    """`kubectl delete tidepool --all -n NAMESPACE` would delete all of it."""
    spec = build(kind)["spec"]
    assert ("categories" in spec["names"]) == (spec["scope"] == "Namespaced")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_no_column_shows_a_list(kind: Kind) -> None:
    """kubectl prints a list as JSON; a column names one of its elements."""
    for column in kind.columns:
        node = schema(kind.model)
        for part in re.findall(r"\w+|\[[^]]+\]", column.path):
            is_of_list = re.match(r"\[[^']", part)
            node = node["items"] if is_of_list else node.get("properties", {}).get(part, {})
        assert node.get("type") != "array", column.path
