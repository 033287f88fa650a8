"""The native writer as Python sees it: what it reads, what it refuses, and who can read its files."""

from __future__ import annotations

import array
from typing import Any

import pytest

import pteron
from pteron._native import listing, serialize_program
from tests.support.programs import schema as s

WEIGHT = array.array("f", [1, 2, 3, 4]).tobytes()


def tensor(index: int = 0, *, offset: int | None = None, name: str | None = None) -> Any:
    allocation = None if offset is None else s.AllocationDetails(1, offset, 0)
    extra = None if name is None else s.ExtraTensorInfo(0, name, 0)
    return s.EValue(s.Tensor(6, 0, [4], [0], False, 0, index, allocation, 0, extra))


def program() -> Any:
    """`forward(x) = x + w + w`, with a delegate that is never called."""
    calls = [s.KernelCall(0, [0, 1, 3, 4, 4]), s.KernelCall(0, [4, 2, 3, 4, 4])]
    plan = s.ExecutionPlan(
        name="forward",
        container_meta_type=s.ContainerMetadata("", ""),
        values=[tensor(offset=0), tensor(1, name="w"), tensor(2), s.EValue(s.Int(1)), tensor(offset=16)],
        inputs=[0],
        outputs=[4],
        chains=[s.Chain([], [], [s.Instruction(call) for call in calls])],
        operators=[s.Operator("aten::add", "out")],
        delegates=[s.BackendDelegate("X", s.BackendDelegateDataReference(0, 0), [s.CompileSpec("k", b"v")])],
        non_const_buffer_sizes=[0, 64],
    )
    return s.Program(
        execution_plan=[plan],
        constant_buffer=[s.Buffer(b""), s.Buffer(WEIGHT), s.Buffer(WEIGHT)],
        backend_delegate_data=[s.BackendDelegateInlineData(b"blob")],
        named_data=[s.NamedData("pteron.interface", b'{"version": 1, "methods": {}}', 1)],
    )


def test_listing() -> None:
    assert listing(serialize_program(program())) == (
        "program: 1 methods\n"
        "constants: 1, 16 bytes\n"
        "named data 'pteron.interface': 29 bytes\n"
        "\n"
        "method forward\n"
        "  inputs: %0\n"
        "  outputs: %4\n"
        "  arena 0: 64 bytes\n"
        "  delegate 0: X, 4 bytes, k (1 bytes)\n"
        "  tensors\n"
        "    %0: float32[4], arena 0 at 0\n"
        "    %1: float32[4], constant 0, 'w'\n"
        "    %2: float32[4], constant 0\n"
        "    %4: float32[4], arena 0 at 16\n"
        "  instructions\n"
        "    0: aten::add.out(%0, %1, %3=1, %4, %4)\n"
        "    1: aten::add.out(%4, %2, %3=1, %4, %4)\n"
    )


@pytest.mark.parametrize(
    "kind", [bytearray, memoryview, lambda b: memoryview(b).cast("f"), lambda b: array.array("B", b)]
)
def test_any_buffer_is_taken_for_bytes(kind: Any) -> None:
    expected = serialize_program(program())
    changed = program()
    changed.constant_buffer[1].storage = kind(WEIGHT)
    assert serialize_program(changed) == expected
    assert listing(kind(expected + bytes(-len(expected) % 4))) == listing(expected)


def test_an_illegal_program_is_refused_with_its_place() -> None:
    illegal = program()
    illegal.execution_plan[0].chains[0].instructions[1].instr_args.args[2] = 77
    with pytest.raises(pteron.errors.ProgramError) as raised:
        serialize_program(illegal)
    error = raised.value
    assert (error.method, error.instruction, error.operator) == ("forward", 1, "aten::add.out")
    assert "argument 2: there is no such value" in str(error)
    assert (error.expected, error.got) == ("an index below 5", "77")


def test_a_wrong_type_is_refused_with_its_place() -> None:
    wrong = program()
    wrong.execution_plan[0].values[3].val.int_val = "one"
    with pytest.raises(
        TypeError, match=r"execution_plan\[0\]: values\[3\]: .*Int\.int_val cannot be written"
    ) as raised:
        serialize_program(wrong)
    assert isinstance(raised.value.__cause__, TypeError)


def test_a_number_that_does_not_fit_is_refused() -> None:
    wrong = program()
    wrong.execution_plan[0].values[0].val.sizes = [2**31]
    with pytest.raises(TypeError, match=r"values\[0\]: .*Tensor\.sizes cannot be written"):
        serialize_program(wrong)


def test_an_unknown_class_is_refused() -> None:
    wrong = program()
    wrong.execution_plan[0].values[3].val = s.MoveCall(0, 1)
    with pytest.raises(TypeError, match=r"values\[3\]: .*MoveCall is not a kind of value"):
        serialize_program(wrong)
    wrong = program()
    wrong.execution_plan[0].chains[0].instructions[0].instr_args = s.Int(3)
    with pytest.raises(TypeError, match=r"instructions\[0\]: .*Int is not a kind of instruction"):
        serialize_program(wrong)


def test_only_the_writer_makes_segments() -> None:
    wrong = program()
    wrong.execution_plan[0].delegates[0].processed.location = 1
    with pytest.raises(TypeError, match=r"delegates\[0\]: BackendDelegateDataReference\.location must be 0"):
        serialize_program(wrong)


@pytest.mark.peer
@pytest.mark.parametrize("extract", [True, False])
def test_executorch_reads_the_file(extract: bool) -> None:
    peer = pytest.importorskip("executorch.exir._serialize._program", reason="needs the executorch wheel")
    data = serialize_program(program(), extract_delegate_segments=extract, delegate_alignment=64)
    found = peer.deserialize_pte_binary(data)
    plan = found.program.execution_plan[0]
    assert [value.val.data_buffer_idx for value in plan.values[1:3]] == [1, 1]
    assert [bytes(buffer.storage) for buffer in found.program.constant_buffer] == [b"", WEIGHT]
    assert [call.instr_args.args for call in plan.chains[0].instructions] == [
        [0, 1, 3, 4, 4],
        [4, 2, 3, 4, 4],
    ]
    assert bytes(found.program.backend_delegate_data[plan.delegates[0].processed.index].data) == b"blob"
    assert found.named_data.pte_data.keys() == {"pteron.interface"}
