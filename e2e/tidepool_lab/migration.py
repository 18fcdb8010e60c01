"""Live migration of a guest between two nodes: what virt-controller and both virt-handlers would do.

The guest's memory is copied by QEMU, from the virt-launcher where it runs to a fresh one on the other node, while it
goes on. Both have the same disks: they are folders of one machine. Its address is another one afterwards, as with
KubeVirt's masquerade binding.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import libvirt

from tidepool_lab import cluster, guests, kubevirt, paths, shell
from tidepool_lab.nodes import Node
from tidepool_lab.progress import LabError, say, step
from tidepool_lab.spec import GuestSpec

MARK = "migrating"  # a file that is there meanwhile
PORT = 49152
# The disks' caches are the host's, the same for both: libvirt cannot know that.
FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_UNSAFE
)
BANDWIDTH = 64  # MiB/s: KubeVirt's `bandwidthPerMigration`; a guest of a lab would be there before anybody knows
PATIENCE = 300  # until the guest takes commands again; a busy machine is slow to
ENDED = ("startTimestamp", "endTimestamp", "completed", "failed", "failureReason")


@dataclass(frozen=True)
class Copied:
    """What the copying of a guest's memory took, as QEMU counts it."""

    arrived: float  # by the host's clock
    seconds: float
    paused_ms: int
    transferred: int  # bytes, of all rounds
    memory: int  # bytes that the guest has
    rounds: int

    def __str__(self) -> str:
        mib = self.transferred / (1 << 20)
        return f"{mib:.0f} MiB in {self.seconds:.1f} s and {self.rounds} rounds, paused for {self.paused_ms} ms"


def migrate(name: str, node: Node, *, announced: bool = True) -> Copied:
    """Moves a guest; when that fails it goes on where it is.

    Of one that is not `announced` its instance says nothing until it has arrived, to measure what is done for it
    meanwhile.
    """
    source = guests.launcher_of(name)
    if source is None:
        raise LabError(f"there is no guest {name!r}")
    if source.node == node:
        raise LabError(f"guest {name!r} is on {node.name} already")
    spec = GuestSpec.load(paths.GUESTS / name / "spec.json")
    mark = paths.GUESTS / name / MARK
    mark.touch()
    try:
        with step(f"migrating {name} from {source.node.name} to {node.name}"):
            copied = _migrate(spec, source, node, announced=announced)
    finally:
        mark.unlink()
    say(f"{name}: {copied}")
    return copied


def _migrate(spec: GuestSpec, source: guests.Launcher, node: Node, *, announced: bool) -> Copied:
    vmi = cluster.get("vmi", "-n", kubevirt.NAMESPACE, spec.name)
    target = guests.start_launcher(vmi, spec, node)
    state = _handed_over(source, target)
    if announced:
        _patch(spec.name, {"status": {"migrationState": state, "activePods": {target.pod_uid: node.name}}})
    guests.prepare(target, spec)
    state |= {"startTimestamp": _now(), "targetNodeAddress": target.pod_ip}
    if announced:
        _patch(spec.name, {"status": {"migrationState": state}})
    try:
        copied = _copy(spec.name, source, target)
    except libvirt.libvirtError as error:
        ended = {"endTimestamp": _now(), "failed": True, "failureReason": str(error)}
        _patch(spec.name, {"status": {"migrationState": state | ended, "activePods": {target.pod_uid: None}}})
        _delete(target)
        raise LabError(f"guest {spec.name}: {error}") from error
    _arrived(spec.name, source, target, state | {"endTimestamp": _now(), "completed": True})
    shell.disconnect(spec.name)
    guests.take(spec, target, PATIENCE)
    _delete(source)
    return copied


def _handed_over(source: guests.Launcher, target: guests.Launcher) -> dict[str, Any]:
    """What an instance's status says of its migration once its new pod runs, and no more of the one before."""
    return {
        **dict.fromkeys(ENDED),
        "migrationUid": str(uuid.uuid4()),
        "mode": "PreCopy",
        "sourceNode": source.node.name,
        "sourcePod": source.pod,
        "targetNode": target.node.name,
        "targetPod": target.pod,
    }


def _copy(name: str, source: guests.Launcher, target: guests.Launcher) -> Copied:
    """QEMU's own migration, from the one to the other."""
    there, here = guests.connect(target), guests.connect(source)
    try:
        where = {
            libvirt.VIR_MIGRATE_PARAM_URI: f"tcp://{target.pod_ip}:{PORT}",
            libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS: "0.0.0.0",  # inside the pod
            libvirt.VIR_MIGRATE_PARAM_BANDWIDTH: BANDWIDTH,
        }
        here.lookupByName(kubevirt.domain_name(name)).migrate3(there, where, FLAGS)
        return _copied(there.lookupByName(kubevirt.domain_name(name)))
    finally:
        there.close()
        here.close()


def _copied(domain: libvirt.virDomain) -> Copied:
    """What libvirt has kept of the migration by which a domain came."""
    found = domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    return Copied(
        arrived=time.time(),
        seconds=found["time_elapsed"] / 1000,
        paused_ms=found["downtime"],
        transferred=found["memory_processed"],
        memory=found["memory_total"],
        rounds=found["memory_iteration"],
    )


def _arrived(name: str, source: guests.Launcher, target: guests.Launcher, state: dict[str, Any]) -> None:
    """The instance is on its new node, with the address of its new pod."""
    interfaces = cluster.get("vmi", "-n", kubevirt.NAMESPACE, name)["status"]["interfaces"]
    interfaces[0] |= {"ipAddress": target.pod_ip, "ipAddresses": [target.pod_ip]}
    status = {
        "nodeName": target.node.name,
        "interfaces": interfaces,
        "migrationState": state,
        "activePods": {source.pod_uid: None, target.pod_uid: target.node.name},
    }
    _patch(name, {"metadata": {"labels": {"kubevirt.io/nodeName": target.node.name}}, "status": status})


def _patch(name: str, patch: dict[str, Any]) -> None:
    cluster.kubectl("patch", "vmi", "-n", kubevirt.NAMESPACE, name, "--type=merge", "-p", json.dumps(patch))


def _delete(launcher: guests.Launcher) -> None:
    cluster.kubectl("delete", "pod", "-n", kubevirt.NAMESPACE, launcher.pod, "--ignore-not-found", "--timeout=60s")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
