"""The lab itself: what its commands promise, and that it gives back everything it took from the machine."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidepool_lab import host, paths, spec
from tidepool_lab.progress import LabError

LAB = paths.ROOT / "e2e/lab"
NAME = "lab-of-tests"  # beside the one that is kept for other tests
STATE, RUN = paths.BUILD / NAME, Path(f"/run/tidepool-{NAME}")
ENVIRONMENT = dict(os.environ, TIDEPOOL_LAB_NAME=NAME)
BUILDS = tempfile.gettempdir(), str(paths.cache())  # where other tests mount something meanwhile
GUEST = "solo"
UP = ["up", "--no-chart", "--guest", f"{GUEST}=256Mi,disk=400Mi:xfs,iops=200,label.purpose=test"]
MIB = 1 << 20
SEEN_SECONDS = 240  # until an instance shows what has become of its guest, on a busy machine


def lab(*arguments: str, stdin: bytes | None = None, patience: float = 900) -> subprocess.CompletedProcess[bytes]:
    """Runs a command of the lab."""
    return subprocess.run(
        [LAB, *arguments], input=stdin, capture_output=True, timeout=patience, check=False, env=ENVIRONMENT
    )


def succeed(*arguments: str, stdin: bytes | None = None) -> bytes:
    """Runs a command that has to exit with 0 and returns its output."""
    done = lab(*arguments, stdin=stdin)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stderr.decode()}"
    return done.stdout


def get(*arguments: str) -> Any:
    """Objects of the lab's cluster."""
    return json.loads(succeed("kubectl", "get", "-o", "json", *arguments))


def taken() -> dict[str, list[str]]:
    """What a lab takes from a machine, as it is now; but for labs of other names and builds of images."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    mounts = [mount for mount in mounts if not mount.startswith(BUILDS)]
    commands = [_command_of(folder) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    namespaces = [path.name for path in Path("/run/netns").glob("*")]
    return {
        "processes": sorted(command for command in commands if str(RUN) in command or str(STATE) in command),
        "mounts": sorted(mount for mount in mounts if not _is_of_another(mount.removeprefix("/run/"))),
        "cgroups": sorted(map(str, host.CGROUPS.glob(f"**/tidepool-{NAME}"))),
        "namespaces": sorted(name for name in namespaces if not _is_of_another(name)),
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "folders": sorted(map(str, Path("/run").glob(f"tidepool-{NAME}"))),
    }


def _is_of_another(name: str) -> bool:
    return name.removeprefix("netns/").startswith("tidepool-") and NAME not in name


def _command_of(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it has ended
        return ""


@pytest.fixture(scope="module")
def before() -> dict[str, list[str]]:
    """The machine without a lab, on which there was a network namespace before: ip(8) keeps its mount for others."""
    succeed("down")
    for action in ("add", "delete"):
        subprocess.run(["ip", "netns", action, f"tidepool-{NAME}"], check=True)
    return taken()


@pytest.fixture(scope="module")
def guest(before: dict[str, list[str]]) -> Iterator[str]:
    """A lab with one guest."""
    assert not before["processes"]
    succeed(*UP)
    yield GUEST
    succeed("down")


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        (["true"], 0, b"", b""),
        (["sh", "-c", "echo out; echo err >&2; exit 7"], 7, b"out\n", b"err\n"),
        (["printf", "%s|", "a b", "$HOME", "'"], 0, b"a b|$HOME|'|", b""),
        (["echo $((6 * 7)) | rev"], 0, b"24\n", b""),
        (["no-such-command"], 127, b"", b"not found"),
        (["sh", "-c", "kill -9 $$"], 137, b"", b""),
    ],
    ids=["true", "streams", "arguments", "shell-line", "not-found", "signal"],
)
def test_exec_is_the_command(guest: str, command: Sequence[str], code: int, out: bytes, err: bytes) -> None:
    """Its exit code, its standard output, its standard error; nothing of the lab's in between."""
    done = lab("exec", guest, "--", *command)
    assert (done.returncode, done.stdout) == (code, out)
    assert err in done.stderr


def test_exec_streams_what_is_large(guest: str) -> None:
    """Eight MiB in, eight MiB out, every byte."""
    data = os.urandom(8 * MIB)
    assert succeed("exec", guest, "--", "cat", stdin=data) == data


def test_exec_does_not_need_guest_agent_or_pod_network(guest: str) -> None:
    """What tests break in a guest is not what the lab reaches it by."""
    try:
        succeed("exec", guest, "--", "systemctl stop qemu-guest-agent && ip link set eth0 down")
        assert succeed("exec", guest, "--", "ip -br link show eth0").split()[1] == b"DOWN"
    finally:
        succeed("exec", guest, "--", "ip link set eth0 up && systemctl start qemu-guest-agent")


def test_copy_there_and_back(guest: str, tmp_path: Path) -> None:
    """Files and folders come back as they went."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(os.urandom(3 * MIB))
    succeed("cp", str(tmp_path / "folder"), f"{guest}:/root/copied")
    digest = succeed("exec", guest, "--", "sha256sum /root/copied/file").split()[0].decode()
    assert digest == hashlib.sha256((tmp_path / "folder/file").read_bytes()).hexdigest()
    succeed("cp", f"{guest}:/root/copied/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "folder/file").read_bytes()


def test_the_guest_is_a_stock_system(guest: str) -> None:
    """Debian's own kernel, memory and disk as asked for, and nothing of Tidepool."""
    assert succeed("exec", guest, "--", "uname -r").strip().endswith(b"-cloud-amd64")
    assert 200 < int(succeed("exec", guest, "--", "free -m | awk '/Mem:/ {print $2}'")) <= 256
    assert succeed("exec", guest, "--", "blkid -o value -s TYPE /dev/vdb").strip() == b"xfs"
    assert succeed("exec", guest, "--", "find / -xdev -name '*tidepool*' -not -path '/proc/*' | head").strip() == b""
    assert lab("exec", guest, "--", "test -e /sys/module/tidepool").returncode == 1


def _with_agent(guest: str) -> Any:
    """The instance's status, which says that the guest agent is connected; it may have been away until just now."""
    deadline = time.monotonic() + SEEN_SECONDS
    while (status := get("vmi", guest)["status"])["conditions"][-1]["type"] != "AgentConnected":
        assert time.monotonic() < deadline, status
        time.sleep(0.5)
    return status


def test_the_guest_is_what_kubevirt_shows(guest: str) -> None:
    """The instance runs, its labels are on its launcher pod too, and its address is the pod's."""
    status = _with_agent(guest)
    pods = get("pods", "-l", f"kubevirt.io=virt-launcher,vm.kubevirt.io/name={guest},purpose=test")["items"]
    assert status["phase"] == "Running"
    assert status["interfaces"][0]["ipAddress"] == pods[0]["status"]["podIP"]
    assert status["conditions"][-1]["status"] == "True"
    assert pods[0]["metadata"]["annotations"]["kubevirt.io/domain"] == guest


def test_up_again_changes_nothing(guest: str) -> None:
    """A second `up` says that a lab is there, and the guest goes on."""
    boot = succeed("exec", guest, "--", "cat /proc/sys/kernel/random/boot_id")
    done = lab(*UP)
    assert done.returncode == 0, done.stderr.decode()
    assert b"up already" in done.stderr
    assert succeed("exec", guest, "--", "cat /proc/sys/kernel/random/boot_id") == boot


def test_a_killed_guest_has_failed(guest: str) -> None:
    """SIGKILL of its QEMU shows in the instance; deleted and added again it is a new guest."""
    succeed("guest", "kill", guest)
    deadline = time.monotonic() + SEEN_SECONDS
    while get("vmi", guest)["status"]["phase"] != "Failed":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    done = lab("exec", guest, "--", "true")
    assert done.returncode == 1
    assert b"not running" in done.stderr
    succeed("guest", "delete", guest)
    succeed("guest", "add", UP[-1])
    assert succeed("exec", guest, "--", "echo alive") == b"alive\n"


def test_down_leaves_nothing(guest: str, before: dict[str, list[str]]) -> None:
    """Processes, mounts, cgroups, namespaces, links: as if no lab had been there."""
    assert taken() != before
    succeed("down")
    assert taken() == before
    assert lab("exec", guest, "--", "true").returncode == 1


def _listen_to_interrupts() -> None:
    """Whoever runs the tests in the background of a shell has them ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.long
def test_down_after_an_interrupted_up(before: dict[str, list[str]]) -> None:
    """Ctrl-C while the guest boots, then `down`."""
    up = subprocess.Popen(
        [LAB, *UP], stderr=subprocess.PIPE, start_new_session=True, env=ENVIRONMENT, preexec_fn=_listen_to_interrupts
    )
    deadline = time.monotonic() + 300
    while not (STATE / "guests" / GUEST / "launcher.json").exists():
        assert time.monotonic() < deadline
        assert up.poll() is None
        time.sleep(0.1)
    os.killpg(up.pid, signal.SIGINT)
    _, errors = up.communicate(timeout=60)
    assert up.returncode == 130, errors.decode()
    assert b"down" in errors
    succeed("down")
    assert taken() == before


@pytest.mark.long
def test_down_after_kills(before: dict[str, list[str]]) -> None:
    """What `down` would ask to end is dead already: containerd and kubelet and the API server.

    It was brought up where another clone's lab had ended with its clone.
    """
    RUN.mkdir()
    (RUN / "owner").write_text("/nowhere")
    succeed("up", "--no-chart")
    for name in ("containerd", "kubelet", "kube-apiserver"):
        os.kill(int((RUN / f"{name}.pid").read_text()), signal.SIGKILL)
    assert lab("status").returncode == 1
    succeed("down")
    assert taken() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("guest", "expected NAME=MEMORY"),
        ("A=1Gi", "lower-case"),
        ("a=lots", "'lots' is not a size"),
        ("a=1Gi,disk=1Gi:ntfs", "file system 'ntfs' is none of ext4, xfs"),
        ("a=1Gi,kernel=5.10", "kernel=5.10 is not understood"),
        ("a=1Gi,iops=0", "iops=0 is not understood"),
    ],
)
def test_a_wrong_specification_says_what_is_right(text: str, words: str) -> None:
    """The message names the part that is wrong."""
    with pytest.raises(LabError, match=words):
        spec.parse(text)


def test_a_specification() -> None:
    """Everything that can be said of a guest."""
    found = spec.parse("a=512Mi,disk=1Gi:ext4,iops=166,kernel=6.12,cpus=2,node=2,network=pages,label.memory=short")
    assert found == spec.GuestSpec("a", 512 * MIB, 1024 * MIB, "ext4", 166, "6.12", 2, 2, True, {"memory": "short"})
