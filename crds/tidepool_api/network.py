"""The network that pages take: which of a guest's addresses are on it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network

from pydantic import Field, model_validator

from tidepool_api.base import ApiModel
from tidepool_api.fields import Address, Cidr, NetworkName, rule, rules

MOST_ADDRESSES = 16  # of a guest, of an interface, and at which a lender is looked for
MOST_INTERFACES = 16  # of a guest

_ONE_OF_BOTH = "give either multus, the name of a network, or cidrs, ranges of addresses"


class Interface(ApiModel):
    """A network interface of a guest, and what is known of it."""

    name: str = Field(default="", max_length=253)
    """What KubeVirt calls it, the UUID of its Nova port, or else what its guest or host calls it."""

    multus: NetworkName | None = None
    """The Multus network that it is on, by namespace and name, where KubeVirt says so."""

    addresses: tuple[Address, ...] = Field(default=(), max_length=MOST_ADDRESSES)
    """Its IP addresses, as far as others can reach them."""

    def __str__(self) -> str:
        where = f"network {self.multus}" if self.multus else self.name
        found = ", ".join(self.addresses) or "no address"
        return f"{found} ({where})" if where else found


class Network(ApiModel):
    """A network of guests, by its name or by its addresses."""

    multus: NetworkName | None = None
    """A Multus network, as NAMESPACE/NAME: guests are reached at the addresses of their interface there."""

    cidrs: tuple[Cidr, ...] = Field(default=(), max_length=8)
    """Ranges of IP addresses: guests are reached at those of their addresses that are within, on any interface."""

    model_config = {
        "json_schema_extra": rules(
            rule("has(self.multus) != (has(self.cidrs) && self.cidrs.size() > 0)", _ONE_OF_BOTH),
        )
    }

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Network:
        if (self.multus is None) == (not self.cidrs):
            raise ValueError(_ONE_OF_BOTH)
        return self

    def covers(self, address: str) -> bool:
        """Whether an address is on it by itself; of a network that goes by its name nobody can tell."""
        return _is_within(address, self.cidrs)

    def addresses(self, preferred: Iterable[str], interfaces: Iterable[Interface]) -> tuple[str, ...]:
        """Those of a guest's addresses that are on it, in the order in which they are tried."""
        if self.multus:
            found = [one for each in interfaces if each.multus == self.multus for one in each.addresses]
        else:
            every = [*preferred, *(one for each in interfaces for one in each.addresses)]
            found = [one for one in every if self.covers(one)]
        return tuple(dict.fromkeys(found))[:MOST_ADDRESSES]

    def __str__(self) -> str:
        return f"Multus network {self.multus}" if self.multus else ", ".join(self.cidrs)


@lru_cache(maxsize=1 << 16)
def _is_within(address: str, cidrs: tuple[str, ...]) -> bool:
    known = ip_address(address)
    return any(known in ip_network(one) for one in cidrs)
