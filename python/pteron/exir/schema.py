"""The program file as Python objects: what the emitter makes and the native writer reads.

Names and meaning follow the file format; indices of values, buffers and delegates are positions in the
lists of the object that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

INLINE = 0  # BackendDelegateDataReference.location: index into Program.backend_delegate_data
STATIC = 0  # Tensor.shape_dynamism: the shape never changes
DYNAMIC_BOUND = 1  # Tensor.shape_dynamism: sizes are upper bounds
IN_SEGMENT = 0  # ExtraTensorInfo.location: data lies in the program file
EXTERNAL = 1  # ExtraTensorInfo.location: data lies in a data file, under the fully qualified name


@dataclass
class Buffer:
    """Bytes of a constant, or initial bytes of a buffer that a method updates. A memoryview where they are
    written from where the model has them.
    """

    storage: bytes | memoryview


@dataclass
class BackendDelegateInlineData:
    """The blob of a delegate."""

    data: bytes


@dataclass
class NamedData:
    """Bytes that are found by name; `alignment` in bytes."""

    key: str
    data: bytes | memoryview
    alignment: int


@dataclass
class TensorLayout:
    """dtype code, extents and memory order of a tensor in a data file."""

    scalar_type: int
    sizes: list[int]
    dim_order: list[int]


@dataclass
class DataFileEntry:
    """Bytes of a data file that are found by name: a tensor, or (`layout` None) something of a backend;
    `alignment` in bytes.
    """

    key: str
    data: bytes | memoryview
    alignment: int
    layout: TensorLayout | None


@dataclass
class ContainerMetadata:
    """Structure of a method's inputs and outputs as JSON pytree specs; empty where there is none."""

    encoded_inp_str: str
    encoded_out_str: str


@dataclass
class AllocationDetails:
    """A place in planned memory: memory id from 1, byte offset as low and high 32 bits."""

    memory_id: int
    memory_offset_low: int
    memory_offset_high: int

    @property
    def memory_offset(self) -> int:
        """The byte offset."""
        return self.memory_offset_low | self.memory_offset_high << 32


@dataclass
class ExtraTensorInfo:
    """What few tensors have: the name of a buffer that the method updates."""

    mutable_data_segments_idx: int = 0
    fully_qualified_name: str | None = None
    location: int = IN_SEGMENT


@dataclass
class Null:
    """No value."""


@dataclass
class Int:
    """An integer."""

    int_val: int


@dataclass
class Bool:
    """A truth value."""

    bool_val: bool


@dataclass
class Double:
    """A floating point number."""

    double_val: float


@dataclass
class String:
    """Text."""

    string_val: str


@dataclass
class Tensor:
    """A tensor value. `data_buffer_idx` 0: no data in the file."""

    scalar_type: int
    storage_offset: int
    sizes: list[int]
    dim_order: list[int]
    requires_grad: bool
    layout: int
    data_buffer_idx: int
    allocation_info: AllocationDetails | None
    shape_dynamism: int
    extra_tensor_info: ExtraTensorInfo | None = None


@dataclass
class IntList:
    """Integers, each as the index of a value, so that computed ones can take part."""

    items: list[int]


@dataclass
class DoubleList:
    """Floating point numbers."""

    items: list[float]


@dataclass
class BoolList:
    """Truth values."""

    items: list[bool]


@dataclass
class TensorList:
    """Tensors, each as the index of a value."""

    items: list[int]


@dataclass
class OptionalTensorList:
    """Tensors, each as the index of a value or -1 for none."""

    items: list[int]


KernelTypes = (
    Null
    | Int
    | Bool
    | Double
    | String
    | Tensor
    | IntList
    | DoubleList
    | BoolList
    | TensorList
    | OptionalTensorList
)


@dataclass
class EValue:
    """One slot of a method's value table."""

    val: KernelTypes


@dataclass
class Operator:
    """An operator by name ("aten::add") and overload ("out")."""

    name: str
    overload: str


@dataclass
class KernelCall:
    """Run an operator on values."""

    op_index: int
    args: list[int]


@dataclass
class DelegateCall:
    """Run a delegate: inputs, then outputs."""

    delegate_index: int
    args: list[int]


@dataclass
class MoveCall:
    """Let one value slot show what another holds."""

    move_from: int
    move_to: int


@dataclass
class JumpFalseCall:
    """Go on at another instruction if a condition is false."""

    cond_value_index: int
    destination_instruction: int


@dataclass
class FreeCall:
    """Give up the memory of a tensor."""

    value_index: int


@dataclass
class Instruction:
    """One step of a chain."""

    instr_args: KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass
class Frame:
    """A frame of the Python stack at which an operator of the model was called; `context` is the text of the
    line.
    """

    filename: str
    lineno: int
    name: str
    context: str


@dataclass
class FrameList:
    """The frames of one instruction, outermost first."""

    items: list[Frame]


@dataclass
class Chain:
    """Instructions in the order in which they run; `inputs` and `outputs` are always empty. `stacktrace`: the
    frames of each instruction, or None where they are not kept.
    """

    inputs: list[int]
    outputs: list[int]
    instructions: list[Instruction]
    stacktrace: list[FrameList] | None = None


@dataclass
class CompileSpec:
    """A setting of a delegate."""

    key: str
    value: bytes


@dataclass
class BackendDelegateDataReference:
    """Where a delegate's blob is."""

    location: int
    index: int


@dataclass
class BackendDelegate:
    """One call site of a backend: its name, blob and settings."""

    id: str
    processed: BackendDelegateDataReference
    compile_specs: list[CompileSpec]


@dataclass
class ExecutionPlan:
    """One method."""

    name: str
    container_meta_type: ContainerMetadata
    values: list[EValue]
    inputs: list[int]
    outputs: list[int]
    chains: list[Chain]
    operators: list[Operator]
    delegates: list[BackendDelegate]
    non_const_buffer_sizes: list[int]


@dataclass
class Program:
    """A whole program. Entry 0 of `constant_buffer` and of `mutable_data` is empty and stands for "no
    data".
    """

    version: int = 0
    execution_plan: list[ExecutionPlan] = field(default_factory=list)
    constant_buffer: list[Buffer] = field(default_factory=lambda: [Buffer(b"")])
    mutable_data: list[Buffer] = field(default_factory=lambda: [Buffer(b"")])
    backend_delegate_data: list[BackendDelegateInlineData] = field(default_factory=list)
    named_data: list[NamedData] = field(default_factory=list)
