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
        is_deterministic: whether the vendor's own blobs are the same bytes in every process.
        runs: whether ExecuTorch's runtime in the wheel has the backend.
        tolerance: of results beside the exported module's, as a part of its largest value.
        may_stop_at: what both sides say where the vendor's own program does not run on this machine.
        skips_dim_order: for compilers that know no operators of dimension orders.
    """

    models: tuple[str, ...]
    partitioner: Callable[[], Any]
    quantizer: Callable[[], Any] | None = None
    is_deterministic: bool = True
    runs: bool = False
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


def _vulkan_quantizer() -> Any:
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
        VulkanQuantizer,
        get_symmetric_quantization_config,
    )

    return VulkanQuantizer().set_global(get_symmetric_quantization_config())


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


def _openvino_quantizer() -> Any:
    from executorch.backends.openvino.quantizer import OpenVINOQuantizer

    return OpenVINOQuantizer()


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


_SMALL = ("linear", "two linears", "sum", "convolution net")
#: Of more than a hundred operators; lowering a quantised one takes a minute and more in ExecuTorch.
_LARGE = ("mobilenet v2", "mobilenet v3", "shufflenet", "convnext", "squeezenet")
_ALL_BUT_LARGE = tuple(name for name in MODELS if name not in _LARGE)

FLOWS: dict[str, Flow] = {
    "xnnpack": Flow(tuple(MODELS), _xnnpack, runs=True),
    "xnnpack int8": Flow(
        _ALL_BUT_LARGE, _xnnpack, lambda: _xnnpack_quantizer(is_dynamic=False), runs=True, tolerance=0.05
    ),
    "xnnpack dynamic int8": Flow(
        _ALL_BUT_LARGE, _xnnpack, lambda: _xnnpack_quantizer(is_dynamic=True), runs=True, tolerance=0.05
    ),
    "native": Flow((*_SMALL, "attention", "mobilenet v2"), _native, is_deterministic=False),
    "vulkan": Flow((*_SMALL, "attention", "mobilenet v2"), _vulkan),
    "vulkan int8": Flow(("two linears", "convolution net"), _vulkan, _vulkan_quantizer),
    "webgpu": Flow(_SMALL, _webgpu),
    "coreml": Flow((*_SMALL, "attention"), _coreml, is_deterministic=False),
    "openvino": Flow((*_SMALL, "attention", "mobilenet v2"), _openvino),
    "openvino int8": Flow(("two linears", "convolution net"), _openvino, _openvino_quantizer),
    "example": Flow(("two linears", "convolution net"), _example, _example_quantizer, skips_dim_order=True),
    "tosa": Flow((*_SMALL, "separable", "attention", "mobilenet v2"), lambda: _tosa("FP")),
    "tosa int8": Flow(
        # ExecuTorch's own passes fail over the divisor of the model "attention".
        (*_SMALL, "separable"),
        lambda: _tosa("INT"),
        lambda: _arm_quantizer("TOSAQuantizer", _tosa_spec("INT")),
    ),
    "ethos-u int8": Flow(
        ("two linears", "convolution net", "separable"),
        _ethos,
        lambda: _arm_quantizer("EthosUQuantizer", _ethos_spec()),
    ),
    "vgf": Flow(("two linears", "convolution net"), _vgf, may_stop_at="Vgf compiler failed"),
}

#: Flows that one process goes through, one after the other: importing a compiler takes longer than a model.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("xnnpack",),
    ("xnnpack int8", "xnnpack dynamic int8"),
    ("native", "vulkan", "vulkan int8", "webgpu", "example"),
    ("coreml",),
    ("openvino", "openvino int8"),
    ("tosa", "tosa int8", "ethos-u int8", "vgf"),
)
