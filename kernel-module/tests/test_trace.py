"""The module's own tracepoints: every page that is put, dropped or read back is seen by whoever looks."""

from __future__ import annotations

from collections import Counter

from bed.guest import Guest
from bed.pair import LENDER_ADDRESS, NAME, PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress

TRACING = "/sys/kernel/tracing"
EVENTS = f"{TRACING}/events/tidepool"
FILE_MIB = 16
PAGES = FILE_MIB * 256


def _switch(guest: Guest, on: int) -> None:
    guest.write(f"{EVENTS}/enable", f"{on}\n")


def _seen(guest: Guest) -> list[dict[str, str]]:
    """The events since the last time, each as its fields and its name."""
    lines = [line for line in guest.read(f"{TRACING}/trace").splitlines() if ": tidepool_" in line]
    guest.write(f"{TRACING}/trace", "")
    events = []
    for line in lines:
        name, _, rest = line[line.index(": tidepool_") + 2 :].partition(": ")
        events.append({"event": name, **dict(word.split("=", 1) for word in rest.split() if "=" in word)})
    return events


def test_events(kernel: str) -> None:
    """Puts, drops with their reason and gets, as many as the statistics count; the module unloads with them on."""
    with (pair := Pair(kernel)) as (borrower, _):
        pair.l.load()
        pair.b.load("put_buffers=64")  # so that some pages find none
        borrower.write(f"{TRACING}/buffer_size_kb", "8192\n")
        assert borrower.sh(f"ls -d {EVENTS}/tidepool_*").split() == [
            f"{EVENTS}/tidepool_{name}" for name in ("breaker", "drop", "get", "put")
        ]
        pair.connect(size=64 * MIB, more=PATIENT)
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        inode = borrower.sh("stat -c %i /mnt/file")
        _switch(borrower, 1)
        pair.evict()
        events = [event for event in _seen(borrower) if event["ino"] == inode]
        figures = pair.borrowed()
        put = {int(event["index"]) for event in events if event["event"] == "tidepool_put"}
        assert len(put) == figures["puts_sent"]
        assert all(event["lender"] == NAME for event in events if event["event"] == "tidepool_put")
        dropped = Counter[str]()
        for event in events:
            if event["event"] == "tidepool_drop":
                dropped[event["reason"]] += int(event["pages"])
        assert dropped["nobuffer"] == figures["drop_nobuffer"] == PAGES - len(put)

        stress(borrower, "sequential /mnt/file")
        gets = [event for event in _seen(borrower) if event["event"] == "tidepool_get"]
        assert sum(int(event["pages"]) for event in gets if event["how"] == "hit") == pair.borrowed()["get_hits"]
        assert {int(event["index"]) for event in gets} <= put
        _switch(borrower, 0)
        stress(borrower, "sequential /mnt/file")
        assert _seen(borrower) == []

        for _ in range(3):
            _switch(borrower, 1)
            reader = borrower.start("while true; do echo 1 > /proc/sys/vm/drop_caches; cat /mnt/file > /dev/null; done")
            borrower.sh("sleep 1")
            pair.b.unload()
            reader.kill()
            pair.b.load()
            pair.b.borrow(NAME, address=LENDER_ADDRESS, size=64 * MIB)
            pair.b.wait_state(f"lenders/{NAME}", "Connected")
        pair.assert_clean()
