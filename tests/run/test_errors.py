"""The exception tree: every kind from the runtime, its text and fields, and pickling."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron import errors
from pteron._native import error_kinds
from tests.support.programs import add_method, build, delegate_method, endless_method, schema

X = np.zeros((2, 3), np.float32)

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.PteronError)
    and (cls is errors.ExportError or not issubclass(cls, errors.ExportError))
]
FIELDS = ("method", "instruction", "operator", "argument", "expected", "got", "source_line", "hint")


def test_the_tree() -> None:
    also = {
        errors.ProgramError: ValueError,
        errors.MissingBackendError: LookupError,
        errors.MethodNotFoundError: KeyError,
        errors.InputError: ValueError,
        errors.InputTypeError: TypeError,
    }
    for cls, builtin in also.items():
        assert issubclass(cls, builtin)
    assert issubclass(errors.InputTypeError, errors.InputError)
    for cls in CLASSES:
        assert issubclass(cls, RuntimeError)
        assert cls.__doc__
        assert cls.__name__ in pteron.__all__


def test_the_tree_is_the_table_of_kinds() -> None:
    rows = {row["exception"]: row for row in error_kinds()}
    assert rows.pop("FileNotFoundError")["kind"] == "NotFound"
    base = {"PteronError", "ExportError"}
    assert rows.keys() == {cls.__name__ for cls in CLASSES} - base
    for name, row in rows.items():
        doc = " ".join((getattr(errors, name).__doc__ or "").split())
        assert doc.startswith(row["meaning"]), name
        assert row["remedy"]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_fields_text_and_pickle(cls: type[errors.PteronError]) -> None:
    plain = cls("it broke")
    assert str(plain) == "it broke"
    assert all(getattr(plain, f) is None for f in FIELDS)
    full = cls(
        "it broke",
        method="forward",
        instruction=3,
        operator="aten::add.out",
        argument="other",
        expected="[2]",
        got="[3]",
        source_line="m.py:7",
        hint="mend it",
    )
    assert str(full) == (
        "method 'forward', instruction 3, operator aten::add.out, argument 'other': it broke; "
        "expected [2]; got [3]; model source: m.py:7 (hint: mend it)"
    )
    for again in (pickle.loads(pickle.dumps(full)), copy.copy(full)):
        assert type(again) is cls
        assert str(again) == str(full)
        assert [getattr(again, f) for f in FIELDS] == [getattr(full, f) for f in FIELDS]


def test_delegate_errors_carry_backend_and_handle() -> None:
    error = errors.DelegateError("no tan", backend="Demo", debug_handle=4, method="forward")
    assert str(error) == "method 'forward': backend Demo: no tan; debug handle is: 4"
    again = pickle.loads(pickle.dumps(error))
    assert (again.backend, again.debug_handle, str(again)) == ("Demo", 4, str(error))


def test_errors_of_the_runtime_survive_pickling() -> None:
    method = pteron.load(build(add_method())).load_method()
    with pytest.raises(pteron.InputError) as caught:
        method(X, np.zeros((2, 4), np.float32))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.argument == "y"


def test_file_not_found_stays_what_it_is(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pte"
    for source in (missing, str(missing)):
        for mmap in (True, False):
            with pytest.raises(FileNotFoundError) as caught:
                pteron.load(source, mmap=mmap)
            assert caught.value.filename == str(missing)
            assert caught.value.errno == 2


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(pteron.ProgramError, match="regular file"):
        pteron.load(tmp_path)


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "flipped"])
def test_damaged_programs(damage: str) -> None:
    data = bytearray(build(add_method()))
    match damage:
        case "empty":
            data.clear()
        case "text":
            data[:] = b"this is not a program at all, sorry" * 20
        case "truncated":
            del data[len(data) // 2 :]
        case "flipped":
            data[0:4] = b"\xff\xff\xff\xff"
    with pytest.raises(pteron.ProgramError) as caught:
        pteron.load(bytes(data))
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_truncation_anywhere_is_a_program_error() -> None:
    data = build(add_method())
    for length in range(0, len(data), 7):
        with pytest.raises(pteron.ProgramError):
            pteron.load(data[:length])


def test_unknown_methods_list_the_known_ones() -> None:
    program = pteron.load(build(add_method(), add_method(name="encode")))
    assert program.methods == ("forward", "encode")
    for ask in (
        program.load_method,
        program.inputs,
        program.outputs,
        program.backends,
        program.operators,
        program.plan_listing,
        program.kernels,
        lambda name: program.run(name, X, X),
    ):
        with pytest.raises(
            pteron.MethodNotFoundError, match=r"expected one of:? forward, encode.*got decode"
        ):
            ask("decode")
    with pytest.raises(KeyError):
        program.load_method("")


def test_missing_operators_are_reported_together() -> None:
    m = add_method()
    x, y, out = m.inputs[0], m.inputs[1], m.outputs[0]
    m.call("aten::frobnicate.out", [x, y, out, out])
    m.call("mine::transmogrify.default", [x, out])
    with pytest.raises(pteron.MissingOperatorError) as caught:
        pteron.load(build(m)).load_method()
    assert "aten::frobnicate.out" in str(caught.value)
    assert "mine::transmogrify" in str(caught.value)
    assert "'forward'" in str(caught.value)


def test_missing_backend_names_the_registered_ones() -> None:
    program = pteron.load(build(delegate_method("Nowhere")), runtime=pteron.Runtime())
    assert program.backends() == ("Nowhere",)
    with pytest.raises(pteron.MissingBackendError) as caught:
        program.load_method()
    for part in ("Nowhere", "registered backends: XnnpackBackend", "register_backend", "method 'forward'"):
        assert part in str(caught.value)
    with pytest.raises(LookupError):
        program.load_method()


def test_kernel_calls_with_wrong_arguments_name_the_instruction() -> None:
    m = add_method()
    m.call("aten::add.out", [m.inputs[0], m.outputs[0]])
    with pytest.raises(pteron.ProgramError) as caught:
        pteron.load(build(m)).load_method()
    assert caught.value.instruction == 1
    assert "aten::add.out" in str(caught.value)


def test_limits() -> None:
    program = pteron.load(build(add_method()), limits=pteron.Limits(arena_bytes=10))
    with pytest.raises(pteron.LimitExceeded, match=r"at most 10 bytes"):
        program.load_method()
    program.load_method(limits=pteron.Limits(arena_bytes=100_000))(X, X)
    method = pteron.load(build(endless_method())).load_method(limits=pteron.Limits(instructions=1000))
    with pytest.raises(pteron.LimitExceeded, match="1000"):
        method(X, X)
    assert pteron.Limits(arena_bytes=5) == pteron.Limits(arena_bytes=5)
    assert repr(pteron.Limits(arena_bytes=5, time=0.5)) == "pteron.Limits(arena_bytes=5, time=0.5)"
    limits = pteron.Limits(nesting=1, values=2, rank=3)
    assert (limits.nesting, limits.values, limits.rank, limits.time) == (1, 2, 3, None)


def test_budget_and_deadline() -> None:
    method = pteron.load(build(endless_method())).load_method()
    with pytest.raises(pteron.LimitExceeded, match="1000"):
        method.execute([X, X], budget=1000)
    with pytest.raises(pteron.DeadlineExceeded, match="deadline"):
        method.execute([X, X], deadline=0.02)
    with pytest.raises(ValueError, match="seconds from now"):
        method.execute([X, X], deadline=-1.0)
    ok = pteron.load(build(add_method())).load_method()
    assert ok.execute([X, X], budget=10, deadline=1e30)[0].shape == (2, 3)


def test_names_from_files_are_escaped_in_texts() -> None:
    m = add_method(name="evil\x1b[31m")
    with pytest.raises(pteron.MethodNotFoundError) as caught:
        pteron.load(build(m)).load_method("forward")
    assert "\x1b" not in str(caught.value)
    assert "\x1b" not in repr(pteron.load(build(m)))


EVIL = "evil\x1b[2J\r\nname\u202e"
ESCAPED = r"evil\u{1b}[2J\u{d}\u{a}name\u{202e}"


def _assert_clean(error: pteron.PteronError) -> None:
    text = str(error)
    assert text.isprintable(), ascii(text)
    assert "evil" in text


def test_operators_and_backends_with_evil_names() -> None:
    m = add_method()
    m.call(f"{EVIL}.out", [m.inputs[0], m.outputs[0]])
    with pytest.raises(pteron.MissingOperatorError) as missing:
        pteron.load(build(m)).load_method()
    _assert_clean(missing.value)
    assert str(missing.value).count("operator evil") == 1
    assert ESCAPED in str(missing.value)
    with pytest.raises(pteron.MissingBackendError) as backend:
        pteron.load(build(delegate_method(EVIL))).load_method()
    _assert_clean(backend.value)
    assert str(backend.value).count("backend evil") == 1


def test_evil_texts_of_delegates_and_of_our_own_classes() -> None:
    class Evil:
        num_outputs = 1

        def init(self, *_: object) -> object:
            return self

        def execute(self, *_: object) -> None:
            raise ValueError(EVIL)

    runtime = pteron.Runtime()
    pteron.register_backend(EVIL, Evil(), runtime=runtime)
    method = pteron.load(build(delegate_method(EVIL)), runtime=runtime).load_method()
    with pytest.raises(pteron.DelegateError) as caught:
        method(X, X)
    _assert_clean(caught.value)
    assert caught.value.backend == EVIL
    assert str(caught.value).count("backend evil") == 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    own = errors.DelegateError(EVIL, backend=EVIL, method=EVIL, operator=EVIL, argument=EVIL, hint=EVIL)
    _assert_clean(own)
    assert own.operator == EVIL


def test_reasons_of_export_errors_keep_their_lines_wherever_they_stand() -> None:
    reasons = "2 problems:\n  first\n  second"
    evil = reasons + "\x1b"
    wrapped = errors.ExportError("no", expected=evil, got=f"got {evil}", hint=f"see {evil}")
    for error in (errors.UnsupportedProgramError(evil, problems=("first", "second"), method="m"), wrapped):
        assert reasons + r"\u{1b}" in str(error)
        assert r"\u{a}" not in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(wrapped).count("first") == 3
    assert r"\u{a}" in str(errors.KernelError(reasons, hint=reasons))


def test_serialising_nonsense_is_refused() -> None:
    m = add_method()
    m.instructions.append(schema.Instruction(schema.MoveCall(0, 999)))
    with pytest.raises(pteron.ProgramError, match="999"):
        build(m)
    with pytest.raises(TypeError):
        pteron._native.serialize_program(object())
    assert schema.Program().execution_plan == []


@pytest.mark.parametrize("cls", [errors.PteronError, errors.DelegateError, errors.UnsupportedProgramError])
def test_an_unknown_field_is_refused(cls: type[errors.PteronError]) -> None:
    with pytest.raises(TypeError, match=rf"{cls.__name__}\(\) got an unexpected keyword argument 'place'"):
        cls("no such tensor", place="here")  # type: ignore[call-arg]
