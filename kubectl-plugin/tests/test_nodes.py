"""Nodes that lend, beside guests: each command says of them that they are nodes, and none takes them for guests."""

from __future__ import annotations

from typing import Any

from objects import HEAD, NOW, condition, guest, pairing, parsed, pool
from rich.console import Console

from tidepool_api import GuestKey, MemoryGrant
from tidepool_kubectl import figures
from tidepool_kubectl.check import check
from tidepool_kubectl.explain import explain
from tidepool_kubectl.plan import Plan, plan
from tidepool_kubectl.plan_text import summary
from tidepool_kubectl.snapshot import Fleet, Lendings, Snapshot
from tidepool_kubectl.top import rows as top_rows
from tidepool_kubectl.top import table as top_table
from tidepool_kubectl.ui.view import Reading, guest_of, map_of
from tidepool_kubectl.who import rows, table

GIB = 1 << 30
HOME = "tidepool-system"
NODE = GuestKey(HOME, "n1")


def node(*conditions: dict[str, str]) -> dict[str, Any]:
    """A node that lends, but for these conditions."""
    usual = [condition("LenderRunning", "True"), condition("Ready", "True")]
    odd = {one["type"] for one in conditions}
    memory = {"totalBytes": 16 * GIB, "availableBytes": 8 * GIB}
    return {
        **HEAD,
        "kind": "MemoryGuest",
        "metadata": {"name": "n1", "namespace": HOME, "labels": {"room": "a"}},
        "spec": {"provider": "Node", "vm": {"name": "n1", "uid": "u"}, "nodeName": "n1"},
        "status": {
            "addresses": ["10.0.0.1"],
            "kernelRelease": "6.1.0-node",
            "memory": memory,
            "node": {"maxLendBytes": 4 * GIB, "reserveBytes": GIB, "port": 7470},
            "conditions": [*(one for one in usual if one["type"] not in odd), *conditions],
        },
    }


def naming(*conditions: dict[str, str], **nodes: Any) -> dict[str, Any]:
    """A pool that names nodes alone."""
    body = pool(*conditions)
    return body | {"spec": body["spec"] | {"lenders": {"nodes": {"maxLend": "2Gi", **nodes}}}}


def lending() -> dict[str, Any]:
    """The node lends to b."""
    body = pairing()
    body["spec"]["lender"] |= {"guest": "n1", "namespace": HOME}
    body["status"] |= {"lender": {"state": "Connected", "lentBytes": GIB}}
    return body


def printed(shown: Any) -> str:
    console = Console(width=200, record=True)
    console.print(shown, crop=False)
    return console.export_text()


def snapshot(*bodies: dict[str, Any]) -> Snapshot:
    return Snapshot(at=NOW, heartbeats={"n1": NOW}, **parsed(*bodies))


def test_tables_say_that_a_lender_is_a_node() -> None:
    now = snapshot(lending(), guest("b", "short"), node())
    assert f"{HOME}/n1 (node)" in printed(table(rows(now.pairings)))
    assert f"{HOME}/n1 (node)" in printed(top_table(top_rows(now, figures.Figures(), 1)))
    assert "(node)" not in printed(table(rows(snapshot(pairing()).pairings)))


def test_the_map_has_the_node_in_its_own_box() -> None:
    """Also where one may not see it: a pairing tells as much."""
    found = parsed(lending(), guest("b", "short"), node())
    (box,) = map_of(Reading("now", Lendings(found["pairings"], found["guests"])))["nodes"]
    assert [(one["guest"], one["isNode"]) for one in box["guests"]] == [("ns/b", False), (f"{HOME}/n1", True)]
    hidden = parsed(lending(), guest("b", "short"))
    (box,) = map_of(Reading("now", Lendings(hidden["pairings"], hidden["guests"])))["nodes"]
    assert [(one["guest"], one["isNode"], one["isHidden"]) for one in box["guests"]][1] == (f"{HOME}/n1", True, True)
    shown = guest_of(Reading("now", Lendings(found["pairings"], found["guests"])), NODE)
    assert (shown["isNode"], len(shown["lends"]), shown["totalBytes"]) == (True, 1, 16 * GIB)


def test_a_node_is_explained_as_one() -> None:
    """By its own conditions: it has neither guest agent nor module."""
    steps = explain(NODE, snapshot(node(), naming(), lending(), guest("b", "short")))
    said = [one.text for one in steps]
    assert "the agent of node n1 has found tidepool-system/n1 (Node)" in said
    assert {"its node lender answers", "it can lend", "pool pool selects it as lender"} <= set(said)
    assert not [one for one in steps if one.mark == "✗"]
    down = condition("LenderRunning", "False", "NotRunning", "pod l does not run: kubectl logs l")
    *_, last = explain(NODE, snapshot(node(down), naming()))
    assert (last.mark, last.advice) == ("✗", "NotRunning: pod l does not run: kubectl logs l")
    *_, last = explain(NODE, snapshot(node(), naming(selector={"matchLabels": {"room": "b"}})))
    assert last.advice == "pool pool lends from nodes room=b to memory=short"
    *_, last = explain(NODE, snapshot(node(), pool()))
    assert last.text == "no pool selects it (its labels: room=a)"


def test_a_check_counts_nodes_apart() -> None:
    """Its kernel needs no module, and a node that cannot lend is called one."""
    said = [one.text for one in check(snapshot(node(), guest("b", "short")), figures.Figures())]
    assert {"1 of 1 guests can lend or borrow", "1 of 1 nodes can lend"} <= set(said)
    assert not [one for one in said if "6.1.0-node" in one]
    down = condition("Ready", "False", "NotRunning", "pod l does not run")
    (bad,) = [
        one for one in check(snapshot(node(down), guest("b", "short")), figures.Figures()) if "node n1" in one.text
    ]
    assert (bad.text, bad.advice) == ("node n1 cannot lend", "NotRunning: pod l does not run")


def test_a_plan_counts_nodes_that_are_granted() -> None:
    """As much as the pool and the chart let one lend, beside what it lends already."""
    found = parsed(naming(), node(), guest("b", "short"), lending())
    to = {"spec": {"to": [{"namespace": "ns"}]}, "metadata": {"name": "g", "namespace": HOME}}
    fleet = Fleet(found["pools"], found["pairings"], found["guests"], (MemoryGrant.parse(to),), home=HOME)
    lenders = plan(found["pools"][0], fleet, {}).lenders
    assert (lenders.guests, lenders.promised_bytes, lenders.free_bytes) == (1, 512 << 20, 1536 << 20)
    alone = Fleet(found["pools"], (), found["guests"], home=HOME, hidden=(HOME,))
    made = plan(found["pools"][0], alone, {})
    assert (made.lenders.guests, made.hidden) == (0, (HOME,))
    granted = Fleet(found["pools"], (), found["guests"], (MemoryGrant.parse(to),), home=HOME)
    assert plan(found["pools"][0], granted, {}).lenders.free_bytes == 2 * GIB


def test_a_node_at_another_port_has_nothing_for_a_pool() -> None:
    """As with the operator, which says PortDiffers of it."""
    here, elsewhere = (crowded(0, 1, port=port).lenders for port in (7470, 7471))
    assert (here.guests, here.reluctant, here.free_bytes) == (1, 0, 2 * GIB)
    assert (elsewhere.guests, elsewhere.reluctant, elsewhere.free_bytes) == (1, 1, 0)


def crowded(borrowing: int, idle: int, *more: dict[str, Any], **said: int) -> Plan:
    """The plan of a pool, 64Mi each, of which so many borrow from the node and so many would like to."""
    body, one = naming(), node()
    body["spec"]["borrowers"] |= {"size": "64Mi"}
    one["status"]["node"] |= said
    pairings = []
    for number in range(borrowing):
        pairings.append(lending())
        pairings[-1]["metadata"] |= {"name": f"pool.b{number}.n1", "uid": f"{number}"}
        pairings[-1]["spec"] |= {"borrower": pairings[-1]["spec"]["borrower"] | {"guest": f"b{number}"}}
        pairings[-1]["spec"] |= {"size": "16Mi"}
    guests = [guest(f"b{number}", "short") for number in range(borrowing + idle)]
    found = parsed(body, one, *pairings, *guests, *more)
    to = {"spec": {"to": [{"namespace": "ns"}]}, "metadata": {"name": "g", "namespace": HOME}}
    fleet = Fleet(found["pools"], found["pairings"], found["guests"], (MemoryGrant.parse(to),), home=HOME)
    return plan(found["pools"][0], fleet, {}, [16 << 20])


def test_a_plan_does_not_promise_a_node_to_more_than_it_takes() -> None:
    """However much it has: it is said how many find no place."""
    assert "at 16Mi each: 1.0Gi for 64 guests, which lenders have" in summary(crowded(63, 1))
    away = "but not for {} of them: a node lends to 64 borrowers at most"
    assert f"at 16Mi each: 1.0Gi for 66 guests, {away.format('2 guests')}" in summary(crowded(63, 3))
    assert f"at 16Mi each: 1.0Gi for 65 guests, {away.format('1 guest')}" in summary(crowded(0, 65))


def test_borrowers_that_one_may_not_list_have_their_places_too() -> None:
    """The node says how many there are; one that is full, and lends nothing to this pool, has nothing for it."""
    assert crowded(0, 3, borrowers=62).lenders.turned_away(3, 1 << 20) == 1
    full = crowded(0, 1, borrowers=64).lenders
    assert (full.guests, full.reluctant, full.free_bytes) == (1, 1, 0)
    mine = crowded(1, 1, borrowers=64).lenders
    assert (mine.reluctant, mine.seats) == (0, 0)
    assert mine.free_bytes > 0
