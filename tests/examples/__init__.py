"""Every program of `python/examples`, run as a user runs it."""
