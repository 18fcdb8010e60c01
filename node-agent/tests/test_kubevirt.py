"""KubeVirt's objects and processes as a source of guests."""

from __future__ import annotations

import copy
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidepool_agent import consent, kubevirt
from tidepool_agent.addresses import interface
from tidepool_agent.errors import Unreachable
from tidepool_api import GuestKey, names
from tidepool_api.fields import MOST_BYTES
from tidepool_api.kube import Access, Api

VMI: dict[str, Any] = {
    "metadata": {
        "name": "vm1",
        "namespace": "ns",
        "uid": "u1",
        "labels": {"app": "db", "vm.kubevirt.io/name": "vm1", "kubevirt.io/nodeName": "node1"},
    },
    "status": {
        "phase": "Running",
        "interfaces": [{"name": "default", "ipAddress": "10.1.0.5", "ipAddresses": ["10.1.0.5", "fd00::5"]}],
    },
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "virt-launcher-vm1-x",
        "namespace": "ns",
        "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "u1"},
        "ownerReferences": [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "name": "vm1",
                "uid": "u1",
                "controller": True,
            }
        ],
    },
    "status": {
        "containerStatuses": [
            {"name": "guest-console-log", "containerID": "containerd://no", "state": {"running": {}}},
            {"name": "compute", "containerID": "containerd://c0ffee", "state": {"running": {"startedAt": "now"}}},
        ]
    },
}


def without(document: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    change(changed)
    return changed


def owned(**changes: Any) -> dict[str, Any]:
    """A launcher pod with another owner."""
    return without(POD, lambda d: d["metadata"]["ownerReferences"][0].update(changes))


def test_a_running_instance_is_a_machine() -> None:
    machine = kubevirt.machine(VMI, [POD])
    assert machine is not None
    assert (machine.key, machine.uid, machine.domain, machine.place) == (("ns", "vm1"), "u1", "ns_vm1", "c0ffee")
    assert machine.addresses == ("10.1.0.5", "fd00::5")
    assert dict(machine.labels) == {"app": "db", "vm.kubevirt.io/name": "vm1"}
    assert machine.owner["uid"] == "u1"


def test_what_is_kept_of_instances_and_pods_is_all_that_is_looked_at() -> None:
    """And no more: their authors pad them as they like, and the agent keeps those of its node."""
    pad = "x" * 100_000
    networks = [{"name": "default", "pod": {"vmNetworkCIDR": pad}}, {"name": "n", "multus": {"networkName": "pages"}}]
    going = {"targetPod": "p"}
    vmi = without(VMI, lambda d: (d.update(spec={"networks": networks}), d["status"].update(migrationState=going)))
    requests = {"memory": "1Gi", "hugepages-2Mi": "1Gi"} | {f"example.com/{at}": "1" for at in range(1000)}
    resources = {"requests": requests, "limits": requests}
    compute = {"name": "compute", "resources": resources, "env": [{"name": "PAD", "value": pad}]}
    pod = without(POD, lambda d: d.update(spec={"containers": [{"name": "pad", "args": [pad]}, compute]}))
    for one in (vmi, pod):
        one["metadata"] |= {"resourceVersion": "7", "annotations": {"pad": pad}, "managedFields": [{}] * 1000}
    (owner,) = pod["metadata"]["ownerReferences"]
    pod["metadata"]["ownerReferences"] += [owner | {"uid": pad}, owner | {"kind": "Pod", "controller": True}]
    pod["metadata"]["ownerReferences"] += [{"kind": "ConfigMap", "name": f"c{at}", "uid": "x"} for at in range(1000)]
    owner["apiVersion"] = f"kubevirt.io/{pad}"
    part, launcher = kubevirt.of_instance(vmi), kubevirt.of_pod(pod)
    assert kubevirt.machine(part, [launcher]) == kubevirt.machine(vmi, [pod]) is not None
    assert len(json.dumps([part, launcher])) < 2000
    many = without(vmi, lambda d: d["metadata"].update(labels={f"l{at}": "" for at in range(1000)}))
    many["spec"]["networks"] = [{"name": f"{at}{pad}", "multus": {"networkName": pad}} for at in range(1000)]
    assert len(json.dumps(kubevirt.of_instance(many))) < kubevirt.MAX_INTERFACES * (2 * kubevirt.MAX_NAME + 100)
    ended = without(VMI, lambda d: d["status"].update(phase="Failed"))
    assert kubevirt.ended(kubevirt.of_instance(ended)) == kubevirt.ended(ended) is not None


def test_a_guest_has_so_many_labels_at_most() -> None:
    """Tidepool's own, which keep it out of a guest, and then the first ones by name."""
    many = {f"l{at:04}": "" for at in range(1000)} | {names.EXCLUDE_LABEL: "true"}
    vmi = without(VMI, lambda d: d["metadata"]["labels"].update(many))
    for one in (vmi, kubevirt.of_instance(vmi)):
        machine = kubevirt.machine(one, [POD])
        assert machine is not None
        assert sorted(machine.labels) == [
            "app",
            *(f"l{at:04}" for at in range(consent.MAX_LABELS - 2)),
            names.EXCLUDE_LABEL,
        ]


def test_a_guest_that_invents_interfaces_costs_no_more_than_so_many() -> None:
    found = [{"interfaceName": f"veth{at}", "ipAddress": f"10.0.{at // 256}.{at % 256}"} for at in range(5000)]
    vmi = without(VMI, lambda d: d["status"].update(interfaces=found))
    assert len(kubevirt.of_instance(vmi)["status"]["interfaces"]) == kubevirt.MAX_INTERFACES
    addresses = [f"fe80::{at:x}" for at in range(25_000)]
    many = [{"name": name, "ipAddresses": addresses, "pad": "x" * 100_000} for name in ("default", "other")]
    vmi = without(VMI, lambda d: d["status"].update(interfaces=many))
    first, second = kubevirt.of_instance(vmi)["status"]["interfaces"]
    assert (first["ipAddresses"], second["ipAddresses"]) == (addresses[: kubevirt.MAX_ADDRESSES], [])
    assert len(json.dumps([first, second])) < 10_000
    odd = {"networks": [{}, {"multus": None}, {"name": "n", "multus": {}}]}
    bare = {"spec": None, "status": {"phase": "Running", "interfaces": None}}
    for nothing in ({}, {"status": None}, {"spec": odd}, bare):
        assert kubevirt.machine(kubevirt.of_instance(without(VMI, lambda d, n=nothing: d.update(n))), []) is None


def test_the_addresses_of_its_pod_are_of_use_too() -> None:
    """KubeVirt may report what the guest calls itself behind its pod, or nothing yet."""
    pod = without(POD, lambda d: d["status"].update(podIPs=[{"ip": "10.1.0.5"}, {"ip": "fd00::5"}]))
    for said, known in (
        (["10.0.2.2"], ("10.0.2.2", "10.1.0.5", "fd00::5")),
        (["fd00::5"], ("fd00::5", "10.1.0.5")),
        ([], ("10.1.0.5", "fd00::5")),
    ):
        interfaces = [{"name": "default", "ipAddresses": said}]
        vmi = without(VMI, lambda d, found=interfaces: d["status"].update(interfaces=found))
        machine = kubevirt.machine(vmi, [pod])
        assert machine is not None
        assert machine.addresses == known


def test_each_interface_is_known_with_its_network() -> None:
    """By the instance, which says what is where; a network whose address is not known yet, and what the guest has made.

    Only Multus networks have a name, and one without a namespace is of the instance's own. What the guest calls an
    interface puts it on no network.
    """
    networks: list[dict[str, Any]] = [
        {"name": "default", "pod": {}},
        {"name": "pages", "multus": {"networkName": "storage/pages"}},
        {"name": "backup", "multus": {"networkName": "backup"}},
    ]
    reported = [
        {"name": "default", "ipAddress": "10.1.0.5", "ipAddresses": ["10.1.0.5"]},
        {"name": "pages", "ipAddress": "10.20.0.5", "ipAddresses": ["10.20.0.5", "fe80::5"]},
        {"interfaceName": "backup", "ipAddress": "172.17.0.1"},
    ]
    vmi = without(VMI, lambda d: d.update(spec={"networks": networks}))
    vmi["status"]["interfaces"] = reported
    pod = without(POD, lambda d: d["status"].update(podIPs=[{"ip": "10.1.0.5"}]))
    machine = kubevirt.machine(vmi, [pod])
    assert machine is not None
    assert machine.addresses == ("10.1.0.5",)
    assert machine.interfaces == (
        interface("default", ["10.1.0.5"]),
        interface("pages", ["10.20.0.5"], "storage/pages"),
        interface("backup", ["172.17.0.1"]),
        interface("backup", [], "ns/backup"),
        interface("pod", ["10.1.0.5"]),
    )


def test_a_pod_whose_network_its_guest_has_not_is_no_way_to_it() -> None:
    vmi = without(VMI, lambda d: d.update(spec={"networks": [{"name": "pages", "multus": {"networkName": "a/b"}}]}))
    pod = without(POD, lambda d: d["status"].update(podIPs=[{"ip": "10.1.0.9"}]))
    machine = kubevirt.machine(vmi, [pod])
    assert machine is not None
    assert "10.1.0.9" not in {address for one in machine.interfaces for address in one.addresses}


@pytest.mark.parametrize(
    ("state", "migrating"),
    [
        (None, False),
        ({"migrationUid": "m1"}, False),
        ({"targetPod": "p2", "targetNode": "node2"}, True),
        ({"targetPod": "p2", "startTimestamp": "2026-11-27T07:00:00Z"}, True),
        ({"targetPod": "p2", "endTimestamp": "2026-11-27T07:01:00Z", "completed": True}, False),
        ({"targetPod": "p2", "startTimestamp": "2026-11-27T07:00:00Z", "failed": True}, False),
    ],
)
def test_a_live_migration_is_known_from_its_preparation_to_its_end(
    state: dict[str, Any] | None, *, migrating: bool
) -> None:
    machine = kubevirt.machine(without(VMI, lambda d: d["status"].update(migrationState=state)), [POD])
    assert machine is not None
    assert machine.migrating == migrating


def test_the_pod_that_an_instance_left_is_not_where_it_is() -> None:
    """It has come back before that is gone."""
    left = without(POD, lambda d: d["metadata"].update(deletionTimestamp="2026-11-27T07:00:00Z"))
    left["status"]["containerStatuses"][1]["containerID"] = "containerd://left"
    for pods in ([left, POD], [POD, left]):
        machine = kubevirt.machine(VMI, pods)
        assert machine is not None
        assert machine.place == "c0ffee"


def test_an_instance_that_nobody_understands_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, by its name, and is there again when it is understood; of one that is gone nothing is kept."""
    touched: list[GuestKey] = []
    instances = kubevirt.Instances(Api(Access("https://127.0.0.1:1")), "n1", Path("/proc"), touched.append)
    vmis, pods = instances._instances, instances._pods  # noqa: SLF001 - as their watches fill them
    odd = without(VMI, lambda d: d["status"]["interfaces"][0].update(ipAddresses=5))
    good, evil, other = GuestKey("ns", "good"), GuestKey("ns", "evil"), GuestKey("ns", "other")

    def named(key: GuestKey, document: dict[str, Any]) -> dict[str, Any]:
        return without(document, lambda d: d["metadata"].update(name=key.name, uid=key.name))

    for at, key in enumerate((evil, good, other)):
        owner = owned(name=key.name, uid=key.name)
        pods._put(without(owner, lambda d, at=at: d["metadata"].update(name=f"p{at}")))  # noqa: SLF001
        vmis._put(named(key, VMI))  # noqa: SLF001
    assert instances.machines().keys() == {good, evil, other}
    vmis._replace([named(evil, odd), named(good, VMI), named(other, VMI)])
    assert vmis.synced.is_set()
    assert touched[-1] == evil
    for _ in range(2):
        assert (instances.machines().keys(), instances.machine(evil)) == ({good, other}, None)
    assert [one.getMessage().partition(" is ")[0] for one in caplog.records] == ["instance ns/evil"]
    vmis._put(named(evil, VMI))  # noqa: SLF001
    assert (instances.machines().keys(), touched[-1]) == ({good, evil, other}, evil)
    vmis._put(named(evil, odd))  # noqa: SLF001
    assert len(caplog.records) == 2
    vmis._remove(evil)  # noqa: SLF001
    assert instances._odd == set()  # noqa: SLF001


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        ({}, 0),
        ({"cpu": "1", "memory": "1284Mi", "ephemeral-storage": "1Gi"}, 1284 << 20),
        ({"memory": "300Mi", "hugepages-2Mi": "2Gi"}, 2348 << 20),
        ({"memory": "1283457024"}, 1283457024),
        ({"memory": "107374182400m"}, 107374182),  # what the API server makes of 0.1Gi
        ({"memory": "129e6"}, 129_000_000),
        ({"memory": "lots"}, 0),
        ({"memory": "9223372036854775807"}, MOST_BYTES),
    ],
)
def test_what_its_pod_requests_of_the_node(requests: dict[str, str], found: int) -> None:
    """In its compute container, in which QEMU runs; the others do not count."""
    others = {"name": "guest-console-log", "resources": {"requests": {"memory": "8Gi"}}}
    compute = {"name": "compute", "resources": {"requests": requests}}
    machine = kubevirt.machine(VMI, [POD | {"spec": {"containers": [others, compute]}}])
    assert machine is not None
    assert machine.request_bytes == found


def test_its_labels_are_the_users() -> None:
    """Issue 28, fault 14: those under KubeVirt's own name, too, as its examples have them.

    But not what KubeVirt notes of the instance.
    """
    users = {"kubevirt.io/domain": "db", "kubevirt.io/vm": "db", "kubevirt.io/size": "small"}
    noted = ("nodeName", "migrationTargetNodeName", "outdatedLauncherImage", "vmi-pod-memory-resource-requests")
    labels = users | {f"kubevirt.io/{one}": "x" for one in noted}
    machine = kubevirt.machine(without(VMI, lambda d: d["metadata"].update(labels=labels)), [POD])
    assert machine is not None
    assert dict(machine.labels) == users


@pytest.mark.parametrize(
    ("vmi", "pods"),
    [
        (VMI, []),
        (without(VMI, lambda d: d["status"].update(phase="Failed")), [POD]),
        (without(VMI, lambda d: d.pop("status")), [POD]),
        (VMI, [owned(uid="u2")]),
        (VMI, [without(POD, lambda d: d["status"]["containerStatuses"][1].update(state={"terminated": {}}))]),
        (VMI, [without(POD, lambda d: d.pop("status"))]),
    ],
    ids=["no pod", "failed", "no status", "another's pod", "container ended", "pod pending"],
)
def test_what_does_not_run_here_is_none(vmi: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    assert kubevirt.machine(vmi, pods) is None


@pytest.mark.parametrize(
    "pod",
    [
        without(POD, lambda d: d["metadata"].pop("ownerReferences")),
        without(POD, lambda d: d["metadata"].update(namespace="theirs")),
        owned(controller=False),
        owned(kind="Pod"),
        owned(apiVersion="example.org/v1"),
    ],
    ids=["label only", "another namespace", "no controller", "another kind", "another group"],
)
def test_a_pod_that_only_says_that_it_is_the_launcher_is_not_believed(pod: dict[str, Any]) -> None:
    assert kubevirt.machine(VMI, [pod]) is None
    machine = kubevirt.machine(VMI, [pod, POD])
    assert machine is not None
    assert machine.place == "c0ffee"


@pytest.fixture
def proc() -> Iterator[Path]:
    """A /proc with some processes; a socket's path has to be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder)
        process(root, 1, "systemd", "0::/init.scope")
        process(root, 20, "libvirtd", "0::/kubepods/pod1/other")
        process(root, 30, "qemu-system-x86", "0::/kubepods/pod1/c0ffee")
        (root / "version").write_text("Linux")
        yield root


def process(root: Path, pid: int, comm: str, cgroup: str) -> Path:
    folder = root / str(pid)
    folder.mkdir()
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "cgroup").write_text(f"{cgroup}\n")
    return folder


@pytest.mark.parametrize("comm", ["virtqemud", "libvirtd"])
@pytest.mark.parametrize("cgroup", ["0::/../cri-containerd-c0ffee.scope", "5:memory:/kubepods/pod1/c0ffee\n1:cpu:/x"])
@pytest.mark.parametrize("run", ["run", "var/run"])
def test_the_daemon_of_a_container_is_found_by_its_cgroup(proc: Path, comm: str, cgroup: str, run: str) -> None:
    path = process(proc, 31, comm, cgroup) / "root" / run / "libvirt/virtqemud-sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert kubevirt.uri(proc, "c0ffee") == f"qemu+unix:///session?socket={path}"


def test_a_container_without_daemon_or_socket_is_not_reachable_yet(proc: Path) -> None:
    with pytest.raises(Unreachable, match="no libvirt daemon"):
        kubevirt.uri(proc, "c0ffee")
    process(proc, 31, "virtqemud", "0::/c0ffee")
    with pytest.raises(Unreachable, match="no socket"):
        kubevirt.uri(proc, "c0ffee")


@pytest.mark.parametrize("link", ["run", "run/libvirt", "run/libvirt/virtqemud-sock"])
def test_no_link_leads_out_of_a_container(proc: Path, link: str) -> None:
    """Its owner may put some there, and the agent would talk to another guest's daemon, or to whatever the host has."""
    root, theirs = process(proc, 31, "virtqemud", "0::/c0ffee") / "root", proc / "theirs"
    way = Path(link)
    place = theirs / Path("run/libvirt/virtqemud-sock").relative_to(way)
    (root / way.parent).mkdir(parents=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place if place != theirs else theirs))
        (root / way).symlink_to(theirs)
        assert (root / "run/libvirt/virtqemud-sock").is_socket()
        with pytest.raises(Unreachable, match="no socket"):
            kubevirt.uri(proc, "c0ffee")


def test_whoever_may_not_look_says_so(proc: Path) -> None:
    """Without its capabilities the agent sees no socket, and that is not because there is none yet."""
    (process(proc, 31, "virtqemud", "0::/c0ffee") / "root").mkdir(mode=0)
    proc.chmod(0o755)
    user = os.geteuid()
    os.seteuid(user or 65532)
    try:
        with pytest.raises(Unreachable, match="the agent may not look at"):
            kubevirt.uri(proc, "c0ffee")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(("phase", "words"), [("Failed", "VMI g is Failed"), ("Succeeded", "VMI g is Succeeded")])
def test_an_instance_that_has_ended_says_so_in_kubevirts_word(phase: str, words: str) -> None:
    vmi = without(VMI, lambda d: d["status"].update(phase=phase) or d["metadata"].update(name="g"))
    found = kubevirt.ended(vmi)
    assert found is not None
    assert (found.uid, found.words) == (VMI["metadata"]["uid"], words)
    assert kubevirt.machine(vmi, [POD]) is None


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Scheduled", "Running", "Unknown"])
def test_any_other_has_not(phase: str) -> None:
    assert kubevirt.ended(without(VMI, lambda d: d["status"].update(phase=phase))) is None
