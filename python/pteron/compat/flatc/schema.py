"""Schema files (`.fbs`) as objects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Name → (bytes, code of the `struct` module).
SCALARS = {
    "bool": (1, "?"),
    "byte": (1, "b"),
    "int8": (1, "b"),
    "ubyte": (1, "B"),
    "uint8": (1, "B"),
    "short": (2, "h"),
    "int16": (2, "h"),
    "ushort": (2, "H"),
    "uint16": (2, "H"),
    "int": (4, "i"),
    "int32": (4, "i"),
    "uint": (4, "I"),
    "uint32": (4, "I"),
    "float": (4, "f"),
    "float32": (4, "f"),
    "long": (8, "q"),
    "int64": (8, "q"),
    "ulong": (8, "Q"),
    "uint64": (8, "Q"),
    "double": (8, "d"),
    "float64": (8, "d"),
}
OFFSET_SIZE = 4


class SchemaError(ValueError):
    """A schema or its data is not what this reader understands."""


@dataclass
class Enum:
    """Names of numbers; of a union also the name of each member's table."""

    name: str
    base: str
    values: dict[str, int] = field(default_factory=dict)
    members: dict[str, Type] = field(default_factory=dict)
    is_union: bool = False
    is_flags: bool = False

    def name_of(self, number: int) -> str | None:
        """The name of a number, None where it has none."""
        return next((name for name, value in self.values.items() if value == number), None)


@dataclass
class Struct:
    """A table, or (`is_fixed`) a struct, which lies in line; `size` and `alignment` in bytes are a
    struct's.
    """

    name: str
    fields: list[Field] = field(default_factory=list)
    is_fixed: bool = False
    size: int = 0
    alignment: int = 1

    def named(self, name: str) -> Field | None:
        """The field of a name."""
        return next((each for each in self.fields if each.name == name), None)


@dataclass
class Type:
    """`scalar`, an `enum` over one, "string", a `struct`, a union, or a vector of one of these (`item`)."""

    scalar: str | None = None
    enum: Enum | None = None
    struct: Struct | None = None
    union: Enum | None = None
    item: Type | None = None
    is_string: bool = False

    @property
    def is_inline_struct(self) -> bool:
        """Whether the value lies in line, as a struct."""
        return self.struct is not None and self.struct.is_fixed

    @property
    def inline_size(self) -> int:
        """Bytes in a vector or struct."""
        if self.scalar is not None:
            return SCALARS[self.scalar][0]
        return self.struct.size if self.struct is not None and self.struct.is_fixed else OFFSET_SIZE

    @property
    def inline_alignment(self) -> int:
        """Alignment in bytes."""
        if self.struct is not None and self.struct.is_fixed:
            return self.struct.alignment
        return self.inline_size


@dataclass
class Field:
    """A field. `slot`: its number in the table; `offset`: bytes from the start of a struct; `padding`: zero
    bytes behind it there. `default`: of a scalar, None where absence has a meaning of its own.
    """

    name: str
    type: Type
    default: Any = 0
    slot: int = 0
    offset: int = 0
    padding: int = 0
    force_align: int | None = None
    is_deprecated: bool = False
    is_required: bool = False


@dataclass
class Schema:
    """What a schema file and those that it includes declare."""

    structs: dict[str, Struct] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)
    root: Struct | None = None
    identifier: bytes | None = None
    extension: str = "bin"


_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\])*")|(?P<name>[A-Za-z_][\w.]*)"""
    r"""|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|\d*\.?\d+(?:[eE][-+]?\d+)?|inf|nan))|(?P<mark>[{}()\[\]:;,=])""",
    re.DOTALL,
)


def read_schema(path: str | Path) -> Schema:
    """The schema in a file; files that it includes are looked for beside it.

    Raises:
        SchemaError: the text is not understood.
    """
    reader = _Reader()
    reader.read(Path(path))
    reader.resolve()
    return reader.schema


class _Reader:
    def __init__(self) -> None:
        self.schema = Schema()
        self._seen: set[Path] = set()
        self._tokens: list[str] = []
        self._at = 0
        self._path = Path()
        self._types: list[tuple[Any, str, str, bool]] = []  # (object, attribute, name, is vector)
        self._root: str | None = None

    def read(self, path: Path) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        outer = (self._tokens, self._at, self._path)
        self._tokens, self._at, self._path = _tokens(path), 0, path
        while self._at < len(self._tokens):
            self._declaration()
        self._tokens, self._at, self._path = outer

    def _declaration(self) -> None:
        word = self._next()
        if word == "include":
            self.read(self._path.parent / _text(self._next()))
        elif word == "namespace":
            while self._peek() != ";":
                self._next()
        elif word == "attribute":
            self._next()
        elif word == "file_extension":
            self.schema.extension = _text(self._next())
        elif word == "file_identifier":
            self.schema.identifier = _text(self._next()).encode()
        elif word == "root_type":
            self._root = self._next()
        elif word in ("table", "struct"):
            self._struct(is_fixed=word == "struct")
            return
        elif word in ("enum", "union"):
            self._enum(is_union=word == "union")
            return
        else:
            raise SchemaError(f"{self._path.name}: {word!r} is not understood here")
        self._take(";")

    def _struct(self, *, is_fixed: bool) -> None:
        made = Struct(self._next(), is_fixed=is_fixed)
        self.schema.structs[made.name] = made
        attributes = self._attributes()
        made.alignment = int(attributes.get("force_align", 1))
        self._take("{")
        while self._peek() != "}":
            self._field(made)
        self._take("}")

    def _field(self, owner: Struct) -> None:
        made = Field(self._next(), Type())
        self._take(":")
        is_vector = self._skip("[")
        name = self._next()
        if is_vector:
            if self._peek() == ":":
                raise SchemaError(f"{owner.name}.{made.name}: arrays of fixed length are not supported")
            self._take("]")
        default = self._next() if self._skip("=") else None
        attributes = self._attributes()
        self._take(";")
        made.default = default
        made.is_deprecated = "deprecated" in attributes
        made.is_required = "required" in attributes
        if "force_align" in attributes:
            made.force_align = int(attributes["force_align"])
        if "id" in attributes:
            made.slot = int(attributes["id"])
        else:
            made.slot = -1
        owner.fields.append(made)
        self._types.append((made, "type", name, is_vector))

    def _enum(self, *, is_union: bool) -> None:
        made = Enum(self._next(), "ubyte", is_union=is_union)
        self.schema.enums[made.name] = made
        if self._skip(":"):
            made.base = self._next()
        made.is_flags = "bit_flags" in self._attributes()
        self._take("{")
        if is_union:
            made.values["NONE"] = 0
        following = 1 if is_union else 0
        while self._peek() != "}":
            name = self._next()
            target = name
            if is_union and self._skip(":"):
                target = self._next()
            if self._skip("="):
                following = int(self._next(), 0)
            value = 1 << following if made.is_flags else following
            name = name.rpartition(".")[2]
            made.values[name] = value
            following += 1
            if is_union:
                self._types.append((made.members, name, target, False))
            self._attributes()
            if not self._skip(","):
                break
        self._take("}")

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._skip("("):
            while not self._skip(")"):
                name = self._next()
                found[name] = self._next() if self._skip(":") else ""
                self._skip(",")
        return found

    def resolve(self) -> None:
        """Names to types, once everything is declared."""
        for owner, attribute, name, is_vector in self._types:
            found = self._type(name)
            if is_vector:
                found = Type(item=found)
            if isinstance(owner, dict):
                owner[attribute] = found
            else:
                setattr(owner, attribute, found)
        for struct in self.schema.structs.values():
            for each in struct.fields:
                each.default = _default(each)
        for struct in self.schema.structs.values():
            if struct.is_fixed:
                _lay_out(struct)
            else:
                _number(struct)
        if self._root is not None:
            self.schema.root = self.schema.structs[self._root.rpartition(".")[2]]

    def _type(self, name: str) -> Type:
        if name in SCALARS:
            return Type(scalar=name)
        if name == "string":
            return Type(is_string=True)
        name = name.rpartition(".")[2]
        if name in self.schema.structs:
            return Type(struct=self.schema.structs[name])
        enum = self.schema.enums.get(name)
        if enum is None:
            raise SchemaError(f"{name!r} is not declared")
        return Type(union=enum) if enum.is_union else Type(scalar=enum.base, enum=enum)

    def _peek(self) -> str:
        if self._at >= len(self._tokens):
            raise SchemaError(f"{self._path.name} ends early")
        return self._tokens[self._at]

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _skip(self, mark: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == mark:
            self._at += 1
            return True
        return False

    def _take(self, mark: str) -> None:
        token = self._next()
        if token != mark:
            raise SchemaError(f"{self._path.name}: expected {mark!r}, found {token!r}")


def _tokens(path: Path) -> list[str]:
    text, at, found = path.read_text(), 0, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaError(f"{path.name}: {text[at : at + 20]!r} is not understood")
        if match.lastgroup is not None:
            found.append(match[0])
        at = match.end()
    return found


def _text(token: str) -> str:
    return token[1:-1]


def _default(made: Field) -> Any:
    written, kind = made.default, made.type
    if kind.scalar is None:
        return None
    if written == "null":
        return None
    if kind.enum is not None:
        if written is None:
            return 0
        name = written.rpartition(".")[2]
        return kind.enum.values[name] if name in kind.enum.values else int(written, 0)
    if kind.scalar == "bool":
        return written in ("true", "1")
    if SCALARS[kind.scalar][1] in "fd":
        return float(written or 0)
    return int(written or "0", 0)


def _number(table: Struct) -> None:
    """Slots in the order of declaration; a union takes one for its type before its own."""
    given = [each for each in table.fields if each.slot >= 0]
    if given and len(given) != len(table.fields):
        raise SchemaError(f"{table.name}: some fields have an id and some have none")
    slot = 0
    numbered: list[Field] = []
    for each in sorted(table.fields, key=lambda each: each.slot) if given else table.fields:
        union = each.type.union
        if union is not None:
            kind = Type(scalar=union.base, enum=union)
            numbered.append(Field(f"{each.name}_type", kind, default=0, slot=slot))
            slot += 1
        elif each.type.item is not None and each.type.item.union is not None:
            raise SchemaError(f"{table.name}.{each.name}: vectors of unions are not supported")
        each.slot = slot
        slot += 1
        numbered.append(each)
    table.fields = numbered


def _lay_out(struct: Struct) -> None:
    if struct.size:
        return
    offset = 0
    for position, each in enumerate(struct.fields):
        if each.type.struct is not None:
            _lay_out(each.type.struct)
        alignment = each.type.inline_alignment
        gap = -offset % alignment
        if position:
            struct.fields[position - 1].padding = gap
        offset += gap
        each.offset, each.slot = offset, position
        offset += each.type.inline_size
        struct.alignment = max(struct.alignment, alignment)
    gap = -offset % struct.alignment
    if struct.fields:
        struct.fields[-1].padding = gap
    struct.size = offset + gap
