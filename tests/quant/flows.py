"""Every way to quantise that PyTorch users have, on small models: what a flow leaves is what is exported.

`FLOWS`: name → builder of a converted model with its example inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.extent import is_full

Built = tuple[nn.Module, tuple[Tensor, ...]]


class Network(nn.Module):
    """What a static flow quantises: convolutions, dense and depthwise, pooling, sum, concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        y = torch.relu(self.norm(self.depthwise(x)) + x)
        z = self.pool(torch.cat([x, y], dim=1))
        return self.last(functional.adaptive_avg_pool2d(z, 1).flatten(1))


class Layers(nn.Module):
    """What torchao quantises: a table, and two linear layers, of which one has a bias."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.first = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, 6)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(functional.silu(self.first(self.table(tokens))))


def image() -> tuple[Tensor, ...]:
    """A batch of two."""
    return (torch.randn(2, 3, 8, 8),)


def tokens() -> tuple[Tensor, ...]:
    """Two sequences of three."""
    return (torch.tensor([[0, 19, 3], [7, 7, 1]]),)


def static(quantizer: str, *, training: bool = False, **settings: Any) -> Callable[[], Built]:
    """PT2E with XNNPACK's quantizer, of ExecuTorch or of torchao, or with ours."""

    def build() -> Built:
        from importlib import import_module

        from torchao.quantization.pt2e import move_exported_model_to_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

        torch.manual_seed(0)
        module = import_module(quantizer)
        x = image()
        model = Network()
        for _ in range(2):  # statistics of batch norm
            model(torch.randn(8, 3, 8, 8))
        captured = torch.export.export(model.train(training), x).module()
        if quantizer == PTERON:
            chosen = module.PteronQuantizer(is_qat=training, **settings)
        else:
            config = module.get_symmetric_quantization_config(is_qat=training, **settings)
            chosen = module.XNNPACKQuantizer().set_global(config)
        if training:
            prepared = prepare_qat_pt2e(captured, chosen)
            optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3)
            for _ in range(2):
                optimizer.zero_grad()
                prepared(*image()).square().mean().backward()
                optimizer.step()
            move_exported_model_to_eval(prepared)
        else:
            prepared = prepare_pt2e(captured, chosen)
            for _ in range(3):
                prepared(*image())
        return convert_pt2e(prepared), x

    return build


def transformed(*configs: Callable[[], tuple[Any, Any]]) -> Callable[[], Built]:
    """torchao's `quantize_`, with each configuration and filter in turn."""

    def build() -> Built:
        from torchao.quantization import quantize_

        torch.manual_seed(0)
        model = Layers().eval()
        for config in configs:
            quantize_(model, *config())
        return model, tokens()

    return build


def linears(name: str, **settings: Any) -> Callable[[], tuple[Any, Any]]:
    """A configuration of torchao by name, for linear layers."""

    def make() -> tuple[Any, Any]:
        import torchao.quantization as torchao

        return getattr(torchao, name)(**_values(settings)), None

    return make


def table(bits: int, group: int | None) -> Callable[[], tuple[Any, Any]]:
    """Weight only, for embeddings."""

    def make() -> tuple[Any, Any]:
        import torchao.quantization as torchao

        granularity = torchao.PerAxis(0) if group is None else torchao.PerGroup(group)
        config = torchao.IntxWeightOnlyConfig(weight_dtype=_dtype(bits), granularity=granularity)
        return config, lambda module, name: isinstance(module, nn.Embedding)

    return make


def _dtype(bits: int) -> torch.dtype:
    chosen: torch.dtype = getattr(torch, f"int{bits}")
    return chosen


def _values(settings: dict[str, Any]) -> dict[str, Any]:
    """Granularities by the size of a group (0: a row), element types by bits."""
    import torchao.quantization as torchao

    made = dict(settings)
    for name in ("granularity", "weight_granularity"):
        if name in made:
            made[name] = torchao.PerGroup(made[name]) if made[name] else torchao.PerAxis(0)
    if "weight_dtype" in made and isinstance(made["weight_dtype"], int):
        made["weight_dtype"] = _dtype(made["weight_dtype"])
    return made


EXECUTORCH = "executorch.backends.xnnpack.quantizer.xnnpack_quantizer"
TORCHAO = "torchao.testing.pt2e._xnnpack_quantizer"
PTERON = "pteron.quant"

_ALL: dict[str, Callable[[], Built]] = {
    "static per tensor": static(EXECUTORCH),
    "static per channel": static(EXECUTORCH, is_per_channel=True),
    "static per channel, torchao's quantizer": static(TORCHAO, is_per_channel=True),
    "trained per channel": static(EXECUTORCH, training=True, is_per_channel=True),
    "dynamic": static(EXECUTORCH, is_dynamic=True, is_per_channel=True),
    "dynamic per tensor": static(EXECUTORCH, is_dynamic=True),
    "static, our quantizer": static(PTERON),
    "dynamic, our quantizer": static(PTERON, is_dynamic=True),
    "int8 weights": transformed(linears("Int8WeightOnlyConfig")),
    "int8 weights, groups": transformed(linears("Int8WeightOnlyConfig", granularity=32)),
    "int8 activations, int8 weights": transformed(linears("Int8DynamicActivationInt8WeightConfig")),
    **{
        f"int8 activations, 4-bit weights, groups of {group}": transformed(
            linears("Int8DynamicActivationIntxWeightConfig", weight_dtype=4, weight_granularity=group)
        )
        for group in (32, 64, 128)
    },
    "int8 activations, 8-bit weights of intx": transformed(
        linears("Int8DynamicActivationIntxWeightConfig", weight_dtype=8, weight_granularity=0)
    ),
    **{
        f"{bits}-bit weights, {'groups of 32' if group else 'rows'}": transformed(
            linears("IntxWeightOnlyConfig", weight_dtype=bits, granularity=group)
        )
        for bits in (8, 4, 3, 2)
        for group in (32, 0)
    },
    "8-bit table": transformed(table(8, None)),
    "4-bit table, groups": transformed(table(4, 32)),
    "2-bit table, groups": transformed(table(2, 32)),
    "4-bit table, int8 activations, 4-bit weights": transformed(
        linears("Int8DynamicActivationIntxWeightConfig", weight_dtype=4, weight_granularity=32), table(4, 32)
    ),
    "float8 weights": transformed(linears("Float8WeightOnlyConfig")),
}

#: Of these, what `make test` takes.
_QUICK = {
    "static per channel",
    "dynamic",
    "static, our quantizer",
    "int8 weights",
    "int8 activations, int8 weights",
    "int8 activations, 4-bit weights, groups of 32",
    "4-bit weights, groups of 32",
    "4-bit table, groups",
}
FLOWS = {name: build for name, build in _ALL.items() if name in _QUICK or is_full("QUANT")}

#: Flows that the peer makes files of, too: not of ours, which it does not know, and training takes twenty
#: seconds.
PEER_FLOWS = tuple(name for name in FLOWS if "our" not in name and not name.startswith("trained"))
