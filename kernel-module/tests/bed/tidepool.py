"""The module in a guest: load, configure through configfs and read figures, as ABI.md describes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping

from bed.channel import Result
from bed.guest import Guest, GuestError, Job
from bed.protocol import somebody

ROOT = "/sys/kernel/config/tidepool"
PORT = 7470
MIB = 1 << 20
PATIENCE = 40.0  # seconds: a busy machine is no reason to fail, and what does not wait so long for it costs nothing


def parse_stats(text: str) -> dict[str, int]:
    """`name value` lines."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines() if line.strip())}


def parse_histogram(text: str, kind: str) -> list[tuple[float, int]]:
    """(upper bound in microseconds, count) of one kind's lines of a `latency` file."""
    rows = [line.split() for line in text.splitlines()]
    return [(float(bound), int(count)) for row_kind, bound, count in rows if row_kind == kind]


def quantile(histogram: list[tuple[float, int]], share: float) -> float:
    """Upper bound of the bucket that holds the quantile."""
    left = share * sum(count for _, count in histogram)
    for bound, count in sorted(histogram):
        left -= count
        if left <= 0:
            return bound
    return float("inf")


def wait_until(what: str, condition: Callable[[], bool], timeout: float = PATIENCE, every: float = 0.1) -> None:
    """Until the condition holds; a failure says what did not happen."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(every)


class Tidepool:
    """The module in one guest; `peer` is the guest that it is paired with if nobody else is named.

    `before_lending` is called each time it is going to lend to one more.
    `broken` are the mechanisms, with commas between, that a breakable module does without.
    """

    def __init__(self, guest: Guest, broken: str = "") -> None:
        self.guest = guest
        self.broken = broken
        self.peer: Tidepool | None = None
        self.before_lending: Callable[[], None] = lambda: None

    # Loading

    def load(self, parameters: str = "") -> None:
        self.guest.sh(self.insmod(parameters))

    def start_loading(self) -> Job:
        """Begin to load it where it is not loaded; that is mostly waiting, so both guests can at a time."""
        return self.guest.start(f"[ -d /sys/module/tidepool ] || {self.insmod()}")

    def insmod(self, parameters: str = "") -> str:
        """The command that loads the module, with further parameters."""
        broken = f"broken={self.broken}" if self.broken else ""
        return f"insmod /lib/tidepool.ko {broken} {parameters}".strip()

    def remove_peers(self) -> None:
        """Take away every peer's directory, whatever its state."""
        peers = f"{ROOT}/borrowers/* {ROOT}/lenders/*"
        self.guest.sh(f"for d in {peers}; do [ ! -d $d ] || rmdir $d || exit 1; done")

    def unload(self) -> None:
        """Take away every peer, then the module.

        With lockdep a socket whose lock has a class of the module's own holds the module until its last packet has
        been sent: there, and only there, this waits for them.
        """
        self.remove_peers()
        if self.guest.debug_locks() is not None:
            wait_until("sockets let the module go", self._is_free)
        self.guest.sh("rmmod tidepool")

    def _is_free(self) -> bool:
        return self.guest.sh("awk '$1 == \"tidepool\" { print $3 }' /proc/modules") == "0"

    @property
    def loaded(self) -> bool:
        return self.guest.run("[ -d /sys/module/tidepool ]").code == 0

    # Attributes; paths are relative to the module's folder in configfs

    def get(self, path: str) -> str:
        return self.guest.read(f"{ROOT}/{path}").strip()

    def set(self, path: str, value: object) -> None:
        self.guest.write(f"{ROOT}/{path}", f"{value}\n")

    def try_set(self, path: str, value: object) -> Result:
        """Write an attribute that may refuse the value; the output then names the error."""
        return self.guest.start(f"cat > {ROOT}/{path}", f"{value}\n".encode()).result()

    def mkdir(self, path: str) -> None:
        self.guest.sh(f"mkdir {ROOT}/{path}")

    def rmdir(self, path: str) -> None:
        self.guest.sh(f"rmdir {ROOT}/{path}")

    def stats(self, path: str = "") -> dict[str, int]:
        """Figures of the module, or of one peer (`lenders/NAME`, `borrowers/NAME`)."""
        return parse_stats(self.get(f"{path}/stats".lstrip("/")))

    def latency(self, path: str, kind: str = "get") -> list[tuple[float, int]]:
        return parse_histogram(self.get(f"{path}/latency"), kind)

    def ghost_figures(self) -> dict[str, int]:
        """What ghost mode has seen."""
        lines = [line.split() for line in self.get("ghost_curve").splitlines()]
        return {line[0]: int(line[1]) for line in lines if line[0] != "hit_ratio"}

    def ghost_ratios(self) -> dict[int, float]:
        """The hit ratio that ghost mode expects, by the pool's size in bytes."""
        lines = [line.split() for line in self.get("ghost_curve").splitlines()]
        return {int(line[1]): float(line[2]) for line in lines if line[0] == "hit_ratio"}

    # A pairing's two ends

    @property
    def identity(self) -> str:
        return self.get("identity")

    def lend(
        self,
        name: str,
        *,
        quota: int,
        identity: str | None = None,
        port: int | None = None,
        reserve: int | None = None,
    ) -> None:
        """Serve one borrower: the peer, unless it is somebody else."""
        self.before_lending()
        if port is not None:
            self.set("port", port)
        if reserve is not None:
            self.set("reserve_bytes", reserve)
        self.guest.sh(f"cd {ROOT} && {{ [ $(cat lend_bytes) -ge {quota} ] || echo {quota} > lend_bytes; }}")
        known = {"identity": identity or self._peer_identity(), "quota_bytes": quota}
        self._add_peer(f"borrowers/{name}", known)
        if not identity:
            self._say_who(f"lenders/{name}")

    def borrow(
        self,
        name: str,
        *,
        address: str,
        size: int,
        identity: str | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """Use one lender: the peer, unless it is somebody else.

        `more` are further attributes (port, strategy, deadline_us) as in the ABI.
        """
        known = {"address": address, "identity": identity or self._peer_identity(), "size_bytes": size}
        self._add_peer(f"lenders/{name}", {**known, **(more or {})})
        if not identity:
            self._say_who(f"borrowers/{name}")

    def _add_peer(self, path: str, attributes: Mapping[str, object]) -> None:
        """A peer's folder, with its attributes written in their order, each by a write of its own; then enabled."""
        writes = [f"echo {shlex.quote(str(value))} > {name}" for name, value in {**attributes, "enabled": 1}.items()]
        self.guest.sh(f"mkdir {ROOT}/{path} && cd {ROOT}/{path} && {' && '.join(writes)}")

    def _peer_identity(self) -> str:
        """The peer's; that of nobody as long as its module is not loaded."""
        found = self.peer.guest.sh(f"cat {ROOT}/identity 2> /dev/null || :") if self.peer else ""
        return found or somebody()

    def _say_who(self, path: str) -> None:
        """The other end, which may have been there before this one's module was loaded, is told who this is."""
        if self.peer:
            self.peer.guest.sh(f"! [ -d {ROOT}/{path} ] || echo {self.identity} > {ROOT}/{path}/identity")

    def wait_state(self, path: str, state: str, timeout: float = PATIENCE) -> None:
        try:
            wait_until(f"{path} is {state}", lambda: self.get(f"{path}/state") == state, timeout)
        except AssertionError as error:
            found, log = self.get(f"{path}/state"), self.guest.log()[-2000:]
            raise GuestError(f"{self.guest.name}: {error}; it is {found}\n{log}") from None
