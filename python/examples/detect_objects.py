"""Finds objects on a picture and draws a box around each: SSDLite of torchvision, post-processing included.

    python detect_objects.py export detector.pte              # torchvision: downloads published weights
    python detect_objects.py run detector.pte photo.jpg found.png           # NumPy and Pillow, no torch

``export --weights FILE --labels background,a,b`` takes a state dictionary of your own. The labels are
written beside the program, into ``detector.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image, ImageDraw

import pteron

#: Pixels of a side of what the program takes; the picture is scaled to it.
SIDE = 320


def export(output: Path, weights: str, labels: list[str], least: float) -> None:
    """The program: float32 [3, 320, 320] of 0 to 1 to boxes [found, 4], scores and labels [found]."""
    import torch
    import torchvision
    from torchvision.models.detection import (
        SSDLite320_MobileNet_V3_Large_Weights,
        ssdlite320_mobilenet_v3_large,
    )

    def batched_nms(boxes: Any, scores: Any, kinds: Any, limit: float) -> Any:
        """torchvision's own asks the data how many boxes there are, which stops `torch.export`."""
        span = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1
        return torchvision.ops.nms(boxes + (kinds.to(boxes) * span)[:, None], scores, limit)

    class OneImage(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            (found,) = self.model([image])
            return found["boxes"], found["scores"], found["labels"]

    if labels:
        model = ssdlite320_mobilenet_v3_large(num_classes=len(labels), weights_backbone=None)
        model.load_state_dict(torch.load(weights, weights_only=True))
    else:
        labels = SSDLite320_MobileNet_V3_Large_Weights.DEFAULT.meta["categories"]
        model = ssdlite320_mobilenet_v3_large(weights="DEFAULT")
    model.score_thresh = least  # the default, 0.001, gives hundreds of boxes that mean nothing
    with mock.patch.object(torchvision.ops.boxes, "batched_nms", batched_nms):
        # No check on an example: torch would assert that it shows two objects at least. The program does not.
        pteron.export(OneImage(model).eval(), (torch.rand(3, SIDE, SIDE),), check=False).save(output)
    output.with_suffix(".json").write_text(json.dumps(labels))


def run(program: Path, picture: str, output: str) -> None:
    """Prints every object with its score and its edges in pixels, and draws its box."""
    labels = json.loads(program.with_suffix(".json").read_text())
    image = Image.open(picture).convert("RGB")
    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32) / 255
    boxes, scores, kinds = pteron.load(program).run("forward", pixels.transpose(2, 0, 1))
    boxes = boxes * np.tile(image.size, 2) / SIDE
    pen = ImageDraw.Draw(image)
    for box, score, kind in zip(boxes, scores, kinds, strict=True):
        left, top, right, bottom = (round(float(edge)) for edge in box)
        print(f"{score:6.1%}  {labels[kind]:<12} {left:4} {top:4} {right:4} {bottom:4}")
        pen.rectangle((left, top, right, bottom), outline=(255, 64, 64), width=3)
        pen.text((left + 5, top + 3), f"{labels[kind]} {score:.0%}", fill=(255, 255, 255))
    image.save(output)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="make the program (torch)")
    exporting.add_argument("program", type=Path)
    exporting.add_argument("--weights", help="state dictionary of an ssdlite320_mobilenet_v3_large")
    exporting.add_argument("--labels", default="", help="names of its classes, with commas between")
    exporting.add_argument("--least", type=float, default=0.5, help="smallest score of an object")
    running = commands.add_parser("run", help="look at a picture (no torch)")
    running.add_argument("program", type=Path)
    running.add_argument("picture")
    running.add_argument("output", help="image file to write")
    options = parser.parse_args()
    if options.command == "run":
        run(options.program, options.picture, options.output)
    elif bool(options.weights) == bool(options.labels):
        labels = [name.strip() for name in options.labels.split(",") if name]
        export(options.program, options.weights, labels, options.least)
    else:
        parser.error("--weights and --labels go together")


if __name__ == "__main__":
    main()
