"""One pool for all that a guest may want memory for: files, a disk, swap and programs, each shown apart.

And programs by the clients' examples.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from product import BORROWER, ONE_TO_ONE, POOL, STRESS, Object, Product, report, until

import docs
from demo import lab
from tidepool_lab import paths
from tidepool_release import plugin
from tidepool_release.source import Source

DISK, NAME = "/dev/vdb", "tidepool-vdb"
LEFT = "ls /dev/mapper/tidepool* /dev/tidepool /var/lib/tidepool/swap 2>/dev/null || :; grep tidepool /proc/swaps || :"
OVER = 48  # MiB that a program has beyond the guest's memory
SHARES = ("files", "devices", "swap", "applications")
CLIENTS = paths.ROOT / "clients"
EXAMPLES = "share/examples"  # below /usr/local
POOLS_OF_EXAMPLES = ("cached", "cached.py", "sessions")
LOOKED_AT, UNSEEN = "/usr/share", "/usr/share/unseen"  # what they list, and a file that is made when they have


def pool() -> Object:
    """As docs/how-to have it: with a raw disk, a swap file, and memory for root's programs."""
    one = copy.deepcopy(ONE_TO_ONE)
    wanted = {"devices": [DISK], "force": [DISK], "swap": {"backing": "File", "size": "128Mi"}}
    one["spec"]["borrowers"] |= wanted | {"applications": {"size": "64Mi"}}
    return one


@pytest.fixture
def bare_disk(product: Product) -> Iterator[Product]:
    """The borrower's disk has no file system for as long as the test."""
    lab.guest(BORROWER, "umount /mnt")
    yield product
    product.delete()
    product.format_disk("ext4")


def test_a_pool_serves_files_a_disk_swap_and_programs(bare_disk: Product) -> None:
    """Through cluster, operator and agent: each gets its pages from the lender, none is wrong, and nothing stays."""
    bare_disk.apply_ready(pool())
    assert guest_status()["swap"]["lent"]
    assert [one["name"] for one in guest_status()["devices"]] == [NAME]
    _use_all_of_it(bare_disk)
    until("each has its share of the hits", lambda: all(float(one) > 0 for one in shares().values()))
    found = shown()
    assert (found["DEVICES"], found["SWAP"]) == ("1", "128Mi")
    assert all(float(found[f"{name} HITS"]) > 0 for name in ("FILE", "DEVICE", "SWAP", "APPLICATION")), found
    _assert_counted(bare_disk)
    bare_disk.assert_sound()
    bare_disk.delete()
    until("nothing is left in the guest", lambda: not lab.guest(BORROWER, LEFT).strip())
    bare_disk.assert_nothing_left()


def pool_of_programs() -> Object:
    """As docs/how-to/applications.md has it: the group of Redis may open the device."""
    (shown,) = docs.examples("docs/how-to/applications.md")
    one = copy.deepcopy(ONE_TO_ONE)
    wanted = yaml.safe_load(shown)["spec"]["borrowers"]["applications"]
    one["spec"]["borrowers"] |= {"applications": wanted | {"size": "64Mi"}}
    return one


@pytest.fixture
def clients(product: Product, tmp_path: Path) -> Iterator[Product]:
    """The borrower has libraries and examples, and its Redis loads the module as clients/README.md says."""
    lab.call("cp", built(tmp_path), f"{BORROWER}:/usr/")
    (loads,) = re.findall(r"^loadmodule .* POOL .*$", (CLIENTS / "README.md").read_text(), re.MULTILINE)
    lab.guest(BORROWER, f"ldconfig; systemctl daemon-reload; echo '{loads}' >> /etc/redis/redis.conf")
    yield product
    lab.guest(BORROWER, "systemctl stop redis-server")


def built(folder: Path) -> Path:
    """A guest's /usr/local with library and module by `make install`, Python's wheel, and the examples."""
    root = folder / "root"
    for part in ("c", "redis"):
        places = [f"DESTDIR={root}", f"BUILD={folder / part}"]
        subprocess.run(["make", "-s", "-C", CLIENTS / part, "install", *places], check=True)
    local = root / "usr/local"
    wheel = plugin.wheel("clients/python", folder, folder / "work", Source.here())
    packages = local / "lib/python3.11/dist-packages"  # where Debian's own Python looks
    subprocess.run([*plugin.PIP, "install", "--no-index", "--target", packages, wheel], check=True)
    examples = local / EXAMPLES
    examples.mkdir(parents=True)
    for name in ("python/examples/cached.py", "redis/examples/cached.sh"):
        shutil.copy(CLIENTS / name, examples)
    build = f"cc {CLIENTS}/c/examples/cached.c $(pkg-config --cflags --libs tidepool) -o {examples}/cached"
    found = {"PKG_CONFIG_PATH": f"{local}/lib/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": str(root)}
    subprocess.run(["bash", "-ec", build], check=True, env=os.environ | found)
    return local


def test_examples_of_clients_have_what_they_print_from_the_lender(clients: Product) -> None:
    """Called as clients/README.md says: in C, in Python, and by Redis, whose service opens the device as its group."""
    clients.apply_ready(pool_of_programs())
    clients.wait_condition("memoryguest", BORROWER, "ApplicationsReady", "True")
    lab.guest(BORROWER, "systemctl start redis-server")
    for line in docs.commands("examples"):
        _assert_kept(f"cd /usr/local/{EXAMPLES} && {line}")
    counted = "tidepool_guest_value_pool_hits_total"
    for name in POOLS_OF_EXAMPLES:
        until(f"{name} has hits", lambda: clients.exported(counted, guest=BORROWER, value_pool=name))  # noqa: B023
    until("values have a share of the hits", lambda: float(shares()["applications"]) > 0)
    clients.assert_sound()


def _assert_kept(line: str) -> None:
    """It prints what was so when it was called first; pages of that came from the lender."""
    first = lab.guest(BORROWER, line)
    assert re.fullmatch(rf"\d+\t{LOOKED_AT}\n", first), first
    before = page_hits()
    try:
        lab.guest(BORROWER, f"fallocate -l 1M {UNSEEN}")
        assert lab.guest(BORROWER, line) == first
        assert lab.guest(BORROWER, f"du -s {LOOKED_AT}") != first
    finally:
        lab.guest(BORROWER, f"rm -f {UNSEEN}")
    assert page_hits() > before


def page_hits() -> int:
    """Pages of values that came from the lender."""
    return int(lab.guest(BORROWER, "sed -n 's/^page_hits //p' /sys/class/misc/tidepool/stats"))


def guest_status() -> Object:
    """What the borrower's MemoryGuest says."""
    found: Object = lab.get("memoryguest", BORROWER)["status"]
    return found


def shares() -> dict[str, str]:
    """Of the pool's hits, by what they are of."""
    found = lab.get("memorypool", POOL)["status"].get("hitShares", {})
    return {name: found.get(name, "0") for name in SHARES}


def shown() -> dict[str, str]:
    """The pool's columns, as kubectl prints them; some are empty."""
    head, row = lab.kubectl("get", "memorypool", POOL, "-o", "wide").splitlines()
    begins = [found.start() for found in re.finditer(r"\S+(?: \S+)*", head)]
    ends = [*begins[1:], None]
    return {head[begin:end].strip(): row[begin:end].strip() for begin, end in zip(begins, ends, strict=True)}


def _use_all_of_it(product: Product) -> None:
    """One after the other; each program verifies what it gets back."""
    for _ in range(2):
        product.stress(f"device /dev/mapper/{NAME} beside={DISK} mib=32 seconds=10")
        available = int(lab.guest(BORROWER, "sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")) >> 10
        product.stress(f"scan {available + OVER} seconds=20")
        values = report(lab.guest(BORROWER, f"{STRESS} values - keys=2000 changes=20000 seconds=60"))
        assert values["hits"] > 0, values
        assert values["wrong_pages"] == values["errors"] == 0, values
        product.stress("fill /root/file mib=200")
        product.stress("sequential /root/file passes=2")
    lab.guest(BORROWER, "rm /root/file")


def _assert_counted(product: Product) -> None:
    """The agent exports what each had from the lender, as the dashboard's panels ask for it."""
    for front_end in ("device", "swap"):
        assert product.exported("tidepool_guest_device_hits_total", guest=BORROWER, front_end=front_end), front_end
    assert product.exported("tidepool_guest_value_page_hits_total", guest=BORROWER)
