"""The module's sources, as what is measured or proven of them names them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

from bed.image import TESTS

MODULE = TESTS.parent
COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
# What a file of tests names that loads a module beside tidepool.ko, or builds them all.
LOADED_APART = {
    "appmem": re.compile(rb'"app"|tidepool[-_]app|dkms'),
    "block": re.compile(rb"bed\.device|tidepool[-_]block|dkms"),
}


def sources() -> list[Path]:
    """Its files, those of all layers."""
    return sorted(file for file in MODULE.glob("*/*.[ch]") if file.parent.name != "compat")


def digest(more: bytes = b"", without: Collection[str] = ()) -> str:
    """Twelve hexadecimal digits: of the code, comments and some layers left out, and of whatever else counts."""
    probes = sorted(MODULE.glob("compat/*.c"))
    counted = [file for file in sources() if _layer(file) not in without]
    code = [COMMENT.sub(b"", file.read_bytes()) for file in [*counted, *probes]]
    return hashlib.sha256(b"".join([*code, more])).hexdigest()[:12]


def _layer(file: Path) -> str:
    """The folder it is in; the interface for programs is that of their memory's layer."""
    return "appmem" if file.name == "tidepool.h" else file.parent.name


def unloaded(tests: bytes) -> list[str]:
    """The layers that are modules of their own, and which a file of tests does not load."""
    return [layer for layer, named in LOADED_APART.items() if not named.search(tests)]
