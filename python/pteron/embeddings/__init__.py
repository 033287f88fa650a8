"""Text embeddings: texts in, vectors out, in a process without torch, transformers and sentence-transformers.

`export` makes the folder of a model of sentence-transformers, with torch. `Embedder` opens it; its tokenizer
needs `pip install "pteron[llm]"`. Inside sentence-transformers the folder runs as
`pteron.integrations.sentence_transformers.PteronModule`.
"""

from pteron.embeddings.embedder import Embedder
from pteron.embeddings.export_call import export

__all__ = ["Embedder", "export"]
