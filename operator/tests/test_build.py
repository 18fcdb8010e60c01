"""Bodies that are written: names that cannot collide, patches that say no more than they must."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidepool_operator.planning import build

name = st.from_regex(r"[a-z]([a-z.-]{0,8}[a-z])?", fullmatch=True)
json_values = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from("abcd"), json_values, max_size=4)


def test_names_are_readable() -> None:
    assert build.pairing_name("pool", "borrower", "lender") == "pool.borrower.lender"


@given(st.tuples(name, name, name), st.tuples(name, name, name))
def test_names_do_not_collide(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Dots within the parts would make `a.b` + `c` and `a` + `b.c` the same."""
    assert (build.pairing_name(*one) == build.pairing_name(*other)) == (one == other)


@pytest.mark.parametrize("length", [63, 100, 253])
def test_long_names_are_cut_and_stay_apart(length: int) -> None:
    first, second = (build.pairing_name("pool", "b" * length, "l" * (length - 1) + end) for end in "xy")
    assert first != second
    assert max(len(first), len(second)) <= build.LONGEST_NAME


def merged(present: build.Body, patch: build.Body) -> build.Body:
    """What a server makes of a JSON merge patch (RFC 7396)."""
    result = dict(present)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = merged(old if isinstance(old, dict) else {}, value)
        else:
            result[key] = value
    return result


@given(bodies)
def test_no_difference_no_patch(body: build.Body) -> None:
    assert build.difference(body, body) == {}
    assert build.replacement(body, body) == {}


@given(bodies, bodies)
def test_a_difference_brings_the_wanted_fields_about(present: build.Body, wanted: build.Body) -> None:
    after = merged(present, build.difference(present, wanted))
    assert build.difference(after, wanted) == {}
    assert all(after[key] == value for key, value in present.items() if key not in wanted)


@example({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}})
@given(bodies, bodies)
def test_a_replacement_leaves_no_other_field(present: build.Body, wanted: build.Body) -> None:
    assert merged(present, build.replacement(present, wanted)) == wanted
