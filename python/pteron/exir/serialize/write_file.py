"""Write a file so that nobody sees half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_file(target: Path, what: str, write: Callable[[IO[bytes]], None]) -> None:
    """Let `write` fill a file at `target`: a reader sees the old file or the whole new one.

    `what` names the kind of file in messages. OSError where it cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", buffering=0) as file:
            write(file)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        # The system's text names the temporary file, which means nothing to the caller.
        place = "" if target.parent.is_dir() else f"; the directory {target.parent} does not exist, make it"
        reason = f"{what} cannot be written: {error.strerror}{place}"
        raise OSError(error.errno, reason, str(target)) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
