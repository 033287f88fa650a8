"""The cost of one iteration of a small loop: here, in eager PyTorch, in ExecuTorch's runtime.

    python benches/loop_iterations.py [--iterations 1000] [--rounds 7]

Each engine runs the same loop, one thread, turn by turn; the figure is the median over the rounds of a whole
call divided by the number of iterations. "plain" is the loop written in Python over eager operators.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from results import Tables, add_json_option
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import pteron
from pteron.exir import ExecutorchBackendConfig, to_edge

WIDTH = 16
Tensors = tuple[torch.Tensor, ...]


class While(torch.nn.Module):
    """`y = tanh(linear(y))`, `n` times."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def body(self, i: torch.Tensor, y: torch.Tensor) -> Tensors:
        return i + 1, torch.tanh(self.linear(y))

    def forward(self, y: torch.Tensor, n: torch.Tensor) -> Any:
        zero = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, y: i < n, self.body, (zero, y))

    def plain(self, y: torch.Tensor, n: torch.Tensor) -> Any:
        i = torch.zeros((), dtype=torch.int64)
        while i < n:
            i, y = self.body(i, y)
        return i, y


class Scan(torch.nn.Module):
    """A recurrent cell."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def body(self, hidden: torch.Tensor, row: torch.Tensor) -> Tensors:
        hidden = torch.tanh(self.linear(hidden) + row)
        return hidden, hidden.clone()

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> Any:
        return scan(self.body, hidden, x)

    def plain(self, x: torch.Tensor, hidden: torch.Tensor) -> Any:
        rows = []
        for row in x:
            hidden, out = self.body(hidden, row)
            rows.append(out)
        return hidden, torch.stack(rows)


class Map(torch.nn.Module):
    """Two elementwise operators on each row."""

    def body(self, row: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (row * y).relu()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return map_over(self.body, x, y)

    def plain(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.stack([self.body(row, y) for row in x])


def _engines(model: Any, args: Tensors) -> dict[str, Callable[[], Any]]:
    from executorch.runtime import Runtime

    torch._dynamo.reset()
    edge = to_edge(torch.export.export(model, args))
    method = pteron.load(edge.to_executorch().buffer).load_method("forward", num_threads=1)
    portable = edge.to_executorch(ExecutorchBackendConfig(kernels="executorch-portable")).buffer
    peer = Runtime.get().load_program(portable).load_method("forward")
    arrays = [value.numpy() for value in args]

    def run_peer() -> Any:
        # The method reads from the bytes that it was loaded from.
        assert portable
        return peer.execute(list(args))

    return {
        "pteron": lambda: method(*arrays),
        "eager, plain": lambda: model.plain(*args),
        "eager, operator": lambda: model(*args),
        "executorch": run_peer,
    }


def _measure(engines: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in engines}
    for name in engines:
        engines[name]()
    for _ in range(rounds):
        for name, call in engines.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    add_json_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n = options.iterations
    cases: list[tuple[str, torch.nn.Module, Tensors]] = [
        ("while_loop: counter, linear, tanh", While(), (torch.randn(1, WIDTH), torch.tensor(n))),
        ("scan: linear, add, tanh, stacked", Scan(), (torch.randn(n, WIDTH), torch.randn(WIDTH))),
        ("map: mul, relu", Map(), (torch.randn(n, WIDTH), torch.randn(WIDTH))),
    ]
    names = ["pteron", "eager, plain", "eager, operator", "executorch"]
    print("| loop | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    tables = Tables()
    tables.begin(["loop", *names])
    for title, model, args in cases:
        with torch.no_grad():
            found = _measure(_engines(model.requires_grad_(False), args), options.rounds)
        cells = [f"{found[name] / n * 1e6:.2f} us" for name in names]
        print(f"| {title} | " + " | ".join(cells) + " |")
        tables.row(title, *cells)
    tables.save(options)


if __name__ == "__main__":
    main()
