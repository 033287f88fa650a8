"""Language models: text in, text out, in a process without torch and transformers.

`export` makes the folder of a model of transformers, with torch. `Generator` opens it. Tokenizers and chat
templates need `pip install "pteron[llm]"`.
"""

from pteron.llm.conversation import Conversation
from pteron.llm.export_call import export
from pteron.llm.generation_config import GenerationConfig
from pteron.llm.generation_result import GenerationResult, Timings, TokenLogprob
from pteron.llm.generator import Generator
from pteron.llm.text2text import Text2TextGenerator
from pteron.llm.token_stream import TokenStream
from pteron.llm.transcriber import Hearing, Segment, Transcriber, Transcript

__all__ = [
    "Conversation",
    "GenerationConfig",
    "GenerationResult",
    "Generator",
    "Hearing",
    "Segment",
    "Text2TextGenerator",
    "Timings",
    "TokenLogprob",
    "TokenStream",
    "Transcriber",
    "Transcript",
    "export",
]
