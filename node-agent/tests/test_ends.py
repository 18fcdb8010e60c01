"""Which guests of which namespaces a pairing is about."""

from __future__ import annotations

from typing import Any

from tidepool_api.pairing import ends


def pairing(**lender: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "poor"}, "spec": {"lender": {"guest": "l"} | lender, "borrower": {"guest": "b"}}}


def test_both_ends_are_of_the_pairings_namespace() -> None:
    assert ends(pairing()) == (("poor", "l"), ("poor", "b"))


def test_a_granted_lender_is_of_its_own() -> None:
    """Passes when the agent of a lender in another namespace finds the pairing by that namespace."""
    assert ends(pairing(namespace="rich")) == (("rich", "l"), ("poor", "b"))
