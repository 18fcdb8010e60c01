"""What an operator takes of memory when its users make their objects as large as they can; `-s` shows the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cast import wait_for
from world import pool

from tidepool_api import names, parse_quantity
from tidepool_api.kube import Access, Api, ours
from tidepool_api_testing.chart import rendered
from tidepool_api_testing.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from cast import OperatorProcess

    from tidepool_api_testing.server import Server

MIB = 1 << 20
PADDED = 300
POOLS = ours(names.POOLS)


def limit() -> int:
    """The memory that the chart lets an operator have."""
    (one,) = (one for one in rendered("operator") if one["kind"] == "Deployment")
    (container,) = one["spec"]["template"]["spec"]["containers"]
    return parse_quantity(container["resources"]["limits"]["memory"])


def test_it_keeps_nothing_of_what_its_users_pad_pools_with(
    cluster: Server, own_operator: OperatorProcess, namespace: str
) -> None:
    """Nor has it all of them at once while it starts: it would be killed each time that it does."""
    certificate = cluster.certificate.read_text()
    api = Api(Access(f"https://127.0.0.1:{cluster.port}", lambda: f"Bearer {ADMIN_TOKEN}", certificate))

    def create(name: str) -> None:
        made = pool(name).to_dict()
        made["metadata"] = {"name": name, "annotations": {"pad": "x" * 250_000}}
        api.create(POOLS.path(namespace), made)

    for at in range(PADDED):
        create(f"p{at}")
    with own_operator:
        create("last")  # of which it hears when it has seen all others twice: by its own list, and by that of its watch
        wait_for("the last pool is seen", lambda: cluster.get("tpool", "last", "-n", namespace).get("status"))
        took = own_operator.memory()
    print(f"an operator that starts with {PADDED} padded pools: {took / MIB:.1f} MiB")
    assert took < limit() / 2
