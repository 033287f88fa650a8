"""Weights that all methods of a program share through named data: compiled in one call, stored once, run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import export

import pteron
from pteron.exir import to_edge, to_edge_transform_and_lower
from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.file_backed_data import FileBackedData
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron.exir.backend.partitioner import DelegationSpec
from pteron.exir.schema import TensorLayout

ALIGNMENT = 256


class SharedWeights(BackendDetails):
    """Matrix products with parameters. All methods put their weights into one store."""

    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        store = NamedDataStore()
        blobs = {
            method: [cls.blob(program, store) for program in programs]
            for method, programs in edge_programs.items()
        }
        output = store.get_named_data_store_output()
        return {
            method: [PreprocessResult(blob, data_store_output=output) for blob in listed]
            for method, listed in blobs.items()
        }

    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise RuntimeError("all methods are compiled together")

    @staticmethod
    def blob(program, store):
        steps = []
        for spec in program.graph_signature.input_specs:
            if spec.target is not None:
                weight = program.state_dict[spec.target]
                store.add_named_data(f"shared.{spec.target}", weight, alignment=ALIGNMENT)
                steps.append({"key": f"shared.{spec.target}", "shape": list(weight.shape)})
        return json.dumps(steps).encode()


class SharedWeightsRuntime:
    """Multiplies its input by the weights in order, and remembers where they lie."""

    def __init__(self):
        self.addresses = []

    def is_available(self):
        return True

    def init(self, ctx, processed, compile_specs):
        weights = []
        for step in json.loads(bytes(processed)):
            data = np.frombuffer(ctx.named_data(step["key"]), np.float32).reshape(step["shape"])
            self.addresses.append(data.ctypes.data)
            weights.append(data)
        return SharedWeightsDelegate(weights)


class SharedWeightsDelegate:
    num_outputs = 1

    def __init__(self, weights):
        self.weights = weights

    def execute(self, ctx, inputs, outputs):
        value = np.asarray(inputs[0])
        for weight in self.weights:
            value = value @ weight
        np.copyto(np.asarray(outputs[0]), value)


class Products(torch.nn.Module):
    def __init__(self, *weights: torch.nn.Parameter) -> None:
        super().__init__()
        self.table, self.first = weights[0], weights[1]

    def forward(self, x):
        return torch.mm(torch.mm(x, self.table), self.first)


class Product(torch.nn.Module):
    def __init__(self, table: torch.nn.Parameter) -> None:
        super().__init__()
        self.table = table

    def forward(self, x):
        return torch.mm(x, self.table)


SPEC = DelegationSpec("SharedWeights", [])
X = torch.randn(2, 16)


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(1)
    table = torch.nn.Parameter(torch.randn(16, 16))
    # Another parameter of the same bytes, under another name.
    same = torch.nn.Parameter(table.detach().clone())
    return {"encode": Products(table, same), "decode": Product(table)}


@pytest.fixture(scope="module")
def captured(models):
    return {name: export(model, (X,)) for name, model in models.items()}


@pytest.fixture(
    scope="module", params=["manager", "dict of specs", "one call"], ids=lambda name: name.replace(" ", "-")
)
def lowered(request, captured):
    if request.param == "one call":
        return to_edge_transform_and_lower(captured, partitioner=[SPEC])
    choice = SPEC if request.param == "manager" else {"encode": SPEC, "decode": SPEC}
    return to_edge(captured).to_backend(choice)


def test_weights_are_stored_once_with_the_alignment_promised(lowered, models) -> None:
    program = lowered.to_executorch()
    data = {n.key: n for n in program.executorch_program.named_data if n.key.startswith("shared.")}
    assert set(data) == {"shared.table", "shared.first"}
    assert all(entry.alignment % ALIGNMENT == 0 for entry in data.values())
    table = models["decode"].table.detach().numpy().tobytes()
    # Two keys, two methods, one copy.
    assert program.buffer.count(table) == 1


def test_every_method_reads_the_same_bytes_where_they_lie(lowered, models) -> None:
    runtime, backend = pteron.Runtime(), SharedWeightsRuntime()
    pteron.register_backend("SharedWeights", backend, runtime=runtime)
    buffer = lowered.to_executorch().buffer
    program = pteron.load(buffer, runtime=runtime)
    for name, model in models.items():
        with torch.no_grad():
            np.testing.assert_allclose(program.run(name, X.numpy()), model(X), rtol=1e-4, atol=1e-4)
    # Three lookups of two keys whose bytes are equal: one place in the program.
    assert len(backend.addresses) == 3
    assert len(set(backend.addresses)) == 1
    offset = buffer.index(models["decode"].table.detach().numpy().tobytes())
    assert offset % ALIGNMENT == 0


def test_specs_of_each_method_reach_its_partitions(captured) -> None:
    seen = {}

    class SpecsByMethod(BackendDetails):
        @classmethod
        def preprocess_multimethod(cls, edge_programs, compile_specs):
            seen.update(compile_specs)
            return {m: [PreprocessResult(b"") for _ in listed] for m, listed in edge_programs.items()}

        @staticmethod
        def preprocess(edge_program, compile_specs):
            raise AssertionError("not called")

    specs = {name: [CompileSpec("method", name.encode())] for name in captured}
    to_edge(captured).to_backend(
        {name: DelegationSpec("SpecsByMethod", listed) for name, listed in specs.items()}
    )
    assert seen == {name: [listed] for name, listed in specs.items()}


def test_equal_bytes_are_kept_once_and_meet_every_alignment() -> None:
    store = NamedDataStore()
    store.add_named_data("a", b"1234", alignment=4)
    store.add_named_data("b", b"1234", alignment=6)
    store.add_named_data("a", b"1234", alignment=8)
    output = store.get_named_data_store_output()
    assert output.buffers == [b"1234"]
    assert {key: entry.alignment for key, entry in output.pte_data.items()} == {"a": 8, "b": 6}
    other = NamedDataStore()
    other.add_named_data("c", b"1234", alignment=2)
    other.add_named_data("a", torch.tensor([1.0]).numpy().tobytes(), alignment=2)
    with pytest.raises(ValueError, match="Duplicate key a with different data"):
        store.merge_named_data_store(other.get_named_data_store_output())


@pytest.mark.parametrize(
    ("key", "alignment", "says"),
    [("pteron.x", 1, "reserved"), ("x", 0, "Alignment must be greater than 0, received 0")],
)
def test_bad_keys_and_alignments_are_refused(key, alignment, says) -> None:
    with pytest.raises(ValueError, match=says):
        NamedDataStore().add_named_data(key, b"", alignment=alignment)


def entry_of(store: NamedDataStore, key: str):
    output = store.get_named_data_store_output()
    entry = output.pte_data[key]
    return entry.tensor_layout, output.buffers[entry.buffer_index]


def test_tensors_keep_their_memory_order_and_say_which_it_is() -> None:
    store = NamedDataStore()
    rows = torch.arange(24, dtype=torch.int16).reshape(1, 2, 3, 4)
    last = rows.to(memory_format=torch.channels_last)
    half = torch.arange(3).bfloat16()
    for key, tensor in {"rows": rows, "last": last, "half": half}.items():
        store.add_named_data(key, tensor)
    assert entry_of(store, "rows") == (TensorLayout(2, [1, 2, 3, 4], [0, 1, 2, 3]), rows.numpy().tobytes())
    in_order = rows.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
    assert entry_of(store, "last") == (TensorLayout(2, [1, 2, 3, 4], [0, 2, 3, 1]), in_order)
    assert entry_of(store, "half") == (TensorLayout(15, [3], [0]), half.view(torch.uint8).numpy().tobytes())
    store.add_named_data("rows", rows.numpy().tobytes())
    assert entry_of(store, "rows")[0] is not None


def test_layouts_that_contradict_the_data_are_refused() -> None:
    store = NamedDataStore()
    x = torch.zeros(2, 3)
    layout = TensorLayout(6, [2, 3], [0, 1])
    store.add_named_data("x", x, tensor_layout=layout)
    with pytest.raises(ValueError, match=r"The provided tensor layout .*\[3, 2\].* does not match"):
        store.add_named_data("y", x, tensor_layout=TensorLayout(6, [3, 2], [0, 1]))
    with pytest.raises(ValueError, match=r"Duplicate key x with another layout"):
        store.add_named_data("x", bytes(24), tensor_layout=TensorLayout(6, [6], [0]))
    for strided in (x.t(), x[:, :2]):
        with pytest.raises(ValueError, match=r"not contiguous\. Please call \.contiguous\(\)"):
            store.add_named_data("y", strided)
    assert set(store.get_named_data_store_output().pte_data) == {"x"}


def test_data_moves_to_files_of_a_bounded_size() -> None:
    stores = []
    for order in (("a", "b", "c", "same as b"), ("same as b", "c", "b", "a")):
        store = NamedDataStore()
        for key in order:
            store.add_named_data(key, {"a": b"1" * 6, "c": b"3" * 3}.get(key, b"2" * 4), 4)
        store.externalize_pte_data(10, "shard")
        stores.append(store)
    files = [{tag: set(entries) for tag, entries in store.external_data.items()} for store in stores]
    assert files[0] == files[1]
    assert sorted(files[0].values(), key=len) == [{"c"}, {"a", "b", "same as b"}]
    assert all(tag.startswith("shard_") for tag in files[0])
    assert stores[0].pte_data == {}
    store = NamedDataStore()
    store.add_named_data("large", bytes(11))
    for cap, prefix, says in (
        (10, "p", "exceeds external data shard cap 10"),
        (0, "p", "positive"),
        (9, "", "nonempty"),
    ):
        with pytest.raises(ValueError, match=says):
            store.externalize_pte_data(cap, prefix)
    assert set(store.pte_data) == {"large"}


def test_data_that_lies_in_a_file_stays_there_until_it_is_written(tmp_path: Path) -> None:
    content = bytes(range(200)) * 50
    paths = [tmp_path / name for name in ("first", "second")]
    for path in paths:
        path.write_bytes(content)
    first, second = (FileBackedData.move_from(str(path)) for path in paths)
    store = NamedDataStore()
    store.add_named_data("a", first, alignment=64)
    store.add_named_data("b", second)
    store.add_named_data("c", content, external_tag="beside")
    assert store.buffers == [first]
    assert store.key_to_buffer_idx == {"a": 0, "b": 0, "c": 0}
    with pytest.raises(ValueError, match="Duplicate key a with different data"):
        store.add_named_data("a", b"other")
    output = store.get_named_data_store_output()

    class InFileBackend(BackendDetails):
        """Gives what the test has put into the store."""

        @staticmethod
        def preprocess(edge_program, compile_specs):
            return PreprocessResult(processed_bytes=b"blob", data_store_output=output)

    manager = to_edge(export(Product(torch.nn.Parameter(torch.ones(16, 16))), (X,)))
    manager = manager.to_backend(DelegationSpec("InFileBackend", []))
    assert manager._named_data_store.buffers == [first]
    program = manager.to_executorch()
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []
    assert program.buffer.count(content) == 1
    assert program.data_files == ("beside.ptd",)
    assert program._tensor_data["beside"].count(content) == 1
    assert bytes(pteron.load(program.buffer, data=program._tensor_data["beside"]).named_data["b"]) == content


def test_weights_that_a_delegate_and_a_kernel_read_are_stored_once(models) -> None:
    class Both(torch.nn.Module):
        """One weight, read by a lowered module and by an operator of the runtime."""

        def __init__(self, table):
            super().__init__()
            self.table = table
            program = to_edge(export(Product(table), (X,))).to_backend(SPEC).exported_program()
            self.inner = next(iter(module for module in program.graph_module.children()))

        def forward(self, x):
            return self.inner(x)[0] + torch.mm(x, self.table)

    model = models["decode"]
    program = to_edge(export(Both(model.table), (X,))).to_executorch()
    table = model.table.detach().numpy().tobytes()
    assert program.buffer.count(table) == 1
    assert program.buffer.index(table) % ALIGNMENT == 0
    runtime, backend = pteron.Runtime(), SharedWeightsRuntime()
    pteron.register_backend("SharedWeights", backend, runtime=runtime)
    with torch.no_grad():
        expected = model(X) * 2
    loaded = pteron.load(program.buffer, runtime=runtime)
    np.testing.assert_allclose(loaded.run("forward", X.numpy()), expected, rtol=1e-4, atol=1e-4)
