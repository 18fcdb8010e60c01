"""NFS, Puma's case of a file system without a disk: its pages stay in the guest, and why they do."""

from __future__ import annotations

import pytest

from bed.guest import Guest
from bed.pair import BORROWER_ADDRESS, LENDER_ADDRESS, PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress, wrong_pages

FILE_MIB = 8
MODULES = ("nfsv4", "nfsd")
GRACE_SECONDS = 10  # the least that a server waits for clients of an earlier life
# What rpc.mountd would answer the kernel's NFS server: who asks, what is exported, which file system handle 0 is.
NEVER = 2**31 - 1
INSECURE_PORT, ASYNC, NO_SUBTREE_CHECK, BY_NUMBER = 0x2, 0x10, 0x400, 0x2000
ANSWERS = {
    "auth.unix.ip": f"nfsd {BORROWER_ADDRESS} {NEVER} all",
    "nfsd.export": f"all /mnt {NEVER} {INSECURE_PORT | ASYNC | NO_SUBTREE_CHECK | BY_NUMBER} 65534 65534 0",
    "nfsd.fh": rf"all 1 \x00000000 {NEVER} /mnt",
}


def serve(guest: Guest) -> None:
    """The kernel's NFS server, exporting /mnt."""
    guest.sh("mount -t nfsd nfsd /proc/fs/nfsd")
    guest.write("/proc/fs/nfsd/nfsv4gracetime", f"{GRACE_SECONDS}\n")
    guest.write("/proc/fs/nfsd/versions", "-3 +4\n")
    guest.write("/proc/fs/nfsd/portlist", "tcp 2049\n")
    for cache, answer in ANSWERS.items():
        guest.write(f"/proc/net/rpc/{cache}/channel", f"{answer}\n")
    guest.write("/proc/fs/nfsd/threads", "2\n")


def changed_on_the_server(pair: Pair) -> int:
    """Wrong pages in a file that was read and evicted, then written anew on its server, and read again."""
    borrower, server = pair.borrower, pair.lender
    server.mount("ext4")
    serve(server)
    pair.connect(size=64 * MIB, more=PATIENT)
    options = f"vers=4.2,addr={LENDER_ADDRESS},clientaddr={BORROWER_ADDRESS}"
    borrower.sh(f"mount -t nfs4 -o {options} {LENDER_ADDRESS}:/ /mnt")
    stress(server, f"fill /mnt/file mib={FILE_MIB} version=1")
    wrong = wrong_pages(borrower, "sequential /mnt/file version=1")
    pair.evict()
    stress(server, f"fill /mnt/file mib={FILE_MIB} version=2")
    wrong += wrong_pages(borrower, "sequential /mnt/file version=2")
    borrower.umount()
    return wrong


def test_refused(kernel: str) -> None:
    """A file of an NFS server is read as it is there; nothing of it is put, and the log says why."""
    with (pair := Pair(kernel, disk=None, lender_disk="ext4", modules=MODULES)) as (borrower, _):
        assert changed_on_the_server(pair) == 0
        assert pair.borrowed()["puts_sent"] == 0
        assert borrower.log().count("tidepool: pages of nfs4 stay here") == 1
        pair.assert_clean()


@pytest.mark.long
def test_would_be_stale(kernel: str) -> None:
    """Pages that were put are read when their file has changed: the page cache was empty, and the client content."""
    with (pair := Pair(kernel, disk=None, lender_disk="ext4", modules=MODULES, broken="NFS")):
        assert changed_on_the_server(pair) > 0
