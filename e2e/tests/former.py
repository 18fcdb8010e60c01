"""An earlier commit in the place of the release before this one: its chart, and its images, which bring its module."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tidepool_lab import earlier, node, nodes, paths
from tidepool_lab.earlier import git

VERSION = "0.0.1"  # so that the images of both are there at the same time
LAYERS = ("base", "block", "borrower", "control", "lender", "pagecache", "transport", "uapi")
PARTS = {
    "operator": ["operator/tidepool_operator"],
    "agent": ["node-agent/tidepool_agent"],
    "module": [f"kernel-module/{layer}" for layer in LAYERS],
    "chart": ["charts/tidepool"],
}
IMAGE = re.compile(r'include "tidepool\.image" \(list . "([a-z-]+)"')  # that its chart needs
# Two modules that differ in these are one build.
IDLE = re.compile(r"/\*[\s\S]*?\*/|^[ \t]*(#|//)([ \t].*)?$|\s", re.MULTILINE)


def commit(wanted: str | None) -> str:
    """The one that is wanted, or the latest of which every part is another one than here."""
    if wanted:
        return earlier.named(wanted)
    for one in git("rev-list", "--first-parent", "HEAD").split():
        if all(_differs(one, part) for part in PARTS.values()):
            return one
    raise AssertionError(f"no commit before this one has another {', another '.join(PARTS)}; name one: --upgrade-from")


def _differs(commit: str, part: list[str]) -> bool:
    """Whether a part had other sources than here: more than comments, and where its lines end, is another."""
    if git("diff", "--name-only", "--diff-filter=ADT", commit, "--", *part):
        return True
    changed = git("diff", "--name-only", "--diff-filter=M", commit, "--", *part).split()
    return any(_gist(git("show", f"{commit}:{name}")) != _gist((paths.ROOT / name).read_text()) for name in changed)


def _gist(text: str) -> str:
    return IDLE.sub("", text)


def unpacked(of: str) -> Path:
    """Its sources, with VERSION as theirs."""
    return earlier.unpacked(of, "former", _renamed)


def _renamed(folder: Path) -> None:
    (folder / "VERSION").write_text(f"{VERSION}\n")
    about = folder / "charts/tidepool/Chart.yaml"
    about.write_text(re.sub(r"^(version|appVersion): .*", rf'\1: "{VERSION}"', about.read_text(), flags=re.MULTILINE))


def load(tree: Path) -> None:
    """Builds its images, and has every node know them."""
    built = subprocess.run([tree / "e2e/images/build"], check=True, stdout=subprocess.PIPE, text=True)
    archives = [Path(line) for line in built.stdout.splitlines() if Path(line).name.startswith("tidepool-")]
    wanted = {each for one in (tree / "charts/tidepool/templates").iterdir() for each in IMAGE.findall(one.read_text())}
    assert len(archives) == len(wanted) > 1, built.stdout
    for one in nodes.every():
        node.load(one, archives)
