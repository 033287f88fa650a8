"""Bundled programs as objects, by ExecuTorch's names."""
