"""`kubectl tidepool ui`: who may ask, what is answered, and the page in a real Chromium against a real API server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from objects import guest
from playwright.sync_api import expect
from ui_page import MIB, NARROW, WIDE, Shown, borrower, lender, lending, reading

from tidepool_api import GuestKey
from tidepool_kubectl.cluster import Unusable
from tidepool_kubectl.ui.browse import in_browser
from tidepool_kubectl.ui.reading import Reader
from tidepool_kubectl.ui.view import UnknownGuest, guest_of, map_of
from tidepool_kubectl.ui.web import App

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tidepool_api_testing.server import Server

NAMESPACE = "shown"
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_map_has_nodes_guests_and_who_lends_to_whom() -> None:
    found = map_of(reading(borrower(), lender(), lending(), spared=12.5))
    assert {one["node"]: [each["guest"] for each in one["guests"]] for one in found["nodes"]} == {
        "n1": ["ns/b"],
        "n2": ["ns/l"],
    }
    (one,) = found["pairings"]
    assert (one["lender"], one["borrower"], one["usedBytes"], one["sparedPerSecond"]) == (
        "ns/l",
        "ns/b",
        300 * MIB,
        12.5,
    )


def test_a_lender_that_one_may_not_see_is_on_the_map_without_a_page() -> None:
    """It is known by the pairing of who borrows from it."""
    body = lending()
    body["spec"]["lender"]["namespace"] = "rich"
    now = reading(borrower(), body)
    guests = [one for node in map_of(now)["nodes"] for one in node["guests"]]
    assert {one["guest"]: one["isHidden"] for one in guests} == {"ns/b": False, "rich/l": True}
    with pytest.raises(UnknownGuest, match="no MemoryGuest rich/l that you may see"):
        guest_of(now, GuestKey("rich", "l"))


def test_a_guest_that_migrates_is_on_the_map_once() -> None:
    """Where it says itself that it is; its pairing names the node that it came from until that follows.

    One that cannot be seen is there once, too, though its pairings may name two nodes.
    """
    moved, body = lender(), lending()
    moved["spec"]["nodeName"] = "n9"
    abroad, late = lending(), lending()
    for number, one in enumerate((abroad, late)):
        one["metadata"]["name"] = f"pool.b.abroad{number}"
        one["spec"] |= {"pool": f"pool{number}"}
        one["spec"]["lender"] |= {"guest": "far", "namespace": "rich", "nodeName": f"n{number}"}
    found = map_of(reading(borrower(), moved, body, abroad, late))
    guests = [(one["node"], each["guest"]) for one in found["nodes"] for each in one["guests"]]
    assert guests == [("n0", "rich/far"), ("n1", "ns/b"), ("n9", "ns/l")]


def test_a_guest_has_its_curve_and_what_another_size_would_bring() -> None:
    """Between the points of the curve as `kubectl tidepool plan` has it; nothing where there is no curve."""
    now = reading(borrower(), lender(), lending(), spared=12.5)
    found = guest_of(now, GuestKey("ns", "b"), 640 * MIB)
    assert [one["readsPerSecond"] for one in found["curve"]] == [200, 800]
    assert found["whatIf"] == {"sizeBytes": 640 * MIB, "readsPerSecond": 500}
    assert (found["sparedPerSecond"], [one["lender"] for one in found["borrows"]]) == (12.5, ["ns/l"])
    other = guest_of(now, GuestKey("ns", "l"), 640 * MIB)
    assert (other["whatIf"], [one["borrower"] for one in other["lends"]]) == (None, ["ns/b"])


# --- who may ask ------------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> App:
    return App(lambda: reading(borrower(), lender(), lending()))


def request(app: App, path: str = "/api/map", **changes: str) -> dict[str, str]:
    path, _, query = path.partition("?")
    usual = {"HTTP_HOST": "127.0.0.1:8000", "SERVER_PORT": "8000", "REQUEST_METHOD": "GET"}
    return {**usual, "PATH_INFO": f"/{app.token}{path}", "QUERY_STRING": query, **changes}


@pytest.mark.parametrize("host", ["evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "localhost", ""])
def test_another_host_is_refused(app: App, host: str) -> None:
    """A page of somebody else's, whose name leads here, must not read what its visitor may."""
    assert app.answer(request(app, HTTP_HOST=host)).status == 421
    assert app.answer(request(app, HTTP_HOST="localhost:8000")).status == 200


@pytest.mark.parametrize("path", ["/", "/api/map", "//api/map", "/x/api/map", "/main.js", "/é/"])
def test_without_the_token_there_is_nothing(app: App, path: str) -> None:
    assert app.answer(request(app, PATH_INFO=path)).status == 403
    assert app.token not in repr(app.answer(request(app, PATH_INFO=path)))


def test_tokens_are_not_used_twice() -> None:
    assert len({App(lambda: reading()).token for _ in range(20)}) == 20


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(app: App, method: str) -> None:
    assert app.answer(request(app, REQUEST_METHOD=method)).status == 405


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/guest?guest=ns/none", 404, "no MemoryGuest ns/none"),
        ("/api/guest", 400, "guest: '' is no guest: give NAMESPACE/NAME"),
        ("/api/guest?guest=none", 400, "guest: 'none' is no guest: give NAMESPACE/NAME"),
        ("/api/guest?guest=ns/b&size=five", 400, "size: 'five' is not an amount of memory; write a number with Ki"),
        ("/api/guest?guest=ns/b&size=", 400, "size: '' is not an amount of memory"),
        ("/api/guest?guest=ns/b&size=-1", 400, "size: '-1' is not an amount of memory"),
        ("/api/guest?guest=ns/b&size=17Ti", 400, "size: '17Ti' is too much; the most is 16Ti"),
        (f"/api/guest?guest=ns/b&size={'9' * 5000}", 400, f"size: '{'9' * 60}…' is too much; the most is 16Ti"),
        ("/api/guest?guest=ns/b&size=1Gi&size=2Gi", 400, "size is given 2 times; give it once"),
        ("/api/guest?guest=ns/b&sise=1Gi", 400, "there is no parameter sise; there is guest and size"),
        ("/api/map?guest=ns/b", 400, "there is no parameter guest; there is none"),
        ("/api/pools", 404, "there is no such page"),
        ("/../web.py", 404, "there is no such page"),
        ("/static/../../cli.py", 404, "there is no such page"),
    ],
)
def test_what_cannot_be_answered_is_said(app: App, path: str, status: int, said: str) -> None:
    answer = app.answer(request(app, path))
    assert answer.status == status
    assert said in json.loads(answer.body)["error"]


def test_a_trouble_of_the_cluster_is_none_of_the_request() -> None:
    """And what is wrong with a request is said without asking the cluster."""

    def away() -> NoReturn:
        raise Unusable("the API server does not answer")

    app = App(away)
    assert app.answer(request(app, "/api/map")).status == 503
    assert app.answer(request(app, "/api/guest?guest=none")).status == 400


def test_without_the_closing_slash_it_leads_there(app: App) -> None:
    """What the page names is looked for in its folder: without the slash that would be another one."""
    answer = app.answer(request(app, ""))
    assert (answer.status, answer.elsewhere) == (308, f"/{app.token}/")
    assert app.answer(request(app, "", PATH_INFO=app.token)).status == 308
    assert app.answer(request(app, "", PATH_INFO="*")).status == 403


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(api_server: Server) -> Iterator[Shown]:
    api_server.kubectl("create", "namespace", NAMESPACE)
    odd = guest("x")
    odd["metadata"]["namespace"] = NAMESPACE
    odd["status"]["conditions"][-1] |= {"status": "False", "reason": "Odd", "message": HOSTILE}
    for body in (borrower(NAMESPACE), lender(NAMESPACE), odd, lending(NAMESPACE)):
        api_server.create(body)
        api_server.apply_status(body)
    command = [sys.executable, "-m", "tidepool_kubectl", "ui", "--no-browser", "-n", NAMESPACE]
    environment = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig())}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        said = running.stdout.readline()
        yield Shown(said.removeprefix("open ").strip())
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0


def test_the_address_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a browser is started with is for all users to read; the file that it names is the user's alone."""
    address, opened, told = "http://127.0.0.1:4000/secret/", threading.Event(), []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda uri: (told.append(uri), opened.set()))
    with in_browser(address):
        assert opened.wait(10)
        (page,) = (Path(uri.removeprefix("file://")) for uri in told)
        assert "secret" not in told[0]
        assert f"url={address}" in page.read_text()
        assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not page.parent.exists()


def test_a_failure_is_not_repeated_by_all_who_wait() -> None:
    """The cluster is asked once, and what it said holds for a while."""
    asked: list[float] = []

    class Away:
        def lendings(self) -> NoReturn:
            asked.append(time.monotonic())
            raise Unusable("the API server does not answer")

    reader = Reader(Away(), every=60)  # type: ignore[arg-type]  # all that it needs of one
    for _ in range(3):
        with pytest.raises(Unusable, match="does not answer"):
            reader.now()
    assert len(asked) == 1


@pytest.fixture
def page(browser: Browser, shown: Shown) -> Iterator[Page]:
    """The map; nothing may be asked of anybody else, and nothing go wrong in it."""
    with browser.new_context(viewport=WIDE) as context:
        opened, wrong, asked = context.new_page(), list[str](), list[str]()
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        opened.on("request", lambda sent: asked.append(sent.url))
        opened.goto(shown.address)
        expect(opened.get_by_role("heading", name="Who lends to whom")).to_be_visible()
        yield opened
        assert wrong == []
        assert [url for url in asked if not url.startswith(shown.address)] == []


def test_the_server_listens_to_this_machine_alone_and_says_what_a_page_may(shown: Shown) -> None:
    """Headers as they come over the wire, also with what is refused; a stranger's Host gets nothing."""
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/", shown.address)
    path = urlsplit(shown.address).path
    answer = shown.call("GET", path)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (answer.headers["Referrer-Policy"], answer.headers["Cache-Control"]) == ("no-referrer", "no-store")
    assert shown.call("GET", path, Host="evil.example").status == 421
    assert shown.call("GET", "/").status == 403
    assert shown.call("POST", f"{path}api/map").status == 405


def test_the_map_shows_nodes_guests_and_a_line(page: Page) -> None:
    picture = page.get_by_role("group", name=re.compile("Map of nodes"))
    for node in ("n1", "n2"):
        expect(picture.get_by_text(node, exact=True)).to_be_visible()
    line = picture.locator("path.pairing")
    expect(line).to_have_count(1)
    expect(line).to_have_attribute("stroke-width", "14.0")
    expect(line.locator("title")).to_have_text(
        f"{NAMESPACE}/l lends 300Mi to {NAMESPACE}/b (Connected), unknown spared"
    )
    cells = page.get_by_role("table", name="Pairings").get_by_role("cell").all_inner_texts()
    assert cells == [f"{NAMESPACE}/l", f"{NAMESPACE}/b", "pool", "Connected", "512Mi", "300Mi", "unknown"]


def test_a_line_is_thicker_for_more_pages_and_coloured_by_what_it_spares(page: Page) -> None:
    """Next to the pairing that has most; half as thick beyond the thinnest for a quarter of its pages."""
    asked = "async () => { const map = await import('./map.js'); return [%s]; }"
    thick = page.evaluate(asked % "map.thickness(0, 0), map.thickness(0, 8), map.thickness(2, 8), map.thickness(8, 8)")
    assert thick == [2, 2, 8, 14]
    levels = page.evaluate(asked % ", ".join(f"map.worth({reads}, 9)" for reads in ("null", 0, 1, 3, 4, 6, 7, 9)))
    assert levels == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_guest_is_reached_by_the_keyboard_and_asks_what_if(page: Page) -> None:
    page.get_by_role("link", name=f"{NAMESPACE}/b, Borrower").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"{NAMESPACE}/b")).to_be_visible()
    said = page.locator("#whatif")
    expect(said).to_have_text("With 512Mi, a pool would spare 400/s of 1,000/s.")
    page.get_by_label("Size of the pool for this guest").press("End")
    expect(said).to_have_text("With 1.0Gi, a pool would spare 800/s of 1,000/s.")
    page.get_by_role("link", name="Back to the map").click()
    expect(page.get_by_role("heading", name="Who lends to whom")).to_be_visible()


def test_what_objects_say_is_shown_as_text(page: Page) -> None:
    page.get_by_role("link", name=f"{NAMESPACE}/x, None, not ready").click()
    expect(page.get_by_text(f"no: {HOSTILE}")).to_be_visible()
    expect(page).to_have_title(f"{NAMESPACE}/x · Tidepool")
    assert page.locator("img").count() == 0


def test_the_map_follows_the_cluster(page: Page, api_server: Server) -> None:
    """Without being loaded again."""
    body = lending(NAMESPACE)
    body["status"]["borrower"]["usedBytes"] = 200 * MIB
    api_server.apply_status(body)
    expect(page.get_by_role("cell", name="200Mi")).to_be_visible(timeout=20_000)
    api_server.apply_status(lending(NAMESPACE))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("place", ["", f"#/guest/{NAMESPACE}/b"], ids=["map", "guest"])
def test_the_page_is_accessible(browser: Browser, shown: Shown, place: str, size: Any, scheme: Any) -> None:
    """By axe's rules, contrast among them; nothing makes the page wider than its window."""
    with browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True) as context:
        opened = context.new_page()
        opened.goto(f"{shown.address}{place}")
        expect(opened.locator("h2").first).to_be_visible()
        if place:
            expect(opened.locator("#whatif")).to_contain_text("would spare")
        found = Axe().run(opened)
        assert found.violations_count == 0, found.generate_report()
        assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
        is_dark = opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
        assert is_dark is (scheme == "dark")
