"""What guests, their libvirt and a node lender answer, as far as it takes little memory to understand. Pure.

Who answers has the size of an answer in his hands. Within that, brackets become fifty times as many bytes, and an agent
that has no more memory is one that no guest of its node has.
"""

from __future__ import annotations

import json

MOST_BYTES = 2 << 20  # of an answer; the output of a program, of which a mebibyte is read, takes two thirds of it
MOST_PARTS = 50_000  # values or elements; a Linux with a thousand network interfaces says of them in half as many


def document(text: str) -> object:
    """JSON that somebody else wrote; raises ValueError for what is none, or has more parts than make sense."""
    if sum(map(text.count, "[{,")) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS} parts")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def has_too_many_parts(xml: str) -> bool:
    """Whether XML that somebody else wrote has more elements and attributes than make sense."""
    return xml.count("<") + xml.count("=") > MOST_PARTS
