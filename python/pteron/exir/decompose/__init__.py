"""Decompositions: into core ATen, what stays whole on the way, and what is decomposed for the target."""
