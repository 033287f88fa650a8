"""Counterparts of modules of ExecuTorch's `exir` that have no module of their own in `pteron.exir`."""
