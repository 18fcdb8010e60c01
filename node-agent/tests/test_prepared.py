"""What docs/how-to/prepare-guests.md gives, in a Debian guest that boots from its own disk: cloud-init and AppArmor."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import wait_for
from daemon import Daemon
from prepared import Folder, PreparedGuest, cloud_seed, direct, image
from tiny import TOP

GUESTS = TOP / "guests"
PROFILE, LOCAL = "/etc/apparmor.d/usr.sbin.qemu-ga", "/etc/apparmor.d/local/usr.sbin.qemu-ga"
# Carries out what lies in /run/orders, with root's rights and not the guest agent's: that is confined then.
ORDERS = "while sleep 1; do [ ! -e /run/orders/go ] || { mv /run/orders/go /run/doing; sh /run/doing; }; done"
ORDERED = "owner /run/orders/{,**} rw,\n@{PROC}/@{pid}/attr/{,apparmor/}current r,\n"
CONFINE = "apparmor_parser -r {profile} && systemctl restart qemu-guest-agent"


@pytest.fixture(scope="module")
def guest(daemon: Daemon, store: Path) -> Iterator[PreparedGuest]:
    """A guest that has booted with our user-data, and the worker that found it."""
    folder, source = Folder(daemon), image()
    disks = {"vda": folder.copy(source / "root.img"), "vdb": cloud_seed(folder)}
    with PreparedGuest(daemon, "default_prepared", direct(folder, source), disks, store) as one:
        yield one


@pytest.mark.long
def test_cloud_init_is_all_that_a_guest_needs(guest: PreparedGuest) -> None:
    """The agent of the node finds it ready, loads the module when a pool wants it, and takes it out again."""
    guest.until_said("GuestAgentReady", "True", "Answering")
    assert guest.cloud_init_errors() == []
    assert "FILTER_RPC_ARGS=\n" in guest.run("cat /etc/sysconfig/qemu-ga")
    guest.take_in()
    guest.take_out()


@pytest.fixture
def confined(guest: PreparedGuest) -> Iterator[PreparedGuest]:
    """The guest with our AppArmor profile, and somebody in it who is not confined and takes orders from us."""
    guest.run("mkdir -p /run/orders /etc/apparmor.d/abstractions /etc/apparmor.d/local")
    guest.run(f"systemd-run --unit orders sh -c {shlex.quote(ORDERS)}")
    for path in ("abstractions/tidepool", "usr.sbin.qemu-ga"):
        guest.shell.write(f"/etc/apparmor.d/{path}", (GUESTS / "apparmor" / path).read_bytes())
    yield guest
    guest.agent.leave()


@pytest.mark.long
def test_apparmor_forbids_the_module_or_lets_it_in(confined: PreparedGuest) -> None:
    """A guest agent without our rules may not load it, and that is named; with them, what a pool takes goes well."""
    confine(confined, "deny capability sys_module,")
    confined.agent.want()
    message = confined.until_said("ModuleLoaded", "False", "LoadDenied")
    assert "AppArmor" in message
    assert "insmod: " in message
    assert not confined.loaded()
    confine(confined, "")
    confined.take_in()
    confined.until_said("Ready", "True", "Ready")
    confined.take_out()
    assert denied(confined) == set()


def denied(guest: PreparedGuest) -> set[str]:
    """What the profile has kept from it since it is in force."""
    lines = guest.run("dmesg | grep 'apparmor=\"DENIED\"' || true").splitlines()
    return {" ".join(re.findall(r'(?:operation|(?<!\w)name|capname|requested_mask)="([^"]*)"', line)) for line in lines}


def confine(guest: PreparedGuest, more: str) -> None:
    """Puts the guest agent under our profile with more rules, and waits until it answers there."""
    text = "\n".join(
        [
            f"cat >{LOCAL} <<'END'\n{ORDERED}{more}\n# {hash(more)}\nEND",
            "dmesg -C",
            CONFINE.format(profile=PROFILE),
            "echo done >/run/orders/done",
        ]
    )
    guest.run("rm -f /run/orders/done")
    guest.shell.write("/run/orders/new", text.encode())
    guest.run("mv /run/orders/new /run/orders/go")
    wait_for(lambda: "done" in guest.run("cat /run/orders/done 2>/dev/null || true"))
    assert guest.run("cat /proc/self/attr/current").strip() == "qemu-ga (enforce)"
