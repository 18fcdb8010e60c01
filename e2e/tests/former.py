"""An earlier commit in the place of the release before this one: its chart, and its images, which bring its module."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tidepool_lab import node, nodes, paths

VERSION = "0.0.1"  # so that the images of both are there at the same time
LAYERS = ("base", "block", "borrower", "control", "lender", "pagecache", "transport", "uapi")
PARTS = {
    "operator": ["operator/tidepool_operator"],
    "agent": ["node-agent/tidepool_agent"],
    "module": [f"kernel-module/{layer}" for layer in LAYERS],
    "chart": ["charts/tidepool"],
}
COMMENT = r"^\s*(#|//|/?\*)"  # two modules that differ in these are one build


def commit(wanted: str | None) -> str:
    """The one that is wanted, or the latest of which every part is another one than here."""
    if wanted:
        return _git("rev-parse", "--verify", f"{wanted}^{{commit}}")
    for one in _git("rev-list", "--first-parent", "HEAD").split():
        if all(_git("diff", "--shortstat", f"-I{COMMENT}", one, "--", *part) for part in PARTS.values()):
            return one
    raise AssertionError(f"no commit before this one has another {', another '.join(PARTS)}; name one: --upgrade-from")


def unpacked(of: str) -> Path:
    """Its sources, with VERSION as theirs; what was built of them is kept."""
    folder = paths.BUILD / "former" / of[:12]
    if not folder.exists():
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        _unpack(of, fresh)
        fresh.rename(folder)
    return folder


def _unpack(of: str, folder: Path) -> None:
    (folder / "build").mkdir(parents=True)
    archive = subprocess.run(["git", "archive", of], cwd=paths.ROOT, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    (folder / "build/venv").symlink_to((paths.BUILD / "venv").resolve())
    (folder / "VERSION").write_text(f"{VERSION}\n")
    about = folder / "charts/tidepool/Chart.yaml"
    about.write_text(re.sub(r"^(version|appVersion): .*", rf'\1: "{VERSION}"', about.read_text(), flags=re.MULTILINE))


def load(tree: Path) -> None:
    """Builds its images, and has every node know them."""
    built = subprocess.run([tree / "e2e/images/build"], check=True, stdout=subprocess.PIPE, text=True)
    archives = [Path(line) for line in built.stdout.splitlines() if Path(line).name.startswith("tidepool-")]
    assert len(archives) == 2, built.stdout
    for one in nodes.every():
        node.load(one, archives)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=paths.ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
