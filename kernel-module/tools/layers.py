"""layers.py [FOLDER]: says which includes of the module's sources run up from one layer to another, or in a circle.

And which calls run in a circle: X.c and X.h are one, and what X.h declares is theirs. And which sources know of
sockets, beside the one that is there for them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
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

COMMENT = re.compile(r'/\*.*?\*/|^#include.*?$|"(?:\\.|[^"\\\n])*"', re.DOTALL | re.MULTILINE)
# Functions and variables: what a source defines for others,
DEFINED = (
    re.compile(r"^(?!static\b)[a-z][^;{}()=]*?\b(\w+)\([^;{}]*\)\n\{", re.MULTILINE),
    re.compile(r"^(?!static\b)[a-z][\w *]*[ *](\w+)(?:\[\w*\])?(?: = |;)", re.MULTILINE),
    re.compile(r"^(?:DEFINE_|DECLARE_|LIST_)\w+\((\w+)\)", re.MULTILINE),
)
# and what a header declares, inline functions and macros that look like one among it.
DECLARED = (
    re.compile(r"^[a-z][^;{}()=]*?\b(\w+)\([^;{}]*\)[\w\s]*;", re.MULTILINE),
    re.compile(r"^static [^;{}()=]*?\b(\w+)\([^;{}]*\)\n\{", re.MULTILINE),
    re.compile(r"^#define (tide_\w+)\(", re.MULTILINE),
    re.compile(r"^DECLARE_\w+\((\w+)\)", re.MULTILINE),
)
VARIABLES = re.compile(r"^extern ([^;()]*);", re.MULTILINE)
VARIABLE = re.compile(r"(\w+)(?:\[\w*\])?\s*$")

Includes = dict[str, list[str]]
Calls = dict[str, dict[str, str]]


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
    """Those that lead back to where they began, each circle once."""
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


def unit(path: str) -> str:
    """X.c and X.h together."""
    return path.rpartition(".")[0]


def code(file: Path) -> str:
    """A source without its comments, strings and includes."""
    return COMMENT.sub("", file.read_text())


def names_in(header: str) -> Iterator[str]:
    """The functions and variables that it declares, also several at once."""
    for form in DECLARED:
        yield from form.findall(header)
    for variables in VARIABLES.findall(header):
        for one in variables.split(","):
            yield from VARIABLE.findall(one)


def declared(sources: dict[str, str]) -> dict[str, str]:
    """Whose each function and variable is that a header declares."""
    return {name: unit(path) for path, text in sources.items() if path.endswith(".h") for name in names_in(text)}


def elsewhere(sources: dict[str, str], owners: dict[str, str]) -> Iterator[str]:
    """What another header declares than that of the source that defines it."""
    for path, text in sources.items():
        names = (name for form in DEFINED for name in form.findall(text) if path.endswith(".c"))
        for name in names:
            if owners.get(name, unit(path)) != unit(path):
                yield f"{path} defines {name}, which {owners[name]}.h declares"


def calls(sources: dict[str, str], owners: dict[str, str]) -> Calls:
    """Whom each calls, and by which name of theirs, one of several."""
    found: Calls = {unit(path): {} for path in sources}
    for path, text in sources.items():
        for name in re.findall(r"\w+", text):
            if owners.get(name, unit(path)) != unit(path):
                found[unit(path)].setdefault(owners[name], name)
    return found


def rounds(used: Calls) -> Iterator[str]:
    """Calls in a circle, each circle once."""
    for circle in circles({path: list(others) for path, others in used.items()}):
        way = circle.removeprefix("in a circle: ").split(" -> ")
        named = (f"{path} -> {used[path][other]} of {other}" for path, other in pairwise(way))
        yield "calls in a circle: " + ", ".join(named)


def sockets(folder: Path, includes: Includes) -> Iterator[str]:
    """Sources that could not be used with another transport."""
    for path in includes:
        if path != TRANSPORT and SOCKET.search((folder / path).read_text()):
            yield f"{path} knows of sockets, which are {TRANSPORT}'s"


def faults(folder: Path) -> list[str]:
    """All that is wrong with the sources there."""
    includes = read(folder)
    sources = {path: code(folder / path) for path in includes}
    owners = declared(sources)
    return [
        *strays(includes),
        *upward(includes),
        *circles(includes),
        *elsewhere(sources, owners),
        *rounds(calls(sources, owners)),
        *sockets(folder, includes),
    ]


def main() -> None:
    """Fails, with a line for each fault, if there is one."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    found = faults(folder)
    for fault in found:
        print(f"layers: {fault}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"layers: includes and calls of {len(read(folder))} files run down")


if __name__ == "__main__":
    main()
