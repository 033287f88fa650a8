"""The page: one file, the same bytes for the same input, and no name of a program is markup or script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.devtools.profile import Profile, profile
from pteron.devtools.report import Ceiling, MeasurementError, Subject, report
from pteron.devtools.report.page import SCRIPTS, as_element
from pteron.devtools.size_report import size_report
from tests.report.programs import HOSTILE

ASSETS = Path(pteron.__file__).parent / "devtools" / "report" / "assets"


class Elements(HTMLParser):
    """Elements of a page with their attributes, and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._open: list[int] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self._open.append(len(self.found) - 1)

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, attrs, text = self.found[self._open[-1]]
            self.found[self._open[-1]] = (tag, attrs, text + data)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.found[self._open.pop()][0] != tag:
            pass


@pytest.fixture(scope="module")
def measured(files: dict[str, bytes]) -> Profile:
    return profile(
        pteron.load(files["encoder"]), [np.ones((1, 3, 16, 16), np.float32)], runs=3, num_threads=1
    )


def subject(files: dict[str, bytes], name: str = "encoder", **more: Any) -> Subject:
    return Subject(f"{name}.pte", pteron.load(files[name]), files[name], **more)


def data_of(html: str) -> dict[str, Any]:
    (text,) = (text for tag, attrs, text in Elements(html).found if attrs.get("id") == "data")
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_same_input_makes_the_same_bytes(files: dict[str, bytes], measured: Profile) -> None:
    assert report([subject(files)]).html == report([subject(files)]).html
    saved = json.loads(json.dumps(measured.to_dict()))
    pages = {
        report([subject(files, profiles={"a": one})], Ceiling(100.0, 10.0)).html for one in (measured, saved)
    }
    assert len(pages) == 1


def test_a_page_is_small_and_needs_nothing_else(files: dict[str, bytes], measured: Profile) -> None:
    html = report([subject(files, profiles={"": measured})]).html
    (data,) = (text for _, attrs, text in Elements(html).found if attrs.get("id") == "data")
    assert len(html) - len(data) < 400_000
    assert html.isascii() or "·" in html
    addresses = set(re.findall(r"\w+://[^\"'\s`]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    for tag, attrs, _ in Elements(html).found:
        assert tag not in {"link", "iframe", "object", "embed", "img", "base"}
        assert not {name for name in attrs if name in ("src", "href", "style") or name.startswith("on")}


def test_scripts_do_not_make_markup() -> None:
    assert sorted(SCRIPTS) == sorted(path.name for path in ASSETS.glob("*.js"))
    for name in SCRIPTS:
        text = (ASSETS / name).read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "Function(",
            "DOMParser",
            "createContextualFragment",
            "import(",
            "fetch(",
            "XMLHttpRequest",
        ):
            assert word not in text, f"{name}: {word}"


def test_the_policy_admits_this_script_and_style_alone(files: dict[str, bytes]) -> None:
    elements = Elements(report([subject(files)]).html).found
    (policy,) = (
        str(attrs["content"])
        for _, attrs, _ in elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag in ("script", "style"):
        (text,) = (text for name, attrs, text in elements if name == tag and "type" not in attrs)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_names_are_neither_markup_nor_script(files: dict[str, bytes]) -> None:
    plain = Elements(report([subject(files)]).html).found
    name = "</title><script>document.title='attacked'</script>.pte"
    hostile = Subject(name, pteron.load(files["hostile"]), files["hostile"], profiles={})
    html = report([hostile]).html
    assert [(tag, list(attrs)) for tag, attrs, _ in Elements(html).found] == [
        (tag, list(attrs)) for tag, attrs, _ in plain
    ]
    texts = data_of(html)["texts"]
    for one in HOSTILE:
        assert any(one in text for text in texts), one
    assert any("<script>.py:" in text for text in texts)
    assert data_of(html)["programs"][0]["name"] == "script>.pte"
    assert "attacked" in html


@pytest.mark.parametrize("text", [*HOSTILE, "]]>", "\ud800", "\x00"])
def test_data_cannot_end_its_element(text: str) -> None:
    written = as_element({text: [text]})
    assert not set("<>&") & set(written)
    assert written.isascii()
    assert json.loads(written) == {text: [text]}


def test_times_are_those_of_the_profile(files: dict[str, bytes], measured: Profile) -> None:
    run = data_of(report([subject(files, profiles={"now": measured})]).html)["runs"][0]
    assert run["label"] == "now"
    assert run["calls"] == list(measured.calls)
    for ns, step in zip(run["ns"], measured.steps, strict=True):
        assert ns == np.median(step.nanoseconds)
    assert len(run["timeline"]) == 3 * len(measured.steps)
    assert run["helpers"] == [[one.step, one.thread, one.start, one.end] for one in measured.helpers]
    assert any("of the time is in" in text for text in run["advice"])
    with_ceiling = report([subject(files, profiles={"": measured})], Ceiling(1e6, 1e6)).html
    assert any("of this machine's ceiling" in text for text in data_of(with_ceiling)["runs"][0]["advice"])


def test_long_timelines_are_cut_at_whole_calls(files: dict[str, bytes], measured: Profile) -> None:
    saved = measured.to_dict()
    one_call = saved["timeline"][: len(measured.steps)]
    times = 20_000 // len(one_call) + 5
    saved["timeline"] = one_call * times
    saved["traced_call_ns"] = [1000] * times
    kept = data_of(report([subject(files, profiles={"": saved})]).html)["runs"][0]["timeline"]
    assert len(kept) <= 20_000
    assert len(kept) % len(one_call) == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda saved: saved.pop("steps"), "not the output of pteron profile"),
        (lambda saved: saved["steps"].pop(), "is of another program"),
        (lambda saved: saved.update(method="other"), "is of another program"),
        (lambda saved: saved["steps"][0].update(ns=["<b>"]), "no count"),
        (lambda saved: saved["steps"][0].update(ns=[-1]), "no count"),
        (lambda saved: saved.update(timeline=[[99999, 0, 1]]), "of no step"),
        (lambda saved: saved.update(helpers=[[0, 0, 0, 1]]), "of no step or thread"),
        (lambda saved: saved.update(call_ns=[]), "not the output of pteron profile"),
        (lambda saved: saved.update(traced_call_ns=[]), "not the output of pteron profile"),
    ],
)
def test_damaged_profiles_are_refused(
    change: Any, why: str, files: dict[str, bytes], measured: Profile
) -> None:
    saved = json.loads(json.dumps(measured.to_dict()))
    change(saved)
    with pytest.raises(MeasurementError, match=why):
        report([subject(files, profiles={"": saved})])


def test_errors_of_a_comparison(files: dict[str, bytes]) -> None:
    def errors(*found: tuple[int, float]) -> dict[str, Any]:
        return {"values": [{"step": step, "errors": {"relative": value}} for step, value in found]}

    run = data_of(
        report([subject(files, errors=errors((0, 1e-9), (2, 0.5), (2, 0.1), (3, float("inf"))))]).html
    )
    assert run["runs"][0]["errors"][:5] == [1e-9, None, 0.5, 1e30, None]
    assert "of step 2" in run["runs"][0]["advice"][0]
    fine = data_of(report([subject(files, errors=errors((0, 1e-9)))]).html)
    assert "No compared value differs" in fine["runs"][0]["advice"][0]
    with pytest.raises(MeasurementError, match="another program"):
        report([subject(files, errors=errors((9999, 1.0)))])
    with pytest.raises(MeasurementError, match="not the output of pteron compare"):
        report([subject(files, errors={"values": [{}]})])


def test_programs_share_names_of_steps(files: dict[str, bytes]) -> None:
    data = data_of(report([subject(files), subject(files), subject(files, "loop")]).html)
    first, same, other = (one["layers"]["plan"]["key"] for one in data["programs"])
    assert first == same
    assert not set(first) & set(other)
    assert len(set(first)) == len(first)
    with pytest.raises(ValueError, match="one program at least"):
        report([])


def test_weights_are_all_there(files: dict[str, bytes]) -> None:
    data = data_of(report([subject(files)]).html)["programs"][0]
    assert sum(data["weights"]["bytes"]) == data["sizes"]["of weights"]
    instructions = len(data["layers"]["file"]["name"])
    readers = data["weights"]["readers"]
    assert all(readers)
    assert max(map(max, readers)) < instructions
    modules = {data_of(report([subject(files)]).html)["texts"][at] for at in data["weights"]["module"]}
    assert {"embed", "head", "layers.0.mlp.0"} <= modules


def test_notebooks_show_profiles_and_sizes(files: dict[str, bytes], measured: Profile) -> None:
    shown = measured._repr_html_()
    assert "by module" in shown
    assert "layers.0.qkv" in shown
    sizes = size_report(pteron.load(files["hostile"]), files["hostile"])._repr_html_()
    assert "parts" in sizes
    for text in (sizes, shown):
        tags = {tag for tag, _, _ in Elements(text).found}
        assert tags <= {"details", "summary", "b", "table", "thead", "tbody", "tr", "th", "td", "p"}
    frame = report([subject(files, "hostile")])._repr_html_()
    assert [tag for tag, _, _ in Elements(frame).found] == ["iframe"]
    ((_, attrs, _),) = Elements(frame).found
    assert attrs["srcdoc"] == report([subject(files, "hostile")]).html
    assert "allow-same-origin" not in str(attrs["sandbox"])
