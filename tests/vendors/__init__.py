"""Vendors' compilers from ExecuTorch's wheel, unmodified, on top of `pteron.compat`."""
