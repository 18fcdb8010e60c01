"""Parsing what the probe prints: what a real guest says (see test_guest), and what none should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import BOOT, LENDER, OTHER, RELEASE

from tidepool_agent.errors import Nonsense
from tidepool_agent.guestfs import MAX_PEERS, Observation, Side, parse
from tidepool_agent.histogram import MAX_KINDS, Histogram
from tidepool_api.fields import MOST_BYTES

BASE = f"""\
/proc/sys/kernel/random/boot_id:{BOOT}
/proc/sys/kernel/osrelease:{RELEASE}
/proc/meminfo:MemTotal:         500000 kB
/proc/meminfo:MemAvailable:     300000 kB
"""
TREE = "/sys/kernel/config/tidepool"
LOADED = f"""\
{BASE}/sys/module/tidepool/version:0.1.0
/sys/module/tidepool/srcversion:ABCDEF0123
{TREE}/stats:misses 7
{TREE}/stats:warnings 0
{TREE}/identity:{LENDER}
{TREE}/port:7470
{TREE}/lend_bytes:1048576
{TREE}/lenders/uid-1/address:2001:db8::1
{TREE}/lenders/uid-1/identity:{OTHER}
{TREE}/lenders/uid-1/enabled:1
{TREE}/lenders/uid-1/state:Connected
{TREE}/lenders/uid-1/stats:get_hits 12
{TREE}/lenders/uid-1/latency:get 127 3
{TREE}/lenders/uid-1/latency:get inf 1
{TREE}/lenders/uid-1/latency:ping 63 9
"""


def test_a_guest_without_the_module() -> None:
    expected = Observation(BOOT, RELEASE, 500000 * 1024, 300000 * 1024)
    assert parse(BASE) == expected


def test_a_guest_that_brings_the_module() -> None:
    assert parse(BASE + "installed:yes\n").installed
    assert parse(BASE + "buildable:yes\n").buildable


def test_a_borrower() -> None:
    seen = parse(LOADED)
    assert seen.module is not None
    assert (seen.module.version, seen.module.srcversion) == ("0.1.0", "ABCDEF0123")
    assert dict(seen.module.settings) == {"port": "7470", "lend_bytes": "1048576"}
    assert (seen.module.identity, seen.peers[Side.LENDERS, "uid-1"].identity) == (LENDER, OTHER)
    assert dict(seen.module.stats) == {"misses": 7, "warnings": 0}
    peer = seen.peers[Side.LENDERS, "uid-1"]
    assert (peer.state, peer.enabled, peer.attributes["address"]) == ("Connected", True, "2001:db8::1")
    assert dict(peer.stats) == {"get_hits": 12}
    assert peer.latency == {"get": Histogram(((127, 3), (float("inf"), 1))), "ping": Histogram(((63, 9),))}


def test_a_guest_has_no_more_peers_and_durations_than_a_module() -> None:
    """What is known of a guest is kept until the next look: a megabyte of made-up peers would be twenty."""
    peers = "".join(f"{TREE}/borrowers/made-up-{at}/state:Connected\n" for at in range(1000))
    kinds = "".join(f"{TREE}/latency:{chr(97 + at // 26)}{chr(97 + at % 26)} 127 1\n" for at in range(600))
    seen = parse(LOADED + peers + kinds)
    assert (len(seen.peers), (Side.LENDERS, "uid-1") in seen.peers) == (MAX_PEERS, True)
    assert seen.module is not None
    assert len(seen.module.latency) == MAX_KINDS


def test_what_a_planner_decides_on() -> None:
    seen = parse(
        LOADED
        + f"""\
/proc/meminfo:Active(anon):        1000 kB
/proc/meminfo:Inactive(anon):      2000 kB
/proc/meminfo:Active(file):        4000 kB
/proc/meminfo:Inactive(file):      9000 kB
/proc/meminfo:Unevictable:         8000 kB
/proc/uptime:123.45 400.00
/proc/pressure/memory:some avg10=90.00 avg60=12.99 avg300=0.00 total=1
/proc/pressure/memory:full avg10=90.00 avg60=1.00 avg300=0.00 total=1
/proc/pressure/io:some avg10=0.00 avg60=999.00 avg300=0.00 total=1
/proc/vmstat:workingset_refault_file 77
{TREE}/ghost:NonInclusive
{TREE}/ghost_curve:hit_ratio 1073741824 0.8125
{TREE}/ghost_curve:hit_ratio 536870912 0.5000
{TREE}/ghost_curve:hit_ratio 536870913 7.5000
{TREE}/ghost_curve:references 9000
{TREE}/ghost_curve:sampled_references 1200
"""
    )
    assert (seen.working_set_bytes, seen.uptime, seen.refaults) == (15000 * 1024, 123.45, 77)
    assert seen.stalls == {"memory some": 12, "memory full": 1, "io some": 100}
    assert seen.module is not None
    assert seen.module.ghost == "NonInclusive"
    assert seen.module.curve == ((512 << 20, 0.5), (1 << 30, 0.8125))
    assert (seen.module.references, seen.module.sampled_references) == (9000, 1200)


def test_memory_that_no_machine_has_is_not_believed() -> None:
    """The four parts of the working set together have to fit into a field of the API."""
    parts = ("Active(anon)", "Inactive(anon)", "Active(file)", "Unevictable")
    for digits, fits in ((13, True), (14, False)):
        seen = parse(BASE + "".join(f"/proc/meminfo:{part}: {'9' * digits} kB\n" for part in parts))
        assert (seen.working_set_bytes is not None) == fits
        assert (seen.working_set_bytes or 0) <= MOST_BYTES


@pytest.mark.parametrize(
    "line",
    [
        "/proc/sys/kernel/osrelease:../../etc",
        "/proc/sys/kernel/osrelease:6.1/../..",
        "/proc/sys/kernel/osrelease:",
        "/proc/sys/kernel/random/boot_id:yes",
    ],
)
def test_a_release_or_boot_id_that_no_kernel_has_is_refused(line: str) -> None:
    path = line.partition(":")[0]
    others = "\n".join(one for one in BASE.splitlines() if not one.startswith(path))
    with pytest.raises(Nonsense, match=path):
        parse(f"{others}\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        f"{TREE}/lenders/../state:Connected",
        f"{TREE}/lenders/{'x' * 64}/state:Connected",
        f"{TREE}/lenders/a b/state:Connected",
        f"{TREE}/others/a/state:Connected",
    ],
)
def test_a_directory_that_we_would_not_have_made_is_not_seen(line: str) -> None:
    assert parse(BASE + line).peers == {}


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(("stats", "latency", "state", "enabled")),
            st.from_regex(r"[a-z_]{0,5} ?([0-9]{0,40}|inf|-1)? ?[0-9]{0,40}", fullmatch=True) | st.text(),
        )
    )
)
def test_figures_that_make_no_sense_are_left_out(lines: list[tuple[str, str]]) -> None:
    text = "".join(f"{TREE}/lenders/u/{name}:{content}\n" for name, content in lines)
    for peer in parse(BASE + text).peers.values():
        assert all(0 <= value <= 1 << 63 for value in peer.stats.values())
        assert all(histogram.count >= 0 for histogram in peer.latency.values())


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with pytest.raises(Nonsense):
        parse(text)
