"""One guest: probe it, and carry out steps in it.

Everything goes through one fixed shell script, so that a probe and each step cost a single command in the guest; only
the module is written as a file. The functions block and are run in the guest's own thread.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from importlib.resources import files

from tidepool_agent.addresses import interface
from tidepool_agent.applications import AppStep, Give, LoadApp, Offer, UnloadApp
from tidepool_agent.devices import (
    POLICIES,
    Attach,
    Detach,
    LoadTarget,
    Map,
    OfDevice,
    SwapOff,
    SwapOn,
    UnloadTarget,
    Unmap,
)
from tidepool_agent.errors import (
    ApplicationsRefused,
    BuildFailed,
    CommandFailed,
    CommandsBlocked,
    ConfigureFailed,
    DeliveryFailed,
    DeviceRefused,
    GuestError,
    LoadDenied,
    LoadFailed,
    UnloadFailed,
    Unsupported,
    UpgradeFailed,
)
from tidepool_agent.guestfs import Observation, parse
from tidepool_agent.losses import Reach
from tidepool_agent.mapped import SECTOR
from tidepool_agent.plan import (
    Change,
    Configure,
    Load,
    Measure,
    Remove,
    Replace,
    Set,
    Source,
    Step,
    Turn,
    Unload,
)
from tidepool_agent.qga import Completed, GuestAgent
from tidepool_agent.store import APP_FILE, Store
from tidepool_api import Interface, parse_quantity, printable
from tidepool_api.fields import LEAST_MEMORY

PARTS = ("guest.sh", "devices.sh", "applications.sh")
SCRIPT = "\n".join([*((files("tidepool_agent") / name).read_text() for name in PARTS), '"$@"'])
SYSTEM = "guest-get-osinfo"
NO_SHELL = re.compile(r"Failed to execute child process .*No such file or directory")
PLACE = "/run/tidepool"
MODULE = f"{PLACE}/tidepool.ko"
SOURCES = f"{PLACE}/source.tar.gz"
LOAD_SECONDS, BUILD_SECONDS, SWAP_SECONDS = 60, 600, 60
LEAST_SECTORS = parse_quantity(LEAST_MEMORY) // SECTOR  # of a disk
MOST_HOLDERS = 5
HOLDER = re.compile(r"([0-9]{1,10}) (.{0,16})")
DENIED = re.compile(r"(insmod|modprobe|mount): [^;]*([Pp]ermission denied|Operation not permitted)")
LOCKED = re.compile(r"Lockdown: \S+ unsigned module")
# Of what the script may say, and of no other word: a guest can write what it likes there, and a reason is a label.
REASONS = frozenset(re.findall(r"\brefuse ([A-Z]\w+)", SCRIPT))
REFUSED = re.compile(rf"refused: ({'|'.join(sorted(REASONS))}): (.*)", re.DOTALL)


class Guest:
    """What can be done with a guest through its guest agent."""

    def __init__(self, agent: GuestAgent, store: Store) -> None:
        self._agent = agent
        self._store = store

    def check(self) -> None:
        """Raises Unsupported if the guest is no Linux, CommandsBlocked if its agent forbids what we need.

        Runs nothing in the guest: only its guest agent is asked.
        """
        blocked = self._agent.blocked()
        if SYSTEM not in blocked:
            self._check_system()
        if blocked:
            raise CommandsBlocked(blocked)

    def _check_system(self) -> None:
        name, is_linux = self._agent.system()
        if not is_linux:
            raise Unsupported(f"its system is {name}, and the module is for Linux; nothing is run in it")

    def probe(self, *, installed: bool = False) -> Observation:
        """The guest's state; `installed` also asks whether the guest brings the module itself."""
        return parse(self._script("installed" if installed else "probe"))

    def interfaces(self) -> tuple[Interface, ...]:
        """The guest's own interfaces, as it calls them."""
        return tuple(interface(name, found) for name, found in self._agent.interfaces().items())

    def log(self) -> str:
        """What the module said last in the kernel log, as one line."""
        return "; ".join(line.strip() for line in self._script("log").splitlines())[-1024:]

    def reach(self, address: str) -> Reach | None:
        """How large a packet gets to an address; None where the guest cannot tell."""
        try:
            passes, most = map(int, self._script("path", address).split())
        except (CommandFailed, ValueError):
            return None
        return Reach(address, passes, most)

    def holders(self) -> tuple[str, ...]:
        """The first processes that have programs' device open, for people to read; none where it cannot tell."""
        try:
            lines = self._script("holders", seconds=LOAD_SECONDS).splitlines()
        except CommandFailed:
            return ()
        found = filter(None, map(HOLDER.fullmatch, lines[:MOST_HOLDERS]))
        return tuple(f"process {printable(match[1])} ({printable(match[2])})" for match in found)

    def carry_out(self, step: Step, release: str) -> None:
        """Carries out one step; raises what a condition can show."""
        match step:
            case Load() | Replace() | Unload():
                self._change_module(step, release)
            case LoadTarget() | UnloadTarget():
                self._change_target(step, release)
            case Map() | Attach() | Detach() | Unmap() | SwapOn() | SwapOff():
                self._change_device(step)
            case LoadApp() | Give() | UnloadApp():
                self._change_applications(step, release)
            case _:
                self._configure(step)

    def _configure(self, step: Remove | Set | Configure | Change | Turn | Measure) -> None:
        match step:
            case Remove(peers):
                self._try(ConfigureFailed, "remove", *(f"{side}/{name}" for side, name in peers))
            case Set(settings):
                self._try(ConfigureFailed, "settings", *_pairs(settings))
            case Configure(want):
                attributes = {**want.attributes, "enabled": "1"}
                self._try(ConfigureFailed, "peer", f"{want.side}/{want.name}", *_pairs(attributes))
            case Change(want, attributes):
                self._try(ConfigureFailed, "change", f"{want.side}/{want.name}", *_pairs(attributes))
            case Turn(want, address):
                self._try(ConfigureFailed, "change", f"{want.side}/{want.name}", f"address={address}")
            case Measure(mode):
                self._try(ConfigureFailed, "settings", f"ghost={mode}")

    def _change_module(self, step: Load | Replace | Unload, release: str) -> None:
        match step:
            case Unload():
                self._try(UnloadFailed, "unload")
            case Load(Source.DKMS):
                self._build()
                self._try(LoadFailed, "load_installed", seconds=LOAD_SECONDS)
            case Load(Source.INSTALLED):
                self._try(LoadFailed, "load_installed", seconds=LOAD_SECONDS)
            case _:
                kind, verb = (UpgradeFailed, "replace") if isinstance(step, Replace) else (LoadFailed, "load")
                build = self._store.build(release)
                self._deliver(MODULE, build.data)
                self._try(kind, verb, build.sha256, seconds=LOAD_SECONDS)

    def _change_target(self, step: LoadTarget | UnloadTarget, release: str) -> None:
        match step:
            case UnloadTarget():
                self._try(UnloadFailed, "unload_block")
            case LoadTarget(Source.STORE):
                builds = self._store.targets(release)
                for name, build in builds.items():
                    self._deliver(f"{PLACE}/{name}", build.data)
                self._try_device("load_block", *(build.sha256 for build in builds.values()), seconds=LOAD_SECONDS)
            case _:
                self._try_device("load_block_installed", seconds=LOAD_SECONDS)

    def _change_applications(self, step: AppStep, release: str) -> None:
        match step:
            case UnloadApp():
                self._try(UnloadFailed, "unload_app", seconds=LOAD_SECONDS)
            case LoadApp(Source.STORE, offer):
                build = self._store.app(release)
                self._deliver(f"{PLACE}/{APP_FILE}", build.data)
                self._try_programs("load_app", build.sha256, *_words(offer))
            case LoadApp(_, offer):
                self._try_programs("load_app_installed", *_words(offer))
            case Give(offer):
                self._try_programs("give", *_words(offer))

    def _try_programs(self, verb: str, *arguments: str) -> None:
        self._try_device(verb, *arguments, seconds=LOAD_SECONDS, kind=ApplicationsRefused)

    def _change_device(self, step: OfDevice) -> None:
        match step:
            case Map(path, forced, shared):
                words = [one.word for one in shared]
                self._try_device("map", step.name, path, str(LEAST_SECTORS), _force(forced=forced), *words)
            case SwapOn(swap, forced, shared):
                place = [swap.device, _force(forced=forced), *(one.word for one in shared)] if swap.device else []
                words = [str(swap.size_bytes), POLICIES[swap.write]]
                self._try_device("swap_on", step.name, *words, *place, seconds=SWAP_SECONDS)
            case SwapOff(name):
                self._try_device("swap_off", name, seconds=SWAP_SECONDS)
            case Attach(name, write):
                self._try_device("attach", name, POLICIES[write])
            case Detach(name) | Unmap(name):
                self._try_device(type(step).__name__.lower(), name)

    def _try_device(
        self, verb: str, *arguments: str, seconds: float = 30, kind: type[DeviceRefused] = DeviceRefused
    ) -> None:
        """Runs a verb about a device; what the script refuses has its own reason, and says what to do."""
        try:
            self._script(verb, *arguments, seconds=seconds)
        except CommandFailed as error:
            if said := REFUSED.search(str(error)):
                raise kind(said[2], said[1]) from error
            raise kind(f"{error}{self._said()}") from error

    def _build(self) -> None:
        sources = self._store.sources()
        self._deliver(SOURCES, sources.data)
        self._try(BuildFailed, "build", sources.sha256, sources.version, seconds=BUILD_SECONDS)

    def _deliver(self, path: str, data: bytes) -> None:
        """Puts the module, or its sources, into the guest's memory; a part of it leaves nothing there."""
        try:
            self._script("place")
            self._agent.write(path, data)
        except CommandFailed as error:
            with contextlib.suppress(GuestError):
                self._script("clear")
            raise DeliveryFailed(
                f"{path.rpartition('/')[2]} ({len(data) >> 10} KiB) does not get into the guest's /run: {error}"
            ) from error

    def _try(self, kind: type[GuestError], verb: str, *arguments: str, seconds: float = 30) -> None:
        """Runs a verb; its failure becomes an error of the given kind that quotes the module's own words."""
        try:
            self._script(verb, *arguments, seconds=seconds)
        except CommandFailed as error:
            raise failure(kind, f"{error}{self._said()}") from error

    def _said(self) -> str:
        """What the module has said last, as the end of a message."""
        said = self.log()
        return f"; kernel log: {said}" if said else ""

    def _script(self, verb: str, *arguments: str, seconds: float = 30) -> str:
        try:
            done = self._agent.run(["/bin/sh", "-c", SCRIPT, "tidepool", verb, *arguments], seconds=seconds)
        except CommandFailed as error:
            if NO_SHELL.search(str(error)):
                raise Unsupported("it has no /bin/sh, which everything in it would go through") from error
            raise
        if done.code != 0:
            raise CommandFailed(_complaint(verb, done))
        return done.out


def _complaint(verb: str, done: Completed) -> str:
    words = " ".join(done.err.split())[-512:] or f"exit code {done.code}"
    return f"{verb} failed in the guest: {words}"


def failure(kind: type[GuestError], message: str) -> GuestError:
    """What went wrong; that the guest's own rules forbid it is told apart from a module that does not fit."""
    if issubclass(kind, LoadFailed) and DENIED.search(message) and not LOCKED.search(message):
        return LoadDenied(
            "SELinux or AppArmor keeps the guest agent from loading modules: allow it module_load and CAP_SYS_MODULE "
            f"in the guest, whose audit log has what was denied ({message})"
        )
    return kind(message)


def _force(*, forced: bool) -> str:
    return "force" if forced else "keep"


def _words(offer: Offer) -> tuple[str, str, str]:
    """What programs are given, as arguments of the script."""
    return str(offer.size_bytes), offer.mode, offer.group


def _pairs(attributes: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in attributes.items()]
