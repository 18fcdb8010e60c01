"""KubeVirt's side of a guest, written out: its CRDs, the VirtualMachineInstance, the virt-launcher pod, the domain XML.

The functions are pure; who calls them with what is in `guests` and `watcher`.
"""

from __future__ import annotations

import secrets
import time
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import yaml

from tidepool_lab import cluster, gotools, guest_image, host, images, pages_network
from tidepool_lab.nodes import Node
from tidepool_lab.spec import GuestSpec

NAMESPACE = "default"
API = "kubevirt.io/v1"
# Short names, and whether the kind has a status subresource, as KubeVirt's own operator installs them.
KINDS = {
    "virtualmachines": (["vm", "vms"], True),
    "virtualmachineinstances": (["vmi", "vmis"], False),
    "virtualmachineinstancemigrations": (["vmim", "vmims"], True),
}
COLUMNS = {
    "virtualmachines": [
        ("Age", "date", ".metadata.creationTimestamp"),
        ("Status", "string", ".status.printableStatus"),
    ],
    "virtualmachineinstances": [
        ("Age", "date", ".metadata.creationTimestamp"),
        ("Phase", "string", ".status.phase"),
        ("IP", "string", ".status.interfaces[0].ipAddress"),
        ("NodeName", "string", ".status.nodeName"),
    ],
}
# libvirtd in session mode is what Debian has in place of virtqemud; a shell stays first to reap what QEMU leaves.
# Each has a host's UUID of its own: libvirt migrates to no other daemon of what it takes for the same host.
LAUNCHER_SCRIPT = (
    "mkdir -p /run/libvirt /run/vm/libvirt && ln -sf libvirt-sock /run/libvirt/virtqemud-sock"
    " && echo host_uuid = '\"'$(cat /proc/sys/kernel/random/uuid)'\"' > /run/vm/libvirt/libvirtd.conf"
    " && virtlogd -d -p /run/libvirt/virtlogd.pid"
    " && { libvirtd --timeout 0 -p /run/libvirt/libvirtd.pid & }"
    " && trap 'kill $!' TERM && wait $!"
)
VM_FOLDER, IMAGE_FOLDER = "/vm", "/vm-image"


def install_crds() -> None:
    """Applies KubeVirt's CRDs."""
    cluster.apply(*crds(gotools.kubevirt_crds()))
    for plural in KINDS:
        host.wait_until(f"the kind {plural}", partial(cluster.succeeds, "get", f"{plural}.kubevirt.io", "-A"), 30)


def crds(folder: Path) -> list[dict[str, Any]]:
    """The generated CRDs, completed as KubeVirt completes them."""
    found = []
    for file in sorted(folder.glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        if crd["spec"]["names"]["plural"] in KINDS:
            found.append(_completed(crd))
    return found


def _completed(crd: dict[str, Any]) -> dict[str, Any]:
    names = crd["spec"]["names"]
    short, has_status = KINDS[names["plural"]]
    names |= {"shortNames": short, "categories": ["all"]}
    for version in crd["spec"]["versions"]:
        if has_status:
            version["subresources"] = {"status": {}}
        columns = COLUMNS.get(names["plural"], [])
        version["additionalPrinterColumns"] = [{"name": n, "type": t, "jsonPath": path} for n, t, path in columns]
        schema = version["schema"]["openAPIV3Schema"]
        schema["required"] = [name for name in schema.get("required", []) if name != "status"]
    return crd


def instance(spec: GuestSpec, node: Node) -> dict[str, Any]:
    """The VirtualMachineInstance."""
    disks = [{"name": "root", "disk": {"bus": "virtio"}}]
    volumes: list[dict[str, Any]] = [
        {"name": "root", "containerDisk": {"image": f"tidepool.local/debian:{spec.kernel}"}}
    ]
    if spec.disk:
        disks.append({"name": "data", "disk": {"bus": "virtio"}})
        volumes.append({"name": "data", "hostDisk": {"path": f"{VM_FOLDER}/data.img", "type": "Disk"}})
    interfaces: list[dict[str, Any]] = [{"name": "default", "masquerade": {}}]
    networks: list[dict[str, Any]] = [{"name": "default", "pod": {}}]
    if spec.on_pages_network:
        interfaces.append({"name": pages_network.NAME, "bridge": {}})
        networks.append({"name": pages_network.NAME, "multus": {"networkName": pages_network.MULTUS}})
    return {
        "apiVersion": API,
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": spec.name,
            "namespace": NAMESPACE,
            "labels": {"vm.kubevirt.io/name": spec.name, "kubevirt.io/nodeName": node.name, **spec.labels},
        },
        "spec": {
            "domain": {
                "cpu": {"cores": spec.cpus},
                "memory": {"guest": str(spec.memory)},
                "devices": {"disks": disks, "interfaces": interfaces, "rng": {}},
            },
            "networks": networks,
            "volumes": volumes,
        },
    }


def pod_name(vmi: dict[str, Any]) -> str:
    """A launcher pod's name, another one each time."""
    return f"virt-launcher-{vmi['metadata']['name']}-{secrets.token_hex(3)}"


def launcher_pod(vmi: dict[str, Any], spec: GuestSpec, folder: Path, image: Path, node: Node) -> dict[str, Any]:
    """The virt-launcher pod on a node, unprivileged as KubeVirt's is."""
    name, uid = vmi["metadata"]["name"], vmi["metadata"]["uid"]
    env = {"XDG_RUNTIME_DIR": "/run", "XDG_CACHE_HOME": "/run/vm", "XDG_CONFIG_HOME": "/run/vm", "HOME": "/run/vm"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(vmi),
            "namespace": NAMESPACE,
            "labels": {
                "kubevirt.io": "virt-launcher",
                "kubevirt.io/created-by": uid,
                "vm.kubevirt.io/name": name,
                **spec.labels,
            },
            "annotations": {"kubevirt.io/domain": name},
            "ownerReferences": [
                {
                    "apiVersion": API,
                    "kind": "VirtualMachineInstance",
                    "name": name,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node.name},
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 10,
            "securityContext": {
                "runAsUser": images.QEMU_USER,
                "runAsGroup": images.QEMU_USER,
                "runAsNonRoot": True,
                "fsGroup": images.QEMU_USER,
            },
            "containers": [
                {
                    "name": "compute",
                    "image": images.LAUNCHER,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", LAUNCHER_SCRIPT],
                    "env": [{"name": key, "value": value} for key, value in env.items()],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "resources": {"requests": {"cpu": "50m", "memory": str(spec.memory + (200 << 20))}},
                    "volumeMounts": [
                        {"name": "run", "mountPath": "/run"},
                        {"name": "vm", "mountPath": VM_FOLDER},
                        {"name": "image", "mountPath": IMAGE_FOLDER, "readOnly": True},
                    ],
                }
            ],
            "volumes": [
                {"name": "run", "emptyDir": {"medium": "Memory"}},
                {"name": "vm", "hostPath": {"path": str(folder), "type": "Directory"}},
                {"name": "image", "hostPath": {"path": str(image), "type": "Directory"}},
            ],
        },
    }


def domain_name(name: str) -> str:
    """libvirt's name of a guest."""
    return f"{NAMESPACE}_{name}"


def domain_xml(spec: GuestSpec, uid: str) -> str:
    """The domain, emulated by QEMU's TCG so that it runs on machines without nested virtualisation too."""
    command_line = (
        # with room for a second processor a kernel trusts no time stamp counter, and asks the emulated HPET instead
        f"root=/dev/vda rw console=ttyS0 quiet loglevel=5 mitigations=off no_timer_check tsc=reliable net.ifnames=0 "
        f"systemd.hostname={spec.name} systemd.machine_id={uid.replace('-', '')}"
    )
    return f"""<domain type='qemu'>
  <name>{domain_name(spec.name)}</name>
  <uuid>{uid}</uuid>
  <metadata><kubevirt xmlns="http://kubevirt.io"><uid>{uid}</uid></kubevirt></metadata>
  <memory unit='b'>{spec.memory}</memory>
  <!-- One more could be plugged in: for a guest that never has but one TCG leaves out the barriers of locked
       instructions, by which the guest and the threads of its virtio devices agree on interrupts. -->
  <vcpu current='{spec.cpus}'>{spec.cpus + 1}</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{IMAGE_FOLDER}/vmlinuz</kernel>
    <initrd>{IMAGE_FOLDER}/initrd.img</initrd>
    <cmdline>{command_line}</cmdline>
  </os>
  <features><acpi/><tcg><tb-cache unit='MiB'>128</tb-cache></tcg></features>
  <cpu mode='maximum'>
    <!-- with these a kernel copies byte by byte, which an emulator does one at a time -->
    <feature policy='disable' name='erms'/><feature policy='disable' name='fsrm'/>
  </cpu>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe'/>
      <source file='{VM_FOLDER}/root.qcow2'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    {_data_disk(spec)}
    {_interface("tap0", guest_image.POD_MAC)}
    {_interface("taplab", guest_image.LAB_MAC)}
    {_interface(pages_network.TAP, pages_network.mac(uid)) if spec.on_pages_network else ""}
    <serial type='file'><source path='{VM_FOLDER}/console.log' append='on'/><target port='0'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <memballoon model='virtio' freePageReporting='on'><stats period='5'/></memballoon>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""


def _data_disk(spec: GuestSpec) -> str:
    if not spec.disk:
        return ""
    throttle = f"<iotune><total_iops_sec>{spec.iops}</total_iops_sec></iotune>" if spec.iops else ""
    return f"""<disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none' discard='unmap'/>
      <source file='{VM_FOLDER}/data.img'/>
      <target dev='vdb' bus='virtio'/>
      {throttle}
    </disk>"""


def _interface(device: str, mac: str) -> str:
    return (
        f"<interface type='ethernet'><mac address={quoteattr(mac)}/><target dev={quoteattr(device)} managed='no'/>"
        f"<model type='virtio'/></interface>"
    )


def instance_status(
    phase: str,
    *,
    spec: GuestSpec,
    uid: str,
    node: Node,
    pod_ip: str,
    pod_uid: str,
    agent: bool,
    os_info: dict[str, str],
) -> dict[str, Any]:
    """The status as virt-controller and virt-handler would fill it; `lastTransitionTime` is left to the caller."""
    running = phase == "Running"
    conditions = [_condition("Ready", running, "" if running else "GuestNotRunning")]
    conditions.append(_condition("LiveMigratable", True, ""))
    if agent:
        conditions.append(_condition("AgentConnected", True, ""))
    status: dict[str, Any] = {
        "phase": phase,
        "nodeName": node.name,
        "conditions": conditions,
        "runtimeUser": images.QEMU_USER,
    }
    if running:
        status["activePods"] = {pod_uid: node.name}
        status["interfaces"] = [_interface_status("default", "eth0", guest_image.POD_MAC, pod_ip, agent=agent)]
        if spec.on_pages_network:  # whose addresses the guest alone can tell
            address = pages_network.address(uid) if agent else ""
            found = pages_network.NAME, pages_network.DEVICE, pages_network.mac(uid), address
            status["interfaces"].append(_interface_status(*found, agent=agent))
        status["guestOSInfo"] = os_info
    return status


def _interface_status(name: str, device: str, mac: str, address: str, *, agent: bool) -> dict[str, Any]:
    addresses = {"ipAddress": address, "ipAddresses": [address]} if address else {}
    source = "domain, guest-agent" if agent else "domain"
    return {"name": name, "interfaceName": device, "mac": mac, **addresses, "queueCount": 1, "infoSource": source}


def stamped(status: dict[str, Any]) -> dict[str, Any]:
    """The status with the present time in its conditions."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [condition | {"lastTransitionTime": now, "lastProbeTime": None} for condition in status["conditions"]]
    return status | {"conditions": conditions}


def _condition(kind: str, true: bool, reason: str) -> dict[str, Any]:
    condition = {"type": kind, "status": "True" if true else "False"}
    return condition | ({"reason": reason} if reason else {})
