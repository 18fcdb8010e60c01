"""The Ansible role on two hosts, each with a network and files of its own, and ssh between them.

The hosts are namespaces of this machine (`hosts`). A folder stands in for configfs. No systemd is on them to start
units: its own check is asked what it thinks of these.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidepool_api_testing.chart import program

TESTS = Path(__file__).parent
PLAYBOOK = TESTS.parent / "ansible/playbook.yml"
BATCH, DB = "batch.example.org", "db.example.org"
ADDRESSES = {BATCH: "10.9.0.1", DB: "10.9.0.2"}
CONFIGFS = "/sys/kernel/config/tidepool"
ASK = "ssh -i /var/lib/tidepool/.ssh/id_ed25519 -o BatchMode=yes -o UserKnownHostsFile=/etc/tidepool/known_hosts"


@dataclass(frozen=True)
class Hosts:
    """Two hosts, and the process whose network has both."""

    folder: Path
    process: str

    def inside(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of this machine where both are reached."""
        enter = ["nsenter", "-t", self.process, "-m", "-n", "--", *map(str, command)]
        return subprocess.run(enter, env=os.environ | variables, capture_output=True, text=True, check=False)

    def on(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on one of them, as root."""
        options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        return self.inside("ssh", *options, "-i", self.folder / "key", f"root@{ADDRESSES[host]}", command)

    def read(self, host: str, path: str) -> str:
        """A file of one of them."""
        answer = self.on(host, f"cat {path}")
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.strip()

    def play(self, **variables: object) -> subprocess.CompletedProcess[str]:
        """Runs the playbook as it is."""
        inventory = self.folder / "inventory"
        python = "ansible_python_interpreter=/usr/bin/python3"
        inventory.write_text("".join(f"{name} ansible_host={ADDRESSES[name]} {python}\n" for name in ADDRESSES))
        ansible = Path(sys.executable).with_name("ansible-playbook")
        options = ("--user", "root", "--private-key", self.folder / "key")
        more = ("-e", json.dumps(variables))
        settings = {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_SSH_TRANSFER_METHOD": "piped"}
        # A connection that is kept must not lead to hosts of an earlier run.
        settings |= {"ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "c"), "ANSIBLE_PIPELINING": "True"}
        settings |= {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.folder / "ansible")}
        return self.inside(ansible, "-i", inventory, *options, *more, PLAYBOOK, **settings)

    def apply(self, host: str) -> subprocess.CompletedProcess[str]:
        """What the unit does."""
        return self.on(host, "/usr/local/sbin/tidepoolctl apply")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts on which the playbook has run."""
    folder = tmp_path_factory.mktemp("hosts")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    start = ["unshare", "-mn", "--propagation", "private", TESTS / "hosts", folder, program("sshd"), *ADDRESSES]
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        assert running.stdin
        made = Hosts(folder, running.stdout.readline().strip())
        answer = made.play()
        assert answer.returncode == 0, answer.stdout + answer.stderr
        yield made
        of_it = ["pgrep", "-P", str(running.pid)]
        parts = subprocess.run(of_it, check=True, capture_output=True, text=True).stdout.split()
        running.stdin.close()
    assert not [part for part in parts if Path("/proc", part).exists()]


def changed(answer: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """How much a run has changed on each host."""
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return {name: int(count) for name, count in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", answer.stdout, re.M)}


def test_a_second_run_changes_nothing(hosts: Hosts) -> None:
    assert changed(hosts.play()) == {BATCH: 0, DB: 0}


def test_each_finds_the_other_by_ssh_and_sets_it_up(hosts: Hosts) -> None:
    """With the identity that the other has now, the sizes of the playbook and the address that was found."""
    for host in ADDRESSES:
        answer = hosts.apply(host)
        assert (answer.returncode, answer.stderr) == (0, "")
    lender, borrower = f"{CONFIGFS}/lenders/{BATCH}", f"{CONFIGFS}/borrowers/{DB}"
    assert hosts.read(DB, f"{lender}/identity") == hosts.read(BATCH, f"{CONFIGFS}/identity")
    assert hosts.read(BATCH, f"{borrower}/identity") == hosts.read(DB, f"{CONFIGFS}/identity")
    assert hosts.read(DB, f"{lender}/address") == ADDRESSES[BATCH]
    assert hosts.read(DB, f"{lender}/size_bytes") == hosts.read(BATCH, f"{borrower}/quota_bytes") == str(2 << 30)
    assert hosts.read(BATCH, f"{CONFIGFS}/lend_bytes") == str(4 << 30)
    assert hosts.read(DB, f"{CONFIGFS}/lend_bytes") == "0"
    again = hosts.apply(DB)
    assert (again.returncode, again.stdout) == (0, "")


def test_a_guest_that_has_booted_is_known_anew(hosts: Hosts) -> None:
    """Its kernel has another identity; the next `apply` of the other finds it."""
    hosts.apply(DB)
    another = f"x25519:{'c' * 64}"
    hosts.on(BATCH, f"echo {another} > {CONFIGFS}/identity")
    assert hosts.apply(DB).stdout == f"lenders/{BATCH}/identity {another}\n"


def test_the_key_of_a_host_asks_for_the_identity_and_nothing_else(hosts: Hosts) -> None:
    """Whatever command is asked for; only root reads the key."""
    other = f"tidepool@{ADDRESSES[BATCH]}"
    asked = hosts.on(DB, f"{ASK} {other} cat /etc/passwd")
    assert asked.stdout.strip() == hosts.read(BATCH, f"{CONFIGFS}/identity")
    assert hosts.on(DB, f"{ASK} -N -o ExitOnForwardFailure=yes -R 7000:localhost:22 {other}").returncode != 0
    assert hosts.on(DB, "stat -c '%a %U' /var/lib/tidepool/.ssh/id_ed25519").stdout == "600 root\n"
    assert hosts.on(DB, "getent shadow tidepool").stdout.split(":")[1] == "*"


def test_a_host_with_another_key_is_not_believed(hosts: Hosts) -> None:
    """Who has taken over an address is not asked, and what was set up stays."""
    hosts.apply(DB)
    known = hosts.read(DB, "/etc/tidepool/known_hosts")
    own = hosts.on(DB, "cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub").stdout.strip()
    hosts.on(DB, f"echo '{ADDRESSES[BATCH]} {own}' > /etc/tidepool/known_hosts")
    answer = hosts.apply(DB)
    hosts.on(DB, f"echo '{known}' > /etc/tidepool/known_hosts")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"lenders/{BATCH} does not say who it is" in answer.stderr
    assert "Host key verification failed" in answer.stderr


def test_a_pairing_with_a_host_that_is_not_there_is_refused(hosts: Hosts) -> None:
    """On all hosts: the one that is not named stays as it is, too."""
    before = hosts.read(DB, "/etc/tidepool.conf")
    answer = hosts.play(tidepool_pairings=[{"lender": BATCH, "borrower": "gone", "size": "1Gi"}])
    assert answer.returncode != 0
    assert "tidepool_pairings names gone, which is not among the hosts of this play" in answer.stdout
    assert hosts.read(DB, "/etc/tidepool.conf") == before


def test_who_is_no_longer_paired_goes_and_may_not_ask(hosts: Hosts) -> None:
    """From the configuration, from the module, and from those who may log in; the next run brings all back."""
    hosts.apply(DB)
    assert changed(hosts.play(tidepool_pairings=[])) == {BATCH: 3, DB: 3}
    assert hosts.apply(DB).stdout == f"lenders/{BATCH}/enabled 0\n"  # a folder with files does not go as configfs' do
    assert hosts.on(DB, f"{ASK} -o StrictHostKeyChecking=no tidepool@{ADDRESSES[BATCH]}").returncode == 255
    assert changed(hosts.play()) == {BATCH: 3, DB: 3}
    assert hosts.apply(DB).returncode == 0


def test_systemd_takes_the_units(hosts: Hosts) -> None:
    units = "/etc/systemd/system/tidepool.service /etc/systemd/system/tidepool.timer"
    answer = hosts.on(BATCH, f"systemd-analyze verify --man=no {units}")
    assert (answer.returncode, answer.stderr) == (0, "")
