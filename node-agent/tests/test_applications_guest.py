"""Memory for programs in a real guest: modules and device are its kernel's, rounds a real worker's.

Each test begins and ends with a guest that has no device for programs. It is never connected to its lender.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cast import TOP
from conftest import PATIENCE, wait_for
from daemon import Daemon, end
from objects import alter
from solo import Solo, said
from tiny import Kernel

from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent
from tidepool_api import GuestApplications, GuestStatus

MIB = 1 << 20
READY = "ApplicationsReady"
REDIS = {"size": "64Mi", "mode": "0660", "group": "redis"}
GROUPS = "root:x:0:\nredis:x:107:\nvalkey:x:108:\n"


class Bench:
    """A guest, the agent that looks after it, and a second way in."""

    def __init__(self, daemon: Daemon, store: Path) -> None:
        self.store = store
        self.domain = daemon.start("default_programs")
        self.way_in = Domain(daemon.uri, "default_programs")
        self._shell = GuestAgent(self.way_in.command)
        self.wait_until_booted()
        self.agent = Solo(daemon.uri, "default_programs", store)

    def wait_until_booted(self) -> None:
        wait_for(lambda: self._shell.blocked() == [])
        self.sh(f"printf '{GROUPS}' >/etc/group")

    def sh(self, line: str) -> str:
        done = self._shell.run(["/bin/sh", "-ec", line], seconds=PATIENCE)
        assert done.code == 0, f"{line}: {done.err}"
        return done.out.strip()

    def want(self, **fields: str) -> GuestStatus:
        """What the pool gives to programs; how the guest is when that is so, or cannot be."""
        self.agent.want(applications=REDIS | fields)
        return self.agent.until(lambda status: said(status, READY)[1] != "SettingUp")

    def install(self, name: str, program: bytes) -> None:
        """A program that the guest has then."""
        self._shell.write(f"/bin/{name}", program)
        self.sh(f"chmod 0755 /bin/{name}")

    def whose(self) -> tuple[str, str]:
        """Mode and group of the device, and what its module lets programs keep."""
        size = "/sys/module/tidepool_app/parameters/size_bytes"
        return self.sh("stat -c '%a %g' /dev/tidepool"), self.sh(f"cat {size}")

    def hold(self) -> str:
        """A program that has the device open; its number."""
        self.sh("sleep 600 </dev/tidepool >/dev/null 2>&1 & echo $! >/run/holder")
        return self.sh("cat /run/holder")

    def modules(self) -> str:
        return self.sh("ls -d /sys/module/tidepool* /dev/tidepool 2>/dev/null || :")

    def close(self) -> None:
        self.agent.close()
        self.way_in.close()
        end(self.domain)


def programs(status: GuestStatus) -> GuestApplications:
    assert status.applications is not None
    return status.applications


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, kernel: Kernel, module: Path) -> Path:
    """A module store with both modules."""
    folder = tmp_path_factory.mktemp("store") / kernel.release
    folder.mkdir()
    for name in ("tidepool.ko", "tidepool-app.ko"):
        data = module.with_name(name).read_bytes()
        (folder / name).write_bytes(data)
        (folder / f"{name}.sha256").write_text(hashlib.sha256(data).hexdigest())
    return folder.parent


@pytest.fixture(scope="module")
def booted(daemon: Daemon, store: Path) -> Iterator[Bench]:
    one = Bench(daemon, store)
    yield one
    one.close()


@pytest.fixture
def bench(booted: Bench) -> Iterator[Bench]:
    yield booted
    booted.agent.leave()
    booted.agent.until(lambda _: booted.modules() == "")


def test_programs_of_a_group_get_the_device_which_changes_while_it_is_open(bench: Bench) -> None:
    status = bench.want()
    assert said(status, READY) == ("True", "Given", "/dev/tidepool has mode 0660 and group redis")
    assert bench.whose() == ("660 107", str(64 * MIB))
    holder = bench.hold()
    one = programs(bench.want(size="32Mi", mode="0640", group="valkey"))
    assert (one.size_bytes, one.mode, one.group, one.opened, one.pools) == (32 * MIB, "0640", "valkey", 1, 0)
    assert bench.whose() == ("640 108", str(32 * MIB))
    bench.sh(f"kill {holder}; chmod 0666 /dev/tidepool; chgrp 107 /dev/tidepool")
    bench.agent.round()
    assert bench.whose() == ("640 108", str(32 * MIB))


def of_pool(bench: Bench, pool: str) -> dict[str, float]:
    """What is exported of a pool that programs have named."""
    each = (one for family in bench.agent.figures.collect() for one in family.samples)
    beside = {"namespace": "default", "guest": "borrower", "value_pool": pool}
    return {one.name.removeprefix("tidepool_guest_value_pool_"): one.value for one in each if one.labels == beside}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The example in C: a word is looked for in a pool, and counted there."""
    program, c = tmp_path_factory.mktemp("words") / "words", TOP / "clients" / "c"
    sources = (c / "examples" / "words.c", c / "src" / "tidepool.c")
    subprocess.run(["gcc", "-static", "-I", c / "include", "-o", program, *sources], check=True)
    return program.read_bytes()


def test_a_pool_that_a_program_has_named_has_figures(bench: Bench, words: bytes) -> None:
    """Its gets and puts, and how much it takes; all of it is gone with the device."""
    bench.want()
    bench.install("words", words)
    bench.sh("! echo tide | words novel 2>/run/said")
    assert bench.sh("cat /run/said") == "words: tide: no lender takes pages"
    bench.agent.round()
    figures = of_pool(bench, "novel")
    assert (figures["misses_total"], figures["hits_total"], figures["puts_total"], figures["bytes"]) == (1, 0, 0, 4096)
    assert (figures["get_duration_seconds_count"], figures["put_duration_seconds_count"]) == (0, 0)
    bench.agent.want()
    bench.agent.until(lambda status: status.applications is None)
    assert of_pool(bench, "novel") == {}


def test_a_group_that_the_guest_has_not_is_named(bench: Bench) -> None:
    """Nothing is loaded for it, and borrowing goes on; when the group is there, so is the device."""
    ready, reason, message = said(bench.want(group="web"), READY)
    assert (ready, reason) == ("False", "NoGroup")
    assert message.startswith("the guest has no group web: make it (groupadd --system web), or name another one")
    assert bench.modules() == "/sys/module/tidepool"
    bench.sh("echo web:x:109: >>/etc/group")
    bench.agent.begin()
    assert said(bench.want(group="web"), READY)[1] == "Given"
    assert bench.whose()[0] == "660 109"


def test_a_program_keeps_the_device_until_it_ends(bench: Bench) -> None:
    """When the pool gives no memory any more, and when it is gone: nobody is killed, and the guest says who has it."""
    bench.want()
    holder = bench.hold()
    bench.agent.want()
    status = bench.agent.round()
    held = f"/dev/tidepool is open in the guest (process {holder} (sleep))"
    assert said(status, READY) == ("False", "StillInUse", f"{held}, and nothing more is put there: end what uses it")
    assert bench.whose() == ("600 0", "0")
    status = bench.agent.leave()
    assert said(status, READY)[1] == "StillInUse"
    assert said(status, "ModuleLoaded")[1] == "Loaded"
    assert bench.sh("ls /sys/kernel/config/tidepool/lenders") == ""
    bench.sh(f"kill {holder}")
    status = bench.agent.until(lambda status: status.module_version is None)
    assert (status.applications, bench.modules()) == (None, "")


def test_the_module_is_replaced_when_no_program_has_the_device_open(bench: Bench) -> None:
    bench.want()
    holder = bench.hold()
    loaded = bench.sh("cat /sys/module/tidepool/srcversion")
    former = alter(bench.store, loaded.encode(), b"0" * len(loaded))
    status = bench.agent.round()
    assert said(status, "ModuleLoaded")[:2] == ("True", "UpgradeWaits")
    assert said(status, READY)[0] == "True"
    assert bench.sh("cat /sys/module/tidepool/srcversion") == loaded
    bench.sh(f"kill {holder}")
    bench.agent.round()
    assert bench.sh("cat /sys/module/tidepool/srcversion") == "0" * len(loaded)
    status = bench.agent.until(lambda status: said(status, READY)[0] == "True")
    assert bench.whose() == ("660 107", str(64 * MIB))
    alter(bench.store, b"0" * len(loaded), loaded.encode())
    assert next(bench.store.glob("*/tidepool.ko")).read_bytes() == former


def test_a_guest_that_is_rebooted_has_it_again(bench: Bench) -> None:
    bench.want()
    bench.domain.reset()
    bench.wait_until_booted()
    status = bench.agent.until(lambda status: status.applications is not None and said(status, READY)[0] == "True")
    assert programs(status).group == "redis"
    assert bench.whose() == ("660 107", str(64 * MIB))
