"""The module's sources, as what is measured or proven of them names them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from bed.image import TESTS

MODULE = TESTS.parent
COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)


def sources() -> list[Path]:
    """Its files, those of all layers."""
    return sorted(file for file in MODULE.glob("*/*.[ch]") if file.parent.name != "compat")


def digest(more: bytes = b"") -> str:
    """Twelve hexadecimal digits: of the module's code, comments left out, and of whatever else counts."""
    probes = sorted(MODULE.glob("compat/*.c"))
    code = [COMMENT.sub(b"", file.read_bytes()) for file in [*sources(), *probes]]
    return hashlib.sha256(b"".join([*code, more])).hexdigest()[:12]
