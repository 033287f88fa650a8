"""`make bench-field`: which rows there are, what its tables say, what it takes for a regression. No times."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benches"))

import field_rows  # noqa: E402
import field_speed  # noqa: E402
import field_table  # noqa: E402
from field_engines import ENGINES, file_of  # noqa: E402

CEILINGS = {"isa": "avx2", "flops": 100e9, "read": [[1 << 20, 80e9], [1 << 28, 10e9]]}


def _figures(wall: float) -> dict[str, float]:
    loads = {"load": 3.0, "load processor": 4.0}
    return {"wall": wall, "processor": 2 * wall, **loads, "memory": 10.0, "difference": 1e-6}


def _row(**walls: float) -> dict[str, Any]:
    engines = {name: _figures(wall) for name, wall in walls.items()}
    return {"engines": engines, "clock": "wall", "limit": 1.0, "bound": "compute"}


def _store(**rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"processor": "P", "processors": "2"}
    head = {"machine": machine, "commit": "c", "load": 0.5, "ceilings": CEILINGS, "note": "Busy."}
    return {**head, "rows": {name: {"1": row} for name, row in rows.items()}}


def test_every_tested_architecture_has_a_row_or_a_reason() -> None:
    page = (ROOT / "docs" / "reference" / "models.md").read_text()
    tested = re.findall(
        r"^\| ([^|]+) \| (?:vision|text encoder|decoder|encoder-decoder|speech|multimodal) \|", page, re.M
    )
    assert len(tested) > 40
    assert set(tested) == set(field_rows.ARCHITECTURES) | set(field_rows.TOO_LARGE)
    assert not set(field_rows.ARCHITECTURES) & set(field_rows.TOO_LARGE)


def test_rows_are_models_that_can_be_built_so() -> None:
    import published_models
    import published_more

    builders = published_models.PUBLISHED | published_more.MORE
    assert len(field_rows.BY_NAME) == len(field_rows.ROWS)
    assert sum(row.batch == 8 for row in field_rows.ROWS) == 10
    assert {row.model for row in field_rows.ROWS} <= builders.keys()
    for model in field_rows.LENGTHS:
        builder = builders[model]
        call = builder.__call__ if isinstance(builder, published_more.Published) else builder
        assert "tokens" in inspect.signature(call).parameters, model


@pytest.mark.parametrize(
    ("row", "shapes"),
    [
        (field_rows.Row("lstm", batch=3), [(3, 32, 128)]),
        (field_rows.Row("minilm", batch=2), [(2, 128), (2, 128)]),
        (field_rows.Row("mobilenet_v2", pixels=64), [(1, 3, 64, 64)]),
    ],
)
def test_a_row_has_its_batch_and_size(row: field_rows.Row, shapes: list[tuple[int, ...]]) -> None:
    assert [tuple(argument.shape) for argument in row.build().arguments] == shapes


def test_the_ratio_is_that_of_the_best_peer_there_is() -> None:
    engines = _row(pteron=3.0, onnxruntime=4.0, openvino=2.0)["engines"]
    found = field_table.ratio(engines, "wall")
    assert found is not None
    assert (found.peer, found.value) == ("openvino", 1.5)
    assert field_table.ratio({"pteron": _figures(1.0)}, "wall") is None
    assert field_table.ratio({"openvino": _figures(1.0)}, "wall") is None


def test_the_limit_is_what_binds() -> None:
    # 1 GFLOP at 100 GFLOP/s; threads share the arithmetic.
    assert field_table.limit_ms({"flops": 1e9, "bytes": 1e6}, CEILINGS, 1) == (10.0, "compute")
    assert field_table.limit_ms({"flops": 1e9, "bytes": 1e6}, CEILINGS, 2) == (5.0, "compute")
    # 500 MB at the rate of memory, 2 MiB at that of a cache; threads share neither.
    assert field_table.limit_ms({"flops": 1e9, "bytes": 500e6}, CEILINGS, 2) == (50.0, "memory")
    assert field_table.limit_ms({"flops": 0.0, "bytes": 8e5}, CEILINGS, 1) == (0.01, "memory")


def test_a_regression_is_more_than_five_per_cent_against_the_same_peers() -> None:
    stored = _row(pteron=1.0, onnxruntime=1.0, openvino=2.0)
    assert field_table.slower(stored, _row(pteron=1.04, onnxruntime=1.0, openvino=2.0), "wall") == ""
    # The machine is slower, for everybody.
    assert field_table.slower(stored, _row(pteron=2.0, onnxruntime=2.0, openvino=4.0), "wall") == ""
    assert "1.060x of onnxruntime" in field_table.slower(
        stored, _row(pteron=1.06, onnxruntime=1.0, openvino=2.0), "wall"
    )
    # Another peer has become the best.
    assert "of openvino" in field_table.slower(
        stored, _row(pteron=1.0, onnxruntime=1.0, openvino=0.9), "wall"
    )
    # Without the peer that was there, nothing can be said.
    assert field_table.slower(stored, _row(pteron=9.0, openvino=2.0), "wall") == ""


def _options(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(files=folder, threads=[1], clock="wall", isa="avx2", engines=list(ENGINES))


@pytest.mark.parametrize(("times", "is_error"), [([1.2, 1.0], False), ([1.2, 1.3], True), ([1.0], False)])
def test_a_regression_has_to_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[float], is_error: bool
) -> None:
    path = tmp_path / "avx2.json"
    field_table.save_store(path, _store(lstm=_row(pteron=1.0, onnxruntime=1.0)))
    left = list(times)
    monkeypatch.setattr(field_speed, "take", lambda *_: _row(pteron=left.pop(0), onnxruntime=1.0))
    rows = [field_rows.BY_NAME["lstm"], field_rows.BY_NAME["resnet18"]]
    if is_error:
        with pytest.raises(
            SystemExit, match=r"twice:\nlstm, 1 threads: 1\.300x of onnxruntime, stored 1\.000x"
        ):
            field_speed.compare(_options(tmp_path), rows, path)
    else:
        field_speed.compare(_options(tmp_path), rows, path)
    assert not left


def test_nothing_to_compare_with_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nothing is stored"):
        field_speed.compare(_options(tmp_path), [], tmp_path / "avx2.json")


def test_rows_replace_rows_and_leave_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "avx2.json"
    store = _store(lstm=_row(pteron=1.0), resnet18=_row(pteron=2.0))
    field_table.save_store(path, store)
    assert field_table.load_store(path) == store
    monkeypatch.setattr(field_speed, "take", lambda *_: _row(pteron=9.0))
    monkeypatch.setattr(field_speed, "ceilings_of", lambda _: CEILINGS)
    options = _options(tmp_path)
    options.note, options.ceilings = "", None
    field_speed.measure(options, [field_rows.BY_NAME["lstm"]], path)
    rows = json.loads(path.read_text())["rows"]
    assert [rows[name]["1"]["engines"]["pteron"]["wall"] for name in ("lstm", "resnet18")] == [9.0, 2.0]


def test_avx2_holds_us_and_leaves_out_who_cannot_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_speed, "native_isa", lambda: "avx512")
    held = field_speed.engines_for(list(ENGINES), "avx2")
    assert held == ["pteron", "openvino", "aotinductor", "eager"]
    assert field_speed.environment("pteron", "avx2")["PTERON_ISA"] == "avx2"
    assert field_speed.environment("openvino", "avx2")["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert field_speed.environment("eager", "avx2")["ATEN_CPU_CAPABILITY"] == "avx2"
    monkeypatch.delenv("PTERON_ISA", raising=False)
    assert "PTERON_ISA" not in field_speed.environment("pteron", "avx512")
    # A machine that has no more than AVX2 holds nobody.
    monkeypatch.setattr(field_speed, "native_isa", lambda: "avx2")
    assert field_speed.engines_for(list(ENGINES), "avx2") == list(ENGINES)
    # Code that was compiled for one instruction set is not run as that of another.
    files = {isa: file_of("aotinductor", Path("row"), isa) for isa in field_table.CLASSES}
    assert len(set(files.values())) == 2
    assert file_of("openvino", Path("row"), "avx2") == file_of("onnxruntime", Path("row"), "avx512")


def test_the_page_has_a_table_for_each_class_and_number_of_threads(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Speed\n\n{field_table.BEGIN}\nold\n{field_table.END}\nafter\n")
    rows = {"lstm": _row(pteron=2.0, onnxruntime=1.0), "resnet18": _row(pteron=2.0, openvino=4.0)}
    rows["small"] = _row(pteron=0.5, onnxruntime=5.0)
    rows["alone"] = _row(pteron=2.0)
    field_table.save_store(tmp_path / "avx512.json", _store(**rows))
    field_table.write_page(page, tmp_path)
    text = page.read_text()
    assert "old" not in text
    assert text.endswith(f"{field_table.END}\nafter\n")
    head = "P, 2 processors, load 0.5; a thread does 100 GFLOP/s and reads 10.0 GB/s of 256 MiB. Busy."
    assert f"### AVX-512\n\n{head}" in text
    assert "| lstm | 2.00 | onnxruntime | 1.00 | 2.00x | 50% (compute) | 3.0 | 3.0 onnxruntime | 10 |" in text
    assert "| alone | 2.00 | - | - | - | 50% (compute) | 3.0 | - | 10 | - | 1.0e-06 |" in text
    # Twice and half: rows below a millisecond, and rows without a peer, do not count.
    assert "Geometric mean of 2 ratios above 1 ms: 1.00x." in text
    assert "### AVX2 alone\n\nNo figures have been taken." in text
    page.write_text("# Speed\n")
    with pytest.raises(SystemExit, match="no place for tables"):
        field_table.write_page(page, tmp_path)


def test_a_busy_machine_has_the_times_of_its_processors() -> None:
    row = _row(pteron=2.0, onnxruntime=1.0) | {"clock": "processor"}
    lines = field_table.table(_store(lstm=row), 1)
    assert lines[2].startswith(
        "| lstm | 4.00 | onnxruntime | 2.00 | 2.00x | 25% (compute) | 4.0 | 4.0 onnxruntime |"
    )


def test_the_page_of_the_docs_is_what_is_stored(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(field_table.PAGE.read_text())
    field_table.write_page(page, field_table.STORE)
    assert page.read_text() == field_table.PAGE.read_text(), "run python benches/field_speed.py --write"
