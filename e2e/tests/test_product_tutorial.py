"""The tutorial, followed to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from product import BORROWER, GUESTS, LENDER, OTHER, POOL, Product

import docs
from demo import lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The lab's guests are smaller than those for whom it is written, and two of them are short of memory.
FITTING = {"reserve: 512Mi": "reserve: 192Mi", "size: 1Gi": "size: 128Mi"}


@pytest.fixture
def machines() -> Iterator[None]:
    """A VirtualMachine of each guest, which the lab does not have; nobody here starts instances of them."""
    spec = {"runStrategy": "Manual", "template": {"spec": {"domain": {"devices": {}}}}}
    about = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": spec}
    found = [about | {"metadata": {"name": name, "namespace": "default"}} for name in (BORROWER, LENDER)]
    lab.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    yield
    lab.kubectl("delete", "vm", BORROWER, LENDER)


@pytest.mark.usefixtures("plugin", "machines")
def test_a_first_pool(product: Product, tmp_path: Path) -> None:
    """Its commands in their order, with the guests and the namespace of the lab."""
    (pool,) = docs.examples(docs.TUTORIAL)
    for written, fitting in FITTING.items():
        assert written in pool
        pool = pool.replace(written, fitting)
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(docs.filled_in(pool))
    for line in docs.commands("tutorial"):
        if line.startswith("kubectl delete memorypool"):
            assert product.phase("memorypool", POOL) == "Ready"
            assert [product.loaded(guest) for guest in (BORROWER, OTHER, LENDER)] == [True, True, True]
        docs.run(docs.filled_in(line).replace("pool.yaml", str(manifest)))
    product.assert_nothing_left(*GUESTS)
    assert lab.get("memorypool", POOL) is None
