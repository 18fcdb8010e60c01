"""What the module costs where it has nothing to do: without a peer, and for pages of files that are not lent."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

import pytest

from bed.executed import LOCKED_AS_BUILT, Piece, executed
from bed.guest import PAGE, Guest
from bed.image import TOP
from bed.measure import INSTRUCTIONS_PER_SECOND, counted_guest, eviction_seconds, idle_costs, idle_times
from bed.pair import NAME, Pair
from bed.sources import MODULE, sources
from bed.tidepool import MIB
from bed.workload import stress

TURNS = 15
MOST = 0.01
RECORD = TOP / "build" / "cost.json"
FILES, FILE_MIB = 600, 96
MOST_INSTRUCTIONS = 400  # for a page
MOST_OF_EVICTION = 0.1


@pytest.fixture
def lone(kernel: str) -> Iterator[Guest]:
    """A guest without a peer."""
    with counted_guest(kernel) as guest:
        yield guest


def _lines() -> dict[str, int]:
    """Lines of the module by file."""
    return {str(file.relative_to(MODULE)): len(file.read_text().splitlines()) for file in sources()}


def _keep(kernel: str, figures: dict[str, object]) -> None:
    """Puts one kernel's figures into the record, beside those of the others."""
    kernels = json.loads(RECORD.read_text())["kernels"] if RECORD.exists() else {}
    lines = _lines()
    record = {"lines": {**lines, "all": sum(lines.values())}, "kernels": {**kernels, kernel: figures}}
    RECORD.write_text(json.dumps(record, indent=2) + "\n")


@pytest.mark.long
def test_costs_nothing_without_a_peer(kernel: str, lone: Guest) -> None:
    """Loaded or not, and with ghost mode: processor time of the same work within a percent; build/cost.json."""
    times = idle_times(lone, TURNS)
    median = {name: statistics.median(values) for name, values in times.items()}
    cost = idle_costs(times)
    _keep(kernel, {"seconds": median, "cost": cost, "runs": times})
    print(f"\n{kernel}: {cost}")
    assert cost["loaded"] < MOST
    assert cost["ghost"] < MOST
    lone.assert_clean()


def test_pages_that_are_not_lent_cost_no_locked_instruction(kernel: str) -> None:
    """Evictions of another file system's files, and of files that no lender takes now, known or not, as executed."""
    with (pair := Pair(kernel, disk="vfat", borrower_mem="160M", processors=1, traced=True, append=LOCKED_AS_BUILT)):
        pair.connect(size=64 * MIB)
        stress(pair.borrower, f"many /mnt/many files={FILES} pages=1 write=1")
        cost = {"of another file system": evict(pair.borrower)}
        pair.borrower.umount()
        pair.remake_disk("ext4")
        pair.borrower.mount("ext4")
        pair.hold(1)
        stress(pair.borrower, f"many /mnt/many files={FILES} pages=1 write=1")
        cost["held"] = evict(pair.borrower)
        assert pair.borrowed()["drop_held"] >= 2 * FILES
        lend(pair)
        cost["held, known"] = evict(pair.borrower)
        pair.l.rmdir(f"borrowers/{NAME}")
        pair.b.wait_state(f"lenders/{NAME}", "Connecting")
        cost["no lender"] = evict(pair.borrower)
        print(f"\n{kernel}: instructions and locked ones for a page: {cost}")
        for instructions, locked in cost.values():
            assert 0 < instructions < MOST_INSTRUCTIONS
            assert locked == 0
        pair.assert_clean()


@pytest.mark.long
def test_pages_of_other_file_systems_take_no_longer(kernel: str) -> None:
    """Their eviction by turns without the module and with a lender connected, in processor time."""
    times: dict[str, list[float]] = {"without": [], "connected": []}
    pages = FILE_MIB * MIB // PAGE
    with (pair := Pair(kernel, disk="vfat", borrower_mem="256M", counted=True, append="nokaslr")):
        stress(pair.borrower, f"fill /mnt/file mib={FILE_MIB}")
        for _ in range(TURNS):
            times["without"].append(eviction_seconds(pair.borrower, "/mnt/file"))
            pair.connect(size=64 * MIB)
            times["connected"].append(eviction_seconds(pair.borrower, "/mnt/file"))
            pair.b.unload()
            pair.l.remove_peers()
        median = {name: statistics.median(values) for name, values in times.items()}
        each = {name: seconds * INSTRUCTIONS_PER_SECOND / pages for name, seconds in median.items()}
        print(f"\n{kernel}: instructions for a page: {each}")
        assert median["connected"] < median["without"] * (1 + MOST_OF_EVICTION)
        pair.assert_clean()


def evict(guest: Guest) -> tuple[float, float]:
    """Instructions of our module's, and how many of them lock the bus, for each of many pages that are evicted."""
    guest.drop_caches(1)
    stress(guest, f"many /mnt/many files={FILES} pages=1")
    with executed(guest) as pieces:
        guest.drop_caches(1)
    pages = sum(piece.times for piece in pieces if piece.function == "tide_on_delete" and piece.entry)
    assert pages >= FILES, pieces
    often = [piece for piece in pieces if piece.times > pages / 4]
    return _of_each(pieces, pages), sum(piece.times * piece.locked for piece in often) / pages


def _of_each(pieces: list[Piece], pages: int) -> float:
    """What is executed for every page, and not beside."""
    return sum(piece.times * piece.instructions for piece in pieces if piece.times > pages / 2) / pages


def lend(pair: Pair) -> None:
    """The lender takes pages for a while: the catalog knows the files afterwards."""
    pair.hold(0)
    stress(pair.borrower, f"many /mnt/many files={FILES} pages=1")
    pair.evict()
    assert pair.b.stats()["files"] >= FILES / 2
    pair.hold(1)
