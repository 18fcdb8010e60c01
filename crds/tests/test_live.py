"""Each field of a pool and of a pairing has its place in the table that says what an edit reaches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidepool_api import PairingSpec, PoolSpec, Selector, Thresholds
from tidepool_api.base import ApiModel
from tidepool_api.live import FIXED, WAYS, changeable, live_part

if TYPE_CHECKING:
    from collections.abc import Iterator

ABI = Path(__file__).resolve().parents[2] / "kernel-module/ABI.md"
HOW = {"paused", "max_unavailable", "class_name"}  # whether, how and from where an edit comes, not what it is
WHOLE = (Selector, Thresholds)  # models that are one value


def leaves(model: type[ApiModel], path: str = "") -> Iterator[str]:
    """The fields of a model that are values, with those that they are part of."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, ApiModel) and not issubclass(kind, WHOLE):
            yield from leaves(kind, f"{path}{name}.")
        else:
            yield path + name


def test_every_field_of_a_pool_is_in_it() -> None:
    assert {field for one in WAYS for field in one.pool} | HOW == set(leaves(PoolSpec))


def test_every_field_of_a_pairing_is_in_it_once() -> None:
    assert sorted(one.field for one in WAYS) == sorted(leaves(PairingSpec))


def test_what_is_fixed_is_an_attribute_and_follows_from_one_field_of_the_pool() -> None:
    assert {name for one in WAYS for name in one.fixed} == FIXED
    assert {len(one.pool) for one in WAYS if not one.is_live} == {1}


@pytest.mark.parametrize("folder", ["lenders", "borrowers"])
def test_the_abi_promises_what_it_says(folder: str) -> None:
    """The module's own tests try it; this holds the two words for it together."""
    section = ABI.read_text().split(f"### `{folder}/NAME/`")[1].split("\n#")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| rw \| (.*) \|$", section, re.MULTILINE))
    assert rows.keys() == {name for one in WAYS for name in _within(folder, one.attributes)} | {"enabled"}
    live = {name for name, text in rows.items() if re.search("[Mm]ay change while enabled|; likewise", text)}
    assert live == changeable(folder)


def _within(folder: str, attributes: tuple[str, ...]) -> list[str]:
    return [name.removeprefix(f"{folder}/") for name in attributes if name.startswith(f"{folder}/")]


def present(**borrower: object) -> PairingSpec:
    """What a pairing says, with this of its borrower."""
    lender = {"guest": "l", "nodeName": "n", "address": "10.0.0.1"}
    ends = {"lender": lender, "borrower": {"guest": "b", "nodeName": "n"} | borrower}
    return PairingSpec.model_validate({"pool": "p", "size": "1Gi", "maxLend": "1Gi", "reserve": "1Gi", **ends})


def test_the_live_part_of_a_patch() -> None:
    address = {"address": "10.0.0.9"}
    patch = {"lender": address | {"port": 1}, "encryption": "None", "deadline": "1s", "maxLend": "1Gi"}
    assert live_part(patch, present()) == {"lender": address, "deadline": "1s", "maxLend": "1Gi"}
    assert live_part({"lender": {"port": 1}}, present()) == {}
    assert patch["lender"] == address | {"port": 1}


def test_what_is_removed_is_not_live_and_what_comes_is() -> None:
    two = present(devices=["/dev/vdb", "/dev/vdc"], applications={"size": "64Mi"})
    gone = {"devices": ["/dev/vdc"], "applications": None}
    assert live_part({"borrower": gone}, two) == {}
    assert live_part({"borrower": gone | {"devices": ["/dev/vdc", "/dev/vdb"]}, "deadline": "1s"}, two) == {
        "borrower": {"devices": ["/dev/vdc", "/dev/vdb"]},
        "deadline": "1s",
    }
    less = {"borrower": {"applications": {"size": "32Mi"}}}  # values stay with that, and are what they were
    assert live_part(less, two) == less
