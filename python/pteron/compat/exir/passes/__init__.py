"""ExecuTorch's passes by name: each works over one `GraphModule` or `ExportedProgram` that it is given.

The pipeline of this package runs its own passes (`pteron.exir.pass_order`); these are for partitioners and
`preprocess` functions that call a pass themselves.
"""
