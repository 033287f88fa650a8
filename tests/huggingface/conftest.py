"""These tests export many models of transformers: `make test-huggingface` runs them, `make test` does not."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PTERON_HUGGINGFACE") else ["test_*.py"]
