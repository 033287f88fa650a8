"""Backends from other packages, compiled or not: what is installed, and loading it on request.

A package offers the run half of a backend in the entry-point group `pteron.backends`: the name is the
backend's id, the object is what `pteron.register_backend` takes (a capsule of the C interface in
`pteron_backend.h`, or an object with `init`). It offers the compile half in the group `pteron.partitioners`:
under the same name, a `Partitioner` class.

Nothing is imported or loaded unless it is asked for by `load`, `load_needed` or `load_partitioner`; a program
cannot cause it. `python -m pteron.plugins list` prints what there is, `python -m pteron.plugins new` makes a
package with a backend that works.
"""

from pteron.plugins.installed import (
    GROUP,
    PARTITIONERS,
    InstalledBackend,
    details,
    installed,
    offer_of,
    partitioner_offer_of,
)
from pteron.plugins.library import get_include, open_library
from pteron.plugins.loading import load, load_needed, load_partitioner

__all__ = [
    "GROUP",
    "PARTITIONERS",
    "InstalledBackend",
    "details",
    "get_include",
    "installed",
    "load",
    "load_needed",
    "load_partitioner",
    "offer_of",
    "open_library",
    "partitioner_offer_of",
]
