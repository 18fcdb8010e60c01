"""The page of `kubectl tidepool ui` while the cluster changes and while things go wrong, in a real Chromium."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from objects import guest, pairing
from playwright.sync_api import expect
from ui_page import MIB, NARROW, Shown, borrower, lender, lending, reading, served

from tidepool_kubectl.cluster import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tidepool_kubectl.ui.view import Reading

Body = dict[str, Any]
FOCUSED = "document.activeElement.getAttribute('href') ?? document.activeElement.getAttribute('aria-label')"
FOCUSED_IN = "document.activeElement.closest('table')?.caption.textContent ?? 'the map'"


@dataclass
class Stage:
    """A cluster that changes as a test says."""

    bodies: list[Body] = field(default_factory=lambda: [borrower(), lender(), lending()])
    trouble: str = ""

    def read(self) -> Reading:
        if self.trouble:
            raise Unusable(self.trouble)
        return reading(*self.bodies)


def other(name: str, node: str = "n1") -> Body:
    """A guest that neither lends nor borrows."""
    body = guest(name)
    body["spec"]["nodeName"] = node
    return body


def another_lending(borrower: str, lent: int) -> Body:
    body = pairing()
    body["metadata"]["name"] = f"pool.{borrower}.l"
    body["spec"]["borrower"]["guest"] = borrower
    body["status"]["lender"] = {"state": "Connected", "lentBytes": lent}
    return body


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def shown(stage: Stage) -> Iterator[Shown]:
    with served(stage.read) as started:
        yield started


@pytest.fixture
def page(browser: Browser, shown: Shown) -> Iterator[Page]:
    """A narrow window, in which all has to be scrolled; its clock goes on by hand."""
    with browser.new_context(viewport=NARROW) as context:
        opened, wrong = context.new_page(), list[str]()
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.clock.install()
        opened.goto(shown.address)
        expect(opened.get_by_role("heading", name="Who lends to whom")).to_be_visible()
        yield opened
        assert wrong == []


def next_reading(page: Page) -> None:
    """The page reads the cluster again."""
    with page.expect_response(re.compile("/api/")):
        page.clock.run_for(5100)
    page.wait_for_function("document.querySelector('#at').textContent !== ''")


def places(page: Page) -> list[Any]:
    """Where somebody is on the page."""
    sides = "[...document.querySelectorAll('.scroll')].map((one) => one.scrollLeft)"
    closed = "document.querySelectorAll('details:not([open])').length"
    return list(page.evaluate(f"[{FOCUSED}, {FOCUSED_IN}, scrollY, {sides}, {closed}]"))


def go_somewhere(page: Page) -> None:
    """Close the guests' table, look at the middle of the map and of the pairings, take the lender in the table."""
    page.locator("details summary").click()
    page.get_by_role("table", name="Pairings").get_by_role("link", name="ns/l").first.focus()
    for name in ("Map", "Pairings"):
        page.get_by_role("region", name=name).evaluate("(one) => one.scrollLeft = 90")
    page.evaluate("scrollTo(0, 60)")


# --- a reading --------------------------------------------------------------------------------------------------------


def test_a_reading_takes_nobody_from_where_he_is(page: Page, stage: Stage) -> None:
    """Focus, scrolling of page and tables, and what is closed: also with a new guest, and another order of pairings."""
    stage.bodies.append(another_lending("c", 1 * MIB))
    next_reading(page)
    go_somewhere(page)
    before = places(page)
    assert before == ["#/guest/ns/l", "Pairings", 60, [90, 90, 0], 1]
    stage.bodies += [other("a"), other("c")]
    stage.bodies[3] = another_lending("c", 900 * MIB)
    next_reading(page)
    rows = page.get_by_role("table", name="Pairings").locator("tbody tr")
    expect(rows.first).to_contain_text("ns/c")
    assert places(page) == before


def test_a_region_that_is_scrolled_by_the_keyboard_keeps_the_focus(page: Page, stage: Stage) -> None:
    page.get_by_role("region", name="Map").focus()
    stage.bodies.append(other("a"))
    next_reading(page)
    expect(page.get_by_role("link", name="ns/a, None")).to_be_attached()
    assert page.evaluate(FOCUSED) == "Map"


def test_what_is_selected_stays_so(page: Page, stage: Stage) -> None:
    """To copy it."""
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h2'))")
    stage.bodies.append(other("a"))
    next_reading(page)
    expect(page.get_by_role("link", name="ns/a, None")).to_be_attached()
    assert page.evaluate("getSelection().toString()") == "Who lends to whom"


def test_where_the_focused_guest_is_gone_the_focus_stays_on_the_page(page: Page, stage: Stage) -> None:
    stage.bodies.append(other("a"))
    next_reading(page)
    page.get_by_role("link", name="ns/a, None").focus()
    stage.bodies.pop()
    next_reading(page)
    expect(page.get_by_role("link", name="ns/a, None")).to_have_count(0)
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_slider_stays_in_the_hand_while_its_curve_changes(page: Page, stage: Stage) -> None:
    """The size that was chosen stays, and is worth what the new curve says."""
    page.goto(f"{page.url}#/guest/ns/b")
    slider = page.get_by_label("Size of the pool for this guest")
    slider.press("End")
    expect(page.locator("#whatif")).to_have_text("With 1.0Gi, a pool would spare 800/s of 1,000/s.")
    slider.evaluate("(one) => one.mark = true")
    stage.bodies[0]["status"]["curve"] = [{"sizeBytes": 2048 * MIB, "hitRatio": "0.40"}]
    next_reading(page)
    expect(page.locator("#whatif")).to_have_text("With 1.0Gi, a pool would spare 200/s of 1,000/s.")
    expect(slider).to_be_focused()
    assert slider.evaluate("(one) => [one.mark, one.value]") == [True, "32"]


# --- loaded again, and gone back to -----------------------------------------------------------------------------------


def test_a_page_that_is_loaded_again_is_where_it_was(page: Page) -> None:
    go_somewhere(page)
    before = places(page)
    page.reload()
    expect(page.get_by_role("heading", name="Who lends to whom")).to_be_visible()
    assert places(page) == before


def test_whoever_goes_back_is_where_he_was(page: Page) -> None:
    """And a page that is new begins at its top."""
    go_somewhere(page)
    before = places(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="ns/l")).to_be_visible()
    assert page.evaluate("[scrollY, document.activeElement.id]") == [0, "main"]
    page.go_back()
    expect(page.get_by_role("heading", name="Who lends to whom")).to_be_visible()
    assert places(page) == before


def test_what_was_asked_of_the_slider_is_there_again(page: Page) -> None:
    page.goto(f"{page.url}#/guest/ns/b")
    page.get_by_label("Size of the pool for this guest").press("End")
    expect(page.locator("#whatif")).to_contain_text("With 1.0Gi")
    page.reload()
    expect(page.locator("#whatif")).to_have_text("With 1.0Gi, a pool would spare 800/s of 1,000/s.")


# --- the tables -------------------------------------------------------------------------------------------------------


def test_all_guests_and_nodes_are_in_a_table(page: Page, stage: Stage) -> None:
    """Also who neither lends nor borrows, and who is another namespace's."""
    odd = other("x", "n3")
    odd["status"]["conditions"][-1]["status"] = "False"
    abroad = another_lending("b", 0)
    abroad["spec"]["lender"] |= {"namespace": "rich", "nodeName": "n4"}
    stage.bodies += [odd, other("far", "n0"), abroad]
    next_reading(page)
    table = page.get_by_role("table", name="Guests")
    expect(table.locator("tbody tr")).to_have_count(5)
    rows = [one.get_by_role("cell").all_inner_texts() for one in table.locator("tbody tr").all()]
    assert rows == [
        ["n0", "ns/far", "None", "yes"],
        ["n1", "ns/b", "Borrower", "yes"],
        ["n2", "ns/l", "None", "yes"],
        ["n3", "ns/x", "None", "no"],
        ["n4", "rich/l", "Lender", "not shown: of another namespace"],
    ]
    expect(page.locator("summary")).to_have_text("Guests: 5 on 5 nodes")
    table.get_by_role("link", name="ns/x").click()
    expect(page.get_by_role("heading", name="ns/x")).to_be_visible()


def test_a_guest_that_migrates_is_there_once(page: Page, stage: Stage) -> None:
    """Its pairing still names the node that it came from."""
    stage.bodies[1]["spec"]["nodeName"] = "n3"
    next_reading(page)
    expect(page.get_by_role("group", name=re.compile("Map")).get_by_text("n3")).to_be_visible()
    expect(page.get_by_role("link", name="ns/l, None")).to_have_count(1)
    expect(page.get_by_role("table", name="Guests").get_by_role("link", name="ns/l")).to_have_count(1)


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.fixture
def asking(page: Page) -> Page:
    """The page of a guest whose slider has been used."""
    page.goto(f"{page.url}#/guest/ns/b")
    expect(page.locator("#whatif")).to_contain_text("With 512Mi")
    return page


def test_a_forecast_that_fails_is_said_at_the_slider(asking: Page, stage: Stage) -> None:
    """And to who hears the page; the next one that succeeds takes its place."""
    stage.trouble = "the API server does not answer"
    slider = asking.get_by_label("Size of the pool for this guest")
    slider.press("End")
    said = asking.locator("#whatif")
    expect(said).to_have_text("No forecast: the API server does not answer")
    expect(slider).to_have_attribute("aria-valuetext", "No forecast: the API server does not answer")
    stage.trouble = ""
    slider.press("Home")
    expect(said).to_have_text("With 0Mi, a pool would spare 0/s of 1,000/s.")


def test_a_command_that_has_ended_is_said_at_the_slider(asking: Page) -> None:
    asking.route("**/api/**", lambda route: route.abort("connectionrefused"))
    asking.get_by_label("Size of the pool for this guest").press("End")
    gone = "The command has ended. Start `kubectl tidepool ui` again."
    expect(asking.locator("#whatif")).to_have_text(f"No forecast: {gone}")
    asking.clock.run_for(5100)
    expect(asking.get_by_role("alert")).to_have_text(gone)


def test_an_answer_that_is_none_is_not_taken_for_one(asking: Page) -> None:
    """A defect of the command's own is not the browser's word for what it could not read."""
    asking.route("**/api/**", lambda route: route.fulfill(status=500, body="A server error occurred."))
    asking.get_by_label("Size of the pool for this guest").press("End")
    said = "The command cannot answer (500). Its terminal says why."
    expect(asking.locator("#whatif")).to_have_text(f"No forecast: {said}")


def test_a_curve_that_is_gone_is_said_and_one_that_comes_is_shown(asking: Page, stage: Stage) -> None:
    """Where the slider was; it is there again without going elsewhere first."""
    curve = stage.bodies[0]["status"].pop("curve")
    next_reading(asking)
    said, slider = asking.locator("#whatif"), asking.get_by_label("Size of the pool for this guest")
    expect(said).to_have_text("No forecast: no curve: one is measured only while a guest borrows nothing.")
    expect(slider).to_be_hidden()
    stage.bodies[0]["status"] |= {"curve": curve, "missesPerSecond": 0}
    next_reading(asking)
    expect(said).to_have_text("No forecast: its page cache answers all that it reads.")
    stage.bodies[0]["status"]["missesPerSecond"] = 1000
    next_reading(asking)
    expect(said).to_have_text("With 512Mi, a pool would spare 400/s of 1,000/s.")
    expect(slider).to_be_visible()


def test_a_page_that_was_left_does_not_come_back(page: Page) -> None:
    """Its answer is late, and somebody has gone elsewhere meanwhile."""
    held = list[Any]()
    page.route("**/api/map", lambda route: held.append(route))
    page.clock.run_for(5100)
    page.get_by_role("link", name="ns/b, Borrower").click()
    expect(page.get_by_role("heading", name="ns/b")).to_be_visible()
    with page.expect_response("**/api/map"):
        held[0].continue_()
    page.wait_for_timeout(300)
    assert page.title() == "ns/b · Tidepool"
    assert page.locator("h2").first.inner_text() == "ns/b"


@pytest.mark.parametrize(
    ("place", "said"), [("#/guest/ns/none", "no MemoryGuest ns/none"), ("#/guest/%E0%A4%A", "URI")]
)
def test_a_place_that_is_not_there_is_said(page: Page, place: str, said: str) -> None:
    """And what was shown before is not taken for it."""
    page.evaluate("(place) => location.hash = place", place)
    expect(page.get_by_role("alert")).to_contain_text(said)
    expect(page.get_by_role("heading", name="Who lends to whom")).to_have_count(0)
    page.get_by_role("link", name="Back to the map").click()
    expect(page.get_by_role("heading", name="Who lends to whom")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_without_a_closing_slash_the_page_is_there(browser: Browser, shown: Shown) -> None:
    with browser.new_context() as context:
        opened = context.new_page()
        opened.goto(shown.address.removesuffix("/"))
        expect(opened.get_by_role("heading", name="Who lends to whom")).to_be_visible()
        assert opened.url == shown.address
