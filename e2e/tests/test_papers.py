"""What goes with a release: notes, man pages, and the program that puts it into a registry."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from tidepool_lab.progress import LabError
from tidepool_release import manuals, module, papers, plugin
from tidepool_release.source import Source


def test_notes_are_the_section_of_the_version() -> None:
    changes = "# Changes\n\n## 1.1.0, not released yet\n\n- new\n\n## 1.0.0\n\n- old\n"
    assert papers.notes(changes, "1.1.0") == "# Tidepool 1.1.0\n\n- new\n"
    assert papers.notes(changes, "1.0.0") == "# Tidepool 1.0.0\n\n- old\n"
    with pytest.raises(LabError, match=r"it needs a section `## 1\.1\.1`"):
        papers.notes(changes, "1.1.1")


def test_who_has_no_skopeo_is_told_so(tmp_path: Path) -> None:
    """Before sums are checked, which takes a while, and with the package that has it."""
    papers.write_push(tmp_path, Source.here())
    (tmp_path / "bin").mkdir()
    for program in ("dirname", "readlink", "sha256sum", "sh"):
        (tmp_path / "bin" / program).symlink_to(Path("/usr/bin") / program)
    said = subprocess.run(
        [tmp_path / "push", "registry.invalid/a"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "push: there is no skopeo in PATH; on Debian: apt-get install skopeo\n"


def test_who_has_the_modules_package_has_its_man_page(tmp_path: Path) -> None:
    """Below a root where the package lies, `man` finds it by name and section."""
    module.build_package(tmp_path, tmp_path / "work", Source.here())
    (package,) = tmp_path.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "root"], check=True)
    environment = {**os.environ, "MANPATH": str(tmp_path / "root/usr/share/man")}
    found = subprocess.run(
        ["man", "--where", "4", "tidepool"], env=environment, capture_output=True, text=True, check=True
    )
    assert gzip.decompress(Path(found.stdout.strip()).read_bytes()) == manuals.page("tidepool.4")


def test_the_plugins_man_page_is_of_the_plugin() -> None:
    assert b"kubectl tidepool" in manuals.page(plugin.MANUAL)
