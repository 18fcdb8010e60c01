"""One guest: a QEMU process, its disk, its console log and its command channel."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bed import booted
from bed.accelerator import KVM, accelerator
from bed.channel import Channel, ChannelClosed, Result
from bed.domain import Domain
from bed.image import Kernel, fetch_qemu, initramfs, with_sbin

TROUBLE = re.compile(
    r"\bBUG\b|WARNING:|Oops|Call Trace|RIP:|general protection|stall|blocked for more than|lockup|deadlock"
    r"|possible recursive|inconsistent lock|suspicious RCU|sleeping function|KASAN|UBSAN|tidepool: warning"
    r"|Kernel panic|Out of memory|oom-kill|I/O error|EXT4-fs error|EXT4-fs warning|XFS.*(?:[Cc]orrupt|[Ee]rror)"
    r"|BTRFS (?:error|critical|warning)"
)
KILLED_GRACE_SECONDS = 10
LINES_BEFORE, LOG_LINES = 10, 250  # of a kernel log, before the first trouble and in all
PAGE = 4096
SECTOR = 512  # bytes of those that the kernel counts, whatever the disk's are
# With these two a kernel copies byte by byte, which an emulator does one at a time.
EMULATED = "max,-erms,-fsrm"
MEMORY_PIECE = 64 << 20
COUNTED_SHIFT = 1  # an instruction of a counted guest takes two to the power of this nanoseconds
MONITOR_SECONDS = 60.0
SEED_BYTES = 64
BOOT_SECONDS = 180.0
END_SECONDS = 1.0  # until a process is seen to have ended whose channel is closed
COMMAND_SECONDS = 180.0  # what a command may take that says nothing else, on a busy machine, too
IMAGE_SECONDS = 180.0
ON_EACH = "for c in /sys/devices/system/cpu/cpu[0-9]*; do taskset -c ${{c##*/cpu}} {}; done"
SLEEP_ON_EACH = ON_EACH.format("sleep 0.01 || exit 1")
DROP_CACHES = "/proc/sys/vm/drop_caches"
DROP_ON_EACH = ON_EACH.format(f"sh -c 'echo 1 > {DROP_CACHES}' || :")  # one that is offline has nothing
DEBUG_LOCKS = "awk '$1 == \"debug_locks:\" { print $2 }' /proc/lockdep_stats 2> /dev/null || :"
HOST_ADDRESS, ADDRESS_FOR_HOST, PORT_FOR_HOST = "10.0.2.2", "10.0.2.15", 7470
MODULE_AREA = "0xffffffffc0000000..0xffffffffff5fffff"  # where a kernel has the code of its modules
PLUGGED = "virtio-mem"  # the device by which memory is plugged and unplugged
THROTTLED = "throttled"  # the group of drives that share their limits


class GuestError(Exception):
    """A command failed in a guest, or the guest did."""


@dataclass(frozen=True)
class Disk:
    """A data disk (/dev/vda): a raw file.

    `filesystem` is made on the host, with `options` of its mkfs.
    `iops`, `write_iops` and `bytes_per_second` throttle it.
    With an `image` the disk begins with what is in it, and the image stays as it is, or, if `kept`, is the disk.
    """

    size: str = "1G"
    filesystem: str | None = "ext4"
    iops: int | None = None
    write_iops: int | None = None
    bytes_per_second: int | None = None
    image: Path | None = None
    kept: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Link:
    """A network card: the socket paths of this end and the other, this end's address and largest packet in bytes."""

    local: Path
    remote: Path
    address: str
    mtu: int = 1500


@dataclass(frozen=True)
class Spec:
    """What a guest is made of.

    With `capture` what its cards send and receive is kept in its folder (net0.pcap); if `counted` its clock goes by
    instructions, whatever else this machine has to do, and by real time while it waits for another guest. `modules` are
    kernel modules that it loads beside the usual. With a `balloon` it is a domain of a libvirt of its own. `tools` is
    the image of one more disk, which is only read. `generation` is what its host calls this machine, a UUID: another
    one says that it was reverted or cloned. With `host` it reaches this machine's loopback address as HOST_ADDRESS,
    and its port for borrowers is this machine's `host`. If `traced` it is emulated, and the emulator can tell which
    instructions of its kernel modules it executes (bed/executed.py). If `reports` is said it has a virtio balloon that
    nobody moves, which tells the host of free pages, or does not. `plugged` are MiB that it has beside its memory by
    virtio-mem, and that can be taken away (`plug`).
    """

    name: str
    memory: str
    processors: int = 1
    disk: Disk | None = None
    links: tuple[Link, ...] = ()
    append: str = ""
    capture: bool = False
    counted: bool = False
    balloon: bool = False
    modules: tuple[str, ...] = ()
    tools: Path | None = None
    generation: str = ""
    host: int | None = None
    traced: bool = False
    reports: bool | None = None
    plugged: int = 0


@dataclass
class Job:
    """A command under way in a guest."""

    guest: Guest
    command: str
    number: int
    future: Future[Result]
    started: float = field(default_factory=time.monotonic)

    def result(self, timeout: float = COMMAND_SECONDS) -> Result:
        """How it ended. When it does not end in time it is killed, and what it printed is in the error."""
        try:
            return self.future.result(timeout)
        except ChannelClosed:
            raise GuestError(f"{self.guest.name} died during `{self.command}`\n{self.guest.console_tail()}") from None
        except FutureTimeout:
            raise GuestError(
                f"{self.guest.name}: `{self.command}` took over {timeout} s\n{self._post_mortem()}"
            ) from None

    def wait(self, timeout: float = COMMAND_SECONDS) -> str:
        """Its output; a failure raises."""
        result = self.result(timeout)
        if result.code != 0:
            raise GuestError(f"{self.guest.name}: `{self.command}` ended with {result.code}\n{result.output}")
        return result.output

    @property
    def running(self) -> bool:
        return not self.future.done()

    def kill(self) -> None:
        self.guest.channel.kill(self.number)

    def _post_mortem(self) -> str:
        """What the command had printed, or, if even SIGKILL does not end it, where the guest hangs."""
        with contextlib.suppress(ChannelClosed, FutureTimeout):
            self.kill()
            return self.future.result(KILLED_GRACE_SECONDS).output
        with contextlib.suppress(ChannelClosed):
            self.guest.channel.run("echo w > /proc/sysrq-trigger; echo l > /proc/sysrq-trigger")
        time.sleep(3)
        return f"it cannot be killed; console:\n{self.guest.console_tail(200)}"


class Guest:
    """A running guest. Made by `Guest.boot`, or from the folder of one that already runs."""

    def __init__(
        self, name: str, folder: Path, process: subprocess.Popen[bytes] | None, domain: Domain | None = None
    ) -> None:
        self.name = name
        self.folder = folder
        self.process = process
        self.domain = domain
        self.module: Path | None = None  # that it is given when it is up
        self.image: Path | None = None  # of a guest of its kind that has just booted, if one is kept
        self.boots = True  # and does not go on from that image
        self.channel = Channel(folder / "channel")

    @classmethod
    def boot(cls, spec: Spec, kernel: Kernel, module: Path | None, folder: Path, *, detached: bool = False) -> Guest:
        """Start QEMU, which ends with this process unless detached; the guest is up after `wait_ready`."""
        folder.mkdir(parents=True, exist_ok=True)
        archive = initramfs(kernel, module, spec.disk.filesystem if spec.disk else None, spec.modules)
        (folder / "initramfs").write_bytes(archive)
        if spec.disk and not spec.disk.image:
            make_disk(folder / "disk", spec.disk)
        guest = cls._launch(spec, kernel, booted.image_of(spec, kernel, archive), folder, detached=detached)
        guest.module = module
        return guest

    @classmethod
    def _launch(cls, spec: Spec, kernel: Kernel, image: Path | None, folder: Path, *, detached: bool) -> Guest:
        """Its process: one that goes on from the image if that is there, one that boots otherwise."""
        command = _qemu_command(spec, kernel, folder)
        if spec.balloon:
            kvm = accelerator(kernel) == KVM
            size = int(spec.memory.removesuffix("M"))
            domain = Domain(spec.name, size, spec.processors, kvm=kvm, command=command, folder=folder)
            (folder / "pid").write_text(str(domain.process.pid))
            return cls(spec.name, folder, domain.process, domain)
        goes_on = image is not None and booted.use(image)
        guest = cls._start(spec, command + (_incoming(image) if image and goes_on else []), folder, detached=detached)
        guest.image, guest.boots = image, not goes_on
        return guest

    @classmethod
    def _start(cls, spec: Spec, command: list[str], folder: Path, *, detached: bool = False) -> Guest:
        command += ["-machine", "pc", "-m", _memory(spec), "-smp", _processors(spec), "-nodefaults", "-no-reboot"]
        if not detached:
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with (folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        (folder / "pid").write_text(str(process.pid))
        try:
            return cls(spec.name, folder, process)
        except OSError as error:
            process.kill()
            raise GuestError(f"{spec.name}: QEMU did not start: {(folder / 'qemu.log').read_text()}") from error

    # Its image: all of its memory, and its disk

    def save(self) -> None:
        """Write the image of this moment; the guest goes on."""
        self._write_image(self.folder / "image")
        copy_sparse(self.folder / "disk", self.folder / "image.disk")
        self.monitor("cont", {})

    def snapshot(self, copy: Path) -> None:
        """What the disk has now, as it would be if the power were cut; the guest goes on."""
        self.monitor("stop", {})
        copy_sparse(self.folder / "disk", copy)
        self.monitor("cont", {})

    def _write_image(self, image: Path) -> None:
        """All of its memory; the guest stands still afterwards."""
        self.monitor("migrate", {"uri": f"file:{image}"})
        deadline = time.monotonic() + IMAGE_SECONDS
        while (status := self.monitor("query-migrate", {})["status"]) != "completed":
            if status == "failed" or time.monotonic() > deadline:
                raise GuestError(f"{self.name}: its image is {status}")
            time.sleep(0.05)

    @classmethod
    def revert(cls, spec: Spec, kernel: Kernel, folder: Path) -> Guest:
        """A guest in place of the one of this folder, which has ended: it goes on from the image, with its commands."""
        for link in spec.links:
            link.local.unlink(missing_ok=True)
        for name in ("channel", "qmp"):
            (folder / name).unlink(missing_ok=True)
        copy_sparse(folder / "image.disk", folder / "disk")
        return cls._start(spec, [*_qemu_command(spec, kernel, folder), *_incoming(folder / "image")], folder)

    def wait_ready(self, timeout: float = BOOT_SECONDS) -> None:
        """Until it takes commands and each processor's timer has been seen to work; then it has the module.

        One whose kernel complains of its boot, as of a processor that a busy machine took away for long, is not up:
        whoever goes on from its image would have the complaint in its log.
        """
        try:
            if self.boots:
                self.channel.hello.result(timeout)
            slept = self.run(SLEEP_ON_EACH, timeout)
        except (ChannelClosed, FutureTimeout, GuestError) as error:
            if self.image:
                self.image.unlink(missing_ok=True)
            raise GuestError(f"{self.name} did not come up: {error}\n{self.console_tail()}") from None
        if slept.code != 0:
            raise GuestError(f"{self.name} did not come up: a processor is not there: {slept.output}")
        if self.boots:
            self._booted()
        else:
            self._set_apart()
        if self.module:
            self.start("cat > /lib/tidepool.ko", self.module.read_bytes()).wait()

    def _booted(self) -> None:
        if trouble := self.trouble():
            raise GuestError(f"{self.name} did not come up: its kernel complains: {trouble[0]}")
        if self.image:
            self._keep(self.image)

    def _keep(self, image: Path) -> None:
        """Write the image for others of its kind, whose disks hold something else."""
        self.sh("for disk in /dev/vd?; do [ ! -b $disk ] || blockdev --flushbufs $disk; done")
        place = booted.place_for(image)
        self._write_image(place)
        self.monitor("cont", {})
        place.rename(image)

    def _set_apart(self) -> None:
        """From others that go on from the same image: in what it draws at random, and in its time."""
        self.start(f"date -s @{int(time.time())} && reseed", os.urandom(SEED_BYTES)).wait()

    # Commands

    def start(self, command: str, data: bytes = b"") -> Job:
        """Start a shell command and go on."""
        try:
            number, future = self.channel.run(command, data)
        except ChannelClosed:
            raise GuestError(f"{self.name} is not running\n{self.console_tail()}") from None
        return Job(self, command, number, future)

    def run(self, command: str, timeout: float = COMMAND_SECONDS) -> Result:
        """Run a shell command; its exit code and output."""
        return self.start(command).result(timeout)

    def sh(self, command: str, timeout: float = COMMAND_SECONDS) -> str:
        """Run a shell command that must succeed; its output without the last line's end."""
        return self.start(command).wait(timeout).rstrip("\n")

    def read(self, path: str) -> str:
        return self.sh(f"cat {shlex.quote(path)}")

    def write(self, path: str, text: str, timeout: float = COMMAND_SECONDS) -> None:
        """Write a file, also one of /proc, /sys or configfs (one write of the whole text)."""
        self.start(f"cat > {shlex.quote(path)}", text.encode()).wait(timeout)

    # What it looks like from inside

    def meminfo(self, name: str) -> int:
        """A line of /proc/meminfo, in bytes."""
        match = re.search(rf"^{re.escape(name)}:\s+(\d+) kB", self.read("/proc/meminfo"), re.MULTILINE)
        if not match:
            raise GuestError(f"{self.name}: no {name} in /proc/meminfo")
        return int(match[1]) * 1024

    def vmstat(self, name: str) -> int:
        match = re.search(rf"^{re.escape(name)} (\d+)$", self.read("/proc/vmstat"), re.MULTILINE)
        return int(match[1]) if match else 0

    def disk_reads(self) -> int:
        """Reads that the data disk completed."""
        return self._disk(4)

    def disk_read_bytes(self) -> int:
        """What was read from the data disk."""
        return self._disk(6) * SECTOR

    def disk_writes(self) -> int:
        """Writes that the data disk completed."""
        return self._disk(8)

    def _disk(self, field: int) -> int:
        """A field of the data disk's line of /proc/diskstats."""
        return int(self.sh(f"awk '$3 == \"vda\" {{ print ${field} }}' /proc/diskstats"))

    def drop_caches(self, what: int = 1, timeout: float = COMMAND_SECONDS) -> None:
        """Evict what is clean: 1 is page cache, 2 slab, 3 both.

        What was read or written last waits in a batch of its processor's. An old kernel passes over those of other
        processors than the one that evicts: so each evicts first, which empties its own.
        """
        each = f"{DROP_ON_EACH} && " if what & 1 else ""
        self.sh(f"{each}echo {what} > {DROP_CACHES}", timeout=timeout)

    def mount(self, filesystem: str, options: str = "") -> None:
        """Mount the data disk on /mnt."""
        self.sh(f"mount -t {filesystem} {'-o ' + options if options else ''} /dev/vda /mnt")

    def umount(self) -> None:
        self.sh("umount /mnt")

    # Its kernel log

    def log(self) -> str:
        """The kernel log of a running guest."""
        return self.sh("dmesg")

    def console(self) -> str:
        """What reached the console, which is warnings and worse; also of a dead guest."""
        return self._kept("console.log")

    def _kept(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def console_tail(self, lines: int = 60) -> str:
        """The end of that, and of what the emulator has to say if it has ended itself."""
        return "\n".join([*self.console().splitlines()[-lines:], *self._end()])

    def _end(self) -> list[str]:
        if not self.process:
            return []
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return []
        return [f"QEMU ended with {code}", *self._kept("qemu.log").splitlines()[-LOG_LINES:]]

    def trouble(self, allow: str | None = None) -> list[str]:
        """Lines of the kernel log that a healthy guest does not print; `allow` is a pattern of what may be there."""
        return _trouble(self.log().splitlines(), allow)

    def assert_clean(self, allow: str | None = None) -> None:
        """No trouble in the log, the kernel tainted by nothing but an unsigned out-of-tree module, lockdep still on."""
        lines = self.log().splitlines()
        if trouble := _trouble(lines, allow):
            begin = max(0, lines.index(trouble[0]) - LINES_BEFORE)
            raise AssertionError(f"{self.name}'s kernel log:\n" + "\n".join(lines[begin : begin + LOG_LINES]))
        tainted, _, locks = self.sh(f"cat /proc/sys/kernel/tainted; {DEBUG_LOCKS}").partition("\n")
        out_of_tree, unsigned = 1 << 12, 1 << 13
        assert int(tainted) & ~(out_of_tree | unsigned) == 0, f"{self.name} is tainted: {tainted}"
        assert locks in ("", "1"), f"{self.name}: lockdep has switched itself off"

    def debug_locks(self) -> int | None:
        """1 while lockdep watches, 0 when it found something; None on kernels without it."""
        found = self.sh(DEBUG_LOCKS)
        return int(found) if found else None

    def leaks(self) -> str:
        """What the kernel's leak detector (`kmemleak=on`) finds that nothing points to any more."""
        detector = "/sys/kernel/debug/kmemleak"
        for _ in range(2):  # an object is reported when the second scan finds it the same
            self.sh(f"sleep 6; echo scan > {detector}", timeout=300)
        return self.read(detector)

    def memory(self) -> Iterator[bytes]:
        """Its memory as its host sees it, in overlapping pieces."""
        start, end = self._area()
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
            for at in range(start, end, MEMORY_PIECE):
                memory.seek(at)
                yield memory.read(min(MEMORY_PIECE + PAGE, end - at))

    def resident(self) -> int:
        """How many bytes of its memory its host has to hold."""
        start, _ = self._area()
        areas = Path(f"/proc/{self.pid}/smaps").read_text().partition(f"\n{start:x}-")[2]
        return int(areas.partition("\nRss:")[2].split()[0]) * 1024

    def _area(self) -> tuple[int, int]:
        """Where QEMU has its memory: the largest area that is not for code."""
        maps = [line.split() for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines()]
        areas = [[int(address, 16) for address in row[0].split("-")] for row in maps if row[1].startswith("rw-")]
        start, end = max(areas, key=lambda area: area[1] - area[0])
        return start, end

    # Its process

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def plug(self, mib: int) -> None:
        """Let it have so much by virtio-mem; it takes or gives that by itself, as its kernel can."""
        path = f"/machine/peripheral/{PLUGGED}"
        self.monitor("qom-set", {"path": path, "property": "requested-size", "value": mib << 20})

    def plugged(self) -> int:
        """What it has by virtio-mem at the moment, in bytes."""
        devices: Any = self.monitor("query-memory-devices", {})
        return int(devices[0]["data"]["size"])

    def balloon(self, size: int, timeout: float = COMMAND_SECONDS) -> None:
        """Let it have `size` bytes of memory, the balloon the rest, and wait until it is so."""
        assert self.domain, "a guest whose Spec asks for a balloon"
        self.domain.balloon(size, timeout)

    def throttle(self, iops: int, bytes_per_second: int = 0, drives: tuple[str, ...] = ("disk",)) -> None:
        """From now on these drives together do so many operations and bytes a second; 0: as many as they can."""
        limits = {f"{kind}{way}": 0 for kind in ("iops", "bps") for way in ("", "_rd", "_wr")}
        limits |= {"iops": iops, "bps": bytes_per_second}
        for device in drives:
            self.monitor("block_set_io_throttle", {"device": device, "group": THROTTLED, **limits})

    def monitor(self, command: str, arguments: dict[str, object]) -> dict[str, Any]:
        """What QEMU answers to a command of its machine protocol; the connection is for it alone."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(MONITOR_SECONDS)
            monitor.connect(str(self.folder / "qmp"))
            with monitor.makefile("rw") as lines:
                lines.readline()  # the greeting
                answer: dict[str, Any] = {}
                for each, options in (("qmp_capabilities", {}), (command, arguments)):
                    lines.write(json.dumps({"execute": each, "arguments": options}) + "\n")
                    lines.flush()
                    while "return" not in (answer := json.loads(lines.readline())):  # events may come between
                        if "error" in answer:
                            raise GuestError(f"{self.name}: {each}: {answer['error']['desc']}")
        found: dict[str, Any] = answer["return"]
        return found

    def kill(self) -> None:
        """SIGKILL of its QEMU: a host that loses power."""
        self._signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def stop(self) -> None:
        """Freeze it (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, in whatever state it is."""
        if self.process is None or self.process.poll() is None:
            self.kill()
        self.channel.close()

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def copy_sparse(source: Path, target: Path) -> None:
    """What a disk has, without the holes between."""
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


def make_disk(path: Path, disk: Disk) -> None:
    """A new, empty disk; a file system on a disk that exists is replaced."""
    subprocess.run(["truncate", "-s", "0", str(path)], check=True)
    subprocess.run(["truncate", "-s", disk.size, str(path)], check=True)
    commands = {
        "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"],
        "xfs": ["mkfs.xfs", "-q", "-f"],
        "btrfs": ["mkfs.btrfs", "-q", "-f"],
        "vfat": ["mkfs.vfat"],
    }
    if disk.filesystem:
        subprocess.run([*commands[disk.filesystem], *disk.options, str(path)], check=True, env=with_sbin())


def _processor(spec: Spec, kernel: Kernel) -> list[str]:
    if spec.counted:
        # Alone it need not wait at all; with a card it must not run ahead of who is to answer.
        idle = "on" if spec.links else "off"
        return ["-accel", "tcg,thread=single", "-icount", f"shift={COUNTED_SHIFT},sleep={idle}", "-cpu", EMULATED]
    if accelerator(kernel) == KVM and not spec.traced:
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", EMULATED]


def _incoming(image: Path) -> list[str]:
    """QEMU's arguments to go on from an image."""
    return ["-incoming", f"file:{image}"]


def _processors(spec: Spec) -> str:
    """How many, and room for one more.

    For a machine that can never have a second one the emulator leaves out memory barriers, also those between guest and
    devices, and an interrupt or a request may be lost.
    """
    return f"{spec.processors}" if spec.counted else f"{spec.processors},maxcpus={spec.processors + 1}"


def _trouble(lines: list[str], allow: str | None) -> list[str]:
    return [line for line in lines if TROUBLE.search(line) and not (allow and re.search(allow, line))]


def _limits(disk: Disk) -> str:
    """What a drive of that disk may do; all of a guest's share it."""
    limits = {"iops-total": disk.iops, "iops-write": disk.write_iops, "bps-total": disk.bytes_per_second}
    found = "".join(f",throttling.{name}={value}" for name, value in limits.items() if value)
    return f"{found},throttling.group={THROTTLED}" if found else ""


def _told_by_host(spec: Spec) -> list[str]:
    """The devices by which the host and the guest tell each other what they are."""
    found = ["-device", f"vmgenid,guid={spec.generation}"] if spec.generation else []
    if spec.reports is not None:
        found += ["-device", f"virtio-balloon-pci,free-page-reporting={'on' if spec.reports else 'off'}"]
    if spec.plugged:
        found += ["-object", f"memory-backend-ram,id=plugged,size={spec.plugged}M"]
        found += ["-device", f"virtio-mem-pci,id={PLUGGED},memdev=plugged,requested-size={spec.plugged}M"]
    return found


def _memory(spec: Spec) -> str:
    """What it has, and could have."""
    most = int(spec.memory.removesuffix("M")) + spec.plugged
    return f"{spec.memory},maxmem={most}M" if spec.plugged else spec.memory


def _qemu_command(spec: Spec, kernel: Kernel, folder: Path) -> list[str]:
    cards = [link.address for link in spec.links] + ([ADDRESS_FOR_HOST] if spec.host else [])
    addresses = ",".join(f"eth{number}:{address}" for number, address in enumerate(cards))
    # On a busy machine the emulated timer may be later than the kernel's check of it waits; a kernel's tests of its
    # ciphers are a fifth of its start. A kernel with room for a second processor has to be told that it can read the
    # emulator's time stamp counter, the same for all: otherwise it asks the emulated HPET, which takes a microsecond.
    append = "console=ttyS0 loglevel=5 panic=-1 no_timer_check cryptomgr.notests mitigations=off log_buf_len=4M"
    append += " tsc=reliable"
    # A processor that stands still is one that a busy machine has taken away, unless it does so for minutes.
    append += " watchdog_thresh=60"
    append += " memhp_default_state=online_movable" if spec.plugged else ""
    append += f" rdinit=/init tidepool.ip={addresses} {spec.append}"
    qemu = fetch_qemu()
    command = [str(qemu / "usr/bin/qemu-system-x86_64"), *_processor(spec, kernel)]
    command += ["-L", str(qemu / "usr/share/qemu"), "-L", str(qemu / "usr/share/seabios")]
    command += ["-display", "none"]
    command += ["-kernel", str(kernel.vmlinuz), "-initrd", str(folder / "initramfs"), "-append", append]
    command += ["-serial", f"file:{folder / 'console.log'}"]
    command += ["-chardev", f"socket,id=channel,path={folder / 'channel'},server=on,wait=off"]
    command += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=channel,name=tidepool"]
    command += ["-qmp", f"unix:{folder / 'qmp'},server=on,wait=off"]
    if spec.traced:
        command += ["-dfilter", MODULE_AREA, "-D", str(folder / "executed")]
    command += _told_by_host(spec)
    if spec.disk:
        drive = f"if=none,id=disk,format=raw,file={spec.disk.image or folder / 'disk'},cache=unsafe,aio=threads"
        drive += ",snapshot=on" if spec.disk.image and not spec.disk.kept else ""
        drive += _limits(spec.disk)
        command += ["-drive", drive, "-device", "virtio-blk-pci,drive=disk"]
    if spec.tools:
        drive = f"if=none,id=tools,format=raw,file={spec.tools},cache=unsafe,aio=threads,readonly=on"
        command += ["-drive", drive + (_limits(spec.disk) if spec.disk else "")]
        command += ["-device", "virtio-blk-pci,drive=tools,serial=tools"]
    for number, link in enumerate(spec.links):
        ends = f"local.type=unix,local.path={link.local},remote.type=unix,remote.path={link.remote}"
        mac = "52:54:00:" + ":".join(f"{int(octet):02x}" for octet in link.address.split(".")[1:])
        command += ["-netdev", f"dgram,id=net{number},{ends}"]
        command += ["-device", f"virtio-net-pci,netdev=net{number},mac={mac},host_mtu={link.mtu},romfile="]
        if spec.capture:
            capture = folder / f"net{number}.pcap"
            command += ["-object", f"filter-dump,id=dump{number},netdev=net{number},file={capture}"]
    if spec.host:
        forward = f"tcp:127.0.0.1:{spec.host}-{ADDRESS_FOR_HOST}:{PORT_FOR_HOST}"
        command += ["-netdev", f"user,id=host,ipv6=off,hostfwd={forward}"]
        command += ["-device", "virtio-net-pci,netdev=host,mac=52:54:00:00:02:0f,romfile="]
    return command
