"""What a cluster says that cannot be understood: one broken thing hides no other, and is named."""

from __future__ import annotations

from typing import Any

import pytest
from objects import guest

from tidepool_api import GuestKey, names
from tidepool_api.kube import Access, Api, Listing
from tidepool_kubectl import figures
from tidepool_kubectl.cluster import Cluster, Unusable

KINDS = {names.GUESTS: "MemoryGuest", "virtualmachineinstances": "VirtualMachineInstance"}
SAID = 'tidepool_guest_get_hits_total{namespace="ns",pairing="p"} 4\n'


class Says(Api):
    """An API server with these objects, and agents of which each says something."""

    def __init__(self, *bodies: dict[str, Any], **agents: bytes) -> None:
        super().__init__(Access("https://127.0.0.1:1"))
        self._bodies, self._agents = list(bodies), agents

    def list_all(self, path: str, **_: str) -> Listing:
        labels = {"app.kubernetes.io/component": "agent"}
        pods = [{"metadata": {"name": name, "labels": labels}} for name in self._agents]
        kind = path.rpartition("/")[2]
        ours = [one for one in self._bodies if one["kind"] == KINDS.get(kind)]
        return Listing(pods if kind == "pods" else ours, "1")

    def read(self, path: str, **_: str) -> bytes:
        return next(said for name, said in self._agents.items() if f"/{name}:" in path)


def cluster(api: Api) -> Cluster:
    return Cluster(api, "ns", everywhere=False, system="tidepool-system")


def test_an_object_that_is_not_understood_is_named() -> None:
    """As of another version's CRDs: the object, the field and what it is, and no traceback."""
    body = guest("b")
    body["spec"]["provider"] = "Xen"
    with pytest.raises(Unusable) as said:
        cluster(Says(body)).lendings()
    begins = "cannot read memoryguests ns/b: spec.provider is 'Xen': Input should be 'KubeVirt'"
    assert str(said.value).startswith(begins)
    assert str(said.value).endswith("use the plugin of the version that is installed")


def test_a_machine_that_has_ended_is_not_waited_for() -> None:
    """No agent lists it, and another one may have its name."""
    phases = {"new": None, "there": "Running", "killed": "Failed", "over": "Succeeded"}
    bodies = [
        {
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": "ns"},
            "status": {"phase": phase, "nodeName": "n1"} if phase else {},
        }
        for name, phase in phases.items()
    ]
    found = cluster(Says(*bodies)).snapshot().machines
    assert found == {GuestKey("ns", "new"): "", GuestKey("ns", "there"): "n1"}


@pytest.mark.parametrize("odd", [b"\xff\xfe", b"<html>", b'a{b="c} 1\n', SAID.replace("4", "four").encode()])
def test_an_agent_that_says_something_else_hides_no_other(odd: bytes) -> None:
    """Such as a proxy's page in its place."""
    found = cluster(Says(odd=odd, sound=SAID.encode()))
    assert found.figures() == figures.parse(SAID)
    assert found.fleet().unread == ("odd: what it says is no metrics",)


def test_a_figure_of_no_namespace_is_nobodys() -> None:
    assert figures.parse('tidepool_guest_get_hits_total{pairing="p"} 4\n') == figures.Figures()
