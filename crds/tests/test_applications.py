"""Memory for programs: what the mode and the group of its device may be, and what they are where nothing is said."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidepool_api import Applications, Borrowers, PoolStatus
from tidepool_api.applications import is_group


@pytest.mark.parametrize(
    ("said", "mode", "group"),
    [
        ({}, "0600", "root"),
        ({"group": "redis"}, "0660", "redis"),
        ({"group": "redis", "mode": "0640"}, "0640", "redis"),
        ({"mode": "0600"}, "0600", "root"),
    ],
)
def test_who_may_open_the_device(said: dict[str, str], mode: str, group: str) -> None:
    """Nobody but root unless a group is named."""
    one = Applications.model_validate({"size": "1Gi"} | said)
    assert (one.effective_mode, one.effective_group, one.size_bytes) == (mode, group, 1 << 30)


@given(st.text(max_size=40))
def test_a_name_of_a_group_is_one_word_for_a_shell_and_for_udev(text: str) -> None:
    """By the models, too: what an agent reads has been written by somebody else."""
    if is_group(text):
        assert re.fullmatch(r"[a-z0-9_-]{1,32}", text)
        assert not text.startswith("-")
        assert not text[0].isdigit()
        return
    with pytest.raises(ValidationError):
        Borrowers.model_validate({"applications": {"size": "1Gi", "group": text}})


@given(st.text(alphabet="01234567", min_size=3, max_size=5))
def test_no_mode_lets_everybody_in(mode: str) -> None:
    try:
        one = Applications.model_validate({"size": "1Gi", "group": "redis", "mode": mode})
    except ValidationError:
        assert mode not in ("0600", "0620", "0640", "0660")
    else:
        assert int(one.effective_mode, 8) & 0o117 == 0


def test_a_refusal_names_every_mode_that_there_is() -> None:
    with pytest.raises(ValidationError) as refused:
        Applications.model_validate({"size": "1Gi", "group": "redis", "mode": "0630"})
    assert all(f'"{mode}" for' in str(refused.value) for mode in ("0660", "0640", "0620", "0600"))


def test_a_pool_says_readably_what_its_programs_keep() -> None:
    assert PoolStatus(applications_bytes=3 << 29).applications == "1536Mi"
