"""Markdown as a man page: the part of it that this documentation uses, in the macros of man(7).

A table becomes a list of its first column, since a terminal is too narrow for most tables.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TypeVar

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

T = TypeVar("T")

WIDTH = 74  # in characters; none of more than 80 bytes
PARAGRAPH = ".PP"
_PROSE = str.maketrans({"\\": r"\e", "~": r"\(ti", "^": r"\(ha"})
_CODE = str.maketrans({"\\": r"\e", "~": r"\(ti", "^": r"\(ha", "-": r"\-", "'": r"\(aq", "`": r"\(ga"})


def tree(markdown: str) -> list[SyntaxTreeNode]:
    """The blocks of a text, in their order."""
    return SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(markdown)).children


def lines(blocks: list[SyntaxTreeNode]) -> list[str]:
    """Blocks as lines of a man page; ValueError for a kind of Markdown that is not known here."""
    return [line for block in blocks for line in _known(_BLOCKS, block)(block)]


def text(found: list[str]) -> str:
    """A whole page. What comes after a heading begins a paragraph without being told to."""
    pairs = zip(["", *found], found, strict=False)
    return "".join(f"{line}\n" for last, line in pairs if line != PARAGRAPH or not last.startswith((".SH", ".SS")))


def name(page: str, said: str) -> list[str]:
    """The line by which a page is found, in the form that `whatis` reads."""
    return [section("Name"), *_wrapped(rf"{page.translate(_CODE)} \- {said.translate(_PROSE)}")]


def section(title: str) -> str:
    """A heading."""
    return f".SH {title.upper().translate(_PROSE)}"


def subsection(title: str) -> str:
    """A heading below one."""
    return f".SS {title.translate(_CODE)}"


def entry(tag: str, said: str) -> list[str]:
    """What is said of a term; both are Markdown of one line."""
    return [".TP", *_safe([_inline_of(tag)]), *_wrapped(_inline_of(said))]


def prose(said: str) -> list[str]:
    """A paragraph without its beginning, of Markdown of one line."""
    return _wrapped(_inline_of(said))


def plain(node: SyntaxTreeNode) -> str:
    """The text of a heading, without any marks."""
    return "".join(one.content for one in node.walk() if one.type in ("text", "code_inline"))


def _heading(node: SyntaxTreeNode) -> list[str]:
    return [section(plain(node)) if node.tag == "h2" else subsection(plain(node))]


def _paragraph(node: SyntaxTreeNode) -> list[str]:
    return [PARAGRAPH, *_wrapped(_inline(node))]


def _code(node: SyntaxTreeNode) -> list[str]:
    return [".IP", ".nf", *_safe(node.content.rstrip("\n").translate(_CODE).splitlines()), ".fi"]


def _list(node: SyntaxTreeNode) -> list[str]:
    return [line for item in node.children for line in _item(item)]


def _item(node: SyntaxTreeNode) -> list[str]:
    first, *others = node.children
    inner = lines(others)
    return [r".IP \(bu 2", *_wrapped(_inline(first)), *([".RS 2", *inner, ".RE"] if inner else [])]


def _table(node: SyntaxTreeNode) -> list[str]:
    rows = node.children[1].children if len(node.children) > 1 else []
    return [line for row in rows for line in _row([_inline(cell) for cell in row.children])]


def _row(cells: list[str]) -> list[str]:
    tag, *between, said = cells
    aside = ", ".join(cell for cell in between if cell)
    return [".TP", *_safe([f"{tag} ({aside})" if aside else tag]), *(_wrapped(said) or [r"\&"])]


def _inline_of(markdown: str) -> str:
    (paragraph,) = tree(markdown)
    return _inline(paragraph)


def _inline(node: SyntaxTreeNode) -> str:
    return "".join(_known(_INLINE, one)(one) for one in node.children)


def _marked(font: str) -> Callable[[SyntaxTreeNode], str]:
    return lambda node: rf"\f{font}{_inline(node)}\fR"


def _link(node: SyntaxTreeNode) -> str:
    target = str(node.attrs["href"])
    return f"{_inline(node)} ({target.translate(_CODE)})" if "://" in target else _inline(node)


_BLOCKS: dict[str, Callable[[SyntaxTreeNode], list[str]]] = {
    "heading": _heading,
    "paragraph": _paragraph,
    "code_block": _code,
    "fence": _code,
    "bullet_list": _list,
    "table": _table,
}
_INLINE: dict[str, Callable[[SyntaxTreeNode], str]] = {
    "inline": _inline,
    "text": lambda node: node.content.translate(_PROSE),
    "code_inline": lambda node: rf"\fB{node.content.translate(_CODE)}\fR",
    "softbreak": lambda _: " ",
    "em": _marked("I"),
    "strong": _marked("B"),
    "link": _link,
}


def _known(kinds: dict[str, T], node: SyntaxTreeNode) -> T:
    if node.type not in kinds:
        raise ValueError(f"no man page can have {node.type}: {node.content or plain(node)}")
    return kinds[node.type]


def _wrapped(said: str) -> list[str]:
    return _safe(textwrap.wrap(said, WIDTH, break_long_words=False, break_on_hyphens=False))


def _safe(found: list[str]) -> list[str]:
    """Lines none of which a dot or a quote at its beginning makes a request."""
    return [rf"\&{line}" if line.startswith((".", "'")) else line for line in found]
