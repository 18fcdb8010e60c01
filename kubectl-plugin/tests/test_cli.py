"""The command itself, against a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from objects import PAIRING, condition, guest, of_class, pairing, pool

from tidepool_api import names
from tidepool_api_testing.server import ADMIN_TOKEN
from tidepool_kubectl.completion import candidates

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

SYSTEM = "tidepool-system"
COUNTS = {"currentNumberScheduled": 1, "numberMisscheduled": 0}


def run(
    server: Server, *arguments: str, token: str = ADMIN_TOKEN, module: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command as somebody runs it; rich takes the width of the terminal from COLUMNS."""
    variables = {"KUBECONFIG": str(server.kubeconfig(token)), "COLUMNS": "200"}
    command = [sys.executable, "-m", f"tidepool_kubectl{module}", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=60)


def workload(kind: str, component: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "tidepool", "app.kubernetes.io/component": component}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    metadata = {"name": f"tidepool-{component}", "namespace": SYSTEM, "labels": labels}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def may_look(server: Server, user: str, namespace: str) -> None:
    """Gives somebody the right to see Tidepool's objects of one namespace, if he has not got it."""
    rule = {"apiGroups": [names.GROUP], "resources": ["*"], "verbs": ["get", "list"]}
    api = "rbac.authorization.k8s.io"
    metadata = {"name": "look", "namespace": namespace}
    server.apply(
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "look"},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        },
    )


@pytest.fixture(scope="session")
def cluster(api_server: Server) -> Server:
    """A lender and a borrower, connected, and another guest that no pool wants."""
    for namespace in (SYSTEM, "ns"):
        api_server.kubectl("create", "namespace", namespace)
    blocked = condition("Ready", "False", "CommandsBlocked", "allow guest-exec")
    for body in (pool(), pairing(), guest("b", "short"), guest("l", "spare"), guest("x", "", blocked)):
        api_server.create(body)
        api_server.apply_status(body)
    for body, status in (
        (workload("Deployment", "operator"), {"replicas": 1, "readyReplicas": 1}),
        (workload("DaemonSet", "agent"), {"desiredNumberScheduled": 1, "numberReady": 1} | COUNTS),
    ):
        api_server.create(body)
        api_server.apply_status(body | {"status": status})
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for node, time in (("n1", now), ("odd", "0000-01-01T00:00:00.000000Z")):  # an agent writes its own as it likes
        metadata = {"name": names.agent_lease(node), "namespace": SYSTEM}
        api_server.create(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {"renewTime": time}}
        )
    return api_server


def test_explain_goes_to_the_end_for_a_borrower(cluster: Server) -> None:
    answer = run(cluster, "explain", "b", "-n", "ns")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1].startswith(f"✓ pairing {PAIRING}, in which it borrows from l, is Connected")


def test_explain_fails_where_something_is_in_the_way(cluster: Server) -> None:
    answer = run(cluster, "explain", "x", "-n", "ns")
    assert answer.returncode == 1
    assert answer.stdout.splitlines()[-2:] == [
        "✗ not so: it can lend or borrow",
        "  → CommandsBlocked: allow guest-exec",
    ]


def test_check_looks_at_everything(cluster: Server) -> None:
    answer = run(cluster, "check")
    assert answer.returncode == 1, answer.stderr
    for line in (
        "✓ operator: 1 of 1 ready (tidepool-operator)",
        "✓ agent: 1 of 1 ready (tidepool-agent)",
        "✓ heartbeats of the agents on all nodes that have guests: 1",
        "✗ guest ns/x cannot lend or borrow",
        "✓ pool ns/pool: Ready",
    ):
        assert line in answer.stdout.splitlines()


def test_top_shows_a_row_for_each_pairing(cluster: Server) -> None:
    header, row = run(cluster, "top", "--once", "-A").stdout.splitlines()
    assert header.split()[:5] == ["NAMESPACE", "POOL", "BORROWER", "LENDER", "STATE"]
    assert row.split()[:6] == ["ns", "pool", "b", "l", "Connected", "512Mi"]


def test_top_ends_where_nobody_looks_at_a_terminal(cluster: Server) -> None:
    """As in a pipe: a live table would show nothing there, and never end."""
    said = run(cluster, "top", "-A", "--interval", "0.5").stdout
    assert [line.split()[0] for line in said.splitlines()] == ["NAMESPACE", "ns"]


def test_top_says_that_there_is_nothing(cluster: Server) -> None:
    """A header alone might as well mean that something is wrong."""
    assert run(cluster, "top", "-n", "elsewhere").stdout.splitlines()[1:] == ["nobody lends to anybody"]


def test_top_shows_what_programs_keep_below_the_pairings(cluster: Server) -> None:
    """In a namespace with a guest whose programs have memory."""
    body = guest("a")
    body["metadata"]["namespace"] = "apps"
    body["status"]["applications"] = {"sizeBytes": 1 << 30, "usedBytes": 64 << 20, "values": 7, "hits": 3}
    cluster.kubectl("create", "namespace", "apps")
    cluster.create(body)
    cluster.apply_status(body)
    _, nobody, header, row = run(cluster, "top", "--once", "-n", "apps").stdout.splitlines()
    assert nobody == "nobody lends to anybody"
    assert header.split()[:5] == ["NAMESPACE", "GUEST", "POOL", "VALUES", "USED"]
    assert row.split() == ["apps", "a", "(all)", "7", "64Mi", "1.0Gi", "100.0%", "0.0%", *"-----"]
    cluster.kubectl("delete", "namespace", "apps", "--wait=false")


def test_somebody_with_one_namespace_gets_what_he_may_see(cluster: Server) -> None:
    """Without rights in Tidepool's own namespace, and without any elsewhere."""
    may_look(cluster, "tenant", "ns")
    answer = run(cluster, "explain", "b", "-n", "ns", token="token-of-a-tenant")
    assert answer.returncode == 0, answer.stderr
    assert "heard" not in answer.stdout
    elsewhere = run(cluster, "top", "--once", "-A", token="token-of-a-tenant")
    assert elsewhere.returncode == 2
    assert (
        elsewhere.stderr.strip()
        == "tidepool: you may not list memorypools.tidepool.dev there; choose a namespace with -n"
    )


def test_who_shows_both_directions(cluster: Server) -> None:
    answer = run(cluster, "who", "l", "-n", "ns")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[0] == "ns/l lends 0Mi to 1 guest, borrows nothing"
    header, row = run(cluster, "who", "-A").stdout.splitlines()
    assert header.split() == ["LENDER", "NODE", "BORROWER", "NODE", "POOL", "STATE", "SIZE", "LENT", "USED"]
    assert row.split()[:6] == ["ns/l", "n1", "ns/b", "n1", "pool", "Connected"]
    nobody = run(cluster, "who", "nobody", "-n", "ns")
    assert (nobody.returncode, nobody.stdout) == (1, "no MemoryGuest ns/nobody\n")


def test_who_shows_across_namespaces_what_its_user_may_see(cluster: Server) -> None:
    """The owner of a lender sees who borrows elsewhere, where he may look; where not, that there is something."""
    body = pairing()
    body["metadata"] = {"name": "abroad", "namespace": "poor"}
    body["spec"]["lender"]["namespace"] = "rich"
    cluster.kubectl("create", "namespace", "rich")
    cluster.kubectl("create", "namespace", "poor")
    lender = guest("l", "spare")
    lender["metadata"]["namespace"] = "rich"
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryGrant"}
    grant = {**head, "metadata": {"name": "g", "namespace": "rich"}, "spec": {"to": [{"namespace": "poor"}]}}
    use = {"namespace": "poor", "pool": "pool", "pairings": 1, "sizeBytes": 512 << 20, "lentBytes": 100 << 20}
    cluster.create(body, lender, grant)
    cluster.apply_status({**grant, "status": {"pairings": 1, "lent": "100Mi", "uses": [use]}})
    cluster.apply_status(body)
    may_look(cluster, "tenant", "rich")
    seen = run(cluster, "who", "l", "-n", "rich", token="token-of-a-tenant").stdout.splitlines()
    assert seen[-2:] == [
        "rich lends 100Mi of 512Mi in 1 pairings to pool poor/pool, by grant g",
        "not shown: pairings of poor, which you may not list",
    ]
    may_look(cluster, "tenant", "poor")
    assert run(cluster, "who", "l", "-n", "rich", token="token-of-a-tenant").stdout.splitlines()[0] == (
        "rich/l lends 0Mi to 1 guest, borrows nothing"
    )
    for namespace in ("rich", "poor"):
        cluster.kubectl("delete", "-n", namespace, "--all", "memorypairings,memoryguests,memorygrants")


def test_plan_shows_what_memory_is_worth(cluster: Server) -> None:
    """Of a guest that has just begun to borrow nothing is known yet, and that is said."""
    answer = run(cluster, "plan", "pool", "-n", "ns", "--size", "1Gi", "--seconds", "0")
    assert answer.returncode == 0, answer.stderr
    title, header, row, *rest = answer.stdout.splitlines()
    assert title == "pool ns/pool: 1 guest borrows, 0 could"
    assert header.split()[-4:] == ["AT", "1Gi", "/GiB", "INSTEAD"]
    assert row.split() == ["b", "-", "-", "512Mi", "-", "-", "-", "-", "-", "-"]
    assert "b: how much it reads is not known yet" in rest
    nobody = run(cluster, "plan", "none", "-n", "ns", "--seconds", "0")
    assert (nobody.returncode, nobody.stdout) == (1, "no MemoryPool ns/none\n")
    wrong = run(cluster, "plan", "--size", "five")
    assert wrong.returncode == 2
    assert "'five' is not an amount of memory" in wrong.stderr


def test_plan_counts_lenders_of_other_namespaces(cluster: Server) -> None:
    """As far as a grant allows and its user may look; where he may not, that is said."""
    wide = pool()
    wide["metadata"]["namespace"] = "wide"
    wide["spec"]["lenders"]["namespaces"] = ["donor"]
    lender = guest("l", "spare")
    lender["metadata"]["namespace"] = "donor"
    lender["status"]["memory"] = {"totalBytes": 4 << 30, "availableBytes": 2 << 30}
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryGrant"}
    grant = {**head, "metadata": {"name": "g", "namespace": "donor"}, "spec": {"to": [{"namespace": "wide"}]}}
    for namespace in ("wide", "donor"):
        cluster.kubectl("create", "namespace", namespace)
    cluster.create(wide, lender, grant)
    cluster.apply_status(lender)
    may_look(cluster, "tenant", "wide")
    for token, said in (
        (ADMIN_TOKEN, ["lenders: 1 guest, 0Mi promised to this pool, 1.0Gi to spare beyond"]),
        (
            "token-of-a-tenant",
            [
                "lenders: 0 guests, 0Mi promised to this pool, 0Mi to spare beyond",
                "not among the lenders: those of donor, which you may not list",
            ],
        ),
    ):
        seen = run(cluster, "plan", "-n", "wide", "--seconds", "0", token=token)
        assert seen.returncode == 0, seen.stderr
        assert seen.stdout.splitlines()[1 : 1 + len(said)] == said
    for namespace in ("wide", "donor"):
        cluster.kubectl("delete", "-n", namespace, "--all", "memorypools,memoryguests,memorygrants")


def test_what_a_class_gives_is_seen_without_a_right_to_classes(cluster: Server) -> None:
    """It is in the status of the pool; the class itself is the cluster's."""
    cluster.kubectl("create", "namespace", "classed")
    classed, lender = of_class(pool(), lenders={"maxLend": "512Mi"}), guest("l", "spare")
    lender["status"]["memory"] = {"totalBytes": 4 << 30, "availableBytes": 2 << 30}
    for one in (classed, lender):
        one["metadata"] = one["metadata"] | {"namespace": "classed"}
        cluster.create(one)
        cluster.apply_status(one)
    may_look(cluster, "tenant", "classed")
    given = "MemoryPoolClass gold gives lenders.maxLend: 512Mi"
    seen = run(cluster, "plan", "-n", "classed", "--seconds", "0", token="token-of-a-tenant")
    assert seen.returncode == 0, seen.stderr
    lenders = "lenders: 1 guest, 0Mi promised to this pool, 512Mi to spare beyond"
    assert seen.stdout.splitlines()[1:3] == [given, lenders]
    told = run(cluster, "explain", "l", "-n", "classed", token="token-of-a-tenant")
    assert f"what pool pool leaves out: {given}" in told.stdout
    cluster.kubectl("delete", "-n", "classed", "--all", "memorypools,memoryguests")


def test_collect_makes_an_archive_of_what_one_may_read(cluster: Server, tmp_path: Path) -> None:
    """A Secret that lies beside it is not in it; what is there already is not written over."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": SYSTEM}}
    cluster.create({**secret, "stringData": {"password": "hunter2"}})
    path = tmp_path / "bug.tar.gz"
    answer = run(cluster, "collect", "-o", str(path))
    assert answer.returncode == 0, answer.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        files = {one.name.partition("/")[2]: archive.extractfile(one) for one in archive}
        texts = {name: one.read().decode() for name, one in files.items() if one}
    assert {"index.txt", "version.json", "objects/memorypairings.json", "system/daemonsets.json"} <= set(texts)
    assert "objects/memorypoolclasses.json" in texts
    assert PAIRING in texts["objects/memorypairings.json"]
    assert "hunter2" not in "".join(texts.values())
    assert run(cluster, "collect", "-o", str(path)).returncode == 2
    mine = run(cluster, "collect", "-n", "ns", "-o", str(tmp_path / "mine"), token="token-of-a-tenant")
    assert mine.returncode == 0
    assert f"not read: /api/v1/namespaces/{SYSTEM}/pods: Forbidden" in mine.stdout.splitlines()


def test_completion_knows_commands_guests_and_pools(cluster: Server) -> None:
    answer = run(cluster, "explain", "-n", "ns", "", module=".completion")
    assert answer.stdout.splitlines() == ["b", "l", "x", ":4"]
    assert candidates(["e"], lambda *_: []) == ["explain"]
    assert candidates(["p"], lambda *_: []) == ["plan"]
    assert candidates(["plan", "p"], lambda command, _: ["pool"] if command == "plan" else ["guest"]) == ["pool"]
    assert candidates(["plan", "--size", ""], lambda *_: ["pool"]) == []
    assert run(cluster, "plan", "-n", "ns", "", module=".completion").stdout.splitlines() == ["pool", ":4"]
    assert candidates(["explain", "b"], lambda *_: ["a", "b1", "b2"]) == ["b1", "b2"]
    assert candidates(["who", "b"], lambda *_: ["a", "b1"]) == ["b1"]
    assert candidates(["top", ""], lambda *_: ["a"]) == []


def test_a_cluster_that_is_not_there_is_said_so(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No traceback, and an exit code of its own."""
    broken = tmp_path_factory.mktemp("kube") / "config"
    broken.write_text(cluster.kubeconfig().read_text().replace(f":{cluster.port}", ":1"))
    variables = os.environ | {"KUBECONFIG": str(broken)}
    command = [sys.executable, "-m", "tidepool_kubectl", "explain", "b"]
    answer = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("tidepool: the API server does not answer")
