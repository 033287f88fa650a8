"""What texts of errors never hold, what hostile names do to them, and that the next correct call works."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import numpy as np
import pytest

import pteron
from pteron import errors
from tests.support.failing_calls import EXAMPLES, X
from tests.support.programs import MethodBuilder, add_method, build, delegate_method, endless_method

# Addresses, paths of the machine that built us, paths of the standard library's sources.
FORBIDDEN = re.compile(
    r"0x[0-9a-f]{4,}|/rustc/|\.cargo|rust/pteron|/root/|/home/|\bsrc/\w+\.rs|<.* object at ", re.ASCII
)
LONGEST = 30_000


def assert_clean(error: BaseException) -> None:
    text = str(error)
    assert not FORBIDDEN.search(text), text
    assert text.isprintable(), ascii(text[:500])
    assert len(text) < LONGEST


@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda c: c.__name__)
def test_texts_are_clean_and_say_what_to_do(cls: type[errors.PteronError]) -> None:
    with pytest.raises(cls) as caught:
        EXAMPLES[cls]()
    assert type(caught.value) is cls
    assert_clean(caught.value)
    assert caught.value.hint


def test_every_class_of_the_run_half_has_an_example() -> None:
    classes = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.PteronError)}
    run_half = {c for c in classes if not issubclass(c, errors.ExportError)} - {errors.PteronError}
    assert run_half - set(EXAMPLES) == {errors.InternalError}


HUGE = "evil\x1b[2J\u202e\n" * 50_000


def _operator(m: MethodBuilder) -> MethodBuilder:
    m.call(f"{HUGE}.out", [m.inputs[0], m.outputs[0]])
    return m


HOSTILE: dict[str, Callable[[], object]] = {
    "method": lambda: pteron.load(build(add_method(name=HUGE))).load_method("forward"),
    "asked method": lambda: pteron.load(build(add_method())).load_method(HUGE),
    "operator": lambda: pteron.load(build(_operator(add_method()))).load_method(),
    "backend": lambda: pteron.load(build(delegate_method(HUGE))).load_method(),
    "blob": lambda: _demo(delegate_method("BackendWithCompilerDemo", blob=HUGE.encode())),
    "nested program": lambda: _demo(delegate_method("ExecutorBackend", blob=HUGE.encode())),
    "file": lambda: pteron.load(HUGE.encode()),
    "data file": lambda: pteron.load(build(add_method()), data=HUGE.encode()),
    "rule": lambda: pteron.Runtime(disabled_rules=[HUGE]),
    "isa": lambda: pteron.Runtime(isa=HUGE),
}


def _demo(method: MethodBuilder) -> None:
    runtime = pteron.Runtime()
    pteron._native.register_demo_backends(runtime)
    pteron.load(build(method), runtime=runtime).load_method()


@pytest.mark.parametrize("where", HOSTILE)
def test_hostile_names_are_escaped_and_cut(where: str) -> None:
    with pytest.raises(errors.PteronError) as caught:
        HOSTILE[where]()
    assert_clean(caught.value)


def test_input_names_from_files_are_escaped_and_cut() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([2, 3]), HUGE)
    m.add(x, x, m.output(m.tensor([2, 3])))
    with pytest.raises(errors.InputError) as caught:
        pteron.load(build(m)).load_method()(np.zeros((2, 4), np.float32))
    assert_clean(caught.value)


def test_no_text_holds_weights() -> None:
    secret = np.frombuffer(b"SECRETWEIGHTBYTES123456.", np.float32)
    m = add_method()
    m.add(m.inputs[0], m.constant(np.tile(secret, 1).reshape(2, 3)), m.outputs[0])
    data = build(m)
    texts = []
    # Whatever is cut or flipped, the weights stay in the file.
    for at in range(0, len(data), 5):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        for source in (bytes(damaged), data[:at]):
            try:
                pteron.load(source).load_method()(X, np.zeros((2, 4), np.float32))
            except errors.PteronError as error:
                texts.append(str(error))
    assert len(texts) > 100
    for text in texts:
        assert "SECRET" not in text
        assert "WEIGHT" not in text
        assert not FORBIDDEN.search(text), text


class _Sometimes:
    """A delegate that adds, or raises when told to."""

    num_outputs = 1
    is_failing = False

    def init(self, *_: object) -> _Sometimes:
        return self

    def execute(self, _: object, inputs: object, outputs: object) -> None:
        if self.is_failing:
            raise ValueError("not now")
        a, b = (np.asarray(i) for i in inputs)  # type: ignore[attr-defined]
        np.asarray(outputs[0])[:] = a + b  # type: ignore[index]


def _fails(work: Callable[[], object]) -> None:
    with pytest.raises(errors.PteronError):
        work()


ONES = np.ones((2, 3), np.float32)
WRONG_CALLS: dict[str, Callable[[pteron.Method], object]] = {
    "count": lambda m: m(ONES),
    "shape": lambda m: m(ONES, np.zeros((3, 2), np.float32)),
    "dtype": lambda m: m(ONES, ONES.astype(np.int64)),
    "type": lambda m: m(ONES, "text"),
    "budget": lambda m: m.execute([ONES, ONES], budget=0),
    "deadline": lambda m: m.execute([ONES, ONES], deadline=0.0),
    "state": lambda m: m.set_state({"none": ONES}),
}


@pytest.mark.parametrize("how", WRONG_CALLS)
def test_after_a_failed_call_the_next_correct_call_works(how: str) -> None:
    method = pteron.load(build(add_method())).load_method()
    for _ in range(3):
        try:
            WRONG_CALLS[how](method)
        except errors.PteronError as error:
            assert_clean(error)
        else:
            # A deadline that has passed may come too late for so small a program.
            assert how == "deadline"
        np.testing.assert_array_equal(method(ONES, ONES), ONES * 2)


def test_after_a_failed_load_the_next_works() -> None:
    data = build(add_method())
    program = pteron.load(data)
    for _ in range(3):
        _fails(lambda: pteron.load(data[: len(data) // 2]))
        _fails(lambda: pteron.load(data, limits=pteron.Limits(rank=1)))
        np.testing.assert_array_equal(pteron.load(data).run("forward", ONES, ONES), ONES * 2)
        _fails(lambda: program.load_method(limits=pteron.Limits(arena_bytes=1)))
        _fails(lambda: program.load_method("other"))
        np.testing.assert_array_equal(program.load_method()(ONES, ONES), ONES * 2)


def test_after_a_failed_build_another_method_works() -> None:
    bad = add_method(name="bad")
    bad.call("aten::frobnicate.out", [bad.inputs[0], bad.outputs[0]])
    program = pteron.load(build(bad, add_method()))
    for _ in range(2):
        _fails(lambda: program.load_method("bad"))
        np.testing.assert_array_equal(program.run("forward", ONES, ONES), ONES * 2)


def test_after_a_delegate_failed_the_next_call_works() -> None:
    backend, runtime = _Sometimes(), pteron.Runtime()
    pteron.register_backend("Sometimes", backend, runtime=runtime)
    method = pteron.load(build(delegate_method("Sometimes")), runtime=runtime).load_method()
    for _ in range(3):
        backend.is_failing = True
        _fails(lambda: method(ONES, ONES))
        backend.is_failing = False
        np.testing.assert_array_equal(method(ONES, ONES), ONES * 2)


def test_after_an_endless_loop_was_stopped_the_method_can_be_stopped_again() -> None:
    method = pteron.load(build(endless_method())).load_method(limits=pteron.Limits(time=0.02))
    for _ in range(2):
        with pytest.raises(errors.DeadlineExceeded):
            method(ONES, ONES)
        with pytest.raises(errors.LimitExceeded):
            method.execute([ONES, ONES], budget=10)


def test_an_exhausted_address_space_is_an_error() -> None:
    """A session that the limit allows and the system refuses."""
    m = add_method()
    m.tensor([1 << 20, 1 << 20, 1 << 10])
    program = pteron.load(build(m), limits=pteron.Limits(arena_bytes=sys.maxsize))
    with pytest.raises(errors.LimitExceeded, match="memory could not be allocated"):
        program.load_method()
