"""The network that pages take: by which address lenders are looked for (issue 28: what an administrator misses, 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from world import BORROWER, LENDER, MIB, guest, mib, pairing, plan, pool, reasons

from tidepool_api import GuestStatus, Interface, MemoryPairing, Network
from tidepool_api.live import live_part
from tidepool_operator.planning import changes
from tidepool_operator.planning.changes import Create, Delete, Update

if TYPE_CHECKING:
    from tidepool_api import MemoryGuest, MemoryPool
    from tidepool_operator.planning.changes import Change

PAGES, RANGE = {"multus": "storage/pages"}, {"cidrs": ["10.20.0.0/16"]}
V4, V6 = "10.20.0.1", "fd00::1"
FIRST = Interface(name="default", addresses=("10.0.0.1",))
SECOND = Interface(name="pages", multus="storage/pages", addresses=(V4, V6))
UNKNOWN = SECOND.model_copy(update={"addresses": ()})


def lender(*interfaces: Interface, name: str = "l", **fields: Any) -> MemoryGuest:
    one = guest(name, LENDER, **fields)
    status: GuestStatus = one.status.model_copy(update={"interfaces": interfaces})
    return one.model_copy(update={"status": status})


def todo(edit: MemoryPool, guests: list[MemoryGuest], pairings: list[MemoryPairing]) -> list[Change]:
    """What is done about the pairings of a pool."""
    everybody = [*guests, guest("b", BORROWER)]
    return changes.between(edit, plan(edit, everybody, pairings), pairings, {one.name: one for one in everybody})


def there(network: dict[str, Any] | None, at: Interface | str) -> MemoryPairing:
    """A pairing whose pages take that network, to an interface or one address."""
    body = pairing("b", "l", 512 * MIB, connected=True).to_dict()
    address, *others = at.addresses if isinstance(at, Interface) else (at,)
    body["spec"]["lender"] |= {"network": network, "address": address, "otherAddresses": others}
    return MemoryPairing.parse(body)


@pytest.mark.parametrize(
    ("network", "address", "others"),
    [(None, "10.0.0.1", []), (PAGES, V4, [V6]), (RANGE, V4, [])],
)
def test_a_lender_is_looked_for_on_the_network_of_the_pool(
    network: dict[str, Any] | None, address: str, others: list[str]
) -> None:
    (create,) = todo(pool(network=network), [lender(FIRST, SECOND)], [])
    assert isinstance(create, Create)
    place = create.spec["lender"]
    assert (place["address"], place["otherAddresses"]) == (address, others)
    written = changes.build.pairing(pool(network=network), create.assignment, create.spec)
    end = MemoryPairing.parse(written).spec.lender
    assert end.network == (Network.model_validate(network) if network else None)
    assert None not in written["spec"]["lender"].values()


@pytest.mark.parametrize("network", [PAGES, RANGE])
@pytest.mark.parametrize("interfaces", [(FIRST,), (FIRST, UNKNOWN), ()])
def test_a_lender_that_is_not_on_it_is_named_with_what_it_has(
    network: dict[str, Any], interfaces: tuple[Interface, ...]
) -> None:
    """It is asked for nothing, and another one that is there serves."""
    guests = [lender(*interfaces, name="a"), lender(FIRST, SECOND), guest("b", BORROWER)]
    made = plan(pool(network=network), guests, [])
    assert mib(made) == {("b", "l"): 512}
    (problem,) = made.problems
    assert (problem.reason, problem.reason.condition) == ("NotOnNetwork", "LendersOnNetwork")
    had = {
        (FIRST,): "10.0.0.1 (default)",
        (FIRST, UNKNOWN): "10.0.0.1 (default), no address (network storage/pages)",
        (): "10.0.0.1",
    }[interfaces]
    assert f": a has {had}; give them an interface there, or name another one in spec.network" in problem.message
    assert not problem.leaves_out(made.unserved)


def test_who_lacks_memory_for_it_is_left_out() -> None:
    made = plan(pool(network=PAGES), [lender(FIRST), guest("b", BORROWER)], [])
    assert (mib(made), reasons(made), made.unserved) == ({}, ["NotOnNetwork", "InsufficientCapacity"], ("b",))
    assert made.problems[0].leaves_out(made.unserved)
    assert "(Multus network storage/pages)" in made.problems[0].message


@pytest.mark.parametrize(
    ("present", "network", "patch"),
    [
        (there(None, FIRST), PAGES, {"address": V4, "otherAddresses": [V6], "network": {**PAGES, "cidrs": []}}),
        (there(None, FIRST), RANGE, {"address": V4, "network": {"multus": None, **RANGE}}),
        (there(PAGES, SECOND), RANGE, {"otherAddresses": [], "network": {"multus": None, **RANGE}}),
        (there(RANGE, V4), PAGES, {"otherAddresses": [V6], "network": {**PAGES, "cidrs": []}}),
        (there(PAGES, SECOND), None, {"address": "10.0.0.1", "otherAddresses": [], "network": None}),
    ],
)
def test_another_network_is_a_live_change(
    present: MemoryPairing, network: dict[str, Any] | None, patch: dict[str, Any]
) -> None:
    """The pairing stays, and nothing but where its lender is looked for is new."""
    (update,) = todo(pool(network=network), [lender(FIRST, SECOND)], [present])
    assert isinstance(update, Update)
    assert update.patch["lender"] == patch
    assert live_part(update.patch, present.spec) == update.patch


@pytest.mark.parametrize("network", [PAGES, RANGE])
def test_an_address_that_is_not_known_for_a_while_leaves_the_pairing_as_it_is(network: dict[str, Any]) -> None:
    """Nor does a wider range, in which the address is that the pairing has."""
    for wanted in (network, {"cidrs": ["10.20.0.0/15"]}):
        (update,) = todo(pool(network=wanted), [lender(FIRST, UNKNOWN)], [there(network, V4)])
        assert isinstance(update, Update)
        assert "lender" not in update.patch


def test_pages_do_not_stay_on_a_network_that_the_pool_no_longer_names() -> None:
    """A lender without an address on the right one is given up, some borrowers at a time."""
    present = there(None, FIRST)
    assert [type(one) for one in todo(pool(network=PAGES), [lender(FIRST)], [present])] == [Delete]
    names = [f"b{at}" for at in range(8)]
    pairings = [pairing(name, "l", 64 * MIB, connected=True) for name in names]
    everybody = [lender(FIRST), *(guest(name, BORROWER) for name in names)]
    made = plan(pool(size=64, network=PAGES), everybody, pairings)
    assert (len(made.assignments), len(made.deferred)) == (6, 6)
    deferred = changes.between(pool(size=64, network=PAGES), made, pairings, {one.name: one for one in everybody})
    assert ["lender" in one.patch for one in deferred if isinstance(one, Update)] == [False] * 6


def test_what_a_lender_holds_that_is_given_up_is_not_shared_out_again() -> None:
    wanted = pool(between=(64, 1024), max_lend=2048, network=PAGES, max_unavailable="100%")
    lenders = [lender(FIRST, name="off"), lender(FIRST, SECOND, available=768)]
    borrowers = [guest("a", BORROWER), guest("b", BORROWER)]
    made = plan(wanted, [*lenders, *borrowers], [pairing("a", "off", 1024 * MIB, connected=True)])
    assert (mib(made), made.unserved) == ({("a", "l"): 256, ("b", "l"): 256}, ())


def test_a_lender_that_has_not_reported_is_not_given_up() -> None:
    rebooting = lender(ready=False)
    (update,) = todo(pool(network=PAGES), [rebooting], [there(None, FIRST)])
    assert isinstance(update, Update)


def test_pairings_of_a_held_pool_stay_on_their_network() -> None:
    """An edit does not reach them; where their lender is on it does."""
    guests = {"l": lender(FIRST, SECOND), "b": guest("b", BORROWER)}
    (update,) = changes.following([there(None, FIRST)], guests)
    assert update.patch == {}
    (update,) = changes.following([there(PAGES, "10.20.0.9")], guests)
    assert update.patch["lender"] == {"address": V4, "otherAddresses": [V6]}
