"""A load as memcached has it: thousands of keys a second, for long, and nothing grows.

`run --long --load-seconds 3600 test_load.py` takes an hour; what it found is in build/load.json.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass

import pytest
from test_kept import spill
from test_values import of_all

from bed.device import MODULES, load_target
from bed.guest import Guest, Job
from bed.image import TOP
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import finish_stress, start_stress

RESULT = TOP / "build" / "load.json"
WARM = 0.25  # part of the time after which nothing grows any more
EVERY_SECONDS = 5.0
GROWTH = 2 * MIB  # of a guest of 256 MiB
FEWEST = 1000  # calls a second, of an emulated guest
KEYS, EXPIRE_MS = 4000, 15_000


@dataclass(frozen=True)
class Sample:
    """What a guest has in use at a time, in bytes."""

    seconds: float
    used: int
    slab: int
    unreclaimable: int
    vmalloc: int
    percpu: int

    @classmethod
    def of(cls, guest: Guest, began: float) -> Sample:
        """That of now."""
        lines = (line.split() for line in guest.read("/proc/meminfo").splitlines())
        size = {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines}
        used = size["MemTotal"] - size["MemFree"] - size["Cached"] - size["Buffers"] - size["SReclaimable"]
        names = ("Slab", "SUnreclaim", "VmallocUsed", "Percpu")
        return cls(time.monotonic() - began, used, *(size[name] for name in names))


def growth(samples: list[Sample], name: str) -> float:
    """How much more there is in the last third of the time than in the first: medians, in bytes."""
    third = len(samples) // 3
    first, last = ([getattr(one, name) for one in part] for part in (samples[:third], samples[-third:]))
    return statistics.median(last) - statistics.median(first)


def churn(guest: Guest) -> Job:
    """Programs that come with a pool of their own and are killed, all the time."""
    one = "stress values - keys=200 seconds=60 threads=1 most=5000 > /dev/null 2>&1 & p=$!"
    return guest.start(f"while [ ! -e /tmp/enough ]; do {one}; sleep 3; kill -9 $p; wait $p; done 2> /dev/null; true")


@pytest.mark.long
def test_nothing_grows(kernel: str, pytestconfig: pytest.Config) -> None:
    """Values that expire, values that are kept, pools that come and go: neither guest has more in use in the end."""
    seconds = int(pytestconfig.getoption("--load-seconds"))
    with (pair := Pair(kernel, modules=MODULES, lender_mem="384M")):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        pair.borrower.write("/sys/module/tidepool_app/parameters/front_bytes", str(MIB))
        guests = {"borrower": pair.borrower, "lender": pair.lender}
        with spill(pair.borrower) as kept:
            options = f"seconds={seconds} gets=8 threads=2"
            jobs = [
                start_stress(pair.borrower, f"values - keys={KEYS} most=1000 expire_ms={EXPIRE_MS} {options}"),
                start_stress(pair.borrower, f"values - keys={KEYS // 8} most=8000 {kept} {options}"),
            ]
            others = churn(pair.borrower)
            samples: dict[str, list[Sample]] = {name: [] for name in guests}
            began = time.monotonic()
            while (passed := time.monotonic() - began) < seconds - EVERY_SECONDS and all(job.running for job in jobs):
                time.sleep(EVERY_SECONDS)
                for name, guest in guests.items() if passed > WARM * seconds else ():
                    samples[name].append(Sample.of(guest, began))
            reports = [finish_stress(job) for job in jobs]
            pair.borrower.write("/tmp/enough", "")
            others.result()
        counted = of_all(pair.borrower)
        calls = sum(report["gets"] + report["puts"] + report["deletes"] for report in reports)
        found = {
            name: {field: growth(each, field) for field in asdict(each[0]) if field != "seconds"}
            for name, each in samples.items()
        }
        figures = {
            "kernel": kernel, "seconds": seconds, "calls": calls, "calls_per_second": round(calls / seconds),
            "pages_from_lenders": counted["page_hits"], "expired": counted["expired"], "moved": counted["moved"],
            "local": counted["local"], "samples": len(samples["borrower"]), "growth_bytes": found,
        }  # fmt: skip
        RESULT.write_text(json.dumps(figures, indent=1) + "\n")
        print(f"\n{json.dumps(figures)}")
        assert calls > FEWEST * seconds
        assert min(counted[name] for name in ("page_hits", "expired", "moved")) > 0
        for each in found.values():
            assert max(each.values()) < GROWTH, found
        assert (counted["pools"], counted["values"], counted["bytes"]) == (0, 0, 0)
        wait_until("nothing is lent", lambda: pair.lent()["lent_pages"] < 100)
        pair.assert_clean()
        pair.borrower.sh("rmmod tidepool_app")
