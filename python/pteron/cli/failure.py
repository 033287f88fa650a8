"""What a user is told when a command cannot go on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pteron import PteronError

#: What helps, by the number of the system's error.
HELP = {
    errno.EACCES: "change its permissions, or name another file",
    errno.EPERM: "change its permissions, or name another file",
    errno.EROFS: "name a place that can be written",
    errno.ENOSPC: "free some space, or name another place",
    errno.EDQUOT: "free some space, or name another place",
    errno.EFBIG: "the limit on the size of files is lower (ulimit -f), or name another place",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "check the path",
    errno.ENAMETOOLONG: "name it shorter",
}


class UsageError(Exception):
    """Arguments that do not fit together, or not to the program."""


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Errors of pteron inside name the file."""
    try:
        yield
    except PteronError as e:
        e.add_note(str(path))
        raise


def one_line(error: BaseException) -> str:
    """The text of an error in one line, behind its notes, which name files; an `OSError` with its file and
    with what helps.
    """
    if isinstance(error, MemoryError):
        return f"not enough memory: {error or 'make inputs smaller'}"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        advice = _missing(error.filename) if error.errno == errno.ENOENT else HELP.get(error.errno or 0)
        return f"{where}{error.strerror}{f': {advice}' if advice else ''}"
    lines = [line.strip() for line in str(error).splitlines()]
    text = "; ".join(line for line in lines if line)
    return ": ".join([*getattr(error, "__notes__", ()), text])


def _missing(name: object) -> str:
    parent = Path(str(name)).parent
    return "check the name" if parent.is_dir() else f"there is no folder {parent}"
