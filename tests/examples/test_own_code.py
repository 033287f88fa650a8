"""Examples with code of the user's: a backend, an operator, a quantised network, a profile, a server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import pteron
from tests.examples.running import EXAMPLES, ROOT, command, environment, run
from tests.support.waiting import until

FENCE = ((1.0, 0.5), (9.0, 1.0), (7.0, 3.0), (9.5, 5.5), (4.0, 4.0), (1.5, 5.5))


def test_write_a_backend(tmp_path: Path) -> None:
    report = run(tmp_path, "write_a_backend", "export", "mlp.pte")
    assert "1 delegate with 2 operators" in report
    assert pteron.load(tmp_path / "mlp.pte").backends("forward") == ("NumpyBackend",)
    with pytest.raises(pteron.MissingBackendError, match="NumpyBackend"):
        pteron.load(tmp_path / "mlp.pte").load_method("forward")
    assert run(tmp_path, "write_a_backend", "run", "mlp.pte", torch=False).splitlines() == [
        "backends: NumpyBackend",
        "the largest difference from NumPy: 0.0",
    ]


def winding(x: float, y: float) -> bool:
    """Whether a point is inside of the fence, by the angles at which it sees the corners."""
    corners = np.array([complex(*corner) for corner in FENCE]) - complex(x, y)
    return abs(np.angle(np.roll(corners, -1) / corners).sum()) > np.pi


def test_custom_operator(tmp_path: Path) -> None:
    run(tmp_path, "custom_operator", "export", "fence.pte")
    named, *rows = run(tmp_path, "custom_operator", "run", "fence.pte", torch=False).splitlines()
    assert named == "operators: aten::add.out, fences::inside.out"
    expected = [
        "".join("#" if winding(x + 0.01, y + 0.01) else "." for x in np.arange(0, 10, 0.25))
        for y in np.arange(0, 6, 0.5)
    ]
    assert rows[::-1] == expected


def test_quantise(tmp_path: Path) -> None:
    layers = run(tmp_path, "quantise", "export", "digits")
    assert re.findall(r"^(\d+) +(conv2d|linear) +int8", layers, flags=re.MULTILINE) == [
        ("0", "conv2d"),
        ("3", "conv2d"),
        ("6", "conv2d"),
        ("11", "linear"),
    ]
    heading, *rows, differ = run(tmp_path, "quantise", "compare", "digits", torch=False).splitlines()
    assert heading.split() == ["program", "bytes", "us", "a", "call", "right"]
    (_, whole, _, right), (_, small, _, right_small) = (row.split() for row in rows)
    assert int(small.replace(",", "")) < 0.4 * int(whole.replace(",", ""))
    assert float(right.rstrip("%")) > 95
    assert float(right_small.rstrip("%")) > 95
    assert int(differ.split()[0]) < 10


def test_find_what_is_slow(tmp_path: Path) -> None:
    run(tmp_path, "find_what_is_slow", "model.pte", "--demo")
    said = run(tmp_path, "find_what_is_slow", "model.pte", "--report", "report.html", torch=False)
    operators, modules = (part.splitlines() for part in said.split("\n\n")[:2])
    assert operators[1].startswith("aten::convolution.out")
    assert modules[1].split()[0] == "wide"
    assert {row.split()[0] for row in modules[1:]} >= {"wide", "stem", "head"}
    assert "aten::convolution.out" in (tmp_path / "report.html").read_text()


def test_serve(tmp_path: Path) -> None:
    run(tmp_path, "serve", "export", "iris.pte")
    log = tmp_path / "log"
    with log.open("w") as errors:
        server = subprocess.Popen(
            command("serve", "serve", "iris.pte", "--port", 0, torch=False),
            cwd=tmp_path,
            env=environment(),
            stderr=errors,
        )
    try:
        until(lambda: "running on" in log.read_text() or server.poll() is not None, "the server")
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        assert found, log.read_text()
        for flower, kind in (((5.1, 3.5, 1.4, 0.2), "setosa"), ((6.7, 3.0, 5.2, 2.3), "virginica")):
            first = run(tmp_path, "serve", "ask", found[0], *flower, torch=False).splitlines()[0]
            share, name = first.split()
            assert name == kind
            assert float(share.rstrip("%")) > 80
    finally:
        server.terminate()
        server.wait(30)


def test_the_page_and_the_tests_name_every_example() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    page = (ROOT / "docs" / "start" / "examples.md").read_text()
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert len(names) == 11, "ten examples, and the shapes that models of images are trained on"
    for name in names:
        assert f"(../../python/examples/{name}.py)" in page, name
        assert f'run(tmp_path, "{name}"' in tests or f'run(folder, "{name}"' in tests, name
