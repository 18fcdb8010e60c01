"""A walk over a site that lies in a folder, from link to link."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

# What a browser loads by itself, by element and attribute; anything else it loads when somebody follows a link.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
LINKED = {("a", "href"), ("form", "action")}


class _Page(HTMLParser):
    """The anchors of a page, and what it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loaded: set[str] = set()
        self.linked: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value)
            if (tag, name) in LOADED:
                self.loaded.add(value)
            if (tag, name) in LINKED:
                self.linked.add(value)


@dataclass
class Walk:
    """What was found: pages and files that are reached, links that lead nowhere, what other servers are asked for."""

    reached: set[Path] = field(default_factory=set)
    dead: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)


def walk(folder: Path, start: str = "index.html") -> Walk:
    """Follows every link of a site; those to other servers are not followed."""
    found, todo, pages = Walk(), [folder / start], dict[Path, _Page]()
    while todo:
        path = todo.pop()
        if path in found.reached:
            continue
        found.reached.add(path)
        if path.suffix != ".html":
            continue
        page = _read(path, pages)
        found.external += [f"{path.relative_to(folder)}: {url}" for url in page.loaded if _elsewhere(url)]
        for url in filter(lambda url: not _elsewhere(url), page.loaded | page.linked):
            target, anchor = _resolved(url, path, folder)
            if not target.is_file() or (anchor and anchor not in _read(target, pages).anchors):
                found.dead.append(f"{path.relative_to(folder)}: {url}")
            else:
                todo.append(target)
    return found


def _read(path: Path, pages: dict[Path, _Page]) -> _Page:
    if path not in pages:
        pages[path] = _Page(path.read_text())
    return pages[path]


def _elsewhere(url: str) -> bool:
    return bool(urlsplit(url).scheme or urlsplit(url).netloc)


def _resolved(url: str, page: Path, folder: Path) -> tuple[Path, str]:
    """The file and the anchor that a link leads to; one that begins with / begins at the site."""
    parts = urlsplit(urljoin(f"/{page.relative_to(folder)}", url))
    return folder / unquote(parts.path).lstrip("/"), unquote(parts.fragment)
