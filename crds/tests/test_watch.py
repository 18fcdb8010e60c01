"""A copy of the API server's objects goes forward only, and only the API server itself can empty it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tidepool_api import GuestKey, names
from tidepool_api.kube import Access, Api, Copy, Refused, Resource, client, named, ours, watch
from tidepool_api.kube.resources import PODS
from tidepool_api_testing.server import ADMIN_TOKEN, Server

PAIRINGS = ours(names.PAIRINGS)
PATH = PAIRINGS.path()


def followed() -> Copy[GuestKey]:
    """A copy that nobody fills: no API server is asked for anything."""
    api = Api(Access("https://127.0.0.1:1"))
    return Copy(GuestKey, api, PAIRINGS, lambda *_: None)


def item(version: int, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "x", "uid": uid, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("answer", "kept"),
    [(item(9), 10), (item(11), 11), (item(100), 100), (item(11, uid="another"), 10)],
    ids=["older", "newer", "more digits", "another of that name"],
)
def test_an_answer_is_absorbed_if_it_is_newer(answer: dict[str, Any], kept: int) -> None:
    copy = followed()
    copy.objects[GuestKey("n", "x")] = item(10)
    copy.absorb(answer)
    assert copy.objects[GuestKey("n", "x")] == item(kept)


def test_an_answer_does_not_bring_back_what_is_gone() -> None:
    copy = followed()
    copy.absorb(item(11))
    assert not copy.objects


NOTHING: dict[str, Any] = {}  # in the place of an answer: none


class Front:
    """Whatever answers where the API server should, by path: an object or a status; anything else is not found."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.then: dict[str, Any] = {}  # what is answered from the second time on
        self.turns: dict[str, list[Any]] = {}  # what is answered once each, before all that
        self.asked: list[str] = []
        self.tokens: list[str] = []  # by which the pages of a list were asked for
        front = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0] + ("?watch" if "watch=true" in self.path else "")
                turns = front.turns.get(path)
                found = turns.pop(0) if turns else front.answers.get(path, "<h1>Not Found</h1>")
                said = found if isinstance(found, str) else f"{json.dumps(found)}\n"
                body = said.encode() if found != NOTHING else b""
                self.send_response(found if isinstance(found, int) else 404 if isinstance(found, str) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                front.asked.append(path)
                front.tokens += parse_qs(self.path.partition("?")[2]).get("continue", [""])
                front.answers |= {path: front.then[path]} if path in front.then else {}

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.api = Api(Access(f"http://127.0.0.1:{self.server.server_port}"))


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.05)
    one = Front()
    yield one
    one.server.shutdown()


def wait_for(check: Callable[[], bool]) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def follow(front: Front, times: int, *, busy: bool = False) -> Copy[GuestKey]:
    """A copy after its list was asked for so many times; it lost nothing meanwhile. A busy loop looks only then."""
    lost: list[object] = []
    copy = Copy(GuestKey, front.api, PAIRINGS, lambda old, new: None if new else lost.append(old))

    async def scenario() -> None:
        copy.start(asyncio.get_running_loop())
        if busy:
            wait_for(lambda: front.asked.count(PATH) >= times)
        await asyncio.to_thread(wait_for, lambda: front.asked.count(PATH) >= times)
        await asyncio.sleep(0.2)

    asyncio.run(scenario())
    assert lost == []
    return copy


STATUS = json.dumps({"kind": "Status", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404})


@pytest.mark.parametrize("said", ["<h1>Not Found</h1>", "404 page not found", STATUS])
def test_what_was_there_stays_whatever_an_error_says(front: Front, said: str) -> None:
    """Neither a proxy's page nor a Status empties a copy that was complete; the right answer comes back some time."""
    front.answers[PATH] = {"items": [item(10)], "metadata": {"resourceVersion": "10"}}
    front.answers[f"{PATH}?watch"] = said
    assert follow(front, 3).objects == {("n", "x"): item(10)}


@pytest.mark.parametrize("busy", [False, True])
def test_what_was_there_stays_though_its_kind_is_said_not_to_be_installed(front: Front, busy: bool) -> None:
    """By an API server that has just begun, say: once there was a list, only another one says that there is nothing."""
    front.answers[PATH] = {"items": [item(10)], "metadata": {"resourceVersion": "10"}}
    front.answers["/apis"] = {"kind": "APIGroupList", "groups": []}
    front.answers[f"{PATH}?watch"] = front.then[PATH] = STATUS
    assert follow(front, 3, busy=busy).objects == {("n", "x"): item(10)}


def test_a_watch_that_ends_at_once_is_begun_again_ever_more_slowly(front: Front) -> None:
    """As behind a proxy that holds no answer open; one that brought something goes on at once."""
    path = f"{PATH}?watch"
    front.answers[PATH] = {"items": [item(10)], "metadata": {"resourceVersion": "10"}}
    front.answers[path] = {"type": "MODIFIED", "object": item(11)}
    front.then[path] = NOTHING
    assert follow(front, 1).objects == {("n", "x"): item(11)}
    assert 2 <= front.asked.count(path) <= 8
    assert front.asked.count(PATH) == 1


def test_only_a_part_of_each_object_is_kept(front: Front) -> None:
    """Of those in the list, and of those that a watch brings."""
    padded = {"spec": {"pad": "x" * 1000}}
    event = {"type": "MODIFIED", "object": item(11) | padded}
    front.answers[PATH] = {"items": [item(10) | padded], "metadata": {"resourceVersion": "10"}}
    front.answers[f"{PATH}?watch"] = event
    front.then[f"{PATH}?watch"] = STATUS
    seen: list[object] = []
    copy = Copy(
        GuestKey, front.api, PAIRINGS, lambda _, new: seen.append(new), part=lambda one: {"metadata": one["metadata"]}
    )

    async def scenario() -> None:
        copy.start(asyncio.get_running_loop())
        await asyncio.to_thread(wait_for, lambda: len(seen) > 1)

    asyncio.run(scenario())
    assert seen[:2] == [item(10), item(11)]


def page(version: int, token: str, *items: dict[str, Any]) -> dict[str, Any]:
    """A page of a list, and by which token the next one is asked for."""
    return {"items": list(items), "metadata": {"resourceVersion": str(version), "continue": token}}


def test_a_list_begins_anew_when_what_was_listed_has_expired(front: Front) -> None:
    """Its version is that of the first page: a watch from there on brings whatever a later page may not have."""
    front.turns[PATH] = [page(10, "a", item(7)), 410, page(11, "b", item(8)), page(12, "", item(9, uid="another"))]
    assert front.api.list_all(PATH) == ([item(8), item(9, uid="another")], "11")
    assert front.tokens == ["", "a", "", "b"]
    front.turns[PATH] = [page(10, "a"), 410, page(10, "a"), 410]
    with pytest.raises(Refused) as found:
        front.api.list_all(PATH)
    assert found.value.status == 410


@pytest.mark.parametrize("most", [client.PAGE_BYTES, 20_000, 1])
def test_a_real_list_in_pages_is_whole(
    api_server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Whatever its objects are large: of those that are too much together fewer are asked for, and at last one."""
    monkeypatch.setattr(client, "PAGE_BYTES", most)
    certificate = api_server.certificate.read_text()
    api = Api(Access(f"https://127.0.0.1:{api_server.port}", lambda: f"Bearer {ADMIN_TOKEN}", certificate))
    path = Resource("v1", "configmaps").path(namespace)
    for at in range(2 * client.PAGE + 1):
        api.create(path, {"metadata": {"name": f"c{at:03}"}, "data": {"pad": "x" * 2000}})
    found = api.list_all(path, named)
    assert [one["metadata"].pop("name") for one in found.items] == [f"c{at:03}" for at in range(2 * client.PAGE + 1)]
    assert {tuple(one["metadata"]) for one in found.items} == {("namespace", "uid", "resourceVersion")}
    assert api.count(path) == len(found.items)
    api.create(path, {"metadata": {"name": "new"}})
    event = next(api.watch(path, resourceVersion=found.version))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "new")


def test_what_is_no_api_server_does_not_say_that_there_is_nothing(front: Front) -> None:
    copy = follow(front, 3)
    assert not copy.synced.is_set()


@pytest.mark.parametrize("said", [{"kind": "Welcome", "items": None}, {"items": []}, [1]])
def test_a_list_that_is_none_is_a_refusal_like_another(front: Front, said: Any) -> None:
    """So an operator that begins goes on asking; any other error would end its beginning in the middle."""
    front.answers[PATH] = said
    with pytest.raises(Refused, match="that is no API server") as found:
        front.api.list_all(PATH)
    assert not found.value.is_about_object


def test_a_refusal_without_a_reason_has_its_words(front: Front) -> None:
    """As an API server passes on what a webhook says: the message alone."""
    words = 'admission webhook "a.b" denied the request: ' + 250 * "x"
    front.answers[PATH] = json.dumps({"kind": "Status", "message": words, "code": 403})
    with pytest.raises(Refused) as found:
        front.api.list_all(PATH)
    assert (found.value.why, found.value.reason) == (words, "")


@pytest.mark.parametrize("status", [302, 307, 401, 500])
def test_an_answer_that_leads_elsewhere_is_a_refusal_too(front: Front, status: int) -> None:
    """It is what a proxy says to those who are to log in; nothing of it is a log, or a pod's metrics."""
    front.answers["/metrics"] = front.answers["/metrics?watch"] = status
    with pytest.raises(Refused) as found:
        front.api.read("/metrics")
    assert found.value.status == status
    with pytest.raises(Refused) as found:
        list(front.api.watch("/metrics"))
    assert found.value.status == status


def test_a_kind_that_is_not_installed_has_no_objects(front: Front) -> None:
    """An API server says so in its list of kinds; to the list of objects it answers as a web server would."""
    front.answers["/apis"] = {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "apps/v1"}]}]}
    copy = follow(front, 2)
    assert (copy.synced.is_set(), copy.objects) == (True, {})


def test_a_real_api_server_says_what_it_has(api_server: Server, tmp_path: Path) -> None:
    """And of what it does not have, that it is not found; only of an object that is a Status."""
    token = tmp_path / "token"
    token.write_text(ADMIN_TOKEN)
    api = Api(Access.by_token(f"https://127.0.0.1:{api_server.port}", authority=api_server.certificate, token=token))
    nobodys = Resource("nobody.example/v1", "things")
    assert api.offers(PAIRINGS)
    assert api.offers(PODS)
    assert not api.offers(ours("memorypuddles"))
    assert not api.offers(nobodys)
    for path, known in ((nobodys.path(), False), (PODS.path("default", "none"), True)):
        with pytest.raises(Refused) as refused:
            api.get(path)
        assert (refused.value.status, refused.value.is_gone) == (404, known)
