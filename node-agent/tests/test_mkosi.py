"""guests/mkosi: an image by mkosi, whose guests need nothing more."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cast import lab
from daemon import Daemon
from prepared import Folder, PreparedGuest, uefi
from tiny import TOP, Kernel

CONFIGURATION = TOP / "guests/mkosi"
SNIPPET = CONFIGURATION / "mkosi.conf.d/tidepool"
PAGE = TOP / "docs/how-to/prepare-guests.md"
NEWEST = "linux-image-cloud-amd64"
WITHIN = "usr/src/tidepool"  # where the image is given the store


def make(folder: Path, kernel: Kernel, store: Path) -> Path:
    """The disk that the page's command makes, of the kernel that these tests have and not of Debian's newest."""
    own = folder / "mkosi"
    shutil.copytree(CONFIGURATION, own)
    settings = (own / "mkosi.conf").read_text()
    assert NEWEST in settings
    (own / "mkosi.conf").write_text(settings.replace(NEWEST, f"linux-image-{kernel.release}"))
    (own / "mkosi.packages").mkdir()
    shutil.copy(kernel.folder / "image.deb", own / "mkosi.packages/kernel.deb")
    (line,) = re.findall(r"^mkosi -C .*$", PAGE.read_text(), re.MULTILINE)
    words = {"mkosi": lab("path", "mkosi"), "guests/mkosi": str(own), f"$PWD/modules:/{WITHIN}": f"{store}:/{WITHIN}"}
    said = [words.pop(word, word) for word in shlex.split(line)]
    assert not words, words
    subprocess.run([*said, "--package-cache-dir", folder], check=True)
    return own / "guest.raw"


@pytest.fixture(scope="module")
def guest(
    daemon: Daemon, kernel: Kernel, store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PreparedGuest]:
    """A guest of that disk, without a seed, and an agent whose store is empty."""
    folder, work = Folder(daemon), tmp_path_factory.mktemp("made")
    disk = Path(shutil.move(make(work, kernel, store), folder.path / "mkosi.img"))
    shutil.rmtree(work)
    nothing = tmp_path_factory.mktemp("store")
    with PreparedGuest(daemon, "default_mkosi", uefi(folder, disk), {}, nothing) as one:
        yield one


@pytest.mark.long
def test_a_guest_of_mkosis_image_needs_no_user_data(guest: PreparedGuest, kernel: Kernel) -> None:
    """Its guest agent answers, and its module is loaded when a pool wants it, though the agent brings none."""
    guest.until_said("GuestAgentReady", "True", "Answering")
    assert guest.run("modinfo -n tidepool").strip() == f"/lib/modules/{kernel.release}/extra/tidepool.ko"
    assert guest.run("ls /usr/src") == ""
    assert guest.run("systemctl --failed --quiet") == ""
    guest.take_in()
    guest.take_out()


def install(root: Path, *releases: str) -> subprocess.CompletedProcess[str]:
    """Our script on an image with the kernel 6.1.0-a and a store for others."""
    (root / "usr/lib/modules/6.1.0-a").mkdir(parents=True)
    for release in releases:
        (root / WITHIN / release).mkdir(parents=True)
        for name in ("tidepool.ko", "tidepool-block.ko", "tidepool.ko.sha256"):
            (root / WITHIN / release / name).touch()
    environment = os.environ | {"BUILDROOT": str(root)}
    return subprocess.run(
        [SNIPPET / "mkosi.postinst", "final"], env=environment, capture_output=True, text=True, check=False
    )


def test_a_guest_agent_may_do_the_same_as_by_cloud_init() -> None:
    """RHEL and its like have a file that forbids most of it; both recipes write the same in its place."""
    (by_cloud_init,) = yaml.safe_load((TOP / "guests/cloud-init.yaml").read_text())["write_files"]
    assert (SNIPPET / f"mkosi.extra{by_cloud_init['path']}").read_text() == by_cloud_init["content"]


def test_each_kernel_of_the_image_gets_its_modules(tmp_path: Path) -> None:
    """And nothing else of the store stays in the image."""
    said = install(tmp_path, "5.0.0-b", "6.1.0-a")
    assert said.returncode == 0, said.stderr
    extra = tmp_path / "usr/lib/modules/6.1.0-a/extra"
    assert sorted(one.name for one in extra.iterdir()) == ["tidepool-block.ko", "tidepool.ko"]
    assert not (tmp_path / WITHIN).exists()


def test_an_image_whose_kernel_has_no_module_is_not_made(tmp_path: Path) -> None:
    """And it is said which kernel that is."""
    said = install(tmp_path, "5.0.0-b")
    assert said.returncode == 1
    assert said.stderr == "tidepool: no module for 6.1.0-a in: 5.0.0-b\n"


def test_an_image_may_leave_the_modules_to_the_agent(tmp_path: Path) -> None:
    said = install(tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
