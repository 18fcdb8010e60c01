"""A cluster that has no address of IPv4: nodes, pods, services and guests have those of IPv6 alone.

It has a lab of its own, before that of the product's tests.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Iterator

import pytest
from product import BORROWER, LENDER, ONE_TO_ONE, POOL, STRESS, Product, until

import docs
from demo import lab, workload

FILE, FILE_MIB = "/mnt/file", 240
GUESTS = {BORROWER: "borrower=288Mi,disk=1Gi:ext4", LENDER: "lender=1Gi"}


@pytest.fixture
def product() -> Iterator[Product]:
    """The lab, with both guests."""
    guests = [argument for spec in GUESTS.values() for argument in ("--guest", spec)]
    try:
        lab.call("up", "--family", "6", *guests, show=True, patience=3600)
        lab.call("cp", workload.build_stress(), f"{BORROWER}:{STRESS}")
        lab.guest(BORROWER, "mountpoint -q /mnt || mount /dev/vdb /mnt")
        yield Product()
    finally:
        lab.call(*shlex.split(docs.command("down"))[1:], show=True)


def _is_ipv6(address: str) -> bool:
    return ipaddress.ip_address(address).version == 6


@pytest.mark.long
def test_a_cluster_of_ipv6_alone(product: Product) -> None:
    """A pool is applied, pages come back from the lender, and all is seen; everybody has an address of IPv6."""
    pods = json.loads(lab.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    found = [address["ip"] for pod in pods for address in pod["status"]["podIPs"]]
    assert found
    assert all(map(_is_ipv6, found))
    product.apply_ready(ONE_TO_ONE)
    for guest in GUESTS:
        addresses = lab.get("memoryguest", guest)["status"]["addresses"]
        assert addresses
        assert all(map(_is_ipv6, addresses))
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    before = product.hits()
    report = product.stress(f"random {FILE} reads=20000 threads=4")
    assert report["wrong_pages"] == report["errors"] == 0
    assert product.hits() > before + 2000
    assert lab.guest(BORROWER, "grep -c '^TCP6: inuse [1-9]' /proc/net/sockstat6").strip() == "1"
    until("the agents export it", lambda: (product.exported("tidepool_guest_lent_bytes", guest=LENDER) or 0) > 0)
    product.assert_sound(*GUESTS)
    product.delete(POOL)
    product.assert_nothing_left(*GUESTS)
