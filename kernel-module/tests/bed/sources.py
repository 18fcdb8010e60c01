"""The module's sources, as what is measured or proven of them names them."""

from __future__ import annotations

import hashlib
import re

from bed.image import TESTS

COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)


def digest(more: bytes = b"") -> str:
    """Twelve hexadecimal digits: of the module's code, comments left out, and of whatever else counts."""
    files = {*TESTS.parent.glob("*.[ch]"), *TESTS.parent.glob("compat/*.c")} - {TESTS.parent / "compat-generated.h"}
    code = [COMMENT.sub(b"", file.read_bytes()) for file in sorted(files)]
    return hashlib.sha256(b"".join([*code, more])).hexdigest()[:12]
