"""`kubectl_complete-tidepool`: what kubectl runs to complete `kubectl tidepool …`.

It gets the words so far, the unfinished one last, and prints one candidate a line and then a directive: after `:4`
kubectl offers no file names.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence

from tidepool_kubectl.cluster import Cluster, Unusable

COMMANDS = ("check", "collect", "explain", "plan", "top", "ui", "who")
NAMED: Mapping[str, Callable[[Cluster], list[str]]] = {
    "explain": Cluster.guest_names,
    "plan": Cluster.pool_names,
    "who": Cluster.guest_names,
}
WITH_A_VALUE = ("-n", "--namespace", "--context", "--system", "--size", "--seconds")
NO_FILES = ":4"


def candidates(words: Sequence[str], listed: Callable[[str, str | None], list[str]]) -> list[str]:
    """What the last word may become.

    `listed` gives the names that a command takes, of a namespace; None is the context's own.
    """
    *before, last = words or [""]
    if not before:
        return [one for one in COMMANDS if one.startswith(last)]
    if before[0] in NAMED and not last.startswith("-") and before[-1] not in WITH_A_VALUE:
        return [one for one in listed(before[0], _namespace(before)) if one.startswith(last)]
    return []


def _namespace(words: Sequence[str]) -> str | None:
    pairs = itertools.pairwise(words)
    return next((value for option, value in pairs if option in ("-n", "--namespace")), None)


def _listed(command: str, namespace: str | None) -> list[str]:
    try:
        return NAMED[command](Cluster.reached(context=None, namespace=namespace, everywhere=False, system=""))
    except Unusable:
        return []  # a prompt is no place for errors


def main() -> None:
    """Prints the candidates for the words of the command line."""
    print("\n".join([*candidates(sys.argv[1:], _listed), NO_FILES]))


if __name__ == "__main__":
    main()
