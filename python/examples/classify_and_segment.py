"""Says what is on a picture, and paints over it where: one program, a line of text and an overlay.

    python classify_and_segment.py export seen               # torchvision: downloads published weights
    python classify_and_segment.py run seen photo.jpg overlay.png           # NumPy and Pillow, no torch

``export --classifier FILE --segmenter FILE --labels a,b,c`` takes state dictionaries of your own instead of
the published weights of mobilenet_v3_small and lraspp_mobilenet_v3_large.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

import pteron

#: Pixels of a side of what the program takes; the picture is scaled to it.
SIDE = 320
#: What torchvision subtracts from channels of 0 to 1, and divides them by.
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def export(folder: Path, classifier: str, segmenter: str, labels: list[str]) -> None:
    """Both models as one program: uint8 [320, 320, 3] to scores float32 [classes], mask uint8 [320, 320]."""
    import torch
    from torchvision.models import MobileNet_V3_Small_Weights, mobilenet_v3_small
    from torchvision.models.segmentation import LRASPP_MobileNet_V3_Large_Weights, lraspp_mobilenet_v3_large

    class Seen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if labels:
                self.classify = mobilenet_v3_small(num_classes=len(labels))
                self.segment = lraspp_mobilenet_v3_large(num_classes=len(labels), weights_backbone=None)
                for model, file in ((self.classify, classifier), (self.segment, segmenter)):
                    model.load_state_dict(torch.load(file, weights_only=True))
            else:
                self.classify = mobilenet_v3_small(weights="DEFAULT")
                self.segment = lraspp_mobilenet_v3_large(weights="DEFAULT")
            self.register_buffer("mean", torch.tensor(MEAN))
            self.register_buffer("spread", torch.tensor(SPREAD))

        def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            image = ((picture / 255 - self.mean) / self.spread).permute(2, 0, 1)[None]
            mask = self.segment(image)["out"][0].argmax(0)
            return self.classify(image)[0].softmax(0), mask.to(torch.uint8)

    names = [
        labels or weights.DEFAULT.meta["categories"]
        for weights in (MobileNet_V3_Small_Weights, LRASPP_MobileNet_V3_Large_Weights)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pteron.export(Seen().eval(), (torch.zeros(SIDE, SIDE, 3, dtype=torch.uint8),)).save(folder / "seen.pte")
    (folder / "labels.json").write_text(json.dumps(names))


def colour(number: int) -> tuple[int, int, int]:
    """A colour for a class, the same one in every run; class 0 is what is behind everything."""
    return (number * 97 % 256, (number * 57 + 120) % 256, (number * 151 + 60) % 256)


def run(folder: Path, picture: str, overlay: str) -> None:
    """Prints the three likeliest classes and what covers the picture; writes the overlay."""
    classes, parts = json.loads((folder / "labels.json").read_text())
    image = Image.open(picture).convert("RGB")
    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    scores, mask = pteron.load(folder / "seen.pte").run("forward", pixels)
    for index in np.argsort(scores)[::-1][:3]:
        print(f"{scores[index]:6.1%}  {classes[index]}")
    paint = np.zeros((SIDE, SIDE, 4), np.uint8)
    for number in np.unique(mask):
        print(f"{np.mean(mask == number):6.1%} of the picture: {parts[number]}")
        paint[mask == number] = (*colour(int(number)), 150 if number else 0)
    over = Image.fromarray(paint).resize(image.size, Image.Resampling.NEAREST)
    Image.alpha_composite(image.convert("RGBA"), over).convert("RGB").save(overlay)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="make the folder (torch)")
    exporting.add_argument("folder", type=Path)
    exporting.add_argument("--classifier", help="state dictionary of a mobilenet_v3_small")
    exporting.add_argument("--segmenter", help="state dictionary of an lraspp_mobilenet_v3_large")
    exporting.add_argument("--labels", default="", help="names of their classes, with commas between")
    running = commands.add_parser("run", help="look at a picture (no torch)")
    running.add_argument("folder", type=Path)
    running.add_argument("picture")
    running.add_argument("overlay", help="image file to write")
    options = parser.parse_args()
    if options.command == "run":
        run(options.folder, options.picture, options.overlay)
    elif bool(options.classifier) == bool(options.segmenter) == bool(options.labels):
        labels = [name.strip() for name in options.labels.split(",") if name]
        export(options.folder, options.classifier, options.segmenter, labels)
    else:
        parser.error("--classifier, --segmenter and --labels go together")


if __name__ == "__main__":
    main()
