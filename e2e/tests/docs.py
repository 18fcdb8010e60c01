"""The commands that the Markdown pages of this repository give, and which test tries each of them.

A block that is indented holds commands, and one that is fenced as `sh`. In one fenced as `text` a line that begins with
`$ ` is a command, too. Any other that is fenced holds none: pools, configuration, what something prints.
Names in capitals stand for the reader's own; a test puts what it has in their places.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from product import BORROWER, LENDER, POOL

from demo import lab
from tidepool_lab import paths

TUTORIAL = "docs/tutorial/first-pool.md"
PLAIN = "docs/how-to/plain-manifests.md"
CLASSES = "docs/how-to/set-defaults-for-pools.md"
DEVICES = "docs/how-to/devices-and-swap.md"
ABI, APPMEM, BLOCK = (f"kernel-module/{name}.md" for name in ("ABI", "APPMEM", "BLOCK"))
BY_HAND = "kernel-module/tests/test_by_hand.py"
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "*.md")  # in the order in which they are read
FORMER = "CHANGELOG.md"  # says what was so once
LANGUAGES = {"c", "ini", "js", "json", "lua", "nft", "promql", "python", "sh", "text", "toml", "yaml"}  # of fences
NAMES = {
    "NAMESPACE": "default",
    "POOL": POOL,
    "PAIRING": f"{POOL}.{BORROWER}.{LENDER}",
    "GUEST": BORROWER,
    "demo": "default",
    "db": BORROWER,
    "databases": POOL,
    "batch": LENDER,
}


@dataclass(frozen=True)
class Kind:
    """Commands that one test tries, all of them: how they begin, and in which file the test is."""

    begin: str
    by: str
    page: str = ""  # only on this page


# The first that fits.
KINDS = {
    "tutorial": Kind("kubectl ", "e2e/tests/test_product_tutorial.py", TUTORIAL),
    "kustomize": Kind("kubectl kustomize ", "e2e/tests/test_docs.py", PLAIN),
    "plain": Kind("helm template |kubectl delete (memorypools|namespace) ", "e2e/tests/test_product_release.py", PLAIN),
    "install-release": Kind("helm install tidepool oci:", "e2e/tests/test_dist.py"),
    "by-hand": Kind("tar -xzf dist/standalone/|install -m ", "e2e/tests/test_papers.py"),
    "role": Kind("ansible-playbook ", "e2e/tests/test_papers.py"),
    "dkms-package": Kind(r"apt-get install \./dist/module/", "e2e/tests/test_papers.py"),
    "clients": Kind(
        r"apt-get install \./dist/clients/|VENV/bin/pip |make -C clients/", "e2e/tests/test_dist_clients.py"
    ),
    "examples": Kind(r"\./cached |python3 cached\.py |sh cached\.sh ", "e2e/tests/test_product_front_ends.py"),
    "tidepoolctl apply": Kind("tidepoolctl apply", "kernel-module/tests/test_tidepoolctl.py"),
    "tidepoolctl status": Kind("tidepoolctl status", "kernel-module/tests/test_tidepoolctl.py"),
    "modprobe configfs": Kind("", BY_HAND, ABI),
    "insmod tidepool.ko": Kind("", BY_HAND, APPMEM),
    "modprobe dm-mod": Kind("", BY_HAND, BLOCK),
    "dmsetup create by-hand": Kind("dmsetup ", BY_HAND, DEVICES),
    "krew": Kind("kubectl krew ", "e2e/tests/test_dist.py"),
    "push": Kind("dist/push ", "e2e/tests/released.py"),
    "verify": Kind(r"minisign |\(cd dist ", "e2e/tests/released.py"),
    "plugin": Kind("tar -xzf dist/plugin/", "e2e/tests/test_dist.py"),
    "release": Kind("make release ", "e2e/tests/test_papers.py"),
    "install": Kind("helm install ", "e2e/tests/test_product_release.py"),
    "upgrade": Kind("helm upgrade tidepool .*reuse-values$", "e2e/tests/test_product_release.py"),
    "crds": Kind("kubectl apply .*charts/tidepool/crds/", "e2e/tests/test_product_release.py"),
    "keep": Kind("helm rollback tidepool REVISION ", "e2e/tests/test_product_release.py"),
    "give-up": Kind("helm uninstall .*--no-hooks", "e2e/tests/test_product_release.py"),
    "rollback": Kind("helm rollback ", "e2e/tests/test_product_release.py"),
    "monitoring": Kind("helm upgrade .*monitoring", "e2e/tests/test_product_release.py"),
    "lend-nodes": Kind("helm upgrade .*nodeLender", "e2e/tests/test_product_nodes.py"),
    "uninstall": Kind("helm uninstall ", "e2e/tests/test_product_release.py"),
    "delete-crds": Kind("kubectl delete crd ", "e2e/tests/test_product_release.py"),
    "openstack": Kind("helm upgrade --install |kubectl create namespace ", "e2e/tests/test_product_release.py"),
    "user-data": Kind("kubectl create secret ", "e2e/tests/test_docs.py"),
    "let-go": Kind("kubectl patch memorypairing ", "e2e/tests/test_product_faults.py"),
    "class-fields": Kind("kubectl patch memorypool .*null", "e2e/tests/test_docs_pools.py", CLASSES),
    "class-values": Kind("kubectl patch memorypool .*fromClass", "e2e/tests/test_docs_pools.py", CLASSES),
    "pause": Kind("kubectl patch memorypool .*paused", "e2e/tests/test_docs_pools.py", CLASSES),
    "nodes": Kind("e2e/lab up --nodes ", "e2e/tests/test_product_migration.py"),
    "migrate": Kind("e2e/lab guest migrate ", "e2e/tests/test_product_migration.py"),
    "up": Kind("e2e/lab up ", "e2e/tests/test_product_watch.py"),
    "lab": Kind("e2e/lab (kubectl|exec|logs) ", "e2e/tests/test_product_watch.py"),
    "reload": Kind("e2e/lab reload", "e2e/tests/test_product_release.py"),
    "down": Kind("e2e/lab down", "e2e/tests/conftest.py"),
    "look": Kind(
        "kubectl (get|describe|explain|edit|logs|rollout status|tidepool) ",
        "e2e/tests/test_product_watch.py",
    ),
    "delete": Kind("kubectl delete memorypairing ", "e2e/tests/test_product_watch.py"),
    "give-back": Kind("kubectl delete memorypool ", "e2e/tests/test_product_watch.py"),
    "reach": Kind("timeout 3 bash", "e2e/tests/test_product_watch.py"),
    "query": Kind("sum by|histogram_quantile|lender:", "e2e/tests/test_product_watch.py"),
    "ghost": Kind("(echo|cat) .*/ghost|sleep 600", "e2e/tests/test_product_watch.py"),
    "guest": Kind("cat /|dmesg|grep |cd /sys|echo 1 > events|head ", "e2e/tests/test_product_watch.py"),
    "kernel-module/tools/dkms-tree": Kind("kernel-module/tools/dkms-tree |dkms ", "kernel-module/tests/test_dkms.py"),
    "make -C": Kind(r"make -C |mkdir -p STORE/RELEASE |\(cd STORE/RELEASE ", "kernel-module/tests/test_dkms.py"),
    "checkout": Kind(
        "apt-get |git clone |make (demo|setup)$|kernel-module/t(ools|ests)/|e2e/images/build|openssl |"
        "python3 -m venv |build/plugin/|ln -st |"
        "cd [a-z-]+ && PYTHONPATH",
        "e2e/tests/test_checkout.py",
    ),
}
INDENTED = re.compile(r"(?<=\n\n)(?: {4,}\S.*\n?)+")
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# Of what stands in a sentence, only such as can be typed as they are; the others are names of commands.
IN_A_SENTENCE = re.compile(r"`((?:kubectl (?:get|describe|explain|edit|delete) |timeout 3 |dmesg \|)[^`]+)`")
# What no test tries, and why.
UNTRIED = {
    "e2e/lint python": "`make test` is made of these",
    "e2e/check unit": "`make test` is made of these",
    "e2e/check quick": "`make test` is made of these",
    "mokutil --import tidepool.der": "it wants a guest with UEFI, and somebody at its console",
    "skopeo copy docker-archive:build/images/tidepool-agent.tar docker://MY/PREFIX/tidepool-agent:$(cat VERSION)": (
        "it wants a registry"
    ),
    "systemctl daemon-reload && systemctl enable --now tidepool.timer": (
        "it wants systemd; test_role.py has it read the units"
    ),
    "systemctl daemon-reload": "it wants systemd; test_dist_clients.py has it read what was installed",
    "tar -xzf dist/module/tidepool-modules-*.tar.gz": "test_dist.py unpacks it so",
    "guests/containerdisk/build.py --modules modules debian-12-genericcloud-amd64.qcow2 guest.tar": (
        "it wants an image; test_containerdisk.py builds one so"
    ),
    'mkosi -C guests/mkosi --extra-tree "$PWD/modules:/usr/src/tidepool"': "test_mkosi.py calls it so",
    "skopeo copy oci-archive:guest.tar docker://MY/PREFIX/guest:1": "it wants a registry",
    "cp abstractions/tidepool /etc/apparmor.d/abstractions/": "test_prepared.py puts it there",
    "cp usr.sbin.qemu-ga /etc/apparmor.d/": "test_prepared.py puts it there",
    "apparmor_parser -r /etc/apparmor.d/usr.sbin.qemu-ga": "test_prepared.py does the same in a guest",
    "systemctl restart qemu-guest-agent": "test_prepared.py does the same in a guest",
    "semodule -i tidepool.cil": "it wants SELinux; test_selinux.py has secilc read the policy",
    "node-lender/cargo build --release": "node-lender/test builds it, without optimising",
    "~/.cache/tidepool/node-lender/release/tidepool-node-lender --config /etc/tidepool/node-lender.toml": (
        "node-lender/test starts it with a file of its own"
    ),
    "node-lender/test": "`make test` is made of these",
    "node-lender/test --long -k guest": "`e2e/check guests` runs it with the other long ones",
    "node-lender/test --long -s -k thread_for_each": "`e2e/check guests` runs it with the other long ones",
    "e2e/lint rust": "`make test` is made of these",
    "echo reload | nc -U /run/tidepool/node-lender.sock": "node-lender/test says so on its socket",
}


def pages() -> list[str]:
    """Those whose commands are tried, by their paths."""
    listed = [
        subprocess.run(["git", "ls-files", one], cwd=paths.ROOT, capture_output=True, text=True, check=True)
        for one in PAGES
    ]
    found = dict.fromkeys(page for one in listed for page in one.stdout.splitlines())
    return [page for page in found if page != FORMER]


def blocks(page: str) -> list[list[str]]:
    """The commands of each block of a page, without the comments at their ends; then those in sentences."""
    whole = (paths.ROOT / page).read_text()
    fenced = [_typed(language, block) for _, language, block in FENCED.findall(whole)]
    text = FENCED.sub("", whole)
    sentences = [" ".join(one.split()) for one in IN_A_SENTENCE.findall(INDENTED.sub("", text))]
    scripts = [*INDENTED.findall(text), *filter(None, fenced)]
    return [_commands(one) for one in scripts] + [[one] for one in sentences]


def _typed(language: str, block: str) -> str:
    """The commands of a block that is fenced; empty if it has none."""
    return block if language == "sh" else "".join(re.findall(r"^\$ (.*\n)", block, re.MULTILINE))


def _commands(block: str) -> list[str]:
    joined = re.sub(r" *\\\n *", " ", textwrap.dedent(block))
    return [re.sub(r"\s{2,}#.*| # .*", "", line) for line in joined.splitlines()]


def kind_of(page: str, line: str) -> str | None:
    """By which name a command is asked for; None for one that no test asks for."""
    fitting = (name for name, kind in KINDS.items() if kind.page in ("", page) and re.match(kind.begin, line))
    return None if line in UNTRIED else next(fitting, None)


def scripts(kind: str) -> list[list[str]]:
    """The commands of a kind, those of one block together."""
    found = [[line for line in block if kind_of(page, line) == kind] for page in pages() for block in blocks(page)]
    return [script for script in found if script]


def commands(kind: str) -> list[str]:
    """The commands of a kind, each once, in the order in which they are read."""
    return list(dict.fromkeys(line for script in scripts(kind) for line in script))


def command(kind: str) -> str:
    """The only command of its kind."""
    (line,) = commands(kind)
    return line


def filled_in(line: str, names: Mapping[str, str] = NAMES) -> str:
    """With names that are there in place of those that stand for them."""
    return re.sub(r"\b(" + "|".join(names) + r")\b", lambda match: names[match[1]], line)


def examples(page: str) -> list[str]:
    """The YAML that a page shows."""
    return re.findall(r"^```yaml\n(.*?)^```", (paths.ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(line: str) -> str:
    """Runs a command as a shell would, kubectl and Helm being the lab's, and returns what it prints.

    What would go on for ever is done once. Raises AssertionError with what it said.
    """
    once = " --interval 1" + ("" if "--once" in line else " --once") if "tidepool top" in line else ""
    programs = [f'{name}() {{ {shlex.quote(str(lab.LAB))} {name} "$@"; }}' for name in ("kubectl", "helm")]
    script = "\n".join(["export KUBE_EDITOR=true", *programs, f"{line}{once}"])
    done = subprocess.run(
        ["bash", "-c", script], cwd=paths.ROOT, capture_output=True, text=True, check=False, timeout=660
    )
    assert done.returncode == 0, f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
