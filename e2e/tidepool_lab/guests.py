"""Starting and ending guests: what virt-controller and virt-handler would do for a VirtualMachineInstance."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import libvirt

from tidepool_lab import (
    binding,
    cluster,
    gotools,
    guest_image,
    host,
    images,
    kubevirt,
    nodes,
    pages_network,
    paths,
    shell,
)
from tidepool_lab.nodes import Node
from tidepool_lab.progress import LabError, say, step
from tidepool_lab.spec import GuestSpec

BOOT_PATIENCE = 600


@dataclass(frozen=True)
class Launcher:
    """The running pod of a guest."""

    pid: int  # of the container's first process
    pod: str
    pod_uid: str
    pod_ip: str
    uid: str  # of the VirtualMachineInstance
    number: int  # of the node

    @property
    def node(self) -> Node:
        """Where it is."""
        return Node(self.number)

    @property
    def uri(self) -> str:
        """libvirt's address, seen from outside the container."""
        return f"qemu+unix:///session?socket=/proc/{self.pid}/root/run/libvirt/virtqemud-sock"


def names() -> list[str]:
    """All guests of the lab, running or not."""
    return sorted(folder.name for folder in paths.GUESTS.glob("*") if (folder / "spec.json").exists())


def launcher_of(name: str) -> Launcher | None:
    """The pod of a guest, once it has one."""
    file = paths.GUESTS / name / "launcher.json"
    return Launcher(**json.loads(file.read_text())) if file.exists() else None


def add_all(specs: list[GuestSpec]) -> None:
    """Starts guests side by side and waits until all take commands."""
    for spec in specs:
        if (paths.GUESTS / spec.name).exists():
            raise LabError(f"there is a guest {spec.name!r} already; `guest delete {spec.name}` removes it")
    for kernel in sorted({spec.kernel for spec in specs}):
        guest_image.build(kernel)
    if not specs:
        return
    with step(f"starting {', '.join(spec.name for spec in specs)} (about 1 min)"), ThreadPoolExecutor(8) as pool:
        started = [pool.submit(_add, spec) for spec in specs]
        try:
            for future in as_completed(started):
                future.result()
        except BaseException:
            host.cancelled.set()
            raise


def kill(name: str) -> None:
    """SIGKILL for the guest's QEMU, as a crash of the host process would be."""
    pid = qemu_pid(name)
    if pid is None:
        raise LabError(f"guest {name} has no QEMU")
    os.kill(pid, signal.SIGKILL)
    host.wait_gone([pid], 5)


def delete(name: str) -> None:
    """Deletes the guest and everything of it."""
    if not (paths.GUESTS / name).exists():
        raise LabError(f"there is no guest {name!r}")
    shell.disconnect(name)
    options = ["-n", kubevirt.NAMESPACE, "--ignore-not-found", "--timeout=60s"]
    cluster.kubectl("delete", "vmi", name, *options)
    cluster.kubectl("delete", "pods", "-l", f"kubevirt.io=virt-launcher,vm.kubevirt.io/name={name}", *options)
    shutil.rmtree(paths.GUESTS / name)


def qemu_pid(name: str) -> int | None:
    """The guest's QEMU, found below its launcher."""
    launcher = launcher_of(name)
    return None if launcher is None else _find_qemu(launcher.pid)


def connect(launcher: Launcher) -> libvirt.virConnect:
    """A connection to the libvirt of a guest."""
    return libvirt.open(launcher.uri)


def _add(spec: GuestSpec) -> None:
    node = nodes.named(Node(spec.node).name)
    folder = paths.GUESTS / spec.name
    folder.mkdir(mode=0o755)
    spec.save(folder / "spec.json")
    _make_disks(spec, folder, guest_image.build(spec.kernel))
    vmi = _create_instance(spec, node)
    launcher = start_launcher(vmi, spec, node)
    prepare(launcher, spec)
    _start_domain(spec, launcher)
    take(spec, launcher, BOOT_PATIENCE)
    if spec.on_pages_network:
        subprocess.run(shell.command(spec.name, [pages_network.script(launcher.uid)]), check=True)
    host.wait_until(f"VirtualMachineInstance {spec.name} Running", lambda: _is_running(spec.name), 60)
    say(f"guest {spec.name} is up at {launcher.pod_ip}")


def take(spec: GuestSpec, launcher: Launcher, patience: float) -> None:
    """From now on this is where a guest is: the lab's own way into it, too."""
    file = paths.GUESTS / spec.name / "launcher.json"
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(launcher)))
    fresh.rename(file)
    shell.connect(spec.name, Path(f"/proc/{launcher.pid}/ns/net"), guest_image.build(spec.kernel).key)
    shell.wait_connected(spec.name, patience)


def _make_disks(spec: GuestSpec, folder: Path, image: guest_image.GuestImage) -> None:
    backing = f"{kubevirt.IMAGE_FOLDER}/{image.disk.name}"
    # -u: the backing file is where it will be in the container, not here.
    create = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", backing]
    subprocess.run([*create, folder / "root.qcow2", guest_image.SIZE], check=True)
    if spec.disk:
        data = folder / "data.img"
        with data.open("wb") as file:
            file.truncate(spec.disk)
        _format(data, spec.file_system)
    for path in (folder, *folder.iterdir()):
        os.chown(path, images.QEMU_USER, images.QEMU_USER)


def _format(disk: Path, file_system: str) -> None:
    if file_system == "ext4":
        # What a lazy initialisation would write later would disturb measurements.
        eager = "lazy_itable_init=0,lazy_journal_init=0"
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", eager, disk], check=True)
    elif file_system == "xfs":
        subprocess.run(["mkfs.xfs", "-q", disk], check=True)


def _create_instance(spec: GuestSpec, node: Node) -> dict[str, Any]:
    cluster.apply(kubevirt.instance(spec, node))
    vmi: dict[str, Any] = cluster.get("vmi", "-n", kubevirt.NAMESPACE, spec.name)
    return vmi


def start_launcher(vmi: dict[str, Any], spec: GuestSpec, node: Node) -> Launcher:
    """Starts a virt-launcher pod on a node."""
    manifest = kubevirt.launcher_pod(vmi, spec, paths.GUESTS / spec.name, guest_image.build(spec.kernel).folder, node)
    cluster.apply(manifest)
    name = manifest["metadata"]["name"]
    cluster.kubectl("wait", "-n", kubevirt.NAMESPACE, "--for=condition=Ready", f"pod/{name}", "--timeout=180s")
    pod = cluster.get("pod", "-n", kubevirt.NAMESPACE, name)
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    return Launcher(
        pid=_container_pid(container, node),
        pod=name,
        pod_uid=pod["metadata"]["uid"],
        pod_ip=pod["status"]["podIP"],
        uid=vmi["metadata"]["uid"],
        number=node.number,
    )


def prepare(launcher: Launcher, spec: GuestSpec) -> None:
    """Makes the network of a guest that is not there yet, and waits for libvirt."""
    binding.bind(launcher.pid, launcher.node, spec)
    host.wait_until(f"libvirt of {launcher.pod}", lambda: _answers(launcher), 30)


def _container_pid(container: str, node: Node) -> int:
    crictl = [str(gotools.path("crictl")), "--runtime-endpoint", f"unix://{node.socket}"]
    inspect = [*crictl, "inspect", "-o", "json", container]
    answer = subprocess.run(inspect, check=True, capture_output=True, text=True)
    return int(json.loads(answer.stdout)["info"]["pid"])


def _start_domain(spec: GuestSpec, launcher: Launcher) -> None:
    connection = connect(launcher)
    try:
        connection.defineXML(kubevirt.domain_xml(spec, launcher.uid)).create()
    except libvirt.libvirtError as error:
        raise LabError(f"guest {spec.name}: {error}") from error
    finally:
        connection.close()


def _answers(launcher: Launcher) -> bool:
    try:
        connect(launcher).close()
    except libvirt.libvirtError:
        return False
    return True


def _is_running(name: str) -> bool:
    vmi = cluster.get("vmi", "-n", kubevirt.NAMESPACE, name)
    return bool(vmi) and vmi.get("status", {}).get("phase") == "Running"


def _find_qemu(pid: int) -> int | None:
    """Searches the process tree below a pid."""
    try:
        children = [
            int(text) for file in Path(f"/proc/{pid}/task").glob("*/children") for text in file.read_text().split()
        ]
        if (Path(f"/proc/{pid}/comm").read_text().strip()).startswith("qemu-system"):
            return pid
    except FileNotFoundError:
        return None
    return next((found for child in children if (found := _find_qemu(child)) is not None), None)
