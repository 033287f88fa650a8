"""Options, memory, stopping, state, events, the cache; and what is wrong with a file or a machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pteron
import pteron_onnxruntime
from pteron.exir import ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from pteron.exir.backend.partitioner import DelegationSpec
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron_onnxruntime import BACKEND, OnnxRuntimePartitioner, register

X = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Slow(nn.Module):
    """Some seconds of products."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = torch.tanh(x @ x)
        return x


class Sums(nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2.0


def program(
    module: nn.Module,
    *args: torch.Tensor,
    partitioner: Callable[[], Any] = OnnxRuntimePartitioner,
    **capture: Any,
) -> bytes:
    exported = torch.export.export(module.eval(), args, **capture)
    manager = to_edge_transform_and_lower(exported, partitioner=[partitioner()])
    assert [d.backend_id for d in manager.delegation_report()["forward"].delegates] == [BACKEND]
    return manager.to_executorch().buffer


@pytest.fixture(scope="module")
def net() -> bytes:
    return program(Net(), X)


@pytest.fixture(scope="module")
def runtime() -> pteron.Runtime:
    made = pteron.Runtime()
    register(made)
    return made


def load(file: bytes, runtime: pteron.Runtime, **options: Any) -> pteron.Method:
    return pteron.load(file, runtime=runtime).load_method("forward", backend_options={BACKEND: options})


def test_the_same_program_gives_the_same_bytes(net: bytes) -> None:
    assert program(Net(), X) == net
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; import importlib.util as u;"
        "s = u.spec_from_file_location('t', sys.argv[1]); t = u.module_from_spec(s); s.loader.exec_module(t);"
        "sys.stdout.buffer.write(t.program(t.Net(), t.X))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, __file__, *sys.path], capture_output=True, check=True
    )
    assert done.stdout == net


def test_it_is_found_by_its_entry_point(net: bytes) -> None:
    assert pteron.plugins.installed()[BACKEND].startswith("pteron-onnxruntime ")
    assert pteron.plugins.load_partitioner(BACKEND) is OnnxRuntimePartitioner
    runtime = pteron.Runtime()
    pteron.plugins.load(BACKEND, runtime=runtime)
    assert runtime.is_available(BACKEND)
    with torch.no_grad():
        assert np.allclose(load(net, runtime)(X.numpy()), Net()(X), atol=1e-5)


def test_options_reach_onnx_runtime(net: bytes) -> None:
    def made(**options: Any) -> Any:
        runtime, backend = pteron.Runtime(), pteron_onnxruntime.OnnxRuntimeRuntime()
        pteron.register_backend(BACKEND, backend, runtime=runtime)
        method = load(net, runtime, **options)
        with torch.no_grad():
            assert np.allclose(method(X.numpy()), Net()(X), atol=1e-5)
        return next(iter(backend._compiled.values())).session.get_session_options()

    assert made(intra_op_num_threads=1, execution_mode="parallel").intra_op_num_threads == 1
    assert made(graph_optimization_level="basic").graph_optimization_level.name == "ORT_ENABLE_BASIC"
    assert (
        made(**{"session.intra_op.allow_spinning": "0"}).get_session_config_entry(
            "session.intra_op.allow_spinning"
        )
        == "0"
    )
    in_program = program(
        Net(), X, partitioner=lambda: OnnxRuntimePartitioner({"graph_optimization_level": "most"})
    )
    runtime = pteron.Runtime()
    register(runtime)
    with pytest.raises(pteron.DelegateError, match="graph_optimization_level cannot be 'most'"):
        load(in_program, runtime)
    assert load(in_program, runtime, graph_optimization_level="all")(X.numpy()).shape == (4, 32)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"providers": "AbacusExecutionProvider"},
            "has no 'AbacusExecutionProvider', only .*CPUEx",
        ),
        (
            {"provider": "CPUExecutionProvider"},
            "backend option 'provider' is not known: there are prov",
        ),
        ({"CUDAExecutionProvider.device_id": 1}, "the provider is not among CPUExecutionProvider"),
        ({"intra_op_num_threads": "many"}, "intra_op_num_threads cannot be 'many'"),
    ],
)
def test_wrong_options_are_named(net: bytes, runtime: pteron.Runtime, options: Any, says: str) -> None:
    with pytest.raises(pteron.DelegateError, match=says):
        load(net, runtime, **options)


def test_a_program_may_not_name_folders() -> None:
    def partitioner() -> OnnxRuntimePartitioner:
        return OnnxRuntimePartitioner({"cache_dir": "/tmp/anywhere"})

    with pytest.raises(RuntimeError, match="the program sets 'cache_dir'; a program may set providers"):
        program(Net(), X, partitioner=partitioner)


def test_optimised_models_are_kept_in_a_folder(net: bytes, runtime: pteron.Runtime, tmp_path: Path) -> None:
    def is_from_cache(file: bytes) -> bool:
        own, backend = pteron.Runtime(), pteron_onnxruntime.OnnxRuntimeRuntime()
        pteron.register_backend(BACKEND, backend, runtime=own)
        method = load(file, own, cache_dir=str(tmp_path))
        assert np.allclose(method(X.numpy()), load(file, runtime)(X.numpy()), atol=1e-5)
        return bool(next(iter(backend._compiled.values())).is_from_cache)

    assert [is_from_cache(net) for _ in range(2)] == [False, True]
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert [is_from_cache(net) for _ in range(2)] == [False, True]
    # The same model and the same keys over other weights is another entry.
    weight = Net().first.weight.detach().numpy().tobytes()
    assert not is_from_cache(net.replace(weight, bytes(len(weight))))
    assert len(list(tmp_path.iterdir())) == 2


def test_sessions_share_a_compiled_model(net: bytes) -> None:
    runtime, backend = pteron.Runtime(), pteron_onnxruntime.OnnxRuntimeRuntime()
    pteron.register_backend(BACKEND, backend, runtime=runtime)
    loaded = pteron.load(net, runtime=runtime)
    sessions = [loaded.load_method() for _ in range(3)]
    assert len(backend._compiled) == 1
    other = loaded.load_method(backend_options={BACKEND: {"intra_op_num_threads": 1}})
    assert len(backend._compiled) == 2
    del sessions, other
    assert len(backend._compiled) == 0


def test_constants_are_read_where_the_program_has_them(net: bytes) -> None:
    runtime, backend = pteron.Runtime(), pteron_onnxruntime.OnnxRuntimeRuntime()
    pteron.register_backend(BACKEND, backend, runtime=runtime)
    loaded = pteron.load(net, runtime=runtime)
    places = {
        np.frombuffer(content, np.uint8).ctypes.data
        for key, content in loaded.named_data.items()
        if key.startswith("onnxruntime/")
    }
    method = loaded.load_method()
    (compiled,) = backend._compiled.values()
    assert len(compiled._kept) == 2
    assert {value.data_ptr() for value in compiled._kept} == places
    del method


def test_results_are_written_in_place(net: bytes, runtime: pteron.Runtime) -> None:
    out = np.zeros((4, 32), np.float32)
    (result,) = load(net, runtime).execute([X.numpy()], outputs=[out])
    assert result is out
    with torch.no_grad():
        assert np.allclose(out, Net()(X), atol=1e-5)


def test_what_lies_elsewhere_is_bound_again(runtime: pteron.Runtime) -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    exported = torch.export.export(Net().eval(), (X,), dynamic_shapes={"x": {0: rows}})
    manager = to_edge(exported).to_backend(DelegationSpec(BACKEND, []))
    # Inputs and results in the caller's memory.
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    file = manager.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer
    method = load(file, runtime)
    given = [(X * n).numpy() for n in range(3)] + [X[:2].numpy()]
    with torch.no_grad():
        expected = [Net()(torch.from_numpy(x)).numpy() for x in given]
    into = [np.empty_like(result) for result in expected]
    for at in (0, 0, 1, 0, 2, 3, 3, 0):
        (fresh,) = method.execute([given[at]])
        assert np.allclose(fresh, expected[at], atol=1e-4)
        into[at].fill(np.nan)
        method.execute([given[at]], outputs=[into[at]])
        assert np.allclose(into[at], expected[at], atol=1e-4)


def test_methods_share_constants(runtime: pteron.Runtime) -> None:
    net, rows = Net().eval(), torch.export.Dim("rows", min=1, max=8)
    methods = {
        "all": torch.export.export(net, (X,)),
        "some": torch.export.export(net, (X,), dynamic_shapes={"x": {0: rows}}),
    }
    manager = to_edge_transform_and_lower(methods, partitioner=[OnnxRuntimePartitioner()])
    file = manager.to_executorch().buffer
    weight = net.first.weight.detach().numpy().tobytes()
    assert file.count(weight) == 1
    loaded = pteron.load(file, runtime=runtime)
    with torch.no_grad():
        for name, count in (("all", 4), ("some", 1), ("some", 3), ("some", 4)):
            assert np.allclose(loaded.run(name, X[:count].numpy()), net(X[:count]), atol=1e-5)


def test_state_is_read_set_and_reset(runtime: pteron.Runtime) -> None:
    method = load(program(Sums(), torch.ones(3)), runtime)
    one = np.ones(3, np.float32)
    assert [float(method(one)[0]) for _ in range(2)] == [2, 4]
    kept = method.get_state()
    assert float(method(one)[0]) == 6
    method.set_state(kept)
    assert float(method(one)[0]) == 6
    method.reset_state()
    assert float(method(one)[0]) == 2


def test_a_call_is_stopped(runtime: pteron.Runtime) -> None:
    x = np.eye(1024, dtype=np.float32)
    method = load(program(Slow(), torch.from_numpy(x)), runtime, intra_op_num_threads=1)
    with pytest.raises(pteron.DeadlineExceeded):
        method.execute([x], deadline=0.02)
    stopper = threading.Timer(0.05, method.cancel)
    stopper.start()
    with pytest.raises(pteron.Cancelled):
        method.execute([x])
    (result,) = method.execute([x])
    expected = x
    for _ in range(60):
        expected = np.tanh(expected @ expected)
    assert np.allclose(result, expected, atol=1e-4)


def test_two_sessions_at_once(net: bytes, runtime: pteron.Runtime) -> None:
    loaded, wrong = pteron.load(net, runtime=runtime), list[int]()
    with torch.no_grad():
        expected = [Net()(X * n).numpy() for n in range(2)]

    def work(n: int) -> None:
        method = loaded.load_method()
        for _ in range(200):
            if not np.allclose(method((X * n).numpy()), expected[n], atol=1e-4):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Tracer:
    def __init__(self) -> None:
        self.events: list[tuple[Any, dict[str, Any], int]] = []

    def delegate_event(
        self, step: Any, backend: str, identifier: Any, start: int, end: int, metadata: bytes
    ) -> None:
        assert backend == BACKEND
        self.events.append((identifier, json.loads(metadata), end - start))


def test_events_name_nodes_that_the_program_maps_to_source_lines(net: bytes, runtime: pteron.Runtime) -> None:
    tracer = Tracer()
    method = load(net, runtime, profile=True)
    method.execute([X.numpy()], tracer=tracer)
    debug = json.loads(bytes(pteron.load(net, runtime=runtime).named_data["pteron.debug"]))
    mapped = debug["methods"]["forward"]["delegates"]["0"]["map"]
    assert [identifier for identifier, _, _ in tracer.events] == [
        "aten_addmm_default",
        "aten_addmm_default_1",
    ]
    for identifier, detail, length in tracer.events:
        assert length >= 0
        assert identifier in mapped
        assert detail["provider"] == "CPUExecutionProvider"
        assert "Gemm" in detail["op_name"]
    untraced = Tracer()
    load(net, runtime).execute([X.numpy()], tracer=untraced)
    assert not untraced.events
    assert sum(length for _, _, length in tracer.events) > 0


def test_another_blob_is_refused(net: bytes, runtime: pteron.Runtime) -> None:
    at = net.find(b"PTOR")
    for changed, says in (
        (
            net.replace(b"PTOR", b"OVXX"),
            "no blob of PteronOnnxRuntimeBackend: it begins with b'OVXX'",
        ),
        (net[: at + 4] + b"\x02" + net[at + 5 :], "the blob has version 2, this package reads version 1"),
        (net.replace(b"Gemm", b"Gemn"), "the blob is damaged: its digest is another one than it states"),
    ):
        with pytest.raises(pteron.DelegateError, match=says):
            load(changed, runtime)


def test_a_head_that_lies_is_refused(runtime: pteron.Runtime) -> None:
    from pteron.exir import to_edge
    from pteron.exir.backend.backend_api import to_backend
    from pteron_onnxruntime import blob
    from pteron_onnxruntime.preprocess import PteronOnnxRuntimeBackend

    edge = to_edge(torch.export.export(Net().eval(), (X,))).exported_program()
    lowered = to_backend(PteronOnnxRuntimeBackend.__name__, edge, [])
    head, model = blob.read(memoryview(lowered.processed_bytes))
    (constant, *others) = head.constants
    smaller = blob.Constant(constant.name, constant.key, constant.dtype, (1,))
    lies: list[tuple[dict[str, Any], bytes, str]] = [
        ({"constants": (smaller, *others)}, model, "bytes, its shape asks 4"),
        ({"constants": ()}, model, "cannot use the model"),
        ({"outputs": ("float32",) * 2}, model, "1 results, the blob states 1 and 2"),
        ({"outputs": ("float99",)}, model, "element type 'float99'"),
        ({"inputs": ()}, model, "the model has 1 inputs"),
        ({}, model[:50], "ONNX Runtime .* cannot use the model"),
    ]
    for fields, text, says in lies:
        lowered._processed_bytes = blob.written(blob.Head(**{**head.__dict__, **fields}), text)
        with pytest.raises(pteron.DelegateError, match=says):
            load(lowered.buffer(), runtime)


def test_extents_that_lie_are_refused(runtime: pteron.Runtime) -> None:
    """The runtime knows the extents of its memory, whatever a blob says."""
    from pteron.exir import to_edge
    from pteron.exir.backend.backend_api import to_backend
    from pteron_onnxruntime import blob
    from pteron_onnxruntime.preprocess import PteronOnnxRuntimeBackend

    shape = "cannot take the shape"

    edge = to_edge(torch.export.export(Net().eval(), (X,))).exported_program()
    lowered = to_backend(PteronOnnxRuntimeBackend.__name__, edge, [])
    head, model = blob.read(memoryview(lowered.processed_bytes))
    for extents, says in (
        ((4, 8), shape),
        ((2, 64), shape),
        ((4, (7, 0)), "an extent from input"),
        ((4, 99), shape),
    ):
        fields = {**head.__dict__, "extents": (extents,)}
        lowered._processed_bytes = blob.written(blob.Head(**fields), model)
        with pytest.raises(pteron.DelegateError, match=says):
            load(lowered.buffer(), runtime)(X.numpy())


def test_a_model_cannot_read_files(runtime: pteron.Runtime, tmp_path: Path, monkeypatch: Any) -> None:
    """Constants that a model has in a file of the working directory are not looked for."""
    import onnx
    from onnx import TensorProto, helper

    from pteron.exir import to_edge
    from pteron.exir.backend.backend_api import to_backend
    from pteron_onnxruntime import blob
    from pteron_onnxruntime.preprocess import PteronOnnxRuntimeBackend

    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(bytes(4 * 32 * 4))
    constant = TensorProto(name="c", data_type=1, dims=[4, 32], data_location=TensorProto.EXTERNAL)
    constant.external_data.add(key="location", value="secret")
    border = [helper.make_tensor_value_info(name, 1, [4, 32]) for name in ("input0", "output0")]
    nodes = [helper.make_node("Add", ["input0", "c"], ["output0"])]
    graph = helper.make_graph(nodes, "g", border[:1], border[1:], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert onnx.__version__
    edge = to_edge(torch.export.export(Net().eval(), (X,))).exported_program()
    lowered = to_backend(PteronOnnxRuntimeBackend.__name__, edge, [])
    head, _ = blob.read(memoryview(lowered.processed_bytes))
    fields = {**head.__dict__, "constants": ()}
    lowered._processed_bytes = blob.written(blob.Head(**fields), model.SerializeToString())
    with pytest.raises(pteron.DelegateError, match="cannot use the model"):
        load(lowered.buffer(), runtime)


def _bare(tmp_path: Path, *packages: str) -> dict[str, str]:
    """An environment with NumPy, pteron, this package and `packages` alone."""
    site = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs", "typing_extensions.py", *packages):
        if (site / name).exists():
            (tmp_path / name).symlink_to(site / name)
    for module in (pteron, pteron_onnxruntime):
        folder = Path(str(module.__file__)).parent
        (tmp_path / folder.name).symlink_to(folder)
    return {"PYTHONPATH": str(tmp_path), "PATH": ""}


_RUN = """
import sys, numpy, pteron, pteron_onnxruntime
pteron_onnxruntime.register()
program = pteron.load(sys.argv[1])
print(pteron.Runtime.shared().unavailable_reason("PteronOnnxRuntimeBackend"))
try:
    print(program.run("forward", numpy.ones((4, 32), numpy.float32)).shape)
except pteron.MissingBackendError as error:
    print("MissingBackendError", error)
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("packages", [(), ("onnxruntime",)])
def test_the_run_half_needs_onnx_runtime_and_numpy(
    net: bytes, tmp_path: Path, packages: tuple[str, ...]
) -> None:
    (tmp_path / "net.pte").write_bytes(net)
    done = subprocess.run(
        [sys.executable, "-S", "-c", _RUN, str(tmp_path / "net.pte")],
        env=_bare(tmp_path, *packages),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if packages:
        assert done.stdout.splitlines() == ["None", "(4, 32)"]
    else:
        assert "ONNX Runtime is not installed: pip install onnxruntime" in done.stdout
        assert "MissingBackendError" in done.stdout
