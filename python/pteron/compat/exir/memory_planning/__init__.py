"""ExecuTorch's memory planning over one graph module, by its names.

For compilers that plan memory in their `preprocess`, and for tools that read a plan. `to_executorch` plans a
whole program with `pteron.exir.memory`.
"""
