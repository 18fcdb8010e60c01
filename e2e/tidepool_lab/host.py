"""What the lab takes from the machine and gives back: a network namespace, a cgroup, a folder in /run, processes.

Every process of the lab is in the lab's cgroup: the daemons because they are started there, the pods because kubelet
puts them below it. So `down` finds them all, whatever was killed or interrupted before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tidepool_lab import addresses, nodes, pages_network, paths
from tidepool_lab.progress import LabError, say

NETNSES = Path("/run/netns")
CGROUP = nodes.CGROUP
CGROUPS = Path("/sys/fs/cgroup")
DAEMONS = "daemons"
SHIM_SOCKETS = Path("/run/containerd/s")  # not configurable

cancelled = threading.Event()  # set to end what other threads wait for


def prepare() -> None:
    """Claims namespace, cgroup and run-time folder; says so when another lab has them."""
    if os.geteuid() != 0:
        raise LabError("the lab needs root: it makes network namespaces, cgroups and mounts")
    paths.RUN.mkdir(mode=0o755, exist_ok=True)
    (paths.RUN / "owner").write_text(str(paths.ROOT))
    for folder in (paths.STATE, paths.LOGS, paths.GUESTS):
        folder.mkdir(parents=True, exist_ok=True)
    for node in nodes.every():
        _make_cgroups(node)
        _make_netns(node)


def owner() -> Path | None:
    """The clone whose lab is on this machine now."""
    file = paths.RUN / "owner"
    return Path(file.read_text()) if file.exists() else None


def start(
    name: str,
    command: Sequence[str | Path],
    *,
    env: dict[str, str] | None = None,
    node: nodes.Node | None = nodes.FIRST,
) -> int:
    """Starts a daemon in the lab's cgroup and a node's network namespace, if any; its output goes to the lab's logs."""
    inside = [f"nsenter --net={node.netns_file}"] if node else []
    script = f'echo $$ > {_daemons()}/cgroup.procs && exec {" ".join(inside)} "$@"'
    with (paths.LOGS / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(os.environ, **(env or {})),
            start_new_session=True,
        )
    (paths.RUN / f"{name}.pid").write_text(str(process.pid))
    while not _is_daemon(process.pid) and process.poll() is None:
        time.sleep(0.01)  # until the shell has put itself into the cgroup
    return process.pid


def running(name: str) -> bool:
    """Whether the daemon of that name is alive."""
    pid = _pid(name)
    return pid is not None and _is_daemon(pid)


def daemons() -> list[str]:
    """The names of all daemons that were started."""
    return sorted(file.stem for file in paths.RUN.glob("*.pid"))


def stop(names: Iterable[str], patience: float = 10) -> None:
    """Asks daemons to end, and waits; those that do not are killed."""
    alive = [pid for name in names if (pid := _pid(name)) is not None and _is_daemon(pid)]
    for pid in alive:
        _signal(pid, signal.SIGTERM)
    wait_gone(alive, patience)
    for name in names:
        (paths.RUN / f"{name}.pid").unlink(missing_ok=True)


def wait_gone(pids: Iterable[int], patience: float) -> None:
    """Waits for processes to end and kills what is left after that long."""
    pids = list(pids)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and any(_alive(pid) for pid in pids):
        time.sleep(0.05)
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def wait_until(what: str, ready: Callable[[], bool], patience: float, *, watch: Sequence[str] = ()) -> None:
    """Waits for a condition; stops early when one of the daemons that it depends on has died."""
    deadline = time.monotonic() + patience
    while not ready():
        if cancelled.is_set():
            raise LabError(f"{what}: interrupted")
        for name in watch:
            if not running(name):
                raise LabError(f"{name} has ended; see {paths.LOGS}/{name}.log")
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {patience:.0f} s")
        time.sleep(0.2)


def in_netns(command: Sequence[str | Path]) -> list[str]:
    """The command as it runs in the first node's network namespace (keeping the mounts, unlike `ip netns exec`)."""
    return _inside(nodes.FIRST, *command)


def _inside(node: nodes.Node, *command: str | Path) -> list[str]:
    return ["nsenter", f"--net={node.netns_file}", *map(str, command)]


def clean() -> None:
    """Gives everything back: whatever is left of processes, mounts, namespaces, cgroups and folders."""
    _kill_members()
    _unmount()
    _remove_netns()
    _remove_cgroups()
    _remove_empty(SHIM_SOCKETS)
    shutil.rmtree(paths.RUN, ignore_errors=True)


def cgroup_roots() -> list[Path]:
    """The lab's cgroup in every hierarchy (one on cgroup v2, one per controller on v1)."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / CGROUP]
    return [
        folder / CGROUP
        for folder in sorted(CGROUPS.iterdir())
        if folder.name != "unified" and folder.is_dir() and not folder.is_symlink()
    ]


def _daemons() -> Path:
    """Where daemons are put: any one hierarchy is enough to find them again."""
    roots = cgroup_roots()
    return next((root for root in roots if root.parent.name == "pids"), roots[0]) / DAEMONS


def _make_cgroups(node: nodes.Node) -> None:
    if (CGROUPS / "cgroup.controllers").exists():
        controllers = (CGROUPS / "cgroup.controllers").read_text().split()
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    for top in cgroup_roots():
        root = top.parent / node.cgroup
        root.mkdir(exist_ok=True)
        for seed in ("cpuset.cpus", "cpuset.mems"):  # v1: a cpuset is unusable until both are set
            if top.parent.name == "cpuset":
                (root / seed).write_text((root.parent / seed).read_text())
    _daemons().mkdir(exist_ok=True)


def _make_netns(node: nodes.Node) -> None:
    if node.netns_file.exists():
        return
    ip = ["ip", "-n", node.netns]
    commands = [["ip", "netns", "add", node.netns], [*ip, "link", "set", "lo", "up"]]
    commands += _bridge(ip, node) if node.is_first else _cable(ip, node)
    commands += pages_network.laid(node)
    for command in (*commands, _inside(node, "sysctl", "-qw", addresses.chosen().forwarding)):
        subprocess.run(command, check=True)


def at_once() -> list[str]:
    """Nobody else has an address of the lab: IPv6 need not ask first."""
    return ["nodad"] if addresses.chosen() is addresses.IPV6 else []


def _own(node: nodes.Node) -> str:
    return f"{node.ip}/{addresses.chosen().node_bits}"


def _bridge(ip: list[str], node: nodes.Node) -> list[list[str]]:
    """The wire between the nodes, which is the first node's way to itself."""
    return [
        [*ip, "link", "add", "node0", "type", "bridge"],
        [*ip, "addr", "add", _own(node), "dev", "node0", *at_once()],
        [*ip, "link", "set", "node0", "up"],
        [*ip, "route", "add", addresses.chosen().everywhere, "dev", "node0"],
    ]


def _cable(ip: list[str], node: nodes.Node) -> list[list[str]]:
    """From a node to that bridge, and routes to each other's pods."""
    first = nodes.FIRST
    there = ["ip", "-n", first.netns]
    return [
        [*ip, "link", "add", "eth0", "type", "veth", "peer", "name", node.name, "netns", first.netns],
        [*there, "link", "set", node.name, "master", "node0", "up"],
        [*ip, "addr", "add", _own(node), "dev", "eth0", *at_once()],
        [*ip, "link", "set", "eth0", "up"],
        [*ip, "route", "add", addresses.chosen().everywhere, "via", first.ip],
        [*ip, "route", "add", first.pods, "via", first.ip],
        [*there, "route", "add", node.pods, "via", node.ip],
    ]


def _pid(name: str) -> int | None:
    try:
        return int((paths.RUN / f"{name}.pid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _is_daemon(pid: int) -> bool:
    """Whether the process is alive and one of ours: a pid may have been used again for another."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return _alive(pid) and any(line.endswith(f":/{CGROUP}/{DAEMONS}") for line in lines)


def _alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _members(folders: Iterable[Path]) -> set[int]:
    """The processes in these cgroups and below."""
    found: set[int] = set()
    for folder in folders:
        for file in [folder / "cgroup.procs", *folder.rglob("cgroup.procs")]:
            try:
                found |= set(map(int, file.read_text().split()))
            except OSError:  # the cgroup went away meanwhile
                continue
    return found - {os.getpid()}


def _kill_members() -> None:
    members: set[int] = set()
    for _ in range(100):
        members = {pid for pid in _members(cgroup_roots()) if _alive(pid)}
        if not members:
            return
        for pid in members:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.1)
    say(f"processes that do not die: {sorted(members)}")


def _unmount() -> None:
    """Takes down mounts below the lab's folders, innermost first, and the pods' network namespaces."""
    for _ in range(3):
        mounts = [
            line.split()[1].encode().decode("unicode_escape") for line in Path("/proc/mounts").read_text().splitlines()
        ]
        ours = [mount for mount in mounts if _is_below(mount, paths.STATE) or _is_below(mount, paths.RUN)]
        for mount in reversed(ours):
            subprocess.run(["umount", "-l", mount], check=False)


def _is_below(path: str, folder: Path) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")


def _remove_netns() -> None:
    """Those of pods are mounts below our run-time folder and gone by now."""
    for netns in (nodes.NETNS, *(file.name for file in NETNSES.glob(f"{nodes.NETNS}.*"))):
        if (NETNSES / netns).exists():
            subprocess.run(["ip", "netns", "del", netns], check=False)


def _remove_empty(folder: Path) -> None:
    """Removes a folder that another containerd may use too, only when it does not."""
    while folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _remove_cgroups() -> None:
    """Also the one that runc makes on v1 in the unified hierarchy, where nothing of ours is."""
    for root in [*cgroup_roots(), CGROUPS / "unified" / CGROUP]:
        folders = (
            sorted((folder for folder in root.rglob("*") if folder.is_dir()), reverse=True) if root.exists() else []
        )
        for folder in [*folders, root]:
            for _ in range(20):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:  # its last process is being reaped
                    time.sleep(0.05)
