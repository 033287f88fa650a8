"""One program for each file in a process, for all who ask for the same one: pickled programs and predictors.

A pickle may arrive many times, once for each task of a pool: the last few programs stay loaded between them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from pteron._native import Program
    from pteron.recipe import Recipe

__all__ = ["KEPT", "forget", "loading", "program_of"]

#: Programs that stay loaded although nobody holds them; those beyond go when their last holder lets go.
KEPT = 4


class _Cache:
    """The programs of this process, and the lock under which they are loaded."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.programs: weakref.WeakValueDictionary[Hashable, Program] = weakref.WeakValueDictionary()
        self.recent: OrderedDict[Hashable, Program] = OrderedDict()

    def renew_lock(self) -> None:
        """In a forked child: a thread of the parent that held the lock is not there to let go."""
        self.lock = threading.RLock()


_CACHE = _Cache()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CACHE.renew_lock)


def loading() -> AbstractContextManager[object]:
    """The lock under which this process loads programs; one thread may take it more than once."""
    return _CACHE.lock


def program_of(recipe: Recipe) -> Program:
    """The program of a recipe, loaded when it is first asked for; what `FileSource.here` and `load` raise.

    A file that was written since is another one: it is loaded again, and who has the older program keeps it.
    """
    cache = _CACHE
    with cache.lock:
        found = recipe.here()
        key = found.key()
        program = cache.programs.get(key)
        if program is None:
            program = cache.programs[key] = found.load()
        cache.recent[key] = program
        cache.recent.move_to_end(key)
        while len(cache.recent) > KEPT:
            cache.recent.popitem(last=False)
        return program


def forget(program: Program | None = None) -> None:
    """Lets go of a program, or of all: their memory is free as soon as nobody else holds them."""
    cache = _CACHE
    with cache.lock:
        for key in [key for key, kept in cache.recent.items() if program is None or kept is program]:
            del cache.recent[key]
        for key in [key for key, known in cache.programs.items() if program is None or known is program]:
            del cache.programs[key]
