"""The demo backend's payload, and its Python runtime by itself (no program file, no native module)."""

from __future__ import annotations

import numpy as np
import pytest

from pteron.backends.demo.compiler_demo_format import (
    DemoConstant,
    DemoFormatError,
    DemoInstruction,
    DemoOperation,
    DemoWiring,
    constant_key,
    read_blob,
    read_wiring,
    wiring_key,
    write_blob,
    write_wiring,
)
from pteron.backends.demo.compiler_demo_runtime import CompilerDemoRuntime, UnsupportedInstructionError
from tests.backend.lowering_cases import floats
from tests.support.own_interpreter import output_of


class Context:
    """What the runtime gives to `init`."""

    method_name = "forward"

    def __init__(self, **data: bytes) -> None:
        self.data = data

    def named_data(self, key: str) -> memoryview:
        return memoryview(self.data[key])


class Output:
    """An output of a delegate call: resized before its memory is looked at."""

    def __init__(self, shape, most: int) -> None:
        self.most = most
        self.array = np.zeros(shape, np.float32)

    @property
    def shape(self):
        return self.array.shape

    def resize(self, shape) -> None:
        if np.prod(shape) > self.most:
            raise ValueError(f"no room for {shape}")
        self.array = np.zeros(shape, np.float32)

    def __array__(self, dtype=None, copy=None):
        return self.array


def instruction(operator: str, handle: int = 1, dtype: str = "torch.float32") -> DemoInstruction:
    return DemoInstruction(operator, "4", dtype, handle)


SIN, ADD, MM = "aten.sin.default", "aten.add.Tensor", "aten.mm.default"


def run(operators, inputs, shape, wiring=None, specs=None, **data):
    blob = write_blob([instruction(name, index + 1) for index, name in enumerate(operators)])
    if wiring is not None:
        data[wiring_key(blob)] = write_wiring(wiring)
    delegate = CompilerDemoRuntime().init(Context(**data), memoryview(blob), specs or {})
    outputs = [Output(shape, int(np.prod(shape))) for _ in range(delegate.num_outputs)]
    delegate.execute(None, inputs, outputs)
    return [output.array for output in outputs]


def test_blob_round_trip() -> None:
    instructions = [instruction(SIN, 3), DemoInstruction(ADD, "4*s0", "torch.int64", -1)]
    assert read_blob(write_blob(instructions)) == instructions


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "expected '<count>version:0#'"),
        (b"1version:1#", "expected version 0"),
        (b"2version:0#op:demo::a, numel:1, dtype:b<debug_handle>1#", "expected 2 instructions, got 1"),
        (b"1version:0#op:demo::a", "no instruction at byte 11"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_damaged_blob_is_refused(blob, message) -> None:
    with pytest.raises(DemoFormatError, match=message):
        read_blob(blob)


def test_wiring_round_trip() -> None:
    wiring = DemoWiring(
        1,
        (2, 0),
        (DemoOperation((0, 1), 2.0), DemoOperation((2, 0.5))),
        (DemoConstant("k", "float32", (2,)),),
    )
    assert read_wiring(write_wiring(wiring), [instruction(ADD)] * 2) == wiring


@pytest.mark.parametrize(
    "wiring",
    [
        DemoWiring(1, (1,), (DemoOperation((1,)),)),
        DemoWiring(1, (2,), (DemoOperation((0,)),)),
        DemoWiring(1, (0,), ()),
        DemoWiring(1, (-1,), (DemoOperation((0,)),)),
    ],
)
def test_wiring_that_reads_what_is_not_there_is_refused(wiring) -> None:
    with pytest.raises(DemoFormatError):
        read_wiring(write_wiring(wiring), [instruction(SIN)])


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version":2}', b'{"version":1,"inputs":"x"}', b"\xff"])
def test_damaged_wiring_is_refused(data) -> None:
    with pytest.raises((DemoFormatError, ValueError)):
        read_wiring(data, [])


def test_sin_is_two_terms_of_its_series() -> None:
    (result,) = run([SIN], [floats(1)], 1)
    np.testing.assert_allclose(result, [1 - 1 / 6], rtol=1e-6)


def test_add_and_mm_without_wiring() -> None:
    a, b, c = (
        floats(1, 2, 3, 4).reshape(2, 2),
        floats(5, 6, 7, 8).reshape(2, 2),
        floats(1, 1, 1, 1).reshape(2, 2),
    )
    np.testing.assert_array_equal(run([ADD], [a, b], (2, 2))[0], a + b)
    np.testing.assert_array_equal(run([MM], [a, b], (2, 2))[0], a @ b)
    np.testing.assert_array_equal(run([MM, ADD], [a, b, c], (2, 2))[0], a @ b + c)


@pytest.mark.parametrize("operators", [[ADD, ADD], [SIN, SIN], ["aten.tan.default"], []])
def test_other_programs_without_wiring_are_refused(operators) -> None:
    with pytest.raises(DemoFormatError, match="has no wiring"):
        run(operators, [floats(1), floats(2)], 1)


def test_wiring_tells_equal_blobs_apart() -> None:
    x, y = floats(1), floats(10)
    for last, expected in ((0, 12.0), (1, 21.0)):
        wiring = DemoWiring(2, (3,), (DemoOperation((0, 1)), DemoOperation((2, last))))
        assert run([ADD, ADD], [x, y], 1, wiring)[0] == [expected]


def test_constants_numbers_alpha_and_broadcasting() -> None:
    data = floats(1, 2).tobytes()
    wiring = DemoWiring(
        1,
        (2, 3),
        (DemoOperation((0, 1), 3.0), DemoOperation((2, 0.5))),
        (DemoConstant(constant_key(data), "float32", (2,)),),
    )
    first, second = run(
        [ADD, ADD], [floats(10, 20).reshape(2, 1)], (2, 2), wiring, **{constant_key(data): data}
    )
    np.testing.assert_array_equal(first, [[13, 16], [23, 26]])
    np.testing.assert_array_equal(second, first + 0.5)


def test_missing_or_short_constant_is_refused() -> None:
    wiring = DemoWiring(
        1, (2,), (DemoOperation((0, 1)),), (DemoConstant("demo.constant.x", "float32", (2,)),)
    )
    with pytest.raises(DemoFormatError, match="is not in the program's named data"):
        run([ADD], [floats(1, 2)], 2, wiring)
    with pytest.raises(DemoFormatError, match="expected 8 bytes, got 4"):
        run([ADD], [floats(1, 2)], 2, wiring, **{"demo.constant.x": b"0000"})


def test_unsupported_instruction_says_its_handle() -> None:
    wiring = DemoWiring(1, (1,), (DemoOperation((0,)),))
    text = r"instruction demo::aten\.tan\.default<debug_handle>1 is not supported, debug handle is: 1"
    with pytest.raises(UnsupportedInstructionError, match=text) as caught:
        run(["aten.tan.default"], [floats(1)], 1, wiring)
    assert caught.value.debug_handle == 1
    assert caught.value.operator == "aten.tan.default"


def test_other_dtypes_are_refused_with_the_handle() -> None:
    with pytest.raises(UnsupportedInstructionError, match="expected float32") as caught:
        run([SIN], [np.array([1.0])], 1)
    assert caught.value.debug_handle == 1


def test_limit_of_max_value() -> None:
    run([SIN], [floats(1)], 1, specs={"max_value": bytes([4])})
    for value in (bytes([5]), b"", bytes(9)):
        with pytest.raises(DemoFormatError, match="compile spec max_value"):
            run([SIN], [floats(1)], 1, specs={"max_value": value})


def test_wrong_number_of_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 inputs, got 2"):
        run([SIN], [floats(1), floats(1)], 1)


def test_outputs_take_the_shape_of_the_result() -> None:
    (result,) = run([SIN], [floats(1, 2)], 3)
    assert result.shape == (2,)
    with pytest.raises(ValueError, match="no room for"):
        run([SIN], [floats(1, 2, 3, 4)], 3)


def test_run_half_imports_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pteron.backends.demo import CompilerDemoRuntime, ExecutorRuntime, register_demo_backends\n"
        "CompilerDemoRuntime().is_available()\n"
    )
    assert output_of(code) == ""
