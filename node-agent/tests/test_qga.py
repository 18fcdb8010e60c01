"""The guest agent's protocol with a real one in a real guest, and with answers that none would give."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tracemalloc

import pytest
from conftest import wait_for
from hypothesis import given
from hypothesis import strategies as st

from tidepool_agent.errors import CommandFailed, CommandsBlocked, Frozen, GuestError, Nonsense, Unreachable
from tidepool_agent.qga import CHUNK, MAX_ANSWER, MAX_OUTPUT, NEEDED, GuestAgent

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
WORDS = (
    "return",
    "pid",
    "exited",
    "exitcode",
    "signal",
    "out-data",
    "err-data",
    "supported_commands",
    "name",
    "count",
    "kernel-version",
    "ip-addresses",
    "ip-address",
)
LIKELY = st.recursive(JSON, lambda inner: st.dictionaries(st.sampled_from(WORDS), inner, max_size=5), max_leaves=8)


def test_a_command_runs_and_its_output_and_code_come_back(agent: GuestAgent) -> None:
    done = agent.run(["/bin/sh", "-c", 'echo "$1"; echo err >&2; exit 3', "sh", "a 'b' $c"])
    assert (done.code, done.out, done.err) == (3, "a 'b' $c\n", "err\n")


def test_a_command_that_does_not_end_is_killed_with_what_it_has_started(agent: GuestAgent) -> None:
    with pytest.raises(Unreachable, match="did not end within 1 s"):
        agent.run(["/bin/sh", "-c", "/bin/sleep 4321; echo done"], seconds=1)
    wait_for(lambda: agent.run(["/bin/true"]).code == 0)
    assert "4321" not in agent.run(["/bin/ps"]).out


class Hung:
    """A guest in which nothing ends, not even what is killed, until `ends` is set or it is booted again."""

    def __init__(self) -> None:
        self.started, self.ends, self.rebooted = 0, False, False

    def __call__(self, text: str, _seconds: int) -> str:
        if json.loads(text)["execute"] == "guest-exec":
            self.started += 1
            return json.dumps({"return": {"pid": self.started}})
        if self.rebooted:
            raise CommandFailed("Invalid parameter 'pid'")
        return json.dumps({"return": {"exited": self.ends, "exitcode": 0}})


@pytest.mark.parametrize("how", ["ends", "rebooted"])
def test_what_hangs_does_not_pile_up(how: str) -> None:
    """The command and what should kill it are all that there ever is; once they have ended it goes on."""
    guest = Hung()
    agent = GuestAgent(guest)
    with pytest.raises(Unreachable, match="did not end"):
        agent.run(["/bin/sh"], seconds=0)
    for _ in range(5):
        with pytest.raises(Unreachable, match="hangs in the guest"):
            agent.run(["/bin/sh"], seconds=0)
    assert guest.started == 2
    setattr(guest, how, True)
    with contextlib.suppress(CommandFailed):
        agent.run(["/bin/sh"], seconds=0)
    assert guest.started == 3


def limited(text: str, _seconds: int, *, status: str) -> str:
    """A guest agent that forbids all that we need, because it is frozen or for good."""
    match json.loads(text)["execute"]:
        case "guest-info":
            return json.dumps({"return": {"supported_commands": [{"name": one, "enabled": False} for one in NEEDED]}})
        case "guest-fsfreeze-status" if status:
            return json.dumps({"return": status})
        case command:
            raise CommandsBlocked([command])


@pytest.mark.parametrize("status", ["thawed", ""])
def test_a_guest_agent_that_is_frozen_is_not_one_that_forbids_commands(status: str) -> None:
    """A backup has frozen the guest: that passes. What is forbidden otherwise stays so until somebody allows it."""
    frozen = GuestAgent(lambda text, seconds: limited(text, seconds, status="frozen"))
    for call in (frozen.blocked, lambda: frozen.run(["/bin/true"])):
        with pytest.raises(Frozen, match="waiting until its file systems are thawed"):
            call()
    forbids = GuestAgent(lambda text, seconds: limited(text, seconds, status=status))
    assert forbids.blocked() == sorted(NEEDED)
    with pytest.raises(CommandsBlocked):
        forbids.run(["/bin/true"])


def test_a_program_that_is_not_there_is_an_error(agent: GuestAgent) -> None:
    with pytest.raises(CommandFailed):
        agent.run(["/bin/nothing"])


def test_a_killed_command_has_the_code_that_a_shell_would_give(agent: GuestAgent) -> None:
    assert agent.run(["/bin/sh", "-c", "kill -9 $$"]).code == 128 + 9


def test_a_file_of_several_chunks_arrives_whole(agent: GuestAgent) -> None:
    data = os.urandom(3 * CHUNK + 17)
    agent.write("/run/blob", data)
    back = agent.run(["/bin/base64", "/run/blob"]).out
    assert base64.b64decode(back) == data


def test_what_the_kernel_refuses_when_the_file_is_closed_is_an_error(agent: GuestAgent) -> None:
    """qemu-ga buffers: a write to an attribute seems to work until it is flushed."""
    with pytest.raises(CommandFailed):
        agent.write("/proc/sys/vm/overcommit_memory", b"nonsense")


def test_the_guest_says_which_addresses_its_interfaces_have(agent: GuestAgent) -> None:
    agent.run(["/bin/sh", "-c", "ip link set lo up; ip address replace 10.20.0.5/16 dev lo"])
    assert agent.interfaces()["lo"][:2] == ["127.0.0.1", "10.20.0.5"]


@pytest.mark.parametrize("why", ["has been disabled", "has not been found"])
def test_a_guest_agent_that_may_not_say_them_is_well_all_the_same(why: str) -> None:
    def refuse(_text: str, _seconds: int) -> str:
        raise CommandsBlocked(["guest-network-get-interfaces"]) if "disabled" in why else CommandFailed(why)

    assert GuestAgent(refuse).interfaces() == {}


@pytest.mark.parametrize("name", [None, True, 7, float("nan"), ["eth0"], {"eth0": 1}])
def test_what_is_no_text_names_nothing(name: object) -> None:
    """Neither an interface nor a kernel."""
    one = {"name": name, "kernel-version": name, "ip-addresses": [{"ip-address": "10.0.0.5"}, {"ip-address": name}]}
    said = {"guest-network-get-interfaces": [one], "guest-get-osinfo": one}
    hostile = GuestAgent(lambda text, _seconds: json.dumps({"return": said[json.loads(text)["execute"]]}))
    assert hostile.interfaces() == {"": ["10.0.0.5"]}
    assert hostile.system() == ("one without a name", False)


def test_output_that_is_not_text_is_no_error(agent: GuestAgent) -> None:
    assert "\ufffd" in agent.run(["/bin/head", "-c", "64", "/dev/urandom"]).out


def test_more_output_than_is_sensible_is_refused(agent: GuestAgent) -> None:
    with pytest.raises(GuestError):
        agent.run(["/bin/head", "-c", "8000000", "/dev/zero"])


@given(answer=JSON | LIKELY)
def test_no_answer_whatever_breaks_more_than_the_call(answer: object) -> None:
    hostile = GuestAgent(lambda _text, _seconds: json.dumps(answer))
    run, write = (lambda: hostile.run(["/bin/true"], seconds=0)), (lambda: hostile.write("/x", b"y"))
    for call in (hostile.blocked, hostile.system, hostile.interfaces, run, write):
        with contextlib.suppress(GuestError):
            call()


@given(answer=st.text() | st.just("[" * 100_000))
def test_what_is_not_json_is_nonsense(answer: str) -> None:
    with pytest.raises(Nonsense):
        GuestAgent(lambda _text, _seconds: answer).blocked()


@pytest.mark.parametrize("part", ["[]", '{"a":1}', "[" * 900 + "]" * 900, "1", '"ab"'])
def test_an_answer_takes_little_more_memory_than_its_bytes(part: str) -> None:
    """Four megabytes of brackets are two hundred as lists: a few guests would have the agent killed, for all others."""
    answer = f'{{"return": [{",".join([part] * (MAX_ANSWER // (len(part) + 1) - 10))}]}}'
    hostile = GuestAgent(lambda _text, _seconds: answer)
    tracemalloc.start()
    try:
        with pytest.raises(Nonsense):
            hostile.blocked()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_ANSWER


def test_much_output_and_many_interfaces_are_no_nonsense() -> None:
    counts = {f"{way}-{what}": 1 << 40 for way in ("rx", "tx") for what in ("bytes", "packets", "errs", "dropped")}
    each = [
        {
            "name": f"veth{at}",
            "hardware-address": "52:54:00:00:00:01",
            "statistics": counts,
            "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": f"10.0.{at % 256}.1", "prefix": 24}] * 2,
        }
        for at in range(1000)
    ]
    output = base64.b64encode(os.urandom(MAX_OUTPUT)).decode()
    ended = {"exited": True, "exitcode": 0, "out-data": output, "pid": 1}
    assert len(GuestAgent(lambda _text, _seconds: json.dumps({"return": each})).interfaces()) == 256
    assert len(GuestAgent(lambda _text, _seconds: json.dumps({"return": ended})).run(["/bin/true"]).out) > 0
