"""What a session needs, the first value that is not finite, and how objects show themselves."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron.devtools import first_non_finite, memory_report
from pteron.devtools.description import describe_plan
from pteron.devtools.live_memory import live_bytes
from pteron.devtools.profile import Profile, profile
from pteron.devtools.report import Subject
from pteron.devtools.size_report import size_report
from pteron.exir import to_edge
from tests.devtools.recorded_model import captured

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Broken(nn.Module):
    """The logarithm of a product: of a negative one it is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(torch.log(self.layer(x)))


@pytest.fixture(scope="module")
def broken() -> bytes:
    model = Broken().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return to_edge(torch.export.export(model, (torch.ones(2, 3),))).to_executorch().buffer


def test_the_step_that_writes_the_first_nan_is_named(broken: bytes) -> None:
    program = pteron.load(broken, runtime=pteron.Runtime(disabled_rules=["all"]))
    x = np.ones((2, 3), np.float32)
    assert first_non_finite(program, [x]) is None
    x[1] = -1
    found = first_non_finite(program, [x])
    assert found is not None
    assert (found.operator, found.nans, found.infinities, found.index) == ("aten::log.out", 2, 0, (1, 0))
    assert found.sources[0].operator == "aten.log.default"
    text = str(found)
    assert text.startswith(f"step {found.step}, aten::log.out (")
    assert "test_memory_and_non_finite.py:" in text
    fused = first_non_finite(pteron.load(broken), [x])
    assert fused is not None
    assert "aten.log.default" in {source.operator for source in fused.sources}


def test_infinities_count_unless_nan_alone_is_asked_for(broken: bytes) -> None:
    program = pteron.load(broken, runtime=pteron.Runtime(disabled_rules=["all"]))
    x = np.full((2, 3), -1 / 3, np.float32)  # the product is 0, its logarithm infinite, the sine of that NaN
    x[:, 2] = -1 / 3
    first = first_non_finite(program, [x])
    nan = first_non_finite(program, [x], nan_only=True)
    assert first is not None
    assert nan is not None
    assert (first.operator, first.infinities) == ("aten::log.out", 4)
    assert (nan.operator, nan.nans) == ("aten::sin.out", 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_input_is_named_first(dtype: torch.dtype) -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x

    x = torch.tensor([1.0, float("inf")], dtype=dtype)
    program = pteron.load(to_edge(torch.export.export(Twice(), (x,))).to_executorch().buffer)
    found = first_non_finite(program, [x])
    assert found is not None
    assert (found.step, found.operator, found.dtype) == (-1, "x", str(dtype).removeprefix("torch."))
    assert str(found).startswith("input x has ")


def test_the_report_of_memory_adds_up() -> None:
    program = pteron.load(to_edge(captured()[0]).to_executorch().buffer)
    report = memory_report(program)
    plan = describe_plan(program)
    assert report.peak_bytes == max(live_bytes(plan)) <= sum(report.arenas) <= report.session_bytes
    assert report.arenas == plan.arenas
    # Nothing shares bytes in this model.
    assert sum(tensor.nbytes for tensor in report.at_peak) == report.peak_bytes
    assert report.to_dict()["peak_step"] == report.peak_step
    text = str(report)
    assert f"{report.peak_bytes:,} in use at step" in text
    assert "recorded_model.py:" in text


def test_objects_show_what_they_are() -> None:
    program, x = captured()
    edge = to_edge(program, {"answer": 42})
    manager = edge.to_executorch()
    nodes = len(edge.exported_program().graph.nodes)
    assert repr(edge) == f"<EdgeProgramManager of forward: {nodes} nodes; constant methods answer>"
    assert "forward: 6 instructions, 0 delegates, " in repr(manager)
    measured = profile(pteron.load(manager.buffer), [x.numpy()], runs=2)
    assert repr(measured).startswith("<Profile of forward: 4 steps, ")
    sizes = size_report(pteron.load(manager.buffer), manager.buffer)
    assert repr(sizes).startswith("<SizeReport: ")
    assert str(sum(sizes.modules.values())) in str(sizes)
    memory = memory_report(pteron.load(manager.buffer))
    assert repr(memory).startswith("<MemoryReport of forward: ")
    assert f"<td>{memory.at_peak[0].nbytes:,}</td>" in memory._repr_html_()


def test_tools_are_called_by_their_names_in_the_package() -> None:
    tools: Any = pteron.devtools  # A type checker knows a module, which nobody calls.
    exported, x = captured()
    content = bytes(to_edge(exported).to_executorch().buffer)
    program = pteron.load(content)
    measured = tools.profile(program, [x.numpy()], runs=1)
    assert type(measured) is Profile
    assert tools.size_report(program, content) == size_report(program, content)
    plain = pteron.load(content, runtime=pteron.Runtime(disabled_rules=["all"]))
    assert tools.compare(program, plain, [x.numpy()]).values
    page = tools.report([Subject("model.pte", program, content)])
    assert page.html.startswith("<!")
    assert inspect.signature(tools.profile) == inspect.signature(profile)
    assert {"profile", "compare", "memory_report", "size_report", "Inspector"} <= set(dir(tools))
