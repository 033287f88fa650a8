"""Where steps come from in the model: operators, modules and source lines of `pteron.debug`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pteron._native import Program
from pteron.devtools.description import Step

DEBUG_KEY = "pteron.debug"


@dataclass(frozen=True)
class Source:
    """A place in the model; a text is empty where the file does not say."""

    operator: str = ""
    module: str = ""
    line: str = ""


class Sources:
    """The table of one method; without entries where the file has none or it cannot be read."""

    def __init__(self, program: Program, method: str) -> None:
        self._files: list[str] = []
        self._table: dict[str, Any] = {}
        text = program.named_data.get(DEBUG_KEY)
        if text is None:
            return
        try:
            data = json.loads(bytes(text))
            self._files = list(data["files"])
            self._table = dict(data["methods"][method])
        except (ValueError, KeyError, TypeError, AttributeError):
            # A stripped or foreign table: the runtime counts it as absent, too.
            return

    def of(self, step: Step) -> list[Source]:
        """The places of a step, in order, each once."""
        found = [self._source(self._table.get("handles"), handle) for handle in step.handles]
        for delegate, _, handle in step.parts:
            found.append(self.source(handle, delegate))
        return list(dict.fromkeys(source for source in found if source != Source()))

    def at(self, instruction: int) -> Source:
        """The place of an instruction of the file, the first with a module; empty where it is not known."""
        table = self._table.get("instructions")
        handles: Any = table[instruction] if isinstance(table, list) and instruction < len(table) else None
        known = handles if isinstance(handles, list) else ()
        found = [self._source(self._table.get("handles"), handle) for handle in known]
        return next((source for source in found if source.module), found[0] if found else Source())

    def of_delegate(self, delegate: int) -> list[tuple[int, Source]]:
        """The handles of a delegate, numbers of its own, with their places; empty where the file has none."""
        tables = self._table.get("delegates")
        table = tables.get(str(delegate)) if isinstance(tables, dict) else None
        handles = table.get("handles") if isinstance(table, dict) else None
        if not isinstance(handles, dict):
            return []
        return [(int(handle), self._source(handles, int(handle))) for handle in handles]

    def handles(self) -> list[int]:
        """The debug handles of the method, in order."""
        entries = self._table.get("handles")
        return sorted(int(handle) for handle in entries) if isinstance(entries, dict) else []

    def module_of(self, instruction: int) -> str:
        """The module of an instruction of the file; empty where it is not known."""
        return self.at(instruction).module

    def event(self, delegate: int, identifier: int | str) -> list[Source]:
        """The places of a delegate's own step, by the backend's map from its ids to handles."""
        _, _, of_steps = self.delegate(delegate)
        return [self.source(handle, delegate) for handle in of_steps.get(str(identifier), [])]

    def handles_of(self, instruction: int) -> list[int]:
        """The debug handles of an instruction of the file; none where they are not known."""
        table = self._table.get("instructions")
        found: Any = table[instruction] if isinstance(table, list) and instruction < len(table) else None
        return [handle for handle in found if type(handle) is int] if isinstance(found, list) else []

    def delegate(self, index: int) -> tuple[str, list[int], dict[str, list[int]]]:
        """The backend of a delegate, all of its debug handles, and those of its steps by their id."""
        table = self._of_delegate(index)
        handles, steps = table.get("handles"), table.get("map")
        return (
            str(table.get("backend", "")),
            [int(handle) for handle in handles if handle.isdecimal()] if isinstance(handles, dict) else [],
            dict(steps) if isinstance(steps, dict) else {},
        )

    def source(self, handle: int, delegate: int | None = None) -> Source:
        """The place of a debug handle, of the method or of one of its delegates."""
        table = self._table if delegate is None else self._of_delegate(delegate)
        return self._source(table.get("handles"), handle)

    def _of_delegate(self, index: int) -> dict[str, Any]:
        tables = self._table.get("delegates")
        table = tables.get(str(index)) if isinstance(tables, dict) else None
        return table if isinstance(table, dict) else {}

    def _source(self, handles: Any, handle: int) -> Source:
        entry = handles.get(str(handle)) if isinstance(handles, dict) else None
        if not isinstance(entry, dict):
            return Source()
        file, line = entry.get("file"), entry.get("line")
        known = isinstance(file, int) and 0 <= file < len(self._files) and line is not None
        return Source(
            str(entry.get("operator", "")),
            str(entry.get("module", "")),
            f"{self._files[file]}:{line}" if known and isinstance(file, int) else "",
        )
