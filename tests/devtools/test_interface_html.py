"""What notebooks show of programs and methods: whole, and with nothing of the file as markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.export import Dim, export

import pteron
from pteron.devtools.interface_html import MOST_METHODS, method_html, program_html
from pteron.exir import to_edge

HOSTILE = "<img src=x onerror=alert(1)>&\"'</td>"


class Counter(torch.nn.Module):
    """A count, and a row for each of some rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.layer(rows) + self.count


class _Page(HTMLParser):
    """Text of cells by row, all tags, and whether they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open[-1:] in (["td"], ["th"]):
            self.rows[-1][-1] += data


def _saved(folder: Path) -> Path:
    exported = export(Counter().eval(), (torch.ones(2, 4),), dynamic_shapes=({0: Dim("n", min=1, max=8)},))
    path = folder / "<b>counter&.pte"
    path.write_bytes(to_edge(exported).to_executorch().buffer)
    return path


def test_a_program_shows_its_file_and_its_methods(tmp_path: Path) -> None:
    path = _saved(tmp_path)
    page = _Page(pteron.load(path)._repr_html_())
    assert f"pteron.Program of {path}, " in page.text
    assert "forward: " in page.text
    assert page.rows[0] == ["value", "role", "type", "shape", "bytes at most"]
    assert page.rows[1][:3] == ["rows", "input", "float32"]
    assert page.rows[1][3].endswith("1..8, 4]")
    assert page.rows[1][4] == str(8 * 4 * 4)
    assert [row[1] for row in page.rows[1:]] == ["input", "output", "state"]
    assert page.rows[3][2:] == ["float32", "[3]", "12"]
    assert page.tags <= {"p", "details", "summary", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert "of " not in _Page(pteron.load(path.read_bytes())._repr_html_()).text.partition(",")[0]


def test_a_method_shows_what_it_takes_and_gives(tmp_path: Path) -> None:
    page = _Page(pteron.load(_saved(tmp_path)).load_method()._repr_html_())
    assert "pteron.Method forward" in page.text
    assert [row[1] for row in page.rows[1:]] == ["input", "output"]


def _value(**facts: Any) -> Any:
    plain = {"name": HOSTILE, "kind": "tensor", "dtype": None, "shape": None, "nbytes": None}
    return SimpleNamespace(**{**plain, "range": None, "value": None, **facts})


def test_nothing_of_a_file_is_markup() -> None:
    values = (
        _value(dtype="float32", shape=(HOSTILE, 2), nbytes=8),
        _value(kind="int", range=(1, 5)),
        _value(kind="str", value=HOSTILE),
        _value(kind="none"),
    )
    method: Any = SimpleNamespace(name=HOSTILE, inputs=values, outputs=())
    page = _Page(method_html(method))
    assert "img" not in page.tags
    assert f"pteron.Method {HOSTILE}" in page.text
    assert [row[0] for row in page.rows[1:]] == [HOSTILE] * 4
    assert [row[3] for row in page.rows[1:]] == [f"[{HOSTILE}, 2]", "1..5", HOSTILE, ""]
    names = tuple(f"{HOSTILE}{at}" for at in range(MOST_METHODS + 2))
    program: Any = SimpleNamespace(
        methods=names,
        inputs=lambda _: values,
        outputs=lambda _: (),
        buffers=lambda _: (),
        backends=lambda _: (HOSTILE,),
        operators=lambda _: (HOSTILE, HOSTILE),
    )
    page = _Page(program_html(program, HOSTILE, 1500))
    assert "img" not in page.tags
    assert f"pteron.Program of {HOSTILE}, 1.5 kB" in page.text
    assert f"{names[0]}: 2 operators, delegates of {HOSTILE}" in page.text
    assert "and 2 more methods" in page.text
    assert names[-1] not in page.text
