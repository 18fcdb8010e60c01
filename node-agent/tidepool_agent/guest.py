"""One guest: probe it, and carry out steps in it.

Everything goes through one fixed shell script, so that a probe and each step cost a single command in the guest; only
the module and the keys are written as files. The functions block and are run in the guest's own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files

from tidepool_agent.errors import (
    CommandFailed,
    CommandsBlocked,
    ConfigureFailed,
    GuestError,
    LoadFailed,
    UnloadFailed,
)
from tidepool_agent.guestfs import TREE, Observation, parse
from tidepool_agent.plan import Change, Configure, Load, Measure, Remove, Set, Source, Step, Unload, Want
from tidepool_agent.qga import Completed, GuestAgent
from tidepool_agent.store import Store

SCRIPT = (files("tidepool_agent") / "guest.sh").read_text()
MODULE = "/run/tidepool/tidepool.ko"
LOAD_SECONDS = 60

# Gets the key of a pairing: (namespace, name of the Secret) -> 64 hexadecimal digits.
Keys = Callable[[str, str], str]


class Guest:
    """What can be done with a guest through its guest agent."""

    def __init__(self, agent: GuestAgent, store: Store, keys: Keys) -> None:
        self._agent = agent
        self._store = store
        self._keys = keys

    def check_commands(self) -> None:
        """Raises CommandsBlocked if the guest agent forbids what we need."""
        blocked = self._agent.blocked()
        if blocked:
            raise CommandsBlocked(blocked)

    def probe(self, *, installed: bool = False) -> Observation:
        """The guest's state; `installed` also asks whether the guest brings the module itself."""
        return parse(self._script("installed" if installed else "probe"))

    def log(self) -> str:
        """What the module said last in the kernel log, as one line."""
        return "; ".join(line.strip() for line in self._script("log").splitlines())[-1024:]

    def carry_out(self, step: Step, release: str) -> None:
        """Carries out one step; raises what a condition can show."""
        match step:
            case Load(source):
                self._load(source, release)
            case Remove(peers):
                self._try(ConfigureFailed, "remove", *(f"{side}/{name}" for side, name in peers))
            case Set(settings):
                self._try(ConfigureFailed, "settings", *_pairs(settings))
            case Configure(want):
                self._configure(want)
            case Change(want, attributes):
                self._try(ConfigureFailed, "change", f"{want.side}/{want.name}", *_pairs(attributes))
            case Measure(mode):
                self._try(ConfigureFailed, "settings", f"ghost={mode}")
            case Unload():
                self._try(UnloadFailed, "unload")

    def _load(self, source: Source, release: str) -> None:
        if source is Source.INSTALLED:
            self._try(LoadFailed, "load_installed", seconds=LOAD_SECONDS)
            return
        build = self._store.build(release)
        self._script("place")
        self._agent.write(MODULE, build.data)
        self._try(LoadFailed, "load", build.sha256, seconds=LOAD_SECONDS)

    def _configure(self, want: Want) -> None:
        folder = f"{want.side}/{want.name}"
        key = self._keys(want.pairing.namespace, want.pairing.spec.key_secret.name)
        self._try(ConfigureFailed, "peer", folder, *_pairs(want.attributes))
        try:
            self._agent.write(f"{TREE}/{folder}/key", key.encode())
        except CommandFailed as error:
            raise ConfigureFailed(f"the module refused the key of {folder}: {error}") from error
        self._try(ConfigureFailed, "change", folder, "enabled=1")

    def _try(self, kind: type[GuestError], verb: str, *arguments: str, seconds: float = 30) -> None:
        """Runs a verb; its failure becomes an error of the given kind that quotes the module's own words."""
        try:
            self._script(verb, *arguments, seconds=seconds)
        except CommandFailed as error:
            said = self.log()
            raise kind(f"{error}{'; kernel log: ' + said if said else ''}") from error

    def _script(self, verb: str, *arguments: str, seconds: float = 30) -> str:
        done = self._agent.run(["/bin/sh", "-c", SCRIPT, "tidepool", verb, *arguments], seconds=seconds)
        if done.code != 0:
            raise CommandFailed(_complaint(verb, done))
        return done.out


def _complaint(verb: str, done: Completed) -> str:
    words = " ".join(done.err.split())[-512:] or f"exit code {done.code}"
    return f"{verb} failed in the guest: {words}"


def _pairs(attributes: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in attributes.items()]
