"""Everything at once in the borrower while the pool comes, works and goes: not one wrong page."""

from __future__ import annotations

from product import BORROWER, LENDER, ONE_TO_ONE, Product

MIX = "mix /mnt/mix mib=220 threads=6"
LEAST_OPERATIONS = 1000
ROUNDS = 2


def test_mixture(product: Product) -> None:
    """Buffered, mapped and direct reads and writes, punched holes, truncation, while pages come and go; on XFS.

    The module's own tests have it on each file system.
    """
    product.format_disk("xfs")
    product.apply_ready(ONE_TO_ONE)
    seen = product.stress(f"{MIX} seconds=35")
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert seen["total"] > LEAST_OPERATIONS
    figures = product.reading(BORROWER).borrowing
    assert figures["puts"] > 1000, figures
    assert figures["get_hits"] > 300, figures
    product.assert_sound()


def test_module_unloaded_and_loaded_under_load(product: Product) -> None:
    """The pool is deleted and applied again in the midst of the mixture (on XFS), twice."""
    product.apply_ready(ONE_TO_ONE)
    mixture = product.start_stress(f"{MIX} seconds=900")
    for _ in range(ROUNDS):
        product.delete(patience=90)
        assert not product.loaded(BORROWER)
        assert not product.loaded(LENDER)
        product.apply_ready(ONE_TO_ONE)
        assert product.loaded(BORROWER)
    assert mixture.running()
    seen = product.end_stress(mixture)
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert seen["total"] > LEAST_OPERATIONS
    product.assert_sound()
