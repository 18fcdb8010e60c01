"""tidepool.conf and what comes of it. A folder stands in for configfs: what the module takes is for its own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tidepoolctl
from tidepoolctl import Module, Peer, Seen, Step, Wanted, Wrong, parse, steps

FOLDER = Path(tidepoolctl.__file__).parent
A, B = (f"x25519:{digit * 64}" for digit in "ab")
LENDER = Peer({"address": "10.0.0.7", "size_bytes": str(1 << 30)}, ("true",))
BORROWER = Peer({"quota_bytes": str(2 << 30)}, ("true",))
WANTED = Wanted({"lend_bytes": str(4 << 30)}, {"borrowers/db": BORROWER, "lenders/cache": LENDER})
IDENTITIES = {"borrowers/db": A, "lenders/cache": B}
SET_UP = Seen(
    dict(WANTED.guest),
    {
        "borrowers/db": {**BORROWER.settings, "identity": A, "enabled": "1"},
        "lenders/cache": {**LENDER.settings, "encryption": "AES-GCM", "identity": B, "enabled": "1"},
    },
)


def test_the_example_is_read() -> None:
    wanted = parse((FOLDER / "tidepool.conf").read_text())
    assert wanted.guest == {"lend_bytes": str(4 << 30), "reserve_bytes": str(512 << 20)}
    assert {folder: peer.settings for folder, peer in wanted.peers.items()} == {
        "lenders/cache": LENDER.settings,
        "borrowers/db": BORROWER.settings,
    }
    assert wanted.peers["borrowers/db"].command == ("ssh", "tidepool@10.0.0.6")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lend = ", "it is not TOML"),
        ("[guests]", "guests: there is no such setting; there are borrowers, guest, lenders"),
        ("guest = 1", "guest: it must be a table, [guest]"),
        ("[guest]\nlend = 4", '[guest] lend is 4: it must be an amount with its unit, such as "2Gi"'),
        ('[guest]\nlend = "4G"', "[guest] lend is '4G': it must be an amount"),
        ("[guest]\nport = true", "[guest] port is True: it must be a number"),
        ("[guest]\nsize = 1", "[guest] size: there is no such setting; there are lend"),
        ("[lenders.a]", "[lenders.a]: address is missing"),
        ('[lenders."a/b"]', "[lenders.a/b]: a name has 1 to 63"),
        ('[lenders.".."]', "[lenders...]: a name has 1 to 63"),
        ('[borrowers.a]\nquota = "1Gi"', "[borrowers.a]: identity_command is missing"),
        ('[borrowers.a]\nquota = "1Gi"\nidentity_command = "ssh a"', "it must be a list of words"),
        ('[lenders.a]\naddress = "a"\nsize = "1Gi"\nidentity_command = ["a"]', "an IPv4 or IPv6 address, not a name"),
        (
            '[lenders.a]\naddress = "::1"\nsize = "1Gi"\nidentity_command = ["a"]\nbreaker = "On"',
            "one of Off, Thresholds, Automatic",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(Wrong) as refused:
        parse(text)
    assert said in str(refused.value)


def test_everything_is_made_and_enabled_last() -> None:
    assert list(steps(WANTED, IDENTITIES, Seen())) == [
        Step("lend_bytes", str(4 << 30)),
        Step("borrowers/db", "+"),
        Step("borrowers/db/quota_bytes", str(2 << 30)),
        Step("borrowers/db/identity", A),
        Step("borrowers/db/enabled", "1"),
        Step("lenders/cache", "+"),
        Step("lenders/cache/address", "10.0.0.7"),
        Step("lenders/cache/size_bytes", str(1 << 30)),
        Step("lenders/cache/identity", B),
        Step("lenders/cache/enabled", "1"),
    ]


def test_what_is_so_already_is_left_alone() -> None:
    assert list(steps(WANTED, IDENTITIES, SET_UP)) == []


def test_another_identity_ends_no_other_session() -> None:
    """A peer that has booted: one write."""
    assert list(steps(WANTED, IDENTITIES | {"lenders/cache": A}, SET_UP)) == [Step("lenders/cache/identity", A)]


def test_a_peer_that_does_not_answer_stays_as_it_is() -> None:
    assert list(steps(WANTED, {"borrowers/db": A}, SET_UP)) == []
    assert list(steps(WANTED, {}, Seen(dict(WANTED.guest)))) == []


def test_who_is_not_in_the_file_goes() -> None:
    assert list(steps(Wanted(), {}, Seen({}, {"lenders/old": {"enabled": "1"}}))) == [
        Step("lenders/old/enabled", "0"),
        Step("lenders/old", "-"),
    ]


def test_what_is_frozen_while_enabled_is_changed_in_between() -> None:
    open_ = Peer(LENDER.settings | {"encryption": "None"}, ("true",))
    wanted = Wanted(WANTED.guest, {**WANTED.peers, "lenders/cache": open_})
    assert list(steps(wanted, IDENTITIES, SET_UP)) == [
        Step("lenders/cache/enabled", "0"),
        Step("lenders/cache/encryption", "None"),
        Step("lenders/cache/enabled", "1"),
    ]


@pytest.mark.parametrize("known", [IDENTITIES, {}], ids=["answering", "silent"])
def test_another_port_stops_who_borrows_for_a_moment(known: dict[str, str]) -> None:
    wanted = Wanted({**WANTED.guest, "port": "7471"}, WANTED.peers)
    assert list(steps(wanted, known, SET_UP)) == [
        Step("borrowers/db/enabled", "0"),
        Step("port", "7471"),
        Step("borrowers/db/enabled", "1"),
    ]


@pytest.fixture
def module(tmp_path: Path) -> Module:
    for folder in ("lenders", "borrowers"):
        (tmp_path / "configfs" / folder).mkdir(parents=True)
    return Module(tmp_path / "configfs")


def configuration(folder: Path, command: str) -> Path:
    path = folder / "tidepool.conf"
    path.write_text(f'[borrowers.db]\nquota = "2Gi"\nidentity_command = ["sh", "-c", "{command}"]\n')
    return path


def test_apply_writes_and_then_has_nothing_to_do(
    tmp_path: Path, module: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configuration(tmp_path, f"echo {A}")
    assert tidepoolctl.apply(path, module) == 0
    assert module.seen().peers["borrowers/db"] == {"quota_bytes": str(2 << 30), "identity": A, "enabled": "1"}
    capsys.readouterr()
    assert tidepoolctl.apply(path, module) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("command", "why"),
    [("exit 1", "'' is no identity"), ("echo hello", "'hello' is no identity"), ("echo no >&2; exit 255", "no")],
)
def test_a_silent_peer_is_named_and_nothing_of_it_is_set_up(
    tmp_path: Path, module: Module, capsys: pytest.CaptureFixture[str], command: str, why: str
) -> None:
    """Whatever else it says is no identity, and does not get into the kernel."""
    assert tidepoolctl.apply(configuration(tmp_path, command), module) == 1
    said = capsys.readouterr().err
    assert "borrowers/db does not say who it is" in said
    assert said.strip().endswith(why)
    assert module.seen().peers == {}


def test_status_shows_each_peer(tmp_path: Path, module: Module, capsys: pytest.CaptureFixture[str]) -> None:
    assert tidepoolctl.status(module) == 1
    root = tmp_path / "configfs"
    files = {"version": "0.2.0", "identity": A, "lenders/c/state": "Rejected", "lenders/c/reason": "UnknownIdentity"}
    files |= {"borrowers/d/state": "Connected", "borrowers/d/stats": "gets 5\nlent_pages 512\n"}
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(f"{text}\n")
    capsys.readouterr()
    assert tidepoolctl.status(module) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"tidepool 0.2.0, {A}",
        "lenders/c: Rejected (UnknownIdentity), 0Mi",
        "borrowers/d: Connected, 2Mi",
    ]


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("[guest]\nlend = 1")
    done = subprocess.run(
        [sys.executable, FOLDER / "tidepoolctl.py", "apply", "--file", tmp_path / "conf"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"tidepoolctl: {tmp_path}/conf: [guest] lend is 1: it must be an amount")
