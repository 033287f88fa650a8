"""The run half: OpenVINO and NumPy, no torch."""

from __future__ import annotations

import importlib.util
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from pteron_openvino.blob import BACKEND, BlobError, Head, read
from pteron_openvino.settings import SettingError, Settings, settings_of

if TYPE_CHECKING:
    import openvino

    from pteron._native import BackendInitContext
    from pteron_openvino.delegate import OpenvinoDelegate

_MISSING = "OpenVINO is not installed: pip install openvino"


class OpenvinoRuntime:
    """What `pteron.register_backend("PteronOpenvinoBackend", ...)` takes.

    Sessions of one program with the same settings share a compiled model, as long as one of them lives.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._core: openvino.Core | None = None
        self._compiled: weakref.WeakValueDictionary[Any, Compiled] = weakref.WeakValueDictionary()

    def is_available(self) -> bool | str:
        """True, or the command that installs what is missing."""
        return importlib.util.find_spec("openvino") is not None or _MISSING

    def init(
        self, ctx: BackendInitContext, processed: memoryview, compile_specs: dict[str, bytes]
    ) -> OpenvinoDelegate:
        """A delegate of its own for each call site and session.

        Raises:
            BlobError, SettingError: the program or a setting cannot be used.
        """
        from pteron_openvino.delegate import OpenvinoDelegate

        head, model = read(processed)
        settings = settings_of(compile_specs, ctx.options)
        states = [np.frombuffer(ctx.named_data(state.key), np.uint8) for state in head.states]
        return OpenvinoDelegate(self._model(ctx, head, model, settings), head, settings, states)

    def _model(self, ctx: BackendInitContext, head: Head, model: bytes, settings: Settings) -> Compiled:
        weights = np.zeros(0, np.uint8)
        if head.weights is not None:
            weights = np.frombuffer(ctx.named_data(head.weights), np.uint8)
        if weights.size != head.weights_size:
            raise BlobError(f"the weights have {weights.size} bytes, the blob states {head.weights_size}")
        # The place of the weights stands for them: as long as the compiled model holds them, no others can
        # lie there.
        key = (model, weights.ctypes.data if weights.size else 0, settings)
        with self._lock:
            known = self._compiled.get(key)
            if known is None:
                known = self._compiled[key] = Compiled(self._known_core(), model, weights, settings, head)
            return known

    def _known_core(self) -> openvino.Core:
        import openvino

        if self._core is None:
            self._core = openvino.Core()
        return self._core


class Compiled:
    """A compiled model, with the weights that it reads where the program has them."""

    def __init__(
        self, core: openvino.Core, model: bytes, weights: np.ndarray[Any, Any], settings: Settings, head: Head
    ) -> None:
        from pteron_openvino.memory import tensor_over

        self._weights = weights
        try:
            read_model = core.read_model(model, tensor_over(weights, (weights.size,), "uint8"))
        except RuntimeError as error:
            raise BlobError(
                f"OpenVINO cannot read the model, which version {head.library} wrote: {_reason(error)}"
            ) from error
        try:
            self.model = core.compile_model(read_model, settings.device, dict(settings.properties))
        except RuntimeError as error:
            raise SettingError(
                f"OpenVINO cannot compile for device {settings.device!r} with "
                f"{dict(settings.properties)}: {_reason(error)} (devices here: "
                f"{', '.join(core.available_devices) or 'none'}; choose with "
                f"backend_options={{{BACKEND!r}: {{'device': ...}}}})"
            ) from error
        expected = len(head.states)
        counts = (len(self.model.inputs) - expected, len(self.model.outputs) - expected)
        if counts != (len(head.inputs), len(head.outputs)):
            raise BlobError(
                f"the model has {counts[0]} inputs and {counts[1]} results, the blob states "
                f"{len(head.inputs)} and {len(head.outputs)}"
            )


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[-2:])[:400] if lines else type(error).__name__


def register(runtime: Any = None) -> None:
    """Registers the backend with `runtime` (None: the default one), replacing one of its name."""
    import pteron

    pteron.register_backend(BACKEND, OpenvinoRuntime(), runtime=runtime, replace=True)
