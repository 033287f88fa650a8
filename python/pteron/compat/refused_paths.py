"""What `import executorch...` does not give although ExecuTorch has it, and why.

`REPLACED` names the packages whose modules are ours. A module of theirs that `module_paths` does not name is
an ImportError; nothing of an installed wheel stands in for it in silence. `FROM_WHEEL` lists the exceptions:
modules that hold no part of the pipeline, which an installed wheel gives as they are, on top of our modules.
"""

from __future__ import annotations

#: Packages whose modules are ours.
REPLACED = (
    "devtools.backend_debug",
    "devtools.bundled_program",
    "devtools.etdump",
    "devtools.etrecord",
    "devtools.inspector",
    "exir",
    "export",
    "extension.llm.runner",
    "extension.pybindings",
    "runtime",
)

_TESTS = "ExecuTorch's own tests and the models they use"

#: Path → what it is. The modules below a path are meant too.
FROM_WHEEL = {
    "devtools.bundled_program.serialize.test": _TESTS,
    "devtools.bundled_program.test": _TESTS,
    "devtools.bundled_program.util": _TESTS,
    "devtools.etdump.tests": _TESTS,
    "devtools.etrecord.tests": _TESTS,
    "devtools.inspector.tests": _TESTS,
    "devtools.inspector.vgf_neural_statistics": "the reader of the statistics that Arm's VGF runtime records",
    "exir._serialize.test": _TESTS,
    "exir.backend.test": _TESTS,
    "exir.dialects.backend.test": _TESTS,
    "exir.dialects.edge.test": _TESTS,
    "exir.dialects.test": _TESTS,
    "exir.emit.test": _TESTS,
    "exir.native": "the writer of `.ptn` files, over the Native backend's compiler; ExecuTorch runs them",
    "exir.operator.test": _TESTS,
    "exir.passes.test": _TESTS,
    "exir.program.test": _TESTS,
    "exir.tests": _TESTS,
    "exir.verification.test": _TESTS,
    "export.tests": _TESTS,
    "extension.llm.runner.test": _TESTS,
    "extension.pybindings.test": _TESTS,
    "runtime.test": _TESTS,
}

_DTYPE_TABLES = (
    "ExecuTorch's generator makes these tables of element types; what kernels take is in pteron.exir.target"
)

#: Path → why it is refused. The modules below a path are meant too.
REFUSED: dict[str, str] = {
    "exir.control_flow": "write torch.cond, map, scan and while_loop of torch.ops.higher_order",
    "exir.dialects.edge.arg": _DTYPE_TABLES,
    "exir.dialects.edge.dtype": _DTYPE_TABLES,
    "exir.dialects.edge.op": _DTYPE_TABLES,
    "exir.dialects.edge.spec": _DTYPE_TABLES,
    "exir.passes._quant_patterns_and_replacements": "exir.passes.quant_fusion_pass walks the graph, without "
    "patterns",
    "exir.serde.schema": "PyTorch's serializer writes the graph: torch._export.serde.schema",
    "exir.verification.interpreter": "pteron.load runs a program, with a tracer that sees every value",
    "extension.pybindings._C": "it is ExecuTorch's runtime in C++; run it in a process without pteron.compat",
    "extension.pybindings.aten_lib": "it is a build of ExecuTorch's runtime that its own wheel does not have",
}

#: Path → name → why it is refused. `from path import name` is an ImportError.
REFUSED_NAMES: dict[str, dict[str, str]] = {
    "exir": {
        "ExirDynamoConfig": "models are captured with torch.export.export",
        "edge_to_executorch_passes": "the passes of to_executorch are pteron.exir.pass_order",
    },
    "exir.dialects.edge._ops": dict.fromkeys(
        ("AllowedDtypeSet", "FunctionDtypeConstraint", "_edge_dialect_info"), _DTYPE_TABLES
    ),
    "exir.memory_planning": {
        "insert_calls_to_free": "every extent has a bound here, so every tensor is planned"
    },
}

_NO_COUNTERPART = (
    "pteron has no counterpart of this module; the tables are pteron.compat.module_paths and refused_paths"
)


def refusal_of(inside: str) -> str | None:
    """Why a module that `module_paths` does not name is refused; None where a wheel may give it."""
    for path, reason in REFUSED.items():
        if _is_in(inside, path):
            return reason
    if any(_is_in(inside, path) for path in FROM_WHEEL):
        return None
    return _NO_COUNTERPART if any(_is_in(inside, package) for package in REPLACED) else None


def _is_in(inside: str, path: str) -> bool:
    return inside == path or inside.startswith(path + ".")
