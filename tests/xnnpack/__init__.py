"""Files that ExecuTorch lowered to XNNPACK, run by our runtime beside eager PyTorch and ExecuTorch's own."""
