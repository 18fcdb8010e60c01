"""Keeps the status of the VirtualMachineInstances true, in the place of KubeVirt's virt-handler and virt-controller.

Runs as a daemon of the lab. Once a second it asks each guest's libvirt how the guest is; when a guest's QEMU has ended,
by itself or because somebody killed it, the instance becomes Failed (or Succeeded) and its launcher pod ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from typing import Any

import libvirt
import libvirt_qemu  # type: ignore[import-untyped]  # Debian ships no types with it

from tidepool_lab import cluster, guests, host, kubevirt, migration, paths, shell
from tidepool_lab.progress import LabError
from tidepool_lab.spec import GuestSpec

NAME = "vmi-watcher"
ENDED_WELL = (libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED)
OS_INFO = {
    "id": "id",
    "kernel-release": "kernelRelease",
    "name": "name",
    "pretty-name": "prettyName",
    "version": "version",
}


def start() -> None:
    """Starts the daemon, unless it runs."""
    if not host.running(NAME):
        host.start(NAME, [sys.executable, "-m", "tidepool_lab.watcher"], env={"PYTHONPATH": str(paths.E2E)}, node=None)


class Watcher:
    """What was last seen and said of each guest."""

    def __init__(self) -> None:
        self.connections: dict[str, libvirt.virConnect] = {}
        self.reported: dict[str, dict[str, Any]] = {}
        self.os_info: dict[str, dict[str, str]] = {}

    def look(self) -> None:
        """One round over all guests."""
        for name in guests.names():
            if (paths.GUESTS / name / migration.MARK).exists():
                continue  # whoever migrates it says how it is
            launcher = guests.launcher_of(name)
            if launcher and self.reported.get(launcher.uid, {}).get("phase") not in ("Failed", "Succeeded"):
                self._look_at(name, launcher)

    def _look_at(self, name: str, launcher: guests.Launcher) -> None:
        phase, agent = self._observe(name, launcher)
        os_info = self._os_info(name, launcher) if agent else {}
        status = kubevirt.instance_status(
            phase,
            spec=GuestSpec.load(paths.GUESTS / name / "spec.json"),
            uid=launcher.uid,
            node=launcher.node,
            pod_ip=launcher.pod_ip,
            pod_uid=launcher.pod_uid,
            agent=agent,
            os_info=os_info,
        )
        if status != self.reported.get(launcher.uid):
            self._report(name, launcher, status)
        if phase != "Running":
            self._end(name, launcher, phase)

    def _observe(self, name: str, launcher: guests.Launcher) -> tuple[str, bool]:
        """The phase of the guest and whether its guest agent is connected, as libvirt knows it."""
        try:
            domain = self._domain(name, launcher)
            state, reason = domain.state()
            if state != libvirt.VIR_DOMAIN_SHUTOFF:
                return "Running", _agent_connected(domain.XMLDesc())
            return ("Succeeded" if reason in ENDED_WELL else "Failed"), False
        except libvirt.libvirtError:
            self.connections.pop(launcher.pod_uid, None)
            alive = guests.qemu_pid(name) is not None
            return ("Running" if alive else "Failed"), False

    def _domain(self, name: str, launcher: guests.Launcher) -> libvirt.virDomain:
        if launcher.pod_uid not in self.connections:
            self.connections[launcher.pod_uid] = guests.connect(launcher)
        return self.connections[launcher.pod_uid].lookupByName(kubevirt.domain_name(name))

    def _os_info(self, name: str, launcher: guests.Launcher) -> dict[str, str]:
        """What the guest agent says of the system; asked once, and again until it answers."""
        if launcher.uid not in self.os_info:
            try:
                answer = libvirt_qemu.qemuAgentCommand(
                    self._domain(name, launcher), '{"execute": "guest-get-osinfo"}', 2, 0
                )
            except libvirt.libvirtError:
                return {}
            info = json.loads(answer)["return"]
            self.os_info[launcher.uid] = {ours: info[theirs] for theirs, ours in OS_INFO.items() if theirs in info}
        return self.os_info[launcher.uid]

    def _report(self, name: str, launcher: guests.Launcher, status: dict[str, Any]) -> None:
        patch = json.dumps({"metadata": {"uid": launcher.uid}, "status": kubevirt.stamped(status)})
        try:
            cluster.kubectl("patch", "vmi", "-n", kubevirt.NAMESPACE, name, "--type=merge", "-p", patch)
        except LabError as error:
            print(error, flush=True)
            if "not found" not in str(error) and "Conflict" not in str(error):
                return
        self.reported[launcher.uid] = status

    def _end(self, name: str, launcher: guests.Launcher, phase: str) -> None:
        """The launcher ends with its guest: well, or killed."""
        print(f"{name} is {phase}", flush=True)
        shell.disconnect(name)
        self.connections.pop(launcher.pod_uid, None)
        with suppress(ProcessLookupError):
            os.kill(launcher.pid, signal.SIGTERM if phase == "Succeeded" else signal.SIGKILL)


def _agent_connected(xml: str) -> bool:
    channels = ElementTree.fromstring(xml).iterfind("devices/channel/target[@name='org.qemu.guest_agent.0']")
    return any(channel.get("state") == "connected" for channel in channels)


def main() -> None:
    """Looks once a second until killed."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    watcher = Watcher()
    while True:
        watcher.look()
        time.sleep(1)


if __name__ == "__main__":
    main()
