"""Guests are live-migrated to another node while pages flow: pairing, session and cache stay."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from product import BORROWER, LENDER, ONE_TO_ONE, STRESS, Product, until

import docs
from demo import lab, module
from demo.migrations import Reads, Seen, has_followed
from tidepool_lab import cluster, guests, migration, nodes, paths
from tidepool_lab.progress import say

FILE = "/mnt/file"
NODE = "node2"
KEPT = 0.9  # of the pages; the lender may need some of the memory meanwhile
TIMES = 10  # there and back
SETTLED_SECONDS = 10  # after an arrival; then the pool is as good as before
READ = f"{STRESS} random {FILE} seconds=4 threads=2"
# It goes on in the lender by itself: the lab's own way into a guest ends when that moves.
HELD = f"while :; do cat {module.TREE}/hold; sleep 0.3; done"
MIGRATING = """jsonpath={.status.migrating}{"\\n"}"""  # a line each time that the guest's status is another


@pytest.fixture
def flowing(product: Product) -> Product:
    """A lab of two nodes, and a pool whose lender has most of a file."""
    typed(docs.command("nodes"))
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib=240")
    product.stress(f"sequential {FILE} passes=2")
    return product


def test_a_borrower_and_then_its_lender_migrate(flowing: Product, tmp_path: Path) -> None:
    """No failed read, no wrong byte, the same pairing and session: what was lent is read from the lender again.

    Who looks at the guest sees that it migrates, as long as it does.
    """
    uid, begun = flowing.pairing_of(BORROWER)["metadata"]["uid"], flowing.sessions_begun()
    lab.guest(LENDER, f"systemd-run -q --collect sh -c '{HELD} > /run/held'")
    reads = Reads(BORROWER, READ)
    with shown(BORROWER, tmp_path):
        migrate(flowing, BORROWER, "borrower")
    assert holds(LENDER) == {"0"}
    with shown(LENDER, tmp_path):
        migrate(flowing, LENDER, "lender")
    until("the lender takes pages again", lambda: lab.guest(LENDER, f"cat {module.TREE}/hold").strip() == "0")
    assert holds(LENDER) == {"0", "1"}
    reads.end().assert_right()
    assert flowing.pairing_of(BORROWER)["metadata"]["uid"] == uid
    assert flowing.sessions_begun() == begun
    flowing.assert_sound()


@pytest.mark.long
@pytest.mark.parametrize("role", [BORROWER, LENDER])
def test_ten_migrations_there_and_back(flowing: Product, role: str) -> None:
    """One read in a row meanwhile: not one wrong byte, not one page lost, not one session or pairing begun anew.

    What each migration cost is written to build/migrations-ROLE.json.
    """
    uid, begun = flowing.pairing_of(BORROWER)["metadata"]["uid"], flowing.sessions_begun()
    before = flowing.reading(BORROWER)
    reads = Reads(BORROWER, READ)
    copied = [move(flowing, role) for _ in range(2 * TIMES)]
    time.sleep(2 * SETTLED_SECONDS)
    after, seen = flowing.reading(BORROWER), reads.end()
    seen.assert_right()
    costs = [cost(seen, one) for one in copied]
    (paths.BUILD / f"migrations-{role}.json").write_text(json.dumps([asdict(one) for one in costs], indent=1) + "\n")
    for one in costs:
        say(str(one))
    assert flowing.pairing_of(BORROWER)["metadata"]["uid"] == uid
    assert flowing.sessions_begun() == begun
    assert not lost(before, after)
    assert min(one.afterwards for one in costs) > KEPT
    flowing.assert_sound()


@dataclass(frozen=True)
class Cost:
    """What one migration took, and what the borrower's reads found; times in seconds, sizes in MiB."""

    copied: str
    without: float  # the longest time without a page from the lender
    meanwhile: float  # hit ratio until SETTLED_SECONDS after the arrival
    afterwards: float  # hit ratio of as long after that
    pages: int  # that the lender has at the end

    def __str__(self) -> str:
        return (
            f"{self.copied}; {self.without:.1f} s without a page, hit ratio {self.meanwhile:.3f}, "
            f"then {self.afterwards:.3f}; {self.pages} pages"
        )


def move(product: Product, guest: str) -> migration.Copied:
    """Moves a guest to the node where it is not, and waits until the pool is as good as it will be."""
    here = guests.launcher_of(guest)
    node = next(one for one in nodes.possible() if here and one != here.node)
    copied = migration.migrate(guest, node)
    until(f"{guest} is known on {node.name}", lambda: has_followed(guest, guest, node.name))
    hits = product.hits()
    until("pages flow", lambda: product.hits() > hits + 100)
    time.sleep(max(0.0, copied.arrived + 2 * SETTLED_SECONDS - time.time()))
    return copied


def cost(seen: Seen, copied: migration.Copied) -> Cost:
    """What the reads found around a migration."""
    begun, settled = copied.arrived - copied.seconds, copied.arrived + SETTLED_SECONDS
    afterwards = seen.within(settled, settled + SETTLED_SECONDS)
    return Cost(
        copied=str(copied),
        without=round(seen.within(begun, settled).longest_without(), 1),
        meanwhile=round(seen.ratio(begun, settled), 3),
        afterwards=round(seen.ratio(settled, settled + SETTLED_SECONDS), 3),
        pages=afterwards.moments[-1].pages,
    )


def lost(before: module.Reading, after: module.Reading) -> dict[str, int]:
    """Pages that the borrower believed with its lender and that were not there, or not as they were put."""
    changes = module.difference(before, after).borrowing
    return {name: changes[name] for name in ("get_misses", "get_corrupt", "evicted_notices") if changes[name]}


def migrate(product: Product, who: str, role: str) -> None:
    """Moves a guest, and waits until the pairing has followed and pages come from the lender, as many as before."""
    pages = product.reading(BORROWER).borrowing["catalog_pages"]
    typed(docs.filled_in(docs.command("migrate"), {LENDER: who}))
    until(f"{who} is known on {NODE}", lambda: has_followed(who, role, NODE))
    hits = product.hits()
    until("pages flow", lambda: product.hits() > hits + 100)
    assert product.reading(BORROWER).borrowing["catalog_pages"] > KEPT * pages


@contextmanager
def shown(guest: str, folder: Path) -> Iterator[None]:
    """Watches a guest that migrates meanwhile: its `status.migrating` is absent, then true, then absent again."""
    log = folder / guest
    command = cluster.command("kubectl", ("get", "memoryguest", guest, "--watch", "-o", MIGRATING))
    with log.open("w") as file, subprocess.Popen(command, stdout=file, env=cluster.environment()) as watch:
        try:
            until(f"{guest} is watched", log.read_text)
            yield
            until(f"{guest} no longer migrates", lambda: log.read_text().endswith("\n\n"))
        finally:
            watch.kill()
    said = log.read_text().splitlines()
    assert (said[0], set(said)) == ("", {"", "true"}), said


def typed(command: str) -> None:
    """A command of the lab, as a page has it."""
    lab.call(*shlex.split(command)[1:], patience=1800)


def holds(lender: str) -> set[str]:
    """Whether a lender has taken no more pages for a while, and whether it has taken some."""
    return set(lab.guest(lender, "cat /run/held").split())
