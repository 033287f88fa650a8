"""The text of every error that a file or a caller can bring about, compared with the kept one."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

import pteron
from pteron import errors
from tests.error_texts.keep import CALLS, KERNELS, Kept, all_calls, kernel_texts, load, text_of
from tests.error_texts.not_called import NOT_CALLED
from tests.error_texts.session_calls import X, add, endless, nested
from tests.error_texts.templates import run_half, template_of
from tests.support.programs import add_method, build

HANDWRITTEN = load(CALLS)
HOW = "if the new text is meant, write it with `make bless`"
# Addresses, sources and folders of the machine that built the extension, objects of the interpreter.
FORBIDDEN = re.compile(
    r"0x[0-9a-f]{4,}|/rustc/|\.cargo|rust/pteron|registry/|/root/|/home/|/tmp/|\w+\.rs\b|<[^>]* at "
)
LONGEST = 30_000


def assert_same(found: Kept, kept: Kept) -> None:
    assert found == kept, f"{HOW}; diff of the text:\n  kept  {kept['text']}\n  found {found['text']}"


@pytest.mark.parametrize("kept", HANDWRITTEN, ids=lambda kept: kept["call"])
def test_calls_end_in_the_kept_text(kept: Kept) -> None:
    assert_same(text_of(kept["call"], all_calls()[kept["call"]]), kept)
    # After any failed call the next correct one works.
    np.testing.assert_array_equal(add()(X + 1, X), X + 1)


def test_every_call_has_a_kept_text() -> None:
    assert sorted(all_calls()) == sorted(kept["call"] for kept in HANDWRITTEN), HOW


def test_kernel_calls_end_in_the_kept_text() -> None:
    kept = load(KERNELS)
    assert len(kept) > 300
    for new, old in zip(kernel_texts(kept), kept, strict=True):
        assert_same(new, old)


def test_every_text_of_the_run_half_is_kept_or_has_a_reason() -> None:
    kept = {template_of(entry["text"]) for entry in [*HANDWRITTEN, *load(KERNELS)]}
    missing = run_half().keys() - kept - NOT_CALLED
    assert not missing, (
        f"texts that no kept call ends in: {sorted(missing)}: add a call to tests/error_texts "
        "(kernel_search.py finds those of kernels), or an entry with its reason to not_called.py"
    )
    assert not NOT_CALLED & kept, "these are called by now: take them out of not_called.py"
    assert run_half().keys() >= NOT_CALLED, f"not texts any more: {sorted(NOT_CALLED - run_half().keys())}"


@pytest.mark.parametrize("file", [CALLS, KERNELS], ids=lambda file: file.stem)
def test_no_kept_text_tells_what_it_must_not(file) -> None:  # type: ignore[no-untyped-def]
    for kept in load(file):
        text = kept["text"]
        assert not FORBIDDEN.search(text), text
        assert text.isprintable(), ascii(text)
        assert len(text) < LONGEST
        cls = getattr(errors, kept["error"], None)
        assert cls is not None, f"{kept['call']} ends in a {kept['error']}, not in an error of pteron: {text}"
        assert issubclass(cls, errors.PteronError)
        assert cls is not errors.InternalError, text
        assert "(hint: " in text, f"{kept['call']} does not say what to do: {text}"


def test_contents_of_tensors_are_in_no_text() -> None:
    # What kernel calls are filled with, written as a tensor's contents would be.
    contents = re.compile(r"\b(?:array|tensor)\(\[|\bb'|\\x")
    for kept in [*HANDWRITTEN, *load(KERNELS)]:
        assert not contents.search(kept["text"]), kept["text"]


def test_the_other_side_of_each_limit() -> None:
    data = build(add_method())
    needed = int(re.search(r"got (\d+) bytes", _text("limits.arena_bytes"))[1])  # type: ignore[index]
    for limits in (
        pteron.Limits(arena_bytes=needed),
        pteron.Limits(values=4),
        pteron.Limits(rank=2),
        pteron.Limits(instructions=1),
        pteron.Limits(time=60.0),
    ):
        pteron.load(data, limits=limits).load_method()(X, X)
    for one_less in (pteron.Limits(arena_bytes=needed - 1), pteron.Limits(values=3), pteron.Limits(rank=1)):
        with pytest.raises(pteron.LimitExceeded):
            pteron.load(data, limits=one_less).load_method()
    with pytest.raises(pteron.LimitExceeded):
        pteron.load(data, limits=pteron.Limits(instructions=0)).load_method()(X, X)
    nested(2)
    with pytest.raises(pteron.LimitExceeded, match=r"limits\.nesting"):
        nested(1)
    begun = time.monotonic()
    with pytest.raises(pteron.DeadlineExceeded):
        endless(pteron.Limits(time=0.05))(X, X)
    assert time.monotonic() - begun >= 0.05


def _text(call: str) -> str:
    return next(kept["text"] for kept in HANDWRITTEN if kept["call"] == call)


def test_the_files_are_written_as_make_writes_them() -> None:
    for file in (CALLS, KERNELS):
        lines = file.read_text().splitlines()
        assert (lines[0], lines[-1]) == ("[", "]")
        body = [json.loads(line.rstrip(",")) for line in lines[1:-1]]
        assert body == sorted(body, key=json.dumps)
