"""Who holds memory for whom: both directions, other namespaces, and what one may not see."""

from __future__ import annotations

import io
from typing import Any

from objects import HEAD, condition, guest, pairing
from rich.console import Console

from tidepool_api import GuestKey, MemoryGrant, MemoryGuest, MemoryPairing, names
from tidepool_api.kube import Access, Api, Listing, Refused, ours
from tidepool_kubectl import figures, verdict
from tidepool_kubectl.cluster import Cluster
from tidepool_kubectl.snapshot import Lendings
from tidepool_kubectl.who import remarks, rows, summary, table

MIB = 1 << 20


def lending(name: str, lender: str, borrower: str, *, lent: int, abroad: str = "", node: str = "n1") -> MemoryPairing:
    """`lender` of the namespace `abroad`, if that is given, holds so many MiB for `borrower`."""
    body = pairing()
    body["metadata"]["name"] = name
    body["spec"]["lender"] |= {"guest": lender, "nodeName": node} | ({"namespace": abroad} if abroad else {})
    body["spec"]["borrower"]["guest"] = borrower
    body["status"] |= {"lender": {"state": "Connected", "lentBytes": lent * MIB}}
    body["status"]["borrower"] |= {"usedBytes": (lent - 1) * MIB}
    return MemoryPairing.parse(body)


EACH = (
    lending("1", "l", "b", lent=100),
    lending("2", "l", "c", lent=300, abroad="far", node="n2"),
    lending("3", "l", "c", lent=200),
)


def test_most_memory_comes_first_and_both_ends_have_their_places() -> None:
    found = rows(EACH)
    assert [(row.lender, row.borrower, row.lent_bytes) for row in found] == [
        (("far", "l"), ("ns", "c"), 300 * MIB),
        (("ns", "l"), ("ns", "c"), 200 * MIB),
        (("ns", "l"), ("ns", "b"), 100 * MIB),
    ]
    console = Console(width=80, record=True)
    console.print(table(found), crop=False)
    first = console.export_text().splitlines()[1].split()
    assert first == ["far/l", "n2", "ns/c", "n1", "pool", "Connected", "512Mi", "300Mi", "299Mi"]


def test_of_one_guest_it_is_both_directions_and_not_its_namesakes() -> None:
    said = {
        key: summary(key, rows(EACH, key)) for key in (GuestKey("ns", "l"), GuestKey("ns", "c"), GuestKey("far", "l"))
    }
    assert [row.borrower.name for row in rows(EACH, GuestKey("ns", "l"))] == ["c", "b"]
    assert list(said.values()) == [
        "ns/l lends 300Mi to 2 guests, borrows nothing",
        "ns/c lends nothing, borrows 498Mi from 2 guests",
        "far/l lends 300Mi to 1 guest, borrows nothing",
    ]


def grant() -> MemoryGrant:
    use = {"namespace": "poor", "pool": "p", "pairings": 2, "sizeBytes": 512 * MIB, "lentBytes": 300 * MIB}
    body: dict[str, Any] = {
        **HEAD,
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {"to": [{"namespace": "poor"}]},
    }
    return MemoryGrant.parse(body | {"status": {"uses": [use]}})


def test_what_one_may_not_list_is_known_from_the_grant() -> None:
    assert list(remarks(Lendings(grants=(grant(),)))) == []
    assert list(remarks(Lendings(grants=(grant(),), hidden=("poor",)))) == [
        "ns lends 300Mi of 512Mi in 2 pairings to pool poor/p, by grant g",
        "not shown: pairings of poor, which you may not list",
    ]


def test_memory_without_a_pairing_is_not_left_out() -> None:
    said = "it holds 12Mi for borrowers that no MemoryPairing names: tidepool/borrowers/ has u1"
    stray = MemoryGuest.parse(guest("l", "", condition("LendingPaired", "False", "WithoutPairing", said)))
    sound = MemoryGuest.parse(guest("m", "", condition("LendingPaired", "True", "Paired")))
    assert list(remarks(Lendings(guests=(stray, sound)))) == [f"ns/l: {said}"]
    assert list(remarks(Lendings(guests=(stray, sound)), ("ns", "m"))) == []


def test_a_guest_of_which_its_node_has_memory_is_named() -> None:
    """Its balloon holds it for whoever borrows from the node; one that is empty is not worth a line."""
    each = []
    for name, held in (("full", 2048), ("empty", 0)):
        body = guest(name)
        body["status"]["balloon"] = {"fullBytes": 4096 * MIB, "gatheredBytes": held * MIB}
        each.append(MemoryGuest.parse(body))
    assert list(remarks(Lendings(guests=tuple(each)))) == ["ns/full: its balloon holds 2.0Gi for node n1"]


class Asked(Api):
    """An API server that notes for what it is asked; whoever asks may list pairings of single namespaces only."""

    def __init__(self, grant: MemoryGrant) -> None:
        super().__init__(Access("https://127.0.0.1:1"))
        self._grant, self.paths = grant, list[str]()

    def list_all(self, path: str, **_: str) -> Listing:
        self.paths.append(path)
        if path == ours(names.PAIRINGS).path():
            raise Refused(403, f"GET {path}", "Forbidden")
        return Listing([self._grant.to_dict()] if path.endswith("/memorygrants") else [], "1")


class OneAway(Asked):
    """One with two agents, of which one does not answer."""

    def list_all(self, path: str, **_: str) -> Listing:
        self.paths.append(path)
        labels = {"app.kubernetes.io/component": "agent"}
        return Listing([{"metadata": {"name": name, "labels": labels}} for name in ("away", "here")], "1")

    def read(self, path: str, **_: str) -> bytes:
        if "/away:" in path:
            raise Refused(0, f"GET {path}", "no answer in 15 s")
        return b"here 1\n"


def test_an_agent_that_does_not_answer_hides_no_other() -> None:
    """Its node may just be down, which is when somebody looks."""
    cluster = Cluster(OneAway(MemoryGrant.parse(grant().to_dict())), "ns", everywhere=False, system="tidepool-system")
    assert cluster.figures() == figures.parse("here 1\n")


def test_a_grant_for_what_is_no_namespace_leads_nowhere_else() -> None:
    """Whoever writes grants does not say what is read with the rights of whoever looks at them."""
    spec = {"to": [{"namespace": "../../../../api/v1/namespaces/kube-system/secrets?"}]}
    api = Asked(MemoryGrant.parse(grant().to_dict() | {"spec": spec}))
    Cluster(api, "ns", everywhere=False, system="tidepool-system").lendings()
    assert "/namespaces/..%2F..%2F..%2F..%2Fapi%2Fv1%2Fnamespaces%2Fkube-system%2Fsecrets%3F/" in api.paths[-1]


def test_what_others_have_written_is_no_command_to_the_terminal() -> None:
    shown = io.StringIO()
    verdict.show(Console(file=shown), [verdict.bad("\x1b[2Jgone", "\x9bmore")])
    assert shown.getvalue() == "✗ �[2Jgone\n  → �more\n"
