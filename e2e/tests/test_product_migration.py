"""Guests are live-migrated to another node while pages flow: pairing, session and cache stay."""

from __future__ import annotations

import shlex

import pytest
from product import BORROWER, LENDER, ONE_TO_ONE, STRESS, Product, until

import docs
from demo import lab, module
from demo.migrations import Reads, has_followed

FILE = "/mnt/file"
NODE = "node2"
KEPT = 0.9  # of the pages; the lender may need some of the memory meanwhile
# It goes on in the lender by itself: the lab's own way into a guest ends when that moves.
HELD = f"while :; do cat {module.TREE}/hold; sleep 0.3; done"


@pytest.fixture
def flowing(product: Product) -> Product:
    """A lab of two nodes, and a pool whose lender has most of a file."""
    typed(docs.command("nodes"))
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib=240")
    product.stress(f"sequential {FILE} passes=2")
    return product


def test_a_borrower_and_then_its_lender_migrate(flowing: Product) -> None:
    """No failed read, no wrong byte, the same pairing and session: what was lent is read from the lender again."""
    uid, begun = flowing.pairing_of(BORROWER)["metadata"]["uid"], sessions_begun(flowing)
    lab.guest(LENDER, f"systemd-run -q --collect sh -c '{HELD} > /run/held'")
    reads = Reads(BORROWER, f"{STRESS} random {FILE} seconds=4 threads=2")
    migrate(flowing, BORROWER, "borrower")
    assert holds(LENDER) == {"0"}
    migrate(flowing, LENDER, "lender")
    until("the lender takes pages again", lambda: lab.guest(LENDER, f"cat {module.TREE}/hold").strip() == "0")
    assert holds(LENDER) == {"0", "1"}
    reads.end().assert_right()
    assert flowing.pairing_of(BORROWER)["metadata"]["uid"] == uid
    assert sessions_begun(flowing) == begun
    flowing.assert_sound()


def migrate(product: Product, who: str, role: str) -> None:
    """Moves a guest, and waits until the pairing has followed and pages come from the lender, as many as before."""
    pages = product.reading(BORROWER).borrowing["catalog_pages"]
    typed(docs.filled_in(docs.command("migrate"), {LENDER: who}))
    until(f"{who} is known on {NODE}", lambda: has_followed(who, role, NODE))
    hits = product.hits()
    until("pages flow", lambda: product.hits() > hits + 100)
    assert product.reading(BORROWER).borrowing["catalog_pages"] > KEPT * pages


def typed(command: str) -> None:
    """A command of the lab, as a page has it."""
    lab.call(*shlex.split(command)[1:], patience=1800)


def holds(lender: str) -> set[str]:
    """Whether a lender has taken no more pages for a while, and whether it has taken some."""
    return set(lab.guest(lender, "cat /run/held").split())


def sessions_begun(product: Product) -> int:
    """How often the borrower has connected and found nothing of its own."""
    figures = product.reading(BORROWER).borrowing
    return int(figures["connects"] - figures["resumes"])
