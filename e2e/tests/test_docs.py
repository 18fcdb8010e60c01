"""What the documentation points to is there."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import docs
from demo import lab
from tidepool_api_testing.server import Server
from tidepool_lab import paths
from tidepool_release import images

_LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=paths.ROOT, capture_output=True, text=True, check=True)
PAGES = [paths.ROOT / name for name in _LISTED.stdout.splitlines()]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
VALUE = re.compile(r"--set(?:-string)? '?([A-Za-z]+(?:\.[A-Za-z]+)*)=")
# A function's name at the beginning of its definition, as the kernel writes it.
DEFINITION = re.compile(r"^(?:[a-z_][\w* ]*[ *])?(\w+)\([^;]*?\)\n\{", re.MULTILINE)
FENCE = re.compile(r"^ *```(\w*)$", re.MULTILINE)
TEMPLATES = paths.ROOT / ".github/ISSUE_TEMPLATE"
PAGE = """
# A page

    one --with \\
        this     # and why
    echo '#' two # as well

- an entry

      in a list

```yaml
spec:

    none: of these
```
goes on
    here

```sh
three
```

```text
$ four   # and why
what it prints
```
"""


def anchors(page: Path) -> set[str]:
    """The fragments by which a page's headings are reached, as GitHub makes them."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(page.read_text()))
    return {title.strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{page.name} points to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} points to {target}, and there is no such heading"


def test_every_page_of_the_documentation_is_reached() -> None:
    """From the README or from the table of contents, in one step or more."""
    reached: set[Path] = set()
    todo = [paths.ROOT / "README.md", paths.ROOT / "docs/README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (target.partition("#")[0] for target in LINK.findall(page.read_text()) if "://" not in target)
        todo += [(page.parent / link).resolve() for link in links if link]
    runbooks = paths.ROOT / "docs/runbooks"  # the alerts lead to them
    pages = {page for page in PAGES if page.is_relative_to(paths.ROOT / "docs")}
    assert pages - reached - set(runbooks.iterdir()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_values_of_the_chart_that_are_named_exist(page: Path) -> None:
    values: Any = yaml.safe_load((paths.ROOT / "charts/tidepool/values.yaml").read_text())
    for name in VALUE.findall(page.read_text()):
        found = values
        for part in name.split("."):
            free = found == {}  # such as monitoring.labels, in which names are free
            assert free or part in found, f"{page.name} sets {name}, which is no value of the chart"
            found = {} if free else found[part]


@pytest.mark.parametrize("page", docs.pages())
def test_every_command_is_tried_by_a_test(page: str) -> None:
    """What no test asks for, and is not among what cannot be tried, belongs into `docs.KINDS` and a test."""
    unknown = [line for block in docs.blocks(page) for line in block if not docs.kind_of(page, line)]
    assert set(unknown) <= set(docs.UNTRIED)


@pytest.mark.parametrize("kind", docs.KINDS)
def test_a_kind_of_command_is_there_and_tried(kind: str) -> None:
    """The test that is said to try it asks for it by this name."""
    assert docs.commands(kind)
    assert f'("{kind}")' in (paths.ROOT / docs.KINDS[kind].by).read_text()


def test_what_is_not_tried_is_there() -> None:
    lines = {line for page in docs.pages() for block in docs.blocks(page) for line in block}
    assert set(docs.UNTRIED) <= lines


def test_commands_are_told_from_what_else_is_indented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks after an empty line, in lists too, lines that go on joined, without comments; of what is fenced, shell."""
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert docs.blocks("page.md") == [["one --with this", "echo '#' two"], ["in a list"], ["three"], ["four"]]


def test_prometheus_takes_the_configuration_that_is_shown(tmp_path: Path) -> None:
    """But for the discovery of pods, which Debian's Prometheus is built without."""
    (shown,) = [one for one in docs.examples("docs/how-to/monitor.md") if one.startswith("scrape_configs:")]
    (tmp_path / "prometheus.yml").write_text(re.sub(r"^ *kubernetes_sd_configs:.*\n", "", shown, flags=re.MULTILINE))
    promtool = lab.call("path", "promtool").strip()
    subprocess.run([promtool, "check", "config", tmp_path / "prometheus.yml"], check=True, stdout=subprocess.DEVNULL)


def test_prometheus_joins_the_metrics_of_kubevirt_with_ours(tmp_path: Path) -> None:
    """Each query that is shown finds the VM in both, by their labels."""
    page = (paths.ROOT / "docs/explanation/beside-other-memory-features.md").read_text()
    queries = re.findall(r"^```promql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    metrics = {name for query in queries for name in re.findall(r"(?:kubevirt|tidepool)_\w+", query)}
    described = (paths.ROOT / "docs/reference/metrics.md").read_text()
    assert {name for name in metrics if name.startswith("tidepool_") and f"`{name}`" not in described} == set()
    labels = {"kubevirt": 'namespace="ns",name="vm"', "tidepool": 'namespace="ns",guest="vm"'}
    series = [{"series": f"{one}{{{labels[one.partition('_')[0]]}}}", "values": "1+60x20"} for one in sorted(metrics)]
    expected = [[{"labels": '{name="vm", namespace="ns"}', "value": value}] for value in (2, 1)]
    asked = [
        {"expr": query, "eval_time": "10m", "exp_samples": samples}
        for query, samples in zip(queries, expected, strict=True)
    ]
    (tmp_path / "tests.json").write_text(
        json.dumps({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]})
    )
    promtool = lab.call("path", "promtool").strip()
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _printed(command: str, folder: Path, **environment: str) -> str:
    """What a command prints that calls Helm and kubectl."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("helm", "kubectl"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(lab.call("path", name).strip())
    env = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)} | environment
    shell = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(shell, cwd=paths.ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def _rendered(command: str, folder: Path) -> list[dict[str, Any]]:
    """What a command renders that asks no cluster."""
    objects = [one for one in yaml.safe_load_all(_printed(command, folder)) if one]
    return sorted(objects, key=lambda one: (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")))


def test_kustomize_renders_what_helm_does(tmp_path: Path) -> None:
    """Without hooks, with CRDs and the namespace; an overlay as it is shown changes the images and nothing else."""
    build, _, _ = docs.command("kustomize").partition(" | ")
    base = _rendered(build, tmp_path)
    options = "-n tidepool-system --no-hooks --include-crds --set namespace.create=true"
    assert base == _rendered(f"helm template tidepool charts/tidepool {options}", tmp_path)
    (overlay,) = [one for one in docs.examples(docs.PLAIN) if one.startswith("resources:")]
    renamed = {one["name"] for one in yaml.safe_load(overlay)["images"]}
    assert renamed == {f"tidepool.local/{name}" for name in images.ABOUT}  # also what only some values use
    (tmp_path / "tidepool").symlink_to(paths.ROOT)
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay/kustomization.yaml").write_text(overlay)
    changed = _rendered(build.replace(" charts", f" {tmp_path}/overlay"), tmp_path)
    there = json.dumps(base)
    assert "MY/PREFIX" not in there
    assert json.loads(there.replace("tidepool.local/", "MY/PREFIX/")) == changed


def test_kustomize_installs_into_a_cluster_and_upgrades_what_is_there(tmp_path: Path) -> None:
    """By the command as it is shown, twice: a real API server takes each object, has all of them, and takes a pool."""
    command = docs.command("kustomize")
    rendered = _rendered(command.partition(" | ")[0], tmp_path)
    with Server() as server:
        for _ in range(2):
            _printed(command, tmp_path, KUBECONFIG=str(server.kubeconfig()))
        there = server.kubectl("get", "-o", "name", "-f", "-", body=rendered)
        assert len(there.splitlines()) == len(rendered) > 0
        server.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        server.kubectl("apply", "--server-side", "-f", str(paths.ROOT / "e2e/demo/pool.yaml"))


def test_the_secret_with_user_data_is_what_the_machine_names(tmp_path: Path) -> None:
    """It has cloud-init.yaml under the key in which KubeVirt looks."""
    command = docs.filled_in(docs.command("user-data"))
    (secret,) = _rendered(f"{command} --dry-run=client -o yaml", tmp_path)
    machine, *_ = (yaml.safe_load(one) for one in docs.examples("docs/how-to/prepare-guests.md"))
    (volume,) = machine["spec"]["template"]["spec"]["volumes"]
    assert volume["cloudInitNoCloud"] == {"secretRef": {"name": secret["metadata"]["name"]}}
    written = (paths.ROOT / "guests/cloud-init.yaml").read_bytes()
    assert {key: base64.b64decode(data) for key, data in secret["data"].items()} == {"userdata": written}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_fenced_blocks_name_their_language(page: Path) -> None:
    """Every other fence begins a block. Shell has one name, by which its commands are found."""
    languages = set(FENCE.findall(page.read_text())[::2])
    assert languages <= docs.LANGUAGES


def test_the_readme_is_short() -> None:
    assert len((paths.ROOT / "README.md").read_text().splitlines()) <= 70


@pytest.mark.parametrize(
    "template", sorted(set(TEMPLATES.glob("*.yml")) - {TEMPLATES / "config.yml"}), ids=lambda path: path.name
)
def test_an_issue_template_is_a_form(template: Path) -> None:
    """With what a form must have, ids that differ, and files that are there."""
    text = template.read_text()
    form: Any = yaml.safe_load(text)
    assert form["name"]
    assert form["description"]
    asked = [one for one in form["body"] if one["type"] != "markdown"]
    assert all(one["attributes"]["label"] for one in asked if one["type"] != "checkboxes")
    assert len({one["id"] for one in asked}) == len(asked)
    assert all((paths.ROOT / name).exists() for name in re.findall(r"`([\w/-]+\.md)`", text))


def test_columns_that_are_shown_exist() -> None:
    """Of what `kubectl get` prints, as the CRDs have it, and of what the plugin prints."""
    shown = set()
    for page in docs.pages():
        for block in re.findall(r"^```text\n(.*?)^```", (paths.ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
            shown |= {line for line in block.splitlines() if re.match(r"(NAMESPACE|NAME|GUEST|LENDER) {2,}[A-Z]", line)}
    assert shown
    known = {"NAMESPACE", "NAME"}
    for path in (paths.ROOT / "kubectl-plugin/tidepool_kubectl").glob("*.py"):
        known |= set(re.findall(r'"([A-Z/][A-Za-z0-9/ ]*)"', path.read_text()))
    for path in (paths.ROOT / "crds/yaml").glob("*.yaml"):
        version = yaml.safe_load(path.read_text())["spec"]["versions"][0]
        known |= {column["name"].upper() for column in version["additionalPrinterColumns"]}
    columns = {column for line in shown for column in re.split(r" {2,}", line.strip())}
    assert {column for column in columns if not column.startswith("AT ")} <= known


def test_functions_that_are_named_exist() -> None:
    """CONTRIBUTING follows a page through the module's functions, by the files that they are in."""
    tour = (paths.ROOT / "CONTRIBUTING.md").read_text().partition("## The way of one page")[2]
    named = set(re.findall(r"`(\w+)\(\)`", tour))
    assert len(named) > 30
    module = paths.ROOT / "kernel-module"
    sources = {str(path.relative_to(module)): path.read_text() for path in module.glob("*/*.c")}
    defined = {name: set(DEFINITION.findall(text)) for name, text in sources.items()}
    assert named <= set().union(*defined.values())
    for function, file in re.findall(r"`(\w+)\(\)`(?: in |, | \()`(\w+/\w+\.c)`", tour):
        assert function in defined[file], f"{function}() is not in {file}"
