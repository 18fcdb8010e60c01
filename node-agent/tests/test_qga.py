"""The guest agent's protocol with a real one in a real guest, and with answers that none would give."""

from __future__ import annotations

import base64
import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_agent.errors import CommandFailed, GuestError, Nonsense, Unreachable
from tidepool_agent.qga import CHUNK, GuestAgent

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
)
LIKELY = st.recursive(JSON, lambda inner: st.dictionaries(st.sampled_from(WORDS), inner, max_size=5), max_leaves=8)


def test_a_command_runs_and_its_output_and_code_come_back(agent: GuestAgent) -> None:
    done = agent.run(["/bin/sh", "-c", 'echo "$1"; echo err >&2; exit 3', "sh", "a 'b' $c"])
    assert (done.code, done.out, done.err) == (3, "a 'b' $c\n", "err\n")


def test_a_command_that_does_not_end_is_given_up(agent: GuestAgent) -> None:
    with pytest.raises(Unreachable, match="did not end within 1 s"):
        agent.run(["/bin/sleep", "60"], seconds=1)


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


def test_output_that_is_not_text_is_no_error(agent: GuestAgent) -> None:
    assert "\ufffd" in agent.run(["/bin/head", "-c", "64", "/dev/urandom"]).out


def test_more_output_than_is_sensible_is_refused(agent: GuestAgent) -> None:
    with pytest.raises(GuestError):
        agent.run(["/bin/head", "-c", "8000000", "/dev/zero"])


@given(answer=JSON | LIKELY)
def test_no_answer_whatever_breaks_more_than_the_call(answer: object) -> None:
    hostile = GuestAgent(lambda _text, _seconds: json.dumps(answer))
    run, write = (lambda: hostile.run(["/bin/true"], seconds=0)), (lambda: hostile.write("/x", b"y"))
    for call in (hostile.blocked, hostile.system, run, write):
        with contextlib.suppress(GuestError):
            call()


@given(answer=st.text() | st.just("[" * 100_000))
def test_what_is_not_json_is_nonsense(answer: str) -> None:
    with pytest.raises(Nonsense):
        GuestAgent(lambda _text, _seconds: answer).blocked()
