"""Random nests of control flow over vectors of four elements, as PyTorch's operators or as plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

WIDTH = 4
#: Vectors that are in scope; a part of a program takes them and returns them with its own results.
Scope = list[torch.Tensor]
Part = Callable[[Scope], Scope]


class RandomNest(torch.nn.Module):
    """One random model; the same `seed` makes the same. `is_plain`: loops and choices are Python's own."""

    state: torch.Tensor

    def __init__(self, seed: int, *, is_plain: bool = False) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._is_plain = is_plain
        weights = torch.Generator().manual_seed(seed)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, generator=weights) * 0.4, False)
        self.register_buffer("state", torch.zeros(WIDTH))
        self._body = self._block(3)
        self._results = self._picker(3)
        self._new_state = self._picker(1)
        self._has_state = self._random.random() < 0.5

    def inputs(self, call: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Arguments of call number `call`."""
        generator = torch.Generator().manual_seed(call)
        return torch.randn(WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scope = self._body([x * 1.0, y, self.state + 0.0])
        results = tuple(value + 0 for value in self._results(scope))
        if self._has_state:
            self.state.copy_(self._new_state(scope)[0].tanh())
        return results

    def _picker(self, count: int) -> Callable[[Scope], Scope]:
        """Chooses `count` values of a scope, whatever its length."""
        places = [self._random.random() for _ in range(count)]
        return lambda scope: [scope[int(place * len(scope))] for place in places]

    def _copies(self, count: int) -> Callable[[Scope], tuple[torch.Tensor, ...]]:
        pick = self._picker(count)
        return lambda scope: tuple(value.clone() for value in pick(scope))

    def _block(self, depth: int) -> Part:
        kinds = (self._while, self._scan, self._map, self._cond) if depth else (self._straight,)
        parts = [
            self._random.choice((self._straight, *kinds))(depth) for _ in range(self._random.randint(1, 2))
        ]

        def run(scope: Scope) -> Scope:
            for part in parts:
                scope = part(scope)
            return scope

        return run

    def _straight(self, depth: int) -> Part:
        operators: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
            lambda a, b: a.tanh(),
            lambda a, b: a + b,
            lambda a, b: a * b * 0.5,
            lambda a, b: torch.nn.functional.linear(a, self.weight),
            lambda a, b: torch.cat([a, b])[1 : 1 + WIDTH],
            lambda a, b: a.reshape(2, 2).t().reshape(WIDTH),
            lambda a, b: a - b * 0.3,
            lambda a, b: (a * 2).clamp(-1, 1),
        ]
        steps = [(self._random.choice(operators), self._picker(2)) for _ in range(self._random.randint(1, 4))]

        def run(scope: Scope) -> Scope:
            for operator, pick in steps:
                scope = [*scope, operator(*pick(scope))]
            return scope

        return run

    def _while(self, depth: int) -> Part:
        count, trips = self._random.randint(1, 3), self._random.randint(0, 3)
        body, captured = self._block(depth - 1), self._picker(1)
        initial, carried = self._copies(count), self._copies(count)

        def run(scope: Scope) -> Scope:
            [seen] = captured(scope)

            def goes_on(i: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
                return i < trips

            def step(i: torch.Tensor, *values: torch.Tensor) -> Any:
                return (i + 1, *carried(body([*values, seen])))

            values: Any = (torch.zeros((), dtype=torch.int64), *initial(scope))
            if self._is_plain:
                while goes_on(*values):
                    values = step(*values)
            else:
                values = while_loop(goes_on, step, values)
            return [*scope, *values[1:], seen + values[0]]

        return run

    def _stacked_rows(self) -> tuple[int, Callable[[Scope], tuple[torch.Tensor, ...]]]:
        """(number of rows, one or two matrices of so many)."""
        count, rows = self._random.randint(1, 2), self._random.randint(1, 3)
        pick = self._picker(count * rows)

        def stacked(scope: Scope) -> tuple[torch.Tensor, ...]:
            chosen = pick(scope)
            return tuple(torch.stack(chosen[k * rows : (k + 1) * rows]) for k in range(count))

        return rows, stacked

    def _scan(self, depth: int) -> Part:
        count, is_reverse = self._random.randint(1, 3), self._random.random() < 0.5
        rows, stacked = self._stacked_rows()
        body, captured = self._block(depth - 1), self._picker(1)
        initial, carried = self._copies(count), self._copies(count)
        returned = self._copies(self._random.randint(1, 2))

        def run(scope: Scope) -> Scope:
            [seen] = captured(scope)

            def step(values: Any, row: Any) -> Any:
                inner = body([*values, *row, seen])
                return carried(inner), returned(inner)

            values, mapped = initial(scope), stacked(scope)
            if self._is_plain:
                results: list[Any] = []
                for i in reversed(range(rows)) if is_reverse else range(rows):
                    values, result = step(values, [matrix[i] for matrix in mapped])
                    results.append(result)
                ordered = results[::-1] if is_reverse else results
                matrices = [torch.stack(column) for column in zip(*ordered, strict=True)]
            else:
                values, matrices = scan(step, values, mapped, reverse=is_reverse)
            return [*scope, *values, *[matrix[0] + matrix[-1] * 2 for matrix in matrices]]

        return run

    def _map(self, depth: int) -> Part:
        rows, stacked = self._stacked_rows()
        body, captured = self._block(depth - 1), self._picker(1)
        returned = self._copies(self._random.randint(1, 2))
        dtype = self._random.choice([torch.float32, torch.int32, torch.bool])

        def run(scope: Scope) -> Scope:
            def step(row: Any, seen: torch.Tensor) -> Any:
                first, *others = returned(body([*row, seen]))
                return ((first * 4).round().to(dtype) if dtype is not torch.float32 else first, *others)

            mapped, [seen] = stacked(scope), captured(scope)
            if self._is_plain:
                results = [step([matrix[i] for matrix in mapped], seen) for i in range(rows)]
                matrices = [torch.stack(column) for column in zip(*results, strict=True)]
            else:
                matrices = map_over(step, mapped, seen)
            return [*scope, *[matrix.to(torch.float32).sum(0) for matrix in matrices]]

        return run

    def _cond(self, depth: int) -> Part:
        count, threshold = self._random.randint(1, 2), self._random.choice([-9, 0, 9])
        bodies = [self._block(depth - 1), self._block(depth - 1)]
        operands, predicate = self._copies(count), self._picker(1)
        returned = [self._copies(count), self._copies(count)]

        def run(scope: Scope) -> Scope:
            def true(*values: torch.Tensor) -> Any:
                return returned[0](bodies[0](list(values)))

            def false(*values: torch.Tensor) -> Any:
                return returned[1](bodies[1](list(values)))

            chosen = predicate(scope)[0].sum() > threshold
            values = operands(scope)
            if self._is_plain:
                return [*scope, *(true(*values) if chosen else false(*values))]
            return [*scope, *torch.cond(chosen, true, false, values)]

        return run
