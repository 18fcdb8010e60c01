"""What the operator and the agents export: every metric's type, unit, labels and help, said once.

`python -m tidepool_api.metrics` prints docs/reference/metrics.md. A name ends with its unit where Prometheus has a base
unit for it (bytes, seconds, ratio), and with `total` if it only grows; what counts pages counts pages of 4 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidepool_api.names import Metric

POOL = ("namespace", "pool")
GUEST = ("namespace", "guest")
PAIRING = (*GUEST, "pool", "pairing")
DEVICE = (*GUEST, "front_end", "device")
VALUE_POOL = (*GUEST, "value_pool")


class MetricType(StrEnum):
    """Prometheus' types, as many as are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Description:
    """What there is to know about a metric beside its name; its help ends without a full stop."""

    type: MetricType
    unit: str
    labels: tuple[str, ...]
    help: str


def _gauge(unit: str, labels: tuple[str, ...], text: str) -> Description:
    return Description(MetricType.GAUGE, unit, labels, text)


def _counter(unit: str, labels: tuple[str, ...], text: str) -> Description:
    return Description(MetricType.COUNTER, unit, labels, text)


def _seconds(labels: tuple[str, ...], text: str) -> Description:
    return Description(MetricType.HISTOGRAM, "seconds", labels, text)


_INEXACT = "the sum is exact to a bucket's width only"
_LOCAL = "that needed no lender: the value is read often, and in the guest's own memory, too"
_SPILLED = "from kept pools that the guest's own disk had to answer"

OPERATOR: Mapping[Metric, Description] = {
    Metric.POOL_READY: _gauge("0 or 1", POOL, "1 if the pool is Ready"),
    Metric.POOL_DEGRADED: _gauge("0 or 1", POOL, "1 if the pool is Degraded: its conditions say why"),
    Metric.POOL_LENT_BYTES: _gauge("bytes", POOL, "Memory that lenders hold ready for connected borrowers"),
    Metric.POOL_USED_BYTES: _gauge("bytes", POOL, "Memory that borrowers use at their lenders, rounded"),
    Metric.POOL_HIT_RATIO: _gauge(
        "ratio",
        POOL,
        "Pages that came from lenders, among all read that they were believed to have, since the pairings were set up",
    ),
    Metric.POOL_GUESTS: _gauge("guests", (*POOL, "role"), "Guests that the selectors match"),
    Metric.POOL_PAIRINGS: _gauge("pairings", (*POOL, "phase"), "Pairings by phase"),
    Metric.POOL_UNATTENDED: _gauge("pairings", POOL, "Pairings one of whose agents does not answer"),
    Metric.POOL_OVERDUE_IDENTITIES: _gauge(
        "pairings", POOL, "Pairings whose guests have not been given each other's identity for minutes"
    ),
    Metric.POOL_REFUSED_WRITES: _gauge(
        "writes",
        POOL,
        "Writes to the pool and its pairings that the API server refuses, or leaves without an answer, and those that "
        "wait meanwhile; none where all succeed",
    ),
    Metric.POOL_FORECAST: _gauge(
        "pages a second",
        (*POOL, "factor"),
        "Reads that disks would be spared if each guest that borrows in the pool, or could, had there `factor` times "
        "what the pool says; by the curves that are known, as `kubectl tidepool plan` says",
    ),
    Metric.POOL_UNNEEDED_BYTES: _gauge(
        "bytes",
        POOL,
        "Memory that the guests of the pool do without: what borrowers would need of their own for as few reads from "
        "disk, by the curves that are known",
    ),
    Metric.GUEST_UNPAIRED_BYTES: _gauge(
        "bytes",
        GUEST,
        "Memory that the guest held for borrowers whom no pairing names, when its agent, which is dead, last looked; "
        "none where an agent lives to say it",
    ),
    Metric.PLAN_SECONDS: _seconds((), "Processor time to plan one pool"),
    Metric.PASS_PLAN_SECONDS: _seconds((), "Processor time to plan all pools of a namespace"),
    Metric.LEADING: _gauge("0 or 1", (), "1 if this operator acts, 0 if it waits for another"),
    Metric.RECONCILES: _counter("namespaces", (), "Namespaces gone over"),
    Metric.RECONCILE_ERRORS: _counter(
        "steps", (), "Passes over a namespace, and other steps, in which something failed or was refused"
    ),
    Metric.API_WRITES: _counter("objects", ("kind",), "Objects written"),
}

AGENT: Mapping[Metric, Description] = {
    # the agent itself
    Metric.AGENT_ERRORS: _counter(
        "steps",
        ("agent", "namespace"),
        "Rounds over a guest, and other steps, in which something failed or the API server refused a write, by the "
        "guest's namespace; `agent` is the node of the agent",
    ),
    # the guest
    Metric.GUEST_INFO: _gauge(
        "1",
        (*GUEST, "provider", "kernel", "module_version"),
        "Always 1; what the guest is. Once it has been 16 kernels, with modules, others are not named",
    ),
    Metric.GUEST_CONDITION: _gauge(
        "1, 0 or -1", (*GUEST, "type", "reason"), "The conditions of the MemoryGuest: 1 True, 0 False, -1 Unknown"
    ),
    Metric.GUEST_STALE: _gauge("0 or 1", GUEST, "1 while the guest does not answer and its figures are old"),
    Metric.GUEST_MEMORY_BYTES: _gauge("bytes", GUEST, "Memory of the guest"),
    Metric.GUEST_AVAILABLE_BYTES: _gauge("bytes", GUEST, "MemAvailable of the guest, which counts what it lends"),
    Metric.GUEST_GATHERED_BYTES: _gauge(
        "bytes", GUEST, "Memory that the guest's balloon holds for its node; of guests that a pool gathers from"
    ),
    Metric.GUEST_WORKING_SET_BYTES: _gauge("bytes", GUEST, "Active page cache, anonymous and unevictable memory"),
    Metric.GUEST_REFAULTS: _counter("pages", GUEST, "Pages that were read again soon after their eviction"),
    Metric.GUEST_PRESSURE: _gauge(
        "ratio",
        (*GUEST, "resource", "kind"),
        "Part of the last minute in which some or all (full) tasks waited for memory or I/O",
    ),
    Metric.GUEST_GHOST_READS: _counter(
        "pages", GUEST, "Pages of files that the page cache lacked while the guest borrowed nothing, by its ghost mode"
    ),
    Metric.GUEST_FORECAST: _gauge(
        "ratio",
        (*GUEST, "size"),
        "Part of these that a pool of so many bytes would have answered; absent while that rests on too few",
    ),
    Metric.GUEST_DISK_READS: _counter(
        "pages",
        GUEST,
        "Pages of known files, and blocks of the module's devices, that were read from disk, for any reason; a file "
        "is known once it has lost a page while a lender took pages",
    ),
    Metric.GUEST_DISK_READ_SECONDS: _seconds(GUEST, f"Time of the guest's own reads from disk, sampled; {_INEXACT}"),
    Metric.GUEST_WARNINGS: _counter("broken invariants", GUEST, "Broken invariants in the module: must stay 0"),
    Metric.GUEST_VERIFIED: _counter("pages", GUEST, "Pages from the pool that were compared with the disk"),
    Metric.GUEST_VERIFY_FAILED: _counter("pages", GUEST, "Of those, not what the disk has: must stay 0"),
    # both ends of a pairing
    Metric.GUEST_CONNECTED: _gauge("0 or 1", (*PAIRING, "side"), "1 if this end of the pairing is connected"),
    Metric.GUEST_GRANTED_BYTES: _gauge("bytes", (*PAIRING, "side"), "Memory that the lender has granted"),
    # the lender's end
    Metric.GUEST_LENT_BYTES: _gauge("bytes", PAIRING, "Memory that holds the borrower's pages"),
    Metric.GUEST_RECLAIMED: _counter("pages", PAIRING, "Pages that the lender's kernel took back"),
    Metric.GUEST_RECYCLED: _counter("pages", PAIRING, "Oldest pages dropped for newer ones"),
    # the borrower's end
    Metric.GUEST_USED_BYTES: _gauge("bytes", PAIRING, "Memory in use at the lender"),
    Metric.GUEST_CONNECTS: _counter("connections", PAIRING, "Connections: more than a few are a flapping one"),
    Metric.GUEST_GETS_HIT: _counter(
        "pages", PAIRING, "Pages read back from the lender, or on their way to it: reads that the disk was spared"
    ),
    Metric.GUEST_GETS_MISSED: _counter("pages", PAIRING, "Pages that the lender had dropped"),
    Metric.GUEST_GETS_LATE: _counter("pages", PAIRING, "Pages that came too late or not at all"),
    Metric.GUEST_GETS_CORRUPT: _counter(
        "pages", PAIRING, "Pages that came back and were not what was put: must stay 0"
    ),
    Metric.GUEST_GETS_SKIPPED: _counter(
        "pages",
        (*PAIRING, "reason"),
        "Pages that the lender has and that were read from disk all the same: it could not be asked, or had better not "
        "be, or not all that is read together came",
    ),
    Metric.GUEST_PUTS: _counter("pages", PAIRING, "Pages handed over to the lender"),
    Metric.GUEST_PUTS_DROPPED: _counter(
        "pages", (*PAIRING, "reason"), "Evicted pages that were not handed over; no pairing where no lender was chosen"
    ),
    Metric.GUEST_GET_SECONDS: _seconds(PAIRING, f"Time from the request to the page; {_INEXACT}"),
    Metric.GUEST_PUT_SECONDS: _seconds(
        PAIRING, f"Time from sending a batch of pages to its acknowledgement; {_INEXACT}"
    ),
    Metric.GUEST_PING_SECONDS: _seconds(PAIRING, f"Round trip without payload; {_INEXACT}"),
    Metric.GUEST_BREAKER_OPEN: _gauge(
        "0 or 1", PAIRING, "1 while the borrower leaves the lender alone for its slowness"
    ),
    Metric.GUEST_BREAKER_OPENED: _counter("times", PAIRING, "Times that the breaker opened"),
    # its block devices: those that the pool names (front_end device), and its swap area (front_end swap)
    Metric.GUEST_DEVICE_BYTES: _gauge("bytes", DEVICE, "Size of the device"),
    Metric.GUEST_DEVICE_LENT: _gauge("0 or 1", DEVICE, "1 if lenders are in front of it, 0 if it goes on without"),
    Metric.GUEST_DEVICE_HITS: _counter("pages", DEVICE, "Blocks that lenders have answered, among those of pairings"),
    Metric.GUEST_DEVICE_DISK_READS: _counter("pages", DEVICE, "Blocks that were read from its disk"),
    Metric.GUEST_DEVICE_PUTS: _counter("pages", DEVICE, "Blocks handed over to lenders, among those of pairings"),
    Metric.GUEST_SWAPPED_BYTES: _gauge("bytes", DEVICE, "Memory that is swapped out to it"),
    # its memory for programs
    Metric.GUEST_VALUES_LIMIT_BYTES: _gauge("bytes", GUEST, "Memory that programs may keep values in"),
    Metric.GUEST_VALUES_BYTES: _gauge("bytes", GUEST, "Memory that values take, and the guest's own to remember them"),
    Metric.GUEST_VALUES: _gauge("values", GUEST, "Values of programs"),
    Metric.GUEST_VALUE_POOLS: _gauge("pools", GUEST, "Pools of programs that have values, or may"),
    Metric.GUEST_VALUES_OPENED: _gauge("descriptors", GUEST, "How many times programs have /dev/tidepool open"),
    Metric.GUEST_VALUE_HITS: _counter("values", GUEST, "Gets of programs that brought the value"),
    Metric.GUEST_VALUE_MISSES: _counter("values", GUEST, "Gets of programs for which there was none"),
    Metric.GUEST_VALUES_LOST: _counter("values", GUEST, "Of those, gets of values that no lender gave back"),
    Metric.GUEST_VALUE_PUTS: _counter("values", GUEST, "Values that programs have put"),
    Metric.GUEST_VALUE_PAGE_HITS: _counter(
        "pages", GUEST, "Pages of values that lenders have answered, among those of pairings"
    ),
    Metric.GUEST_VALUE_LOCAL_HITS: _counter("values", GUEST, f"Gets {_LOCAL}"),
    Metric.GUEST_VALUES_FRONT_BYTES: _gauge("bytes", GUEST, "Memory of the guest for values that are read often"),
    Metric.GUEST_VALUE_DISK_READS: _counter("reads", GUEST, f"Gets {_SPILLED}"),
    Metric.GUEST_VALUE_GET_SECONDS: _seconds(GUEST, f"Time of a get that brought the value; {_INEXACT}"),
    Metric.GUEST_VALUE_PUT_SECONDS: _seconds(GUEST, f"Time of a put that did not fail; {_INEXACT}"),
    # pools that programs have named: no more than eight of a guest, which are in the figures above, too
    Metric.VALUE_POOL_BYTES: _gauge("bytes", VALUE_POOL, "Memory that values of the pool take, and to remember them"),
    Metric.VALUE_POOL_HITS: _counter("values", VALUE_POOL, "Gets that brought the value"),
    Metric.VALUE_POOL_MISSES: _counter("values", VALUE_POOL, "Gets for which there was none"),
    Metric.VALUE_POOL_LOST: _counter("values", VALUE_POOL, "Of those, gets of values that no lender gave back"),
    Metric.VALUE_POOL_PUTS: _counter("values", VALUE_POOL, "Values that were put"),
    Metric.VALUE_POOL_LOCAL_HITS: _counter("values", VALUE_POOL, f"Gets {_LOCAL}"),
    Metric.VALUE_POOL_FRONT_BYTES: _gauge(
        "bytes", VALUE_POOL, "Memory of the guest for values of it that are read often"
    ),
    Metric.VALUE_POOL_DISK_READS: _counter("reads", VALUE_POOL, f"Gets {_SPILLED}"),
    Metric.VALUE_POOL_GET_SECONDS: _seconds(VALUE_POOL, f"Time of a get that brought the value; {_INEXACT}"),
    Metric.VALUE_POOL_PUT_SECONDS: _seconds(VALUE_POOL, f"Time of a put that did not fail; {_INEXACT}"),
}

_EACH = ("namespace", "pool", "pairing")
_HITS = (
    "Pages that came from lenders, among all read that they were believed to have; what they never had, or said is "
    "gone, is in neither"
)
_SPARED = "Reads that disks were spared"

# What Prometheus makes of these, by the chart's recording rules.
RULES: Mapping[str, Description] = {
    "pairing:tidepool_hit_ratio:rate5m": _gauge("ratio", _EACH, _HITS),
    "pool:tidepool_hit_ratio:rate5m": _gauge("ratio", POOL, _HITS),
    "pairing:tidepool_saved_disk_reads:rate5m": _gauge("pages a second", _EACH, _SPARED),
    "pool:tidepool_saved_disk_reads:rate5m": _gauge("pages a second", POOL, _SPARED),
    "pool:tidepool_lent_bytes:sum": _gauge("bytes", POOL, "Memory that lenders hold, by their own namespace"),
    "pool:tidepool_used_bytes:sum": _gauge(
        "bytes", POOL, "Memory that borrowers have at lenders: what they would need more of themselves, at most"
    ),
    "pairing:tidepool_saved_disk_reads_per_gib:rate5m": _gauge(
        "pages a second", _EACH, f"{_SPARED}, for each GiB that is lent; absent while none is in use"
    ),
    "pool:tidepool_saved_disk_reads_per_gib:rate5m": _gauge(
        "pages a second", POOL, f"{_SPARED}, for each GiB that is lent; absent while none is in use"
    ),
    "guest:tidepool_forecast_disk_reads:rate5m": _gauge(
        "pages a second", (*GUEST, "size"), "Reads that a pool of `size` bytes would spare a guest that borrows nothing"
    ),
    "lender:tidepool_own_available:ratio": _gauge(
        "ratio", GUEST, "Memory that a lender has available beside what it lends"
    ),
}

DESCRIPTIONS: Mapping[Metric, Description] = {**OPERATOR, **AGENT}

_HEAD = """\
# Metrics

*Generated by `python -m tidepool_api.metrics` from [crds/tidepool_api/metrics.py](../../crds/tidepool_api/metrics.py),
which the operator and the agents export by; a test fails when this page has drifted.*

`namespace` is that of the guest or pool, not of Tidepool's pods: scrape with `honor_labels: true`. Pages are of 4 KiB.
A pairing's counters begin at 0 when the agent sets it up anew in the guest, as after a reboot; `rate` and `increase`
take that into account.
"""
_RULES_HEAD = """\
Of the chart, in [charts/tidepool/rules](../../charts/tidepool/rules/tidepool.yaml): what dashboard and alerts go by,
and what the memory is worth ([Size a pool](../how-to/size-a-pool.md#worth-of-a-pool-now-and-at-another-size))."""


def page() -> str:
    """docs/reference/metrics.md."""
    operator = _section("The operator", "On port 9478, container port `metrics`.", OPERATOR.items())
    agent = _section("An agent, for the guests of its node", "On port 9477, container port `metrics`.", AGENT.items())
    return f"{_HEAD}\n{operator}\n{agent}\n{_section('Recording rules', _RULES_HEAD, RULES.items())}"


def _section(title: str, where: str, metrics: Iterable[tuple[str, Description]]) -> str:
    rows = [
        f"| `{name}` | {one.type} | {one.unit} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |"
        for name, one in metrics
    ]
    return "\n".join([f"## {title}", "", where, "", "| name | type | unit | labels | |", "|" + "---|" * 5, *rows, ""])


if __name__ == "__main__":
    print(page(), end="")
