"""Memory that programs of borrowers keep values in: how much of it, who may, and what has become of it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from tidepool_api.base import ApiModel
from tidepool_api.fields import Bytes, Count, Memory, rule, rules
from tidepool_api.units import parse_quantity

DEVICE = "/dev/tidepool"
ROOT = "root"
ROOT_ALONE, WITH_GROUP = "0600", "0660"
MOST_GROUP = 32

# What goes to a shell and to udev's rules in a guest: nothing that either would take for more than a mode or a name.
_MODE = re.compile(r"06[0246]0")
_MODE_FORM = (
    'write "0660" for a group that puts and gets, "0640" for one that gets, "0620" for one that puts, '
    'or "0600" for root alone'
)
_MODE_RULES = rules(
    rule(
        "!self.matches('^[0-7]{3,4}$') || self.endsWith('0')",
        says="self + ' lets every user of the guest in; end it in 0, and let those who may use it be in the group'",
    ),
    rule(
        f"(self.matches('^[0-7]{{3,4}}$') && !self.endsWith('0')) || self.matches('^{_MODE.pattern}$')",
        says=f"'\"' + self + '\" is no mode of {DEVICE}; {_MODE_FORM}'",
    ),
)
_GROUP = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_GROUP_FORM = f"at most {MOST_GROUP} lowercase letters, digits, _ and -, such as redis"
_GROUP_RULES = rules(
    rule(
        f"self.matches('^{_GROUP.pattern}$')",
        says=f"'\"' + self + '\" is not the name of a group of the guest; write one with {_GROUP_FORM}'",
    )
)


def is_group(text: str) -> bool:
    """Whether this can be the name of a group in a guest, as far as its form goes."""
    return bool(_GROUP.fullmatch(text))


def _mode(text: str) -> str:
    if not _MODE.fullmatch(text):
        raise ValueError(f'"{text}" is no mode of {DEVICE}; {_MODE_FORM}')
    return text


def _group(text: str) -> str:
    if not is_group(text):
        raise ValueError(f'"{text}" is not the name of a group of the guest; write one with {_GROUP_FORM}')
    return text


Mode = Annotated[str, Field(min_length=1, max_length=4, json_schema_extra=_MODE_RULES), AfterValidator(_mode)]
GroupName = Annotated[
    str, Field(min_length=1, max_length=MOST_GROUP, json_schema_extra=_GROUP_RULES), AfterValidator(_group)
]


class Applications(ApiModel):
    """Memory for programs of each borrower, which put values into its /dev/tidepool and get them back."""

    size: Memory
    """How much all programs of a borrower may keep; page cache, devices and swap share the borrower's size with it."""

    mode: Mode | None = None
    """Who may open the device: 0660, 0640 (the group only gets values), 0620 (it only puts) or 0600 (root alone).

    Without it 0660 where there is a group, and 0600 where there is none.
    """

    group: GroupName | None = None
    """A group of the guest whose members may open the device; the guest has to have it."""

    model_config = {
        "json_schema_extra": rules(
            rule(
                f"!has(self.mode) || self.mode == '{ROOT_ALONE}' || has(self.group)",
                says=f"'is missing: mode ' + self.mode + ' lets a group in; name it, or set mode to \"{ROOT_ALONE}\"'",
                path=".group",
            ),
            rule(
                f"!has(self.group) || !has(self.mode) || self.mode != '{ROOT_ALONE}'",
                says=f"'{ROOT_ALONE} lets nobody of group ' + self.group + ' in; set it to \"{WITH_GROUP}\", or remove "
                "group'",
                path=".mode",
            ),
        )
    }

    @property
    def size_bytes(self) -> int:
        """`size` as a number."""
        return parse_quantity(self.size)

    @property
    def effective_mode(self) -> str:
        """The mode of the device."""
        return self.mode or (WITH_GROUP if self.group else ROOT_ALONE)

    @property
    def effective_group(self) -> str:
        """The group of the device."""
        return self.group or ROOT


class GuestApplications(ApiModel):
    """What programs of a guest keep in its /dev/tidepool."""

    size_bytes: Bytes
    """How much they may keep; 0 while the device is to go, and programs still have it open."""

    used_bytes: Bytes = 0
    """How much they keep: whole pages, and the guest's own memory in which values are remembered."""

    mode: str = Field(default="", max_length=4)
    """The mode of the device."""

    group: str = Field(default="", max_length=MOST_GROUP)
    """The group of the device; its number where the agent has not given it to one."""

    opened: Count = 0
    """How many times programs have it open now."""

    pools: Count = 0
    """Pools that programs have."""

    values: Count = 0
    """Values in them."""

    hits: Count = 0
    """Gets that brought the value, since the device was made."""

    misses: Count = 0
    """Gets for which there was none."""

    lost: Count = 0
    """Of those, gets of values that no lender gave back."""

    puts: Count = 0
    """Values that were put."""

    page_hits: Count = 0
    """Pages of values that lenders have answered."""

    local_hits: Count = 0
    """Hits that needed no lender: the value is read often, and in the guest's own memory, too."""

    front_bytes: Bytes = 0
    """The guest's own memory that such values take now."""

    disk_reads: Count = 0
    """Reads of kept pools that the guest's own disk had to answer."""
