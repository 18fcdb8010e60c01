"""`e2e/demo/run`: the lab up, the same reads before and after a pool, the figures, the lab down."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from demo import evidence, lab, metrics, module, plot, workload
from demo.figures import DEPTHS, Figures, Measured, table
from demo.verdict import failures
from tidepool_lab import paths
from tidepool_lab.progress import LabError, say, step

POOL = Path(__file__).with_name("pool.yaml")
RESULT, PICTURE = paths.BUILD / "demo.json", paths.BUILD / "demo.png"
GUESTS = (workload.BORROWER, workload.LENDER)
SPECS = (f"{workload.BORROWER}=512Mi,disk=1Gi:ext4,iops=166,kernel=6.1", f"{workload.LENDER}=1536Mi,kernel=6.1")
AGENT_PORT = 9477
FILE_MIB = 768
SECONDS = 15
WARM_UP_PASSES = 8
ROUND_TRIPS = 2000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end; not an Exception, so that nothing on the way takes it for a failure of its own."""


def main() -> int:
    """Runs the demo; 0 if it has shown what it is for."""
    options = _options()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _in_lab(keep=options.keep)
    except Interrupted as interrupted:
        print(f"demo: ended by {interrupted}; nothing is left running", file=sys.stderr)
        return 130
    except (lab.CommandError, LabError, subprocess.CalledProcessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="e2e/demo/run", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="use the lab that is up, if one is, and leave it up")
    return parser.parse_args()


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)


def _in_lab(*, keep: bool) -> int:
    if lab.is_up() and not keep:
        raise LabError("a lab is up on this machine; `e2e/lab down` takes it down, `e2e/demo/run --keep` uses it")
    with _taken_down(keep=keep):
        _bring_up()
        figures = _show()
        _publish(figures)
        wrong = failures(figures)
        if wrong:
            raise LabError("this is not what it should be:\n  " + "\n  ".join(wrong))
    say("well: the pages came from the lender, and they were the right ones")
    return 0


@contextmanager
def _taken_down(*, keep: bool) -> Iterator[None]:
    """Whatever happens inside, the lab is down afterwards; of a failure the logs are kept."""
    try:
        yield
    except Interrupted:
        raise
    except BaseException:
        _undisturbed()
        print(f"demo: it failed; what there is to know about it is in {evidence.keep(GUESTS)}", file=sys.stderr)
        raise
    finally:
        _undisturbed()
        if not keep:
            lab.call("down", show=True)


def _undisturbed() -> None:
    """Further signals wait: half a clean-up would help nobody."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _bring_up() -> None:
    program = [argument for spec in SPECS for argument in ("--guest", spec)]
    lab.call("up", *program, show=True, patience=3600)


# ------------------------------------------------------------------------------------------------------------- the show


def _show() -> Figures:
    """Everything between up and down."""
    with step(f"a file of {FILE_MIB} MiB on the borrower's slow disk"):
        before = workload.make_file(FILE_MIB)
    baseline = _measure("without a pool")
    _apply_pool()
    workload.warm_up(FILE_MIB, WARM_UP_PASSES, lambda text: say(f"warm-up, {text}"))
    served = _served()
    pooled = _measure("with the pool")
    served = _served() - served
    exported = _exported()
    with step("checksum, and plain TCP round trips"):
        after = workload.checksum()
        raw = workload.round_trip(workload.build_stress(), workload.pod_address(workload.LENDER), ROUND_TRIPS)
    print(_objects(), flush=True)
    lending, borrowing = module.read(workload.lender), module.read(workload.borrower)
    return Figures(
        kernel=workload.borrower("uname -r").strip(),
        machine=f"{os.cpu_count()} cores, guests under {_hypervisor()}",
        file_mib=FILE_MIB,
        baseline=baseline,
        pooled=pooled,
        served=served,
        exported=exported,
        lent_bytes=lending.lending.get("lent_pages", 0) * module.PAGE,
        used_bytes=borrowing.borrowing.get("catalog_pages", 0) * module.PAGE,
        raw=raw,
        checksum_before=before,
        checksum_after=after,
        memory_bytes={name: _memory(name) for name in GUESTS},
        warnings=_warnings({workload.BORROWER: borrowing, workload.LENDER: lending}),
    )


def _measure(what: str) -> dict[int, Measured]:
    found = {}
    for depth in DEPTHS:
        with step(f"random reads {what}, depth {depth}, {SECONDS} s"):
            found[depth] = workload.measure(depth, SECONDS)
        say(f"{found[depth].reads.iops:.0f} IO/s, {found[depth].counted.disk_reads} reads of the disk")
    return found


def _apply_pool() -> None:
    with step("applying e2e/demo/pool.yaml and waiting until it is Ready"):
        lab.kubectl("apply", "-f", str(POOL))
        try:
            lab.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "memorypool/demo")
        except lab.CommandError as error:
            raise LabError(f"the pool does not become Ready:\n{_objects()}") from error
    print(_objects(), flush=True)


def _objects() -> str:
    return lab.kubectl("get", "memorypools,memorypairings,memoryguests")


def _served() -> int:
    return module.read(workload.lender).lending.get("get_hits", 0)


def _exported() -> dict[str, float]:
    """The agent's metrics of the borrower, once they are as new as what the module says now."""
    names = {"hits": "tidepool_guest_get_hits_total", "puts": "tidepool_guest_puts_total"}
    least = module.remote_hits(module.read(workload.borrower))
    for _ in range(20):
        text = lab.metrics("agent", AGENT_PORT)
        found = {key: metrics.total(text, name, guest=workload.BORROWER) or 0 for key, name in names.items()}
        if found["hits"] >= least:
            break
        time.sleep(2)
    most = module.remote_hits(module.read(workload.borrower))
    if not least <= found["hits"] <= most:
        raise LabError(f"the agent exports {found['hits']:.0f} hits, the module has counted {least} to {most}")
    return found


def _memory(name: str) -> int:
    return int(lab.guest(name, "grep MemTotal /proc/meminfo").split()[1]) << 10


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


def _publish(figures: Figures) -> None:
    as_json = figures.as_json()
    RESULT.write_text(json.dumps(as_json, indent=2) + "\n")
    plot.draw(as_json, PICTURE)
    print(table(figures), flush=True)
    say(f"the figures are in {RESULT.relative_to(paths.ROOT)}, a plot in {PICTURE.relative_to(paths.ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
