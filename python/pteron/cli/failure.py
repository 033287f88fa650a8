"""What a user is told when a command cannot go on."""

from __future__ import annotations


class UsageError(Exception):
    """Arguments that do not fit together, or not to the program."""


def one_line(error: BaseException) -> str:
    """The text of an error in one line; an `OSError` with the file that it is about."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    lines = [line.strip() for line in str(error).splitlines()]
    return "; ".join(line for line in lines if line)
