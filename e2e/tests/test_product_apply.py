"""The main job: a pool is applied, pages come back from the lender, the pool is deleted and nothing is left."""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from product import BORROWER, GUESTS, LENDER, MIB, ONE_TO_ONE, OTHER, POOL, Object, Product, until

from demo import lab
from tidepool_lab import host, images

FILE = "/mnt/file"
FILE_MIB = 240
PAGES_PER_MIB = 256
KEPT = 0.9  # of what is lent: the guest goes on, so that single pages come and go
SYS_PTRACE, DAC_OVERRIDE = 1 << 19, 1 << 1  # as /proc/PID/status shows them


def test_guests_are_found_before_any_pool(product: Product) -> None:
    """Every virtual machine is a MemoryGuest, ready to take part, with nothing loaded into it."""
    for guest in GUESTS:
        product.wait_condition("memoryguest", guest, "Ready", "True")
        status = lab.get("memoryguest", guest)["status"]
        assert status["kernelRelease"] == lab.guest(guest, "uname -r").strip()
        assert status["role"] == "None"
        assert status["addresses"]
        assert "moduleVersion" not in status
    product.assert_nothing_left()


@pytest.mark.parametrize(
    ("component", "user", "capabilities"),
    [("operator", images.USER, 0), ("agent", images.QEMU_USER, SYS_PTRACE | DAC_OVERRIDE)],
)
@pytest.mark.usefixtures("product")
def test_nobody_is_root(component: str, user: int, capabilities: int) -> None:
    """As the kernel has it: an ordinary user, two capabilities or none and no way to more, and a read-only root."""
    status, root = _process_of(component)
    assert status["Uid"].split() == status["Gid"].split() == [str(user)] * 4
    held = {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")}
    assert held == {**dict.fromkeys(("CapEff", "CapPrm", "CapBnd"), capabilities), "CapInh": 0, "CapAmb": 0}
    assert status["NoNewPrivs"] == "1"
    assert "ro" in root


def _process_of(component: str) -> tuple[dict[str, str], list[str]]:
    """/proc/PID/status of the one process of its pod that is not the sandbox's, and how its root is mounted."""
    (pod,) = lab.items("pods", "-n", lab.SYSTEM, "-l", f"app.kubernetes.io/component={component}")
    (process,) = (
        folder
        for folder in Path("/proc").glob("[0-9]*")
        if pod["metadata"]["uid"] in _text(folder / "cgroup") and _text(folder / "comm") != "pause\n"
    )
    status = dict(re.findall(r"^(\w+):\s*(.*)$", _text(process / "status"), re.MULTILINE))
    mounts = [line.split() for line in _text(process / "mountinfo").splitlines()]
    (options,) = (fields[5] for fields in mounts if fields[4] == "/")
    return status, options.split(",")


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""


def test_pages_come_back_from_the_lender(product: Product) -> None:
    """Apply, read, look, delete: the whole story, with every page verified."""
    available = _available(LENDER)
    product.apply_ready(ONE_TO_ONE)
    assert [product.loaded(guest) for guest in (BORROWER, LENDER, OTHER)] == [True, True, False]
    product.assert_pages_come_back(FILE, FILE_MIB)
    _assert_shown()
    _assert_exported(product)
    product.assert_sound()
    product.delete()
    product.assert_nothing_left()
    until("the lender has its memory back", lambda: _available(LENDER) > available - 64 * MIB)
    assert product.stress(f"sequential {FILE}")["wrong_pages"] == 0


def test_reserve_and_most_are_kept(product: Product) -> None:
    """A lender holds no more than the pool says. A smaller size takes effect in place, and a deadline costs no page."""
    product.apply_ready(ONE_TO_ONE)
    pairing = product.pairing_of(BORROWER)["metadata"]["uid"]
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    lent, begun, sooner = _lent_mib(product), product.sessions_begun(), copy.deepcopy(ONE_TO_ONE)
    sooner["spec"]["deadline"] = "300ms"
    product.apply_ready(sooner)
    until("the guest has the deadline", lambda: _deadline_us(pairing) == 300_000)
    assert _lent_mib(product) > KEPT * lent > 64
    smaller = copy.deepcopy(sooner)
    smaller["spec"]["borrowers"]["size"] = "64Mi"
    product.apply_ready(smaller)
    until("the lender holds at most 64 MiB", lambda: _lent_mib(product) <= 64)
    assert product.pairing_of(BORROWER)["metadata"]["uid"] == pairing, "the pairing was not changed but replaced"
    product.stress(f"sequential {FILE} passes=2")
    assert _lent_mib(product) <= 64
    assert product.sessions_begun() == begun
    product.assert_sound()


def test_encryption_follows_the_pool(product: Product) -> None:
    """Pages are encrypted unless the pool says otherwise; a pool that is edited changes its pairing in place."""
    spec = {name: value for name, value in ONE_TO_ONE["spec"].items() if name != "encryption"}
    product.apply_ready({**ONE_TO_ONE, "spec": spec})
    pairing = product.pairing_of(BORROWER)["metadata"]["uid"]
    assert _in_guest(pairing) == ["AES-GCM", "Connected"]
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    for encryption in ("None", "AES-GCM"):
        product.apply_ready({**ONE_TO_ONE, "spec": {**spec, "encryption": encryption}})
        until(f"the borrower's guest has {encryption}", lambda: _in_guest(pairing) == [encryption, "Connected"])  # noqa: B023
        before = product.hits()
        report = product.stress(f"sequential {FILE} passes=2")
        assert report["wrong_pages"] == report["errors"] == 0
        assert product.hits() > before
        assert product.reading(BORROWER).borrowing["get_corrupt"] == 0
    product.assert_sound()


def test_guests_know_each_other_by_keys_that_they_drew(product: Product) -> None:
    """What a guest's module says is what its MemoryGuest reports, the pairing names, and the other guest was given.

    A module that is loaded anew has another identity, as after a reboot or an upgrade: the pairing follows, and stays.
    """
    product.apply_ready(ONE_TO_ONE)
    made = product.pairing_of(BORROWER)
    uid, before = made["metadata"]["uid"], _identities(made)
    assert before == {guest: _own_identity(guest) for guest in (BORROWER, LENDER)}
    assert before == {guest: lab.get("memoryguest", guest)["status"]["identity"] for guest in (BORROWER, LENDER)}
    assert _given(uid) == {BORROWER: before[LENDER], LENDER: before[BORROWER]}
    assert lab.get("memoryguest", OTHER)["status"].get("identity") is None
    connects = product.connects()
    lab.guest(LENDER, "rmdir /sys/kernel/config/tidepool/borrowers/*; rmmod tidepool; insmod /run/tidepool/kept.ko")
    own = _own_identity(LENDER)
    assert own != before[LENDER]
    until("the borrower was given it", lambda: _given(uid).get(BORROWER) == own)
    until("the two are connected again", lambda: product.connects() > connects)
    product.wait_condition("memorypool", POOL, "Ready", "True")
    now = product.pairing_of(BORROWER)
    assert now["metadata"]["uid"] == uid, "the pairing was not changed but replaced"
    assert _identities(now) == before | {LENDER: own}
    product.wait_condition("memorypairing", now["metadata"]["name"], "IdentitiesExchanged", "True")
    product.assert_sound()


def _identities(pairing: Object) -> dict[str, str]:
    spec = pairing["spec"]
    return {spec[side]["guest"]: spec[side]["identity"] for side in ("lender", "borrower")}


def _own_identity(guest: str) -> str:
    return lab.guest(guest, "cat /sys/kernel/config/tidepool/identity").strip()


def _given(pairing: str) -> dict[str, str]:
    """What each guest has been told of the other."""
    sides = {BORROWER: "lenders", LENDER: "borrowers"}
    told = {one: f"/sys/kernel/config/tidepool/{side}/{pairing}/identity" for one, side in sides.items()}
    return {one: lab.guest(one, f"cat {file} 2>/dev/null || true").strip() for one, file in told.items()}


API = "/apis/tidepool.dev/v1alpha1"
Request = tuple[str, str, str, Object | list[Object] | None]  # method, path, type of the body, body
PASSWORD = base64.b64encode(b"topsecret123").decode()
CANARY = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "canary", "namespace": "kube-system"},
    "data": {"password": PASSWORD},
}
ASK = """
import json, ssl, sys, urllib.error, urllib.request as r
server, authority, token, *requests = json.load(sys.stdin)
context = ssl.create_default_context(cafile=authority)
for method, path, kind, body in requests:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    ask = r.Request(server + path, None if body is None else json.dumps(body).encode(), headers, method=method)
    try:
        with r.urlopen(ask, timeout=120, context=context) as answer:
            print(json.dumps([answer.status, answer.read().decode()]))
    except urllib.error.HTTPError as error:
        print(json.dumps([error.code, error.read().decode()]))
"""


def _pod_of(component: str) -> Object:
    pods = lab.items("pods", "-n", lab.SYSTEM, "-l", f"app.kubernetes.io/component={component}")
    found: Object = next(one for one in pods if "deletionTimestamp" not in one["metadata"])
    return found


def _asked_by(component: str, *requests: Request) -> list[tuple[int, str]]:
    """What the API server answers to requests with the token of operator or agent: each answer's code, and its text."""
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={_pod_of(component)['metadata']['name']}")
    token = lab.kubectl("create", "token", f"tidepool-{component}", "-n", lab.SYSTEM, *bound).strip()
    at = json.loads(lab.kubectl("config", "view", "--raw", "-o", "json"))["clusters"][0]["cluster"]
    asked = json.dumps([at["server"], at["certificate-authority"], token, *requests])
    command = host.in_netns([sys.executable, "-c", ASK])
    said = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    return [(code, text) for code, text in map(json.loads, said.splitlines())]


def _requests() -> list[Request]:
    """Every verb that there is for Secrets, with what would have the API server quote one in its refusal."""
    all_of = "/api/v1/namespaces/kube-system/secrets"
    one, plain, dry = f"{all_of}/canary", "application/json", "?dryRun=All&fieldManager=test"
    copied: list[Object] = [{"op": "copy", "from": "/data/password", "path": "/type"}]
    labelled: Object = {"metadata": {"labels": {"tidepool.dev/pool": "pool"}}}
    return [
        ("GET", one, plain, None),
        ("GET", all_of, plain, None),
        ("GET", "/api/v1/secrets", plain, None),
        ("GET", f"{all_of}?watch=true&timeoutSeconds=1", plain, None),
        ("PATCH", one + dry, "application/json-patch+json", copied),
        ("PATCH", one + dry, "application/merge-patch+json", labelled),
        ("PATCH", one + dry, "application/strategic-merge-patch+json", labelled),
        ("PATCH", one + dry, "application/apply-patch+yaml", CANARY),
        ("PUT", one + dry, plain, CANARY | {"type": "other"}),
        ("POST", all_of + dry, plain, CANARY),
        ("DELETE", one + dry, plain, None),
        ("DELETE", all_of + dry, plain, None),
    ]


@pytest.mark.parametrize("component", ["operator", "agent"])
@pytest.mark.usefixtures("product")
def test_a_token_is_worth_nothing_for_secrets(component: str) -> None:
    """Whoever takes one over gets 403 for every verb, and nothing of what is in a Secret with it.

    Once agents could patch Secrets, for policies saw to it that they changed none. But the API server quotes what it
    refuses before it asks policies, and so any agent read all of them.
    """
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(CANARY))
    try:
        (own, _), *answers = _asked_by(component, ("GET", f"{API}/memoryguests", "", None), *_requests())
    finally:
        lab.kubectl("delete", "secret", "canary", "-n", "kube-system")
    assert own == 200, "the token is not even worth what it should be"
    assert [code for code, _ in answers] == [403] * len(_requests())
    assert not [text for _, text in answers if PASSWORD in text or "topsecret123" in text]


@pytest.mark.usefixtures("product")
def test_a_guest_that_an_agent_makes_up_is_deleted() -> None:
    """Whoever takes an agent over reports a machine that is none: Kubernetes deletes it, for its instance is none."""
    node = _pod_of("agent")["spec"]["nodeName"]
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "made-up", "uid": "made-up"}
    made_up: Object = {
        "apiVersion": "tidepool.dev/v1alpha1",
        "kind": "MemoryGuest",
        "metadata": {"name": "made-up", "namespace": "default", "ownerReferences": [instance]},
        "spec": {"provider": "KubeVirt", "vm": {"name": "made-up", "uid": "made-up"}, "nodeName": node},
    }
    path = f"{API}/namespaces/default/memoryguests"
    ((code, text),) = _asked_by("agent", ("POST", path, "application/json", made_up))
    assert code == 201, text
    until("it is gone", lambda: "made-up" not in {one["metadata"]["name"] for one in lab.items("memoryguests")})


def _in_guest(pairing: str) -> list[str]:
    folder = f"/sys/kernel/config/tidepool/lenders/{pairing}"
    return lab.guest(BORROWER, f"cat {folder}/encryption {folder}/state").split()


def _deadline_us(pairing: str) -> int:
    return int(lab.guest(BORROWER, f"cat /sys/kernel/config/tidepool/lenders/{pairing}/deadline_us"))


def _available(guest: str) -> int:
    return int(lab.guest(guest, "grep MemAvailable /proc/meminfo").split()[1]) << 10


def _lent_mib(product: Product) -> float:
    return product.reading(LENDER).lending.get("lent_pages", 0) / PAGES_PER_MIB


def _status() -> Object:
    status: Object = lab.get("memorypool", POOL)["status"]
    return status


def _assert_shown() -> None:
    """`kubectl get` tells the story: roles, bytes, hit ratio."""
    until("the pool shows what is used", lambda: _status().get("usedBytes", 0) > 50 * MIB and "hitRatio" in _status())
    pool = _status()
    assert pool["phase"] == "Ready"
    assert (pool["lenders"], pool["borrowers"], pool["readyPairings"]) == (1, 1, 1)
    assert float(pool["hitRatio"]) > 0
    shown = lab.kubectl("get", "memorypools,memorypairings,memoryguests")
    for word in (POOL, "Ready", "Connected", "Lender", "Borrower", "512Mi", "HIT RATIO"):
        assert word in shown, f"{word!r} is not in\n{shown}"
    roles = {guest: lab.get("memoryguest", guest)["status"]["role"] for guest in GUESTS}
    assert roles == {BORROWER: "Borrower", LENDER: "Lender", OTHER: "None"}


def _assert_exported(product: Product) -> None:
    """The agent's metrics are the module's own figures."""
    least = product.hits()
    name = "tidepool_guest_get_hits_total"
    exported = until("metrics are collected", lambda: (product.exported(name, guest=BORROWER) or 0) >= least)
    assert exported
    assert (product.exported(name, guest=BORROWER) or 0) <= product.hits()
    assert (product.exported("tidepool_guest_get_duration_seconds_count", guest=BORROWER) or 0) > 0
    assert product.exported("tidepool_guest_warnings_total", guest=BORROWER) == 0
    assert (product.exported("tidepool_guest_lent_bytes", guest=LENDER) or 0) > 50 * MIB
