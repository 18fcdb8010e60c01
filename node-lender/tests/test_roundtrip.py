"""Gets that a blocking thread serves, beside gets that the runtime would: the figures of README.md's "Runtime"."""

from __future__ import annotations

import json
import subprocess

import pytest
from daemon import HERE
from inside import guest_with, started

from bed.image import CACHE
from bed.measure import INSTRUCTIONS_PER_SECOND

EXAMPLE = CACHE / "node-lender/release/examples/roundtrip"
THREAD, RUNTIME = "a thread, as in the daemon", "the runtime"
GETS, TURNS = 500, 5  # in a guest whose clock goes by instructions, where one turn is like another


def _figures(printed: str) -> dict[str, dict[str, float]]:
    """What each side took of a get, in microseconds of whichever clock."""
    return {one.pop("side"): one for one in map(json.loads, printed.splitlines())}


@pytest.mark.long
def test_a_thread_for_each_connection_saves_a_tenth() -> None:
    """Of the instructions of a get over loopback: the client's, the network's and the lender's."""
    subprocess.run([HERE.parent / "cargo", "build", "--quiet", "--release", "--example", EXAMPLE.name], check=True)
    here = _figures(subprocess.run([EXAMPLE], check=True, capture_output=True, text=True).stdout)
    with guest_with(EXAMPLE, "256M", counted=True) as guest:
        counted = _figures(guest.sh(f"{started(EXAMPLE)} {GETS} {TURNS}"))
        guest.assert_clean()
    spent = {side: one["p50_us"] / 1e6 * INSTRUCTIONS_PER_SECOND for side, one in counted.items()}
    for side, one in here.items():
        print(f"\n{side}: p50 {one['p50_us']:.1f} us, p99 {one['p99_us']:.1f} us, {spent[side]:.0f} instructions")
    assert spent[THREAD] < 0.9 * spent[RUNTIME]
