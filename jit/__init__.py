"""Kernels as Python functions, compiled for the exact CPU, and the thread pool that runs them.

Read in this order: `targets.py` (CPU feature sets), `simd.py` (the language of kernels), one kernel
of `kernels/`, such as `embed.py`, `compile.py` (LLVM and the cache on disk), `tape.py` (a forward
pass as a list of native ops), `pool.py` (the threads that run it).
"""
