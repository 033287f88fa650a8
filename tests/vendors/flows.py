"""What leads a model through each vendor's compiler: its partitioner, its quantizer, its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.vendors.models import MODELS


@dataclass(frozen=True)
class Flow:
    """One way through a compiler.

    Args:
        models: names of the models that are lowered.
        partitioner: makes the vendor's partitioner.
        quantizer: makes its quantizer of PT2E graphs; None for float32.
        compared: what is equal of each delegate; less than all where a vendor's own blobs differ between two
            processes, or hold names of nodes.
        runs: whether ExecuTorch's runtime in the wheel has the backend.
        stops_there: models whose file that runtime refuses to run, its own one too.
        tolerance: of results beside the exported module's, as a part of its largest value.
        may_stop_at: what both sides say where the vendor's own program does not run on this machine.
        skips_dim_order: for compilers that know no operators of dimension orders.
    """

    models: tuple[str, ...]
    partitioner: Callable[[], Any]
    quantizer: Callable[[], Any] | None = None
    compared: tuple[str, ...] = ("backend", "nodes", "named data", "bytes", "digest")
    runs: bool = False
    stops_there: tuple[str, ...] = ()
    tolerance: float = 1e-5
    skips_dim_order: bool = False
    may_stop_at: str | None = None


def _xnnpack() -> Any:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return XnnpackPartitioner()


def _xnnpack_quantizer(*, is_dynamic: bool) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=is_dynamic)
    return XNNPACKQuantizer().set_global(config)


def _native() -> Any:
    from executorch.backends.native.partitioner import NativePartitioner

    return NativePartitioner()


def _vulkan() -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    return VulkanPartitioner()


def _webgpu() -> Any:
    from executorch.backends.webgpu.partitioner.partitioner import WebGPUPartitioner

    return WebGPUPartitioner()


def _coreml() -> Any:
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    return CoreMLPartitioner()


def _openvino() -> Any:
    from executorch.backends.openvino.partitioner import OpenvinoPartitioner
    from executorch.exir.backend.backend_details import CompileSpec

    return OpenvinoPartitioner([CompileSpec("device", b"CPU")])


def _example() -> Any:
    from executorch.backends.example.example_partitioner import ExamplePartitioner

    return ExamplePartitioner()


def _example_quantizer() -> Any:
    from executorch.backends.example.example_quantizer import ExampleQuantizer

    return ExampleQuantizer()


def _tosa_spec(profile: str) -> Any:
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec

    return TosaCompileSpec(f"TOSA-1.0+{profile}")


def _tosa(profile: str) -> Any:
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner

    return TOSAPartitioner(_tosa_spec(profile))


def _arm_quantizer(kind: str, spec: Any) -> Any:
    from executorch.backends.arm import quantizer as arm

    quantizer = getattr(arm, kind)(spec)
    return quantizer.set_global(arm.get_symmetric_quantization_config())


def _ethos_spec() -> Any:
    from executorch.backends.arm.ethosu import EthosUCompileSpec

    return EthosUCompileSpec("ethos-u55-128")


def _ethos() -> Any:
    from executorch.backends.arm.ethosu import EthosUPartitioner

    return EthosUPartitioner(_ethos_spec())


def _vgf_spec() -> Any:
    from executorch.backends.arm.vgf import VgfCompileSpec

    return VgfCompileSpec()


def _vgf() -> Any:
    from executorch.backends.arm.vgf import VgfPartitioner

    return VgfPartitioner(_vgf_spec())


_TWO = ("two linears", "convolution net")

FLOWS: dict[str, Flow] = {
    "xnnpack": Flow(tuple(MODELS), _xnnpack, runs=True),
    "xnnpack int8": Flow(
        tuple(name for name in MODELS if name not in ("convnext", "minilm", "mobilenet v3")),
        _xnnpack,
        lambda: _xnnpack_quantizer(is_dynamic=False),
        runs=True,
        tolerance=0.05,
    ),
    "xnnpack dynamic int8": Flow(
        # A sum has nothing to quantise, and torchao makes floats of the tokens of MiniLM.
        tuple(name for name in MODELS if name not in ("sum", "minilm", "mobilenet v3")),
        _xnnpack,
        lambda: _xnnpack_quantizer(is_dynamic=True),
        runs=True,
        # XNNPACK: "Propagating input shapes failed".
        stops_there=("group norm", "mobilenet v2"),
        tolerance=0.05,
    ),
    "native": Flow(("convolution net", "mobilenet v2"), _native, compared=("backend", "nodes", "bytes")),
    "vulkan": Flow(("linear", "sum", *_TWO, "mobilenet v2"), _vulkan),
    "webgpu": Flow(("two linears",), _webgpu),
    "coreml": Flow(("two linears",), _coreml, compared=("backend", "nodes", "bytes")),
    "openvino": Flow(_TWO, _openvino),
    "example": Flow(_TWO, _example, _example_quantizer, compared=("backend", "nodes"), skips_dim_order=True),
    # ExecuTorch's own passes for int8 fail over the divisor of the model "attention".
    "tosa": Flow((*_TWO, "attention"), lambda: _tosa("FP")),
    "tosa int8": Flow(_TWO, lambda: _tosa("INT"), lambda: _arm_quantizer("TOSAQuantizer", _tosa_spec("INT"))),
    "ethos-u int8": Flow(
        ("convolution net",), _ethos, lambda: _arm_quantizer("EthosUQuantizer", _ethos_spec())
    ),
    "vgf": Flow(_TWO, _vgf, may_stop_at="Vgf compiler failed"),
}

#: Flows that one process goes through, one after the other: importing a compiler takes longer than a model.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("xnnpack",),
    ("xnnpack int8", "xnnpack dynamic int8"),
    ("native", "vulkan", "webgpu", "example"),
    ("coreml",),
    ("openvino",),
    ("tosa", "tosa int8", "ethos-u int8", "vgf"),
)
