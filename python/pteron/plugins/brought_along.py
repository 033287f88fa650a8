"""Shared libraries that a plugin brings along, and whether the system's loader would give it another one.

The loader keeps one library of a name (soname) in a process, whatever the visibility of its symbols: a plugin
linked with a `libpart.so.1` of its own gets the `libpart.so.1` that another one has brought, without a word.
So this is looked up before a plugin is opened. Linux alone: elsewhere there is nothing to look up.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from filecmp import cmp
from mmap import ACCESS_READ, mmap
from pathlib import Path

#: Folders of the system's own libraries, where newer ones serve older users.
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_PROGRAM_HEADER, _ENTRY = struct.Struct("<IIQQQQ"), struct.Struct("<QQ")


@dataclass(frozen=True)
class Linkage:
    """What a library says: its name, those of the libraries that it is linked with, and their folders."""

    soname: str | None
    needed: tuple[str, ...]
    folders: tuple[str, ...]


def refuse_swapped(library: Path) -> None:
    """Looks up whether `library`, or one that it brings along, would run with a library of somebody else.

    Raises:
        OSError: one of the name of a library that it brings along, with other content, is loaded already.
    """
    brought = _brought_by(library)
    if not brought or not Path("/proc/self/maps").exists():
        return
    loaded = list(_loaded())
    if any(_is_same(path, library) for path in loaded):
        return  # nothing is resolved again
    for path in loaded:
        ours = brought.get(linkage(path).soname or "")
        if ours is not None and not _is_same(path, ours) and not cmp(path, ours, shallow=False):
            raise OSError(
                f"{library} brings along {ours.name}, and another library of this name is loaded already: "
                f"{path}; the system's loader keeps one of a name in a process, so the plugin would run with "
                "that one. Give the library a name of its own where the plugin is built (auditwheel repair "
                "does, or patchelf --set-soname before linking), or load the plugins in processes of "
                "their own"
            )


def linkage(library: Path) -> Linkage:
    """Of a 64-bit little-endian ELF library; empty for other files."""
    try:
        with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return _linkage(content)
    except (OSError, struct.error, ValueError):
        return Linkage(None, (), ())


def _linkage(content: mmap) -> Linkage:
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (first,) = struct.Struct("<Q").unpack_from(content, 32)
    size, count = struct.Struct("<HH").unpack_from(content, 54)
    headers = [_PROGRAM_HEADER.unpack_from(content, first + i * size) for i in range(count)]
    entries: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length in headers:
        if kind == _DYNAMIC:
            entries += _ENTRY.iter_unpack(content[offset : offset + length - length % _ENTRY.size])
    by_tag = dict(entries)
    strings = by_tag.get(_STRTAB, 0)
    # Where the table of strings is in the file: the section gives its address.
    (start,) = [h[2] + strings - h[3] for h in headers if h[0] == _LOAD and 0 <= strings - h[3] < h[5]]

    def text(at: int) -> str:
        return content[start + at : content.find(b"\0", start + at)].decode("utf-8", "surrogateescape")

    folders = [folder for tag, at in entries if tag in (_RPATH, _RUNPATH) for folder in text(at).split(":")]
    return Linkage(
        soname=text(by_tag[_SONAME]) if _SONAME in by_tag else None,
        needed=tuple(text(at) for tag, at in entries if tag == _NEEDED),
        folders=tuple(folder for folder in folders if folder),
    )


def _brought_by(library: Path) -> dict[str, Path]:
    """Libraries that `library` is linked with and that lie in folders which it names itself, by name."""
    brought: dict[str, Path] = {}
    waiting = [library]
    while waiting:
        user = waiting.pop()
        said = linkage(user)
        folders = [_expanded(folder, user) for folder in said.folders]
        for name in said.needed:
            found = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if found is not None and name not in brought and not _is_system(found):
                brought[name] = found
                waiting.append(found)
    return brought


def _expanded(folder: str, user: Path) -> Path:
    origin = str(user.resolve().parent)
    return Path(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))


def _loaded() -> Iterator[Path]:
    """Libraries of this process that are not the system's."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    names = dict.fromkeys(line.split(None, 5)[5] for line in lines if line.count("/") and ".so" in line)
    for name in names:
        path = Path(name)
        if path.is_file() and not _is_system(path):
            yield path


def _is_system(path: Path) -> bool:
    folders = (*_SYSTEM, f"{sys.prefix}/lib", f"{sys.base_prefix}/lib")
    parent = path.resolve().parent
    if {"site-packages", "dist-packages"} & set(parent.parts):
        return False
    return str(parent) in folders or str(parent).startswith(tuple(f"{folder}/" for folder in _SYSTEM))


def _is_same(one: Path, other: Path) -> bool:
    return os.path.samefile(one, other)
