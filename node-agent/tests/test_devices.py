"""Block devices and swap: what is done for which wish, and what is said. A model guest does what a real one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import BOOT, RELEASE, key, machine, observation, pairing

from tidepool_agent import devices, plan, report
from tidepool_agent.applications import Give, Offer
from tidepool_agent.backing import HostSide, SharedDisk
from tidepool_agent.devicereport import Standing
from tidepool_agent.devices import (
    Attach,
    Block,
    BlockStep,
    Detach,
    LoadTarget,
    Map,
    SwapOff,
    SwapOn,
    UnloadTarget,
    Unmap,
)
from tidepool_agent.errors import DeviceRefused, GuestError
from tidepool_agent.guest import REASONS, Guest
from tidepool_agent.guestfs import Observation, parse
from tidepool_agent.mapped import Mapped
from tidepool_agent.plan import Load, Source, Step, Unload
from tidepool_agent.qga import Completed, GuestAgent
from tidepool_agent.report import Finding
from tidepool_agent.store import Store
from tidepool_api import Condition, GuestStatus, MemoryPairing, Swap, SwapWrite, find, mapped_name
from tidepool_api.fields import MOST_COUNT

GIB = 1 << 30
VDB, SWAP = "tidepool-vdb", "tidepool.swap"
FILE = {"backing": "File", "size": "1Gi"}
BOTH = {"devices": ["/dev/vdb"], "swap": FILE}
MEMORY = 16 * GIB


def guest(*each: Mapped, available: int = 8 * GIB, has_target: bool = True) -> Observation:
    """A guest with the module and these devices."""
    mapped = {one.name: one for one in each}
    sizes: dict[str, Any] = {"total_bytes": MEMORY, "available_bytes": available}
    return observation(loaded=True, mapped=mapped, has_target=has_target, **sizes)


def disk(name: str = VDB, **fields: Any) -> Mapped:
    return Mapped(name, GIB, **({"is_lent": True} | fields))


def swapped(used: int | None = 0, size: int = GIB, **fields: Any) -> Mapped:
    return Mapped(SWAP, size, **({"is_lent": True, "swapped_bytes": used, "is_open": True} | fields))


def wanted(**block: Any) -> Block:
    return devices.block([pairing(block=block)])


def steps(block: Block, seen: Observation, where: Source | None = Source.STORE) -> list[BlockStep]:
    return devices.steps(block, seen, where)


# --- what is done -----------------------------------------------------------------------------------------------------


def test_what_a_pool_names_is_set_up_from_nothing() -> None:
    one = pairing(block=BOTH | {"force": ["/dev/vdb"]})
    made = plan.steps(plan.desired(key("borrower"), [one]), observation(), Source.STORE)
    on = SwapOn(Swap.model_validate(FILE), forced=False)
    assert made[:2] == [Map("/dev/vdb", forced=True), Load(Source.STORE)]
    assert made[-3:] == [LoadTarget(Source.STORE), Attach(VDB), on]


def test_a_disk_is_there_without_a_module_or_a_target() -> None:
    """Programs use its device, and nobody knows when there will be a module for the guest's kernel."""
    one = pairing(block=BOTH)
    desired = plan.desired(key("borrower"), [one])
    assert plan.steps(desired, observation(), None) == [Map("/dev/vdb", forced=False)]
    assert steps(wanted(**BOTH), guest(has_target=False), None) == [Map("/dev/vdb", forced=False)]
    there = replace(guest(disk(is_lent=False, is_open=True), has_target=False), module=None)
    assert plan.steps(desired, there, None) == []


def test_a_lender_has_none_of_its_borrowers_devices() -> None:
    assert plan.desired(key("lender"), [pairing(block=BOTH)]).block == Block()


def test_the_pairings_of_a_borrower_are_one_wish() -> None:
    """Those that know of an edit and those that do not; no pairing that is being deleted counts."""
    each = [
        pairing("a", block={"devices": ["/dev/vdb"]}),
        pairing("b", block={"devices": ["/dev/vdc", "/dev/vdb"], "swap": {"backing": "None"}}),
        pairing("c", block=BOTH),
        pairing("d", block={"devices": ["/dev/vdz"]}, terminating=True),
    ]
    block = plan.desired(key("borrower"), each[::-1]).block
    assert (block.devices, block.swap_name) == (("/dev/vdb", "/dev/vdc"), SWAP)


def test_a_guest_that_is_as_it_should_be_is_left_alone() -> None:
    assert steps(wanted(**BOTH), guest(disk(is_open=True), swapped())) == []
    assert steps(wanted(), guest(has_target=False)) == []


def test_devices_that_go_on_without_lenders_get_them_again() -> None:
    seen = guest(disk(is_lent=False), swapped(is_lent=False), has_target=False)
    assert steps(wanted(**BOTH), seen) == [LoadTarget(Source.STORE), Attach(VDB), Attach(SWAP)]
    assert steps(wanted(**BOTH), seen, None) == []


def test_swap_that_is_written_at_another_time_changes_while_it_is_in_use() -> None:
    behind = FILE | {"write": "Behind"}
    assert steps(wanted(swap=behind), guest(swapped())) == [Attach(SWAP, SwapWrite.BEHIND)]
    assert steps(wanted(swap=behind), guest(replace(swapped(), is_behind=True))) == []
    assert steps(wanted(swap=FILE), guest(replace(swapped(), is_behind=True))) == [Attach(SWAP)]
    assert not wanted(swap=behind).is_met(swapped())


def test_a_swap_area_that_is_not_in_use_is_made_anew() -> None:
    on = SwapOn(Swap.model_validate(FILE), forced=False)
    assert steps(wanted(swap=FILE), guest(swapped(None))) == [on]


@pytest.mark.parametrize(
    ("one", "step"),
    [
        (disk(), Unmap(VDB)),
        (disk(is_lent=False), Unmap(VDB)),
        (disk(is_open=True), Detach(VDB)),
        (swapped(2 * GIB), Detach(SWAP)),
        (swapped(2 * GIB, is_lent=False), SwapOff(SWAP)),
        (swapped(7 * GIB, is_lent=False), SwapOff(SWAP)),
        (swapped(7 * GIB + 1), Detach(SWAP)),
        (swapped(None, is_lent=False), SwapOff(SWAP)),
    ],
)
def test_what_is_wanted_no_more_is_taken_from_nobody(one: Mapped, step: BlockStep) -> None:
    """8 GiB are available, and a sixteenth of 16 GiB stays free: 7 GiB of swap fit, once no lender waits for it."""
    assert steps(wanted(), guest(one)) == [step]
    assert plan.steps(plan.Desired(), guest(one), None) == [step, UnloadTarget(), Unload()]


@pytest.mark.parametrize("one", [disk(is_open=True, is_lent=False), swapped(9 * GIB, is_lent=False)])
def test_what_goes_on_without_lenders_waits_until_it_can_be_given_up(one: Mapped) -> None:
    assert steps(wanted(), guest(one, has_target=False)) == []
    without = replace(guest(one, has_target=False), module=None)
    assert plan.steps(plan.Desired(), without, None) == []
    idle = replace(one, is_open=False, swapped_bytes=one.swapped_bytes and 0)
    (step,) = plan.steps(plan.Desired(), replace(without, mapped={one.name: idle}), None)
    assert step in (Unmap(VDB), SwapOff(SWAP))


def test_a_swap_area_of_another_size_is_emptied_first() -> None:
    """One that does not fit into memory stays as it is, with its lenders."""
    small = guest(swapped(2 * GIB, 512 << 20))
    on = SwapOn(Swap.model_validate(FILE), forced=False)
    assert steps(wanted(swap=FILE), small) == [SwapOff(SWAP), on]
    assert steps(wanted(swap=FILE), replace(small, available_bytes=2 * GIB)) == []


def test_another_disk_for_swap_is_another_area() -> None:
    old, new = ({"backing": "Device", "device": f"/dev/{name}"} for name in ("vdc", "vdd"))
    there = replace(swapped(3 * GIB), name="tidepool.swap-vdc")
    assert steps(wanted(swap=old), guest(there)) == []
    on = SwapOn(Swap.model_validate(new), forced=True)
    assert steps(wanted(swap=new, force=["/dev/vdd"]), guest(there)) == [Detach("tidepool.swap-vdc"), on]


def test_another_wish_about_a_device_does_not_wait_because_one_before_has_failed() -> None:
    """Whoever follows the advice of a condition, `force` or a smaller `size`, sees at once that it was right."""
    device = {"backing": "Device", "device": "/dev/vdc"}
    wishes = (
        {"devices": ["/dev/vdb"]},
        {"devices": ["/dev/vdb"], "force": ["/dev/vdb"]},
        {"swap": FILE},
        {"swap": FILE | {"size": "2Gi"}},
        {"swap": device},
        {"swap": device, "force": ["/dev/vdc"]},
    )
    about = [plan.subject(step) for wish in wishes for step in steps(wanted(**wish), guest())]
    assert len(set(about)) == len(wishes)
    assert {one[:2] for one in about} == {("device", VDB), ("device", SWAP), ("device", "tidepool.swap-vdc")}


def test_a_swap_disk_whose_size_is_said_no_more_becomes_swap_as_a_whole() -> None:
    part = {"backing": "Device", "device": "/dev/vdc", "size": "1Gi"}
    there = replace(swapped(), name="tidepool.swap-vdc", disk_bytes=3 * GIB + 512)
    assert steps(wanted(swap=part), guest(there)) == []
    whole = wanted(swap={"backing": "Device", "device": "/dev/vdc"})
    assert [type(step) for step in steps(whole, guest(there))] == [SwapOff, SwapOn]
    assert steps(whole, guest(replace(there, size_bytes=3 * GIB))) == []


def test_a_disk_that_was_taken_out_is_given_up_when_nobody_uses_it() -> None:
    gone = disk(disk_bytes=None)
    block = wanted(devices=["/dev/vdb"])
    assert steps(block, guest(gone)) == [Unmap(VDB)]
    assert steps(block, guest(replace(gone, is_open=True))) == []
    assert steps(wanted(), guest(replace(gone, is_open=True))) == []
    assert steps(wanted(swap=FILE), guest(swapped(disk_bytes=None))) == []


def test_a_device_with_another_table_is_made_anew_or_left_to_who_uses_it() -> None:
    odd = disk(is_odd=True, is_lent=False)
    assert steps(wanted(devices=["/dev/vdb"]), guest(odd)) == [Map("/dev/vdb", forced=False)]
    assert steps(wanted(), guest(odd)) == [Unmap(VDB)]
    assert steps(wanted(), guest(replace(odd, is_open=True))) == []
    assert steps(wanted(), guest(swapped(is_odd=True, is_lent=False))) == []
    assert steps(wanted(swap=FILE), guest(swapped(is_odd=True, is_lent=False))) == []


def test_the_target_goes_before_the_module_is_replaced_and_takes_no_device_along() -> None:
    seen = guest(disk(is_open=True), swapped(9 * GIB))
    made = plan.steps(plan.desired(key("borrower"), [pairing(block=BOTH)]), seen, Source.STORE, replace=True)
    assert made[:3] == [Detach(VDB), Detach(SWAP), UnloadTarget()]
    assert plan.subject(made[3]) == ("replacement",)


def test_nothing_is_taken_from_a_guest_whose_pairings_have_not_followed_it() -> None:
    follow = plan.Desired(following=frozenset({"p1"}))
    assert plan.steps(follow, guest(disk(), swapped()), Source.STORE) == []
    some = replace(plan.desired(key("borrower"), [pairing(block={})]), following=frozenset({"p2"}))
    made = plan.steps(some, guest(disk(), swapped()), Source.STORE)
    assert not [step for step in made if plan.subject(step)[0] == "device"]


def test_a_swap_file_that_a_reboot_has_left_is_taken_away() -> None:
    """With the pool gone or without; a pool that wants one uses it again."""
    left = replace(guest(has_target=False), has_swap_file=True)
    assert steps(wanted(), left) == [SwapOff(SWAP)]
    assert plan.steps(plan.Desired(), replace(left, module=None), None) == [SwapOff(SWAP)]
    assert steps(wanted(swap=FILE), left)[1:] == [SwapOn(Swap.model_validate(FILE), forced=False)]


def test_a_disk_that_other_guests_share_is_left_alone() -> None:
    """By the name and the serial number that libvirt has of it."""
    shared = HostSide(MEMORY, shared=(SharedDisk("vdb", "data-0001"),))
    seen = replace(guest(), host=shared)
    for path in ("/dev/vdb", "/dev/vdb1", "/dev/disk/by-id/virtio-data-0001"):
        block = wanted(devices=[path, "/dev/vdc"], swap={"backing": "Device", "device": path}, force=[path])
        assert steps(block, seen) == [Map("/dev/vdc", forced=False, shared=shared.shared)]
        for found in said(block, seen)[1:]:
            assert found is not None
            assert (found.status, found.reason) == ("False", "DeviceShared")
            assert f"other guests share {path}, " in found.message


@pytest.mark.parametrize("below", ["vdb ", "vdc data-0001 ", "dm-3 LVM-x"])
def test_a_disk_that_turns_out_to_be_shared_loses_its_lenders(below: str) -> None:
    """By the names and serial numbers of all that it lies on, whatever its path is; it goes on as its disk alone."""
    shared = HostSide(MEMORY, shared=(SharedDisk("vdb", "data-0001"), SharedDisk("", "")))
    block = wanted(devices=["/dev/disk/by-path/x"], swap={"backing": "Device", "device": "/dev/vg/swap"})
    each = (disk("tidepool-disk-by--path-x"), replace(swapped(), name="tidepool.swap-vg-swap"))
    seen = replace(guest(*(replace(one, below=("dm-3", below)) for one in each)), host=shared)
    found = [step for step in steps(block, seen) if isinstance(step, Detach)]
    assert [one.name for one in found] == ([] if below.startswith("dm") else [one.name for one in each])
    if found:
        alone = {one.name: replace(one, is_lent=False, below=("dm-3", below)) for one in each}
        assert steps(block, replace(seen, mapped=alone)) == []
        assert {one.reason for one in said(block, seen)[1:] if one} == {"DeviceShared"}


def after(seen: Observation, step: plan.Step) -> Observation:
    """The guest after a step; what a kernel would refuse fails here."""
    mapped = dict(seen.mapped)
    match step:
        case LoadTarget():
            assert not seen.has_target
            return replace(seen, has_target=True)
        case UnloadTarget():
            assert not any(one.is_lent for one in mapped.values())
            return replace(seen, has_target=False)
        case Map(path):
            mapped[mapped_name(path)] = Mapped(mapped_name(path), GIB, is_lent=seen.has_target)
        case Attach(name, write):
            assert seen.has_target
            mapped[name] = replace(mapped[name], is_lent=True, is_behind=write is SwapWrite.BEHIND)
        case Detach(name):
            mapped[name] = replace(mapped[name], is_lent=False, is_behind=False)
        case Unmap(name):
            assert not mapped.pop(name).is_open
        case SwapOn() | SwapOff():
            _swap(mapped, seen, step)
    return replace(seen, mapped=mapped)


def _swap(mapped: dict[str, Mapped], seen: Observation, step: SwapOn | SwapOff) -> None:
    before = mapped.pop(step.name, None)
    if isinstance(step, SwapOff):
        assert before is not None
        assert (before.swapped_bytes or 0) < seen.available_bytes
        return
    assert seen.has_target
    assert before is None or before.swapped_bytes is None
    size = step.swap.size_bytes or GIB
    is_behind = step.swap.write is SwapWrite.BEHIND
    mapped[step.name] = Mapped(step.name, size, is_lent=True, is_behind=is_behind, swapped_bytes=0, is_open=True)


PATHS = ("/dev/vdb", "/dev/vdc", "/dev/vdd")
SWAPS = (
    None,
    {"backing": "None"},
    FILE,
    FILE | {"size": "2Gi"},
    FILE | {"write": "Behind"},
    {"backing": "Device", "device": "/dev/vde"},
    {"backing": "Device", "device": "/dev/vdf", "size": "1Gi"},
)


def blocks() -> st.SearchStrategy[Block]:
    paths = st.lists(st.sampled_from(PATHS), unique=True, max_size=3)
    return st.builds(lambda devices, swap: wanted(devices=devices, swap=swap), paths, st.sampled_from(SWAPS))


@given(st.lists(st.tuples(blocks(), st.booleans(), st.integers(0, 12)), max_size=5))
def test_any_sequence_of_wishes_and_reboots_is_followed(wishes: list[tuple[Block, bool, int]]) -> None:
    """Whatever is in use stays in use, all that is wanted is there, and a third round has nothing to do."""
    seen = guest(has_target=False)
    for block, rebooted, used in wishes:
        seen = guest(has_target=False) if rebooted else seen
        for _ in range(2):
            for step in steps(block, seen):
                seen = after(seen, step)
        assert steps(block, seen) == []
        assert block.names <= seen.mapped.keys()
        assert all(seen.mapped[name].is_lent for name in block.names)
        left = [one for name, one in seen.mapped.items() if name not in block.names]
        assert all(not one.is_lent and (one.is_open or devices.excess(one, seen)) for one in left)
        busy = {name: _used(one, used * GIB) for name, one in seen.mapped.items()}
        seen = replace(seen, mapped=busy)


def _used(one: Mapped, size: int) -> Mapped:
    return replace(one, swapped_bytes=size) if one.is_swap else replace(one, is_open=bool(size % (2 * GIB)))


# --- what is said -----------------------------------------------------------------------------------------------------


def said(
    block: Block, seen: Observation, before: GuestStatus | None = None, **standing: Any
) -> tuple[GuestStatus, Condition | None, Condition | None]:
    """The status of a guest, and its two conditions."""
    found = Finding(seen=seen, block=Standing(block, **standing))
    status = report.guest(machine("borrower"), "node1", found, (), before).status
    return status, find(status.conditions, "DevicesReady"), find(status.conditions, "SwapReady")


def test_a_guest_without_devices_says_nothing_of_them() -> None:
    status, ready, swap = said(Block(), guest())
    assert (status.devices, status.swap, ready, swap) == ((), None, None, None)


def test_a_status_names_what_is_mapped_and_what_it_lies_on() -> None:
    stats = {"hits": 5, "misses": 3, "fallbacks": 1, "puts": 8}
    seen = guest(disk(stats=stats), swapped(100 << 20, file="/.tidepool/swap"))
    status, ready, swap = said(wanted(**BOTH), seen)
    (one,) = status.devices
    assert (one.name, one.below, one.size_bytes, one.lent) == (VDB, "/dev/vdb", GIB, True)
    assert (one.hits, one.misses, one.puts) == (5, 4, 8)
    assert status.swap is not None
    assert (status.swap.below, status.swap.swapped_bytes) == ("/.tidepool/swap", 96 << 20)
    assert ready is not None
    assert swap is not None
    assert (ready.status, ready.reason, ready.message) == ("True", "Mapped", "/dev/mapper/tidepool-vdb")
    assert (swap.status, swap.reason, swap.message) == ("True", "InUse", "/dev/mapper/tidepool.swap")


def test_counters_alone_are_not_written_and_what_is_over_is_said_no_more() -> None:
    first = said(wanted(**BOTH), guest(disk(stats={"hits": 1}), swapped()))[0]
    more = said(wanted(**BOTH), guest(disk(stats={"hits": 2}), swapped()), first)[0]
    day = timedelta(days=1)
    assert not report.worth_writing(more, first, day, timedelta())
    over = said(Block(), guest(), first)
    assert over[1:] == (None, None)
    assert report.worth_writing(over[0], first, timedelta(), day)


STAYS = "is in use in the guest, and goes on without a lender: unmount it, or end what uses it, to free /dev/vdb"
TAKEN_OUT = (
    f"/dev/vdb has been taken out of the guest: end what uses {VDB}, which gets nothing but errors, and attach it "
    "again, or name another device"
)
CHANGED = (
    f"somebody has given {VDB} a table that is none of the agent's: end what uses it, and remove it with dmsetup "
    f"remove {VDB}"
)
TOO_MUCH = (
    "2Gi of what is swapped out to tidepool.swap do not fit into memory: end something in the guest, or give it more "
    "memory; until then it"
)


def test_what_does_not_fit_is_not_said_anew_at_every_look() -> None:
    """The figures behind it never rest; what is said changes with those of the status."""
    first = said(wanted(), guest(swapped(9 * GIB, is_lent=False)))
    busy = guest(swapped(9 * GIB + (15 << 20), is_lent=False), available=8 * GIB - (400 << 20))
    again = said(wanted(), busy, first[0])
    assert first[2] is not None
    assert again[2] == first[2]
    assert "2Gi of what" in first[2].message
    near = said(wanted(), guest(swapped(7 * GIB + 1, is_lent=False)))[2]
    assert near is not None
    assert (near.reason, near.message[:5]) == ("SwapDoesNotFit", "16Mi ")


@pytest.mark.parametrize(
    ("seen", "block", "standing", "kind", "reason", "message"),
    [
        (guest(), BOTH, {}, 1, "SettingUp", "tidepool-vdb is being set up"),
        (guest(), BOTH, {"failed": {VDB: DeviceRefused("no", "DeviceMissing")}}, 1, "DeviceMissing", "no"),
        (guest(), BOTH, {"failed": {SWAP: DeviceRefused("full", "NoRoom")}}, 2, "NoRoom", "full"),
        (guest(), BOTH, {"target": DeviceRefused("old", "NoDmsetup")}, 2, "NoDmsetup", "old"),
        (
            guest(disk(is_open=True, is_lent=False)),
            {},
            {},
            1,
            "StillInUse",
            f"{VDB} {STAYS}",
        ),
        (guest(swapped(9 * GIB, is_lent=False)), {}, {}, 2, "SwapDoesNotFit", f"{TOO_MUCH} goes on without a lender"),
        (
            guest(swapped(9 * GIB, 512 << 20)),
            {"swap": FILE},
            {},
            2,
            "SwapDoesNotFit",
            f"{TOO_MUCH} keeps its former size",
        ),
        (guest(disk()), {}, {}, 1, "SettingUp", "tidepool-vdb is being given up"),
        (
            guest(disk(disk_bytes=None, is_open=True)),
            {"devices": ["/dev/vdb"]},
            {},
            1,
            "DeviceGone",
            TAKEN_OUT,
        ),
        (
            guest(disk(is_odd=True, is_lent=False, is_open=True)),
            {},
            {},
            1,
            "DeviceChanged",
            CHANGED,
        ),
    ],
)
def test_what_is_not_as_it_should_be_says_what_to_do(
    seen: Observation, block: dict[str, Any], standing: Mapping[str, Any], kind: int, reason: str, message: str
) -> None:
    condition = said(wanted(**block), seen, **standing)[kind]
    assert isinstance(condition, Condition)
    assert (condition.status, condition.reason, condition.message) == ("False", reason, message)


def test_one_reason_for_all_is_said_once_and_what_is_wrong_before_what_comes() -> None:
    block = wanted(devices=["/dev/vdb", "/dev/vdc"])
    target: GuestError = DeviceRefused("install it", "NoDmsetup")
    for standing in ({"target": target}, {"failed": {"tidepool-vdc": target}}):
        ready = said(block, guest(), **standing)[1]
        assert ready is not None
        assert (ready.reason, ready.message) == ("NoDmsetup", "install it")


# --- what a guest says ------------------------------------------------------------------------------------------------

BASE = f"""\
/proc/sys/kernel/random/boot_id:{BOOT}
/proc/sys/kernel/osrelease:{RELEASE}
"""


def test_what_the_probe_prints_is_understood() -> None:
    seen = parse(
        f"""{BASE}\
/sys/module/tidepool_block/srcversion:ABC
mapped/tidepool-vdb/table:0 262144 tidepool - 254:16 writethrough
mapped/tidepool-vdb/status:0 262144 tidepool hits 5120 misses 768 fallbacks 2 partial 12 puts 5888 drops 0
mapped/tidepool-vdb/open:0
mapped/tidepool-vdb/disk:262144
mapped/tidepool-vdb/below:dm-1 LVM-x
mapped/tidepool-vdb/below:vda data-1 eui.01
mapped/tidepool.swap/disk:8200
mapped/tidepool.swap/table:0 8192 linear 7:0 0
mapped/tidepool.swap/status:0 8192 linear
mapped/tidepool.swap/open:1
mapped/tidepool.swap/file:/var/lib/tidepool/swap
mapped/tidepool.swap/swapped:12
"""
    )
    assert seen.has_target
    stats = {"hits": 5120, "misses": 768, "fallbacks": 2, "puts": 5888}
    disks = ("dm-1 LVM-x", "vda data-1 eui.01")
    lent = Mapped(VDB, 128 << 20, is_lent=True, disk_bytes=128 << 20, below=disks, stats=stats)
    where: dict[str, Any] = {"disk_bytes": 8200 * 512, "file": "/var/lib/tidepool/swap"}
    swap = Mapped(SWAP, 4 << 20, is_lent=False, is_open=True, swapped_bytes=12288, **where)
    assert dict(seen.mapped) == {VDB: lent, SWAP: swap}


@pytest.mark.parametrize(
    "line",
    [
        "mapped/vg-root/table:0 8 linear 7:0 0",
        "mapped/tidepool-a b/table:0 8 linear 7:0 0",
        f"mapped/tidepool-{'a' * 114}/table:0 8 linear 7:0 0",
    ],
)
def test_what_no_probe_prints_is_left_out(line: str) -> None:
    assert dict(parse(f"{BASE}{line}\n").mapped) == {}


@pytest.mark.parametrize("said", ["table:0 8 crypt x", "table:8 8 linear 7:0 0", "open:1"])
def test_a_device_without_a_table_of_ours_is_odd(said: str) -> None:
    odd = Mapped(VDB, 0, is_lent=False, is_odd=True, disk_bytes=None, is_open=True)
    assert dict(parse(f"{BASE}mapped/{VDB}/{said}\n").mapped) == {VDB: odd}


def test_nothing_that_a_guest_says_is_too_much_for_a_status() -> None:
    many = "".join(
        f"mapped/tidepool-{n}/table:0 {'9' * 15} tidepool - 7:0\n"
        f"mapped/tidepool-{n}/status:hits {'9' * 20} misses {'9' * 20} fallbacks {'9' * 20} puts {'9' * 20}\n"
        f"mapped/tidepool-{n}/file:$(reboot)\nmapped/tidepool-{n}/swapped:-1\n"
        for n in range(99)
    )
    seen = parse(BASE + many)
    assert len(seen.mapped) == 64
    status = said(Block(), replace(seen, total_bytes=GIB))[0]
    assert len(status.devices) == 8
    assert {(one.below.startswith("/dev/"), one.swapped_bytes) for one in status.devices} == {(True, None)}
    assert {(one.hits, one.misses, one.puts) for one in status.devices} == {(MOST_COUNT, MOST_COUNT, MOST_COUNT)}


def test_a_pairing_with_a_path_that_is_none_never_reaches_a_guest() -> None:
    """Whoever may write pairings is not root in guests: the agent reads paths only that are nothing but paths."""
    for path in ("/dev/vdb;reboot", "/dev/$(id)", "/etc/shadow", "/dev/../etc/shadow"):
        with pytest.raises(ValueError, match="not the path of a device"):
            pairing(block={"devices": [path]})
    assert isinstance(pairing(block=BOTH), MemoryPairing)


@pytest.mark.parametrize(
    ("step", "unknown"), [(Detach(VDB), "DeviceFailed"), (Give(Offer(1 << 20, "0660", "root")), "ApplicationsFailed")]
)
def test_a_guest_chooses_among_the_reasons_that_there_are(tmp_path: Path, step: Step, unknown: str) -> None:
    """A reason is a label of Prometheus: another word a round would be a series a round. It stays in the message."""

    def failure(word: str) -> DeviceRefused:
        def run(argv: Sequence[str], **_: float) -> Completed:
            return Completed("log" not in argv, "", f"refused: {word}: look at it")

        agent = SimpleNamespace(run=run)
        with pytest.raises(DeviceRefused) as caught:
            Guest(cast(GuestAgent, agent), Store(tmp_path)).carry_out(step, RELEASE)
        return caught.value

    assert {"DeviceMissing", "NoRoom", "NoGroup", "SettingUp"} <= REASONS
    assert {word: failure(word).reason for word in REASONS} == {word: word for word in REASONS}
    assert str(failure("NoRoom")) == "look at it"
    for word in ("AnyWord", "NoRoomx", "A"):
        error = failure(word)
        assert (error.reason, f"refused: {word}: look at it" in str(error)) == (unknown, True)
