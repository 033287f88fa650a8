"""Names of `exir.emit._emitter` that code of others imports."""

from __future__ import annotations

from typing import TypeAlias

#: From an identifier of a delegate's own, one kind of them in a map, to debug handles.
_DelegateDebugIdentifierMap: TypeAlias = dict[int, tuple[int]] | dict[str, tuple[int]]
