"""`kubectl tidepool`: looks at a cluster with Tidepool in it, and changes nothing.

`cluster` reads, once, everything that a command needs into a `Snapshot`; what follows from it is decided by pure
functions (`figures`, `explain`, `check`, `top`, `who`, `plan`); `cli` puts the two together. `collect` keeps what is
read nearly as it is.
"""

__version__ = "0.2.0"
