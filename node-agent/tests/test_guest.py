"""Delivering, configuring and removing the real module in a real guest."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import PATIENCE, wait_for
from daemon import Daemon, end
from objects import BORROWER, OTHER, alter, pairing, want
from tiny import TOP, Kernel

from tidepool_agent.errors import (
    ConfigureFailed,
    DeliveryFailed,
    GuestError,
    LoadFailed,
    ModuleUnavailable,
    UnloadFailed,
    Unreachable,
    UpgradeFailed,
)
from tidepool_agent.guest import SCRIPT, Guest, failure
from tidepool_agent.guestfs import Observation, Side
from tidepool_agent.hypervisor import Domain
from tidepool_agent.plan import Change, Configure, Load, Measure, Remove, Replace, Set, Source, Step, Turn, Unload, Want
from tidepool_agent.qga import GuestAgent
from tidepool_agent.store import Store

LOCKDOWN = "kernel log: [ 8.1] Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7"
LENDING, BORROWING = want(Side.BORROWERS, pairing("aaaa-1")), want(Side.LENDERS, pairing("bbbb-2"))


class Bench:
    """A guest, the agent's side of it, and a second way in."""

    def __init__(self, shell: GuestAgent, store: Path) -> None:
        self.shell, self.store = shell, store
        self.guest = Guest(shell, Store(store))

    def look(self) -> Observation:
        return self.guest.probe()

    def do(self, *steps: Step) -> Observation:
        for step in steps:
            self.guest.carry_out(step, self.look().release)
        return self.look()

    def sh(self, line: str) -> str:
        done = self.shell.run(["/bin/sh", "-c", line], seconds=PATIENCE)
        assert done.code == 0, done.err
        return done.out


@pytest.fixture
def store(tmp_path: Path, kernel: Kernel, module: Path) -> Path:
    folder = tmp_path / "modules" / kernel.release
    folder.mkdir(parents=True)
    for file in (module, module.with_name("tidepool.ko.sha256")):
        shutil.copy(file, folder)
    return folder.parent


@pytest.fixture(scope="module")
def shell(daemon: Daemon) -> Iterator[GuestAgent]:
    domain = Domain(daemon.uri, "default_bench")
    guest = daemon.start("default_bench")
    agent = GuestAgent(domain.command)
    wait_for(lambda: agent.blocked() == [])
    yield agent
    domain.close()
    end(guest)


@pytest.fixture
def bench(shell: GuestAgent, store: Path) -> Iterator[Bench]:
    one = Bench(shell, store)
    yield one
    one.sh("rmdir /sys/kernel/config/tidepool/*/* 2>/dev/null; rmmod tidepool 2>/dev/null; dmesg -c >/dev/null; true")


def test_a_guest_without_the_module_is_described(bench: Bench, kernel: Kernel) -> None:
    seen = bench.look()
    assert (seen.release, seen.module, dict(seen.peers)) == (kernel.release, None, {})
    assert 100 << 20 < seen.available_bytes < seen.total_bytes < 224 << 20
    assert 0 < (seen.working_set_bytes or 0) < seen.total_bytes
    assert seen.stalls.keys() == {"memory some", "memory full", "io some", "io full"}
    assert seen.uptime > 0
    assert seen.refaults is not None
    assert seen.boot_id == bench.sh("cat /proc/sys/kernel/random/boot_id").strip()


def test_the_module_is_delivered_loaded_and_kept_until_it_is_unloaded(
    bench: Bench, store: Path, kernel: Kernel
) -> None:
    seen = bench.do(Load(Source.STORE))
    assert seen.module is not None
    assert seen.module.version == (TOP / "VERSION").read_text().strip()
    assert seen.module.srcversion == Store(store).build(kernel.release).srcversion
    assert bench.sh("ls /run/tidepool") == "kept.ko\n"
    assert bench.do(Unload()).module is None
    assert "tidepool" not in bench.sh("ls /run")


def test_another_build_replaces_the_module_unless_it_does_not_work(bench: Bench, store: Path) -> None:
    """Item 9: the former one is back when the new one is refused by the kernel, and when it fails its self-check."""
    first = bench.do(Load(Source.STORE)).module
    assert first is not None
    alter(store, first.srcversion.encode(), b"0" * len(first.srcversion))
    second = bench.do(Replace()).module
    assert second is not None
    assert second.srcversion == "0" * len(first.srcversion)
    for old, new, complaint in ((b" SMP ", b" UMP ", "version magic"), (b"hooks %d\n", b"hookz %d\n", "self-check")):
        intact = alter(store, old, new)
        with pytest.raises(UpgradeFailed, match=complaint):
            bench.do(Replace())
        back = bench.look().module
        assert back is not None
        assert back.srcversion == second.srcversion
        assert bench.sh("ls /run/tidepool") == "kept.ko\n"
        alter(store, new, old)
        assert next(store.glob("*/tidepool.ko")).read_bytes() == intact


def test_a_lender_is_set_up_and_taken_down(bench: Bench) -> None:
    settings = {"port": "7471", "reserve_bytes": str(32 << 20), "lend_bytes": str(64 << 20), "hold": "1"}
    seen = bench.do(Load(Source.STORE), Set(settings), Configure(LENDING))
    assert seen.module is not None
    assert dict(seen.module.settings) == settings
    peer = seen.peers[LENDING.key]
    assert (peer.state, peer.enabled, peer.attributes["quota_bytes"]) == ("Listening", True, str(256 << 20))
    assert peer.stats["lent_pages"] == 0
    assert peer.identity == BORROWER
    assert bench.do(Remove((LENDING.key,)), Unload()).module is None


def test_ghost_mode_says_what_pools_would_be_worth(bench: Bench) -> None:
    seen = bench.do(Load(Source.STORE), Measure("NonInclusive"))
    assert seen.module is not None
    assert seen.module.ghost == "NonInclusive"
    eighth = seen.module.curve[0][0]
    assert [size // eighth for size, _ in seen.module.curve] == [1, 2, 4, 8, 16, 32, 64]
    off = bench.do(Measure("Off")).module
    assert off is not None
    assert (off.ghost, off.curve) == ("Off", ())


def test_a_borrower_is_set_up_and_changed_while_in_use(bench: Bench) -> None:
    seen = bench.do(Load(Source.STORE), Configure(BORROWING))
    peer = seen.peers[BORROWING.key]
    assert (peer.state, peer.enabled) == ("Connecting", True)
    assert {name: peer.attributes[name] for name in BORROWING.attributes} == dict(BORROWING.attributes)
    seen = bench.do(Change(BORROWING, {"size_bytes": str(128 << 20)}))
    assert seen.peers[BORROWING.key].attributes["size_bytes"] == str(128 << 20)
    seen = bench.do(Turn(BORROWING, "2001:db8::9"))
    assert seen.peers[BORROWING.key].attributes["address"] == "2001:db8::9"
    latency = {"breaker": "Off", "breaker_short": "2000 50000", "breaker_long": "10 20", "sequential_filter": "1"}
    seen = bench.do(Change(BORROWING, latency))
    assert latency.items() <= seen.peers[BORROWING.key].attributes.items()
    assert seen.peers[BORROWING.key].enabled
    assert seen.module is not None
    assert dict(seen.module.latency) == {}
    assert seen.peers[BORROWING.key].enabled


def test_a_peer_in_use_can_be_configured_anew(bench: Bench) -> None:
    """What may not change while enabled: the peer is stopped, changed and started again."""
    bench.do(Load(Source.STORE), Configure(BORROWING))
    moved = want(Side.LENDERS, pairing("bbbb-2", deadline="100ms"))
    peer = bench.do(Configure(moved)).peers[moved.key]
    assert (peer.enabled, peer.attributes["deadline_us"]) == (True, "100000")


def test_a_module_that_is_loaded_anew_has_another_identity(bench: Bench) -> None:
    """As after a reboot or an upgrade; what is asked without changing anything stays the same."""
    drawn = []
    for _ in range(2):
        seen = bench.do(Load(Source.STORE))
        again = bench.look()
        assert seen.module is not None
        assert again.module is not None
        assert seen.module.identity == again.module.identity
        drawn.append(seen.module.identity)
        bench.do(Unload())
    assert len({*drawn, None}) == 3


@pytest.mark.parametrize("wanted", [LENDING, BORROWING])
def test_a_peer_that_has_another_identity_by_now_is_changed_while_in_use(bench: Bench, wanted: Want) -> None:
    assert bench.do(Load(Source.STORE), Configure(wanted)).peers[wanted.key].enabled
    peer = bench.do(Change(wanted, {"identity": OTHER})).peers[wanted.key]
    assert (peer.identity, peer.enabled) == (OTHER, True)


def test_an_identity_that_the_module_refuses_is_an_error(bench: Bench) -> None:
    """Not one, nobody's, the guest's own, or one that another borrower has: named, and nothing is enabled."""
    own = bench.do(Load(Source.STORE)).module
    assert own is not None
    bench.do(Configure(LENDING))
    for identity in ("", "ab" * 32, f"x25519:{'0' * 64}", own.identity or "", BORROWER):
        second = want(Side.BORROWERS, pairing("cccc-3", identities=(None, BORROWER)))
        refused = replace(second, attributes={**second.attributes, "identity": identity})
        with pytest.raises(ConfigureFailed):
            bench.do(Configure(refused))
        assert not bench.look().peers[second.key].enabled
    assert bench.look().peers[LENDING.key].enabled


def test_a_refused_attribute_is_named_with_what_the_kernel_says(bench: Bench) -> None:
    bench.do(Load(Source.STORE))
    with pytest.raises(ConfigureFailed, match=r"refused: reserve_bytes=lots.*kernel log.*reserve_bytes"):
        bench.do(Set({"reserve_bytes": "lots"}))


def test_a_module_that_was_damaged_on_the_way_is_not_loaded(bench: Bench) -> None:
    """The script compares the checksum in the guest: here the file changes after it was written."""
    bench.sh("mkdir -p /run/tidepool && echo other > /run/tidepool/tidepool.ko")
    done = bench.shell.run(["/bin/sh", "-c", SCRIPT, "tidepool", "load", "0" * 64])
    assert done.code != 0
    assert bench.look().module is None
    assert "tidepool" not in bench.sh("ls /run")


def test_a_module_that_does_not_match_its_checksum_never_leaves_the_store(bench: Bench, store: Path) -> None:
    file = next(store.glob("*/tidepool.ko"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(ModuleUnavailable, match="checksum"):
        bench.do(Load(Source.STORE))


def test_a_module_for_another_kind_of_kernel_is_refused_with_the_kernels_reason(bench: Bench, store: Path) -> None:
    alter(store, b" SMP ", b" UMP ")
    with pytest.raises(LoadFailed, match=r"load failed in the guest: .*insmod.*kernel log: .*version magic"):
        bench.do(Load(Source.STORE))
    assert "tidepool" not in bench.sh("ls /run")


@pytest.mark.parametrize(
    ("kind", "said", "reason"),
    [
        (LoadFailed, "insmod: ERROR: could not insert module /run/t.ko: Permission denied", "LoadDenied"),  # kmod's
        (LoadFailed, "insmod: can't insert '/run/t.ko': Permission denied", "LoadDenied"),  # busybox'
        (LoadFailed, "insmod: ERROR: could not insert module /run/t.ko: Operation not permitted", "LoadDenied"),
        (LoadFailed, "mount: mounting configfs on /sys/kernel/config failed: Permission denied", "LoadDenied"),
        (LoadFailed, "mount: /sys/kernel/config: permission denied.", "LoadDenied"),  # util-linux'
        (
            LoadFailed,
            f"modprobe: ERROR: could not insert 'tidepool': Operation not permitted; {LOCKDOWN}",
            "LoadFailed",
        ),
        (LoadFailed, "insmod: ERROR: could not insert module /run/t.ko: Invalid module format", "LoadFailed"),
        (LoadFailed, "sha256sum: /run/t.ko: Permission denied", "LoadFailed"),
        (UpgradeFailed, "insmod: ERROR: could not insert module /run/t.ko: Permission denied", "UpgradeFailed"),
    ],
)
def test_what_the_guests_rules_forbid_is_named(kind: type[GuestError], said: str, reason: str) -> None:
    """SELinux and AppArmor, by the errors that they give, and lockdown does not without a word in the log."""
    error = failure(kind, f"load failed in the guest: {said}")
    assert error.reason == reason
    assert said in str(error)


def test_a_guest_without_room_for_the_module_says_so_and_is_left_clean(bench: Bench) -> None:
    """Item 8: no space."""
    bench.sh("mount -o remount,size=128k /run")
    with pytest.raises(DeliveryFailed, match=r"KiB\) does not get into the guest's /run: .*(space|full)"):
        bench.do(Load(Source.STORE))
    assert "tidepool" not in bench.sh("mount -o remount,size=50% /run; ls /run")


def test_a_guest_whose_root_is_read_only_takes_the_module(bench: Bench) -> None:
    """Item 8: what is delivered goes through memory."""
    bench.sh("mount -o remount,ro /")
    try:
        assert bench.do(Load(Source.STORE)).module is not None
    finally:
        bench.sh("mount -o remount,rw /")


def test_a_guest_that_disappears_during_a_delivery_costs_one_error(daemon: Daemon, store: Path) -> None:
    """Item 8: it is gone after the second piece of the module."""
    machine = daemon.start("default_vanishes")
    domain, pieces = Domain(daemon.uri, "default_vanishes"), itertools.count(1)

    def command(text: str, seconds: int) -> str:
        if "guest-file-write" in text and next(pieces) == 3:
            end(machine)
        return domain.command(text, seconds)

    guest = Guest(GuestAgent(command), Store(store))
    wait_for(lambda: guest.check() is None)
    with pytest.raises(Unreachable) as caught:
        guest.carry_out(Load(Source.STORE), guest.probe().release)
    assert caught.value.reason == "NotRunning"
    domain.close()


def test_a_module_in_use_cannot_be_unloaded(bench: Bench) -> None:
    bench.do(Load(Source.STORE), Configure(LENDING))
    with pytest.raises(UnloadFailed):
        bench.do(Unload())


def test_a_kernel_that_the_store_lacks_is_named(bench: Bench, store: Path) -> None:
    shutil.rmtree(next(store.glob("*")))
    with pytest.raises(ModuleUnavailable, match=bench.look().release):
        bench.do(Load(Source.STORE))
