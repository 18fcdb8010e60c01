"""Which pages the site has, and where each stands: hooks of MkDocs.

The site has the Markdown of the whole repository, and each file that one of these pages points to, at the paths that
they have in the repository. So a link leads to the same place in both. The navigation is docs/README.md.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[3]
START = "README.md"
CONTENTS = "docs/README.md"
RUNBOOKS = "docs/runbooks"
RUNBOOK_INDEX = f"{RUNBOOKS}/README.md"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")

Section = dict[str, list[str | dict[str, str]]]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Gives MkDocs the navigation."""
    config.nav = navigation((ROOT / CONTENTS).read_text(), tracked_pages())
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the repository's pages, the files that they point to, a list of the runbooks, and what alerts lead to."""
    pages = tracked_pages()
    pointed = {target for page in pages for target in targets((ROOT / page).read_text(), page)}
    for name in sorted({*pages, *filter(lambda name: (ROOT / name).is_file(), pointed)}):
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    files.append(File.generated(config, RUNBOOK_INDEX, content=runbook_index(pages)))
    for page in runbooks(pages):
        files.append(File.generated(config, f"{page}/index.html", content=signpost(page)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Has links to folders lead to the list of runbooks, or nowhere: a site has no folders."""
    return without_folders(markdown, page.file.src_uri)


def tracked_pages() -> list[str]:
    """The Markdown that git knows, by paths in the repository."""
    listed = subprocess.run(["git", "ls-files", ":(glob)**/*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if not name.startswith(".")]


def targets(text: str, page: str) -> list[str]:
    """What a page points to, as paths in the repository; no other servers."""
    return [_path(target, page) for _, target, _ in LINK.findall(text) if "://" not in target]


def navigation(contents: str, pages: list[str]) -> list[Section]:
    """The sections of the table of contents, then the runbooks, then the pages that are in neither."""
    _, *parts = re.split(r"^## (.*)$", contents, flags=re.MULTILINE)
    sections: list[Section] = [{"Tidepool": [START, CONTENTS]}]
    named = {START, CONTENTS}
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        found = {_path(target, CONTENTS): name for name, target, anchor in LINK.findall(text) if not anchor}
        chosen = {path: name for path, name in found.items() if path in pages and path not in named}
        sections.append({title: [{name: path} for path, name in chosen.items()]})
        named |= set(chosen)
    rest = [page for page in pages if page not in named]
    project = [page for page in rest if page not in runbooks(rest)]
    return [*sections, {"Runbooks": [RUNBOOK_INDEX, *runbooks(rest)]}, {"Project": [*project]}]


def runbooks(pages: list[str]) -> list[str]:
    """Those of some pages that alerts lead to."""
    return [page for page in pages if page.startswith(f"{RUNBOOKS}/")]


def signpost(page: str) -> str:
    """What leads on to a page from the name of its Markdown, by which alerts point to it.

    It is index.html in a folder of that name: any web server shows that, and would have a file of Markdown saved.
    """
    to = f"../{posixpath.basename(page).removesuffix('.md')}.html"
    return f'<!doctype html>\n<meta http-equiv="refresh" content="0; url={to}">\n<a href="{to}">{page}</a>\n'


def runbook_index(pages: list[str]) -> str:
    """A page that lists the runbooks."""
    names = [posixpath.basename(page) for page in runbooks(pages)]
    return "# Runbooks\n\n" + "".join(f"- [{name.removesuffix('.md')}]({name})\n" for name in names)


def without_folders(markdown: str, page: str) -> str:
    """A page's text with its links to folders replaced."""

    def replaced(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        if "://" in target or not (ROOT / _path(target, page)).is_dir():
            return link[0]
        return f"[{text}]({target.rstrip('/')}/README.md)" if _path(target, page) == RUNBOOKS else text

    return LINK.sub(replaced, markdown)


def _path(target: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
