"""Splits a GGUF file into parts with the `gguf` package's own writer."""

from __future__ import annotations

from pathlib import Path

import gguf


def split_gguf(source: Path, folder: Path, name: str, *, tensors: int) -> list[Path]:
    """Write `source` as parts of at most `tensors` tensors each; their paths in order."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    assert architecture is not None
    writer = gguf.GGUFWriter(
        folder / f"{name}.gguf", architecture.contents(), split_max_tensors=tensors
    )
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{name}-*-of-*.gguf"))
