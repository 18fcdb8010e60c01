"""layers.py [FOLDER]: says which includes of the module's sources run up from one layer to another, or in a circle.

And which sources know of sockets, beside the one that is there for them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# From the top; a folder may use those of lower lines, and none beside it.
LAYERS = (
    ("control",),
    ("pagecache", "block", "appmem"),
    ("borrower", "lender"),
    ("transport",),
    ("base",),
    ("uapi",),
)
RANK = {folder: rank for rank, folders in enumerate(LAYERS) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
GENERATED = "compat-generated.h"
NO_LAYER = {"compat", "tests", "tools"}
SOCKET = re.compile(r"\bstruct socket\b|\bsock_create|->sk\b")
TRANSPORT = "transport/tcp.c"

Includes = dict[str, list[str]]


def read(folder: Path) -> Includes:
    """What each source includes of the module, both by their paths in it."""
    sources = (file for pattern in ("*.[ch]", "*/*.[ch]") for file in folder.glob(pattern))
    found = {str(file.relative_to(folder)): file for file in sources if file.name != GENERATED}
    return {
        path: [name for name in INCLUDE.findall(file.read_text()) if name != GENERATED]
        for path, file in sorted(found.items())
        if path.partition("/")[0] not in NO_LAYER
    }


def strays(includes: Includes) -> Iterator[str]:
    """Sources in no layer, and includes that are not of the form LAYER/NAME."""
    for path, names in includes.items():
        if "/" not in path or path.partition("/")[0] not in RANK:
            yield f"{path} is in no layer"
        for name in names:
            if name not in includes:
                yield f'{path} includes "{name}", which is no path of a layer\'s header'


def upward(includes: Includes) -> Iterator[str]:
    """Includes of a layer that is not below."""
    for path, names in includes.items():
        own = path.partition("/")[0]
        for name in names:
            other = name.partition("/")[0]
            if {own, other} <= RANK.keys() and other != own and RANK[other] <= RANK[own]:
                yield f"{path} includes {name}: {own}/ may not use {other}/"


def circles(includes: Includes) -> Iterator[str]:
    """Headers that include each other, each circle once."""
    done: set[str] = set()

    def walk(path: str, way: list[str]) -> Iterator[str]:
        if path in way:
            yield "in a circle: " + " -> ".join([*way[way.index(path) :], path])
        elif path not in done:
            for name in includes.get(path, ()):
                yield from walk(name, [*way, path])
            done.add(path)

    for path in includes:
        yield from walk(path, [])


def sockets(folder: Path, includes: Includes) -> Iterator[str]:
    """Sources that could not be used with another transport."""
    for path in includes:
        if path != TRANSPORT and SOCKET.search((folder / path).read_text()):
            yield f"{path} knows of sockets, which are {TRANSPORT}'s"


def faults(folder: Path) -> list[str]:
    """All that is wrong with the sources there."""
    includes = read(folder)
    return [*strays(includes), *upward(includes), *circles(includes), *sockets(folder, includes)]


def main() -> None:
    """Fails, with a line for each fault, if there is one."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    found = faults(folder)
    for fault in found:
        print(f"layers: {fault}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"layers: the includes of {len(read(folder))} files run down")


if __name__ == "__main__":
    main()
