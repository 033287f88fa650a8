"""Models with Fourier transforms, complex numbers and bags of embeddings, exported and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pteron
from pteron.exir import to_edge


def _stft(x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.stft(x, 32, hop_length=8, window=torch.hann_window(32), return_complex=True)
    return torch.view_as_real(spectrum)


def _filter(x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft(spectrum * torch.view_as_complex(torch.ones(spectrum.shape[-1], 2)), n=x.shape[-1])


MODELS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "rfft": (lambda x: torch.fft.rfft(x).abs(), (torch.randn(3, 40),)),
    "complex result": (lambda x: torch.fft.rfft(x, norm="ortho"), (torch.randn(3, 37),)),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x, dim=0, norm="forward")), (torch.randn(6, 5),)),
    "fft2": (lambda x: torch.view_as_real(torch.fft.fft2(x)), (torch.randn(2, 6, 5),)),
    "filter": (_filter, (torch.randn(2, 30),)),
    "irfft": (lambda x: torch.fft.irfft(x, norm="backward"), (torch.fft.rfft(torch.randn(2, 30)),)),
    "stft": (_stft, (torch.randn(2, 200),)),
    "rotary": (
        lambda x, t: torch.view_as_real(torch.view_as_complex(x) * torch.polar(torch.ones_like(t), t)),
        (torch.randn(4, 8, 2), torch.randn(4, 8)),
    ),
    "bag": (
        lambda w, i, o: torch.nn.functional.embedding_bag(i, w, o, mode="mean"),
        (torch.randn(9, 4), torch.tensor([0, 8, 3, 3]), torch.tensor([0, 1])),
    ),
    **{
        f"{mode} of closed bags": (
            lambda w, i, o, mode=mode: torch.nn.functional.embedding_bag(
                i, w, o, mode=mode, include_last_offset=True
            ),
            (torch.randn(9, 4), torch.tensor([0, 8, 3, 3]), torch.tensor([0, 1, 4])),
        )
        for mode in ("sum", "mean", "max")
    },
    "bag of pairs": (
        lambda w, i: torch.nn.functional.embedding_bag(i, w, mode="max"),
        (torch.randn(9, 4), torch.tensor([[0, 8], [3, 3]])),
    ),
    "weighted bag": (
        lambda w, i, s: torch.nn.functional.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        (torch.randn(9, 4), torch.tensor([[0, 8], [3, 3]]), torch.rand(2, 2)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_program_agrees_with_the_model(name: str) -> None:
    function, args = MODELS[name]

    class Model(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return function(*given)

    buffer = to_edge(torch.export.export(Model().eval(), args)).to_executorch().buffer
    (got,) = pteron.load(buffer).load_method("forward").execute(list(args))
    want = function(*args)
    assert torch.as_tensor(got).dtype == want.dtype
    torch.testing.assert_close(torch.as_tensor(got), want, rtol=0, atol=2e-6 * float(want.abs().max()))
