"""A pair of guests by hand, kept running in the background (`kernel-module/tests/guests`).

guests up [6.1] [--disk ext4|xfs|btrfs|none] [--borrower 256M] [--lender 512M] [--iops N] [--broken DIRTY,…]
guests load             build the module if needed, (re)load it in both guests
guests connect [MIB]    pair the two (256 MiB)
guests disconnect
guests b COMMAND…       run a shell command in the borrower (l: in the lender); its output and exit code
guests stats            figures of both ends
guests log b|l          the kernel log
guests push b|l FILE    copy a file to the guest's /root
guests down
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

from bed.guest import Disk, Guest, GuestError
from bed.image import BUILD, build_module, fetch_kernel
from bed.pair import LENDER_ADDRESS, NAME, Pair
from bed.tidepool import MIB, ROOT, Tidepool

STATE = BUILD / f"guests-{os.environ.get('GUESTS', 'default')}.json"


def up(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="guests up")
    parser.add_argument("kernel", nargs="?", default="6.1")
    parser.add_argument("--disk", default="ext4", choices=["ext4", "xfs", "btrfs", "vfat", "none"])
    parser.add_argument("--size", default="2G")
    parser.add_argument("--iops", type=int)
    parser.add_argument("--borrower", default="256M")
    parser.add_argument("--lender", default="512M")
    parser.add_argument("--broken", default="", help="mechanisms that the borrower's module does without")
    options = parser.parse_args(arguments)
    down([])
    disk = None if options.disk == "none" else Disk(options.size, options.disk, options.iops)
    pair = Pair(
        options.kernel, borrower_mem=options.borrower, lender_mem=options.lender, disk=disk, module=False, detached=True
    )
    with contextlib.suppress(PermissionError):
        os.setsid()
    pair.__enter__()
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps({"kernel": options.kernel, "folder": str(pair.folder), "broken": options.broken}))
    os._exit(0)  # leave the guests running


def down(_arguments: list[str]) -> None:
    if not STATE.exists():
        return
    folder = Path(_state()["folder"])
    for name in ("borrower", "lender"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((folder / name / "pid").read_text()), 9)
    shutil.rmtree(folder, ignore_errors=True)
    STATE.unlink()


def load(_arguments: list[str]) -> None:
    state = _state()
    for name, broken in (("borrower", state["broken"]), ("lender", "")):
        tidepool = Tidepool(_guest(name), broken)
        module = build_module(fetch_kernel(state["kernel"]), breakable=bool(broken))
        tidepool.guest.start("cat > /lib/tidepool.ko", module.read_bytes()).wait()
        if tidepool.loaded:
            tidepool.unload()
        tidepool.load()


def connect(arguments: list[str]) -> None:
    size = int(arguments[0] if arguments else 256) * MIB
    lender, borrower = Tidepool(_guest("lender")), Tidepool(_guest("borrower"))
    lender.peer, borrower.peer = borrower, lender
    lender.lend(NAME, quota=size)
    borrower.borrow(NAME, address=LENDER_ADDRESS, size=size)
    borrower.wait_state(f"lenders/{NAME}", "Connected")


def disconnect(_arguments: list[str]) -> None:
    Tidepool(_guest("borrower")).rmdir(f"lenders/{NAME}")
    Tidepool(_guest("lender")).rmdir(f"borrowers/{NAME}")


def stats(_arguments: list[str]) -> None:
    for name in ("borrower", "lender"):
        print(f"== {name}")
        show = 'for f in stats */*/state */*/stats; do [ ! -e $f ] || { echo "-- $f"; cat $f; }; done'
        print(_guest(name).sh(f"cd {ROOT} && {show}"))


def log(arguments: list[str]) -> None:
    print(_guest(arguments[0]).log())


def push(arguments: list[str]) -> None:
    source = Path(arguments[1])
    _guest(arguments[0]).start(f"cat > /root/{source.name} && chmod +x /root/{source.name}", source.read_bytes()).wait()


def command(arguments: list[str]) -> None:
    result = _guest(arguments[0]).run(" ".join(arguments[1:]), timeout=600)
    sys.stdout.write(result.output)
    sys.exit(result.code if result.code >= 0 else 128 - result.code)


def _state() -> dict[str, str]:
    if not STATE.exists():
        sys.exit("no guests: `guests up` first")
    state: dict[str, str] = json.loads(STATE.read_text())
    return state


def _guest(name: str) -> Guest:
    full = {"b": "borrower", "l": "lender"}.get(name, name)
    return Guest(full, Path(_state()["folder"]) / full, None)


VERBS = {
    "up": up,
    "down": down,
    "load": load,
    "connect": connect,
    "disconnect": disconnect,
    "stats": stats,
    "log": log,
    "push": push,
}


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in {*VERBS, "b", "l"}:
        sys.exit(__doc__)
    try:
        if arguments[0] in VERBS:
            VERBS[arguments[0]](arguments[1:])
        else:
            command(arguments)
    except GuestError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
