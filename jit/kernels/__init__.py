"""Compute kernels, one family in each file.

Start with `embed.py` (short), then `gemm.py` (products of quantized weights and int8 rows),
`attention.py` (online softmax over KV cache pages) and `panels.py` (how weights lie in memory).
"""
