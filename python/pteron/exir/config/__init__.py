"""The settings of `to_edge` and of `to_executorch`."""
