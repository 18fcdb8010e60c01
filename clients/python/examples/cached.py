"""Prints what a command has printed in the last SECONDS, and runs it if that is gone:  cached.py SECONDS 'COMMAND'"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

import tidepool


def cached(pool: tidepool.Pool, key: bytes, seconds: float, make: Callable[[], bytes]) -> bytes:
    """The value of a key. If there is none, or no lender gave it back, it is made, and kept for so many seconds."""
    value = pool.get(key)
    if value is None:
        value = make()
        try:
            pool.put(key, value, expire=seconds)
        except tidepool.TidepoolError as error:  # it is made again the next time
            print(f"cached.py: not kept: {error}", file=sys.stderr)
    return value


def output_of(command: str, seconds: float) -> bytes:
    """What a command has printed in the last so many seconds; CalledProcessError if it fails."""
    with tidepool.Pool("cached.py") as pool:
        return cached(pool, command.encode(), seconds, lambda: subprocess.check_output(command, shell=True))


def main() -> None:
    """As its command line says."""
    parser = argparse.ArgumentParser(description="Prints what a command has printed in the last so many seconds.")
    parser.add_argument("seconds", type=float)
    parser.add_argument("command")
    given = parser.parse_args()
    try:
        sys.stdout.buffer.write(output_of(given.command, given.seconds))
    except (tidepool.TidepoolError, subprocess.CalledProcessError) as error:
        sys.exit(f"cached.py: {error}")


if __name__ == "__main__":
    main()
