"""The show itself, in a lab that is up: the reads, the pool, the same reads again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from demo import lab, metrics, module, workload
from demo.figures import DEPTHS, Figures, Measured
from demo.workload import BORROWER, LENDER
from tidepool_lab.progress import LabError, say, step

POOL = Path(__file__).with_name("pool.yaml")
ENCRYPTED = {"spec": {"encryption": "AES-GCM"}}
GUESTS = (BORROWER, LENDER)
AGENT_PORT = 9477
FILE_MIB = 640
SECONDS = 15
SECONDS_ENCRYPTED = 10
FOLLOWED_WITHIN = 60
WARM_UP_PASSES = 4
ROUND_TRIPS = 2000
COLLECTED_WITHIN = 40


def run() -> Figures:
    """The same reads without and with the pool; raises when a step on the way fails."""
    with step(f"a file of {FILE_MIB} MiB on the borrower's slow disk"):
        before = workload.make_file(FILE_MIB)
    baseline = _measure("without a pool")
    workload.empty_page_cache()
    _apply_pool()
    _warm_up("warm-up")
    with step("reading the file once more, into the page cache"):
        workload.read_in_order()
    served = _served()
    pooled = _measure("with the pool")
    served = _served() - served
    exported = _exported()
    with step("checksum, and plain TCP round trips"):
        after = workload.checksum()
        raw = workload.round_trip(workload.build_stress(), workload.pod_address(LENDER), ROUND_TRIPS)
    workload.empty_page_cache()
    _encrypt()
    _warm_up("what was there in the clear is gone, so again")
    with step("checksum"):
        in_secret = workload.checksum()
    encrypted = _measure("with the pool, encrypted", SECONDS_ENCRYPTED)
    print(_objects(), flush=True)
    lending, borrowing = module.read(workload.lender), module.read(workload.borrower)
    return Figures(
        kernel=workload.borrower("uname -r").strip(),
        machine=f"{os.cpu_count()} cores, guests under {_hypervisor()}",
        file_mib=FILE_MIB,
        baseline=baseline,
        pooled=pooled,
        encrypted=encrypted,
        served=served,
        exported=exported,
        lent_bytes=lending.lending.get("lent_pages", 0) * module.PAGE,
        used_bytes=borrowing.borrowing.get("catalog_pages", 0) * module.PAGE,
        raw=raw,
        checksum_before=before,
        checksum_after=after,
        checksum_encrypted=in_secret,
        memory_bytes={name: _memory(name) for name in GUESTS},
        warnings=_warnings({BORROWER: borrowing, LENDER: lending}),
    )


def _measure(what: str, seconds: int = SECONDS) -> dict[int, Measured]:
    found = {}
    for depth in DEPTHS:
        with step(f"random reads {what}, depth {depth}, {seconds} s"):
            found[depth] = workload.measure(depth, seconds)
        say(f"{found[depth].reads.iops:.0f} IO/s, {found[depth].counted.disk_reads} reads of the disk")
    return found


def _warm_up(what: str) -> None:
    workload.warm_up(FILE_MIB, WARM_UP_PASSES, lambda text: say(f"{what}: {text}"))


def _apply_pool() -> None:
    with step("applying e2e/demo/pool.yaml, waiting until it is Ready"):
        lab.kubectl("apply", "-f", str(POOL))
        try:
            lab.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "memorypool/demo")
        except lab.CommandError as error:
            raise LabError(f"the pool does not become Ready:\n{_objects()}") from error
    print(_objects(), flush=True)


def _encrypt() -> None:
    """Edits the pool; its pairing follows in place."""
    with step("encryption: AES-GCM in the pool, waiting until its pairing has followed"):
        lab.kubectl("patch", "memorypool", "demo", "--type=merge", "--patch", json.dumps(ENCRYPTED))
        deadline = time.monotonic() + FOLLOWED_WITHIN
        while not all(map(_is_encrypted, lab.items("memorypairings"))):
            if time.monotonic() > deadline:
                raise LabError(f"not encrypted within {FOLLOWED_WITHIN} s:\n{_objects()}")
            time.sleep(0.5)


def _is_encrypted(pairing: Any) -> bool:
    """Whether this is what the borrower's guest is set up for, and connected."""
    end = pairing["status"].get("borrower", {})
    followed = end.get("observedGeneration") == pairing["metadata"]["generation"]
    asked: bool = pairing["spec"]["encryption"] == ENCRYPTED["spec"]["encryption"]
    return asked and followed and end.get("state") == "Connected"


def _objects() -> str:
    return lab.kubectl("get", "memorypools,memorypairings,memoryguests")


def _served() -> int:
    return module.read(workload.lender).lending.get("get_hits", 0)


def _exported() -> dict[str, float]:
    """The agent's metrics of the borrower, once they are as new as what the module says now."""
    names = {"hits": "tidepool_guest_get_hits_total", "puts": "tidepool_guest_puts_total"}
    least = module.remote_hits(module.read(workload.borrower))
    found: dict[str, float] = {"hits": -1}
    deadline = time.monotonic() + COLLECTED_WITHIN
    while found["hits"] < least and time.monotonic() < deadline:
        time.sleep(1)
        text = lab.metrics("agent", AGENT_PORT)
        found = {key: metrics.total(text, name, guest=BORROWER) or 0 for key, name in names.items()}
    most = module.remote_hits(module.read(workload.borrower))
    if not least <= found["hits"] <= most:
        raise LabError(f"the agent exports {found['hits']:.0f} hits, the module has counted {least} to {most}")
    return found


def _memory(name: str) -> int:
    return int(lab.get("virtualmachineinstance", name)["spec"]["domain"]["memory"]["guest"])


def _hypervisor() -> str:
    """What runs the guests, as one of them sees it: `qemu` is emulation, `kvm` is not."""
    return {"qemu": "emulation (TCG)", "kvm": "KVM"}.get(name := workload.borrower("systemd-detect-virt").strip(), name)


def _warnings(readings: dict[str, module.Reading]) -> list[str]:
    counted = [
        f"{name}: the module counts {count} broken invariants"
        for name, reading in readings.items()
        if (count := reading.module.get("warnings", 0))
    ]
    return counted + [f"{name}: {line}" for name in GUESTS for line in workload.complaints(name)]
