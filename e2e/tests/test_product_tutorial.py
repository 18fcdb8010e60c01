"""The tutorial, followed to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from product import BORROWER, GUESTS, LENDER, OTHER, POOL, Product

import docs
from demo import lab

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/tutorial/first-pool.md"
# The lab's guests are smaller than those for whom it is written, and two of them are short of memory.
FITTING = {"reserve: 512Mi": "reserve: 192Mi", "size: 1Gi": "size: 128Mi"}


@pytest.mark.usefixtures("plugin")
def test_a_first_pool(product: Product, tmp_path: Path) -> None:
    """Its commands in their order, with the guests and the namespace of the lab; there are no VirtualMachines here."""
    (pool,) = docs.examples(PAGE)
    for written, fitting in FITTING.items():
        assert written in pool
        pool = pool.replace(written, fitting)
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(docs.filled_in(pool))
    lines = [line for block in docs.blocks(PAGE) for line in block if line.startswith("kubectl ")]
    done = [line for line in lines if not line.startswith("kubectl patch vm ")]
    assert len(done) > 8
    for line in done:
        if line.startswith("kubectl delete memorypool"):
            assert product.phase("memorypool", POOL) == "Ready"
            assert [product.loaded(guest) for guest in (BORROWER, OTHER, LENDER)] == [True, True, True]
        docs.run(line.replace("pool.yaml", str(manifest)))
    product.assert_nothing_left(*GUESTS)
    assert lab.get("memorypool", POOL) is None
