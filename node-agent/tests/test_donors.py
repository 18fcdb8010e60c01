"""The loop that gathers memory from guests: what it asks, tells and says, also when it ends in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from tidepool_agent import balloon, balloonreport, donors
from tidepool_agent.balloon import Figures, Note
from tidepool_agent.balloondevice import BalloonDevice, NoBalloon, Pinned, Sight, described, figures
from tidepool_agent.balloonreport import NOTHING
from tidepool_agent.donors import Donor, Donors, Tools
from tidepool_agent.errors import Excluded, GuestError, Unreachable
from tidepool_agent.metrics import Figures as Metrics
from tidepool_agent.provider import Machine
from tidepool_agent.session import Session
from tidepool_agent.store import Store
from tidepool_api import GuestBalloon, GuestKey, GuestStatus, MemoryGuest, Provider, condition, find, names
from tidepool_api.units import GIB, KIB, MIB

KEY = GuestKey("shop", "d")
MACHINE = Machine(Provider.KUBEVIRT, *KEY, uid="uid-d", domain="shop_d", place="here")

# ---------------------------------------------------------------------------------------- libvirt with its test driver

HOST = """<node>
<domain type='test'>
  <name>shop_d</name><uuid>00000000-0000-4000-8000-000000000001</uuid>
  <memory unit='MiB'>512</memory><currentMemory unit='MiB'>512</currentMemory>
  <os><type>hvm</type></os>
  <devices>{balloon}</devices>
</domain>
</node>
"""
BALLOON = "<memballoon model='virtio'><stats period='10'/></memballoon>"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BalloonDevice:
    """The balloon of a domain of libvirt's own test driver, which remembers what it is told, and has no keepalive."""
    monkeypatch.setattr(libvirt.virConnect, "setKeepAlive", lambda *_: 0)
    file = tmp_path / "host.xml"
    file.write_text(HOST.format(balloon=BALLOON))
    return BalloonDevice(lambda: f"test://{file}", "shop_d")


def test_what_is_told_is_noted_in_the_domain_and_forgotten_with_it(device: BalloonDevice) -> None:
    """By libvirt's own calls: figures, size, note and how often the driver is asked."""
    seen = device.look()
    assert (seen.note, seen.period, seen.barred) == (None, 10, None)
    assert seen.figures.full == 512 * MIB
    assert abs(seen.figures.at - time.time()) < 5
    device.tell(Note(384 * MIB, period=10))
    device.ask_every(2)
    seen = device.look()
    assert (seen.note, seen.period) == (Note(384 * MIB, period=10), 2)
    device.note(Note(384 * MIB, reached=True, period=10))
    assert device.look().note == Note(384 * MIB, reached=True, period=10)
    device.forget()
    assert device.look().note is None
    device.close()


def test_who_looks_at_a_guest_learns_that_something_was_gathered_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its domain, though the guest itself does not answer, as one without a guest agent never does."""
    monkeypatch.setattr(libvirt.virConnect, "setKeepAlive", lambda *_: 0)
    (tmp_path / "host.xml").write_text(HOST.format(balloon=BALLOON))
    uri = f"test://{tmp_path}/host.xml"
    device, told = BalloonDevice(lambda: uri, "shop_d"), list[GuestKey]()

    async def looks() -> None:
        way = Session(
            MACHINE, endpoint=lambda _: uri, store=Store(tmp_path), slots=asyncio.Semaphore(1), proc=tmp_path,
            gathered=told.append,
        )  # fmt: skip
        way._domain = device  # noqa: SLF001 - each connection of this driver has a host of its own
        with pytest.raises(GuestError):
            await way.look()

    asyncio.run(looks())
    assert told == []
    device.tell(Note(384 * MIB))
    asyncio.run(looks())
    assert told == [KEY]


def test_figures_are_libvirts_in_bytes() -> None:
    """`usable` is the guest's MemAvailable; a driver that has it not, as Windows', says what is unused."""
    stats = {"actual": 1000, "unused": 10, "usable": 40, "rss": 600, "swap_in": 3, "major_fault": 5, "last_update": 77}
    found = figures(stats, 2000 * KIB, 1000 * KIB)
    assert (found.full, found.actual, found.available, found.resident) == tuple(n * KIB for n in (2000, 1000, 40, 600))
    assert (found.swapped_in, found.major_faults, found.updated) == (3 * KIB, 5, 77)
    assert found.unbacked == 400 * KIB
    assert figures({"actual": 20, "unused": 10}, 20 * KIB, KIB).available == 10 * KIB
    silent = figures({"rss": 5}, 2 * KIB, KIB)
    assert (silent.actual, silent.available, silent.updated) == (KIB, None, 0)


@pytest.mark.parametrize("stats", [{"actual": (1 << 54) - 5, "usable": 9}, {"actual": 8, "usable": 1 << 54}])
def test_no_guest_has_more_memory_than_it_was_given(stats: dict[str, int]) -> None:
    """Its driver writes both figures: how large the balloon is, which QEMU subtracts, and what is available."""
    found = figures(stats, 8 * KIB, 8 * KIB)
    assert (found.actual, found.available) == (8 * KIB, 8 * KIB)


@pytest.mark.parametrize(
    ("xml", "error"),
    [
        ("<devices><memballoon model='none'/></devices>", NoBalloon),
        ("<devices/>", NoBalloon),
        ("<memoryBacking><hugepages/></memoryBacking><devices><memballoon model='virtio'/></devices>", Pinned),
        ("<memoryBacking><locked/></memoryBacking><devices><memballoon model='virtio'/></devices>", Pinned),
        ("<devices><memballoon model='virtio'/><hostdev type='pci'/></devices>", Pinned),
        ("<devices><memballoon model='virtio'/><memory model='dimm'/></devices>", Pinned),
        ("<devices><memballoon model='virtio'/><hostdev type='usb'/></devices>", type(None)),
    ],
)
def test_memory_that_the_node_would_not_get_is_not_taken(xml: str, error: type) -> None:
    assert isinstance(described(f"<domain>{xml}</domain>")[2], error)


@pytest.mark.parametrize(("said", "on"), [("", False), ("autodeflate='off'", False), ("autodeflate='on'", True)])
def test_a_domain_says_whether_its_guest_may_help_itself(said: str, *, on: bool) -> None:
    assert described(f"<domain><devices><memballoon model='virtio' {said}/></devices></domain>").deflates == on


@pytest.mark.parametrize("text", ["", "target='x'", "target='-5'", "target='0'", "target='99999999999999999999'"])
def test_a_note_that_is_none_is_not_believed(text: str) -> None:
    """Who may write to the domain may write it there; it says no more than where the balloon should be."""
    xml = f"<domain><metadata><t:balloon xmlns:t='https://tidepool.dev/libvirt/balloon/1.0' {text}/></metadata>"
    assert described(f"{xml}<devices><memballoon model='virtio'/></devices></domain>")[0] is None


# ------------------------------------------------------------------------------------------------- a guest and an agent


@dataclass
class Balloon:
    """The balloon of a guest with 8Gi, of which it uses 2, and that has touched all; each look is two seconds later."""

    used: int = 2 * GIB
    full: int = 8 * GIB
    actual: int = 8 * GIB
    written: Note | None = None
    period: int = 10
    at: float = 1000.0
    swapped: int = 0
    faults: int = 50
    moves: bool = True
    barred: GuestError | None = None
    deflates: bool = False
    error: Exception | None = None
    told: list[int] = field(default_factory=list)
    looks: int = 0

    def look(self) -> Sight:
        self.looks, self.at = self.looks + 1, self.at + 2
        if self.error:
            raise self.error
        free = max(0, self.actual - self.used)
        seen = Figures(self.at, self.at, self.full, self.actual, free, self.actual, self.swapped, self.faults)
        return Sight(seen, self.written, self.period, self.barred, self.deflates)

    def tell(self, note: Note) -> None:
        self.written = note
        self.told.append(note.target)
        if self.moves:
            self.actual = note.target

    def note(self, note: Note) -> None:
        self.written = note

    def forget(self) -> None:
        self.written = None

    def ask_every(self, seconds: int) -> None:
        self.period = seconds

    def close(self) -> None:
        pass


class Node:
    """An API server and a node lender as the loop sees them, and an agent that may end at any time."""

    node = "n1"

    def __init__(self, device: Balloon, *, mark: str | None = "1Gi") -> None:
        self.device, self.metrics = device, Metrics()
        self.body = MemoryGuest.parse(
            {
                "metadata": {"name": KEY.name, "namespace": KEY.namespace, "uid": "1"},
                "spec": {"provider": "KubeVirt", "vm": {"name": "d", "uid": "uid-d"}, "nodeName": "n1"},
            }
        ).to_dict()
        self.mark(mark)
        self.pairings_of: list[Any] = []
        self.lends, self.is_excluded, self.migrating = True, False, False
        self.is_deleted = False
        self.connections = 0
        self.start()

    def start(self) -> None:
        """An agent that knows nothing but what it is told and finds."""
        cluster: Any = self
        self.donor = Donor(MACHINE, Tools(cluster, self.metrics, self.connect, lambda: self.lends, self.write))

    def mark(self, reserve: str | None) -> None:
        """What the operator has written."""
        self.body["metadata"]["annotations"] = {names.BALLOON_ANNOTATION: reserve} if reserve else {}

    def connect(self, _machine: Machine) -> Any:
        self.connections += 1
        return self.device

    def write(self, key: GuestKey) -> None:
        """What the guest's worker does when it is woken: it writes what there is to say."""
        assert key == KEY
        before = GuestStatus.model_validate(self.body.get("status", {}))
        self.body["status"] = balloonreport.shown(before, self.donor.standing, before).to_dict()

    def guests(self) -> dict[GuestKey, Any]:
        return {} if self.is_deleted else {KEY: self.body}

    def guest(self, _key: GuestKey) -> MemoryGuest | None:
        return None if self.is_deleted else MemoryGuest.parse(self.body)

    def machine(self, _key: GuestKey) -> Machine:
        return replace(MACHINE, migrating=self.migrating)

    def excluded(self, _machine: Machine) -> Excluded | None:
        return Excluded("the virtual machine has the label tidepool.dev/exclude") if self.is_excluded else None

    def pairings(self, _key: GuestKey) -> list[Any]:
        return self.pairings_of

    def look(self, times: int = 1) -> None:
        async def scenario() -> None:
            for _ in range(times):
                await self.donor._safe_look()  # noqa: SLF001 - a round without the wait after it

        asyncio.run(scenario())
        self.write(KEY)

    @property
    def status(self) -> GuestStatus:
        return GuestStatus.model_validate(self.body.get("status", {}))

    @property
    def said(self) -> tuple[str, str]:
        found = find(self.status.conditions, "BalloonReady")
        return (found.status, found.reason) if found else ("", "")

    @property
    def message(self) -> str:
        found = find(self.status.conditions, "BalloonReady")
        return found.message if found else ""


@pytest.fixture
def node() -> Node:
    """A node with a guest whose memory has been gathered, down to its reserve and a little more."""
    one = Node(Balloon())
    one.look(400)
    assert one.device.actual == 3 * GIB + 128 * MIB
    return one


def test_memory_is_gathered_and_reported(node: Node) -> None:
    """In the status, in the metrics, and in the domain: the driver is asked more often meanwhile."""
    assert node.said == ("True", "Gathering")
    assert "beyond 1Gi is its node's until it needs it" in node.message
    held = node.status.balloon
    assert held is not None
    assert (held.full_bytes, held.gathered_bytes, held.reserve_bytes) == (8 * GIB, 5 * GIB - 128 * MIB, GIB)
    assert held.gathered == "4992Mi"
    assert node.device.written == Note(3 * GIB + 128 * MIB, reached=True, period=10)
    assert node.device.period == 2
    samples = [one for family in node.metrics.collect() for one in family.samples if "gathered" in one.name]
    assert [(one.labels["guest"], one.value) for one in samples] == [("d", 5 * GIB - 128 * MIB)]


def test_a_look_that_fails_is_counted(node: Node) -> None:
    """A guest that does not answer is nothing to count; what nobody has thought of is."""
    errors: list[Exception] = [Unreachable("it does not answer"), RuntimeError("nobody has thought of it")]
    for error in errors:
        node.device.error = error
        node.look()
    samples = [one for family in node.metrics.collect() for one in family.samples if "errors" in one.name]
    assert [(one.labels["agent"], one.labels["namespace"], one.value) for one in samples] == [("n1", "shop", 1)]


def test_nothing_is_taken_before_it_is_written_that_it_will_be() -> None:
    """An agent that ends right after the first step leaves a guest that the next one finds."""
    node = Node(Balloon())
    node.write = lambda _: None  # type: ignore[method-assign]
    node.start()
    node.look(400)
    assert node.device.told == []


@pytest.mark.parametrize("what", ["unmarked", "lends", "excluded", "no node lender"])
def test_all_is_given_back(node: Node, what: str) -> None:
    """When no pool asks any more, the guest is to lend, its owner does not want it, or there is nobody to lend it."""
    if what == "unmarked":
        node.mark(None)
    node.pairings_of = ["a pairing"] if what == "lends" else []
    node.is_excluded = what == "excluded"
    node.lends = what != "no node lender"
    assert node.donor.keeps()
    node.look()
    assert node.device.actual == 8 * GIB
    assert node.said == ("False", "GivingBack")
    node.look()
    assert not node.donor.keeps()
    assert node.donor.standing == NOTHING
    assert node.status.balloon is None
    assert node.said == ("", "")
    assert (node.device.written, node.device.period) == (None, 10)
    looks = node.device.told
    node.look(100)
    assert node.device.told == looks


def test_another_agent_goes_on(node: Node) -> None:
    """One that has ended in the middle is no reason to take anything twice, or to leave a guest with less for ever."""
    told = list(node.device.told)
    node.start()
    assert node.donor.standing is None
    node.look(100)
    assert node.device.told == told
    assert node.said == ("True", "Gathering")
    node.device.used += 700 * MIB
    node.start()
    node.look()
    assert node.device.actual == 8 * GIB
    node.look(200)
    node.mark(None)
    node.start()
    node.look(2)
    assert node.device.actual == 8 * GIB
    assert node.status.balloon is None


def test_an_agent_that_ended_between_note_and_order(node: Node) -> None:
    """What was noted and never told, or refused when it was, is told by the next."""
    node.device.written = Note(8 * GIB, period=10)
    node.start()
    node.mark(None)
    node.look(3)
    assert node.device.actual == 8 * GIB
    assert node.device.written is None


def test_a_guest_that_came_without_its_note_is_not_left_with_less(node: Node) -> None:
    node.device.written = None
    node.start()
    node.look(2)
    assert node.device.written == Note(3 * GIB + 128 * MIB, reached=True, period=2)
    node.mark(None)
    node.look(2)
    assert node.device.actual == 8 * GIB


def test_a_balloon_of_somebody_else_is_left_alone(node: Node) -> None:
    """KubeVirt, wasp or a person with virsh: what they have told it stays, before and after ours."""
    other = Node(Balloon(actual=6 * GIB))
    other.look(100)
    assert (other.device.told, other.said) == ([], ("False", "SetByAnother"))
    assert other.status.balloon is not None
    assert other.status.balloon.gathered_bytes == 0
    other.mark(None)
    other.look(2)
    assert (other.device.actual, other.status.balloon) == (6 * GIB, None)

    told = list(node.device.told)
    node.device.actual = 4 * GIB
    node.look(60)
    assert node.device.told == told
    assert node.said == ("False", "SetByAnother")
    assert "virsh setmem" in node.message
    assert node.status.balloon is not None
    assert node.status.balloon.gathered_bytes == 0
    node.mark(None)
    node.look(2)
    assert (node.device.actual, node.device.written, node.device.period) == (4 * GIB, None, 10)
    assert node.status.balloon is None


@pytest.mark.parametrize("is_new", [False, True], ids=["the same agent", "one that comes later"])
def test_a_guest_that_helps_itself_gets_the_rest(node: Node, *, is_new: bool) -> None:
    """With autodeflate: it was about to kill programs. Nobody else has changed its balloon, and it is gathered anew."""
    node.device.deflates = True
    node.device.actual += GIB
    if is_new:
        node.start()
    node.look()
    assert (node.device.actual, node.said) == (8 * GIB, ("True", "GivenBack"))
    node.look(400)
    assert (node.device.actual, node.said) == (3 * GIB + 128 * MIB, ("True", "Gathering"))


@pytest.mark.parametrize("deflates", [False, True])
def test_a_guest_that_cannot_help_itself_says_so(*, deflates: bool) -> None:
    node = Node(Balloon(deflates=deflates))
    node.look(400)
    assert node.said == ("True", "Gathering")
    assert ("no autodeflate, so while no agent runs it gets nothing back" in node.message) == (not deflates)


def test_a_balloon_that_does_not_move_is_said_and_left_alone() -> None:
    """What it was told is taken back, so that a driver that comes later takes nothing; a reboot tries anew."""
    node = Node(Balloon(moves=False))
    node.look(200)
    assert node.said == ("False", "NotMoving")
    assert "needs a driver" in node.message
    first, *rest = node.device.told
    assert (first, rest) == (8 * GIB - 256 * MIB, [8 * GIB])
    node.device.moves, node.device.faults = True, 10
    node.look(400)
    assert node.said == ("True", "Gathering")


def test_a_guest_without_statistics_is_left_alone() -> None:
    node = Node(Balloon())
    look = node.device.look
    node.device.look = lambda: replace(seen := look(), figures=replace(seen.figures, available=None, updated=0))  # type: ignore[method-assign]
    node.look(3)
    assert node.said == ("Unknown", "Watching")
    node.look(100)
    assert (node.device.told, node.said) == ([], ("False", "NoStatistics"))


def test_memory_that_is_pinned_is_left_alone_and_given_back(node: Node) -> None:
    """A guest with huge pages is not touched; one that gets a device of the host has its memory again."""
    other = Node(Balloon(barred=Pinned("its memory is locked")))
    other.look(100)
    assert (other.device.told, other.said, other.device.written) == ([], ("False", "MemoryPinned"), None)
    node.device.barred = Pinned("a device of the host is passed through to it")
    node.look(2)
    assert node.device.actual == 8 * GIB
    assert node.said == ("False", "MemoryPinned")
    node.mark(None)
    node.look(2)
    assert node.status.balloon is None


def test_a_guest_that_reboots_has_all_of_its_memory(node: Node) -> None:
    """Its balloon is empty, then fills to what it was told: nobody else has done that."""
    node.device.actual, node.device.faults = 8 * GIB, 10
    node.look()
    assert node.device.told[-1] == 8 * GIB
    node.look(10)
    assert node.said == ("True", "GivenBack") or node.said[1] == "Watching"
    node.look(400)
    assert node.device.actual == 3 * GIB + 128 * MIB


def test_a_libvirt_that_does_not_answer_changes_nothing(node: Node) -> None:
    """What was known is said, with why it is not known now; then it goes on."""
    told = list(node.device.told)
    node.device.error = Unreachable("the virtual machine's libvirt does not answer", "HypervisorUnreachable")
    node.look(3)
    assert node.said == ("Unknown", "HypervisorUnreachable")
    assert node.status.balloon is not None
    assert node.status.balloon.gathered_bytes == 5 * GIB - 128 * MIB
    node.device.error = None
    node.look(2)
    assert (node.said, node.device.told) == (("True", "Gathering"), told)


def test_an_agent_that_starts_while_libvirt_is_away_forgets_nobody(node: Node) -> None:
    """That the balloon holds something stays written, and is given back when libvirt answers, though no pool asks."""
    node.device.error = Unreachable("the virtual machine's libvirt does not answer", "HypervisorUnreachable")
    node.mark(None)
    node.start()
    node.look(3)
    assert node.status.balloon is not None
    assert node.status.balloon.gathered_bytes == 5 * GIB - 128 * MIB
    assert node.donor.keeps()
    node.device.error = None
    node.look(2)
    assert (node.device.actual, node.status.balloon) == (8 * GIB, None)


def test_a_domain_that_was_left_as_it_was_is_not_touched_again(node: Node) -> None:
    """Also while the API server still has what was said of it before."""
    node.mark(None)
    node.write = lambda _: None  # type: ignore[method-assign]
    node.start()
    node.look(3)
    assert node.device.written is None
    assert node.status.balloon is not None
    node.device.note = lambda _: pytest.fail("a note of nothing")  # type: ignore[method-assign]
    node.look(5)
    assert node.device.period == 10


def test_a_guest_that_migrates_has_its_memory_before_it_moves(node: Node) -> None:
    """Where it comes to nobody may run. It is left as it was; a migration that fails is no reason to gather no more."""
    node.migrating = True
    node.look()
    assert (node.device.actual, node.said) == (8 * GIB, ("False", "GivingBack"))
    assert "another node" in node.message
    node.look(100)
    assert (node.device.actual, node.device.written) == (8 * GIB, None)
    node.migrating = False
    node.look(400)
    assert node.device.actual == 3 * GIB + 128 * MIB


@pytest.mark.parametrize("looks", [0, 3])
def test_a_guest_waits_for_its_own_memory_before_it_lends_but_not_for_ever(
    node: Node, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """One that hangs and gives its balloon nothing back is waited for so long, and no longer.

    That begins with its pairing, however long its memory has been gathered, also before its balloon is looked at again.
    """
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=time.monotonic() + 3600)
    monkeypatch.setattr(donors, "time", clock)
    node.device.moves = False
    node.pairings_of = ["a pairing"]
    node.look(looks)
    assert node.donor.keeps()
    clock.now += donors.EMPTY_SECONDS - 1
    assert node.donor.keeps()
    clock.now += 2
    assert not node.donor.keeps()


# ----------------------------------------------------------------------------------------------------- whom to look at


@contextlib.contextmanager
def quick() -> Iterator[None]:
    before, balloon.EVERY_SECONDS = balloon.EVERY_SECONDS, 0.01
    try:
        yield
    finally:
        balloon.EVERY_SECONDS = before


def followed(node: Node, steps: list[Callable[[Donors], object]]) -> None:
    """Runs the loop over all donors; each step is taken after a while, as soon as what it asserts holds."""
    cluster: Any = node

    async def take(step: Callable[[Donors], object], every: Donors) -> None:
        for _ in range(100):
            await asyncio.sleep(0.2)
            with contextlib.suppress(AssertionError):
                step(every)
                return
        step(every)

    async def scenario() -> None:
        every = Donors(Tools(cluster, node.metrics, node.connect, lambda: node.lends, lambda _: None))
        task = asyncio.create_task(every.run())
        for step in steps:
            await take(step, every)
        task.cancel()
        await asyncio.wait({task})

    with quick():
        asyncio.run(scenario())


def test_nobody_is_asked_anything_where_no_pool_names_a_balloon() -> None:
    """Not even a connection is made."""
    node = Node(Balloon(), mark=None)
    node.connections = 0
    followed(node, [lambda every: every.gathered(), lambda every: every.gathered()])
    assert (node.connections, node.device.looks) == (0, 0)


def test_who_is_marked_is_looked_at_until_there_is_nothing_left() -> None:
    """And one that has a balloon in its status though nobody marks it: an agent before this one was not done."""
    node = Node(Balloon(actual=6 * GIB, written=Note(6 * GIB, reached=True, period=10)), mark=None)
    held = GuestBalloon(full_bytes=8 * GIB, gathered_bytes=2 * GIB, reserve_bytes=GIB)
    said = condition("BalloonReady", True, "Gathering")
    node.body["status"] = GuestStatus(balloon=held, conditions=(said,)).to_dict()
    node.connections = 0

    def written(every: Donors) -> None:
        assert node.device.actual == 8 * GIB
        assert every.standing(KEY) == NOTHING
        assert every.gathered() == 0
        node.body["status"] = {}

    def gone(every: Donors) -> None:
        assert every.standing(KEY) is None
        assert not every.keeps(KEY)

    followed(node, [written, gone])
    assert node.connections == 1


def test_a_guest_whose_object_is_deleted_has_its_memory_again(node: Node) -> None:
    """Nothing in the cluster says any more that its balloon holds something; whoever looks after it knows."""

    def delete(every: Donors) -> None:
        assert every.gathered() > 0
        node.is_deleted = True

    def given_back(every: Donors) -> None:
        assert (node.device.actual, node.device.written, node.device.period) == (8 * GIB, None, 10)
        assert every.standing(KEY) is None

    followed(node, [delete, given_back])


def test_a_guest_whose_object_is_deleted_while_no_agent_runs_has_its_memory_again(node: Node) -> None:
    """The note in its domain is all that is left; it is looked at once for each time that somebody has seen that."""
    node.is_deleted = True
    looks = node.device.looks

    def found(every: Donors) -> None:
        assert node.device.looks == looks
        every.found(KEY)

    def given_back(every: Donors) -> None:
        assert (node.device.actual, node.device.written) == (8 * GIB, None)
        assert every.standing(KEY) is None
        every.found(KEY)

    def found_again(_: Donors) -> None:
        assert node.connections == 3  # that of the fixture, and one each

    followed(node, [found, given_back, found_again])
    assert node.device.told[-1] == 8 * GIB
