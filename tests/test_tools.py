"""The scripts that write pages: figures of one machine and one build, every benchmark among them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python" / "tools"))

import bench_page  # noqa: E402

MACHINE = {"processor": "P", "pteron": "0.1.0, build aaaaaaa"}
TABLE = {"title": "All", "columns": ["model", "run"], "rows": [["a", "1.0 ms"]]}


def _save(folder: Path, key: str, machine: dict[str, str], **content: object) -> None:
    result = {"machine": machine, "commit": "c", "command": key, "load": 0.5, **content}
    (folder / f"{key}.json").write_text(json.dumps(result))


def test_a_page_has_the_figures_that_are_there(tmp_path: Path) -> None:
    _save(tmp_path, "demo", MACHINE, tables=[TABLE])
    _save(tmp_path, "gemm", MACHINE, text="FMA ceiling 172.8 GFLOP/s")
    text = bench_page.page(tmp_path)
    assert "| model | run |\n|---|---|\n| a | 1.0 ms |\n" in text
    assert "```text\nFMA ceiling 172.8 GFLOP/s\n```" in text
    assert "| processor | P |" in text
    assert "| commit | c |" in text
    assert text.count("No figures of this run") == len(bench_page.SECTIONS) - 2


def test_figures_of_two_builds_do_not_make_a_page(tmp_path: Path) -> None:
    _save(tmp_path, "demo", MACHINE, tables=[TABLE])
    _save(tmp_path, "gemm", MACHINE | {"pteron": "0.1.0, build bbbbbbb"}, text="FMA ceiling")
    with pytest.raises(SystemExit, match=r"gemm differs in pteron: .* a+' and .* b+'"):
        bench_page.page(tmp_path)


@pytest.mark.parametrize("section", bench_page.SECTIONS, ids=lambda section: section.key)
def test_commands_of_the_page_save_their_figures(section: bench_page.Section) -> None:
    assert section.full[0] == section.quick[0]
    if section.full[0] in ("cargo", "pytest"):
        assert section.keep, "which lines of the output are figures?"
    else:
        source = (ROOT / "benches" / section.full[0]).read_text()
        assert "add_json_option(parser)" in source
        assert "tables.save(options)" in source


def test_the_page_is_written_by_the_tool() -> None:
    text = (ROOT / "benches" / "README.md").read_text()
    assert text.startswith(bench_page.HEAD)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        section.title for section in bench_page.SECTIONS
    ]
