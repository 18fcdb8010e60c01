"""What the agent's script does so that programs have memory (see `programs`): the module, its size, and whose it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import ProgramsBench

from tidepool_agent.applications import CLOSED, Give, LoadApp, Offer, UnloadApp
from tidepool_agent.appmem import AppMemory
from tidepool_agent.errors import ApplicationsRefused, ModuleUnavailable, UnloadFailed
from tidepool_agent.plan import Source

MIB = 1 << 20
REDIS = Offer(64 * MIB, "0660", "redis")
LOAD = LoadApp(Source.STORE, REDIS)
RULE = "udev/rules.d/90-tidepool.rules"


@pytest.fixture
def bench(tmp_path: Path) -> ProgramsBench:
    return ProgramsBench(tmp_path)


def there(offer: Offer, **fields: object) -> AppMemory:
    return AppMemory(offer.size_bytes, offer.mode, offer.group, stats={"bytes": 8192}, **fields)  # type: ignore[arg-type]


def refused(bench: ProgramsBench, step: LoadApp | Give) -> tuple[str, str]:
    """The reason and the message with which a step is refused."""
    with pytest.raises(ApplicationsRefused) as caught:
        bench.do(step)
    return caught.value.reason, str(caught.value)


@pytest.mark.parametrize(("source", "inserted"), [(Source.STORE, "of the store"), (Source.INSTALLED, "installed\n")])
def test_programs_of_a_group_get_the_device(bench: ProgramsBench, source: Source, inserted: str) -> None:
    """With the size from the beginning; what the agent has delivered does not stay."""
    assert bench.look() is None
    assert bench.do(LoadApp(source, REDIS)) == there(REDIS)
    assert (bench.device.stat().st_mode & 0o777, bench.device.stat().st_gid) == (0o660, 107)
    assert bench.said("inserted") == inserted
    assert not (bench.folder / "run/tidepool-app.ko").exists()


def test_size_mode_and_group_change_while_it_is_used(bench: ProgramsBench) -> None:
    bench.do(LOAD)
    bench.play("app/refcnt", "3\n")
    for offer in (Offer(MIB, "0660", "redis"), Offer(MIB, "0640", "redis"), Offer(MIB, "0640", "valkey"), CLOSED):
        assert bench.do(Give(offer)) == there(offer, opened=3)
        assert bench.do(Give(offer)) == there(offer, opened=3)
    assert (bench.device.stat().st_mode & 0o777, bench.device.stat().st_gid) == (0o600, 0)


def test_udev_gives_the_device_the_same_whenever_it_appears(bench: ProgramsBench) -> None:
    """Where there is udev; it is told when that changes, and has nothing of it when the module has gone."""
    bench.do(LOAD)
    assert not (bench.folder / RULE).exists()
    bench.do(UnloadApp())
    (bench.folder / "udev").mkdir()
    bench.do(LOAD)
    assert bench.said(RULE) == 'KERNEL=="tidepool", SUBSYSTEM=="misc", MODE="0660", GROUP="redis"\n'
    bench.do(Give(REDIS), Give(Offer(MIB, "0640", "valkey")))
    assert bench.said(RULE) == 'KERNEL=="tidepool", SUBSYSTEM=="misc", MODE="0640", GROUP="valkey"\n'
    assert bench.said("udevadm").splitlines().count("control --reload") == 2
    bench.do(UnloadApp())
    assert not (bench.folder / RULE).exists()


def test_what_others_change_is_seen_and_put_right(bench: ProgramsBench) -> None:
    """Mode and group of the file, the number of the group, the size."""
    bench.do(LOAD)
    for change in (
        lambda: bench.device.chmod(0o666),
        lambda: os.chown(bench.device, 0, 108),
        lambda: bench.play("group", "root:x:0:\nredis:x:1107:\nother:x:107:\n"),
        lambda: bench.play("app/parameters/size_bytes", "5\n"),
    ):
        change()
        assert bench.look() != there(REDIS)
        assert bench.do(Give(REDIS)) == there(REDIS)


def test_a_group_that_the_guest_has_not_gets_nothing(bench: ProgramsBench) -> None:
    """The module is not even loaded; a device that is there stays whose it is."""
    unknown = Offer(MIB, "0660", "web")
    message = (
        "the guest has no group web: make it (groupadd --system web), or name another one in "
        "spec.borrowers.applications.group"
    )
    assert refused(bench, LoadApp(Source.STORE, unknown)) == ("NoGroup", message)
    assert bench.look() is None
    bench.do(LOAD)
    assert refused(bench, Give(unknown)) == ("NoGroup", message)
    assert bench.look() == there(REDIS)
    bench.play("directory", "web:*:70000:\n")
    assert bench.do(Give(unknown)) == there(unknown)
    assert bench.device.stat().st_gid == 70000


def test_nothing_that_is_said_is_run(bench: ProgramsBench) -> None:
    """Whatever a name is: the agent's models let none through, and the script takes it for a name all the same."""
    bench.do(LOAD)
    for name in ('x"; touch "$PLAY/run-it"; "', "$(touch $PLAY/run-it)", "`touch $PLAY/run-it`", "-h", "*"):
        assert refused(bench, Give(Offer(MIB, "0660", name)))[0] == "NoGroup"
    assert not (bench.folder / "run-it").exists()
    assert bench.look() == there(REDIS)


def test_a_module_that_is_refused_or_broken_is_not_there(bench: ProgramsBench) -> None:
    bench.play("refuse-insmod")
    reason, message = refused(bench, LOAD)
    assert (reason, message.partition(";")[0]) == (
        "ApplicationsFailed",
        "load_app failed in the guest: could not insert module: Invalid module format",
    )
    assert bench.look() is None
    (bench.folder / "refuse-insmod").unlink()
    bench.build(b"altered", "0" * 64)
    with pytest.raises(ModuleUnavailable, match="does not match its checksum"):
        bench.do(LOAD)
    (bench.store / "tidepool-app.ko").unlink()
    with pytest.raises(ModuleUnavailable, match=r"no tidepool-app\.ko for kernel 6\.1\.0"):
        bench.do(LOAD)


def test_another_device_of_that_name_is_nobodys_to_give(bench: ProgramsBench) -> None:
    os.mknod(bench.device, 0o600 | 0o020000, os.makedev(1, 3))
    assert refused(bench, LOAD)[0] == "NoDeviceFile"
    assert (bench.device.stat().st_mode & 0o777, bench.device.stat().st_gid) == (0o600, 0)


def test_the_module_stays_while_a_program_has_the_device_open(bench: ProgramsBench) -> None:
    """Which one that is can be told; then it goes, with all that the agent has written."""
    bench.do(LOAD)
    bench.play("app/refcnt", "1\n")
    with pytest.raises(UnloadFailed, match="Module tidepool_app is in use"):
        bench.do(UnloadApp())
    assert bench.holders() == ()
    name = Path("/proc/self/comm")
    former = name.read_text()
    with Path("/dev/zero").open("rb"), Path("/dev/zero").open("rb"):
        name.write_text("red\x1b[1mis;$(id)")
        assert bench.holders() == (f"process {os.getpid()} (red\N{REPLACEMENT CHARACTER}[1mis;$(id))",)
        name.write_text(former)
    bench.play("app/refcnt", "0\n")
    assert bench.do(UnloadApp()) is None
    assert not (bench.folder / "run/group").exists()
