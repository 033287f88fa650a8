"""torch tensors in, torch tensors out."""

from __future__ import annotations

import numpy as np
import pytest

import pteron
from tests.support.own_interpreter import output_of
from tests.support.programs import MethodBuilder, add_method, build, dynamic_add_method

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def add() -> pteron.Method:
    return pteron.load(build(add_method(planned=False))).load_method()


X = torch.arange(6, dtype=torch.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "tensor",
    [
        X,
        X.t().contiguous().t(),
        X.repeat_interleave(2, dim=1)[:, ::2],
        X[:1].expand(2, 3),
        torch.nn.Parameter(X.clone()),
        X.clone().requires_grad_(),
        X.as_subclass(type("Other", (torch.Tensor,), {})),
        -(X * 1j).imag,
        torch.view_as_complex(torch.stack([X, -X], dim=-1)).conj().imag,
    ],
    ids=[
        "dense",
        "transposed",
        "strided",
        "expanded",
        "parameter",
        "grad",
        "subclass",
        "computed",
        "lazily negated",
    ],
)
def test_every_kind_of_tensor(add: pteron.Method, tensor: torch.Tensor) -> None:
    result = add(tensor, X)
    assert isinstance(result, torch.Tensor)
    assert not result.requires_grad
    assert torch.equal(result, tensor.detach() + X)


def test_torch_out_only_when_torch_came_in(add: pteron.Method) -> None:
    assert isinstance(add(X.numpy(), X.numpy()), np.ndarray)
    assert isinstance(add(X.numpy(), X), torch.Tensor)
    assert isinstance(add.execute([X, X])[0], torch.Tensor)


def test_results_own_their_memory(add: pteron.Method) -> None:
    first = add(X, X)
    for i in range(10):
        add(X + i, X)
    assert torch.equal(first, X + X)
    first += 1
    assert torch.equal(first, X + X + 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int64", "int8", "uint8"])
def test_dtypes(dtype: str) -> None:
    method = pteron.load(build(add_method(dtype=dtype))).load_method()
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    result = method(x, x)
    assert result.dtype == x.dtype
    assert torch.equal(result, x + x)


def test_dynamic_shapes() -> None:
    method = pteron.load(build(dynamic_add_method())).load_method()
    for rows in (8, 1, 4):
        x = torch.rand(rows, 3)
        assert torch.equal(method(x, x), x + x)


def test_outputs_into_torch_memory(add: pteron.Method) -> None:
    target = torch.zeros(2, 3)
    assert add.execute([X, X], outputs=[target])[0] is target
    assert torch.equal(target, X + X)


def test_other_memory_orders() -> None:
    m = MethodBuilder()
    order = [0, 2, 3, 1]
    x = m.input(m.tensor([1, 3, 4, 5], dim_order=order), "x")
    out = m.output(m.tensor([1, 3, 4, 5], dim_order=order))
    m.add(x, x, out)
    method = pteron.load(build(m)).load_method()
    for given in (torch.rand(1, 3, 4, 5), torch.rand(1, 3, 4, 5).to(memory_format=torch.channels_last)):
        result = method(given)
        assert torch.equal(result, 2 * given)
        assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: X.to_sparse(), r"layout torch.sparse_coo.*to_dense"),
        (lambda: X.to("meta"), r"device meta"),
        (lambda: X.to(torch.float64), r"expected .*float32.*got.*float64"),
        (lambda: torch._efficientzerotensor(2, 3), r"without memory|no memory"),
        (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), r"dtype torch.qint8"),
    ],
    ids=["sparse", "meta", "float64", "zeros", "quantised"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrong_tensors(add: pteron.Method, make: object, text: str) -> None:
    with pytest.raises(pteron.InputTypeError, match=text):
        add(make(), X)  # type: ignore[operator]
    assert torch.equal(add(X, X), X + X)


def test_fake_tensors_have_no_memory(add: pteron.Method) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
    with pytest.raises(pteron.InputTypeError, match=r"no memory|without memory"):
        add(fake, X)


def test_pteron_tensor_from_dlpack() -> None:
    result = pteron.load(build(add_method())).load_method()(X.numpy(), X.numpy())
    assert torch.equal(torch.from_dlpack(result.base), X + X)


OLDER = """
import torch
del torch.Tensor.__dlpack_c_exchange_api__
import pteron
from tests.support.programs import add_method, build
x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
method = pteron.load(build(add_method())).load_method()
result = method(x.t().contiguous().t(), x)
assert type(result) is torch.Tensor and torch.equal(result, x + x)
target = torch.zeros(2, 3)
assert method.execute([x, x], outputs=[target])[0] is target and torch.equal(target, x + x)
"""


def test_a_torch_that_has_no_table_of_functions() -> None:
    """Versions before the DLPack exchange table are read through Python."""
    assert output_of(OLDER) == ""
