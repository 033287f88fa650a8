"""Small vision models without a download: torchvision's classes, trained on drawn shapes for some minutes.

    python shapes.py picture scene.png                     # a picture with shapes, to try the models on
    python shapes.py train classifier classifier.pt        # mobilenet_v3_small, some minutes each
    python shapes.py train segmenter segmenter.pt          # lraspp_mobilenet_v3_large
    python shapes.py train detector detector.pt            # ssdlite320_mobilenet_v3_large

The files are ordinary state dictionaries, which the examples of images take as ``--weights``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

#: Names of the classes; the number of one is its index. The first is what is behind the shapes.
LABELS = ("background", "circle", "square", "triangle")


def draw(rng: np.random.Generator, size: int, count: int) -> tuple[Image.Image, Image.Image, list[Any]]:
    """A picture, its mask of class numbers, and ``(class, (left, top, right, bottom))`` of each shape."""
    shade = rng.integers(0, 90, 3)
    noise = rng.integers(0, 40, (size, size, 3))
    picture, mask = Image.fromarray((shade + noise).astype("uint8")), Image.new("L", (size, size))
    pen, stencil, found, cells = ImageDraw.Draw(picture), ImageDraw.Draw(mask), [], 2 if count > 1 else 1
    for cell in rng.permutation(cells * cells)[:count]:
        room = size // cells
        side = int(room * rng.uniform(0.45, 0.85))
        left, top = (int(rng.integers(0, room - side)) + room * int(at) for at in divmod(int(cell), cells))
        kind, box = int(rng.integers(1, len(LABELS))), (left, top, left + side, top + side)
        for canvas, ink in ((pen, tuple(int(c) for c in rng.integers(120, 256, 3))), (stencil, kind)):
            if kind == 1:
                canvas.ellipse(box, fill=ink)
            elif kind == 2:
                canvas.rectangle(box, fill=ink)
            else:
                canvas.polygon(
                    [(left, top + side), (left + side, top + side), (left + side // 2, top)], fill=ink
                )
        found.append((kind, box))
    return picture, mask, found


def train(kind: str, output: str, steps: int, batch: int) -> None:
    """Trains a model of torchvision on pictures that are drawn as it goes, and saves its state dictionary."""
    import torch
    from classify_and_segment import MEAN, SPREAD
    from torchvision.models import detection, mobilenet_v3_small, segmentation
    from torchvision.transforms.functional import normalize, to_tensor

    torch.manual_seed(0)
    rng, none = np.random.default_rng(0), {"weights": None, "num_classes": len(LABELS)}
    model = {
        "classifier": mobilenet_v3_small,
        "segmenter": lambda **o: segmentation.lraspp_mobilenet_v3_large(**o, weights_backbone=None),
        "detector": lambda **o: detection.ssdlite320_mobilenet_v3_large(**o, weights_backbone=None),
    }[kind](**none).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.1
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    for step in range(steps):
        drawn = [draw(rng, 160, 1 if kind == "classifier" else int(rng.integers(1, 5))) for _ in range(batch)]
        images = [to_tensor(picture) for picture, _, _ in drawn]
        if kind == "detector":
            targets = [
                {"boxes": torch.tensor([b for _, b in f]).float(), "labels": torch.tensor([k for k, _ in f])}
                for _, _, f in drawn
            ]
            loss = sum(model(images, targets).values())
        elif kind == "segmenter":
            masks = torch.stack([torch.from_numpy(np.asarray(mask).copy()) for _, mask, _ in drawn])
            scores = model(normalize(torch.stack(images), MEAN, SPREAD))["out"]
            loss = torch.nn.functional.cross_entropy(scores, masks.long())
        else:
            loss = torch.nn.functional.cross_entropy(
                model(normalize(torch.stack(images), MEAN, SPREAD)),
                torch.tensor([found[0][0] for _, _, found in drawn]),
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), output)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    picture = commands.add_parser("picture", help="draw a picture")
    picture.add_argument("output", help="image file to write")
    picture.add_argument("--seed", type=int, default=1)
    picture.add_argument("--count", type=int, default=3, help="shapes, at most 4")
    training = commands.add_parser("train", help="train a model")
    training.add_argument("kind", choices=("classifier", "segmenter", "detector"))
    training.add_argument("output", help="file for the state dictionary")
    training.add_argument("--steps", type=int, default=400)
    training.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    if options.command == "picture":
        draw(np.random.default_rng(options.seed), 320, options.count)[0].save(options.output)
    else:
        train(options.kind, options.output, options.steps, options.batch)


if __name__ == "__main__":
    main()
