"""What targets can run: their kernels, and the element types that portable kernels take."""
