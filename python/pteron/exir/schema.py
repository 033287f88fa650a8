"""The program file as Python objects: what the emitter makes and the native writer reads.

Names and meaning follow the file format; indices of values, buffers and delegates are positions in the
lists of the object that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class ScalarType(IntEnum):
    """Element types by number."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX32 = 8
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4x2 = 16
    QUINT2x4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29


class DataLocation(IntEnum):
    """`BackendDelegateDataReference.location`: an index into `Program.backend_delegate_data`, or of a
    segment.
    """

    INLINE = 0
    SEGMENT = 1


class TensorShapeDynamism(IntEnum):
    """`Tensor.shape_dynamism`: the shape never changes, sizes are upper bounds, or there is no bound."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


class TensorDataLocation(IntEnum):
    """`ExtraTensorInfo.location`: data in the program file, or in a data file under the qualified name."""

    SEGMENT = 0
    EXTERNAL = 1


class DeviceType(IntEnum):
    """Where memory is."""

    CPU = 0
    CUDA = 1


INLINE = DataLocation.INLINE
STATIC = TensorShapeDynamism.STATIC
DYNAMIC_BOUND = TensorShapeDynamism.DYNAMIC_BOUND
IN_SEGMENT = TensorDataLocation.SEGMENT
EXTERNAL = TensorDataLocation.EXTERNAL


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

    scalar_type: ScalarType
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
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0


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


InstructionArguments = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass
class Instruction:
    """One step of a chain."""

    instr_args: InstructionArguments


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
    """A named setting of a backend.

    Attributes:
        key: name of the setting, such as ``"max_value"``.
        value: its bytes; only the backend knows what they mean. They are written to the file unchanged and
            handed to the backend's ``init`` at load.
    """

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
class NonConstBufferDevice:
    """The device of one planned memory, by its index in `non_const_buffer_sizes`."""

    buffer_idx: int = 0
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0


@dataclass
class DataSegment:
    """Bytes behind the program table: `offset` from where segments begin."""

    offset: int
    size: int


@dataclass
class SubsegmentOffsets:
    """Where in one segment the pieces that it holds begin."""

    segment_index: int
    offsets: list[int]


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
    non_const_buffer_device: list[NonConstBufferDevice] | None = None


@dataclass
class Program:
    """A whole program. Entry 0 of `constant_buffer` and of `mutable_data` is empty and stands for "no
    data". The writer makes segments of what is stored here; `segments`, `constant_segment` and
    `mutable_data_segments` are filled in where a file is read.
    """

    version: int = 0
    execution_plan: list[ExecutionPlan] = field(default_factory=list)
    constant_buffer: list[Buffer] = field(default_factory=lambda: [Buffer(b"")])
    mutable_data: list[Buffer] = field(default_factory=lambda: [Buffer(b"")])
    backend_delegate_data: list[BackendDelegateInlineData] = field(default_factory=list)
    named_data: list[NamedData] = field(default_factory=list)
    segments: list[DataSegment] = field(default_factory=list)
    constant_segment: SubsegmentOffsets = field(default_factory=lambda: SubsegmentOffsets(0, []))
    mutable_data_segments: list[SubsegmentOffsets] | None = None
