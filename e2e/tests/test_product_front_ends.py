"""One pool for all that a guest may want memory for: files, a disk, swap and programs, each shown apart."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import pytest
from product import BORROWER, ONE_TO_ONE, POOL, STRESS, Object, Product, report, until

from demo import lab

DISK, NAME = "/dev/vdb", "tidepool-vdb"
LEFT = "ls /dev/mapper/tidepool* /dev/tidepool /var/lib/tidepool/swap 2>/dev/null || :; grep tidepool /proc/swaps || :"
OVER = 48  # MiB that a program has beyond the guest's memory
SHARES = ("files", "devices", "swap", "applications")


def pool() -> Object:
    """As docs/how-to have it: with a raw disk, a swap file, and memory for root's programs."""
    one = copy.deepcopy(ONE_TO_ONE)
    wanted = {"devices": [DISK], "force": [DISK], "swap": {"backing": "File", "size": "128Mi"}}
    one["spec"]["borrowers"] |= wanted | {"applications": {"size": "64Mi"}}
    return one


@pytest.fixture
def bare_disk(product: Product) -> Iterator[Product]:
    """The borrower's disk has no file system for as long as the test."""
    lab.guest(BORROWER, "umount /mnt")
    yield product
    product.delete(patience=180)
    product.format_disk("ext4")


def test_a_pool_serves_files_a_disk_swap_and_programs(bare_disk: Product) -> None:
    """Through cluster, operator and agent: each gets its pages from the lender, none is wrong, and nothing stays."""
    bare_disk.apply_ready(pool(), patience=180)
    assert guest_status()["swap"]["lent"]
    assert [one["name"] for one in guest_status()["devices"]] == [NAME]
    _use_all_of_it(bare_disk)
    until("each has its share of the hits", lambda: all(float(one) > 0 for one in shares().values()), 60)
    found = shown()
    assert (found["DEVICES"], found["SWAP"]) == ("1", "128Mi")
    assert all(float(found[f"{name} HITS"]) > 0 for name in ("FILE", "DEVICE", "SWAP", "APPLICATION")), found
    _assert_counted(bare_disk)
    bare_disk.assert_sound()
    bare_disk.delete(patience=180)
    until("nothing is left in the guest", lambda: not lab.guest(BORROWER, LEFT).strip(), 120)
    bare_disk.assert_nothing_left()


def guest_status() -> Object:
    """What the borrower's MemoryGuest says."""
    found: Object = lab.get("memoryguest", BORROWER)["status"]
    return found


def shares() -> dict[str, str]:
    """Of the pool's hits, by what they are of."""
    found = lab.get("memorypool", POOL)["status"].get("hitShares", {})
    return {name: found.get(name, "0") for name in SHARES}


def shown() -> dict[str, str]:
    """The pool's columns, as kubectl prints them; some are empty."""
    head, row = lab.kubectl("get", "memorypool", POOL, "-o", "wide").splitlines()
    begins = [found.start() for found in re.finditer(r"\S+(?: \S+)*", head)]
    ends = [*begins[1:], None]
    return {head[begin:end].strip(): row[begin:end].strip() for begin, end in zip(begins, ends, strict=True)}


def _use_all_of_it(product: Product) -> None:
    """One after the other; each program verifies what it gets back."""
    for _ in range(2):
        product.stress(f"device /dev/mapper/{NAME} beside={DISK} mib=32 seconds=10")
        available = int(lab.guest(BORROWER, "sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")) >> 10
        product.stress(f"scan {available + OVER} seconds=20")
        values = report(lab.guest(BORROWER, f"{STRESS} values - keys=2000 changes=20000 seconds=60"))
        assert values["hits"] > 0, values
        assert values["wrong_pages"] == values["errors"] == 0, values
        product.stress("fill /root/file mib=200")
        product.stress("sequential /root/file passes=2")
    lab.guest(BORROWER, "rm /root/file")


def _assert_counted(product: Product) -> None:
    """The agent exports what each had from the lender, as the dashboard's panels ask for it."""
    for front_end in ("device", "swap"):
        assert product.exported("tidepool_guest_device_hits_total", guest=BORROWER, front_end=front_end), front_end
    assert product.exported("tidepool_guest_value_page_hits_total", guest=BORROWER)
