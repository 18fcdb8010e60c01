"""Compute hosts of a cloud: libvirt daemons whose guests share a network, the agents of both, and the real operator.

There is no OpenStack: tests call libvirt as nova-compute would, with Nova's metadata in the domains. Each host has a
network of its own with a bridge, on which its guests are and which a cable joins to the other host's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cast import NAMESPACE, TOP, AgentProcess, eventually
from conftest import wait_for
from daemon import SystemDaemon, end
from test_nova import PROJECT, metadata
from tiny import PATH, Kernel, boot_files

from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent
from tidepool_api import names
from tidepool_api_testing.chart import rendered
from tidepool_api_testing.server import Server, free_ports

MIB = 1 << 20
BRIDGE = "pages"
MIGRATION_PORT = 49152
DISK = 384 * MIB
PAGE, SECTOR = 4096, 512
FILE = "/var/lib/file"  # on the borrower's disk, as is what reads it
STRESS = "/var/lib/stress"
TREE = "/sys/kernel/config/tidepool"
READS = f"cd /run; until [ -e enough ]; do {STRESS} random {FILE} seconds=2 threads=2 >>reports 2>&1; done"
COUNT = f"sed -n 's/^{{name}} //p' {TREE}/{{of}}/stats"
COMPLAINTS = re.compile(
    "tidepool: warning|BUG[: ]|WARNING: |Oops|general protection|Call Trace|soft lockup|rcu.*stall|blocked for more"
)
_STRESS = "from demo import workload; print(workload.build_stress())"
_NETWORK = " && ".join(
    (
        "ip link set lo up",
        f"ip link add {BRIDGE} type bridge",
        f"ip address add {{address}}/16 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
    )
)
_INTERFACE = f"""<interface type='bridge'>
      <source bridge='{BRIDGE}'/><mac address='52:54:00:79:00:%02x'/><model type='virtio'/>
    </interface>"""


class ComputeHost(SystemDaemon):
    """A host with a network of its own."""

    apart = ("--net",)

    def __init__(self, kernel: Kernel, number: int) -> None:
        super().__init__(kernel)
        self.address = f"10.79.0.{number}"
        self.prepare = _NETWORK.format(address=self.address)

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            super().__exit__()
        else:
            shutil.rmtree(self.folder)

    @property
    def receives(self) -> str:
        """Where the memory of guests comes in."""
        return f"tcp://{self.address}:{MIGRATION_PORT}"

    def cable(self, other: ComputeHost) -> None:
        """Joins the two networks."""
        networks = {
            Path("/proc/self/ns/net").readlink(),
            *(Path(f"/proc/{host.process.pid}/ns/net").readlink() for host in (self, other)),
        }
        assert len(networks) == 3, "each host is on a network of its own by now, as its libvirtd answers"
        self.ip("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(other.process.pid))
        for host in (self, other):
            host.ip("link", "set", "cable", "master", BRIDGE, "up")

    def ip(self, *words: str) -> None:
        """Changes something of its network."""
        subprocess.run(["nsenter", "-t", str(self.process.pid), "-n", "ip", *words], check=True)

    def fail(self) -> None:
        """The power goes: its guests and its libvirt end at once."""
        for domain in self.connection.listAllDomains():
            end(domain)
        self.connection.close()
        self.process.kill()
        self.process.wait()


@dataclass
class Instance:
    """What Nova knows of an instance: wherever it runs it has the same UUID, address and disk."""

    name: str
    project: str
    number: int
    disk: Path | None = None
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def address(self) -> str:
        """That of its port."""
        return f"10.79.1.{self.number}"

    def start(self, host: ComputeHost, boot: tuple[Path, Path]) -> None:
        """Boots it on a host."""
        host.start(
            self.domain,
            f"test.address={self.address}/16" + (" test.disks=1" if self.disk else ""),
            metadata=metadata(name=self.name).replace("10.0.0.5", self.address).replace(PROJECT, self.project),
            identity=self.uuid,
            boot=boot,
            disks={"vda": self.disk} if self.disk else {},
            interface=_INTERFACE % self.number,
        )

    @property
    def domain(self) -> str:
        """What libvirt calls it."""
        return f"instance-{self.number:08x}"


class Compute:
    """A host that is a node of the cluster, with its agent."""

    def __init__(self, cluster: Server, store: Path, host: ComputeHost, node: str) -> None:
        self.host = host
        self.agent = AgentProcess(cluster, node, store, "--providers=Libvirt")
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.agent.node}})

    def __enter__(self) -> Self:
        self.host.__enter__()
        (self.agent.proc / "1").mkdir()
        (self.agent.proc / "1/root").symlink_to(self.host.root)
        self.agent.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.kill()
        shutil.rmtree(self.agent.folder)
        self.host.__exit__()

    def fail(self) -> None:
        """Nothing of it is there any more."""
        self.agent.kill()
        self.host.fail()


class Operator:
    """The operator's process, with the rights of the chart."""

    def __init__(self, cluster: Server, folder: Path) -> None:
        cluster.apply(*(one for one in rendered("operator") if one["kind"] in _RIGHTS))
        token = cluster.kubectl("create", "token", "tidepool-operator", "-n", NAMESPACE, "--duration=2h").strip()
        paths = os.pathsep.join(str(TOP / part) for part in ("operator", "crds"))
        self._environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig(token)), "PYTHONPATH": paths}
        self._log = folder / "operator.log"

    def __enter__(self) -> Self:
        flags = [f"--{name}-port={port}" for name, port in zip(("metrics", "health"), free_ports(2), strict=True)]
        command = [sys.executable, "-m", "tidepool_operator", f"--own-namespace={NAMESPACE}", *flags]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=self._environment, stderr=log)
        eventually(lambda: "ready: " in self._log.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


_RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


class Cloud:
    """Two hosts, an instance that lends to another one, and the pool that makes it so."""

    def __init__(self, cluster: Server, store: Path, kernel: Kernel, folder: Path) -> None:
        self._cluster, self._kernel, self._folder = cluster, kernel, folder
        project = uuid.uuid4().hex
        self.namespace = f"nova-{project}"
        self.near, self.far = (
            Compute(cluster, store, ComputeHost(kernel, number), f"{place}-{project}")
            for number, place in enumerate(("near", "far"), 1)
        )
        self._operator = Operator(cluster, folder)
        self.lender, self.borrower = Instance("bank", project, 1), Instance("shop", project, 2, disk(folder))
        self.where = {self.lender.name: self.near, self.borrower.name: self.near}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for one in (self.near, self.far, self._operator):
                stack.enter_context(one)
            self.near.host.cable(self.far.host)
            self._boot = boot_files(self._kernel, self._folder, disks=True)
            self._cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
            for one in (self.lender, self.borrower):
                one.start(self.near.host, self._boot)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- what Nova does -----------------------------------------------------------------------------------------------

    def migrate(self, one: Instance) -> None:
        """Moves an instance to the host where it is not, while it runs."""
        source, target = self.where[one.name], self.other(one)
        source.host.migrate(one.domain, target.host, mib_per_second=32)
        assert target.host.connection.lookupByUUIDString(one.uuid).isActive()
        self.where[one.name] = target

    def evacuate(self, one: Instance) -> None:
        """Boots an instance of a host that has failed on the other one."""
        target = self.other(one)
        one.start(target.host, self._boot)
        self.where[one.name] = target

    def other(self, one: Instance) -> Compute:
        """The host where an instance is not."""
        return self.far if self.where[one.name] is self.near else self.near

    # --- what the cluster says ----------------------------------------------------------------------------------------

    def make_pool(self) -> None:
        """By what Nova calls the instances."""

        def called(one: Instance) -> dict[str, Any]:
            return {"selector": {"matchLabels": {"tidepool.dev/vm": one.name}}}

        lenders = called(self.lender) | {"maxLend": "80Mi", "reserve": "32Mi"}
        spec = {"lenders": lenders, "borrowers": called(self.borrower) | {"size": "80Mi"}}
        spec |= {"encryption": "None", "latency": {"mode": "Off"}}  # everything is emulated
        head = {"apiVersion": names.API_VERSION, "kind": "MemoryPool"}
        self._cluster.create({**head, "metadata": {"name": "pool", "namespace": self.namespace}, "spec": spec})

    def pairing(self) -> dict[str, Any]:
        """The first one; there is no other."""
        return self._cluster.get("tpair", "-n", self.namespace)["items"][0]  # type: ignore[no-any-return]

    def guest(self, one: Instance) -> dict[str, Any]:
        """The MemoryGuest of an instance."""
        return self._cluster.get("tguest", one.uuid, "-n", self.namespace)  # type: ignore[no-any-return]

    def assert_connected(self) -> None:
        """The pairing is, with both instances where they are."""
        found = self.pairing()
        assert found["status"]["phase"] == "Connected"
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        for side, one in (("lender", self.lender), ("borrower", self.borrower)):
            node = self.where[one.name].agent.node
            assert (found["spec"][side]["guest"], found["spec"][side]["nodeName"]) == (one.uuid, node)
            assert self.guest(one)["spec"]["nodeName"] == node

    # --- what the guests say ------------------------------------------------------------------------------------------

    def run(self, one: Instance, line: str, seconds: float = 120) -> str:
        """What a command prints in an instance, wherever it is."""
        found = GuestAgent(Domain(self.where[one.name].host.uri, one.domain).command)
        wait_for(lambda: found.blocked() == [])  # it takes a while after a boot, or an arrival
        done = found.run(["/bin/sh", "-ec", line], seconds=seconds)
        assert done.code == 0, f"{line}: {done.err}"
        return done.out.strip()

    def counted(self, name: str) -> int:
        """What the borrower's module has counted of its lender."""
        return int(self.run(self.borrower, COUNT.format(name=name, of="lenders/*")))

    def disk_reads(self) -> int:
        """How many pages the borrower has read from its disk."""
        sectors = self.run(self.borrower, "awk '$3 == \"vda\" { print $6 }' /proc/diskstats")
        return int(sectors) * SECTOR // PAGE

    def assert_kernels_well(self) -> None:
        """Neither guest's kernel complains of anything."""
        for one in (self.lender, self.borrower):
            log = self.run(one, "dmesg")
            assert not COMPLAINTS.search(log), log

    def stress(self, words: str) -> None:
        """No wrong page, no failed call."""
        assert_right(self.run(self.borrower, f"{STRESS} {words}", seconds=300))

    def start_reading(self) -> None:
        """Reads that go on by themselves in the borrower, wherever it is."""
        self.run(self.borrower, f"rm -f /run/enough /run/reports; ({READS}) </dev/null >/dev/null 2>&1 &")

    def end_reading(self) -> None:
        """All that was read meanwhile was right."""
        self.run(self.borrower, "touch /run/enough; while pidof stress; do sleep 1; done")
        reports = self.run(self.borrower, "cat /run/reports").splitlines()
        assert reports
        for one in reports:
            assert_right(one)


def assert_right(report: str) -> None:
    """What the stress program says at its end."""
    said = json.loads(report.splitlines()[-1])
    assert said["wrong_pages"] == said["errors"] == 0, said


def disk(folder: Path) -> Path:
    """A disk that both hosts have, as on shared storage, with the program that fills and reads a file."""
    content = folder / "content"
    content.mkdir()
    code = [sys.executable, "-c", _STRESS]
    answer = subprocess.run(code, cwd=TOP / "e2e", stdout=subprocess.PIPE, text=True, check=True)
    shutil.copy(answer.stdout.strip(), content / "stress")
    file = folder / "disk"
    file.touch()
    os.truncate(file, DISK)
    make = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", content, file]
    subprocess.run(make, env={**os.environ, "PATH": PATH}, check=True)
    return file
