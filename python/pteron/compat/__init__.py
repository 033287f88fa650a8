"""ExecuTorch's own module paths, resolved to ours.

Three ways to use it, none of which imports torch or anything else before it is needed:

- `from pteron.compat.executorch.exir.backend.backend_api import to_backend`: put `pteron.compat.` before the
  path in an import line.
- `pteron.compat.install()`: from then on `import executorch.exir...` itself gives our modules. Refused where
  the real `executorch` package can be imported, unless `replace=True`.
- `from pteron.compat.portable_lib import _load_for_executorch_from_buffer`: the loader of the older examples.
  Programs that it loads find the demo backends without having registered them.

`module_paths` holds the table of all paths. A path that is not in it is a ModuleNotFoundError that says so.
"""

from __future__ import annotations

from pteron.compat.path_finder import install, is_installed, uninstall

__all__ = ["install", "is_installed", "uninstall"]
