"""What `--guest` says: NAME=MEMORY[,disk=SIZE[:ext4|xfs]][,iops=N][,kernel=6.1][,label.K=V]…"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidepool_lab.progress import LabError

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
FILE_SYSTEMS = ("ext4", "xfs")
KERNELS = ("6.1", "6.12")
FORM = (
    "NAME=MEMORY[,disk=SIZE[:ext4|xfs]][,iops=N][,kernel=6.1|6.12][,cpus=N][,node=N][,network=pages][,label.KEY=VALUE]"
)


@dataclass(frozen=True)
class GuestSpec:
    """One guest as the user wants it."""

    name: str
    memory: int
    disk: int = 0
    file_system: str = ""
    iops: int = 0
    kernel: str = "6.1"
    cpus: int = 1
    node: int = 1
    on_pages_network: bool = False
    labels: dict[str, str] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Writes it down for the other commands."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, file: Path) -> GuestSpec:
        """Reads what `save` wrote."""
        return cls(**json.loads(file.read_text()))


def parse(text: str) -> GuestSpec:
    """Reads a specification; an error names the part that is wrong and the form that is right."""
    head, *options = text.split(",")
    name, equals, memory = head.partition("=")
    if not equals or not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", name):
        raise LabError(f"guest {text!r}: expected {FORM}, with a name of lower-case letters, digits and dashes")
    values: dict[str, object] = {"name": name, "memory": quantity(memory, text)}
    labels: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key.startswith("label."):
            labels[key.removeprefix("label.")] = value
        else:
            values |= _option(key, value, text)
    return GuestSpec(**values, labels=labels)  # type: ignore[arg-type]  # the values come from _option


def quantity(text: str, where: str) -> int:
    """A Kubernetes quantity in bytes."""
    found = re.fullmatch(r"(\d+)([kMG]?i?)", text)
    if not found or found.group(2) not in UNITS:
        raise LabError(f"guest {where!r}: {text!r} is not a size such as 512Mi or 2Gi")
    return int(found.group(1)) * UNITS[found.group(2)]


def _option(key: str, value: str, where: str) -> dict[str, object]:
    if key == "disk":
        size, colon, file_system = value.partition(":")
        if colon and file_system not in FILE_SYSTEMS:
            raise LabError(f"guest {where!r}: file system {file_system!r} is none of {', '.join(FILE_SYSTEMS)}")
        return {"disk": quantity(size, where), "file_system": file_system}
    if key in ("iops", "cpus", "node") and value.isdigit() and int(value) > 0:
        return {key: int(value)}
    if (key, value) == ("network", "pages"):
        return {"on_pages_network": True}
    if key == "kernel" and value in KERNELS:
        return {key: value}
    raise LabError(f"guest {where!r}: {key}={value} is not understood; expected {FORM}")
