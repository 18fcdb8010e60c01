"""Who does not want Tidepool is left alone, before anything is run in a guest."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cast import AgentProcess, Machine, eventually
from objects import BOOT, RELEASE, machine, observation, want
from objects import pairing as made

from tidepool_agent import consent
from tidepool_agent.errors import CommandFailed, CommandsBlocked, ConfigureFailed, Excluded, Unsupported
from tidepool_agent.guest import Guest
from tidepool_agent.guestfs import Observation, Peer, Side
from tidepool_agent.metrics import Figures
from tidepool_agent.plan import Remove, Step, Unload
from tidepool_agent.qga import NEEDED, GuestAgent
from tidepool_agent.settings import parse
from tidepool_agent.store import Store
from tidepool_agent.worker import LEFT_ALONE_EVERY, Tools, Worker
from tidepool_api import MemoryGuest, find, names
from tidepool_api_testing.server import Server

LABEL = names.EXCLUDE_LABEL
LINUX = {"id": "debian", "pretty-name": "Debian 12", "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.0"}
WINDOWS = {"id": "mswindows", "pretty-name": "Windows Server 2022 Standard", "kernel-version": "10.0"}
FREEBSD = {"id": "freebsd", "pretty-name": "FreeBSD 14.0-RELEASE", "kernel-version": "FreeBSD 14.0-RELEASE #0"}


@pytest.mark.parametrize(
    ("namespaces", "unwilling", "labels", "because"),
    [
        ((), (), {}, None),
        (("default",), (), {}, None),
        ((), (), {LABEL: "false"}, None),
        (("shop",), (), {}, "agent.namespaces"),
        ((), ("default",), {LABEL: "false"}, "namespace default has the label"),
        ((), (), {LABEL: "true"}, "the virtual machine has the label"),
        ((), (), {LABEL: ""}, "the virtual machine has the label"),
    ],
)
def test_who_is_left_alone(
    namespaces: tuple[str, ...], unwilling: tuple[str, ...], labels: dict[str, str], because: str | None
) -> None:
    """Whatever the label's value is but "false"; one at the machine takes back nothing that its namespace says."""
    found = consent.excluded(machine(labels=labels), namespaces, unwilling)
    assert (because in str(found)) if because else found is None


@pytest.mark.parametrize("others", ["a{:03}", "z{:03}", f"{names.GROUP}/a{{:03}}"])
def test_who_has_many_labels_is_left_alone_too(others: str) -> None:
    """Wherever the one that says so is among them: of more than an agent keeps others are left out."""
    many = {others.format(at): "" for at in range(2 * consent.MAX_LABELS)}
    kept = consent.kept(many | {LABEL: "true"})
    assert len(kept) == consent.MAX_LABELS
    assert consent.excluded(machine(labels=kept), (), ()) is not None
    elsewhere = {one.replace("tidepool", "other"): "" for one in many}
    assert consent.kept(elsewhere | {f"{names.GROUP}/vm": "db"})[f"{names.GROUP}/vm"] == "db"


def test_namespaces_are_told_with_commas() -> None:
    environment = {"NODE_NAME": "n", "POD_NAMESPACE": "ns"}
    assert parse([], environment).namespaces == frozenset()
    assert parse(["--namespaces=a,b"], environment).namespaces == {"a", "b"}


# ------------------------------------------------------------------------------------------------ what a guest is asked


class Asked:
    """A guest agent that answers what it is, and knows what it was asked."""

    def __init__(self, system: dict[str, str], without: str = "") -> None:
        self.commands: list[str] = []
        enabled = [{"name": name, "enabled": True} for name in NEEDED - {without}]
        self._answers: dict[str, object] = {
            "guest-info": {"supported_commands": enabled},
            "guest-get-osinfo": system,
            "guest-fsfreeze-status": "thawed",
        }

    def __call__(self, text: str, _seconds: int) -> str:
        command = json.loads(text)["execute"]
        self.commands.append(command)
        return json.dumps({"return": self._answers[command]})


@pytest.mark.parametrize("system", [WINDOWS, FREEBSD, {}], ids=["Windows", "FreeBSD", "one that does not say"])
@pytest.mark.parametrize("without", ["", "guest-exec"])
def test_in_a_system_that_is_no_linux_nothing_is_run(tmp_path: Path, system: dict[str, str], without: str) -> None:
    """Nor is its owner sent to allow commands that would be of no use."""
    asked = Asked(system, without)
    with pytest.raises(Unsupported, match=system.get("pretty-name", "one without a name")):
        Guest(GuestAgent(asked), Store(tmp_path)).check()
    assert [one for one in asked.commands if one != "guest-fsfreeze-status"] == ["guest-info", "guest-get-osinfo"]


def test_a_linux_without_a_shell_is_left_alone(tmp_path: Path) -> None:
    """What its guest agent says of it, through libvirt."""

    def refuse(_text: str, _seconds: int) -> str:
        raise CommandFailed("error was 'Failed to execute child process “/bin/sh” (No such file or directory)'")

    with pytest.raises(Unsupported, match="has no /bin/sh"):
        Guest(GuestAgent(refuse), Store(tmp_path)).probe()


def test_a_linux_may_be_asked_more(tmp_path: Path) -> None:
    Guest(GuestAgent(Asked(LINUX)), Store(tmp_path)).check()
    with pytest.raises(CommandsBlocked, match="guest-get-osinfo"):
        Guest(GuestAgent(Asked(LINUX, "guest-get-osinfo")), Store(tmp_path)).check()


# --------------------------------------------------------------------------------------------------- one guest's worker


@dataclass
class Scene:
    """What a worker sees of the cluster and of its guest, and what it does: cluster and session in one."""

    seen: Observation
    excluded_by: Excluded | None = None
    unsupported: Unsupported | None = None
    present: MemoryGuest | None = None
    known: list[Any] = field(default_factory=list)  # the pairings
    stuck: bool = False
    node: str = "node1"
    figures_wait: timedelta = timedelta(seconds=30)
    looks: int = 0
    done: list[Step] = field(default_factory=list)
    machine: Any = field(default_factory=machine)

    def is_for(self, _machine: object) -> bool:
        return True

    async def look(self) -> Observation:
        self.looks += 1
        if self.unsupported:
            raise self.unsupported
        return self.seen

    async def do(self, step: Step, _release: str) -> None:
        if self.stuck:
            raise ConfigureFailed("Device or resource busy")
        self.done.append(step)
        if step == Unload():
            self.seen = observation()

    def close(self) -> None:
        """Nothing is open."""

    def excluded(self, _machine: object) -> Excluded | None:
        return self.excluded_by

    def guest(self, _key: object) -> MemoryGuest | None:
        return self.present

    def pairings(self, _key: object) -> list[Any]:
        return self.known

    async def paired(self, _key: object) -> frozenset[str]:
        return frozenset(one.metadata.uid for one in self.known)

    async def write_end(self, *_: Any) -> None:
        """Told to nobody."""

    async def claim(self, guest: MemoryGuest) -> MemoryGuest:
        return guest

    async def write_guest(self, guest: MemoryGuest) -> None:
        self.present = guest

    async def event(self, *_: Any, **__: Any) -> None:
        """Told to nobody."""

    def round(self, worker: Worker) -> float:
        """One round; how long it is until the next."""
        return asyncio.run(worker._round())  # noqa: SLF001 - `run` goes on for ever

    def worker(self, store: Path) -> Worker:
        tools: Any = Tools
        return Worker(
            self.machine,
            tools(_Known(self), Store(store), Figures(), asyncio.Semaphore(1), lambda _: self),
        )

    def ready(self) -> tuple[str, str]:
        assert self.present is not None
        assert self.present.ready is not None
        return self.present.ready.status, self.present.ready.reason


class _Known:
    """The scene as the cluster; its machine is asked for by name there."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene, name)

    def machine(self, _key: object) -> Any:
        return self._scene.machine


PEERS = {want(Side.BORROWERS, made()).key: Peer({"enabled": "1", "state": "Connected"}, {"lent_pages": 9})}
LENDING = observation(loaded=True, peers=PEERS)


def test_a_guest_that_is_excluded_gets_no_command(tmp_path: Path) -> None:
    scene = Scene(observation(), Excluded("no"))
    assert scene.round(scene.worker(tmp_path)) == LEFT_ALONE_EVERY
    assert (scene.looks, scene.done, scene.ready()) == (0, [], ("False", "Excluded"))


def test_what_is_in_a_guest_that_is_excluded_comes_out(tmp_path: Path) -> None:
    """Also when another agent has brought it there; afterwards no command is given any more."""
    scene = Scene(LENDING)
    scene.round(scene.worker(tmp_path))
    scene.excluded_by, scene.seen = Excluded("no"), LENDING
    worker = scene.worker(tmp_path)
    assert scene.present is not None
    scene.present = scene.present.model_copy(
        update={"status": scene.present.status.model_copy(update={"identity": f"x25519:{'1' * 64}"})}
    )
    scene.done.clear()
    scene.round(worker)
    assert scene.done == [Remove(tuple(PEERS)), Unload()]
    assert (scene.present.status.identity, scene.ready()) == (None, ("False", "Excluded"))
    looks = scene.looks
    scene.round(worker)
    assert scene.looks == looks


def test_a_borrower_that_does_not_go_is_named_by_no_pairing(tmp_path: Path) -> None:
    """While there is the pairing that is well; when it has gone and the directory has not, the guest says so."""
    scene = Scene(LENDING, stuck=True, known=[made()])
    worker = scene.worker(tmp_path)
    for status in ("True", "False"):
        scene.round(worker)
        assert scene.present is not None
        found = find(scene.present.status.conditions, "LendingPaired")
        assert found is not None
        assert found.status == status
        scene.known = []


def test_a_guest_of_another_system_is_asked_no_more(tmp_path: Path) -> None:
    scene = Scene(observation(boot_id=BOOT, release=RELEASE), unsupported=Unsupported("Windows"))
    assert scene.round(scene.worker(tmp_path)) == LEFT_ALONE_EVERY
    assert (scene.looks, scene.done, scene.ready()) == (1, [], ("False", "SystemUnsupported"))


# ----------------------------------------------------------------------------------------- the agent and its API server


class Trap:
    """What stands in for a guest's libvirt: it answers nobody, and knows who came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.visits = 0
        self._listening = socket.socket(socket.AF_UNIX)
        (folder / "run/libvirt").mkdir(parents=True)
        self._listening.bind(str(folder / "run/libvirt/libvirt-sock"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def start(self, *_: Any) -> None:
        """There is no guest."""

    def close(self) -> None:
        """Nobody can come any more."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                self._listening.accept()[0].close()
            except OSError:
                return
            self.visits += 1


@pytest.fixture
def trap() -> Iterator[Trap]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        one = Trap(Path(folder))
        yield one
        one.close()


def labelled(server: Server, kind: str, name: str, value: str, namespace: str = "default") -> None:
    server.kubectl("label", "--overwrite", "-n", namespace, kind, name, f"{LABEL}{value}")


def test_no_guest_is_touched_until_its_owners_agree(
    cluster: Server, namespace: str, trap: Trap, tmp_path: Path
) -> None:
    """Neither one with the label nor one whose namespace has it; both say so, and each can be let in later."""
    labelled(cluster, "namespace", namespace, "=true")
    with AgentProcess(cluster, "shy-node", tmp_path) as agent:
        one = Machine(cluster, trap, agent, namespace, "one")
        one.start(**{LABEL: "yes"})
        eventually(lambda: one.condition("Ready")[:2] == ("False", "Excluded"))
        assert "namespace" in one.condition("Ready")[2]
        labelled(cluster, "namespace", namespace, "-")
        eventually(lambda: "virtual machine" in one.condition("Ready")[2])
        assert trap.visits == 0
        labelled(cluster, "vmi", "one", "=false", namespace)
        eventually(lambda: trap.visits > 0)
        one.delete()


def test_elsewhere_than_in_its_namespaces_it_does_not_look(
    cluster: Server, namespace: str, trap: Trap, tmp_path: Path
) -> None:
    """Of two machines only the one in a namespace that is served has a MemoryGuest."""
    served = f"{namespace}-served"
    cluster.kubectl("create", "namespace", served)
    with AgentProcess(cluster, "choosy-node", tmp_path, f"--namespaces={served}") as agent:
        other = Machine(cluster, trap, agent, namespace, "other")
        other.start(**{LABEL: "false"})
        mine = Machine(cluster, trap, agent, served, "mine")
        mine.start(**{LABEL: "true"})
        eventually(lambda: mine.condition("Ready")[1] == "Excluded")
        assert cluster.get("memoryguests", "-n", namespace)["items"] == []
        assert trap.visits == 0
        for one in (mine, other):
            one.delete()
