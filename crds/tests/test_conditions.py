"""Conditions: the time of transition, and that equal observations change nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidepool_api import Condition, Status, condition, find, is_true, merge, without

START = datetime(2026, 1, 1, tzinfo=UTC)

observations = st.builds(
    condition,
    st.sampled_from(["Ready", "Progressing", "Degraded"]),
    st.sampled_from(Status),
    st.sampled_from(["This", "That"]),
    st.text(max_size=5),
    at=st.integers(0, 1000).map(lambda seconds: START + timedelta(seconds=seconds)),
)


def test_time_moves_only_with_the_status() -> None:
    later = START + timedelta(minutes=5)
    first = merge((), condition("Ready", False, "Waiting", at=START))
    second = merge(first, condition("Ready", False, "Broken", "worse", at=later))
    third = merge(second, condition("Ready", True, "Fine", at=later))
    assert [one[0].last_transition_time for one in (first, second, third)] == [START, START, later]
    assert (second[0].reason, second[0].message) == ("Broken", "worse")


@given(st.lists(observations), observations)
def test_the_same_observation_again_changes_nothing(present: list[Condition], fresh: Condition) -> None:
    once = merge(present, fresh)
    assert merge(once, fresh.model_copy(update={"last_transition_time": START + timedelta(days=1)})) == once


@given(st.lists(observations), st.lists(observations))
def test_one_condition_of_each_type(present: list[Condition], fresh: list[Condition]) -> None:
    types = [one.type for one in merge(present, *fresh)]
    assert len(types) == len(set(types))
    assert set(types) == {one.type for one in present + fresh}


def test_looking_one_up() -> None:
    both = (condition("Ready", True, "Fine"), condition("Degraded", None, "Unseen"))
    assert is_true(both, "Ready")
    assert not is_true(both, "Degraded")
    assert not is_true(both, "Progressing")
    assert find(both, "Degraded") is both[1]
    assert without(both, "Ready") == both[1:]


def test_long_messages_are_cut_to_what_the_api_takes() -> None:
    assert len(condition("Ready", False, "Many", "x" * 10_000).message) == 4096


def test_reasons_are_words() -> None:
    with pytest.raises(ValidationError):
        condition("Ready", False, "not a word")
