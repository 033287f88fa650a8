"""A model to a checked program in one call: what `pteron.export` does."""
