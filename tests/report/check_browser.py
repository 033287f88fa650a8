"""Reports in a headless Chromium: every view is drawn, one selection is in all, no name attacks the page.

`make test-report` runs this file; pictures and figures are left in target/report. Needs Debian's `chromium`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.backends.demo import BackendWithDelegateMappingDemo, register_demo_backends
from pteron.devtools.compare import compare
from pteron.devtools.profile import profile
from pteron.devtools.report import Ceiling, Report, Subject, report
from pteron.exir.backend.backend_api import to_backend
from tests.backend.lowering_cases import edge
from tests.report import programs
from tests.report.chromium import Browser

PICTURES = Path(__file__).resolve().parents[2] / "target" / "report"
VIEWS = ("summary", "modules", "flame", "timeline", "graph", "memory", "weights")
#: The mark of the selection, and what is painted below it.
COUNT_COLOURS = """(selector => {
  const canvas = document.querySelector(selector);
  const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Map();
  for (let at = 0; at < bytes.length; at += 4) {
    const key = bytes[at] << 16 | bytes[at + 1] << 8 | bytes[at + 2];
    found.set(key, (found.get(key) ?? 0) + 1);
  }
  return [...found].map(([key, count]) => [key, count]);
})"""
MARK = 0xD6336C
#: How many boxes of the graph are not whole in its frame.
OUTSIDE = """(() => {
  const frame = document.querySelector("#graph svg.graph").getBoundingClientRect();
  return [...document.querySelectorAll("#graph svg.graph .box, #graph svg.graph .group")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.left < frame.left || box.right > frame.right || box.top < frame.top
      || box.bottom > frame.bottom;
  }).length;
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Browser() as one:
        yield one


def inputs(name: str) -> list[Any]:
    shape = {"encoder": (1, 3, 16, 16), "hostile": (1, 4)}.get(name, (4,))
    return [np.ones(shape, np.float32)]


def subject(files: dict[str, bytes], name: str, runs: int = 3, labels: tuple[str, ...] = ("",)) -> Subject:
    program = pteron.load(files[name])
    profiles = {label: profile(program, inputs(name), runs=runs, num_threads=1) for label in labels if runs}
    return Subject(f"{name}.pte", program, files[name], profiles=profiles)


def opened(browser: Browser, page: Report, folder: Path) -> None:
    path = folder / "report.html"
    page.save(path)
    browser.size(1500, 950)
    browser.prefer("light")
    browser.open(path)
    in_sight(browser)
    assert browser.complaints() == []
    assert browser.requests() == [path.resolve().as_uri()]


def in_sight(browser: Browser) -> None:
    """Makes the window as high as the page: what is out of sight is not painted."""
    browser.size(1500, max(browser.run("document.documentElement.scrollHeight"), 950))
    browser.frame()
    browser.frame()


def colours(browser: Browser, view: str) -> dict[int, int]:
    """How many pixels of the canvas of a view have which colour."""
    return dict(browser.run(f"{COUNT_COLOURS}({json.dumps(f'#{view} canvas')})"))


def text(browser: Browser, selector: str) -> str:
    found: str = browser.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")
    return found


def choose(browser: Browser, label: str, value: str) -> None:
    """Another option of a choice."""
    browser.run(
        "(([label, value]) => { const box = [...document.querySelectorAll('label')].find("
        "one => one.firstChild.textContent === label).querySelector('select'); box.value = value;"
        f" box.dispatchEvent(new Event('change')); }})({json.dumps([label, value])})"
    )
    browser.frame()


def press(browser: Browser, view: str, button: str) -> None:
    """A button of a view."""
    browser.run(
        f"[...document.querySelectorAll('#{view} button')].find(b => b.textContent === {json.dumps(button)})"
        ".click()"
    )
    browser.frame()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_drawn(scheme: str, browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    opened(browser, report([subject(files, "encoder")], Ceiling(100.0, 10.0)), tmp_path)
    browser.prefer(scheme)
    browser.frame()
    for view in VIEWS:
        assert browser.run(f"document.querySelector('#{view}').getBoundingClientRect().height") > 50, view
    for view in ("flame", "timeline", "memory", "weights"):
        found = colours(browser, view)
        assert len(found) > 10, view
        assert max(found.values()) < 0.97 * sum(found.values()), view
    page = browser.run("getComputedStyle(document.querySelector('#summary')).backgroundColor")
    assert page == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 28, 35)")
    assert browser.run("document.querySelectorAll('#graph .box').length") > 10
    assert browser.run("document.querySelectorAll('#graph .edges path').length") > 10
    assert browser.run("document.querySelectorAll('#modules .rows .row').length") > 5
    browser.screenshot(PICTURES / f"encoder-{scheme}.png")


def test_a_program_that_was_not_run(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    for name in files:
        opened(browser, report([subject(files, name, runs=0)]), tmp_path)
        assert "not measured" in text(browser, "#summary")
        assert len(colours(browser, "flame")) > 3
        assert "No times were measured" in text(browser, "#timeline")
        assert browser.run("document.querySelector('#timeline canvas').style.display") == "none"
        browser.screenshot(PICTURES / f"{name}-static.png")


def test_a_click_selects_in_all_views(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    opened(browser, report([subject(files, "encoder")]), tmp_path)
    press(browser, "graph", "Open all")
    assert MARK not in colours(browser, "flame")
    # A product: what reads weights is in the treemap, too.
    plan = pteron.load(files["encoder"]).kernels()
    step = next(at for at, kernel in enumerate(plan) if kernel.startswith("gemm"))
    place = browser.run(
        f"[...document.querySelectorAll('#graph .box, #graph .fused')].findIndex(e => "
        f"e.getAttribute('aria-label').startsWith('{step} '))"
    )
    assert place >= 0
    browser.run(
        "document.querySelectorAll('#graph .box, #graph .fused')"
        f"[{place}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
    )
    browser.frame()
    assert text(browser, "#details h2") == f"step {step}"
    assert plan[step] in text(browser, "#details")
    assert text(browser, "#modules .rows .row.selected .name").startswith(f"{step} ")
    assert browser.run("document.querySelectorAll('#graph .selected').length") >= 1
    for view in ("flame", "timeline", "memory", "weights"):
        assert colours(browser, view).get(MARK, 0) > 10, view
    browser.screenshot(PICTURES / "encoder-selected.png")
    # And it is gone everywhere.
    browser.run("document.querySelector('#flame canvas').focus()")
    browser.key("Escape")
    assert text(browser, "#details h2") == "Selection"
    assert browser.run("document.querySelectorAll('.selected').length") == 0
    for view in ("flame", "timeline", "weights"):
        assert MARK not in colours(browser, view), view


def test_modules_tensors_and_weights_are_selected(
    browser: Browser, files: dict[str, bytes], tmp_path: Path
) -> None:
    opened(browser, report([subject(files, "encoder")]), tmp_path)
    row = browser.run(
        "[...document.querySelectorAll('#modules .rows .row')].findIndex(r => "
        "r.querySelector('.name').title === 'layers.1')"
    )
    browser.run(f"document.querySelectorAll('#modules .rows .row')[{row}].click()")
    browser.frame()
    assert text(browser, "#details h2") == "layers.1"
    for view in ("flame", "timeline", "memory", "weights"):
        assert colours(browser, view).get(MARK, 0) > 10, view
    # The widest weight: its readers are selected.
    browser.click("#weights canvas", 0.2, 0.5)
    title = text(browser, "#details h2")
    assert "float32" in title or "layers" in title
    # A tensor of the memory map: what writes and what reads it.
    browser.click("#memory canvas", 0.03, 0.3)
    assert "float32" in text(browser, "#details h2")
    assert browser.run("document.querySelectorAll('#graph .selected, #graph .around').length") >= 1


def test_file_and_plan(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    opened(browser, report([subject(files, "encoder")]), tmp_path)
    press(browser, "graph", "Open all")
    fused = browser.run("document.querySelectorAll('#graph .fused').length")
    parts = browser.run("document.querySelectorAll('#graph .part').length")
    steps = profile(pteron.load(files["encoder"]), inputs("encoder"), runs=1).steps
    covering = [step.step.instructions for step in steps if len(step.step.instructions) > 1]
    assert (fused, parts) == (len(covering), sum(map(len, covering)))
    choose(browser, "layer", "file")
    press(browser, "graph", "Open all")
    assert browser.run("document.querySelectorAll('#graph .fused').length") == 0
    assert browser.run("document.querySelectorAll('#graph .box.node').length") == sum(
        len(step.step.instructions) for step in steps
    )
    browser.screenshot(PICTURES / "encoder-file.png")


def test_keys(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    opened(browser, report([subject(files, "encoder", labels=("before", "after"))]), tmp_path)
    browser.run("document.querySelector('#flame canvas').focus()")
    for step in range(3):
        browser.key("ArrowRight")
        assert text(browser, "#details h2") == f"step {step}"
    browser.key("ArrowLeft")
    assert text(browser, "#details h2") == "step 1"
    browser.run("document.querySelector('.scroll').focus()")
    browser.key("ArrowDown")
    assert text(browser, "#details h2") != "step 1"
    browser.run("document.activeElement.blur()")
    browser.key("/")
    assert browser.run("document.activeElement.type") == "search"
    for letter in "gemm":
        browser.key(letter)
    rows = browser.run("document.querySelectorAll('#modules .rows .row').length")
    assert 0 < rows < 40
    browser.run("document.activeElement.blur()")
    browser.key("2")
    assert browser.run("document.querySelector('header select').value") == "1"
    assert "after" in browser.run("document.querySelector('header select').selectedOptions[0].textContent")


def test_runs_and_errors_are_compared(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    from dataclasses import asdict

    one = subject(files, "encoder", labels=("before", "after"))
    plain = pteron.load(files["encoder"], runtime=pteron.Runtime(isa="portable"))
    found = compare(one.program, plain, inputs("encoder"))
    errors = {"values": [asdict(value) for value in found.values]}
    page = report([Subject(one.name, one.program, one.content, profiles=one.profiles, errors=errors)])
    opened(browser, page, tmp_path)
    assert browser.run("document.querySelectorAll('#compare .pair').length") > 10
    assert browser.run("document.querySelectorAll('#compare .error').length") == len(
        {value.step for value in found.values}
    )
    browser.run("document.querySelector('#compare .pair').dispatchEvent(new MouseEvent('click'))")
    browser.frame()
    assert text(browser, "#details h2").startswith("step ")
    assert browser.run("document.querySelectorAll('#compare .pair.selected').length") == 1
    choose(browser, "colour", "error")
    assert "relative error" in text(browser, "#legend")
    browser.screenshot(PICTURES / "encoder-compared.png")


def test_two_programs_follow_one_selection(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = programs.content(programs.Encoder(3), torch.randn(1, 3, 16, 16))
    both = {"encoder": files["encoder"], "other": other}
    first = subject(both, "encoder", runs=2)
    second = Subject("other.pte", pteron.load(other), other)
    opened(browser, report([first, second]), tmp_path)
    assert browser.run("document.querySelectorAll('svg.graph').length") == 2
    row = browser.run(
        "[...document.querySelectorAll('#modules .rows .row')].findIndex(r => "
        "r.querySelector('.name').title === 'layers.1')"
    )
    browser.run(f"document.querySelectorAll('#modules .rows .row')[{row}].click()")
    browser.frame()
    for view in ("#graph", "#compare"):
        assert browser.run(f"document.querySelectorAll('{view} svg.graph .selected').length") > 0, view
    browser.screenshot(PICTURES / "two-programs.png")
    choose(browser, "run", "1")
    assert text(browser, "#details h2") == "layers.1"
    assert "other.pte" in text(browser, "#details")


def test_names_stay_names(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    one = subject(files, "hostile", runs=2, labels=("<script>document.title='attacked'</script>",))
    name = "<img src=x onerror=document.title='attacked'>.pte"
    opened(browser, report([Subject(name, one.program, one.content, profiles=one.profiles)]), tmp_path)
    press(browser, "modules", "Open all")
    press(browser, "graph", "Open all")
    for step in range(len(one.program.kernels())):
        browser.run("document.querySelector('#flame canvas').focus()")
        browser.key("ArrowRight")
        assert text(browser, "#details h2") == f"step {step}"
    for view in ("flame", "timeline", "memory", "weights"):
        browser.click(f"#{view} canvas", 0.3, 0.6)
    assert browser.run("document.title").startswith("<img")
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.querySelectorAll('img, iframe, b, svg [onload]').length") == 0
    shown = text(browser, "#modules")
    assert any(part in shown for part in ("<img src=x onerror", "__proto__"))
    assert browser.complaints() == []
    browser.screenshot(PICTURES / "hostile.png")


def test_on_paper(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    opened(browser, report([subject(files, "encoder")]), tmp_path)
    browser.prefer("dark")
    press(browser, "modules", "Open all")
    rows = browser.run("Number(document.querySelector('[role=treegrid]').getAttribute('aria-rowcount'))")
    outside = browser.run(f"{OUTSIDE}()")
    assert outside > 0
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('#modules .rows .row').length") == min(rows - 1, 400)
    assert browser.run("document.documentElement.dataset.theme") == "light"
    # Everything of the graph is inside of its frame, and nothing is squeezed to the width of the paper.
    assert browser.run(f"{OUTSIDE}()") == 0
    assert browser.run("[...document.querySelectorAll('canvas')].map(one => one.clientWidth)") == [700] * 4
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.run(f"{OUTSIDE}()") == outside
    browser.pdf(PICTURES / "encoder.pdf")
    assert (PICTURES / "encoder.pdf").stat().st_size > 20_000


def test_everything_that_can_be_used_has_a_name(
    browser: Browser, files: dict[str, bytes], tmp_path: Path
) -> None:
    opened(browser, report([subject(files, "encoder", labels=("before", "after"))]), tmp_path)
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    used = (
        "button",
        "combobox",
        "searchbox",
        "link",
        "treegrid",
        "image",
        "img",
        "complementary",
        "navigation",
    )
    counts = dict.fromkeys(used, 0)
    for node in nodes:
        role = node.get("role", {}).get("value")
        if node.get("ignored") or role not in used:
            continue
        counts[role] += 1
        assert node.get("name", {}).get("value"), node
    assert counts["button"] > 20
    assert counts["combobox"] >= 4
    assert counts["treegrid"] == 1
    headings = [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "heading"]
    assert {"Summary", "Modules", "Graph", "Memory", "Weights", "Comparison"} <= set(headings)


def test_a_notebook_shows_it_in_a_frame(browser: Browser, files: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    frame = report([subject(files, "hostile")])._repr_html_()
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><title>notebook</title>{frame}")
    browser.size(1500, 950)
    browser.open(path)
    assert browser.run_in_frame("document.documentElement.dataset.ready") == "true"
    assert browser.run_in_frame("document.querySelectorAll('#modules .rows .row').length") > 3
    browser.screenshot(PICTURES / "notebook.png")
    assert browser.run("document.title") == "notebook"
    assert browser.complaints() == []


#: Milliseconds from a key to the frame that shows what it did.
TAKEN = """(async selector => {
  const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const out = [];
  const right = "ArrowRight";
  for (const key of [right, right, right, "+", right, "ArrowLeft", "-", right, "+", "0"]) {
    const begun = performance.now();
    document.querySelector(selector).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await frame();
    out.push(performance.now() - begun);
  }
  return out;
})"""


def test_five_thousand_instructions_stay_fluid(browser: Browser, tmp_path: Path) -> None:
    data = programs.content(programs.Chain(50, 100), torch.randn(2, 8))
    program = pteron.load(data)
    assert len(program.kernels()) >= 4000
    found = profile(program, [np.ones((2, 8), np.float32)], runs=2, num_threads=1)
    page = report([Subject("long.pte", program, data, profiles={"": found})])
    opened(browser, page, tmp_path)
    browser.size(1500, 950)
    figures = {"page bytes": len(page.html)}
    for view in ("flame canvas", "timeline canvas", "memory canvas", "graph svg"):
        browser.run(f"document.querySelector('#{view}').scrollIntoView()")
        browser.frame()
        taken = browser.run(f"{TAKEN}('#{view}')")
        figures[f"{view}, ms"] = round(statistics.median(taken), 1)
    press(browser, "modules", "Open all")
    assert browser.run("document.querySelectorAll('#modules .rows .row').length") < 200
    press(browser, "graph", "Open all")
    figures["elements"] = browser.run("document.querySelectorAll('*').length")
    in_sight(browser)
    browser.screenshot(PICTURES / "long.png")
    (PICTURES / "long.json").write_text(json.dumps(figures, indent=2))
    print(figures)
    # A tenth of a second is felt as at once; a busy machine has twice that.
    assert max(value for name, value in figures.items() if name.endswith("ms")) < 200, figures
    assert figures["elements"] < 20_000


def test_the_sums_of_the_table_are_those_of_the_profile(
    browser: Browser, files: dict[str, bytes], tmp_path: Path
) -> None:
    one = subject(files, "encoder")
    opened(browser, report([one]), tmp_path)
    press(browser, "modules", "Close all")
    rows = browser.run(
        "[...document.querySelectorAll('#modules .rows .row')].map(r =>"
        " [...r.querySelectorAll('[role=gridcell]')].map(cell => cell.textContent.trim()))"
    )
    shares = [float(row[2].removesuffix(" %")) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(rows))
    calls = sum(float(row[3]) for row in rows)
    (found,) = one.profiles.values()
    assert calls == len(found.steps)
    largest = max(rows, key=lambda row: float(row[2].removesuffix(" %")))
    assert largest[0].endswith("layers")


def test_what_delegates_report_has_a_track(browser: Browser, tmp_path: Path) -> None:
    runtime = pteron.Runtime()
    register_demo_backends(runtime, language="rust")
    model, values = BackendWithDelegateMappingDemo.get_test_model_and_inputs()
    content = to_backend("BackendWithDelegateMappingDemo", edge(model, *values), []).buffer()
    program = pteron.load(content, runtime=runtime)
    found = profile(program, list(values), runs=1, warmup=0)
    opened(browser, report([Subject("demo.pte", program, content, profiles={"": found})]), tmp_path)
    assert browser.run("document.querySelector('#timeline canvas').clientHeight") > 120
    browser.click("#flame canvas")
    assert "inside" in text(browser, "#details")
    browser.screenshot(PICTURES / "delegate.png")
