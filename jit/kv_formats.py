"""The names of the KV cache's formats, for those who need no kernels: see `kernels/kvcache.py`."""

from typing import Literal, get_args

KVFormat = Literal["bf16", "k16v8", "q8", "f32"]
KV_FORMATS: tuple[KVFormat, ...] = get_args(KVFormat)
"""The default one first."""
