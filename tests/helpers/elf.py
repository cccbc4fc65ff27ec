"""Read the symbol table of an ELF object file."""

from __future__ import annotations

import struct

SYMTAB = 2


def undefined_symbols(data: bytes) -> list[str]:
    """Names that the object wants from elsewhere; nothing for formats other than 64-bit ELF."""
    if data[:5] != b"\x7fELF\x02":
        return []
    (sections_at,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + n * size) for n in range(count)
    ]
    names = []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != SYMTAB:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + length, entry):
            name_at, _, _, section = struct.unpack_from("<IBBH", data, at)
            if section == 0 and name_at:
                end = data.index(b"\0", strings + name_at)
                names.append(data[strings + name_at : end].decode())
    return names
