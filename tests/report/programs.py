"""Programs for reports: small ones, one whose names attack the page, one with thousands of instructions."""

from __future__ import annotations

import json

import torch
from torch import nn

import pteron
from pteron.exir import to_edge

#: Names that end elements, open others, or run where they are taken for script, style or markup.
HOSTILE = (
    "</script><script>document.title='attacked'</script>",
    "<img src=x onerror=\"document.title='attacked'\">",
    "\"'><svg onload=document.title='attacked'>",
    "<!--<script>",
    "javascript:document.title='attacked'",
    "${document.title='attacked'}",
    "\u2028\u2029\u202e\x00&lt;b&gt;&amp;",
    "__proto__",
    "constructor",
)


class Attention(nn.Module):
    """A block whose steps are fused at load: attention, sums, activations."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        parts = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, size // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, length, size))
        return x + self.mlp(x)


class Encoder(nn.Module):
    """Some of these blocks, with modules at several depths."""

    def __init__(self, layers: int, size: int = 16) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, size, 4, 4)
        self.layers = nn.ModuleList(Attention(size, 2) for _ in range(layers))
        self.head = nn.Linear(size, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1)).softmax(-1)


class Loop(nn.Module):
    """A value that each round of a loop leaves to the next."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        def more(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < 5

        def body(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, (y * 2).sin()

        return while_loop(more, body, (torch.zeros((), dtype=torch.int64), x))[1]


class Counter(nn.Module):
    """State, and two outputs of one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        values, places = torch.topk(self.total, 2)
        return values, places


class Named(nn.Module):
    """A module of each name."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.children():
            x = module(x).tanh()
        return x


class Chain(nn.Module):
    """Many instructions that load does not fuse into one, some with a module."""

    def __init__(self, modules: int, each: int) -> None:
        super().__init__()
        self.modules_of_it = nn.ModuleList(Sorts(each) for _ in range(modules))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.modules_of_it:
            x = module(x)
        return x


class Sorts(nn.Module):
    """So many sums along one dimension."""

    def __init__(self, each: int) -> None:
        super().__init__()
        self.each = each

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.each):
            x = x.cumsum(1)
        return x


def content(model: nn.Module, *inputs: torch.Tensor) -> bytes:
    """The file of a model."""
    torch.manual_seed(0)
    return to_edge(torch.export.export(model.eval(), inputs)).to_executorch().buffer


def hostile() -> bytes:
    """A program whose modules and source file have hostile names: in the file's text, for no model of PyTorch
    can have all of them.
    """
    written = [json.dumps(name)[1:-1].encode() for name in HOSTILE]
    places = [f"m{at}".ljust(len(name), "_") for at, name in enumerate(written)]
    data = content(Named(places), torch.randn(1, 4))
    for place, name in zip(places, written, strict=True):
        assert place.encode() in data
        data = data.replace(place.encode(), name)
    assert b"programs.py" in data
    return data.replace(b"programs.py", b"<script>.py")


def files() -> dict[str, bytes]:
    """The small programs by name."""
    torch.manual_seed(0)
    return {
        "encoder": content(Encoder(2), torch.randn(1, 3, 16, 16)),
        "loop": content(Loop(), torch.randn(4)),
        "counter": content(Counter(), torch.randn(4)),
        "hostile": hostile(),
    }


def load(data: bytes) -> pteron.Program:
    """The program of a file."""
    return pteron.load(data)
