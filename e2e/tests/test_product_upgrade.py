"""From an earlier commit to this one, as docs/how-to/upgrade.md says, while a borrower reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import former
import pytest
from product import BORROWER, GUESTS, LENDER, ONE_TO_ONE, POOL, STRESS, Product, until
from test_product_release import pods, rolled_out

import docs
from demo import lab, module
from demo.migrations import Reads
from tidepool_lab import images
from tidepool_lab.progress import say

FILE, FILE_MIB = "/mnt/file", 240
BUILD = "/sys/module/tidepool/srcversion"
BACK = 0.95  # of the hit ratio before
LOOK_SECONDS = 5


@pytest.fixture
def earlier(session_lab: Product, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The sources of an earlier commit, which is installed in place of this one; afterwards this one is again."""
    commit = former.commit(request.config.getoption("--upgrade-from"))
    say(f"upgrading from {commit}")
    tree = former.unpacked(commit)
    former.load(tree)
    docs.run(docs.command("uninstall"))
    docs.run(docs.command("delete-crds"))
    yield tree
    session_lab.delete()
    docs.run(docs.command("reload"))


@pytest.mark.long
def test_upgrade_from_an_earlier_commit(earlier: Path, session_lab: Product) -> None:
    """Operator, agents and module are others, pool and pairing the same; no read fails, and the cache fills again."""
    product = session_lab
    install = docs.command("install").replace("charts/tidepool", str(earlier / "charts/tidepool"))
    docs.run(install.replace("MY/PREFIX", images.PREFIX))
    rolled_out()
    until("every guest is found", lambda: len(lab.items("memoryguests")) == len(GUESTS))
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    uid, installed, builds = product.pairing_of(BORROWER)["metadata"]["uid"], pods(), built()
    reads = Reads(BORROWER, f"{STRESS} random {FILE} seconds=4 threads=2")
    before = until("pages flow", lambda: ratio(product))

    begun = time.time()
    docs.run(docs.command("upgrade"))
    rolled_out()
    until("all pods are new", lambda: pods() and not pods() & installed)
    replaced = time.time()
    for guest, build in built().items():
        assert build != builds[guest], f"{guest} still has the former module"
    product.wait_condition("memorypool", POOL, "Ready", "True")
    after = until("the hit ratio is back", lambda: back(product, before), patience=300)
    seen = reads.end()

    seen.assert_right()
    assert product.pairing_of(BORROWER)["metadata"]["uid"] == uid
    say(f"{replaced - begun:.0f} s; hit ratio {before:.3f}, {time.time() - replaced:.0f} s later {after:.3f} again")
    say(f"{sum(one['reads'] for one in seen.reports if 'reads' in one)} reads, none wrong")
    product.assert_sound()


def built() -> dict[str, str]:
    """Which build of the module each end of the pairing has."""
    return {guest: lab.guest(guest, f"cat {BUILD}").strip() for guest in (BORROWER, LENDER)}


def ratio(product: Product) -> float:
    """The hit ratio of the next seconds; 0 where the module was replaced in them."""
    before = product.reading(BORROWER)
    time.sleep(LOOK_SECONDS)
    return max(0.0, module.hit_ratio(module.difference(before, product.reading(BORROWER))))


def back(product: Product, before: float) -> float | None:
    """The hit ratio, once it is what it was."""
    return found if (found := ratio(product)) > BACK * before else None
