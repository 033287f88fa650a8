"""The engines of `make bench-field`: how each makes its file of a model, and how it opens and calls it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import open_file
from field_rows import Row

Call = Callable[[], Any]


@dataclass(frozen=True)
class Engine:
    """A file, and what runs it."""

    #: Name of the file in the folder of a row; empty where the model is built anew.
    file: str
    #: What is imported before time and memory count.
    imports: tuple[str, ...]
    #: Does the environment of the peers run it?
    is_apart: bool = False
    #: The variables that hold it to AVX2; `None` where nothing does.
    avx2: tuple[tuple[str, str], ...] | None = None
    #: Is the code of the file that of one instruction set?
    is_compiled_for_isa: bool = False


_TORCH_AVX2 = (
    ("ATEN_CPU_CAPABILITY", "avx2"),
    ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
    ("ONEDNN_MAX_CPU_ISA", "AVX2"),
)
ENGINES = {
    "pteron": Engine("pteron.pte", ("pteron",), avx2=(("PTERON_ISA", "avx2"),)),
    # MLAS reads the processor's identification itself.
    "onnxruntime": Engine("model.onnx", ("onnxruntime",), is_apart=True),
    "openvino": Engine("model.onnx", ("openvino",), is_apart=True, avx2=(("ONEDNN_MAX_CPU_ISA", "AVX2"),)),
    "aotinductor": Engine(
        "inductor.pt2", ("torch", "torch._inductor"), avx2=_TORCH_AVX2, is_compiled_for_isa=True
    ),
    # XNNPACK asks cpuinfo, which asks the processor.
    "executorch": Engine("xnnpack.pte", ("torch", "executorch.runtime")),
    "eager": Engine("", ("torch", "transformers"), avx2=_TORCH_AVX2),
}


def file_of(engine: str, folder: Path, isa: str) -> Path:
    """Where the engine's file of a row lies."""
    made = ENGINES[engine]
    return folder / (f"{isa}.{made.file}" if made.is_compiled_for_isa else made.file)


def inputs_of(folder: Path) -> list[Any]:
    """The arguments of a call."""
    import numpy as np

    return [np.load(path) for path in sorted(folder.glob("input*.npy"))]


def make(engine: str, row: Row, folder: Path, isa: str) -> None:
    """Writes the engine's file; for `eager` the inputs, the result, and how many operations a call has."""
    import torch

    target = file_of(engine, folder, isa)
    model = row.build()
    if engine == "eager":
        return _make_reference(model, folder)
    if engine in ("onnxruntime", "openvino"):
        # Both read it: whoever comes first makes it.
        torch.onnx.export(
            model.module,
            model.arguments,
            target,
            dynamo=True,
            external_data=False,
            dynamic_shapes=model.dynamic_shapes,
            verbose=False,
        )
        return None
    with torch.no_grad():
        exported = torch.export.export(model.module, model.arguments, dynamic_shapes=model.dynamic_shapes)
    if engine == "pteron":
        from pteron.exir import to_edge

        to_edge(exported).to_executorch().save(target)
    elif engine == "executorch":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        target.write_bytes(edge.to_executorch().buffer)
    else:
        settings: dict[str, Any] = {"freezing": True}
        if isa == "avx2":
            settings["cpp.simdlen"] = 256
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(target), inductor_configs=settings
            )
    return None


def _make_reference(model: Any, folder: Path) -> None:
    import json

    import numpy as np
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with torch.inference_mode():
        expected = model.module(*model.arguments)
    # What stands for many products is not counted: recurrent layers of oneDNN, attention as one operator.
    plain, steps = torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), plain, steps, FlopCounterMode(display=False) as counter:
        model.module(*model.arguments)
    for i, argument in enumerate(model.arguments):
        np.save(folder / f"input{i}.npy", argument.numpy())
    np.save(folder / "expected.npy", expected.numpy())
    # Everything that a call has to touch: of a table, from which it takes some rows, that is nearly nothing.
    tables = {m.weight.data_ptr() for m in model.module.modules() if isinstance(m, torch.nn.Embedding)}
    multiplied = {m.weight.data_ptr() for m in model.module.modules() if isinstance(m, torch.nn.Linear)}
    tensors = [*model.module.parameters(), *model.module.buffers(), *model.arguments, expected]
    sizes = {each.data_ptr(): each.numel() * each.element_size() for each in tensors}
    read = [size for at, size in sizes.items() if at not in tables or at in multiplied]
    work = {"flops": counter.get_total_flops(), "bytes": sum(read)}
    (folder / "work.json").write_text(json.dumps(work) + "\n")


def open_engine(engine: str, row: Row, folder: Path, isa: str, threads: int) -> Call:
    """Opens the engine's file in this process; what is returned calls it."""
    file, arrays = file_of(engine, folder, isa), inputs_of(folder)
    if engine in ("pteron", "onnxruntime"):
        return getattr(open_file, engine)(file, arrays, threads)  # type: ignore[no-any-return]
    if engine == "openvino":
        # Without the hint the plugin computes in bfloat16 where the processor can.
        return open_file.openvino(file, arrays, threads, INFERENCE_PRECISION_HINT="f32")
    import torch

    torch.set_num_threads(threads)
    if engine == "executorch":
        return open_file.executorch(file, arrays)
    tensors = [torch.from_numpy(each) for each in arrays]
    if engine == "aotinductor":
        run = torch._inductor.aoti_load_package(str(file))
    else:
        run = row.build().module

    def call() -> Any:
        with torch.inference_mode():
            return run(*tensors)

    return call


def worker(engine: str, row: Row, folder: Path, isa: str, threads: int, seconds: float) -> dict[str, float]:
    """Times one engine in this process."""
    import time

    import numpy as np
    from resident import Memory
    from timing import median_times

    # Pools of the peers have a thread for each processor that the process may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    for name in ENGINES[engine].imports:
        __import__(name)
    memory = Memory()
    start = time.perf_counter(), time.process_time()
    call = open_engine(engine, row, folder, isa, threads)
    loaded = time.perf_counter() - start[0], time.process_time() - start[1]
    expected = np.load(folder / "expected.npy")
    result = np.asarray(call(), dtype=np.float64)
    difference = float(np.abs(result - expected).max() / np.abs(expected).max())
    wall, processor = median_times(call, seconds)
    return {
        "wall": wall,
        "processor": processor,
        "load": loaded[0] * 1e3,
        "load processor": loaded[1] * 1e3,
        "memory": memory.most(),
        "difference": difference,
    }


if __name__ == "__main__":
    import argparse
    import json

    from field_rows import BY_NAME

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("row", choices=BY_NAME)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--isa", default="best")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    chosen = options.engine, BY_NAME[options.row], options.folder, options.isa
    if options.make:
        make(*chosen)
        sys.exit()
    print(json.dumps(worker(*chosen, options.threads, options.seconds)))
