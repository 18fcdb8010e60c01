"""Whether the demo has shown what it is for. Pure."""

from __future__ import annotations

from demo import module
from demo.figures import Figures

LEAST_HIT_RATIO = 0.9


def failures(figures: Figures) -> list[str]:
    """What is not as it must be; empty when all is well."""
    whole = figures.pooled_phase
    fetched = module.remote_hits(whole) - whole.borrowing.get("get_hits_buffer", 0)
    checks = {
        f"the remote hit ratio is {figures.hit_ratio:.3f}, less than {LEAST_HIT_RATIO}": figures.hit_ratio
        >= LEAST_HIT_RATIO,
        f"the remote hit ratio with encryption is {figures.encrypted_hit_ratio:.3f}, "
        f"less than {LEAST_HIT_RATIO}": figures.encrypted_hit_ratio >= LEAST_HIT_RATIO,
        f"the borrower counted {fetched} pages from the lender, which says that it has sent {figures.served}": 0
        < fetched
        <= figures.served,
        "the file reads differently with the pool: "
        f"{figures.checksum_before} before, {figures.checksum_after} after": figures.checksum_before
        == figures.checksum_after,
        "the file reads differently with encryption: "
        f"{figures.checksum_before} before, {figures.checksum_encrypted} now": figures.checksum_before
        == figures.checksum_encrypted,
        f"fio saw {_errors(figures)} failed reads": _errors(figures) == 0,
        "; ".join(figures.warnings): not figures.warnings,
    }
    return [text for text, well in checks.items() if not well]


def _errors(figures: Figures) -> int:
    return sum(one.reads.errors for phase in figures.phases.values() for one in phase.values())
