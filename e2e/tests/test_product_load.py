"""Everything at once in the borrower while the pool comes, works and goes: not one wrong page."""

from __future__ import annotations

from product import BORROWER, LENDER, ONE_TO_ONE, Product

MIX = "mix /mnt/mix mib=220 threads=6"
LEAST_OPERATIONS = 1000
LEAST = (LEAST_OPERATIONS, 1000, 300)  # and puts, and hits
ROUNDS = 2
MOST_ROUNDS = 6  # on a slow machine


def test_mixture(product: Product) -> None:
    """Buffered, mapped and direct reads and writes, punched holes, truncation, while pages come and go; on XFS.

    The module's own tests have it on each file system.
    """
    product.format_disk("xfs")
    product.apply_ready(ONE_TO_ONE)
    operations = 0
    for _ in range(MOST_ROUNDS):
        seen = product.stress(f"{MIX} seconds=35")
        assert seen["wrong_pages"] == seen["errors"] == 0
        operations += seen["total"]
        figures = product.reading(BORROWER).borrowing
        counts = operations, figures["puts"], figures["get_hits"]
        if all(count > least for count, least in zip(counts, LEAST, strict=True)):
            break
    else:
        raise AssertionError(f"{operations} operations: {figures}")
    product.assert_sound()


def test_module_unloaded_and_loaded_under_load(product: Product) -> None:
    """The pool is deleted and applied again in the midst of the mixture (on XFS), twice."""
    product.apply_ready(ONE_TO_ONE)
    mixture = product.start_stress(f"{MIX} seconds=900")
    for _ in range(ROUNDS):
        product.delete()
        assert not product.loaded(BORROWER)
        assert not product.loaded(LENDER)
        product.apply_ready(ONE_TO_ONE)
        assert product.loaded(BORROWER)
    assert mixture.running()
    seen = product.end_stress(mixture)
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert seen["total"] > LEAST_OPERATIONS
    product.assert_sound()
