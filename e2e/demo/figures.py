"""The demo's result: what was measured, as JSON and as text for people. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from demo import fio, module

DEPTHS = (1, 16)


@dataclass(frozen=True)
class Measured:
    """Random reads, and what the module and the disk counted meanwhile."""

    reads: fio.Reads
    counted: module.Reading


@dataclass(frozen=True)
class RoundTrip:
    """A request of a few bytes, 4 KiB in return, over TCP between the two guests, in µs."""

    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class Figures:
    """Everything that was found out."""

    kernel: str
    machine: str
    file_mib: int
    baseline: dict[int, Measured]
    pooled: dict[int, Measured]
    encrypted: dict[int, Measured]
    """With the pool again, after it was told to encrypt."""
    served: int
    """Pages that the lender counted as sent during the pooled phase."""
    exported: dict[str, float]
    """The agent's metrics for the borrower after the pooled phase."""
    lent_bytes: int
    used_bytes: int
    raw: RoundTrip
    checksum_before: str
    checksum_after: str
    checksum_encrypted: str
    memory_bytes: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def phases(self) -> dict[str, dict[int, Measured]]:
        """The same reads three times."""
        return {"baseline": self.baseline, "pooled": self.pooled, "encrypted": self.encrypted}

    @property
    def pooled_phase(self) -> module.Reading:
        """What was counted in the pooled phase as a whole."""
        return _sum([self.pooled[depth].counted for depth in DEPTHS])

    @property
    def hit_ratio(self) -> float:
        """Of the reads that the borrower's own memory could not answer, the part that the lender answered."""
        return module.hit_ratio(self.pooled_phase)

    @property
    def encrypted_hit_ratio(self) -> float:
        """The same with encryption."""
        return module.hit_ratio(_sum([self.encrypted[depth].counted for depth in DEPTHS]))

    def as_json(self) -> dict[str, Any]:
        """The figures under the names by which others look for them."""
        whole = self.pooled_phase
        found: dict[str, Any] = {
            "kernel": self.kernel,
            "machine": self.machine,
            "file_bytes": self.file_mib << 20,
            "remote_hit_ratio": round(self.hit_ratio, 4),
            "get_p50_us": round(self.get_us(1, 0.5), 1),
            "get_p99_us": round(self.get_us(1, 0.99), 1),
            "get_p50_us_qd16": round(self.get_us(16, 0.5), 1),
            "get_p99_us_qd16": round(self.get_us(16, 0.99), 1),
            "raw_rtt_p50_us": self.raw.p50_us,
            "raw_rtt_p99_us": self.raw.p99_us,
            "disk_reads_pooled": whole.disk_reads,
            "disk_reads_baseline": sum(one.counted.disk_reads for one in self.baseline.values()),
            "remote_hits": module.remote_hits(whole),
            "remote_misses": module.remote_misses(whole),
            "pages_served_by_lender": self.served,
            "agent_metrics": self.exported,
            "lent_bytes": self.lent_bytes,
            "used_bytes": self.used_bytes,
            "encrypted_hit_ratio": round(self.encrypted_hit_ratio, 4),
            "encrypted_get_p50_us": round(self.encrypted_get_us(1, 0.5), 1),
            "encrypted_get_p99_us": round(self.encrypted_get_us(1, 0.99), 1),
            "encrypted_checksum_ok": self.checksum_before == self.checksum_encrypted,
            "checksum_ok": self.checksum_before == self.checksum_after,
            "sha256_before": self.checksum_before,
            "sha256_after": self.checksum_after,
            "module_warnings": self.warnings,
        }
        found |= {f"{name}_memory_bytes": size for name, size in self.memory_bytes.items()}
        for name, phase in self.phases.items():
            for depth, one in phase.items():
                found |= _phase(f"{name}_{{}}_qd{depth}", one)
        return found

    def get_us(self, depth: int, quantile: float) -> float:
        """A quantile of the gets' latency at a queue depth, from the module's histogram."""
        return module.quantile_us(self.pooled[depth].counted.gets, quantile)

    def encrypted_get_us(self, depth: int, quantile: float) -> float:
        """The same with encryption."""
        return module.quantile_us(self.encrypted[depth].counted.gets, quantile)


def _phase(form: str, one: Measured) -> dict[str, float]:
    return {
        form.format("iops"): round(one.reads.iops, 1),
        form.format("disk_reads"): one.counted.disk_reads,
        form.format("p50_us"): round(one.reads.p50_us, 1),
        form.format("p99_us"): round(one.reads.p99_us, 1),
    }


def _sum(readings: list[module.Reading]) -> module.Reading:
    """Several differences as one."""
    gets: Counter[float] = Counter()
    for one in readings:
        gets.update(one.gets)
    return module.Reading(
        _added([one.module for one in readings]),
        _added([one.borrowing for one in readings]),
        _added([one.lending for one in readings]),
        gets,
        sum(one.disk_reads for one in readings),
    )


def _added(counts: list[module.Counts]) -> dict[str, int]:
    names = {name for one in counts for name in one}
    return {name: sum(one.get(name, 0) for one in counts) for name in sorted(names)}


def table(figures: Figures) -> str:
    """What a person wants to see."""
    rows = [("random 4 KiB reads", "IO/s", "p50", "p99", "disk reads")]
    for depth in DEPTHS:
        for name, phase in zip(("without pool", "with pool", "encrypted"), figures.phases.values(), strict=True):
            one = phase[depth]
            reads = one.reads
            rows.append((
                f"  depth {depth:2}, {name}", f"{reads.iops:.0f}", _time(reads.p50_us), _time(reads.p99_us),
                str(one.counted.disk_reads),
            ))  # fmt: skip
    rows.append(("one page, one at a time", "", "p50", "p99", ""))
    rows.append(("  from the lender", "", _time(figures.get_us(1, 0.5)), _time(figures.get_us(1, 0.99)), ""))
    secret = figures.encrypted_get_us
    rows.append(("  from the lender, encrypted", "", _time(secret(1, 0.5)), _time(secret(1, 0.99)), ""))
    rows.append(("  plain TCP, same guests", "", _time(figures.raw.p50_us), _time(figures.raw.p99_us), ""))
    lines = [f"{a:28}{b:>8}{c:>10}{d:>10}{e:>12}".rstrip() for a, b, c, d, e in rows]
    whole = figures.pooled_phase
    lines.append(
        f"remote hit ratio {figures.hit_ratio:.3f} ({module.remote_hits(whole)} pages from the lender, "
        f"{module.remote_misses(whole)} from the disk), encrypted {figures.encrypted_hit_ratio:.3f}"
    )
    lines.append(f"sha256 {figures.checksum_before} before\n       {figures.checksum_after} after")
    lines.append(f"       {figures.checksum_encrypted} encrypted")
    return "\n".join(lines)


def _time(us: float) -> str:
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.0f} µs"
