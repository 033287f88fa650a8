"""What an export without settings of its own stands for, in the whole process. Imports no torch, so that
`pteron.compat.install` can set it before anything is exported.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ExportDefaults:
    """`keep_constants`: `ExecutorchBackendConfig(optimize=True)` leaves the constants of a model as they are,
    as ExecuTorch does without `constant_prop_pass`.
    """

    keep_constants: bool = False


DEFAULTS = ExportDefaults()
"""Those of this process."""
