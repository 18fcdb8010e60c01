"""Tests of xfstests' generic group in a borrower whose file systems are in a pool, while pages come and go.

`kernel-module/tests/xfstests` runs it. `programs` makes what is called, `machine` the guest, `outcome` says what
became of a test, and `record` keeps it.
"""
