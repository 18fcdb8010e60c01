"""Block devices and swap of borrowers that a pool puts its lenders in front of."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidepool_api.base import ApiModel
from tidepool_api.fields import DevicePath, SwapSize, rule, rules
from tidepool_api.names import SwapBacking, SwapWrite
from tidepool_api.units import MIB, parse_quantity

MOST_DEVICES = 8  # of one guest
SWAP_NAME = "tidepool.swap"  # that of a swap file, and what that of a swap device begins with
_DEVICE_NAME = "tidepool"
_DEV = "/dev/"


class Swap(ApiModel):
    """A swap area of each borrower with its lenders in front of it."""

    backing: SwapBacking
    """Device: a disk or partition of its own. File: a file that the agent makes, on a disk of the guest that has room.

    None: there is no such swap area.
    """

    size: SwapSize | None = None
    """How large it is. With Device, how much of it is used at most; all of it if this is left out."""

    device: DevicePath | None = None
    """With Device: which one, by its path in the guest."""

    write: SwapWrite = SwapWrite.THROUGH
    """Through: a page is swapped out when the disk has it. Behind: when a log has it, 16Mi of the guest's memory.

    From the log it reaches a lender at once, and the disk a little later, in large writes. Do not resume a guest with
    Behind from hibernation.
    """

    model_config = {
        "json_schema_extra": rules(
            rule(
                "self.backing != 'File' || has(self.size)",
                "is missing: say how large the swap file is to be",
                path=".size",
            ),
            rule(
                "self.backing != 'None' || !has(self.size)",
                "has no place with backing None; remove it, or set backing to File or Device",
                path=".size",
            ),
            rule(
                "(self.backing == 'Device') == has(self.device)",
                says="self.backing == 'Device' ? 'is missing: name the disk or partition, such as /dev/vdc' "
                ": 'has no place with backing ' + self.backing + '; remove it, or set backing to Device'",
                path=".device",
            ),
        )
    }

    @property
    def size_bytes(self) -> int:
        """`size` in whole MiB, as a number; 0 if it is left out."""
        return parse_quantity(self.size) // MIB * MIB if self.size else 0


Devices = Annotated[tuple[DevicePath, ...], Field(max_length=MOST_DEVICES)]
Forced = Annotated[tuple[DevicePath, ...], Field(max_length=MOST_DEVICES + 1)]  # swap's, too


def device_rules() -> tuple[dict[str, str], ...]:
    """What holds between the fields `devices`, `force` and `swap` of one object."""
    swap_device = "has(self.swap) && has(self.swap.device)"
    return (
        rule(
            "!has(self.devices) || self.devices.all(one, self.devices.exists_one(other, other == one))",
            says="'names ' + self.devices.filter(one, !self.devices.exists_one(other, other == one))[0] + "
            "' twice; name each device once'",
            path=".devices",
        ),
        rule(
            f"!({swap_device}) || !has(self.devices) || !self.devices.exists(one, one == self.swap.device)",
            says="'names ' + self.swap.device + ', which swap.device names, too; it can be one of them'",
            path=".devices",
        ),
        rule(
            "!has(self.force) || self.force.all(one, (has(self.devices) && self.devices.exists(other, other == one)) "
            f"|| ({swap_device} && self.swap.device == one))",
            "has a device that is neither one of devices nor swap.device; remove it, or name it there, too",
            path=".force",
        ),
    )


def mapped_name(path: str) -> str:
    """The name under which device-mapper has a device: `/dev/a-b/c` is `tidepool-a--b-c`, and no other path is."""
    return f"{_DEVICE_NAME}-{_escaped(path)}"


def swap_name(swap: Swap) -> str:
    """The name under which device-mapper has a swap area: one for a file, and one for each device."""
    return f"{SWAP_NAME}-{_escaped(swap.device)}" if swap.device else SWAP_NAME


def path_of(name: str) -> str:
    """The device that lies below one with such a name; empty for a swap file."""
    _, dash, escaped = name.partition("-")
    return _DEV + "-".join(part.replace("-", "/") for part in escaped.split("--")) if dash else ""


def _escaped(path: str) -> str:
    """As LVM names what it maps."""
    return path.removeprefix(_DEV).replace("-", "--").replace("/", "-")
