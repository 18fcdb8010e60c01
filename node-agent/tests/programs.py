"""Memory for programs without a guest: the agent's script, groups and a device file are real; the kernel is played.

What `insmod` and `rmmod` do to a kernel, small scripts do here to a folder. They refuse what it would.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from playing import Played

from tidepool_agent.appmem import AppMemory
from tidepool_agent.guest import Guest
from tidepool_agent.plan import Step
from tidepool_agent.store import Store

RELEASE = "6.1.0"
NUMBER = "1:5"  # that of /dev/zero: who has that open has programs' device open
INSMOD = f"""#!/bin/sh
set -eu
if [ -e "$PLAY/refuse-insmod" ]; then echo "could not insert module: Invalid module format" >&2; exit 1; fi
cat "$1" >"$PLAY/inserted"
mkdir -p "$PLAY/app/parameters" "$PLAY/class"
echo ABC >"$PLAY/app/srcversion"
echo 0 >"$PLAY/app/refcnt"
echo "${{2#size_bytes=}}" >"$PLAY/app/parameters/size_bytes"
echo {NUMBER} >"$PLAY/class/dev"
echo "bytes 8192" >"$PLAY/class/stats"
[ -e "$PLAY/tidepool" ] || mknod -m 0600 "$PLAY/tidepool" c {NUMBER.replace(":", " ")}
"""
MODPROBE = """#!/bin/sh
[ "$1" = tidepool-app ] && echo installed >"$PLAY/module" && insmod "$PLAY/module" "$2"
"""
RMMOD = """#!/bin/sh
if [ "$(cat "$PLAY/app/refcnt")" != 0 ]; then echo "rmmod: ERROR: Module tidepool_app is in use" >&2; exit 1; fi
rm -r "$PLAY/app" "$PLAY/class" "$PLAY/tidepool"
"""
GETENT = """#!/bin/sh
[ "$1" = group ] && grep "^$2:" "$PLAY/directory"
"""
UDEVADM = """#!/bin/sh
echo "$*" >>"$PLAY/udevadm"
"""


class PlayedPrograms(Played):
    """What stands for the guest agent of such a guest."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tools = {"insmod": INSMOD, "modprobe": MODPROBE, "rmmod": RMMOD, "getent": GETENT, "udevadm": UDEVADM}
        for name, text in tools.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        (folder / "group").write_text("root:x:0:\nredis:x:107:\nvalkey:x:108:redis\n")
        (folder / "directory").write_text("")
        more = (
            ("/sys/module/tidepool_app", f"{folder}/app"),
            ("/sys/class/misc/tidepool", f"{folder}/class"),
            ("/etc/group", f"{folder}/group"),
            ("/run/udev", f"{folder}/udev"),
            ("values=/dev/tidepool", f"values={folder}/tidepool"),
        )
        for old, new in more:
            assert old in self.script
            self.script = self.script.replace(old, new)
        self._places += more

    def write(self, path: str, data: bytes) -> None:
        """As a guest agent writes a file."""
        Path(path.replace("/run/tidepool", f"{self.folder}/run")).write_bytes(data)


class ProgramsBench:
    """The agent's side of it, and what a test does to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        played = PlayedPrograms(folder)
        self.store = folder / "store" / RELEASE
        self.store.mkdir(parents=True)
        self.build(b"of the store")
        self._guest = Guest(played, Store(self.store.parent))  # type: ignore[arg-type]  # all that it needs of one

    def build(self, data: bytes, digest: str = "") -> None:
        """What the store has."""
        (self.store / "tidepool-app.ko").write_bytes(data)
        (self.store / "tidepool-app.ko.sha256").write_text(digest or hashlib.sha256(data).hexdigest())

    def look(self) -> AppMemory | None:
        """It as the agent sees it."""
        return self._guest.probe().app

    def do(self, *steps: Step) -> AppMemory | None:
        """Carries steps out, and looks again."""
        for step in steps:
            self._guest.carry_out(step, RELEASE)
        return self.look()

    def holders(self) -> tuple[str, ...]:
        """Who has the device open."""
        return self._guest.holders()

    def play(self, name: str, text: str = "") -> None:
        """Says something of what is played."""
        (self.folder / name).write_text(text)

    def said(self, name: str) -> str:
        """What is in a file of the play; empty without one."""
        file = self.folder / name
        return file.read_text() if file.exists() else ""

    @property
    def device(self) -> Path:
        """The file of programs' device."""
        return self.folder / "tidepool"
