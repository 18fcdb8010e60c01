"""guests/selinux/tidepool.cil in a real kernel: without it the guest agent's domain may not load the module."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cast import lab
from daemon import Daemon
from prepared import Boot, PreparedGuest
from tiny import TOP, archive

FEDORAS, OURS = Path(__file__).with_name("policy.cil"), TOP / "guests/selinux/tidepool.cil"
VERSION = "33"  # of policies, as Linux 5.13 and newer read them
CONTEXT = "system_u:system_r:virt_qemu_ga_t"
KERNEL = "<kernel>{0}/vmlinuz</kernel><initrd>{0}/selinux.img</initrd><cmdline>{1}</cmdline>"
OPTIONS = "console=ttyS0 quiet mitigations=off panic=-1 security=selinux selinux=1 enforcing=1"
LOAD = "dd if=/policies/{} of=/sys/fs/selinux/load bs=1M 2>/dev/null"
PREPARE = f"""mount -t configfs configfs /sys/kernel/config
mount -t selinuxfs selinuxfs /sys/fs/selinux
{LOAD.format("before")}
printf {CONTEXT} >/proc/self/attr/exec
"""


def compiled(target: Path, *sources: Path) -> Path:
    """A policy as a kernel reads it."""
    command = [lab("path", "secilc"), "-c", VERSION, "-f", "/dev/null", "-o", target, *sources]
    subprocess.run(command, check=True)
    return target


def test_our_policy_compiles_with_fewer_types(tmp_path: Path) -> None:
    """Distributions lack some of those that it names beside the guest agent's own: those parts are left out."""
    least = re.sub(r"\((type|roletype object_r) (mount_exec_t|modules_conf_t|dmesg_exec_t)\)", "", FEDORAS.read_text())
    (tmp_path / "least.cil").write_text(least)
    assert compiled(tmp_path / "policy", tmp_path / "least.cil", OURS).stat().st_size > 0


@pytest.fixture
def guest(daemon: Daemon, store: Path, tmp_path: Path) -> Iterator[PreparedGuest]:
    """One whose guest agent is confined as Fedora has it; our policy lies there, and is not in force."""
    root = tmp_path / "root"
    (root / "policies").mkdir(parents=True)
    compiled(root / "policies/before", FEDORAS)
    compiled(root / "policies/with_ours", FEDORAS, OURS)
    (root / "prepare").write_text(PREPARE)
    initrd = daemon.folder / "selinux.img"
    initrd.write_bytes(daemon.initrd.read_bytes() + archive(root))
    boot = Boot(KERNEL.format(daemon.folder, OPTIONS))
    with PreparedGuest(daemon, "default_selinux", boot, {}, store) as one:
        yield one


@pytest.mark.long
def test_selinux_forbids_the_module_or_lets_it_in(guest: PreparedGuest) -> None:
    """What is forbidden is named; with our policy the module is loaded, configured, and taken out again."""
    assert guest.run("cat /sys/fs/selinux/enforce") == "1"
    assert guest.run("cat /proc/self/attr/current").rstrip("\0\n") == CONTEXT
    guest.agent.want()
    message = guest.until_said("ModuleLoaded", "False", "LoadDenied")
    assert "SELinux" in message
    assert "insmod: " in message
    assert not guest.loaded()
    guest.run(LOAD.format("with_ours"))
    guest.until_said("ModuleLoaded", "True", "Loaded")
    assert guest.loaded()
    guest.run("test -d /sys/kernel/config/tidepool/lenders/p1")
    guest.agent.leave()
    guest.until_said("ModuleLoaded", "False", "NotNeeded")
    assert not guest.loaded()
