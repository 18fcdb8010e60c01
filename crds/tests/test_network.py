"""The network that pages take (issue 28, "What an administrator misses", point 5)."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tidepool_api import GuestStatus, Interface, Network

POD, PAGES = Interface(name="default", addresses=("10.1.0.5",)), "storage/pages"
SECOND = Interface(name="nic1", multus=PAGES, addresses=("10.20.0.5", "fd00::5"))
STATUS = GuestStatus(addresses=("10.1.0.5", "fd00::1"), interfaces=(POD, SECOND))


@pytest.mark.parametrize(
    ("network", "found"),
    [
        (None, ("10.1.0.5", "fd00::1")),
        ({"multus": PAGES}, ("10.20.0.5", "fd00::5")),
        ({"multus": "other/pages"}, ()),
        ({"cidrs": ("10.20.0.0/16",)}, ("10.20.0.5",)),
        ({"cidrs": ("fd00::/64",)}, ("fd00::1", "fd00::5")),
        ({"cidrs": ("fd00::/64", "10.0.0.0/8")}, ("10.1.0.5", "fd00::1", "10.20.0.5", "fd00::5")),
        ({"cidrs": ("10.21.0.0/16",)}, ()),
    ],
)
def test_a_guest_is_reached_at_its_addresses_on_a_network(
    network: dict[str, object] | None, found: tuple[str, ...]
) -> None:
    """Never at another one, each once, and in the order in which they are tried without a network."""
    assert STATUS.addresses_on(Network.model_validate(network) if network else None) == found


def test_only_ranges_say_of_an_address_whether_it_is_within() -> None:
    assert Network(cidrs=("10.20.0.0/16",)).covers("10.20.3.4")
    assert not Network(cidrs=("10.20.0.0/16",)).covers("fd00::1")
    assert not Network(multus=PAGES).covers("10.20.0.5")


def test_people_recognise_them() -> None:
    assert (str(Network(multus=PAGES)), str(Network(cidrs=("10.0.0.0/8", "fd00::/64")))) == (
        "Multus network storage/pages",
        "10.0.0.0/8, fd00::/64",
    )
    assert [str(one) for one in (POD, SECOND, Interface(name="eth1"), Interface(addresses=("10.0.0.1",)))] == [
        "10.1.0.5 (default)",
        "10.20.0.5, fd00::5 (network storage/pages)",
        "no address (eth1)",
        "10.0.0.1",
    ]


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({}, "give either multus"),
        ({"multus": PAGES, "cidrs": ("10.0.0.0/8",)}, "give either multus"),
        ({"multus": "pages"}, "NAMESPACE/NAME"),
        ({"cidrs": ("10.20.1.5/16",)}, "is not a range of IP addresses"),
    ],
)
def test_wrong_networks_are_refused(network: dict[str, object], message: str) -> None:
    """As the API server does."""
    with pytest.raises(ValidationError, match=message):
        Network.model_validate(network)
