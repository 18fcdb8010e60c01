"""KubeVirt as a source of guests: the instances of this node, each with a libvirt daemon in its virt-launcher."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidepool_agent import consent
from tidepool_agent.addresses import interface
from tidepool_agent.errors import Unreachable
from tidepool_agent.provider import Ended, Machine, understood
from tidepool_api import GuestKey, Interface, ObjectKey, Provider, names, parse_quantity
from tidepool_api.fields import total
from tidepool_api.kube import NAMED, Api, Copy, Object
from tidepool_api.kube.resources import FINAL_PHASES, INSTANCES, PODS

NODE_LABEL = "kubevirt.io/nodeName"
LAUNCHER_LABEL = "kubevirt.io=virt-launcher"
GROUP = "kubevirt.io"  # whatever version an older KubeVirt wrote into a pod that still runs
# What KubeVirt itself writes on an instance: where it runs, how it migrates, what its pod was given.
INTERNAL_LABELS = frozenset(
    f"kubevirt.io/{name}"
    for name in (
        "nodeName",
        "migrationTargetNodeName",
        "outdatedLauncherImage",
        "memory-hotplug-overhead-ratio",
        "vmi-pod-cpu-resource-limits",
        "vmi-pod-memory-resource-requests",
    )
)
COMPUTE = "compute"
MAX_INTERFACES = 256  # of an instance, of which the guest may have made as many as it likes
MAX_ADDRESSES = 256  # of all of these
MAX_NAME = 512  # of a network and its namespace, or a UID: more than any has
_ODD_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)(m)?")

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
DAEMONS = frozenset({"virtqemud", "libvirtd"})
SOCKETS = ("run/libvirt/virtqemud-sock", "var/run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock")


class Instances:
    """The instances of one node. `touched` is told which guest a change is about."""

    def __init__(self, api: Api, node: str, proc: Path, touched: Callable[[GuestKey], None]) -> None:
        self.synced = asyncio.Event()
        self._proc, self._touched = proc, touched
        self._odd: set[str] = set()
        labels = f"{NODE_LABEL}={node}"
        self._instances = Copy(GuestKey, api, INSTANCES, self._instance, part=of_instance, labelSelector=labels)
        # Those that have ended leave room for others, so that of such there may be any number.
        where = ",".join((f"spec.nodeName={node}", *(f"status.phase!={phase}" for phase in FINAL_PHASES)))
        self._pods = Copy(
            ObjectKey, api, PODS, self._pod, part=of_pod, labelSelector=LAUNCHER_LABEL, fieldSelector=where
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to follow."""
        self._syncing = loop.create_task(self._sync(loop))

    async def _sync(self, loop: asyncio.AbstractEventLoop) -> None:
        for copy in (self._instances, self._pods):
            copy.start(loop)
        for copy in (self._instances, self._pods):
            await copy.synced.wait()
        self.synced.set()

    def machines(self) -> Mapping[GuestKey, Machine]:
        """The machines that run on this node."""
        found = map(self.machine, self._instances.objects)
        return {one.key: one for one in found if one}

    def machine(self, key: GuestKey) -> Machine | None:
        """The machine of that name, if it runs on this node."""
        vmi = self._instances.objects.get(key)
        return self._understood(vmi) if vmi else None

    def ended(self, key: GuestKey) -> Ended | None:
        """How the instance of that name has ended, if it was on this node."""
        vmi = self._instances.objects.get(key)
        return ended(vmi) if vmi else None

    def endpoint(self, one: Machine) -> str:
        """Where the libvirt daemon of the machine listens."""
        return uri(self._proc, one.place)

    def _understood(self, vmi: Object) -> Machine | None:
        """The machine of an instance; None also of one of which nobody understands what is said."""
        return understood(_name(vmi), self._odd, lambda: machine(vmi, self._pods.objects.values()))

    def _instance(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or self._understood(old) != self._understood(new):
            self._touched(GuestKey.of(new or old or {}))
        if old is not None and new is None:
            self._odd.discard(_name(old))

    def _pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old or {}
        for key, vmi in self._instances.objects.items():
            if launches(pod, vmi):
                self._touched(key)


def _name(vmi: Object) -> str:
    return f"instance {GuestKey.of(vmi)}"


def of_instance(vmi: Object) -> Object:
    """What of an instance is looked at."""
    spec, status = vmi.get("spec") or {}, vmi.get("status") or {}
    interfaces = _reported((status.get("interfaces") or [])[:MAX_INTERFACES])
    return {
        "metadata": _chosen(vmi["metadata"], *NAMED) | {"labels": _labels(vmi["metadata"].get("labels", {}))},
        "spec": {"networks": list(map(_network, (spec.get("networks") or [])[:MAX_INTERFACES]))},
        "status": _chosen(status, "phase", "migrationState") | {"interfaces": interfaces},
    }


def _reported(interfaces: list[Object]) -> list[Object]:
    """What of an instance's interfaces is looked at, with the first of their addresses."""
    left, kept = MAX_ADDRESSES, []
    for one in interfaces:
        addresses = (one.get("ipAddresses") or [])[:left]
        left -= len(addresses)
        kept.append(_chosen(one, "name", "interfaceName", "ipAddress") | {"ipAddresses": addresses})
    return kept


def of_pod(pod: Object) -> Object:
    """What of a pod is looked at; whoever may create one may label it as a virt-launcher, and pad it as he likes."""
    instance = {"apiVersion": names.INSTANCE_API, "kind": names.INSTANCE_KIND, "controller": True}
    owners = [instance | {"uid": uid} for uid in _controllers(pod) if len(uid) <= MAX_NAME]
    compute = {"name": COMPUTE, "resources": {"requests": {"memory": str(_requested(pod))}}}
    return {
        "metadata": _chosen(pod["metadata"], *NAMED, "deletionTimestamp") | {"ownerReferences": owners},
        "spec": {"containers": [compute]},
        "status": _chosen(pod.get("status", {}), "containerStatuses", "podIPs"),
    }


def _network(one: Object) -> Object:
    """What of a network of an instance is looked at."""
    multus = {"multus": {"networkName": _multus(one)[:MAX_NAME]}} if "multus" in one else {}
    return {"name": str(one.get("name", ""))[:MAX_NAME]} | ({"pod": {}} if "pod" in one else {}) | multus


def _chosen(fields: Object, *names: str) -> Object:
    return {name: fields[name] for name in names if name in fields}


def launches(pod: dict[str, Any], vmi: dict[str, Any]) -> bool:
    """Whether a pod is an instance's virt-launcher: the instance controls it, and both are of one namespace.

    A label proves nothing: whoever may create a pod anywhere may give it any.
    """
    meta = vmi["metadata"]
    return pod["metadata"].get("namespace") == meta["namespace"] and meta["uid"] in _controllers(pod)


def _controllers(pod: Object) -> list[str]:
    """The UIDs of the instances that control a pod: one at most."""
    return [
        one["uid"]
        for one in pod["metadata"].get("ownerReferences", [])
        if one.get("controller") is True
        and (one["apiVersion"].partition("/")[0], one["kind"]) == (GROUP, names.INSTANCE_KIND)
    ]


def machine(vmi: dict[str, Any], pods: Iterable[dict[str, Any]]) -> Machine | None:
    """The machine of an instance, if it runs and its virt-launcher is on this node.

    One that has come back may find the virt-launcher there that it left, which is being deleted.
    """
    metadata = vmi["metadata"]
    launchers = [pod for pod in pods if launches(pod, vmi) and _container(pod)]
    launcher = min(launchers, key=lambda pod: "deletionTimestamp" in pod["metadata"], default=None)
    if vmi.get("status", {}).get("phase") != "Running" or launcher is None:
        return None
    return Machine(
        provider=Provider.KUBEVIRT,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        domain=f"{metadata['namespace']}_{metadata['name']}",
        place=_container(launcher),
        addresses=_addresses(vmi, launcher),
        request_bytes=_requested(launcher),
        interfaces=tuple(_interfaces(vmi, launcher)),
        migrating=_migrates(vmi),
        labels=_labels(metadata.get("labels", {})),
        owner={
            "apiVersion": names.INSTANCE_API,
            "kind": names.INSTANCE_KIND,
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    )


def _labels(said: Mapping[str, str]) -> dict[str, str]:
    """Those of its owner."""
    return consent.kept({key: value for key, value in said.items() if key not in INTERNAL_LABELS})


def ended(vmi: dict[str, Any]) -> Ended | None:
    """How an instance has ended: as its guest wished, or not. It is there until somebody deletes it."""
    phase = vmi.get("status", {}).get("phase", "")
    return Ended(vmi["metadata"]["uid"], f"VMI {vmi['metadata']['name']} is {phase}") if phase in FINAL_PHASES else None


def _migrates(vmi: dict[str, Any]) -> bool:
    """Whether a live migration has been handed over to nodes, and not ended in one way or the other.

    Its target is prepared then; the copying begins some seconds later.
    """
    state = vmi.get("status", {}).get("migrationState") or {}
    ended = state.get("endTimestamp") or state.get("completed") or state.get("failed")
    return bool(state.get("targetPod")) and not ended


def _container(pod: dict[str, Any]) -> str:
    """The id of the compute container, if it runs."""
    for container in pod.get("status", {}).get("containerStatuses", []):
        if container["name"] == COMPUTE and "running" in container.get("state", {}):
            return str(container.get("containerID", "")).rpartition("/")[2]
    return ""


def _requested(pod: dict[str, Any]) -> int:
    """What the compute container requests of the node's memory, huge pages included."""
    compute: Object = next((one for one in pod.get("spec", {}).get("containers", []) if one["name"] == COMPUTE), {})
    requests = compute.get("resources", {}).get("requests", {})
    return total(_bytes(one) for name, one in requests.items() if name == "memory" or name.startswith("hugepages-"))


def _bytes(amount: str) -> int:
    """An amount of memory in any form that the API server takes: with a unit, in thousandths, or with an exponent."""
    with contextlib.suppress(ValueError):
        return parse_quantity(amount)
    match = _ODD_AMOUNT.fullmatch(amount)
    return int(Decimal(match[1]) / (1000 if match[2] else 1)) if match else 0


def _addresses(vmi: dict[str, Any], launcher: dict[str, Any]) -> tuple[str, ...]:
    """Those of the first interface that has any, and those of the pod.

    They are the same most of the time. For a while KubeVirt may report what the guest calls itself behind its pod.
    """
    interfaces = (_of_interface(one) for one in vmi.get("status", {}).get("interfaces", []))
    return tuple(dict.fromkeys([*next(filter(None, interfaces), []), *_of_pod(launcher)]))


def _interfaces(vmi: dict[str, Any], launcher: dict[str, Any]) -> Iterator[Interface]:
    """All of them: those of the instance, whether they have an address yet or not, and others that the guest has made.

    Only those of the instance have a network that the guest does not choose.
    """
    networks = {one["name"]: one for one in vmi.get("spec", {}).get("networks", [])}
    multus = {name: _qualified(_multus(one), vmi["metadata"]["namespace"]) for name, one in networks.items()}
    reported = vmi.get("status", {}).get("interfaces", [])
    for one in reported:
        name = one.get("name", "")
        yield interface(name or one.get("interfaceName", ""), _of_interface(one), multus.get(name, ""))
    told = {one.get("name") for one in reported}
    for name in (one for one in networks if one not in told):
        yield interface(name, (), multus[name])
    if not networks or any("pod" in one for one in networks.values()):
        yield interface("pod", _of_pod(launcher))


def _multus(network: Object) -> str:
    """What Multus calls a network of an instance; nothing of one that is not Multus'."""
    return str((network.get("multus") or {}).get("networkName", ""))


def _qualified(name: str, namespace: str) -> str:
    """With the namespace that it is in."""
    return name if "/" in name or not name else f"{namespace}/{name}"


def _of_pod(launcher: dict[str, Any]) -> list[str]:
    return [one["ip"] for one in launcher.get("status", {}).get("podIPs", [])]


def _of_interface(interface: dict[str, Any]) -> list[str]:
    return [one for one in (interface.get("ipAddress"), *interface.get("ipAddresses", [])) if one]


def uri(proc: Path, container: str) -> str:
    """Where the libvirt daemon in a container listens; looked up for each connection, because daemons restart."""
    pid = _daemon(proc, container)
    for name in SOCKETS:
        root = proc / str(pid) / "root"
        if is_socket_in(root, name):
            return f"qemu+unix:///session?socket={root / name}"
    raise Unreachable(f"the libvirt daemon of container {container[:12]} has no socket yet", "HypervisorUnreachable")


def _daemon(proc: Path, container: str) -> int:
    for folder in proc.iterdir():
        if (
            folder.name.isdigit()
            and _text(folder / "comm").strip() in DAEMONS
            and container in _text(folder / "cgroup")
        ):
            return int(folder.name)
    raise Unreachable(f"container {container[:12]} has no libvirt daemon (yet)", "HypervisorUnreachable")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # the process has ended
        return ""


def is_socket(path: Path) -> bool:
    """Whether somebody may listen there; raises Unreachable where nobody lets us look."""
    return _is_socket(path, path.stat)


def is_socket_in(root: Path, name: str) -> bool:
    """The same of a place in a container, reached by no link: one may lead to what others serve.

    Whoever has a shell in a virt-launcher may put links there, and the agent may go where they cannot.
    """
    return _is_socket(root / name, lambda: _seen_without_links(root, name))


def _is_socket(path: Path, look: Callable[[], os.stat_result]) -> bool:
    try:
        return stat.S_ISSOCK(look().st_mode)
    except PermissionError:
        raise Unreachable(
            f"the agent may not look at {path}: it lacks SYS_PTRACE or DAC_OVERRIDE, or a security module forbids it",
            "HypervisorUnreachable",
        ) from None
    except OSError:
        return False


def _seen_without_links(root: Path, name: str) -> os.stat_result:
    *folders, last = name.split("/")
    with contextlib.ExitStack() as opened:
        at = os.open(root, _FOLDER)
        opened.callback(os.close, at)
        for one in folders:
            at = os.open(one, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            opened.callback(os.close, at)
        return os.stat(last, dir_fd=at, follow_symlinks=False)
