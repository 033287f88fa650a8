"""What the machine can do at most, for the commands that show shares of it."""

from __future__ import annotations

import argparse

from pteron.cli.failure import UsageError
from pteron.devtools.ceiling import Ceiling, MachineCeiling, machine_ceiling

MEASURE, OFF = "measure", "off"


def add_ceiling(parser: argparse.ArgumentParser) -> None:
    """What this machine can do at most."""
    parser.add_argument(
        "--ceiling",
        metavar=f"{MEASURE}|GFLOPS,GB/S|{OFF}",
        help="what this machine can do at most, of which shares are shown: measured now, given, or not shown"
        " (default: as it was measured before, which takes a second once)",
    )


def given_ceiling(options: argparse.Namespace) -> Ceiling | None:
    """The two numbers, where the option has them.

    Raises:
        UsageError: they are no numbers above 0.
    """
    if options.ceiling in (None, MEASURE, OFF):
        return None
    try:
        gflops, gigabytes = (float(word) for word in options.ceiling.split(","))
    except ValueError:
        raise UsageError(
            f"--ceiling: {options.ceiling!r} is not {MEASURE}, {OFF}, or two numbers as in 200,40"
        ) from None
    if not all(0 < value < float("inf") for value in (gflops, gigabytes)):
        raise UsageError("--ceiling: both numbers must be positive")
    return Ceiling(gflops, gigabytes)


def ceiling_of(options: argparse.Namespace, num_threads: int) -> Ceiling | MachineCeiling | None:
    """What the options ask for; measured with their instruction set.

    Raises:
        UsageError: the option is no ceiling, or there is no such instruction set.
    """
    if options.ceiling == OFF:
        return None
    given = given_ceiling(options)
    if given is not None:
        return given
    try:
        return machine_ceiling(num_threads, options.isa, is_fresh=options.ceiling == MEASURE)
    except ValueError as e:
        raise UsageError(str(e)) from None
