"""ExecuTorch's own tests, from its wheel, run through `pteron.compat`."""
