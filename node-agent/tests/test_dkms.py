"""Item 9: what the agent does in a guest that has DKMS, a compiler and headers.

Such a guest is larger than the tests' own: here it is this machine, in namespaces of its own, where nothing that is
written outlasts the test.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tiny import PATH, TOP, Kernel

from tidepool_agent.errors import ModuleUnavailable
from tidepool_agent.guest import SCRIPT
from tidepool_agent.store import Sources, Store

TOOLS = TOP / "kernel-module/tools"
# Whatever the guest agent's script writes to goes to memory; dkms is the cache's.
GUEST = """
mount -t tmpfs tmpfs /run
for folder in /usr /var/lib /etc; do
    mkdir -p /run/over$folder/upper /run/over$folder/work
    mount -t overlay -o lowerdir=$folder,upperdir=/run/over$folder/upper,workdir=/run/over$folder/work overlay $folder
done
mkdir -p /lib/modules/$RELEASE /run/tidepool /usr/src /var/lib/dkms
ln -s $HEADERS /lib/modules/$RELEASE/build
cp -r $DKMS/usr/sbin/dkms /usr/sbin/
cp -r $DKMS/usr/lib/dkms /usr/lib/
cp -r $DKMS/etc/dkms /etc/
printf '#!/bin/sh\\n[ "$1" != -r ] || exec echo %s\\nexec busybox uname "$@"\\n' $RELEASE >/usr/bin/uname
cp $ARCHIVE /run/tidepool/source.tar.gz
sh -c "$SCRIPT" tidepool can_build && sh -c "$SCRIPT" tidepool build "$@"
sh -c "$SCRIPT" tidepool clear
ls /run/tidepool 2>/dev/null || :
cat /lib/modules/$RELEASE/updates/dkms/tidepool.ko >"$OUT"
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sources]:
    """The archive of a store, and how the agent reads it."""
    store = tmp_path_factory.mktemp("sources")
    subprocess.run([TOOLS / "store", store, "6.1"], check=True, stdout=subprocess.DEVNULL)
    (archive,) = store.glob("source/*.tar.gz")
    return archive, Store(store).sources()


def test_dkms_builds_and_installs_the_module_from_the_stores_sources(
    kernel: Kernel, sources: tuple[Path, Sources], tmp_path: Path
) -> None:
    """For the kernel that runs, and nothing that was delivered is left."""
    archive, found = sources
    dkms = subprocess.run([TOOLS / "dkms", "fetch"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    out = tmp_path / "tidepool.ko"
    variables = {"RELEASE": kernel.release, "HEADERS": str((kernel.folder / "build").resolve()), "SCRIPT": SCRIPT}
    variables |= {"DKMS": str(Path(dkms).parents[2]), "ARCHIVE": str(archive), "OUT": str(out), "PATH": PATH}
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", GUEST, "sh", found.sha256, found.version]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"vermagic={kernel.release} ".encode() in out.read_bytes()


def test_sources_that_were_damaged_never_leave_the_store(sources: tuple[Path, Sources], tmp_path: Path) -> None:
    archive, found = sources
    (tmp_path / "source").mkdir()
    copy = tmp_path / "source" / archive.name
    copy.write_bytes(found.data[:-1])
    copy.with_name(f"{archive.name}.sha256").write_text(f"{found.sha256}  {archive.name}\n")
    with pytest.raises(ModuleUnavailable, match="checksum"):
        Store(tmp_path).sources()
    with pytest.raises(ModuleUnavailable, match="has no sources"):
        Store(tmp_path / "empty").sources()
