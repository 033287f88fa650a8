"""`Inspector`: what runs did, in terms of the model, beside ExecuTorch's own on the same files."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.backends.demo.delegate_mapping_demo_backend import BackendWithDelegateMappingDemo
from pteron.backends.demo.registration import register_demo_backends
from pteron.devtools import Inspector, record_etdump, write_etdump
from pteron.devtools.etdump import ETDump, EtdumpError
from pteron.devtools.etdump.schema import (
    DebugEvent,
    Event,
    Int,
    ProfileEvent,
    RunData,
    Tensor,
    TensorList,
    Value,
)
from pteron.devtools.inspector import PerfData, TimeScale, compare_results
from pteron.devtools.inspector.comparators import COMPARATORS, NumericalComparatorBase
from pteron.devtools.profile import profile
from pteron.exir import to_edge
from pteron.exir.backend.canonical_partitioners.all_node_partitioner import AllNodePartitioner
from tests.devtools.recorded_model import captured

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
PLAIN = ["addmm", "relu", "split_with_sizes_copy", "addmm", "add", "topk"]


class Recording:
    """A program of ours with its record."""

    def __init__(self) -> None:
        program, self.x = captured()
        manager = to_edge(program, generate_etrecord=True).to_executorch()
        self.buffer = manager.buffer
        self.record = manager.get_etrecord()
        self.record.update_representative_inputs([self.x])

    def dump(self, *, rules: bool, runs: int = 1) -> dict[str, Any]:
        runtime = pteron.Runtime() if rules else pteron.Runtime(disabled_rules=["all"])
        loaded = pteron.load(self.buffer, runtime=runtime)
        recorder = record_etdump(loaded, [self.x.numpy()], runs=runs, debug_buffer_size=1 << 16)
        return {"etdump_data": recorder.etdump_bytes(), "debug_buffer": recorder.debug_buffer}


@pytest.fixture(scope="module")
def made() -> Recording:
    return Recording()


@pytest.mark.parametrize("rules", [True, False])
def test_the_run_is_the_model_s(made: Recording, rules: bool) -> None:
    """Fused steps are compared with the last of their operators."""
    inspector = Inspector(**made.dump(rules=rules, runs=2), etrecord=made.record)
    gap = inspector.calculate_numeric_gap("MSE")
    assert gap["aot_ops"].tolist() == (
        [["linear", "relu"], ["linear_1", "add"]] if rules else [["linear"], ["relu"], ["linear_1"], ["add"]]
    )
    assert max(value for listed in gap["gap"] for value in listed) < 1e-12
    assert all("in forward" in trace for row in gap["stacktraces"] for trace in row.values())
    edge = inspector.calculate_numeric_gap("SNR", reference_graph="edge_dialect_exported_program")
    assert min(value for listed in edge["gap"] for value in listed) > 100
    assert "aten_addmm_default" in edge["aot_ops"][0]


def test_columns_and_totals(made: Recording) -> None:
    inspector = Inspector(**made.dump(rules=True, runs=3), etrecord=made.record)
    frame = inspector.to_dataframe()
    assert list(frame.columns) == [
        *("event_block_name", "event_name", "raw", "p10 (ms)", "p50 (ms)", "p90 (ms)", "avg (ms)"),
        *("min (ms)", "max (ms)", "op_types", "delegate_debug_identifier", "stack_traces"),
        *("module_hierarchy", "is_delegated_op", "delegate_backend_name", "debug_data", "start_time"),
    ]
    spans = [event for event in inspector.event_blocks[1].events if event.name != "OPERATOR_CALL"]
    steps, whole = spans[:-1], spans[-1]
    assert [len(event.perf_data.raw) for event in steps if event.perf_data] == [3] * 4
    assert whole.perf_data is not None
    total = sum(event.perf_data.avg for event in steps if event.perf_data)
    assert total < whole.perf_data.avg
    first, second = (inspector.find_total_for_module(name) for name in ("first", "second"))
    assert 0 < first < total
    assert 0 < second < total
    assert inspector.find_total_for_module("nowhere") == 0
    ops = inspector.get_op_list("Execute")
    assert [event.name for event in ops["aten.relu.default"]] == [
        "native_call_addmm.out+relu.out",
        "OPERATOR_CALL",
    ]
    out = io.StringIO()
    inspector.print_data_tabular(out)
    assert "native_call_topk.values" in out.getvalue()
    assert "OPERATOR_CALL" not in out.getvalue()
    tsv = io.StringIO()
    inspector.save_data_to_tsv(tsv)
    assert len(tsv.getvalue().splitlines()) == len(out.getvalue().splitlines())
    assert inspector.get_exported_program() is made.record.edge_dialect_program
    in_us = Inspector(**made.dump(rules=True), target_time_scale=TimeScale.US).to_dataframe()
    assert "avg (us)" in in_us.columns


def test_a_program_file_says_as_much_as_a_record(made: Recording) -> None:
    inspector = Inspector(**made.dump(rules=True), program=pteron.load(made.buffer))
    events = [event for event in inspector.event_blocks[1].events if event.name.startswith("native_call")]
    assert [event.op_types for event in events] == [
        ["aten.linear.default", "aten.relu.default"],
        ["aten.split.Tensor"],
        ["aten.linear.default", "aten.add.Tensor"],
        ["aten.topk.default"],
    ]
    lines = [line for event in events for line in event.stack_traces.values()]
    assert all(line.startswith("tests/devtools/recorded_model.py:") for line in lines)
    assert inspector.find_total_for_module("first") > 0


def test_a_distance_of_one_s_own(made: Recording) -> None:
    class Largest(NumericalComparatorBase):
        def element_compare(self, a: Any, b: Any) -> float:
            return float((a - b).abs().max())

    comparator = Largest()
    inspector = Inspector(**made.dump(rules=False), etrecord=made.record)
    assert max(inspector.calculate_numeric_gap(comparator)["gap"].tolist())[0] < 1e-5
    assert comparator.inspector is inspector
    for distance, text in (("cosine", "Unsupported distance metric"),):
        with pytest.raises(ValueError, match=text):
            inspector.calculate_numeric_gap(distance)
    with pytest.raises(ValueError, match="Reference graph 'nothing' not found"):
        inspector.calculate_numeric_gap("MSE", reference_graph="nothing")


def test_what_is_missing_for_a_gap_is_named(made: Recording) -> None:
    dump = made.dump(rules=True)
    with pytest.raises(ValueError, match="needs an ETRecord"):
        Inspector(**dump).calculate_numeric_gap("MSE")
    with pytest.raises(ValueError, match="the ETDump has no values"):
        Inspector(etdump_data=dump["etdump_data"], etrecord=made.record).calculate_numeric_gap("MSE")
    without = to_edge(captured()[0], generate_etrecord=True).to_executorch().get_etrecord()
    with pytest.raises(ValueError, match="no representative inputs"):
        Inspector(**dump, etrecord=without).calculate_numeric_gap("MSE")


def test_distances_see_numbers_that_are_not_finite() -> None:
    a, b = np.array([1.0, np.nan, np.inf]), np.array([1.5, np.nan, np.inf])
    mse, l1, snr = (COMPARATORS[name]() for name in ("MSE", "L1", "SNR"))
    assert (mse.element_compare(a, b), l1.element_compare(a, b)) == (0.25 / 3, 0.5)
    assert math.isnan(mse.element_compare(np.array([np.nan]), np.array([1.0])))
    assert snr.element_compare(a[:1], a[:1]) == math.inf
    with pytest.raises(ValueError, match="cannot be compared"):
        mse.element_compare("text", a)


def test_results_of_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])
    found = compare_results([a, 3], [b, 3], metrics=["mse", "cosine_similarity"])
    assert found == {"mse": [0.12, None], "cosine_similarity": [1.0, None]}
    assert "mse" in capsys.readouterr().out


def spans(*events: ProfileEvent) -> bytes:
    return write_etdump(ETDump(0, [RunData("Execute", events=[Event(each) for each in events])]))


def test_parts_of_delegates_have_their_own_clock_and_metadata() -> None:
    part = ProfileEvent(None, instruction_id=0, delegate_debug_id_str="conv", start_time=10, end_time=30)
    part.delegate_debug_metadata = b"5"
    inspector = Inspector(
        etdump_data=spans(part),
        delegate_metadata_parser=lambda listed: {"number": int(listed[0])},
        delegate_time_scale_converter=lambda name, time: time * (2 if name == "conv" else 1),
    )
    (event,) = inspector.event_blocks[0].events
    assert (event.name, event.is_delegated_op, event.perf_data) == ("conv", True, PerfData([40.0]))
    assert event.raw_delegate_debug_metadatas == [b"5"]
    assert inspector.to_dataframe(include_delegate_debug_data=True)["number"].tolist() == [5]


def test_a_step_in_a_loop_has_one_number_for_each_run() -> None:
    turns = [ProfileEvent("native_call_add.out", 0, 3, start_time=t, end_time=t + 1000) for t in (0, 5000)]
    (event,) = Inspector(etdump_data=spans(*turns), target_time_scale=TimeScale.US).event_blocks[0].events
    assert event.perf_data == PerfData([2.0])


def test_a_clock_of_32_bits_may_begin_anew() -> None:
    wrapped = ProfileEvent("x", 0, 0, start_time=2**32 - 1001, end_time=1000)
    (event,) = Inspector(etdump_data=spans(wrapped), target_time_scale=TimeScale.US).event_blocks[0].events
    assert event.perf_data == PerfData([2.0])
    with pytest.raises(EtdumpError, match="ends before it begins"):
        Inspector(etdump_data=spans(ProfileEvent("x", 0, 0, start_time=2**40, end_time=0)))


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (None, "an event without its value"),
        (Value("Tensor"), "kind Tensor without one"),
        (Value("Int"), "kind Int without one"),
        (Value("Tensor", tensor=Tensor(6, [2**40], [1], 0)), "does not have the bytes"),
        (Value("Tensor", tensor=Tensor(6, [2], [1], -4)), "does not have the bytes"),
        (Value("Tensor", tensor=Tensor(6, [-2], [1], 0)), "no known element type or size"),
        (Value("Tensor", tensor=Tensor(99, [2], [1], 0)), "no known element type or size"),
        (Value("Tensor", tensor=Tensor(6, [2, 2], [4, 1], 0)), "strides that leave gaps"),
        (Value("Tensor", tensor=Tensor(6, [2, 2], [1], 0)), "another number of strides"),
    ],
)
def test_damaged_values_end_in_one_error(entry: Value | None, text: str) -> None:
    data = write_etdump(ETDump(0, [RunData("Execute", events=[Event(debug_event=DebugEvent(0, 1, entry))])]))
    with pytest.raises(EtdumpError, match=text):
        Inspector(etdump_data=data, debug_buffer=bytes(16))


def test_values_of_every_kind() -> None:
    numbers = np.arange(6, dtype=np.float32)
    buffer = (
        numbers.tobytes() + b"\x80\x3f"  # 1.0 in bfloat16
    )
    transposed = Tensor(6, [3, 2], [1, 3], 0)
    entries = [
        Value("Int", int_value=Int(7)),
        Value("Tensor", tensor=transposed),
        Value("TensorList", tensor_list=TensorList([Tensor(15, [1], [1], 24), Tensor(6, [0, 3], [3, 1], 0)])),
        Value(),
    ]
    events = [Event(debug_event=DebugEvent(0, 1, entry)) for entry in entries]
    data = write_etdump(ETDump(0, [RunData("Execute", events=events)]))
    (event,) = Inspector(etdump_data=data, debug_buffer=buffer).event_blocks[0].events
    number, matrix, (narrow, empty), nothing = event.debug_data
    assert (number, nothing, narrow.dtype, narrow.item()) == (7, None, torch.bfloat16, 1.0)
    np.testing.assert_array_equal(matrix, numbers.reshape(2, 3).T)
    assert tuple(empty.shape) == (0, 3)
    (blind,) = Inspector(etdump_data=data).event_blocks[0].events
    assert blind.debug_data == [7, None, [None, None], None]


def test_wrong_arguments(made: Recording) -> None:
    data = made.dump(rules=True)["etdump_data"]
    with pytest.raises(ValueError, match="exactly one of etdump_path or etdump_data"):
        Inspector()
    with pytest.raises(ValueError, match="in cycles"):
        Inspector(etdump_data=data, target_time_scale=TimeScale.CYCLES)
    with pytest.raises(ValueError, match="has no graph 'other'"):
        Inspector(etdump_data=data, etrecord=made.record, reference_graph_name="other")
    with pytest.raises(TypeError, match="expected an ETRecord or a path"):
        Inspector(etdump_data=data, etrecord=3)  # type: ignore[arg-type]


def test_the_mapping_demo_shows_its_steps_under_their_nodes() -> None:
    """Two fused steps of two nodes each, and three steps that one node was split into."""
    runtime = pteron.Runtime()
    register_demo_backends(runtime)
    model, inputs = BackendWithDelegateMappingDemo.get_test_model_and_inputs()
    edge = to_edge(torch.export.export(model.eval(), inputs), generate_etrecord=True)
    manager = edge.to_backend(AllNodePartitioner("BackendWithDelegateMappingDemo", [])).to_executorch()
    program = pteron.load(manager.buffer, runtime=runtime)
    arguments = [each.numpy() for each in inputs]
    dump = record_etdump(program, arguments).etdump_bytes()
    fused = ["aten.convolution.default", "aten.relu.default"]
    for names, inspector in (
        (fused, Inspector(etdump_data=dump, etrecord=manager.get_etrecord())),
        (["aten.conv2d.default", fused[1]], Inspector(etdump_data=dump, program=program)),
    ):
        parts = [event for event in inspector.event_blocks[1].events if event.is_delegated_op]
        assert [event.op_types for event in parts] == [names, names, *[["aten.tan.default"]] * 3]
        assert {event.delegate_backend_name for event in parts} == {"BackendWithDelegateMappingDemo"}
        assert [event.raw_delegate_debug_metadatas for event in parts][:3] == [
            [b"conv_relu_op"],
            [b"conv_relu_op"],
            [b"sin_decomp_from_tan"],
        ]
        (call,) = [event for event in inspector.event_blocks[1].events if event.name == "DELEGATE_CALL"]
        assert call.delegate_backend_name == "BackendWithDelegateMappingDemo"
        assert len(call.op_types) == 5
    events = profile(program, arguments, runs=1).events
    modules = [[source.module for source in event.sources] for event in events]
    assert modules[:2] == [
        ["conv_layer.conv1", "conv_layer.relu1"],
        ["conv_layer.conv2", "conv_layer.relu2"],
    ]
    assert modules[2] == modules[3] == modules[4] == ["_ConvolutionsAndTan"]


def theirs_on(made: Recording, path: Path) -> dict[str, str]:
    """Files of a run in ExecuTorch's runtime of our program, and our record."""
    import executorch.runtime as theirs

    loaded = theirs.Runtime.get().load_program(made.buffer, enable_etdump=True, debug_buffer_size=1 << 16)
    method = loaded.load_method("forward")
    for _ in range(2):
        method.execute([made.x])
    files = {"etdump_path": str(path / "dump"), "debug_buffer_path": str(path / "values")}
    loaded.write_etdump_result_to_file(*files.values())
    made.record.save(path / "record")
    return {**files, "etrecord": str(path / "record")}


@pytest.mark.peer
def test_both_inspectors_say_the_same_of_a_run_in_executorch(made: Recording, tmp_path: Path) -> None:
    from executorch.devtools import Inspector as Theirs

    files = theirs_on(made, tmp_path)
    ours, theirs = Inspector(**files), Theirs(**files)
    our_frame, their_frame = ours.to_dataframe(), theirs.to_dataframe()
    assert list(our_frame.columns) == list(their_frame.columns)
    for column in our_frame.columns:
        assert list(map(str, our_frame[column])) == list(map(str, their_frame[column])), column
    for distance in ("MSE", "L1", "SNR"):
        our_gap, their_gap = (each.calculate_numeric_gap(distance) for each in (ours, theirs))
        assert list(our_gap.columns) == list(their_gap.columns)
        for column in ("aot_debug_handle", "aot_ops", "runtime_ops", "runtime_debug_handle", "stacktraces"):
            assert our_gap[column].tolist() == their_gap[column].tolist(), column
        np.testing.assert_allclose(our_gap["gap"].tolist(), their_gap["gap"].tolist(), rtol=1e-12)
    module = "first"
    assert ours.find_total_for_module(module) == pytest.approx(theirs.find_total_for_module(module))


@pytest.mark.peer
def test_executorch_s_inspector_opens_our_run(made: Recording, tmp_path: Path) -> None:
    from executorch.devtools import Inspector as Theirs

    runtime = pteron.Runtime(disabled_rules=["all"])
    recorder = record_etdump(
        pteron.load(made.buffer, runtime=runtime), [made.x.numpy()], debug_buffer_size=1 << 16
    )
    recorder.write(tmp_path / "dump", tmp_path / "values")
    made.record.save(tmp_path / "record")
    theirs = Theirs(
        etdump_path=str(tmp_path / "dump"),
        debug_buffer_path=str(tmp_path / "values"),
        etrecord=str(tmp_path / "record"),
    )
    names = [event.name for event in theirs.event_blocks[1].events]
    operators = [name.removeprefix("native_call_").partition(".")[0] for name in names if "native" in name]
    assert [each for each in operators if each != "permute_copy"] == PLAIN
    gap = theirs.calculate_numeric_gap("MSE")
    assert gap["aot_ops"].tolist() == [["linear"], ["relu"], ["linear_1"], ["add"]]
    assert max(value for listed in gap["gap"] for value in listed) < 1e-12
