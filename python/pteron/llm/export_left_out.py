"""What the export of a model with images or sound leaves out, and the word to its user.

Text alone is worth a program, so such a model is exported with a warning; whoever gives the processor of
images expects them, and gets an error.
"""

from __future__ import annotations

import warnings
from typing import Any

from transformers import AutoModelForImageTextToText

from pteron.errors import ExportError
from pteron.llm.export_vision import KINDS

#: Parts of the names of configurations inside a configuration, and what their models take.
_INPUTS = {"vision": "images", "vit": "images", "vq": "images", "image": "images", "audio": "sound"}


def inputs_left_out(config: Any) -> list[str]:
    """ "images" and "sound", where a model of this configuration takes them and its program does not."""
    if config.model_type in KINDS:
        return []
    parts = [name for name in getattr(config, "sub_configs", ()) if getattr(config, name, None) is not None]
    found = {_INPUTS[key] for name in parts for key in _INPUTS if key in name}
    if type(config) in AutoModelForImageTextToText._model_mapping:
        found.add("images")
    return sorted(found)


def tell_left_out(config: Any, tokenizer: Any) -> None:
    """Warns that the program takes text alone; ExportError where `tokenizer` prepares images."""
    inputs = inputs_left_out(config)
    if not inputs:
        return
    what = f"llm.export: of the family {config.model_type} the text part alone is exported"
    known = f"images are exported for {' and '.join(KINDS)}"
    if "images" in inputs and getattr(tokenizer, "image_processor", None) is not None:
        raise ExportError(
            what,
            argument="tokenizer",
            expected="a tokenizer, for a program that takes text",
            got=f"{type(tokenizer).__name__}, which prepares images",
            hint=known,
        )
    parts = " and ".join(f"the encoder of {each}" for each in inputs)
    warnings.warn(f"{what}: {parts} is left out, the program takes tokens of text; {known}", stacklevel=4)
