"""ETDump files: what is written is read again, by ExecuTorch too, and damaged ones end in one error."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.devtools.etdump import ETDump, EtdumpError, read_etdump, record_etdump, write_etdump
from pteron.devtools.etdump.recorder import step_instructions
from pteron.devtools.etdump.schema import (
    AllocationEvent,
    Allocator,
    DebugEvent,
    Event,
    Float,
    ProfileEvent,
    RunData,
    Tensor,
    TensorList,
    Value,
)
from pteron.exir import to_edge
from pteron.runtime import Runtime
from tests.devtools.recorded_model import captured

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


@pytest.fixture(scope="module")
def program() -> bytes:
    return to_edge(captured()[0]).to_executorch().buffer


@pytest.fixture(scope="module")
def x() -> Any:
    return captured()[1].numpy()


def everything() -> ETDump:
    """A file with every field of the schema."""
    tensor = Tensor(6, [2, 3], [3, 1], 64)
    values = [
        Value("Tensor", tensor=tensor),
        Value("TensorList", tensor_list=TensorList([tensor, Tensor(4, [], [], 2**40)])),
        Value("Float", float_value=Float(1.5)),
        Value(),
    ]
    events = [Event(debug_event=DebugEvent(2**64 - 1, 3, value, 4, "five", "six")) for value in values]
    events.append(Event(allocation_event=AllocationEvent(1, 2**63)))
    span = ProfileEvent("conv", -1, 2, 3, "part", b"\0\xff", 2**64 - 2, 2**64 - 1)
    events.append(Event(profile_event=span))
    return ETDump(7, [RunData("Execute", 1, [Allocator("arena")], events), RunData("empty")])


@pytest.mark.parametrize("is_prefixed", [True, False])
def test_what_is_written_is_read_again(is_prefixed: bool) -> None:
    dump = everything()
    assert read_etdump(write_etdump(dump, size_prefixed=is_prefixed)) == dump


@pytest.mark.peer
def test_executorch_reads_every_field() -> None:
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    theirs = deserialize_from_etdump_flatcc(write_etdump(everything()))
    assert_same(everything(), theirs)


def assert_same(ours: Any, theirs: Any) -> None:
    """Field by field; ExecuTorch has None and nothing for the same."""
    if hasattr(ours, "__dataclass_fields__"):
        for name in ours.__dataclass_fields__:
            assert_same(getattr(ours, name), getattr(theirs, name))
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_member, their_member in zip(ours, theirs, strict=True):
            assert_same(our_member, their_member)
    elif isinstance(ours, bytes):
        assert ours == bytes(theirs)
    else:
        assert ours == theirs or (ours is None and not theirs)


def test_a_run_has_the_steps_of_the_plan(program: bytes, x: Any) -> None:
    recorder = record_etdump(pteron.load(program), [x], runs=3)
    dump = read_etdump(recorder.etdump_bytes())
    assert [run.name for run in dump.run_data] == ["Default", "Execute", "Execute", "Execute"]
    spans = [event.profile_event for event in dump.run_data[1].events or ()]
    names = [span.name for span in spans if span is not None and span.name != "OPERATOR_CALL"]
    assert names == [
        "native_call_addmm.out+relu.out",
        "native_call_split_with_sizes_copy.out",
        "native_call_addmm.out+add.out",
        "native_call_topk.values",
        "Method::execute",
    ]
    fused = next(span for span in spans if span is not None)
    assert (fused.instruction_id, step_instructions(fused.delegate_debug_metadata)) == (1, [0, 1])
    whole = spans[-1]
    assert whole is not None
    inside = [span for span in spans[:-1] if span is not None]
    assert all(whole.start_time <= span.start_time <= span.end_time <= whole.end_time for span in inside)
    assert not recorder.debug_buffer


def test_values_are_those_of_the_run(program: bytes, x: Any) -> None:
    runtime = pteron.Runtime(disabled_rules=["all"])
    loaded = pteron.load(program, runtime=runtime)
    recorder = record_etdump(loaded, [x], debug_buffer_size=4096)
    events = [event.debug_event for event in recorder.etdump.run_data[1].events or ()]
    entries = [event.debug_entry for event in events if event is not None]
    outputs = [entry.tensor for entry in entries if entry is not None and entry.output is not None]
    for expected, found in zip(loaded.load_method().execute([x]), outputs, strict=True):
        assert found is not None
        assert found.sizes == list(expected.shape)
        data = np.frombuffer(recorder.debug_buffer, expected.dtype, expected.size, found.offset)
        np.testing.assert_array_equal(data.reshape(expected.shape), expected)
    lists = [entry.tensor_list for entry in entries if entry is not None and entry.val == "TensorList"]
    assert [len(each.tensors or ()) for each in lists if each is not None] == [2]


def test_a_full_debug_buffer_stops_the_call(program: bytes, x: Any) -> None:
    with pytest.raises(pteron.LimitExceeded, match="the debug buffer has no room for another value"):
        record_etdump(pteron.load(program), [x], debug_buffer_size=100)


def test_runtime_records_where_it_is_asked_to(program: bytes, x: Any, tmp_path: Path) -> None:
    plain = Runtime.get().load_program(program)
    with pytest.raises(pteron.PteronError, match="No etdump found"):
        plain.write_etdump_result_to_file(tmp_path / "none")
    loaded = Runtime.get().load_program(program, enable_etdump=True, debug_buffer_size=4096)
    loaded.load_method("forward").execute([x])
    loaded.write_etdump_result_to_file(tmp_path / "dump", tmp_path / "values")
    assert [run.name for run in read_etdump((tmp_path / "dump").read_bytes()).run_data] == [
        "Default",
        "Execute",
    ]
    assert (tmp_path / "values").stat().st_size > 0


@pytest.mark.peer
def test_files_of_executorch_are_read(tmp_path: Path) -> None:
    """A file that ExecuTorch's own runtime wrote, of a program of ours."""
    import executorch.runtime as theirs
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    program, x = captured()
    loaded = theirs.Runtime.get().load_program(
        to_edge(program).to_executorch().buffer, enable_etdump=True, debug_buffer_size=4096
    )
    loaded.load_method("forward").execute([x])
    loaded.write_etdump_result_to_file(str(tmp_path / "dump"), str(tmp_path / "values"))
    data = (tmp_path / "dump").read_bytes()
    dump = read_etdump(data)
    assert_same(dump, deserialize_from_etdump_flatcc(data))
    assert [run.name for run in dump.run_data] == ["Default", "Execute"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "this is no ETDump file"),
        (b"x" * 40, "this is no ETDump file"),
        (write_etdump(everything())[:-8], "the ETDump file is cut off"),
        (write_etdump(everything(), size_prefixed=False)[:60], "the ETDump file is damaged"),
    ],
)
def test_other_bytes_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(EtdumpError, match=text):
        read_etdump(data)


def test_damaged_bytes_end_in_one_error_or_in_a_small_file() -> None:
    whole = write_etdump(everything())
    generator = random.Random(0)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 6)):
            damaged[generator.randrange(12, len(damaged))] = generator.choice((0, 1, 4, 127, 128, 255))
        try:
            assert len(write_etdump(read_etdump(bytes(damaged)))) < 20 * len(whole)
        except EtdumpError:
            refused += 1
    assert refused > 500


def redirect(data: bytearray, vector: int, target: int) -> None:
    """Lets every member of the vector at a place be the table at another."""
    (count,) = struct.unpack_from("<I", data, vector)
    for place in range(vector + 4, vector + 4 + 4 * count, 4):
        struct.pack_into("<I", data, place, target - place)


def test_a_few_bytes_that_state_many_tables_are_refused() -> None:
    """Five hundred runs that are one run, of five hundred events that are one event."""
    runs = [RunData(events=[Event()] * 501)] + [RunData()] * 499
    data = bytearray(write_etdump(ETDump(0, runs), size_prefixed=False))
    for count in (500, 501):
        vector = data.index(struct.pack("<I", count))
        (offset,) = struct.unpack_from("<I", data, vector + 4)
        redirect(data, vector, vector + 4 + offset)
    with pytest.raises(EtdumpError, match="more tables than it has room for"):
        read_etdump(bytes(data))


def test_texts_that_overlap_are_refused() -> None:
    """Five hundred names that begin at different places of one text, and reach far into it."""
    text = "\0\x08\0\0" * 1000  # each four bytes of it: a length of 2048
    runs = [RunData("x" * 17)] * 500 + [RunData(text)]
    data = bytearray(write_etdump(ETDump(0, runs), size_prefixed=False))
    start = data.index(text.encode())
    at = 0
    for index in range(300):
        at = data.index(struct.pack("<I", 17) + b"x" * 17, at + 1)
        for place in range(at - 4, at - 40, -4):  # the table that names it is just before it
            if struct.unpack_from("<I", data, place) == (at - place,):
                struct.pack_into("<I", data, place, start + 4 * index - place)
                break
    with pytest.raises(EtdumpError, match="texts and lists that overlap"):
        read_etdump(bytes(data))


@pytest.mark.parametrize("metadata", [None, b"", b"\xff", b"[]", b'{"pteron_instructions": [true]}', b"{}"])
def test_metadata_of_others_names_no_instructions(metadata: bytes | None) -> None:
    assert step_instructions(metadata) == []


def test_torch_values_have_their_own_types(tmp_path: Path) -> None:
    """Outputs of a call with torch tensors are written with types that NumPy does not have."""

    class Narrow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    program = to_edge(torch.export.export(Narrow(), (x,))).to_executorch().buffer
    recorder = record_etdump(pteron.load(program), [x], debug_buffer_size=4096)
    entries = [
        event.debug_event.debug_entry
        for event in recorder.etdump.run_data[1].events or ()
        if event.debug_event
    ]
    assert [entry.tensor.scalar_type for entry in entries if entry and entry.tensor] == [15, 15]
