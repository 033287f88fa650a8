"""Quantises a classifier to int8 and compares both programs: bytes, time of a call, answers.

    python quantise.py export digits                   # torch, torchao, scikit-learn: trains on digits, 10 s
    python quantise.py compare digits                                            # NumPy, no torch

The network learns the 1,797 handwritten digits that scikit-learn has. The scales of int8 come from 64
pictures of the training set; both programs are tried on the same 360 pictures that it has not seen.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import pteron


def export(folder: Path) -> None:
    """`float.pte` and `int8.pte`, float32 [1, 1, 16, 16] to scores [1, 10], and `test.npz` to try them on."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    from pteron.quant import quantize

    torch.manual_seed(0)
    pictures, digits = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    pictures = nn.functional.interpolate(pictures.float().view(-1, 1, 8, 8) / 16, size=(16, 16))
    order = torch.randperm(len(digits))
    test, train = order[:360], order[360:]
    model = nn.Sequential()
    for index, (before, after) in enumerate(((1, 32), (32, 64), (64, 64))):
        model.append(nn.Conv2d(before, after, 3, padding=1, stride=2 if index else 1))
        model.append(nn.BatchNorm2d(after)).append(nn.ReLU())
    model.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten()).append(nn.Linear(64, 10))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 8)
    for _ in range(8):
        for batch in train[torch.randperm(len(train))].split(64):
            loss = nn.functional.cross_entropy(model(pictures[batch]), digits[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()

    example, seen = (pictures[:1],), [(pictures[index : index + 1],) for index in train[:64]]
    folder.mkdir(parents=True, exist_ok=True)
    pteron.export(model.eval(), example, report=False).save(folder / "float.pte")
    small = quantize(model, example, seen, scheme="int8")
    print(small.quantization_report)
    pteron.export(small, example, report=False).save(folder / "int8.pte")
    np.savez(folder / "test.npz", pictures=pictures[test].numpy(), digits=digits[test].numpy())


def compare(folder: Path) -> None:
    """Prints a table of both programs, and in how many answers they differ."""
    test = np.load(folder / "test.npz")
    pictures, digits, answers = test["pictures"], test["digits"], {}
    print("program       bytes   us a call   right")
    for name in ("float", "int8"):
        method = pteron.load(folder / f"{name}.pte").load_method("forward", num_threads=1)
        times, found = [], []
        for picture in pictures:
            begun = time.perf_counter()
            scores = method(picture[None])
            times.append(time.perf_counter() - begun)
            found.append(int(scores.argmax()))
        answers[name] = np.array(found)
        size, right = (folder / f"{name}.pte").stat().st_size, np.mean(answers[name] == digits)
        print(f"{name:<8} {size:10,} {np.median(times) * 1e6:11.0f} {right:7.1%}")
    differ = int((answers["float"] != answers["int8"]).sum())
    print(f"{differ} of {len(digits)} answers differ")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("export", "compare"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    (export if options.command == "export" else compare)(options.folder)


if __name__ == "__main__":
    main()
