"""Device and properties of OpenVINO: from the program's compile specs and from the options of a session.

Names in capitals are OpenVINO's own properties. `device`, `cache_dir` and `profile` are ours. A program comes
from anywhere, so that it can say how fast and how exact to compute, and nothing about folders or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pteron_openvino.blob import BACKEND

#: Properties that a program may set.
FROM_PROGRAMS = (
    *("EXECUTION_MODE_HINT", "INFERENCE_PRECISION_HINT", "PERFORMANCE_HINT", "PERFORMANCE_HINT_NUM_REQUESTS"),
    *("INFERENCE_NUM_THREADS", "NUM_STREAMS", "SCHEDULING_CORE_TYPE", "ENABLE_CPU_PINNING"),
    *("ENABLE_HYPER_THREADING", "MODEL_PRIORITY", "DYNAMIC_QUANTIZATION_GROUP_SIZE", "KV_CACHE_PRECISION"),
)
_OURS = ("device", "cache_dir", "profile")


class SettingError(ValueError):
    """A setting that is not known, or may not be set where it was."""


@dataclass(frozen=True)
class Settings:
    """Where and how to compile a model.

    Attributes:
        device: as OpenVINO writes it, "CPU" or "AUTO:GPU,CPU".
        profile: time each operator of OpenVINO, and report it to the tracer of a call.
        properties: OpenVINO's, sorted by name.
    """

    device: str
    profile: bool
    properties: tuple[tuple[str, str], ...]


def settings_of(specs: Mapping[str, bytes], options: Mapping[str, bool | int | str]) -> Settings:
    """Options go before compile specs, and both before what holds otherwise: the processor, and accuracy.

    OpenVINO computes float32 in bfloat16 where the processor can, unless it is told to keep the accuracy.

    Raises:
        SettingError: a name is unknown, or a program sets what programs may not.
    """
    from_program = {key: value.decode(errors="replace") for key, value in specs.items()}
    for key in from_program:
        if key not in (*FROM_PROGRAMS, "device"):
            raise SettingError(
                f"the program sets {key!r}; a program may set device, {', '.join(FROM_PROGRAMS)}. "
                f"Give it as backend_options={{{BACKEND!r}: {{{key!r}: ...}}}} of load_method"
            )
    for key in options:
        if key not in _OURS and not key.isupper():
            raise SettingError(
                f"backend option {key!r} is not known: there are {', '.join(_OURS)}, and properties of "
                "OpenVINO in capitals, such as PERFORMANCE_HINT"
            )
    chosen: dict[str, bool | int | str] = {
        "device": "CPU",
        "EXECUTION_MODE_HINT": "ACCURACY",
        **from_program,
        **options,
    }
    device, profile = str(chosen.pop("device")), bool(chosen.pop("profile", False))
    if "cache_dir" in chosen:
        chosen["CACHE_DIR"] = chosen.pop("cache_dir")
    if profile:
        chosen["PERF_COUNT"] = True
    return Settings(device, profile, tuple(sorted((key, _text(value)) for key, value in chosen.items())))


def _text(value: bool | int | str) -> str:
    return ("YES" if value else "NO") if isinstance(value, bool) else str(value)
