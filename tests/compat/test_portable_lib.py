"""`portable_lib` and `Runtime` beside those of the executorch package: the same file, the same calls."""

from __future__ import annotations

import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pteron
from pteron import runtime as our_runtime
from pteron.compat import portable_lib as ours
from pteron.devtools.etdump import read_etdump
from tests.compat.peer import bundled, exir, same

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

X, Y = torch.arange(6.0).reshape(3, 2), torch.ones(2)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.count.add_(1)
        return self.linear(x) + self.count, y * 2


@pytest.fixture(scope="module")
def program() -> bytes:
    torch.manual_seed(0)
    captured = torch.export.export(Counting().eval(), (X, Y))
    return exir.to_edge({"forward": captured, "second": captured}).to_executorch().buffer


class Scaled(nn.Module):
    def forward(self, x: Tensor, n: int, flag: bool) -> tuple[Tensor, int, bool, None]:
        return (x * n if flag else x), n + 1, flag, None


@pytest.fixture(scope="module")
def with_numbers() -> bytes:
    return exir.to_edge(torch.export.export(Scaled(), (X, 3, True))).to_executorch().buffer


class Ones(nn.Module):
    def forward(self) -> Tensor:
        return torch.ones(3)


class Filled(nn.Module):
    def forward(self, n: int) -> Tensor:
        return torch.ones(2) * n


class Bits(nn.Module):
    def forward(self) -> Tensor:
        return torch.full((2,), 1.5, dtype=torch.bfloat16)


def _exported(model: nn.Module, *args: Any) -> bytes:
    return exir.to_edge(torch.export.export(model, args)).to_executorch().buffer


def _names(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("__") and (inspect.isclass(value) or callable(value)) and name != "logger"
    }


def test_every_name_is_here_or_refused_with_a_reason(theirs: ModuleType) -> None:
    wanted = {n for n in _names(theirs) if n.startswith("_") or n[0].isupper()}
    assert wanted - set(ours.REFUSED) == set(ours.__all__)
    for name, reason in ours.REFUSED.items():
        assert name in wanted
        with pytest.raises(AttributeError, match=re.escape(reason)):
            getattr(ours, name)
    with pytest.raises(AttributeError, match="_nothing"):
        ours._nothing


@pytest.mark.parametrize(
    "name", ["ExecuTorchModule", "ExecuTorchProgram", "ExecuTorchMethod", "MethodMeta", "TensorInfo"]
)
def test_classes_have_their_methods(theirs: ModuleType, name: str) -> None:
    methods = {m for m in dir(getattr(theirs, name)) if not m.startswith("_")} | {"__repr__"}
    assert methods <= set(dir(getattr(ours, name)))


def _parameters(signature: str) -> list[str]:
    """Names in a signature as pybind11 writes it."""
    signature = re.sub(
        r"<[^>]*>", "", signature.split(" -> ")[0]
    )  # defaults such as <Verification.Minimal: 0>
    return [n for n in re.findall(r"(\w+): ", signature) if n != "self"]


def test_functions_take_their_parameters_in_their_order(theirs: ModuleType) -> None:
    checked = 0
    for name in ours.__all__:
        function = getattr(theirs, name)
        signature = (function.__doc__ or "").splitlines()[0] if not inspect.isclass(function) else ""
        if name.startswith("_") and "*args" not in signature and "arg0" not in signature:
            assert list(inspect.signature(getattr(ours, name)).parameters) == _parameters(signature), name
            checked += 1
    assert checked >= 10


def test_runtime_has_their_names() -> None:
    import executorch.runtime as peer

    for name in our_runtime.__all__:
        if hasattr(peer, name) and name not in ("MethodMeta", "TensorInfo", "Verification"):
            public = {m for m in dir(getattr(peer, name)) if not m.startswith("_")}
            assert public <= set(dir(getattr(our_runtime, name))) | {"backend_registry", "operator_registry"}
    wanted = inspect.signature(peer.Runtime.load_program).parameters
    assert list(inspect.signature(our_runtime.Runtime.load_program).parameters) == list(wanted)


def test_the_same_calls_give_the_same_results(theirs: ModuleType, program: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.pte").write_bytes(program)

    def calls(lib: ModuleType) -> list[Any]:
        module = lib._load_for_executorch(str(tmp_path / "p.pte"))
        results = [module.forward([X, Y]), module.forward((X * 2, Y)), module([X, Y])]
        results.append(module.run_method("forward", (X, Y), clone_outputs=True))
        results.append(module.forward(inputs=[X, Y]))
        # Of a module of its own: methods of theirs overwrite each other's buffers.
        results.append(lib._load_for_executorch(str(tmp_path / "p.pte")).run_method("second", [X + 1, Y]))
        loaded = lib._load_program_from_buffer(program)
        method = loaded.load_method("forward")
        results += [method.call([X, Y]), method([X, Y]), method((X, Y * 3), clone_outputs=True)]
        method.set_inputs([X, Y])
        assert method.execute() is None
        results.append(method.get_outputs())
        loaded = lib._load_program(str(tmp_path / "p.pte"))
        results.append(loaded.load_method("second").call([X, Y]))
        return results

    for a, b in zip(calls(ours), calls(theirs), strict=True):
        same(a, b)


def test_metadata_is_thesame(theirs: ModuleType, program: bytes, with_numbers: bytes) -> None:
    def told(lib: ModuleType) -> list[Any]:
        module = lib._load_for_executorch_from_buffer(program)
        found: list[Any] = [sorted(module.method_names()), module.has_etdump()]
        loaded = lib._load_program_from_buffer(program)
        found += [loaded.num_methods(), loaded.get_method_name(0), loaded.get_method_name(1)]
        found.append(loaded.has_etdump())
        metas = [module.method_meta("forward"), loaded.method_meta("second")]
        metas.append(loaded.load_method("second").method_meta())
        for meta in metas:
            found += [meta.name(), meta.num_inputs(), meta.num_outputs()]
            tensors = [meta.input_tensor_meta(i) for i in range(meta.num_inputs())]
            tensors += [meta.output_tensor_meta(i) for i in range(meta.num_outputs())]
            for t in tensors:
                found += [t.sizes(), t.dtype(), t.nbytes(), t.is_memory_planned()]
        numbers = lib._load_for_executorch_from_buffer(with_numbers).method_meta("forward")
        for ask in (
            lambda: numbers.input_tensor_meta(1),
            lambda: numbers.output_tensor_meta(1),
            lambda: numbers.input_tensor_meta(9),
            lambda: numbers.output_tensor_meta(9),
            lambda: metas[0].attribute_tensor_meta(9),
        ):
            with pytest.raises(IndexError):
                ask()
        return found

    assert told(ours) == told(theirs)


def test_what_they_refuse_is_refused(
    theirs: ModuleType, program: bytes, with_numbers: bytes, tmp_path: Path
) -> None:
    def refused(lib: ModuleType) -> list[Callable[[], Any]]:
        module = lib._load_for_executorch_from_buffer(program)
        loaded = lib._load_program_from_buffer(program)
        numbers = lib._load_for_executorch_from_buffer(with_numbers)
        fresh = loaded.load_method("second")
        numbers_method = lib._load_program_from_buffer(with_numbers).load_method("forward")
        return [
            lambda: module.run_method("nothing", (X, Y)),
            lambda: module.method_meta("nothing"),
            lambda: module.plan_execute("nothing"),
            lambda: module.plan_execute("forward"),
            lambda: module.forward([X, Y, Y]),
            lambda: module.forward([X.int(), Y]),
            lambda: module.forward([torch.ones(4, 2), Y]),
            lambda: module.forward([torch.ones(6), Y]),
            lambda: module.forward([1, Y]),
            lambda: module.forward([None, Y]),
            lambda: module.forward(["a", Y]),
            lambda: numbers.forward([X, 4, True]),
            lambda: numbers.forward([X, 3, False]),
            lambda: numbers.forward([X, 3.0, True]),
            lambda: loaded.load_method("nothing"),
            lambda: loaded.method_meta("nothing"),
            lambda: loaded.get_method_name(9),
            lambda: fresh.execute(),
            lambda: fresh.set_inputs([X]),
            lambda: fresh.set_inputs([X.int(), Y]),
            lambda: fresh.set_inputs([torch.ones(9), Y]),
            lambda: fresh.set_inputs([None, Y]),
            lambda: numbers_method.set_inputs([X, 9, True]),
            lambda: fresh.call(),
            lambda: fresh.call([X]),
            lambda: fresh.get_attribute("nothing"),
            lambda: module.write_etdump_result_to_file(str(tmp_path / "dump")),
            lambda: loaded.write_etdump_result_to_file(str(tmp_path / "dump")),
        ]

    for our_call, their_call in zip(refused(ours), refused(theirs), strict=True):
        for call in (their_call, our_call):
            with pytest.raises(RuntimeError):
                call()


def test_where_they_go_on_or_crash_there_is_an_error_here(theirs: ModuleType, program: bytes) -> None:
    module = ours._load_for_executorch_from_buffer(program)
    with pytest.raises(pteron.ProgramError):
        ours._load_for_executorch_from_buffer(b"x" * 40)  # they notice when a method is called
    with pytest.raises(FileNotFoundError):
        ours._load_for_executorch("nothing.pte")
    module.forward([X, Y])
    with pytest.raises(pteron.InputError, match="input"):
        module.forward([X])  # they take the second input of the earlier call
    method = ours._load_program_from_buffer(program).load_method("forward")
    with pytest.raises(pteron.PteronError, match="no outputs yet"):
        method.get_outputs()  # they give what lies in memory
    with pytest.raises(pteron.InputError, match="at least 1"):
        ours._unsafe_reset_threadpool(-1)  # they ask for 4294967295 threads
    with pytest.raises(TypeError, match="Verification"):
        ours._load_for_executorch_from_buffer(program, None, False, 0, 1)


@pytest.mark.parametrize("debug_buffer_size", [0, 4096])
def test_etdumps_have_the_runs_of_theirs(
    theirs: ModuleType, program: bytes, debug_buffer_size: int, tmp_path: Path
) -> None:
    """The same calls leave the same runs, and with a debug buffer the same outputs."""

    def recorded(lib: ModuleType, name: str) -> list[tuple[str | None, list[list[int] | None]]]:
        dump, values = tmp_path / f"{name}.etdp", tmp_path / f"{name}.bin"
        module = lib._load_for_executorch_from_buffer(program, None, True, debug_buffer_size)
        assert module.has_etdump()
        module.forward([X, Y])
        module.run_method("second", [X, Y])
        module.plan_execute("forward")
        module.write_etdump_result_to_file(str(dump), str(values))
        assert values.exists() == bool(debug_buffer_size)
        found = []
        for run in read_etdump(dump.read_bytes()).run_data:
            entries = [event.debug_event.debug_entry for event in run.events or () if event.debug_event]
            outputs = [entry.tensor for entry in entries if entry is not None and entry.output is not None]
            found.append((run.name, [tensor.sizes for tensor in outputs if tensor is not None]))
        return found

    assert recorded(ours, "ours") == recorded(theirs, "theirs")


def test_methods_of_a_program_are_recorded(program: bytes, tmp_path: Path) -> None:
    loaded = ours._load_program_from_buffer(program, enable_etdump=True)
    method = loaded.load_method("second")
    method.set_inputs([X, Y])
    method.execute()
    method.call([X, Y])
    loaded.write_etdump_result_to_file(tmp_path / "dump")
    runs = read_etdump((tmp_path / "dump").read_bytes()).run_data
    assert [run.name for run in runs] == ["Default", "Execute", "Execute"]


def test_outputs_are_the_callers_own_and_set_inputs_are_copies(program: bytes) -> None:
    module = ours._load_for_executorch_from_buffer(program)
    first = module.forward([X, Y], clone_outputs=False)
    kept = [t.clone() for t in first]
    module.forward([X * 5, Y], clone_outputs=False)
    same(first, kept)
    method = ours._load_program_from_buffer(program).load_method("forward")
    x = X.clone()
    method.set_inputs([x, Y])
    x.zero_()
    method.execute()
    outputs = method.get_outputs()
    same(outputs, kept)
    outputs[0].zero_()
    same(method.get_outputs(), kept)
    arrays = ours._load_for_executorch_from_buffer(program).forward([X.numpy(), Y.numpy()])
    assert all(isinstance(a, np.ndarray) for a in arrays)


def test_execute_runs_with_the_inputs_that_came_last(theirs: ModuleType) -> None:
    buffer = _exported(Doubled(), X)

    def runs(lib: ModuleType) -> list[Any]:
        method = lib._load_program_from_buffer(buffer).load_method("forward")
        method.set_inputs([X * 5])
        method.call([X + 1])
        method.execute()
        found = [*method.get_outputs()]
        method.set_inputs([X + 2])
        for wrong in ([X.int()], [X[:2]], [X, X], [3]):
            with pytest.raises(RuntimeError):
                method.set_inputs(wrong)
        method.execute()
        found += method.get_outputs()
        other = lib._load_program_from_buffer(buffer).load_method("forward")
        found += other.call([X])
        other.execute()
        return [*found, *other.get_outputs()]

    found = runs(ours)
    same(found, runs(theirs))
    same(found, [(X + 1) * 2, (X + 2) * 2, X * 2, X * 2])


def test_set_inputs_runs_nothing(program: bytes) -> None:
    method = ours._load_program_from_buffer(program).load_method("forward")
    first = method.call([X, Y])[0]
    for _ in range(3):
        method.set_inputs([X, Y])
    with pytest.raises(pteron.InputTypeError, match="dtype"):
        method.set_inputs([X.int(), Y])
    method.execute()
    torch.testing.assert_close(method.get_outputs()[0], first + 1)  # the counter went on by one


@pytest.mark.parametrize(("model", "args"), [(Ones(), ()), (Filled(), (3,)), (Bits(), ())])
def test_without_tensor_inputs_results_are_torch_tensors_too(
    theirs: ModuleType, model: nn.Module, args: tuple[Any, ...]
) -> None:
    from executorch.runtime import Runtime

    buffer = _exported(model, *args)

    def results(lib: ModuleType, runtime: Any) -> list[Any]:
        module = lib._load_for_executorch_from_buffer(buffer)
        method = lib._load_program_from_buffer(buffer).load_method("forward")
        found = [*module.forward(args), *module(args), *module.run_method("forward", args)]
        found += module.plan_execute("forward")
        found += method.call(args)
        method.set_inputs(args)
        method.execute()
        found += method.get_outputs()
        return [*found, *runtime.load_program(buffer).load_method("forward").execute(args)]

    same(results(ours, our_runtime.Runtime.get()), results(theirs, Runtime.get()))


def test_results_follow_numpy_where_numpy_comes_in() -> None:
    loaded = our_runtime.Runtime.get().load_program(_exported(Filled(), 3)).load_method("forward")
    (found,) = loaded.execute([np.int64(3)])
    assert isinstance(found, np.ndarray)
    loaded = our_runtime.Runtime.get().load_program(_exported(Doubled(), X)).load_method("forward")
    (found,) = loaded.execute([X.numpy()])
    assert isinstance(found, np.ndarray)


_WITHOUT_TORCH = """
import sys
import numpy as np
from pteron.compat import portable_lib as lib
from pteron.runtime import Runtime

ones, bundle = (open(path, "rb").read() for path in sys.argv[1:])
module = lib._load_for_executorch_from_buffer(ones)
found = [*module.forward(), *Runtime.get().load_program(ones).load_method("forward").execute([])]
loaded = lib._load_bundled_program_from_buffer(bundle)
found += loaded.verify_result_with_bundled_expected_output("forward", 0)
module = lib._load_for_executorch_from_bundled_program(loaded)
module.load_bundled_input(loaded, "forward", 0)
found += module.plan_execute("forward")
assert [type(f) for f in found] == [np.ndarray] * 4, found
assert "torch" not in sys.modules
"""


def test_without_torch_results_are_arrays(tmp_path: Path) -> None:
    (tmp_path / "ones.pte").write_bytes(_exported(Ones()))
    (tmp_path / "doubled.bpte").write_bytes(bundled(Doubled(), (X, X * 2)))
    command = [sys.executable, "-c", _WITHOUT_TORCH, tmp_path / "ones.pte", tmp_path / "doubled.bpte"]
    paths = [str(Path(pteron.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})


def test_plan_execute_repeats_the_last_call(program: bytes) -> None:
    module = ours._load_for_executorch_from_buffer(program)
    first = module.forward([X, Y])
    again = module.plan_execute("forward")
    torch.testing.assert_close(again[0], first[0] + 1)  # the counter went on
    torch.testing.assert_close(again[1], first[1])


def test_attributes_are_the_buffers(theirs: ModuleType) -> None:
    captured = torch.export.export(Counting().eval(), (X, Y))
    config = exir.ExecutorchBackendConfig(emit_mutable_buffer_names=True)
    buffer = exir.to_edge(captured).to_executorch(config).buffer

    def attributes(lib: ModuleType) -> list[Any]:
        method = lib._load_program_from_buffer(buffer).load_method("forward")
        meta = method.method_meta()
        assert meta.num_attributes() == 1
        info = meta.attribute_tensor_meta(0)
        found = [info.sizes(), info.dtype(), info.nbytes(), method.get_attribute("count").tolist()]
        method.call([X, Y])
        return [*found, method.get_attribute("count").tolist()]

    assert attributes(ours) == attributes(theirs)
    assert attributes(ours)[-1] == [1.0, 1.0]


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Prefill(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.cache.add_(x)
        return self.cache + 0


class Decode(Prefill):
    def forward(self, x: Tensor) -> Tensor:
        self.cache.mul_(x)
        return self.cache + 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_methods_share_buffers_where_the_program_says_so(theirs: ModuleType, is_shared: bool) -> None:
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.runtime import Runtime

    model, x = Prefill(), torch.full((4,), 2.0)
    other = Decode()
    other.cache = model.cache
    edge = exir.to_edge(
        {"prefill": torch.export.export(model, (x,)), "decode": torch.export.export(other, (x,))}
    )
    planning = MemoryPlanningPass(share_mutable_buffers=is_shared)
    buffer = edge.to_executorch(
        exir.ExecutorchBackendConfig(memory_planning_pass=planning, emit_mutable_buffer_names=True)
    ).buffer

    def run(runtime: Any) -> list[Any]:
        program = runtime.load_program(buffer)
        prefill, decode = program.load_method("prefill"), program.load_method("decode")
        return [prefill.execute([x])[0], decode.execute([x])[0], prefill.execute([x])[0]]

    found = run(our_runtime.Runtime.get())
    if is_shared:
        same(found, run(Runtime.get()))
    # Without sharing their methods overwrite each other's buffers: one arena serves them all.
    assert [t[0].item() for t in found] == ([2.0, 4.0, 6.0] if is_shared else [2.0, 0.0, 4.0])


def test_programs_with_weights_in_a_data_file_of_theirs(theirs: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    x = torch.randn(2, 4)
    manager = exir.to_edge(torch.export.export(model, (x,))).to_executorch(
        exir.ExecutorchBackendConfig(external_constants=True)
    )
    program, data = tmp_path / "model.pte", tmp_path / "_default_external_constant.ptd"
    program.write_bytes(manager.buffer)
    manager.write_tensor_data_to_file(str(tmp_path))
    # Their modules only borrow the bytes.
    bytes_of_program, bytes_of_data = program.read_bytes(), data.read_bytes()

    def runs(lib: ModuleType) -> list[Any]:
        modules = [
            lib._load_for_executorch(str(program), str(data)),
            lib._load_for_executorch_from_buffer(bytes_of_program, bytes_of_data),
        ]
        methods = [
            lib._load_program(str(program), data_path=str(data)),
            lib._load_program_from_buffer(bytes_of_program, data_path=str(data)),
        ]
        found = [m.forward([x])[0] for m in modules]
        return found + [m.load_method("forward").call([x])[0] for m in methods]

    results = runs(ours)
    same(results, runs(theirs))
    with torch.no_grad():
        torch.testing.assert_close(results[0], model(x))
    loaded = our_runtime.Runtime.get().load_program(program, data_path=data)
    same(loaded.load_method("forward").execute([x]), results[:1])
    with pytest.raises(pteron.ExternalDataError, match="weight"):
        ours._load_for_executorch(program).forward([x])


def test_bytes_are_a_path_where_a_path_is_asked_for(
    theirs: ModuleType, program: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "p.pte"
    path.write_bytes(program)
    for lib in (ours, theirs):
        assert "forward" in lib._load_for_executorch(os.fsencode(path)).method_names()
        assert lib._load_program(os.fsencode(path)).num_methods() == 2
        for given in (str(path), path):
            for load in (
                lib._load_for_executorch_from_buffer,
                lib._load_program_from_buffer,
                lib._load_bundled_program_from_buffer,
                lambda data, lib=lib: lib._load_for_executorch_from_buffer(program, data),
            ):
                with pytest.raises(TypeError):
                    load(given)
        with pytest.raises(TypeError):
            lib._load_for_executorch(io.BytesIO(program))
        with pytest.raises((RuntimeError, FileNotFoundError)):
            lib._load_for_executorch(b"nothing.pte")
    with pytest.raises(pteron.InputTypeError, match=r"contents of a file.*got str"):
        ours._load_for_executorch_from_buffer("p.pte")


def test_verifications_are_numbers(theirs: ModuleType) -> None:
    for verification in (ours.Verification, theirs.Verification):
        assert [hex(v) for v in verification.__members__.values()] == ["0x0", "0x1"]


def test_registries_and_threads(theirs: ModuleType) -> None:
    assert "aten::add.out" in set(ours._get_operator_names()) & set(theirs._get_operator_names())
    assert ours._is_available("nothing") == theirs._is_available("nothing") is False
    assert isinstance(ours._get_registered_backend_names(), list)
    available = pteron.Runtime.shared().num_threads
    try:
        assert ours._threadpool_get_thread_count() == available
        assert ours._unsafe_reset_threadpool(1) is None
        assert ours._threadpool_get_thread_count() == 1
        ours._unsafe_reset_threadpool(10**6)
        assert ours._threadpool_get_thread_count() == available
    finally:
        our_runtime.THREADS._limit = None


def test_sources_that_load_program_takes(program: bytes, tmp_path: Path) -> None:
    from executorch.runtime import Runtime

    path = tmp_path / "p.pte"
    path.write_bytes(program)
    sources: list[Callable[[], Any]] = [
        lambda: program,
        lambda: bytearray(program),
        lambda: path,
        lambda: str(path),
        lambda: io.BytesIO(program),
        lambda: path.open("rb"),
    ]
    for source in sources:
        results = []
        for runtime in (our_runtime.Runtime.get(), Runtime.get()):
            given = source()
            loaded = runtime.load_program(given)
            assert loaded.method_names == {"forward", "second"}
            assert loaded.load_method("forward") is loaded.load_method("forward")
            with pytest.raises(KeyError):
                loaded.load_method("nothing")
            results.append(loaded.load_method("forward").execute([X, Y]))
            if hasattr(given, "close"):
                given.close()
        same(*results)
    for runtime in (our_runtime.Runtime.get(), Runtime.get()):
        with pytest.raises(TypeError):
            runtime.load_program(3)
    assert "executorch" in sys.modules
