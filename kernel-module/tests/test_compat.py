"""What the module finds out about a kernel when it is built for one, and the kernels that it is not built for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bed.image import TESTS, TOOLS, fetch_kernel

MODULE = TESTS.parent
COMPILED_HERE = ("6.1", "6.12")  # by this machine's compiler
OTHER = "7.3"
ONLY = '#include <linux/module.h>\n#include "base/compat.h"\nMODULE_LICENSE("GPL");\n'
# A call that this kernel does not have in the one way and has in the other, or the other way round.
NEW_IN = {
    "alloc_folio_policy": ("7.2",),
    "ftrace_regs_argument": ("6.12", "7.2"),
    "invalidate_inode": ("6.12", "7.2"),
    "shrinker_alloc": ("6.12", "7.2"),
    "sk_use_task_frag": ("6.1", "6.12", "7.2"),
    "sockaddr_unsized": ("7.2",),
    "stable_writes": ("6.12", "7.2"),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """As much of the module as says how to call the kernel: Kbuild but for other modules, one file with compat.h."""
    folder = tmp_path / "module"
    ignored = shutil.ignore_patterns("*.probe", ".*")
    shutil.copytree(MODULE / "compat", folder / "compat", ignore=ignored)
    shutil.copytree(MODULE / "base", folder / "base", ignore=ignored)
    shutil.copy(MODULE / "Makefile", folder)
    kbuild = (MODULE / "Kbuild").read_text()
    (folder / "Kbuild").write_text(re.sub(r"^obj-m \+= .*$", "", kbuild, flags=re.MULTILINE))
    (folder / "only.c").write_text(ONLY)
    return folder


def make(tree: Path, kernel: str, *variables: str, target: str = "modules", **environment: str) -> tuple[int, str]:
    """Plain `make` in the folder; its exit code and what it said."""
    build = fetch_kernel(kernel if kernel in COMPILED_HERE else COMPILED_HERE[0]).folder / "build"
    only = ("tidepool-y=only.o", "TIDEPOOL_VERSION=0")
    command = ["make", "-C", tree, f"KERNEL_BUILD={build}", *only, *variables]
    done = subprocess.run(
        [*command, target],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def of_series(series: str) -> tuple[str, str]:
    """What makes a kernel's build system take the kernel for one of another series."""
    version, patchlevel = series.split(".")
    return f"VERSION={version}", f"PATCHLEVEL={patchlevel}"


def test_probes_find_what_a_kernel_has(kernel: str) -> None:
    """Whichever way compiles; on 6.1 one of them is there that came with 6.2, which its version does not say."""
    release = fetch_kernel("6.1" if kernel == "debug" else kernel)
    module = subprocess.run([TOOLS / "build", release.name], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = (Path(module.strip()).parent / "compat-generated.h").read_text()
    found = set(re.findall(r"#define TIDE_HAVE_(\w+) 1", text))
    known = set(re.findall(r"TIDE_HAVE_(\w+)", text))
    assert known == {file.stem.upper() for file in (MODULE / "compat").glob("*.c")}
    for name, kernels in NEW_IN.items():
        assert (name.upper() in found) == (release.name in kernels), name


def test_built_again_only_when_something_changed(tree: Path, kernel: str) -> None:
    """The answers are kept in the folder; a probe that changes is asked again, and `make clean` takes all away."""
    assert make(tree, kernel)[0] == 0
    code, said = make(tree, kernel)
    assert (code, "PROBE" in said, "CC" in said) == (0, False, False), said
    with (tree / "compat/sk_use_task_frag.c").open("a") as probe:
        probe.write("/* changed */\n")
    code, said = make(tree, kernel)
    assert (code, said.count("PROBE")) == (0, 1), said
    assert make(tree, kernel, target="clean")[0] == 0
    assert not [*tree.glob("compat/*.probe"), *tree.glob("compat-generated.h")]


@pytest.mark.parametrize("broken", ["header", "call", "compiler"])
def test_what_answers_neither_way_ends_the_build(tree: Path, kernel: str, broken: str) -> None:
    """A header that is not there, a call that changed again, no compiler: never taken for an older kernel."""
    probe = tree / "compat/sk_use_task_frag.c"
    text = probe.read_text()
    if broken == "header":
        probe.write_text(text.replace("net/sock.h", "net/not_there.h"))
    elif broken == "call":
        probe.write_text(text.replace("sk->sk_allocation", "sk->not_there"))
    variables = (f"CC=sh {TOOLS / 'not-there'}",) if broken == "compiler" else ()
    code, said = make(tree, kernel, *variables)
    assert code != 0
    assert "compiles for this kernel neither in its newer way nor in its older one" in said, said
    assert "not_there" in said or "not-there" in said, "what the compiler said"
    assert not (tree / "only.o").exists()


def test_a_kernel_that_nobody_looked_at(tree: Path, kernel: str) -> None:
    """The build refuses with what to do; who insists gets a module that says so when it is loaded."""
    code, said = make(tree, kernel, *of_series(OTHER))
    assert code != 0
    assert f"tidepool: nobody has looked at Linux {OTHER}" in said
    assert "TIDEPOOL_ANY_KERNEL=1" in said
    assert not [*tree.glob("*.o"), *tree.glob("compat/*.probe")], "nothing was compiled"
    code, said = make(tree, kernel, *of_series(OTHER), TIDEPOOL_ANY_KERNEL="1")
    assert code == 0, said
    assert "-DTIDEPOOL_UNTRIED" in (tree / ".only.o.cmd").read_text()
    assert "TIDEPOOL_UNTRIED" in (MODULE / "control/main.c").read_text()


def test_dkms_goes_by_the_same_series(tmp_path: Path) -> None:
    """What it is told to build for is what Kbuild builds for; TIDEPOOL_ANY_KERNEL=1 is heard by both."""
    laid_out = subprocess.run([TOOLS / "dkms-tree", tmp_path], check=True, stdout=subprocess.PIPE, text=True)
    folder = Path(laid_out.stdout.strip())
    assert {file.name for file in (folder / "compat").iterdir()} >= {"probe.sh", "sk_use_task_frag.c"}

    def builds_for(release: str, **environment: str) -> bool:
        script = '. "$1" && [[ -z ${BUILD_EXCLUSIVE_KERNEL-} || $2 =~ $BUILD_EXCLUSIVE_KERNEL ]]'
        command = ["bash", "-c", script, "bash", folder / "dkms.conf", release]
        return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode == 0

    for release in ("6.1.0-56-cloud-amd64", "6.12.117+deb12-cloud-amd64", "7.2.13+deb14-cloud-amd64"):
        assert builds_for(release)
    for release in ("5.15.0-1", "6.2.0-1", "6.10.11", "6.120.0", "7.20.1", "7.3.0", "16.1.2", "8.0.0"):
        assert not builds_for(release), release
        assert builds_for(release, TIDEPOOL_ANY_KERNEL="1"), release


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        ("", ""),
        ("CONFIG_GENERIC_ALLOCATOR=y", "-app"),
        ("CONFIG_BLK_DEV_DM=m", "-block -file"),
        ("CONFIG_GENERIC_ALLOCATOR=y\nCONFIG_BLK_DEV_DM=y", "-app -block -file"),
    ],
)
def test_what_a_kernel_lacks_costs_one_module(tmp_path: Path, config: str, modules: str) -> None:
    """Kbuild builds those that the kernel's configuration has what they need for, and DKMS asks for the same."""
    expected = ["tidepool", *(f"tidepool{one}" for one in modules.split())]
    (tmp_path / ".config").write_text(f"{config}\n")
    script = '. "$1" && echo "${BUILT_MODULE_NAME[@]}" && [ ${#BUILT_MODULE_NAME[@]} = ${#DEST_MODULE_LOCATION[@]} ]'
    environment = {**os.environ, "kernel_source_dir": str(tmp_path)}
    asked = subprocess.run(["bash", "-c", script, "bash", MODULE / "dkms.conf"], env=environment, check=True,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert sorted(asked.stdout.split()) == expected
    lines = f"{config}\nsrc := {MODULE}\nobj := {tmp_path}\nshow:\n\t@echo $(obj-m)\ninclude {MODULE}/Kbuild\n"
    built = subprocess.run(["make", "-s", "-f", "-"], input=lines, check=True, stdout=subprocess.PIPE, text=True)
    assert sorted(one.removesuffix(".o") for one in built.stdout.split()) == expected
