"""`e2e/demo/run`: the lab up, the same reads before and after a pool, the figures, the lab down."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from demo import evidence, lab, plot, show
from demo.figures import Figures, table
from demo.verdict import failures
from demo.workload import BORROWER, LENDER
from tidepool_lab import paths
from tidepool_lab.progress import LabError, say

RESULT, PICTURE = paths.BUILD / "demo.json", paths.BUILD / "demo.png"
SPECS = (f"{BORROWER}=512Mi,disk=1Gi:ext4,iops=166,kernel=6.1", f"{LENDER}=1536Mi,kernel=6.1")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end; not an Exception, so that nothing on the way takes it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def main() -> int:
    """Runs the demo; 0 if it has shown what it is for."""
    options = _options()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _in_lab(keep=options.keep)
    except Interrupted as interrupted:
        print(f"demo: ended by {interrupted.signal.name}; nothing is left running", file=sys.stderr)
        return 128 + interrupted.signal
    except (lab.CommandError, LabError, subprocess.CalledProcessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="e2e/demo/run", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="use the lab that is up, if one is, and leave it up")
    return parser.parse_args()


def _interrupt(number: int, _: FrameType | None) -> None:
    _undisturbed()
    raise Interrupted(number)


def _in_lab(*, keep: bool) -> int:
    if lab.is_up() and not keep:
        raise LabError("a lab is up on this machine; `e2e/lab down` takes it down, `e2e/demo/run --keep` uses it")
    with _taken_down(keep=keep):
        _bring_up()
        figures = show.run()
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
        kept = evidence.keep((BORROWER, LENDER))
        print(f"demo: it failed; what there is to know about it is in {kept}", file=sys.stderr)
        raise
    finally:
        _undisturbed()
        if not keep:
            lab.call("down", show=True)


def _undisturbed() -> None:
    """Further signals change nothing: half a clean-up would help nobody. (SIG_IGN would be inherited.)"""
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)


def _bring_up() -> None:
    guests = [argument for spec in SPECS for argument in ("--guest", spec)]
    lab.call("up", *guests, show=True, patience=3600)


def _publish(figures: Figures) -> None:
    as_json = figures.as_json()
    RESULT.write_text(json.dumps(as_json, indent=2) + "\n")
    plot.draw(as_json, PICTURE)
    print(table(figures), flush=True)
    say(f"the figures are in {RESULT.relative_to(paths.ROOT)}, a plot in {PICTURE.relative_to(paths.ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
