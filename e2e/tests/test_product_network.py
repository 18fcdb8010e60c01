"""The network that pages take, told by what each interface of both guests has carried."""

from __future__ import annotations

from copy import deepcopy

import pytest
from product import BORROWER, LENDER, ONE_TO_ONE, Object, Product, until

from demo import lab, module
from tidepool_lab import pages_network
from tidepool_lab.addresses import IPV4

FILE = "/mnt/file"
PODS, PAGES = "eth0", pages_network.DEVICE
WAYS: list[tuple[Object, str]] = [
    ({}, PODS),
    ({"multus": pages_network.MULTUS}, PAGES),
    ({"cidrs": [IPV4.pods]}, PODS),
    ({"cidrs": [pages_network.CIDR]}, PAGES),
]
LITTLE = 0.02  # of what the pages take: all that a network may carry that is not theirs


@pytest.fixture
def filled(product: Product) -> Product:
    """A pool over the first of these networks, whose lender has most of a file."""
    product.apply_ready(over(WAYS[0][0]))
    product.stress(f"fill {FILE} mib=240")
    product.stress(f"sequential {FILE}")
    return product


def test_pages_take_the_network_that_the_pool_names_and_no_other(filled: Product) -> None:
    """Without one, by its Multus name, by ranges of addresses; each is an edit, by which session and pages stay."""
    begun = filled.sessions_begun()
    for network, device in WAYS:
        filled.apply_ready(over(network))
        until(f"the lender is asked over {device}", lambda: device_to_lender() == device)  # noqa: B023
        until("pages flow", lambda: flows(filled))
        other = PODS if device == PAGES else PAGES
        before, hits = carried(), filled.hits()
        filled.stress(f"random {FILE} reads=4000 threads=2")
        after, pages = carried(), (filled.hits() - hits) * module.PAGE
        assert pages > 100 * module.PAGE
        for guest in (BORROWER, LENDER):
            grown = {name: after[guest][name] - before[guest][name] for name in (device, other)}
            assert grown[device] > pages, (network, guest, grown)
            assert grown[other] < LITTLE * pages, (network, guest, grown)
    assert filled.sessions_begun() == begun
    filled.assert_sound()


def over(network: Object) -> Object:
    """The pool with a network, or without."""
    pool = deepcopy(ONE_TO_ONE)
    if network:
        pool["spec"]["network"] = network
    return pool


def device_to_lender() -> str:
    """The interface by which the borrower reaches its lender, where its module is connected to one."""
    connected = f"cd {module.TREE}/lenders/*/ && grep -q Connected state && ip route get $(cat address) || true"
    words = lab.guest(BORROWER, connected).split()
    return words[words.index("dev") + 1] if "dev" in words else ""


def flows(product: Product) -> bool:
    """Whether some pages come from the lender now."""
    hits = product.hits()
    product.stress(f"random {FILE} reads=1000 threads=2")
    return product.hits() > hits + 100


def carried() -> dict[str, dict[str, int]]:
    """Bytes that each interface of both guests has received and sent."""
    count = "cd /sys/class/net; for one in eth*; do echo $one $(cat $one/statistics/?x_bytes); done"
    lines = {guest: [line.split() for line in lab.guest(guest, count).splitlines()] for guest in (BORROWER, LENDER)}
    return {guest: {name: sum(map(int, each)) for name, *each in found} for guest, found in lines.items()}
