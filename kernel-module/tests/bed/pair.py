"""A borrower and a lender with a wire between them, set up and taken down together."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from bed.guest import PAGE, Disk, Guest, GuestError, Link, Spec, make_disk
from bed.image import BUILD, build_module, fetch_kernel
from bed.measure import has_kasan, kept_bytes
from bed.relay import Relay
from bed.tidepool import MIB, ROOT, Tidepool, wait_until

BORROWER_ADDRESS, LENDER_ADDRESS = "10.7.0.1", "10.7.0.2"
NAME = "pairing"
DEADLINE_US = 200_000  # of a pairing of which nothing else was said
PATIENT = {"deadline_us": 3_000_000}  # a busy test machine is no reason to read from disk
UNHURRIED = {"deadline_us": 60_000_000}  # likewise, for who counts each page of a lender that is there all the time
# A reader waits for a lender that is gone until the deadline, 0.2 s by default; without one until the connection is
# given up, 4 s at least. Between is what a busy machine adds, a guest that stands still for a while included.
IN_TIME_US = 3_500_000
PACED = 24 * MIB  # a second: what is read from disk faster leaves the page cache faster than it can be sent on
DEBUG_MIB = 144  # what KASAN, lockdep and the others take of a guest's memory
BOOTS = 3
PORTS = 10_000
BEGUN = 3 * MIB  # slabs that a kernel has begun to use, whatever is done with it
# Jumbo frames, as the emulated cards have no segmentation offload, with which others send 64 KiB at a time: with
# ETHERNET most of what a guest does is packets.
JUMBO, ETHERNET = 9000, 1500


class Pair:
    """`with Pair(kernel="6.1", borrower_mem="256M", lender_mem="512M", disk="ext4") as (b, l):`

    Both guests are up, the data disk is mounted on the borrower's /mnt, the module is not loaded (`connect` does that).
    They end with this process unless `detached`.
    `broken` are the mechanisms that the borrower's module does without, as "DIRTY,CLONE", `lender_broken` those of the
    lender's (base/broken.h). `name` is the pairing's, and may be changed while the two are not connected.
    `modules` are kernel modules that both load beside the usual, `tools` the image of a disk that both can read.
    With `relay` the wire runs through one that can delay, lose, reorder and cut (`pair.relay`).
    `mtu` is the wire's. If `counted` both guests' clocks go by instructions.
    `lender_reports` is whether the lender tells its host of free pages, `lender_plugged` what it has by virtio-mem
    (see Spec).
    `generation` is what the host calls the borrower's machine, and `traced` that its emulator can tell what it executes
    (see Spec).
    With `host` both reach this machine as HOST_ADDRESS, and it reaches the lender at `lender_port`.
    `append` goes on both kernels' command lines. A debug kernel gets more memory than asked for, which it needs itself.
    """

    def __init__(
        self,
        kernel: str = "6.1",
        *,
        borrower_mem: str = "256M",
        lender_mem: str = "512M",
        disk: str | Disk | None = "ext4",
        lender_disk: str | Disk | None = None,
        lender_balloon: bool = False,
        lender_reports: bool | None = None,
        lender_plugged: int = 0,
        processors: int = 2,
        broken: str = "",
        lender_broken: str = "",
        module: bool = True,
        detached: bool = False,
        capture: bool = False,
        relay: bool = False,
        append: str = "",
        counted: bool = False,
        modules: tuple[str, ...] = (),
        tools: Path | None = None,
        mtu: int = JUMBO,
        generation: str = "",
        host: bool = False,
        traced: bool = False,
    ) -> None:
        self.kernel = fetch_kernel(kernel)
        self._detached = detached
        self._broken = (broken, lender_broken)
        self._borrower_module, self._lender_module = (
            build_module(self.kernel, breakable=bool(names)) if module else None for names in self._broken
        )
        self.name = NAME
        self.folder = Path(tempfile.mkdtemp(prefix="tidepool-bed-", dir="/var/tmp"))
        self.disk = _disk(disk)
        ends = [self.folder / name for name in ("wire-b", "wire-l")]
        self.relay = Relay(ends[0], ends[1], self.folder) if relay else None
        near_b, near_l = (self.relay.near_a, self.relay.near_b) if self.relay else (ends[1], ends[0])
        borrower_link = Link(ends[0], near_b, BORROWER_ADDRESS, mtu)
        self._lender_link = Link(ends[1], near_l, LENDER_ADDRESS, mtu)
        ports = (free_port(), free_port()) if host else (None, None)
        self.lender_port = ports[0] or 0
        more = DEBUG_MIB if kernel == "debug" else 0
        self._lender_spec = Spec(
            "lender",
            _memory(lender_mem, more),
            1,
            _disk(lender_disk),
            (self._lender_link,),
            append=append,
            counted=counted,
            balloon=lender_balloon,
            reports=lender_reports,
            plugged=lender_plugged,
            modules=modules,
            tools=tools,
            host=ports[0],
        )
        self._borrower_spec = Spec(
            "borrower",
            _memory(borrower_mem, more),
            processors,
            self.disk,
            (borrower_link,),
            append=append,
            counted=counted,
            capture=capture,
            modules=modules,
            tools=tools,
            generation=generation,
            host=ports[1],
            traced=traced,
        )
        self._guests: list[Guest] = []
        self._kept: int | None = None  # by the lender's kernel before it lent anything

    def __enter__(self) -> tuple[Guest, Guest]:
        try:
            self.borrower = self._boot(self._borrower_spec, self._borrower_module)
            self.lender = self._boot(self._lender_spec, self._lender_module)
            self.borrower = self._up(self.borrower, self._borrower_spec, self._borrower_module)
            self.lender = self._up(self.lender, self._lender_spec, self._lender_module)
            if self.disk and self.disk.filesystem:
                self.borrower.mount(self.disk.filesystem)
        except BaseException:
            self._close()
            raise
        self.b, self.l = map(Tidepool, (self.borrower, self.lender), self._broken)
        self.b.peer, self.l.peer = self.l, self.b
        self.l.before_lending = self._note_kept
        return self.borrower, self.lender

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error:
            self._save_logs()
        self._close()

    def connect(self, *, size: int = 256 * MIB, more: Mapping[str, object] | None = None) -> None:
        """Load the module where it is not loaded, lend `size` to the borrower, and wait until the two are connected."""
        for loading in [side.start_loading() for side in (self.l, self.b)]:
            loading.wait()
        self.l.lend(self.name, quota=size)
        self.b.borrow(self.name, address=LENDER_ADDRESS, size=size, more=more)
        self.b.wait_state(f"lenders/{self.name}", "Connected")

    def disconnect(self) -> None:
        """Take the pairing away on both ends; the module stays."""
        self.b.rmdir(f"lenders/{self.name}")
        self.l.rmdir(f"borrowers/{self.name}")

    @contextlib.contextmanager
    def pairing(self) -> Iterator[None]:
        """For a test: what becomes of the pairing is taken away, so that the next test begins without one."""
        try:
            yield
        except BaseException:
            for side, path in ((self.b, f"lenders/{self.name}"), (self.l, f"borrowers/{self.name}")):
                side.guest.sh(f"! [ -d {ROOT}/{path} ] || rmdir {ROOT}/{path}")
            raise
        self.disconnect()
        self.assert_clean()

    @contextlib.contextmanager
    def without_lender(self) -> Iterator[None]:
        """The borrower's lender is switched off, and what it had is lost; afterwards they are connected again."""
        self.b.set(f"lenders/{self.name}/enabled", 0)
        try:
            yield
        finally:
            self.b.set(f"lenders/{self.name}/enabled", 1)
            self.b.wait_state(f"lenders/{self.name}", "Connected")

    def borrowed(self) -> dict[str, int]:
        """The borrower's figures of the pairing."""
        return self.b.stats(f"lenders/{self.name}")

    def lent(self) -> dict[str, int]:
        """The lender's figures of the pairing."""
        return self.l.stats(f"borrowers/{self.name}")

    def hold(self, held: int) -> None:
        """The lender wants no puts for now (1), or wants them again (0), and the borrower has heard of it."""
        quota, granted = f"borrowers/{self.name}/quota_bytes", self.borrowed()["granted_bytes"]
        self.l.set("hold", held)
        self.l.set(quota, granted - PAGE)  # a grant that can be seen, and says so, too
        wait_until("the borrower knows", lambda: self.borrowed()["granted_bytes"] < granted)
        self.l.set(quota, granted)

    def settle(self) -> None:
        """Until what is on its way to a lender has arrived: no buffer has a page."""

        def quiet() -> bool:
            figures = self.b.stats()
            return figures["buffers_free"] == figures["buffers_total"]

        wait_until("puts settle", quiet)

    def evict(self) -> None:
        """All that the borrower has cached of files, and wait until the lender has it."""
        self.borrower.drop_caches(1)
        self.settle()

    def read_ahead(self, kib: int) -> None:
        """How much the borrower's kernel reads ahead from its disk, at most."""
        self.borrower.write("/sys/block/vda/queue/read_ahead_kb", str(kib))

    def assert_clean(self, allow: str | None = None) -> None:
        """Neither guest's kernel has anything to complain about, nor has the module."""
        for side in (self.b, self.l):
            side.guest.assert_clean(allow)
            figures = side.stats() if side.loaded else {}
            for defect in ("warnings", "verify_failed"):
                assert figures.get(defect, 0) == 0, f"{side.guest.name}: the module counted {defect}"
        self._assert_no_more_lost()

    def _note_kept(self) -> None:
        """What the lender's kernel keeps while it lends to nobody yet."""
        if self._kept is None and not has_kasan(self.lender):  # which keeps for a while what is free
            self._kept = kept_bytes(self.lender)

    def _granted(self) -> int:
        """Bytes that the lender grants to all its borrowers; what is remembered of their pages is among them."""
        figures = self.lender.run(f"cat {ROOT}/borrowers/*/stats").output  # none, when it lends to nobody
        return sum(int(line.split()[1]) for line in figures.splitlines() if line.startswith("granted_bytes "))

    def _assert_no_more_lost(self) -> None:
        """A lender lacks no more than it grants, by its slabs and its page cache: nothing when it lends to nobody."""
        if self._kept is None:
            return
        beyond = 0

        def within() -> bool:
            nonlocal beyond
            self.lender.drop_caches(3)
            beyond = kept_bytes(self.lender) - (self._kept or 0) - self._granted()
            return beyond < BEGUN

        try:
            wait_until(f"the lender lacks no more than it grants and {BEGUN} bytes", within, every=1)
        except AssertionError as error:
            raise AssertionError(f"{error}; it lacks {beyond} more than it grants") from None

    def restart_lender(self) -> Guest:
        """A fresh lender in place of one that was killed, at the same address, with nothing configured."""
        self.lender.close()
        self._guests.remove(self.lender)
        self._kept = None
        self.lender = self._boot(self._lender_spec, self._lender_module)
        self.lender = self._up(self.lender, self._lender_spec, self._lender_module)
        self.l = Tidepool(self.lender, self._broken[1])
        self.b.peer, self.l.peer = self.l, self.b
        self.l.before_lending = self._note_kept
        return self.lender

    def revert_borrower(self, generation: str = "") -> Guest:
        """The borrower as its image has it (`borrower.save()`), in place of the one that has gone on since."""
        self.borrower.close()
        self._guests.remove(self.borrower)
        spec = replace(self._borrower_spec, generation=generation)
        self.borrower = Guest.revert(spec, self.kernel, self.folder / spec.name)
        self._guests.append(self.borrower)
        self.b = Tidepool(self.borrower, self._broken[0])
        self.b.peer, self.l.peer = self.l, self.b
        return self.borrower

    def remake_disk(self, filesystem: str) -> None:
        """A new file system on the borrower's disk, which must be unmounted."""
        assert self.disk
        make_disk(self.borrower.folder / "disk", Disk(self.disk.size, filesystem))

    def _boot(self, spec: Spec, module: Path | None) -> Guest:
        folder = self.folder / spec.name
        for link in spec.links:
            link.local.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        guest = Guest.boot(spec, self.kernel, module, folder, detached=self._detached)
        self._guests.append(guest)
        return guest

    def _up(self, guest: Guest, spec: Spec, module: Path | None) -> Guest:
        """A guest once it is up.

        The emulator may lose a processor's timer for good, on a busy machine more often, and the guest's kernel stands
        still before its first program runs, or whatever comes to that processor does. Nothing of ours is in it by then,
        so it is booted again, and the test says so.
        """
        for attempt in range(1, BOOTS + 1):
            try:
                guest.wait_ready()
                break
            except GuestError as error:
                if attempt == BOOTS:
                    raise
                print(f"booted again ({attempt} of {BOOTS - 1}): {error}", file=sys.stderr)
            guest.close()
            self._guests.remove(guest)
            guest = self._boot(spec, module)
        return guest

    def _save_logs(self) -> None:
        """Kernel logs of a failed test, for whoever looks into it: build/kernel-tests/failed/."""
        folder = BUILD / "failed" / f"{time.strftime('%H%M%S')}-{self.folder.name}"
        folder.mkdir(parents=True)
        for guest in self._guests:
            (folder / f"{guest.name}.console").write_text(guest.console())
            with contextlib.suppress(GuestError):
                (folder / f"{guest.name}.dmesg").write_text(guest.start("dmesg").result(5).output)
                (folder / f"{guest.name}.stats").write_text(guest.start(f"grep -r . {ROOT}").result(5).output)

    def _close(self) -> None:
        for guest in self._guests:
            guest.close()
        if self.relay:
            self.relay.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _memory(asked: str, more: int) -> str:
    return f"{int(asked.removesuffix('M')) + more}M"


def _disk(disk: str | Disk | None) -> Disk | None:
    return Disk(filesystem=disk) if isinstance(disk, str) else disk


def free_port() -> int:
    """A port of this machine's that nobody has now, and that no connection gets by chance until it is used."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])  # of those
    while True:
        port = lowest - 1 - secrets.randbelow(PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
