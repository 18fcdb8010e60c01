"""What the chart says of itself: its README, and what Artifact Hub shows."""

from __future__ import annotations

from typing import Any

import yaml
from cast import TOP

from tidepool_api_testing.chart import CHART
from tidepool_api_testing.chart_readme import PAGE, Value, page, values

CHART_FILE: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
FILE = """\
# All of it.
first:
  # What one is,
  # in two lines.
  one: {a: [1, 2]}
  two: ""

  # Of both.
  inner:
    three: "x"  # beside it
    # Not above.

    four: 5
second:
  five: []
"""


def test_the_readme_has_not_drifted() -> None:
    """Else run `python -m tidepool_api_testing.chart_readme > charts/tidepool/README.md` with PYTHONPATH=crds."""
    assert PAGE.read_text() == page()


def test_a_comment_belongs_to_the_value_below() -> None:
    """Defaults are as they are written."""
    assert list(values(FILE)) == [
        Value("first", "", "All of it."),
        Value("first.one", "{a: [1, 2]}", "What one is, in two lines."),
        Value("first.two", '""', ""),
        Value("first.inner", "", "Of both."),
        Value("first.inner.three", '"x"', ""),
        Value("first.inner.four", "5", ""),
        Value("second", "", ""),
        Value("second.five", "[]", ""),
    ]


def test_every_value_says_what_it_is() -> None:
    """By a comment of its own, or by that of the values it is one of."""
    found = {one.path: one.comment for one in values((CHART / "values.yaml").read_text())}
    silent = {path for path, comment in found.items() if not comment}
    parents = {path: path.rpartition(".")[0] for path in silent}
    assert not [path for path, parent in parents.items() if parent.count(".") == 0 or not found.get(parent)]


def test_artifact_hub_knows_every_kind() -> None:
    """With the first sentence of its description."""
    listed = yaml.safe_load(CHART_FILE["annotations"]["artifacthub.io/crds"])
    crds = [yaml.safe_load(file.read_text()) for file in (TOP / "crds/yaml").glob("*.yaml")]
    expected = {
        (one["metadata"]["name"], one["spec"]["names"]["kind"], version["name"]): description.partition("\n")[0]
        for one in crds
        for version in one["spec"]["versions"]
        for description in [version["schema"]["openAPIV3Schema"]["description"]]
    }
    assert {(one["name"], one["kind"], one["version"]): one["description"] for one in listed} == expected


def test_artifact_hub_shows_the_pool_of_the_front_page() -> None:
    (example,) = yaml.safe_load(CHART_FILE["annotations"]["artifacthub.io/crdsExamples"])
    readme = (TOP / "README.md").read_text()
    assert example == yaml.safe_load(readme.partition("```yaml\n")[2].partition("```")[0])


def test_it_says_its_licence() -> None:
    assert CHART_FILE["annotations"]["artifacthub.io/license"] == "Apache-2.0"
