"""Arguments of `to_backend`: by place, by name, missing, of unknown kinds, and registered forms."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from pteron.exir.backend.backend_api import (
    MethodProgramsPartitionerSpec,
    to_backend,
    validation_disabled,
)
from pteron.exir.backend.backend_details import BackendDetails
from pteron.exir.backend.lowered_backend_module import LoweredBackendModule
from pteron.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from tests.backend.lowering_cases import (
    Function,
    RecordingBackend,
    TagBy,
    delegate_calls,
    edge,
    operators,
    record,
)

NAME = RecordingBackend.__name__


@pytest.fixture(scope="module")
def program() -> Any:
    return edge(Function(torch.sin), torch.ones(2))


def sine(node: torch.fx.Node) -> str | None:
    return operators("sin")(node)


def test_keywords_come_in_any_order_and_both_spellings(program: Any) -> None:
    for lower in (
        lambda: to_backend(NAME, compile_specs=[], edge_program=program),
        lambda: to_backend(NAME, program, compile_spec=[]),
        lambda: to_backend(NAME, compile_spec=[], edge_program=program),
        lambda: to_backend(compile_specs=[], edge_program=program, backend_id=NAME),
    ):
        lowered = lower()
        assert isinstance(lowered, LoweredBackendModule)
        assert lowered.backend_id == NAME
    for lower in (
        lambda: to_backend(program, partitioner=TagBy(sine)),
        lambda: to_backend(program, partitioner_instance=TagBy(sine)),
        lambda: to_backend(partitioner=TagBy(sine), edge_program=program),
    ):
        assert len(delegate_calls(lower())) == 1
    methods = MethodProgramsPartitionerSpec({"forward": program}, {"forward": TagBy(sine)})
    assert set(to_backend(method_edge_program_partitioners=methods)) == {"forward"}


@pytest.mark.parametrize(
    ("arguments", "keywords", "text"),
    [
        ((NAME, "program"), {}, r"missing 1 required positional argument: 'compile_specs'; pass \[\]"),
        ((NAME,), {}, "missing 2 required positional arguments: 'edge_program' and 'compile_specs'"),
        (("program",), {}, "missing 1 required positional argument: 'partitioner'"),
        ((NAME, "program", []), {"compile_spec": []}, "multiple values for argument 'compile_specs'"),
        ((NAME, "program", []), {"partitioner": None}, "unexpected keyword argument 'partitioner'"),
        ((NAME, "program", [], []), {}, "but 4 arguments were given"),
        ((), {}, "got no program"),
        ((3, []), {}, r"got \(int, list\)"),
        ((NAME, 3, []), {}, "expected an edge program"),
    ],
)
def test_wrong_arguments_say_which(program: Any, arguments: Any, keywords: Any, text: str) -> None:
    given = [program if argument == "program" else argument for argument in arguments]
    with pytest.raises(TypeError, match=text):
        to_backend(*given, **keywords)


def test_a_form_for_another_type_is_registered(program: Any) -> None:
    class Bundle:
        def __init__(self, held: Any) -> None:
            self.held = held

    @to_backend.register(Bundle)  # type: ignore[attr-defined]
    def _(bundle: Bundle, backend_id: str) -> Any:
        return to_backend(backend_id, bundle.held, [])

    assert isinstance(to_backend(Bundle(program), NAME), LoweredBackendModule)
    assert to_backend.dispatch(Bundle) is not to_backend.dispatch(int)  # type: ignore[attr-defined]
    assert {str, Bundle} <= set(to_backend.registry)  # type: ignore[attr-defined]


def test_a_backend_without_preprocess_says_so(program: Any) -> None:
    class Unfinished(BackendDetails):
        pass

    with pytest.raises(
        NotImplementedError, match=r"Unfinished has no preprocess\(edge_program, compile_specs\)"
    ):
        to_backend("Unfinished", program, [])
    with pytest.raises(NotImplementedError, match="Unfinished has no preprocess"):
        to_backend(MethodProgramsPartitionerSpec({"f": program}, {"f": DelegationSpec("Unfinished", [])}))


def test_texts_that_callers_match(program: Any, caplog: pytest.LogCaptureFixture) -> None:
    class WithoutTags(Partitioner):
        def partition(self, exported_program: Any) -> PartitionResult:
            return PartitionResult(exported_program, None)  # type: ignore[arg-type]

    text = "needs a `partition_tags` field containing a mapping of tags to delegate spec"
    with pytest.raises(AssertionError, match=text):
        to_backend(program, WithoutTags())
    with caplog.at_level(logging.DEBUG), validation_disabled():
        partitioner = TagBy(sine)
        tagged = partitioner.partition

        def with_empty_tag(exported_program: Any) -> PartitionResult:
            result = tagged(exported_program)
            return PartitionResult(
                exported_program, {"none": DelegationSpec(NAME, []), **result.partition_tags}
            )

        partitioner.partition = with_empty_tag  # type: ignore[method-assign]
        to_backend(program, partitioner)
    assert "Disabled validating the partitioner." in caplog.text
    assert "Did not find any nodes for tag none" in caplog.text
    assert "For tag t, found nodes [aten_sin_default]" in caplog.text


@pytest.mark.parametrize("is_of_methods", [True, False])
def test_partitions_come_in_graph_order(is_of_methods: bool) -> None:
    def steps(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.cos(torch.sin(x) * 2) * 2)

    class FromTheEnd(Partitioner):
        """Numbers its tags from the end of the graph, as PyTorch's partitioner does."""

        def partition(self, exported_program: Any) -> PartitionResult:
            tags = {}
            for node in reversed(exported_program.graph.nodes):
                if any(name in str(node.target) for name in ("sin", "cos")):
                    node.meta["delegation_tag"] = f"tag{len(tags)}"
                    tags[f"tag{len(tags)}"] = DelegationSpec(NAME, [])
            return PartitionResult(exported_program, tags)

    record()
    source = edge(Function(steps), torch.ones(2))
    if is_of_methods:
        spec = MethodProgramsPartitionerSpec({"forward": source}, {"forward": FromTheEnd()})
        lowered = to_backend(spec)["forward"]
    else:
        lowered = to_backend(source, FromTheEnd())
    called = [call.args[0].target for call in delegate_calls(lowered)]
    assert called == ["lowered_module_0", "lowered_module_1", "lowered_module_2"]
    kinds = [
        node.target.__name__
        for p in RecordingBackend.programs
        for node in p.graph.nodes
        if node.op == "call_function"
    ]
    assert kinds == ["aten.sin.default", "aten.cos.default", "aten.sin.default"]
