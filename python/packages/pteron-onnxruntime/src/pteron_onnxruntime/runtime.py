"""The run half: ONNX Runtime and NumPy, no torch."""

from __future__ import annotations

import importlib.util
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron_onnxruntime.blob import BACKEND, BlobError, Head, read
from pteron_onnxruntime.memory import TYPES, Array, address, bytes_of
from pteron_onnxruntime.settings import Settings, settings_of

if TYPE_CHECKING:
    from pteron._native import BackendInitContext
    from pteron_onnxruntime.compiled import Compiled
    from pteron_onnxruntime.delegate import OnnxRuntimeDelegate

_MISSING = (
    "ONNX Runtime is not installed: pip install onnxruntime (or onnxruntime-gpu, or another build of it)"
)


class OnnxRuntimeRuntime:
    """What `pteron.register_backend("PteronOnnxRuntimeBackend", ...)` takes.

    Sessions of one program with the same settings share one of ONNX Runtime, as long as one of them lives.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compiled: weakref.WeakValueDictionary[Any, Compiled] = weakref.WeakValueDictionary()

    def is_available(self) -> bool | str:
        """True, or the command that installs what is missing."""
        return importlib.util.find_spec("onnxruntime") is not None or _MISSING

    def init(
        self, ctx: BackendInitContext, processed: memoryview, compile_specs: dict[str, bytes]
    ) -> OnnxRuntimeDelegate:
        """A delegate of its own for each call site and session.

        Raises:
            BlobError, SettingError: the program or a setting cannot be used.
        """
        from pteron_onnxruntime.delegate import OnnxRuntimeDelegate

        head, model = read(processed)
        _check_types(head)
        settings = settings_of(compile_specs, ctx.options)
        states = [_named(ctx, s.key, s.name, s.dtype, s.shape) for s in head.states]
        return OnnxRuntimeDelegate(self._model(ctx, head, model, settings), head, settings, states)

    def _model(self, ctx: BackendInitContext, head: Head, model: bytes, settings: Settings) -> Compiled:
        from pteron_onnxruntime.compiled import Compiled

        constants = [_named(ctx, c.key, c.name, c.dtype, c.shape) for c in head.constants]
        # Their places stand for the constants: as long as a session of ONNX Runtime holds them, no others can
        # lie there.
        key = (model, tuple(map(address, constants)), settings)
        with self._lock:
            known = self._compiled.get(key)
            if known is None:
                known = self._compiled[key] = Compiled(model, head, constants, settings)
            return known


def _check_types(head: Head) -> None:
    stated = [*(constant.dtype for constant in head.constants), *(state.dtype for state in head.states)]
    for name in (*head.inputs, *head.outputs, *stated):
        if name not in TYPES:
            raise BlobError(f"the blob states the element type {name!r}, which ONNX Runtime does not have")


def _named(ctx: BackendInitContext, key: str, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    content = np.frombuffer(ctx.named_data(key), np.uint8)
    if content.size != bytes_of(dtype, shape):
        raise BlobError(f"{name!r} has {content.size} bytes, its shape asks {bytes_of(dtype, shape)}")
    return content


def register(runtime: Any = None) -> None:
    """Registers the backend with `runtime` (None: the default one), replacing one of its name."""
    import pteron

    pteron.register_backend(BACKEND, OnnxRuntimeRuntime(), runtime=runtime, replace=True)
