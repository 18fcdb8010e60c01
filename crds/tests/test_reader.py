"""What tests read over a connection of their own is what kubectl would have given them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidepool_api_testing.server import Refused, Server

QUESTIONS = [
    ("cm", "one"),
    ("configmaps",),
    ("ns",),
    ("node", "-A"),
    ("tpool", "-A"),
    ("crd", "memorypools.tidepool.dev"),
]


def sorted_items(found: Any) -> Any:
    items = found.get("items", [found])
    return sorted(items, key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))


def test_it_reads_as_kubectl_does(api_server: Server, namespace: str) -> None:
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": namespace}}
    api_server.create({**one, "data": {"a": "b"}})
    for words in QUESTIONS:
        arguments = ("-n", namespace, *words)
        expected = json.loads(api_server.kubectl("get", "-o", "json", *arguments))
        assert sorted_items(api_server.get(*arguments)) == sorted_items(expected), words


@pytest.mark.parametrize("words", [("cm", "nothing"), ("nokinds",)])
def test_it_says_what_is_not_there(api_server: Server, namespace: str, words: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as said:
        api_server.get("-n", namespace, *words)
    with pytest.raises(Refused) as kubectl_said:
        api_server.kubectl("get", "-n", namespace, *words)
    assert words[-1] in str(said.value)
    assert ("(NotFound)" in str(said.value)) == ("(NotFound)" in str(kubectl_said.value))
