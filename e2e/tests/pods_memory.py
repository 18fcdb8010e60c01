"""The memory of all pods of a node, made short, as kubelet's limit for what is allocatable makes it (`kubepods`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from product import Object, until

from demo import lab
from tidepool_lab import guests, host, images, nodes, paths

# Takes memory as fast as a processor writes it, and says so.
TAKE = "held = b'1' * ({mib} << 20); print('has it', flush=True)"
TAKER = "taker"
PYTHON = f"{images.PREFIX}/tidepool-operator:{paths.VERSION}"  # an image that has it, and is on every node


@dataclass(frozen=True)
class Pods:
    """The control group of a node's pods, of either version."""

    node: str

    @property
    def _group(self) -> Path:
        roots = host.cgroup_roots()
        root = next((one.parent for one in roots if one.parent.name == "memory"), roots[0].parent)
        return root / nodes.named(self.node).cgroup / "kubepods"

    def _file(self, *names: str) -> Path:
        return next(file for name in names if (file := self._group / f"memory.{name}").exists())

    def usage(self) -> int:
        """Bytes, page cache included."""
        return int(self._file("current", "usage_in_bytes").read_text())

    @contextmanager
    def limited(self, size: int) -> Iterator[None]:
        """They may have so many bytes together."""
        file = self._file("max", "limit_in_bytes")
        before = file.read_text()
        file.write_text(str(size))
        try:
            yield
        finally:
            file.write_text(before)

    def endings(self) -> dict[str, tuple[str, int]]:
        """Of each pod, its phase with the reason and how often its containers were started again."""
        pods = lab.items("pods", "-A", "--field-selector", f"spec.nodeName={self.node}")
        return {one["metadata"]["name"]: _ending(one) for one in pods}


def _ending(pod: Object) -> tuple[str, int]:
    status = pod["status"]
    restarts = sum(one["restartCount"] for one in status.get("containerStatuses", []))
    return f"{status['phase']} {status.get('reason', '')}".strip(), restarts


def read_again(guest: str) -> int:
    """The pages that a guest's QEMU had to have from a disk again: major faults."""
    fields = Path(f"/proc/{guests.qemu_pid(guest)}/stat").read_text().rpartition(")")[2].split()
    return int(fields[9])


def take(node: str, mib: int) -> str:
    """Has a pod of its own take so much memory; what became of the pod."""
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(_taker(node, mib)))
    ended = ("Succeeded", "Failed")

    def state() -> Object | None:
        pod = lab.get("pod", TAKER) or {"status": {}}
        return pod if pod["status"].get("phase") in ended else None

    pod: Object = until("the pod that takes memory has ended", state)
    said = lab.kubectl("logs", TAKER)
    lab.kubectl("delete", "pod", TAKER)
    return f"{_ending(pod)[0]}: {said.strip()}"


def _taker(node: str, mib: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": TAKER, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": TAKER,
                    "image": PYTHON,
                    "imagePullPolicy": "Never",
                    "command": ["python3", "-c", TAKE.format(mib=mib)],
                }
            ],
        },
    }
