"""The site and the man pages that `make docs` builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urljoin
from urllib.request import urlopen

import crawl
import pytest
import typer
from markdown_it import MarkdownIt

from tidepool_kubectl.cli import app
from tidepool_lab import paths
from tidepool_site import pages, roff

MODULE = paths.ROOT / "kernel-module"
ATTRIBUTE = re.compile(r"^CONFIGFS_ATTR(?:_RO|_WO)?\(tide_(\w+?)_, (\w+)\);", re.MULTILINE)
PARAMETER = re.compile(r"^module_param(?:_named)?\((\w+),", re.MULTILINE)
COUNTER = re.compile(r"^\tTIDE_COUNTER\(\w+, (\w+)\),", re.MULTILINE)
BLOCKS = ("h1", "h2", "h3", "li", "pre", "tr", "td", "th", "code", "a", "em", "strong", "img")
RULES = paths.ROOT / "charts/tidepool/rules/tidepool.yaml"
LINKS = sorted(set(re.findall(r"runbook_url: RUNBOOKS/(.*)", RULES.read_text())))
MAN = ("tidepool.4", "kubectl-tidepool.1")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the site and the man pages."""
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run(["docs/site/build", folder], cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_link_of_the_site_is_dead(built: Path) -> None:
    """Anchors included. Links to other servers are not tried."""
    assert crawl.walk(built / "site").dead == []


def test_the_site_asks_no_other_server(built: Path) -> None:
    """For fonts, scripts, pictures, neither from its pages nor from its style sheets."""
    assert crawl.walk(built / "site").external == []
    sheets = list((built / "site").rglob("*.css"))
    assert sheets
    assert [sheet.name for sheet in sheets if re.search(r"(url\(|@import )[\"']?(https?:)?//", sheet.read_text())] == []


def test_the_site_has_every_page_and_all_are_reached(built: Path) -> None:
    site = built / "site"
    for page in pages.tracked_pages():
        assert (site / _html(page)).exists()
    signposts = set(site.glob("docs/runbooks/*.md/index.html"))  # only alerts lead there
    assert set(site.rglob("*.html")) - crawl.walk(site).reached == {site / "404.html"} | signposts


@pytest.fixture(scope="module")
def served(built: Path) -> Iterator[str]:
    """The address of the site, as a web server shows it that knows nothing but files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=built / "site")) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("link", LINKS)
def test_the_link_of_an_alert_leads_to_its_runbook(served: str, built: Path, link: str) -> None:
    """With `monitoring.runbooks` at the site: a browser shows a page, which leads on to the runbook by itself."""
    with urlopen(f"{served}/docs/runbooks/{link}") as answer:
        assert answer.headers.get_content_type() == "text/html"
        target = re.search(r'<meta http-equiv="refresh" content="0; url=(.*?)">', answer.read().decode())
        assert target
    with urlopen(urljoin(answer.url, target[1])) as runbook:
        assert runbook.read() == (built / "site/docs/runbooks" / link).with_suffix(".html").read_bytes()


def test_a_dead_link_ends_the_build(tmp_path: Path) -> None:
    """One to a page and one to an anchor, in a repository of two pages."""
    shutil.copytree(paths.ROOT / "docs/site", tmp_path / "docs/site")
    (tmp_path / "docs/README.md").write_text("# Contents\n")
    (tmp_path / "README.md").write_text("# Start\n\n[a](docs/README.md), [b](docs/gone.md), [c](docs/README.md#gone)\n")
    (tmp_path / "e2e").mkdir()
    (tmp_path / "e2e/setup").symlink_to("/bin/true")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/venv").symlink_to(paths.BUILD / "venv")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "README.md", "docs/README.md"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "docs/site/build"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert set(re.findall(r"contains a link '(.*?)'", said)) == {"docs/gone.md", "docs/README.md#gone"}
    assert "Aborted with " in said


def test_the_walk_finds_what_is_dead_and_what_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="here"></h1><a href="#here"></a><a href="#gone"></a><a href="a/b.html#there"></a>'
        '<a href="a/none.html"></a>'
        '<a href="https://example.org/page"></a><script src="//example.org/script.js"></script><img src="picture.png">'
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.html").write_text('<p id="there"></p><a href="../index.html#here"></a><a href="/a/b.html#x"></a>')
    found = crawl.walk(tmp_path)
    assert found.reached == {tmp_path / "index.html", tmp_path / "a/b.html"}
    assert set(found.dead) == {
        "index.html: #gone",
        "index.html: a/none.html",
        "index.html: picture.png",
        "a/b.html: /a/b.html#x",
    }
    assert found.external == ["index.html: //example.org/script.js"]


class _Blocks(HTMLParser):
    """How many elements of each kind an article has; the site's own additions have a class, and do not count."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in BLOCKS and "headerlink" not in (dict(attrs).get("class") or ""):
            self.found[tag] += 1


@pytest.mark.parametrize("page", pages.tracked_pages())
def test_the_site_reads_a_page_as_github_does(built: Path, page: str) -> None:
    """As many lists, tables, blocks of code and so on as CommonMark says."""
    text = (built / "site" / _html(page)).read_text()
    article = re.search(r"<article.*?>(.*?)<(?:/article|aside|nav|hr class)", text, re.DOTALL)
    assert article
    markdown = pages.without_folders((paths.ROOT / page).read_text(), page)
    expected = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown)
    assert _Blocks(article[1]).found == _Blocks(expected).found


def test_the_navigation_is_the_table_of_contents() -> None:
    """Section by section; what it does not name comes at the end, each page once."""
    contents = "# All\n\n## How to\n\n- [Size](how-to/size.md), see [a part](how-to/size.md#part)\n- [x](x.yaml)\n"
    named = ["README.md", "docs/README.md", "docs/how-to/size.md", "docs/runbooks/Down.md", "SECURITY.md"]
    assert pages.navigation(contents, named) == [
        {"Tidepool": ["README.md", "docs/README.md"]},
        {"How to": [{"Size": "docs/how-to/size.md"}]},
        {"Runbooks": ["docs/runbooks/README.md", "docs/runbooks/Down.md"]},
        {"Project": ["SECURITY.md"]},
    ]


def test_a_link_to_a_folder_becomes_one_to_a_page_or_text() -> None:
    text = "[runbooks](runbooks), [crds/](../crds), [API](reference/api.md), [far](https://example.org)"
    expected = "[runbooks](runbooks/README.md), crds/, [API](reference/api.md), [far](https://example.org)"
    assert pages.without_folders(text, "docs/README.md") == expected


@pytest.mark.parametrize("name", MAN)
@pytest.mark.parametrize("linter", [("mandoc", "-Tlint"), ("man", "--warnings", "--local-file")], ids=lambda it: it[0])
def test_a_man_page_has_no_warnings(built: Path, name: str, linter: tuple[str, ...]) -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    done = subprocess.run([*linter, built / "man" / name], env=environment, capture_output=True, text=True, check=False)
    said = done.stdout if linter[0] == "mandoc" else done.stderr
    assert (done.returncode, said) == (0, "")


def test_the_modules_man_page_has_each_parameter_attribute_and_counter(built: Path) -> None:
    """By the names that the sources give them, each where it belongs; but for what only the build for tests has.

    Application memory is a module of its own.
    """
    files = (path for path in sorted(MODULE.glob("*/*.c")) if path.name != "broken.c" and path.parent.name != "appmem")
    sources = "".join(path.read_text() for path in files)
    parts = _parts(built / "man/tidepool.4")
    listed = {
        "root": re.findall(r"^ {4}(\w+) +r[ow]  ", parts["THE TREE"], re.MULTILINE),
        "lender": re.findall(r"^\.TP\n\\fB(\w+)\\fR \(r[ow]\)$", parts["lenders/NAME/"], re.MULTILINE),
        "borrower": re.findall(r"^\.TP\n\\fB(\w+)\\fR \(r[ow]\)$", parts["borrowers/NAME/"], re.MULTILINE),
    }
    for directory, names in listed.items():
        assert {name for where, name in ATTRIBUTE.findall(sources) if where == directory} == set(names)
    counters = set(COUNTER.findall(sources))
    assert counters
    assert counters - _terms(parts["STATISTICS"]) == set()
    parameters = set(PARAMETER.findall(sources))
    assert parameters
    assert {name for name in parameters if f"[{name}=" not in parts["SYNOPSIS"]} == set()


def test_the_plugins_man_page_has_each_command_and_option(built: Path) -> None:
    """Each option below the heading of its command."""
    parts = _parts(built / "man/kubectl-tidepool.1")
    described = {heading.split(" [OPTIONS]")[0]: part for heading, part in parts.items() if " [OPTIONS]" in heading}
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert set(described) == set(group.commands)
    for name, command in group.commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert options - _terms(described[name]) == set()


def test_markdown_becomes_a_man_page() -> None:
    """Lists, code, tables, and whatever roff would take for a request or an escape."""
    text = "## A `b`\n\n.x *y* **z** `a\\-b`\n\n    .code 'x'\n\n- one\n  two\n\n"
    table = "| n | | m |\n|---|---|---|\n| `a` | rw | b |\n"
    assert roff.text(roff.lines(roff.tree(text + table))).splitlines() == [
        ".SH A B",
        r"\&.x \fIy\fR \fBz\fR \fBa\e\-b\fR",
        ".IP",
        ".nf",
        r"\&.code \(aqx\(aq",
        ".fi",
        r".IP \(bu 2",
        "one two",
        ".TP",
        r"\fBa\fR (rw)",
        "b",
    ]


def test_markdown_that_no_man_page_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="image"):
        roff.lines(roff.tree("![picture](x.png)"))


def _html(page: str) -> Path:
    path = Path(page)
    return path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html")


def _parts(page: Path) -> dict[str, str]:
    """What is below each heading of a man page."""
    text = page.read_text().replace(r"\-", "-")
    _, *parts = re.split(r"^\.S[HS] (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _terms(part: str) -> set[str]:
    """The names that entries of a list are about, or some of the words that stand for them."""
    tags = re.findall(r"^\.TP\n(.*)$", part, re.MULTILINE)
    return {word for tag in tags for bold in re.findall(r"\\fB(.*?)\\fR", tag) for word in re.split(r",? ", bold)}
