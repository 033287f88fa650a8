"""Models with linear algebra, bilinear layers and training-mode batch norm export and run as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pteron
from pteron.exir import to_edge

SQUARE = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)) + 4 * torch.eye(4)
TALL = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(1))

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inverse": torch.linalg.inv,
    "solution": lambda x: torch.linalg.solve(x, x[..., :2]),
    "inverse by its method": lambda x: x.inverse(),
    "LU factors": lambda x: torch.linalg.lu_factor(x)[0],
    "determinant": torch.linalg.det,
    "log determinant": torch.logdet,
    "Cholesky factor": lambda x: torch.linalg.cholesky(x @ x.mT),
    "matrix exponential": lambda x: torch.linalg.matrix_exp(x / 8),
    "pseudo-inverse": torch.linalg.pinv,
    "pseudo-inverse of a symmetric matrix": lambda x: torch.linalg.pinv(x + x.mT, hermitian=True),
    "spectral norm": lambda x: torch.linalg.matrix_norm(x, 2),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(x + x.mT),
    "unfold and fold": lambda x: torch.nn.functional.fold(
        torch.nn.functional.unfold(x[:, None], 2, stride=2), (4, 4), 2, stride=2
    ),
}


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def run(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    program = to_edge(torch.export.export(module, inputs)).to_executorch()
    (result,) = pteron.load(program.buffer).load_method("forward").execute(list(inputs))
    return torch.as_tensor(result)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_square_matrices(name: str) -> None:
    module = Function(FUNCTIONS[name])
    torch.testing.assert_close(run(module, (SQUARE,)), module(SQUARE), rtol=1e-4, atol=1e-5)


def test_singular_matrices_raise_as_in_eager() -> None:
    program = to_edge(torch.export.export(Function(torch.linalg.inv), (SQUARE,))).to_executorch()
    method = pteron.load(program.buffer).load_method("forward")
    with pytest.raises(pteron.PteronError, match="singular"):
        method.execute([torch.ones(2, 4, 4)])


@pytest.mark.parametrize("x", [TALL, TALL.mT.contiguous(), TALL[0]], ids=["tall", "wide", "one"])
def test_pseudo_inverses_of_any_matrix(x: torch.Tensor) -> None:
    torch.testing.assert_close(
        run(Function(torch.linalg.pinv), (x,)), torch.linalg.pinv(x), rtol=1e-4, atol=1e-5
    )


def test_bilinear_layer() -> None:
    module = torch.nn.Bilinear(3, 4, 5).eval()
    inputs = (torch.randn(6, 3), torch.randn(6, 4))
    torch.testing.assert_close(run(module, inputs), module(*inputs).detach())


def test_batch_norm_in_training() -> None:
    module = torch.nn.BatchNorm1d(3, dtype=torch.float32).train()
    x = torch.randn(8, 3)
    exported = torch.export.export(module, (x,))
    with pytest.warns(UserWarning, match="computes as in training"):
        program = to_edge(exported).to_executorch()
    method = pteron.load(program.buffer).load_method("forward")
    for _ in range(3):
        (got,) = method.execute([x])
        torch.testing.assert_close(torch.as_tensor(got), module(x).detach())
