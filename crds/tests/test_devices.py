"""Devices and swap of borrowers: what a path may be, and by which name device-mapper has it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidepool_api import SWAP_NAME, Borrowers, Swap, SwapBacking, is_device, mapped_name, path_of, swap_name
from tidepool_api.fields import MOST_DEVICE_PATH

MOST_MAPPED_NAME, MOST_UUID = 127, 128  # of device-mapper, without the zero that ends it
UUID = "tidepool-agent-"  # what the agent's UUIDs begin with
PART = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,12}", fullmatch=True)
PATHS = st.lists(PART, min_size=1, max_size=4).map(lambda parts: "/dev/" + "/".join(parts)).filter(is_device)
WRONG = (
    "/dev",
    "/dev/",
    "vdb",
    "/dev/../vda",
    "/dev/a/./b",
    "/dev/vdb\n",
    "/dev/vdb'",
    "/dev/`id`",
    "/dev/mapper/tidepool-vdb",
    "/dev/mapper/tidepool.swap",
)


@given(PATHS, PATHS)
def test_no_two_paths_have_one_name(one: str, other: str) -> None:
    """Nor has any that of the swap area, and device-mapper takes them all."""
    swaps = [swap_name(Swap(backing=SwapBacking.DEVICE, device=path)) for path in (one, other)]
    assert (mapped_name(one) == mapped_name(other)) == (swaps[0] == swaps[1]) == (one == other)
    assert not mapped_name(one).startswith(SWAP_NAME)
    for name in (mapped_name(one), swaps[0]):
        assert path_of(name) == one
        assert re.fullmatch(r"tidepool(-|[.]swap-)[A-Za-z0-9_.:+-]{1,113}", name)


def test_names_are_those_that_people_expect() -> None:
    assert mapped_name("/dev/vdb") == "tidepool-vdb"
    assert mapped_name("/dev/disk/by-id/virtio-a") == "tidepool-disk-by--id-virtio--a"
    assert swap_name(Swap(backing=SwapBacking.FILE, size="1Gi")) == "tidepool.swap"
    assert path_of("tidepool.swap") == ""
    worst = "/dev/a" + "-" * (MOST_DEVICE_PATH - 6)
    assert is_device(worst)
    longest = swap_name(Swap(backing=SwapBacking.DEVICE, device=worst))
    assert len(longest) <= MOST_MAPPED_NAME
    assert len(UUID + longest) <= MOST_UUID
    assert len(UUID + longest + "--") > MOST_UUID, "no path has to be shorter than it must"


@pytest.mark.parametrize("path", [*WRONG, "/dev/" + "a" * MOST_DEVICE_PATH])
def test_what_is_no_path_of_a_device_is_refused(path: str) -> None:
    """By the models, too: what an agent reads has been written by somebody else."""
    assert not is_device(path)
    with pytest.raises(ValidationError, match=r"not the path of a device|at most 55"):
        Borrowers.model_validate({"devices": [path]})
    with pytest.raises(ValidationError, match=r"not the path of a device|at most 55"):
        Swap.model_validate({"backing": "Device", "device": path})


def test_swap_is_of_whole_mebibytes() -> None:
    assert Swap(backing=SwapBacking.FILE, size="100M").size_bytes == 95 << 20
    assert Swap(backing=SwapBacking.DEVICE, device="/dev/vdc").size_bytes == 0
