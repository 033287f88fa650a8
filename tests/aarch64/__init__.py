"""Programs run on an emulated 64-bit ARM processor (`make cross-aarch64`, docs/how-to/arm.md)."""
