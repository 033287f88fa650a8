"""The graph of a method: of its file, or of the plan that load makes of it."""
