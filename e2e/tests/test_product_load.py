"""Everything at once in the borrower while the pool comes, works and goes: not one wrong page."""

from __future__ import annotations

from product import BORROWER, LENDER, ONE_TO_ONE, Product, report

MIX = "mix /mnt/mix mib=220 threads=6"
LEAST_OPERATIONS = 1000
MOST_ROUNDS = 2


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
    """The pool is deleted and applied again in the midst of the mixture (on XFS), as often as there is time."""
    product.apply_ready(ONE_TO_ONE)
    mixture = product.start_stress(f"{MIX} seconds=70")
    rounds = 0
    while mixture.running() and rounds < MOST_ROUNDS:
        product.delete(patience=90)
        assert not product.loaded(BORROWER)
        assert not product.loaded(LENDER)
        rounds += mixture.running()
        product.apply_ready(ONE_TO_ONE)
        assert product.loaded(BORROWER)
    seen = report(mixture.result(patience=300))
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert rounds > 0
    product.assert_sound()
