"""The reference of the API says what the CRDs say."""

from __future__ import annotations

from pathlib import Path

from tidepool_api.crd import KINDS
from tidepool_api.reference import page

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"


def test_the_page_has_not_drifted() -> None:
    """Else run `python -m tidepool_api.reference > docs/reference/api.md` with PYTHONPATH=crds."""
    assert PAGE.read_text() == page()


def test_it_has_the_fields_that_people_write() -> None:
    """With their defaults, what is required, and what is refused."""
    for kind in KINDS:
        assert f"## {kind.model.__name__}\n" in page()
    assert (
        "| `lenders.reserve` | string | Memory that a lender always keeps available for itself. "
        "A number with Ki, Mi, Gi or Ti, such as 512Mi. Default where no class says otherwise: 256Mi. |" in page()
    )
    assert "| `lenders` | object, required |" in page()
    assert "| `maxUnavailable` | number or string |" in page()
    assert "shows Phase, Lenders, Borrowers, Lent, Used, Hit Ratio, Age. `-o wide` adds Pairings, Connected, " in page()
    assert "| `strategy` | `NonInclusive` or `Exclusive` |" in page()
