"""What the product's tests share: one lab with three guests, and the words in which they talk about it.

borrower    short of memory, with a disk
other       short of memory too; the one to which things happen
lender      has memory to spare
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from demo import evidence, lab, metrics, module, workload

BORROWER, OTHER, LENDER = GUESTS = ("borrower", "other", "lender")
LENDER_SPEC = "lender=1Gi,network=pages,label.memory=spare"
BORROWER_SPEC = "borrower=288Mi,disk=1Gi:ext4,network=pages,label.memory=short"
SPECS = (BORROWER_SPEC, "other=256Mi,label.memory=short", LENDER_SPEC)
STRESS = "/root/stress"
POOL = "pool"
AGENT_PORT = 9477
PATIENCE = 240  # seconds: a busy machine is no reason to fail
WORK_PATIENCE = 900  # likewise, of a program in a guest
MIB = 1 << 20

Object = dict[str, Any]


def until(what: str, holds: Callable[[], Any], patience: float = PATIENCE, every: float = 1.0) -> Any:
    """Waits for a function to return something true, and returns that; the failure says what there was at the end."""
    deadline = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}\n{lab.kubectl('get', evidence.OURS)}"
        time.sleep(every)
    return found


def pool_manifest(*, lender: Object, borrower: Object, size: str = "512Mi", name: str = POOL, **lending: str) -> Object:
    """A pool; `lender` and `borrower` are the labels that select them."""
    lenders = {"selector": {"matchLabels": lender}, "maxLend": "600Mi", "reserve": "192Mi", **lending}
    return {
        "apiVersion": "tidepool.dev/v1alpha1",
        "kind": "MemoryPool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "lenders": lenders,
            "borrowers": {"selector": {"matchLabels": borrower}, "size": size},
            "encryption": "None",
            # The disks are files in the memory of this machine, and everything is emulated: the pool is slower.
            "latency": {"mode": "Off"},
        },
    }


ONE_TO_ONE = pool_manifest(lender={"vm.kubevirt.io/name": LENDER}, borrower={"vm.kubevirt.io/name": BORROWER})
BOTH_BORROW = pool_manifest(lender={"memory": "spare"}, borrower={"memory": "short"}, size="256Mi")


class Product:
    """A lab with Tidepool installed, seen through kubectl, Prometheus' eyes and shells in the guests."""

    # ------------------------------------------------------------------------------------------------------------ pools

    def apply(self, manifest: Object) -> None:
        """Applies a pool."""
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def apply_ready(self, manifest: Object) -> None:
        """Applies a pool and waits until it is Ready."""
        self.apply(manifest)
        self.wait_condition("memorypool", manifest["metadata"]["name"], "Ready", "True")

    def delete(self, name: str = POOL) -> None:
        """Deletes a pool and waits until it is gone."""
        lab.kubectl("delete", "memorypool", name, "--ignore-not-found", f"--timeout={PATIENCE}s")

    def condition(self, kind: str, name: str, type_: str) -> Object:
        """A condition of an object; empty if it is not there."""
        found = lab.get(kind, name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == type_), {})

    def wait_condition(self, kind: str, name: str, type_: str, status: str, reason: str = "") -> str:
        """Waits until a condition says so; returns its message."""

        def holds() -> Object | None:
            found = self.condition(kind, name, type_)
            return found if found.get("status") == status and found.get("reason", "").startswith(reason) else None

        found: Object = until(f"{kind} {name}: {type_}={status} {reason}", holds)
        return str(found.get("message", ""))

    def pairing_of(self, borrower: str) -> Object:
        """The pairing of a borrower; empty if it has none."""
        pairings = lab.items("memorypairings")
        return next((one for one in pairings if one["spec"]["borrower"]["guest"] == borrower), {})

    def phase(self, kind: str, name: str) -> str:
        """An object's phase."""
        return str((lab.get(kind, name) or {}).get("status", {}).get("phase", ""))

    # ----------------------------------------------------------------------------------------------------------- guests

    def loaded(self, guest: str) -> bool:
        """Whether the module is in a guest's kernel."""
        return lab.guest(guest, "grep -c '^tidepool ' /proc/modules || true").strip() == "1"

    def reading(self, guest: str) -> module.Reading:
        """The module's figures."""
        return module.parse(lab.guest(guest, module.READ))

    def hits(self, guest: str = BORROWER) -> int:
        """Pages that came from the lender, since it is connected."""
        return module.remote_hits(self.reading(guest))

    def connects(self) -> int:
        """How often the borrower has connected to its lender."""
        return self.reading(BORROWER).borrowing["connects"]

    def sessions_begun(self) -> int:
        """How often the borrower has connected and found nothing of its own."""
        figures = self.reading(BORROWER).borrowing
        return figures["connects"] - figures["resumes"]

    def stress(self, arguments: str) -> Object:
        """The stress program in the borrower: no wrong page, no failed call."""
        return report(lab.guest(BORROWER, f"{STRESS} {arguments}", patience=WORK_PATIENCE))

    def start_stress(self, arguments: str) -> lab.Job:
        """The same, while the test goes on."""
        return lab.start(BORROWER, f"{STRESS} {arguments}")

    def end_stress(self, job: lab.Job) -> Object:
        """The closing line of one that would go on."""
        lab.guest(BORROWER, "pkill -TERM -x stress")
        return report(job.result(patience=WORK_PATIENCE))

    def exported(self, name: str, **labels: str) -> float | None:
        """A metric of the agent."""
        return metrics.total(lab.metrics("agent", AGENT_PORT), name, **labels)

    def restart_lender(self) -> None:
        """A new lender in the place of the one that was killed."""
        lab.call("guest", "delete", LENDER)
        lab.call("guest", "add", LENDER_SPEC, patience=600)
        lab.call("cp", workload.build_stress(), f"{LENDER}:{STRESS}")

    def revive_lender(self) -> None:
        """So that one failed test does not take the next ones with it."""
        if self.phase("vmi", LENDER) != "Running":
            self.restart_lender()

    def format_disk(self, file_system: str) -> None:
        """Gives the borrower's disk an empty file system."""
        options = {"ext4": "-q -F -E lazy_itable_init=0,lazy_journal_init=0", "xfs": "-q -f"}[file_system]
        make = f"umount /mnt 2>/dev/null; mkfs.{file_system} {options} /dev/vdb && mount /dev/vdb /mnt"
        lab.guest(BORROWER, make)

    def assert_pages_come_back(self, file: str, mib: int) -> None:
        """A new file that does not fit into memory is read back, each page verified, and the lender answers."""
        self.stress(f"fill {file} mib={mib}")
        self.stress(f"sequential {file} passes=2")
        before = self.reading(LENDER).lending["get_hits"]
        report = self.stress(f"random {file} reads=20000 threads=4")
        assert report["wrong_pages"] == report["errors"] == 0
        assert self.reading(LENDER).lending["get_hits"] > before + 2000

    def assert_sound(self, *guests: str) -> None:
        """No invariant of the module is broken, and no kernel complains."""
        for guest in guests or (BORROWER, LENDER):
            assert workload.complaints(guest) == []
            assert self.reading(guest).module.get("warnings", 0) == 0

    def assert_nothing_left(self, *guests: str) -> None:
        """After a pool: no object, no module."""
        assert lab.kubectl("get", "memorypools,memorypairings", "-o", "name").strip() == ""
        for guest in guests or GUESTS:
            assert not self.loaded(guest), f"{guest} still has the module"


def report(output: str) -> Object:
    """The closing line of the stress program."""
    found: Object = json.loads(output.splitlines()[-1]) if output.strip() else {}
    return found
