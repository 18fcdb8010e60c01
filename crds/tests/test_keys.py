"""What guests are known by, and what a namespace calls them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_api import GuestKey, MemoryPairing, ObjectKey

NAMES = st.text("abc-", min_size=1)
KEYS = st.builds(GuestKey, NAMES, NAMES)


@given(KEYS, NAMES)
def test_a_namespace_finds_the_guest_that_it_calls_so(key: GuestKey, home: str) -> None:
    ref = key.seen_from(home)
    assert GuestKey.meant(ref, home) == key
    assert ref == (key.name if key.namespace == home else f"{key.namespace}/{key.name}")


@given(KEYS)
def test_what_is_printed_can_be_read(key: GuestKey) -> None:
    assert GuestKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "g", "/g", "ns/", "ns/g/x"])
def test_what_names_no_guest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAMESPACE/NAME"):
        GuestKey.parse(text)


def test_what_belongs_to_the_cluster_has_no_namespace() -> None:
    assert ObjectKey.of({"metadata": {"name": "node1"}}) == ("", "node1")


@pytest.mark.parametrize(
    ("namespace", "lender", "ref"),
    [
        (None, GuestKey("poor", "l"), "l"),
        ("poor", GuestKey("poor", "l"), "l"),
        ("rich", GuestKey("rich", "l"), "rich/l"),
    ],
)
def test_the_ends_of_a_pairing(namespace: str | None, lender: GuestKey, ref: str) -> None:
    """A borrower is of the pairing's namespace; a lender may be of another one."""
    home = {"namespace": namespace} if namespace else {}
    spec = {
        "pool": "pool",
        "lender": {"guest": "l", "nodeName": "n", "address": "10.0.0.1", **home},
        "borrower": {"guest": "b", "nodeName": "n"},
    }
    sizes = {"size": "512Mi", "reserve": "256Mi", "maxLend": "1Gi"}
    pairing = MemoryPairing.parse({"metadata": {"name": "p", "namespace": "poor"}, "spec": spec | sizes})
    assert pairing.ends == (lender, GuestKey("poor", "b"))
    assert (pairing.lender_ref, pairing.borrower_ref) == (ref, "b")
