"""Writes the seed programs of the mutation test, `tests/corpus/seeds/*.pte` and `*.ptd`.

They are small, and between them have everything that files can have. Run by hand when the exporter writes
something new:

    python -m tests.corpus.make_seeds

A program that needs a data file has it beside it, under its own name.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional

from pteron.backends.demo import AddMulPartitionerDemo, ExecutorBackend
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from pteron.exir.backend.backend_api import to_backend
from tests.compat.test_quantized_models import MODELS as QUANTIZED
from tests.exir.device_models import AddsOnDevices
from tests.exir.small_models import CASES, captured

SEEDS = Path(__file__).parent / "seeds"


class Block(nn.Module):
    """A decoder of one layer: embedding, attention with a mask, gated feed-forward, tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.gate = nn.Linear(16, 32)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        n = tokens.shape[1]
        q, k, v = (part.view(1, n, 2, 8).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, n, 16))
        x = x + self.down(functional.silu(self.gate(x)) * self.up(x))
        return x @ self.embed.weight.T


class KeyValueCache(nn.Module):
    """Writes rows of a buffer at a position that is an input, and attends to all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: Tensor
        self.register_buffer("keys", torch.zeros(8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(0, position, x)
        return functional.softmax(x @ self.keys.T, -1) @ self.keys


class Loops(nn.Module):
    """A while loop that counts, and a map over rows."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.map import map as map_rows
        from torch._higher_order_ops.while_loop import while_loop

        def runs(i: Tensor, y: Tensor) -> Tensor:
            return i < 4

        def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, y * 1.5 + 1

        _, grown = while_loop(runs, step, (torch.tensor(0), x))
        return grown, map_rows(lambda row, y: row.sin() + y, x, x[0] + 1)


class Images(nn.Module):
    """What images go through besides convolutions over planes."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 2, stride=2)
        self.line = nn.Conv1d(4, 3, 3, padding=2, dilation=2)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.norm(self.up(x))
        pooled, where = functional.max_pool2d(y, 2, return_indices=True)
        resized = functional.interpolate(pooled, scale_factor=2.0, mode="bilinear", align_corners=False)
        padded = functional.pad(y, (1, 1, 2, 0), mode="reflect")
        return (
            self.line(y.flatten(2)),
            resized,
            where,
            functional.avg_pool2d(padded, 3, stride=2, count_include_pad=False),
        )


class Indexing(nn.Module):
    """Operators whose indices are data of tensors."""

    def forward(self, x: Tensor, i: Tensor, flags: Tensor) -> tuple[Tensor, ...]:
        return (
            x[i],
            x.gather(1, i[:, None].expand(3, 4)),
            x.scatter(1, i[:, None], 2.0),
            x.scatter_add(0, i[None, :], x[:1, :3]),
            x.index_add(0, i, x[:3]),
            x.index_put((i, i), x[:3, 0], accumulate=True),
            torch.nonzero(flags),
            x.sort(1).indices,
            functional.embedding_bag(i, x, torch.tensor([0, 2]), mode="sum"),
            torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
        )


class Random(nn.Module):
    """Random numbers and integer arithmetic."""

    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        noise = torch.rand(4) + torch.randn(4)
        return x + noise, n // 3 + n % 5, n << 2, torch.bitwise_xor(n, 7), n.pow(3)


class Steps(nn.Module):
    """What the demo backend can compute, and what it cannot."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x @ y + x).sin() @ y + x


class Shifted(nn.Module):
    """Additions, for delegates on devices; between them what stays on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return ((x + y).sin() + self.shift) * 2, x + y


class Nested(nn.Module):
    """A program inside the program."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = to_backend(ExecutorBackend.__name__, to_edge(captured("mlp")).exported_program(), [])

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


class External(nn.Module):
    """Weights and an initial value that go to a data file."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)
        self.register_buffer("total", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum(0))
        return self.second(torch.relu(self.first(x))) + self.total


class Scaled(nn.Module):
    """The least that a data file can be for."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def _tiny(**options: Any) -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(segment_alignment=16, **options)


def _lower(program: ExportedProgram, **options: Any) -> ExecutorchProgramManager:
    return to_edge(program).to_executorch(_tiny(**options))


def _export(model: nn.Module, *args: Any, **options: Any) -> ExportedProgram:
    return export(model.eval(), args, **options)


def programs() -> dict[str, ExecutorchProgramManager]:
    """All of them, by name."""
    names = ("mlp", "lstm", "swapped_buffers", "everything", "branches", "nested", "many_results")
    made = {name: _lower(captured(name)) for name in names}
    made["mlp_dynamic_packed"] = _lower(captured("mlp_dynamic"), packed_weights=True)
    made["convolutional"] = _lower(captured("convolutional_dynamic"))
    made["depthwise_packed"] = _lower(captured("depthwise"), packed_weights=True)
    torch.manual_seed(0)
    made["transformer"] = _lower(_export(Block(), torch.tensor([[1, 5, 2, 7, 3]])))
    tokens = Dim("tokens", min=2, max=12)
    made["transformer_dynamic_packed"] = _lower(
        _export(Block(), torch.tensor([[1, 5, 2, 7]]), dynamic_shapes=({1: tokens},)), packed_weights=True
    )
    made["cache"] = _lower(_export(KeyValueCache(), torch.ones(2, 4), torch.tensor([1, 2])))
    made["loops"] = _lower(_export(Loops(), torch.ones(3, 4)))
    made["images"] = _lower(_export(Images(), torch.randn(1, 3, 6, 6)))
    made["indexing"] = _lower(
        _export(Indexing(), torch.randn(5, 4), torch.tensor([0, 3, 1]), torch.ones(3, dtype=torch.bool))
    )
    made["random"] = _lower(_export(Random(), torch.ones(4), torch.arange(4)))
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    parted = to_edge(_export(Steps(), x, y)).to_backend(AddMulPartitionerDemo())
    made["delegates"] = parted.to_executorch(_tiny())
    # Two devices and the host. A method with memory on devices is refused where no backend serves them, so
    # the program has one without; planned on the host, tensors alone name the devices, and the method runs.
    shifted = _export(Shifted(), torch.ones(2), torch.ones(2))
    devices = AddsOnDevices("cuda:0", "cuda:1", None)
    split = to_edge({"forward": shifted, "on_devices": shifted}).to_backend({"on_devices": devices})
    made["devices"] = split.to_executorch(_tiny())
    made["devices_on_host"] = (
        to_edge(shifted).to_backend(devices).to_executorch(_tiny(enable_non_cpu_memory_planning=False))
    )
    made["program_in_program"] = _lower(_export(Nested(), CASES["mlp"].args[0]))
    made["external"] = _lower(
        _export(External(), torch.ones(2, 4)), external_constants=True, external_mutable_weights=True
    )
    made["external_smallest"] = _lower(_export(Scaled(), torch.ones(2)), external_constants=True)
    for name in ("per channel", "dynamic", "embedding", "per token"):
        torch.manual_seed(0)
        model, example = QUANTIZED[name]()
        made["quantized_" + name.replace(" ", "_")] = _lower(export(model, (example,)))
    for name, options in (("quantized_rows", {}), ("quantized_rows_packed", {"packed_weights": True})):
        made[name] = _lower(_rows_of_four_bits(), **options)
    made["quantized_symmetric_rows"] = _lower(_symmetric_rows())
    return made


def _symmetric_rows() -> ExportedProgram:
    """torchao's dynamic form with weights of 8 bits: `_int_mm`."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), nn.Linear(16, 12), nn.ReLU()).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return export(model, (torch.randn(2, 3, 16),))


def _rows_of_four_bits() -> ExportedProgram:
    """torchao's dynamic form: rows quantised by what they hold, weights of 4 bits in groups."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), nn.Linear(64, 36)).eval()
    four_bits = getattr(torch, "int4")  # noqa: B009 -- torch's stubs do not know it
    groups = PerGroup(32)
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=four_bits, weight_granularity=groups))
    return export(model, (torch.randn(2, 64),))


def main() -> None:
    """Writes the files that are not there or differ."""
    warnings.simplefilter("ignore")
    only = set(sys.argv[1:])
    total = 0
    for name, manager in programs().items():
        files = {f"{name}.pte": manager.buffer}
        files |= {f"{name}.ptd": bytes(data) for data in manager._tensor_data.values()}
        for file, data in files.items():
            total += len(data)
            print(f"{len(data):8} {file}")
            if not only or name in only:
                (SEEDS / file).write_bytes(data)
    print(f"{total:8} bytes in all")


if __name__ == "__main__":
    main()
