"""Guests as they are once they have booted, kept so that the next one of their kind goes on from there.

Emulated, a boot takes some seconds, and going on from an image a fraction of one. The first guest of a kind boots and
is kept, for a day after its last use.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bed.accelerator import accelerator
from bed.image import BUILD, GUEST_MODULES, Kernel, digest

if TYPE_CHECKING:
    from bed.guest import Spec

BOOTED = BUILD / "booted"
DAY_SECONDS = 24 * 3600
NOWHERE = Path()


def image_of(spec: Spec, kernel: Kernel, archive: bytes) -> Path | None:
    """Where the image of guests of this kind is, or is to be; None where each boots by itself.

    Those are machines that somebody else runs, or that are told apart, or whose data somebody else may change, or of
    whose memory somebody wants to know when it was touched. A disk of tools has its contents' digest in its name.
    """
    own = spec.disk and spec.disk.image
    watched = spec.reports is not None or spec.plugged
    if spec.counted or spec.balloon or spec.generation or own or watched:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()  # for this machine's clock went into the guest's
    source = Path(__file__).with_name("guest.py").read_bytes()
    return BOOTED / digest([repr(_kind(spec)), archive, kernel.release, accelerator(kernel), boot, source])


def _kind(spec: Spec) -> Spec:
    """What a guest can know of itself before anything is done in it."""
    links = tuple(replace(link, local=NOWHERE, remote=NOWHERE) for link in spec.links)
    disk = spec.disk and replace(
        spec.disk, filesystem=None, iops=None, write_iops=None, bytes_per_second=None, options=()
    )
    modules = tuple(name for name in spec.modules if name not in GUEST_MODULES)
    tools = spec.tools and Path(spec.tools.name)
    return replace(
        spec, name="", links=links, disk=disk, capture=False, modules=modules, tools=tools, host=spec.host and 1
    )


def use(image: Path) -> bool:
    """Whether it is there; if so it is kept for longer."""
    if image.exists():
        os.utime(image)
    return image.exists()


def place_for(image: Path) -> Path:
    """Where to write an image until it is whole; what has not been used for a day makes room."""
    BOOTED.mkdir(parents=True, exist_ok=True)
    for old in BOOTED.iterdir():
        with contextlib.suppress(FileNotFoundError):  # others write and rename theirs
            if old.stat().st_mtime < time.time() - DAY_SECONDS:
                old.unlink()
    return image.with_name(f".{image.name}.{os.getpid()}")
