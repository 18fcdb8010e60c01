"""What the programs in the guests print. Pure."""

from __future__ import annotations


def dd_seconds(text: str) -> float:
    """How long dd took: its last line, such as `268435456 bytes (268 MB, 256 MiB) copied, 3.1 s, 86 MB/s`."""
    return float(text.splitlines()[-1].split(" copied, ")[1].split()[0])


def bogo_per_second(text: str) -> float:
    """What stress-ng did in a second, of `stress-ng: metrc: [9] matrix 5554 2.00 2.00 0.00 2776.86 2776.49`."""
    lines = [line.split("]", 1)[1].split() for line in text.splitlines() if "metrc:" in line]
    return next(float(words[5]) for words in lines if len(words) == 7 and words[1].isdigit())
