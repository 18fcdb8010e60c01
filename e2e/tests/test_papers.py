"""What goes with a release, and takes no time: notes, man pages, archives of sources, krew's manifest, `push`."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import docs
from tidepool_lab import gotools, paths
from tidepool_lab.progress import LabError
from tidepool_release import guests, manuals, module, papers, plugin, standalone
from tidepool_release.source import Source


def bash(line: str, folder: Path) -> str:
    """Runs a command in a folder; what it prints."""
    done = subprocess.run(["bash", "-ec", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


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


def test_who_installs_the_modules_package_has_its_man_page(tmp_path: Path) -> None:
    """The package manager would install it, and below its root `man` finds the page by name and section."""
    folder = tmp_path / "dist/module"
    folder.mkdir(parents=True)
    module.build_package(folder, tmp_path / "work", Source.here())
    (package,) = folder.glob("*.deb")
    line = docs.command("dkms-package").replace("apt-get install", "apt-get --simulate install")
    assert "Inst tidepool-dkms" in bash(line, tmp_path)
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "root"], check=True)
    environment = {**os.environ, "MANPATH": str(tmp_path / "root/usr/share/man")}
    found = subprocess.run(
        ["man", "--where", "4", "tidepool"], env=environment, capture_output=True, text=True, check=True
    )
    assert gzip.decompress(Path(found.stdout.strip()).read_bytes()) == manuals.page("tidepool.4")


def test_the_plugins_man_page_is_of_the_plugin() -> None:
    assert b"kubectl tidepool" in manuals.page(plugin.MANUAL)


def test_krews_own_program_takes_the_manifest(tmp_path: Path) -> None:
    """As for its index: what it must have, and no platform twice. test_dist.py installs with it."""
    manifest = tmp_path / "tidepool.yaml"
    manifest.write_text(plugin.manifest(dict.fromkeys(plugin.PLATFORMS, "0" * 64), Source.here()))
    validate = [gotools.path("validate-krew-manifest"), "-skip-install", "-manifest", manifest]
    done = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_guests_without_a_cluster_get_what_the_role_needs(tmp_path: Path) -> None:
    """The role as Ansible reads it, with the files that it copies; no tests of it."""
    archive = tmp_path / "standalone.tar.gz"
    standalone.pack(archive, Source.here())
    again = tmp_path / "again.tar.gz"
    standalone.pack(again, Source.here())
    assert archive.read_bytes() == again.read_bytes()
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    folder = tmp_path / f"tidepool-standalone-{paths.VERSION}"
    assert not (folder / "tests").exists()
    tasks = (folder / "ansible/roles/tidepool/tasks/main.yml").read_text()
    copied = set(re.findall(r"role_path }}/../../../([\w.]+)", tasks))
    assert copied == {"tidepoolctl.py", "systemd"}
    assert all((folder / name).exists() for name in copied)
    line = docs.command("role").replace("standalone/", f"{folder}/")
    bash(f"{Path(sys.executable).parent}/{line} --syntax-check", tmp_path)


def test_who_has_no_ansible_installs_by_hand(tmp_path: Path) -> None:
    """From the archive, by the commands of the page: a program that runs, and units that are there."""
    for name in ("dist/standalone", "sbin", "units"):
        (tmp_path / name).mkdir(parents=True)
    standalone.pack(tmp_path / f"dist/standalone/tidepool-standalone-{paths.VERSION}.tar.gz", Source.here())
    for line in docs.commands("by-hand"):
        bash(line.replace("/usr/local/sbin", "sbin").replace("/etc/systemd/system", "units"), tmp_path)
    assert "tidepool.conf" in bash("sbin/tidepoolctl --help", tmp_path)
    assert {one.name for one in (tmp_path / "units").iterdir()} == {"tidepool.service", "tidepool.timer"}


def test_the_recipe_for_container_disks_runs_from_its_archive(tmp_path: Path) -> None:
    """By any Python, with nothing else of the sources."""
    guests.pack(tmp_path / "guests.tar.gz", Source.here())
    subprocess.run(["tar", "-xzf", tmp_path / "guests.tar.gz", "-C", tmp_path], check=True)
    program = tmp_path / f"tidepool-guests-{paths.VERSION}/containerdisk/build.py"
    alone = ["/usr/bin/python3", "-I", program, "--modules", tmp_path, tmp_path / "image", tmp_path / "guest.tar"]
    said = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert (said.returncode, "there is no RELEASE/tidepool.ko" in said.stderr) == (1, True), said.stderr


def test_the_recipe_for_mkosi_is_in_the_archive_as_mkosi_wants_it(tmp_path: Path) -> None:
    """mkosi runs its script only where that may be run."""
    guests.pack(tmp_path / "guests.tar.gz", Source.here())
    with tarfile.open(tmp_path / "guests.tar.gz") as archive:
        folder = f"tidepool-guests-{paths.VERSION}/mkosi"
        archive.getmember(f"{folder}/mkosi.conf")
        assert archive.getmember(f"{folder}/mkosi.conf.d/tidepool/mkosi.postinst").mode == 0o755


def test_make_signs_with_the_key_that_it_is_given() -> None:
    done = subprocess.run(
        [*docs.command("release").split(), "--dry-run"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert "e2e/release --key tidepool.key" in done.stdout
