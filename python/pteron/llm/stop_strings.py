"""Texts that end a text: found across pieces, and never given out."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes pieces on, but holds back what may be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found: str | None = None

    def push(self, piece: str) -> str:
        """What can be given out; `found` is set where a stop string came. The earliest one counts, of two at
        one place the longest.
        """
        if not self._stops:
            return piece
        text = self._held + piece
        hits = [(at, -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            at, _, self.found = min(hits)
            self._held = ""
            return text[:at]
        keep = max(self._beginning(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back when nothing follows."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _beginning(text: str, stop: str) -> int:
        """How many characters at the end of `text` begin `stop`."""
        most = min(len(stop) - 1, len(text))
        return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
