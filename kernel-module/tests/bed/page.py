"""Pages in Markdown of which some parts are measured."""

from __future__ import annotations

import re
from collections.abc import Mapping

MARK = re.compile(r"<!-- measured: ([\w-]+) -->\n.*?<!-- end of \1 -->", re.DOTALL)


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between the marks of its name; what is between others stays.

    Raises ValueError when a part has no place.
    """
    places = [found[1] for found in MARK.finditer(page)]
    if lost := [name for name in parts if places.count(name) != 1]:
        raise ValueError(f"the page needs <!-- measured: NAME --> and <!-- end of NAME --> once for {', '.join(lost)}")

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- measured: {name} -->\n{parts[name]}\n<!-- end of {name} -->" if name in parts else found[0]

    return MARK.sub(replaced, page)
