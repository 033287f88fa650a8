"""Random operators: their distributions with fixed seeds, and what a seed determines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pteron
from pteron.exir import to_edge

N = 40_000


def program(function: Callable[..., Any], *args: Any) -> pteron.Program:
    """The function as a program."""

    class Model(torch.nn.Module):
        def forward(self, *given: Tensor) -> Any:
            return function(*given)

    captured = torch.export.export(Model().train(), args)
    return pteron.load(to_edge(captured).to_executorch().buffer)


def draw(function: Callable[..., Any], *args: Any, seed: int = 1) -> Tensor:
    """The first result, with a seed."""
    method = program(function, *args).load_method("forward", seed=seed)
    return torch.as_tensor(method.execute(list(args))[0])


def check_distribution(x: Tensor, cdf: Callable[[Tensor], Tensor]) -> None:
    """Kolmogorov and Smirnov's test at a level of about one in a thousand; the seed is fixed."""
    x = x.double().flatten().sort().values
    steps = torch.arange(len(x) + 1, dtype=torch.float64) / len(x)
    expected = cdf(x)
    distance = torch.maximum((expected - steps[:-1]).abs().max(), (expected - steps[1:]).abs().max())
    assert float(distance) * math.sqrt(len(x)) < 1.95


def check_frequencies(counts: Tensor, chances: Tensor) -> None:
    """Pearson's test; the bound is five standard deviations of chi-square."""
    expected = chances.double() / chances.sum() * counts.sum()
    chi = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    assert float(chi) < freedom + 5 * math.sqrt(2 * freedom)


def _normal(x: Tensor) -> Tensor:
    return torch.special.ndtr(x)


CONTINUOUS: dict[str, tuple[Callable[..., Any], Callable[[Tensor], Tensor]]] = {
    "rand": (lambda x: torch.rand(N), lambda x: x),
    "rand_like": (lambda x: torch.rand_like(x), lambda x: x),
    "randn": (lambda x: torch.randn(N), _normal),
    "randn float64": (lambda x: torch.randn(N, dtype=torch.float64), _normal),
    "randn_like": (lambda x: torch.randn_like(x), _normal),
    "uniform": (lambda x: torch.empty_like(x).uniform_(-2, 6), lambda x: (x + 2) / 8),
    "normal": (lambda x: torch.empty_like(x).normal_(3, 2), lambda x: _normal((x - 3) / 2)),
    "normal of tensors": (lambda x: torch.normal(x, x.abs() + 1), _normal),
    "normal of a mean": (lambda x: torch.normal(x, 2.0), lambda x: _normal(x / 2)),
    "normal of a deviation": (lambda x: torch.normal(1.0, x + 1), lambda x: _normal(x - 1)),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), lambda x: 1 - torch.exp(-2 * x)),
    "cauchy": (
        lambda x: torch.empty_like(x).cauchy_(1, 2),
        lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5,
    ),
    "log_normal": (lambda x: torch.empty_like(x).log_normal_(0, 1), lambda x: _normal(x.log())),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distributions(name: str) -> None:
    function, cdf = CONTINUOUS[name]
    x = draw(function, torch.zeros(N))
    assert x.shape == (N,)
    check_distribution(x, cdf)


def test_uniform_numbers_stay_below_one_in_every_dtype() -> None:
    for dtype, ulp in [
        (torch.float32, 2**-24),
        (torch.float64, 2**-53),
        (torch.float16, 2**-11),
        (torch.bfloat16, 2**-8),
    ]:
        x = draw(lambda y, dtype=dtype: torch.rand(N, dtype=dtype) + 0, torch.zeros(1)).double()
        assert float(x.min()) >= 0
        assert float(x.max()) < 1
        assert bool(((x / ulp) % 1 == 0).all())


INTEGERS: dict[str, tuple[Callable[..., Any], range]] = {
    "randint": (lambda x: torch.randint(7, (N,)), range(7)),
    "randint low": (lambda x: torch.randint(-3, 9, (N,), dtype=torch.int32), range(-3, 9)),
    "randint_like": (lambda x: torch.randint_like(x, 2, 6), range(2, 6)),
    "bytes": (lambda x: torch.randint(0, 256, (N,), dtype=torch.uint8), range(256)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers(name: str) -> None:
    function, values = INTEGERS[name]
    x = draw(function, torch.zeros(N)).long()
    counts = torch.bincount(x - values.start, minlength=len(values))
    assert len(counts) == len(values)
    check_frequencies(counts, torch.ones(len(values)))


def test_bernoulli_and_dropout() -> None:
    chances = torch.linspace(0, 1, 11)[:, None].expand(11, N // 10).contiguous()
    for function in [torch.bernoulli, lambda p: torch.empty_like(p).bernoulli_(p)]:
        rates = draw(function, chances).mean(1)
        assert float((rates - chances[:, 0]).abs().max()) < 5 * math.sqrt(0.25 / (N // 10))
    once = draw(lambda x: torch.bernoulli(x, 0.3), torch.zeros(N))
    assert abs(float(once.mean()) - 0.3) < 5 * math.sqrt(0.21 / N)
    x = torch.arange(1.0, N + 1)
    with pytest.warns(UserWarning, match="computes as in training"):
        y = draw(lambda x: torch.nn.functional.dropout(x, 0.25, training=True), x)
    kept = y != 0
    assert abs(float(kept.double().mean()) - 0.75) < 5 * math.sqrt(0.1875 / N)
    torch.testing.assert_close(y[kept], x[kept] / 0.75)


def test_choices() -> None:
    weights = torch.tensor([[1.0, 2, 0, 4, 3], [5.0, 0, 0, 0, 5]])
    chosen = draw(lambda w: torch.multinomial(w, 5000, replacement=True), weights)
    for row, weight in zip(chosen, weights, strict=True):
        counts = torch.bincount(row, minlength=5)
        assert bool((counts[weight == 0] == 0).all())
        check_frequencies(counts[weight > 0], weight[weight > 0])
    rows = weights[:1].expand(5000, 5).contiguous()
    chosen = draw(lambda w: torch.multinomial(w, 2), rows)
    assert bool((chosen[:, 0] != chosen[:, 1]).all())
    check_frequencies(torch.bincount(chosen[:, 0], minlength=5)[rows[0] > 0], rows[0][rows[0] > 0])
    order = draw(lambda x: torch.randperm(1000), torch.zeros(1))
    assert bool((order.sort().values == torch.arange(1000)).all())
    assert not bool((order == torch.arange(1000)).all())
    places = torch.stack([draw(lambda x: torch.randperm(4), torch.zeros(1), seed=s) for s in range(3)])
    assert len(places.unique(dim=0)) > 1


def test_geometric_numbers() -> None:
    x = draw(lambda x: torch.empty_like(x).geometric_(0.3), torch.zeros(N)).long()
    chances = 0.3 * 0.7 ** torch.arange(10.0)
    check_frequencies(torch.bincount(x - 1, minlength=10)[:10], chances)


def test_a_seed_determines_a_session() -> None:
    loaded = program(lambda x: (torch.rand(3, 5), torch.rand(3, 5), torch.randn_like(x)), torch.zeros(70_000))
    given = [torch.zeros(70_000)]

    def run(method: pteron.Method) -> list[Tensor]:
        return [torch.as_tensor(r) for r in method.execute(given)]

    one, two = (loaded.load_method("forward", seed=5) for _ in range(2))
    first, second = run(one), run(one)
    # Two calls of an operator, and two runs, draw different numbers.
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], second[0])
    for a, b in zip([*first, *second], [*run(two), *run(two)], strict=True):
        assert torch.equal(a, b)
    one.seed(5)
    assert all(torch.equal(a, b) for a, b in zip(first, run(one), strict=True))
    single = loaded.load_method("forward", seed=5, num_threads=1)
    assert all(torch.equal(a, b) for a, b in zip(first, run(single), strict=True))
    other = run(loaded.load_method("forward", seed=6))
    unseeded = [run(loaded.load_method("forward")) for _ in range(2)]
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(unseeded[0][0], unseeded[1][0])


def test_seeds_are_whole_numbers_of_64_bits() -> None:
    loaded = program(lambda x: torch.rand(3), torch.zeros(1))
    method = loaded.load_method("forward", seed=2**64 - 1)
    for wrong in [-1, 2**64]:
        with pytest.raises(pteron.InputError, match="seed"):
            loaded.load_method("forward", seed=wrong)
        with pytest.raises(pteron.InputError, match="seed"):
            method.seed(wrong)
    for wrong in ["7", 1.5, True]:
        with pytest.raises(TypeError, match="seed"):
            method.seed(wrong)
    with pytest.raises(TypeError, match="seed"):
        method.seed(None)


def test_parameters_out_of_their_domain_are_refused() -> None:
    for function, x in [
        (torch.bernoulli, torch.tensor([1.5])),
        (lambda s: torch.normal(0.0, s), torch.tensor([-1.0])),
        (lambda w: torch.multinomial(w, 1), torch.tensor([0.0, 0.0])),
    ]:
        method = program(function, x.abs().clamp(0, 1) + (0.5 if x.numel() > 1 else 0)).load_method("forward")
        if function is not torch.bernoulli:  # PyTorch decomposes it into a comparison.
            with pytest.raises(pteron.KernelError):
                method.execute([x])


def test_counts_have_the_frequencies_of_their_distributions() -> None:
    for rate in (0.7, 4.0, 60.0):
        drawn = draw(torch.poisson, torch.full((N,), rate)).long()
        top = int(rate + 4 * rate**0.5)
        counts = torch.bincount(drawn, minlength=top + 1)
        k = torch.arange(top + 1, dtype=torch.float64)
        chances = (k * math.log(rate) - rate - torch.lgamma(k + 1)).exp()
        is_likely = chances * N >= 5
        check_frequencies(counts[: top + 1][is_likely], chances[is_likely])
    for n, p in ((1, 0.25), (12, 0.5), (200, 0.04)):
        drawn = draw(torch.binomial, torch.full((N,), float(n)), torch.full((N,), p)).long()
        counts = torch.bincount(drawn, minlength=n + 1)
        k = torch.arange(n + 1, dtype=torch.float64)
        ways = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        chances = (ways + k * math.log(p) + (n - k) * math.log1p(-p)).exp()
        is_likely = chances * N >= 5
        check_frequencies(counts[is_likely], chances[is_likely])


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(pteron.PteronError, match="out of its domain"):
        draw(torch.poisson, torch.tensor([1.0, -1.0]))
