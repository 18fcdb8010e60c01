"""`kubectl_complete-tidepool`: what kubectl runs to complete `kubectl tidepool …`.

It gets the words so far, the unfinished one last, and prints one candidate a line and then a directive: after `:4`
kubectl offers no file names.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence

from tidepool_kubectl.cluster import Cluster, Unusable

COMMANDS = ("check", "collect", "explain", "plan", "top", "who")
WITH_A_GUEST = ("explain", "who")
NO_FILES = ":4"


def candidates(words: Sequence[str], guests: Callable[[str | None], list[str]]) -> list[str]:
    """What the last word may become; `guests` lists those of a namespace, None for the context's own."""
    *before, last = words or [""]
    if not before:
        return [one for one in COMMANDS if one.startswith(last)]
    if before[0] in WITH_A_GUEST and not last.startswith("-") and before[-1] not in ("-n", "--namespace"):
        return [one for one in guests(_namespace(before)) if one.startswith(last)]
    return []


def _namespace(words: Sequence[str]) -> str | None:
    pairs = itertools.pairwise(words)
    return next((value for option, value in pairs if option in ("-n", "--namespace")), None)


def _guests(namespace: str | None) -> list[str]:
    try:
        return Cluster(context=None, namespace=namespace, everywhere=False, system="").guest_names()
    except Unusable:
        return []  # a prompt is no place for errors


def main() -> None:
    """Prints the candidates for the words of the command line."""
    print("\n".join([*candidates(sys.argv[1:], _guests), NO_FILES]))


if __name__ == "__main__":
    main()
