"""A copy of the API server's objects goes forward only, however late an answer to a write comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidepool_agent.kubeapi import Api
from tidepool_agent.watch import Copy


def followed() -> Copy:
    """A copy that nobody fills: no API server is asked for anything."""
    api = Api("https://127.0.0.1:1", ca=Path("/etc/ssl/certs/ca-certificates.crt"), token=Path("/dev/null"))
    return Copy(api, "/pairings", lambda *_: None)


def item(version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "x", "uid": uid, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("answer", "kept"),
    [(item(9), 10), (item(11), 11), (item(100), 100), (item(11, uid="another"), 10)],
    ids=["older", "newer", "more digits", "another of that name"],
)
def test_an_answer_is_absorbed_if_it_is_newer(answer: dict[str, Any], kept: int) -> None:
    copy = followed()
    copy.objects["n", "x"] = item(10)
    copy.absorb(answer)
    assert copy.objects["n", "x"] == item(kept)


def test_an_answer_does_not_bring_back_what_is_gone() -> None:
    copy = followed()
    copy.absorb(item(11))
    assert not copy.objects
