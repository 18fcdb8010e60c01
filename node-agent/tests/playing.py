"""A guest's block devices without a guest: loop devices, file systems and programs are real; device-mapper is played.

`dmsetup`, `swapon` and `swapoff` change the kernel of the machine that the tests run on, which need not even have
device-mapper. They are small scripts here that keep what they are told in a folder, and refuse what the kernel would.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tidepool_agent.guest import SCRIPT, Guest
from tidepool_agent.guestfs import Observation
from tidepool_agent.plan import Step
from tidepool_agent.qga import Completed
from tidepool_agent.store import Store

DMSETUP = """#!/bin/sh
set -eu
cd "$PLAY/dm"
verb=$1; shift
case $verb in
info) # -c --noheadings -o uuid|open NAME, or -c --noheadings -o name -u UUID
    if [ "$5" = -u ]; then grep -lxF "$6" ./*/uuid | cut -d / -f 2; exit; fi
    [ -d "$5" ] || exit 1
    if [ "$4" = uuid ]; then cat "$5/uuid"; exit; fi
    if [ -e "$5/opened" ] || grep -q "^$(readlink -f "$PLAY/mapper/$5") " "$PLAY/swaps"; then echo 1; else echo 0; fi ;;
table) [ ! -e "$PLAY/fleeting" ] || exit 1
    if [ -e "$1/table" ]; then cat "$1/table"; fi ;;
status) sed 's/^\\(0 [0-9]* [a-z]*\\) .*/\\1 hits 5 misses 3 fallbacks 1 partial 0 puts 8 drops 2/' "$1/table" ;;
create) # NAME --verifyudev --uuid UUID --table TABLE
    if [ -e "$PLAY/refuse-create" ]; then echo "Device or resource busy" >&2; exit 1; fi
    name=$1 uuid=$4
    set -- $6
    [ ! -e "$name" ]
    case $3 in
    tidepool-file) number=$(cat "/sys/block/$(basename "$(losetup -f --show "$4")")/dev") ;; # good enough to write to
    linear) number=$4 ;;
    *) number=$5 && case "$3 $4 $6" in "tidepool - writethrough" | "tidepool - behind") ;; *) exit 1 ;; esac ;;
    esac
    case $number in *[!0-9:]*) exit 1 ;; esac
    mkdir "$name"
    echo "$uuid" >"$name/uuid"
    echo "$*" >"$name/table"
    ln -s "/dev/$(basename "$(readlink -f "/sys/dev/block/$number")")" "$PLAY/mapper/$name" ;;
load) echo "$3" >"$1/new" ;;
resume) # --nolockfs NAME
    if [ -e "$PLAY/refuse-resume" ]; then exit 1; fi
    mv "$2/new" "$2/table" ;;
clear) rm "$1/new" ;;
remove) # [--retry] --verifyudev NAME
    if [ "$1" = --retry ]; then shift; fi
    [ ! -e "$2/opened" ] && ! grep -q "^$(readlink -f "$PLAY/mapper/$2") " "$PLAY/swaps"
    if grep -q tidepool-file "$2/table"; then losetup -d "$(readlink -f "$PLAY/mapper/$2")"; fi
    rm -rf "$2" "$PLAY/mapper/$2" ;;
*) exit 1 ;;
esac
"""
SWAPON = """#!/bin/sh
if [ -e "$PLAY/refuse-swapon" ]; then echo "swapon failed: Invalid argument" >&2; exit 1; fi
blkid -p -o export "$3" | grep -qx TYPE=swap || exit 1
echo "$(readlink -f "$3") partition 1000 0 $2" >>"$PLAY/swaps"
"""
SWAPOFF = """#!/bin/sh
sed -i "\\\\|^$(readlink -f "$1") |d" "$PLAY/swaps"
"""


class Played:
    """What stands for a guest agent: it runs the agent's script here, with other places for what is played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("dm", "mapper", "var", "bin", "target"):
            (folder / name).mkdir()
        (folder / "var").chmod(0o755)
        (folder / "misc").write_text("236 device-mapper\n")
        (folder / "swaps").write_text("Filename Type Size Used Priority\n/dev/zram0 partition 1000 0 100\n")
        (folder / "mounts").write_text("")
        (folder / "target/srcversion").write_text("ABC\n")
        for name, text in (("dmsetup", DMSETUP), ("swapon", SWAPON), ("swapoff", SWAPOFF)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self.script = SCRIPT
        self._places = (
            ("PATH=/usr/sbin", f"PATH={folder}/bin:/usr/sbin"),
            ("/dev/mapper", f"{folder}/mapper"),
            ("/var/lib", f"{folder}/var"),
            ("/run/tidepool", f"{folder}/run"),
            ("/sys/module/tidepool_block", f"{folder}/target"),
            ('cat "$1/$one"', f'cat "{folder}/$one-$(cat "$1/dev")"'),  # serial numbers
            ('"$sys"/holders/*', f"{folder}/holders/*"),
            ('/ | "$system")', f'"{folder}/root" | "$system")'),
            ('"$whole"/slaves', f'"{folder}/slaves-$1"'),
            ("$whole/loop", f"{folder}/loop-$1"),  # the disks of these tests are such
            ("/proc/$process/status", f"{folder}/status-$process"),
            *((f"/proc/{name}", f"{folder}/{name}") for name in ("misc", "swaps", "mounts")),
        )
        for old, new in self._places:
            assert old in self.script
            self.script = self.script.replace(old, new)

    def run(self, argv: list[str], *, seconds: float = 30) -> Completed:
        """As a guest agent does."""
        assert argv[2] == SCRIPT
        environment = {**os.environ, "PLAY": str(self.folder)}
        command = [*argv[:2], self.script, *argv[3:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
        return Completed(done.returncode, self._as_in_a_guest(done.stdout), done.stderr)

    def _as_in_a_guest(self, text: str) -> str:
        for old, new in self._places:
            text = text.replace(new, old)
        return text


class Bench:
    """The agent's side of such a guest, and what a test does to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._played = folder, Played(folder)
        self._guest = Guest(self._played, Store(folder))  # type: ignore[arg-type]  # all that it needs of one
        self._disks = 0
        self._mounts: list[Path] = []

    def look(self) -> Observation:
        """The guest as the agent sees it."""
        return self._guest.probe()

    def does(self, *words: object) -> bool:
        """Whether a function of the script says yes."""
        return self._played.run(["sh", "-c", SCRIPT, "tidepool", *map(str, words)]).code == 0

    def do(self, *steps: Step) -> Observation:
        """Carries steps out, and looks again."""
        for step in steps:
            self._guest.carry_out(step, "6.1.0")
        return self.look()

    def disk(self, size: int = 32, *options: str) -> str:
        """A disk of so many MiB with nothing on it."""
        image = self.folder / f"disk{self._disks}"
        image.touch()
        os.truncate(image, size << 20)
        self._disks += 1
        return sh(f"losetup -f --show {' '.join(options)} {image}")

    def mount(self, kind: str, size: int, options: str = "rw", *, at: str = "root", block: int = 4096) -> Path:
        """A file system of that kind on a disk of so many MiB: the guest's `/`, /var/lib (`var`), or somewhere else."""
        device, top = self.disk(size), self.folder / at
        top.mkdir(parents=True, exist_ok=True)
        sh(f"mkfs.{kind} {f'-b {block}' if kind == 'ext4' else ''} {device}")
        sh(f"mount {device} {top}")
        self._mounts.append(top)
        with (self.folder / "mounts").open("a") as mounts:
            mounts.write(f"{device} {top} {kind} {options} 0 0\n")
        return top

    def bind(self, top: Path, at: str) -> Path:
        """Mounts what is there in another place as well."""
        place = self.folder / at
        place.mkdir(parents=True)
        sh(f"mount --bind {top} {place}")
        self._mounts.append(place)
        return place

    def cgroup(self, path: str, kind: str, **figures: object) -> None:
        """A cgroup below the top of that kind, with these files; `__` stands for a dot."""
        top = self.folder / kind
        if not top.exists():
            with (self.folder / "mounts").open("a") as mounts:
                mounts.write(f"cgroup {top} {kind} rw,memory 0 0\n")
        (top / path).mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            (top / path / name.replace("__", ".")).write_text(f"{figure}\n")

    def play(self, name: str, text: str = "") -> Path:
        """Says something of what is played."""
        (self.folder / name).write_text(text)
        return self.folder / name

    def lack(self, program: str) -> None:
        """The guest has no such program, which the script asks for."""
        asked = f"command -v {program} "
        assert asked in self._played.script
        self._played.script = self._played.script.replace(asked, f"command -v none-such-{program} ")

    def close(self) -> None:
        """Takes everything down: a loop device that is in use goes when its file system is unmounted."""
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            if backing.read_text().startswith(str(self.folder)):
                sh(f"losetup -d /dev/{backing.parts[3]}")
        for top in reversed(self._mounts):
            sh(f"umount {top}")


def sh(line: str) -> str:
    """What a command prints."""
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    return subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=True).stdout.strip()
