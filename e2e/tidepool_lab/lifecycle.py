"""A whole lab: up, reload, status, down."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidepool_lab import (
    addresses,
    cluster,
    control_plane,
    gotools,
    guest_image,
    guests,
    host,
    images,
    kubevirt,
    monitoring,
    node,
    nodes,
    paths,
    shell,
    watcher,
)  # fmt: skip
from tidepool_lab.progress import LabError, say, step
from tidepool_lab.spec import GuestSpec

CHART = paths.ROOT / "charts/tidepool"
RELEASE = "tidepool"
UP = paths.STATE / "up"  # there once the cluster has been brought up whole


def prepare() -> None:
    """Builds and fetches everything that a lab needs, so that `up` takes a minute."""
    gotools.build_all()
    node.prepare()
    control_plane.prepare()
    guest_image.build("6.1")
    images.build_all()


def up(specs: list[GuestSpec], *, count: int, family: int, chart: bool, prometheus: bool) -> None:
    """Brings up the cluster, the guests and the chart; what is up already stays."""
    with _only_one():
        _clear_the_way()
        nodes.choose(max(count, len(nodes.every())))
        addresses.choose(family)
        prepare()
        host.prepare()
        control_plane.start()
        node.start(nodes.every())
        kubevirt.install_crds()
        watcher.start()
        guests.add_all([spec for spec in specs if spec.name not in guests.names()])
        if chart:
            install_chart()
        if prometheus:
            monitoring.start()
        UP.touch()
    say("the lab is up")


def reload() -> None:
    """Rebuilds the images from the present sources and restarts operator and agents with them."""
    require()
    archives = images.build_all()
    for one in nodes.every():
        node.load(one, archives)
    install_chart()
    for kind in ("deployment", "daemonset"):
        cluster.kubectl("rollout", "restart", kind, "-n", cluster.SYSTEM)
    for kind in ("deployment", "daemonset"):
        for name in cluster.kubectl("get", kind, "-n", cluster.SYSTEM, "-o", "name").split():
            cluster.kubectl("rollout", "status", "-n", cluster.SYSTEM, name, "--timeout=120s")
    say("operator and agents run the present sources")


def install_chart() -> None:
    """Installs or upgrades the chart with Helm, as an administrator would."""
    with step("installing the chart"):
        arguments = ["upgrade", "--install", RELEASE, str(CHART), "-n", cluster.SYSTEM, "--create-namespace"]
        subprocess.run(
            cluster.command("helm", [*arguments, "--wait", "--timeout", "3m"]),
            env=cluster.environment(),
            check=True,
            stdout=subprocess.DEVNULL,
        )


def down() -> None:
    """Takes the lab down, in whatever state it is; its logs stay in build/lab/log until the next one."""
    owner = host.owner()
    if owner not in (None, paths.ROOT) and owner.exists():
        raise LabError(f"the lab on this machine belongs to {owner}; run `down` there")
    with step("taking the lab down"), _only_one():
        _take_down()


def _take_down() -> None:
    for name in guests.names():
        shell.disconnect(name)
    every = nodes.every()
    host.stop([*(one.daemon("kubelet") for one in every), watcher.NAME, monitoring.NAME, monitoring.DISCOVERY])
    host.stop([*(one.daemon("kube-proxy") for one in every), "kube-controller-manager", "kube-scheduler"])
    for one in every:
        node.stop_pods(one)
    host.stop([*(one.daemon("containerd") for one in every), "kube-apiserver"])
    host.stop(["etcd"])
    host.clean()
    for entry in paths.STATE.glob("*"):
        if entry != paths.LOGS:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def require() -> None:
    """Stops with a message when there is no lab."""
    if host.owner() != paths.ROOT:
        raise LabError("no lab is up; start one with `e2e/lab up`")


def status() -> int:
    """Prints how everything is; 0 when all of it is well."""
    if host.owner() != paths.ROOT:
        print("no lab is up")
        return 1
    dead = [name for name in host.daemons() if not host.running(name)]
    for name in host.daemons():
        print(f"{name:28} {'ended' if name in dead else 'running'}")
    if "kube-apiserver" in host.daemons() and "kube-apiserver" not in dead:
        for what in (["nodes"], ["vmi", "-A"], ["pods", "-A", "-o", "wide"]):
            print(cluster.kubectl("get", *what), end="")
    return 1 if dead else 0


def log_files() -> dict[str, Path]:
    """Every log of the lab: of daemons by their names, of guests' consoles by the guests' names."""
    daemons = {file.stem: file for file in paths.LOGS.glob("*.log")}
    consoles = {name: paths.GUESTS / name / "console.log" for name in guests.names()}
    return daemons | consoles


def _clear_the_way() -> None:
    """A lab that is up stays; what an interrupted `up` or a crash left is taken down first."""
    owner = host.owner()
    if owner and owner != paths.ROOT and not _is_abandoned(owner):
        raise LabError(f"a lab of {owner} is up on this machine; take it down first with {owner}/e2e/lab down")
    if owner == paths.ROOT and UP.exists() and all(map(host.running, host.daemons())):
        say("a lab is up already; adding what is new")
        return
    if owner:
        say("taking down what is left of an earlier lab")
    _take_down()
    shutil.rmtree(paths.LOGS, ignore_errors=True)


def _is_abandoned(owner: Path) -> bool:
    """Whether a lab has ended without being taken down, and nobody can take it down: its clone is gone."""
    return not owner.exists() and not any(map(host.running, host.daemons()))


@contextmanager
def _only_one() -> Iterator[None]:
    """Two `up` or `down` at once would trip over each other."""
    paths.STATE.mkdir(parents=True, exist_ok=True)
    with (paths.BUILD / f"{paths.NAME}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError("another `up` or `down` of this lab is running") from None
        yield
