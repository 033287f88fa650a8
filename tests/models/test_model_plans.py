"""What load makes of twelve models, exported here and by ExecuTorch: steps by kind, and what must hold.

`make test` takes a few of them, `make test-models` all, at full size too.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pteron
from tests.models.exporters import BY_NAME
from tests.models.plan_models import MODELS, PlanModel
from tests.support.extent import is_full, only_in
from tests.support.goldens import compare

_GOLDEN = Path(__file__).parent / "golden_plans"
_ALL = is_full("MODELS")
_QUICK = {
    ("lstm", "executorch"),
    ("mobilenet_v2", "pteron"),
    ("dlrm", "pteron"),
}

Kinds = Counter[str]


def kinds(listing: str) -> Kinds:
    """Number of steps by what they call, without instructions and arguments."""
    lines = (re.sub(r"^\[[^]]*\] ", "", line) for line in listing.splitlines())
    return Counter(re.sub(r" \(%[^)]*\)$", "", line) for line in lines)


def written(counts: Kinds) -> str:
    return "".join(
        f"{n:4} {kind}\n" for kind, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def total(counts: Kinds, *parts: str) -> int:
    """Steps whose kind has all of `parts`."""
    return sum(n for kind, n in counts.items() if all(part in kind for part in parts))


def no_leftovers(counts: Kinds) -> None:
    """Batch norms, activations and sums are in the convolutions."""
    for gone in ("batch_norm", "relu", "hardtanh", "call aten::clamp", "aten::add.out"):
        assert total(counts, gone) == 0, written(counts)


def reorders(counts: Kinds) -> int:
    return total(counts, "aten::clone") + total(counts, "dim_order") + total(counts, "permute_copy")


def holds_resnet50(counts: Kinds, program: pteron.Program) -> None:
    no_leftovers(counts)
    assert reorders(counts) <= 2
    assert total(counts, "convolution", "residual", "clamp") == 16


def holds_mobilenet_v2(counts: Kinds, program: pteron.Program) -> None:
    no_leftovers(counts)
    assert reorders(counts) == 0
    assert total(counts, "constant_pad_nd") == 0
    assert total(counts, "padded") == 5, "those of stride two, wider behind than before"


def holds_efficientnet_b0(counts: Kinds, program: pteron.Program) -> None:
    no_leftovers(counts)
    assert reorders(counts) == 0
    assert total(counts, "aten::sigmoid") == 0
    assert total(counts, "call aten::mul") == 16, "the gates"


def holds_minilm(counts: Kinds, program: pteron.Program) -> None:
    assert total(counts, "attention(") == 6
    assert total(counts, "permute_copy") == total(counts, "softmax") == total(counts, "bmm") == 0
    assert total(counts, "addmm", "gelu") == 6
    assert total(counts, "addmm", "residual") == 12


def holds_transformer(counts: Kinds, program: pteron.Program) -> None:
    assert total(counts, "attention(") == 12
    assert total(counts, "softmax") == total(counts, "bmm") == 0


def holds_lstm(counts: Kinds, program: pteron.Program) -> None:
    # Input and recurrent weights of two layers, and the head; besides, the four initial states, where the
    # exporter left it to load to compute them.
    assert program.pack_stats[0] in (5, 5 + 4)
    assert total(counts, "aten::t_copy") == 0


def holds_unet(counts: Kinds, program: pteron.Program) -> None:
    no_leftovers(counts)
    assert reorders(counts) <= 1


def holds_decoder(counts: Kinds, program: pteron.Program) -> None:
    assert total(counts, "attention(") == 2
    assert total(counts, "softmax") == 0


def holds_mlp(counts: Kinds, program: pteron.Program) -> None:
    assert total(counts, "aten::addmm.out + clamp(0, inf)") == 3
    assert total(counts, "relu") == total(counts, "aten::t_copy") == 0


HOLDS: dict[str, Callable[[Kinds, pteron.Program], None]] = {
    "resnet50": holds_resnet50,
    "mobilenet_v2": holds_mobilenet_v2,
    "efficientnet_b0": holds_efficientnet_b0,
    "minilm": holds_minilm,
    "minilm_dynamic": holds_minilm,
    "vit": holds_transformer,
    "lstm": holds_lstm,
    "gpt2_prefill": holds_transformer,
    "unet": holds_unet,
    "whisper_encoder": holds_decoder,
    "llama_with_cache": holds_decoder,
    "dlrm": holds_mlp,
}


def compiled(model: PlanModel, exporter: str) -> tuple[Kinds, pteron.Program]:
    """Loaded in a runtime that is the same on every machine."""
    with torch.no_grad():
        buffer = BY_NAME[exporter](model.export())
    program = pteron.load(buffer, runtime=pteron.Runtime(isa="portable", num_threads=1))
    program.load_method("forward")
    return kinds(program.plan_listing("forward")), program


CASES = [
    pytest.param(name, exporter, marks=[pytest.mark.peer] if exporter == "executorch" else [])
    for name in MODELS
    for exporter in BY_NAME
    if _ALL or (name, exporter) in _QUICK
]


@pytest.mark.parametrize(("name", "exporter"), CASES)
def test_the_steps_are_the_reviewed_ones(name: str, exporter: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name](False)
    counts, program = compiled(model, exporter)
    HOLDS[name](counts, program)
    compare(written(counts), _GOLDEN / f"{name}_{exporter}.txt")
    if not model.keywords:
        is_as_good_as_eager(model, program)


def is_as_good_as_eager(model: PlanModel, program: pteron.Program) -> None:
    """Deep networks with random weights amplify rounding, eager PyTorch's too: both are held to float64."""
    twice = [x.double() if x.is_floating_point() else x for x in model.arguments]
    with torch.no_grad():
        eager = model.module(*model.arguments)
        exact = copy.deepcopy(model.module).double()(*twice)
    got = program.run("forward", *model.arguments)
    errors = [float((result.double() - exact).abs().max()) for result in (got, eager)]
    assert errors[0] <= 4 * errors[1] + 1e-5 * float(exact.abs().max()), errors


@only_in("MODELS")
@pytest.mark.parametrize(
    "name", ["resnet50", "mobilenet_v2", "efficientnet_b0", "minilm_dynamic", "lstm", "unet"]
)
def test_full_size_changes_nothing_that_must_hold(name: str) -> None:
    torch.manual_seed(0)
    HOLDS[name](*compiled(MODELS[name](True), "pteron"))
