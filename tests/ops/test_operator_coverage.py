"""Every operator that a program may hold has a kernel, or a row in the table that says why it has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch._ops import OpOverload

from pteron import _native
from pteron.exir.edge.stages import has_kernel
from pteron.exir.target.kernel_lists import EXECUTORCH_PORTABLE
from tests.ops.operator_cases import every_case

TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "operators-without-kernel.md"
NAMES = frozenset(_native.operator_names())

# Kernels that no case of the operator table calls: their results have other tests, or no contents to compare.
CALLED_ELSEWHERE = {
    "aten::_local_scalar_dense": "a number, not a tensor: tests of control flow and dynamic shapes",
    "aten::sym_numel": "as above",
    "aten::sym_size.int": "as above",
    "aten::copy_": "in place: tests of state",
    "aten::index_put_": "as above",
    "aten::_native_batch_norm_legit.out": "changes its running statistics: tests beside the kernel",
    **dict.fromkeys(
        [
            "llama::custom_quantized_sdpa.out",
            "llama::custom_sdpa.out",
            "llama::fallback.out",
            "llama::fast_hadamard_transform.out",
            "llama::sdpa_with_kv_cache.out",
            "llama::update_cache.out",
            "llama::update_cache_with_indices.out",
        ],
        "of ExecuTorch's libraries: tests beside the kernel, tests/llm/test_custom_ops.py",
    ),
    **dict.fromkeys(
        ["pteron::fixed_point_add.out", "pteron::integer_mul.out"],
        "what XNNPACK's graphs become: tests beside the kernel, tests/xnnpack",
    ),
    "aten::empty.out": "contents are not defined",
    "aten::empty_like.out": "contents are not defined",
    "aten::empty_strided.out": "contents are not defined",
    **dict.fromkeys(
        [
            "aten::binomial.out",
            "aten::poisson.out",
            "aten::bernoulli.Tensor_out",
            "aten::bernoulli.float_out",
            "aten::bernoulli.out",
            "aten::cauchy.out",
            "aten::exponential.out",
            "aten::geometric.out",
            "aten::log_normal.out",
            "aten::multinomial.out",
            "aten::native_dropout.out",
            "aten::normal.Tensor_Tensor_out",
            "aten::normal.Tensor_float_out",
            "aten::normal.float_Tensor_out",
            "aten::normal.float_float_out",
            "aten::normal.out",
            "aten::rand.out",
            "aten::rand_like.out",
            "aten::randint.low_out",
            "aten::randint.out",
            "aten::randint_like.low_dtype_out",
            "aten::randint_like.out",
            "aten::randn.out",
            "aten::randn_like.out",
            "aten::random.from_out",
            "aten::random.out",
            "aten::random.to_out",
            "aten::randperm.out",
            "aten::uniform.out",
        ],
        "random: test_random_operators, tests beside the kernel",
    ),
}


def without_kernel() -> list[str]:
    """The operators of the table."""
    return _rows(TABLE.read_text().split("## Coming")[0])


def coming() -> list[str]:
    """Those that are being written: listed while they are missing."""
    return _rows(TABLE.read_text().partition("## Coming")[2])


def _rows(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def overloads_of(operator: str) -> list[OpOverload]:
    """Functional overloads that a row of the table stands for."""
    namespace, name, *overload = operator.split(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    return [getattr(packet, o) for o in (overload or packet.overloads()[:1])]


def core_overloads() -> list[OpOverload]:
    names = {s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    packets = [getattr(torch.ops.aten, name.removeprefix("aten::")) for name in sorted(names)]
    found = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    return [op for op in found if torch.Tag.core in op.tags]


def is_served(op: OpOverload) -> bool:
    """By a kernel of its own, or as a view by that of its copying twin."""
    if has_kernel(op):
        return True
    name = op._schema.name + (f".{op._overloadname}" if op._overloadname != "default" else "")
    if name in NAMES:
        return True
    twin = getattr(torch.ops.aten, f"{op._opname}_copy", None)
    overload = getattr(twin, op._overloadname, None) if twin is not None else None
    return overload is not None and has_kernel(overload)


def test_every_core_operator_has_a_kernel_or_a_reason() -> None:
    core = core_overloads()
    assert len(core) == 193
    missing = {str(op).removesuffix(".default") for op in core if not is_served(op)}
    assert sorted(missing - {*without_kernel(), *coming()}) == []


@pytest.mark.parametrize("operator", without_kernel())
def test_what_the_table_lists_is_missing(operator: str) -> None:
    assert not any(is_served(op) for op in overloads_of(operator))


def test_every_operator_of_executorchs_libraries_has_a_kernel() -> None:
    symbolic = {name for name in EXECUTORCH_PORTABLE if name.startswith("executorch_prim::")}
    written = {f"aten::{operator.removeprefix('aten.')}.out" for operator in coming()}
    assert sorted(EXECUTORCH_PORTABLE - symbolic - NAMES - written) == []


def test_every_kernel_is_called_by_a_case() -> None:
    called = {case.name for case in every_case()}
    silent = {name for name in NAMES if name.startswith("aten::")} - called
    assert silent <= CALLED_ELSEWHERE.keys(), sorted(silent - CALLED_ELSEWHERE.keys())
