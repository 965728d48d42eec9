"""A product that CuPy's matmul would copy for: blocks of columns of a matrix, each times a matrix of its own.

Guarantees: cuBLAS reads the weights where they lie (one strided batch), in float64, on the current stream; a product is
a sum of products in some order, which is all that assumption A3 of compute/enclosure.md says.
Does not: run on NumPy arrays, or where CuPy has no such binding; then it returns None, and a matmul does.
"""

from __future__ import annotations

import numpy as np

from compute.arrays import Array, Namespace

_NO = 0  # CUBLAS_OP_N
_ONE, _ZERO = np.array(1.0), np.array(0.0)


def batches(xp: Namespace) -> bool:
    """Whether this library has the binding."""
    try:
        return hasattr(xp.cuda.cublas, "dgemmStridedBatched")
    except (AttributeError, ImportError):  # NumPy; CuPy without cuBLAS
        return False


def column_blocks(xp: Namespace, full: Array, blocks: Array, first: int, last: int) -> Array | None:
    """(last − first, r, c): full[:, j·b : (j+1)·b] @ blocks[j] for first ≤ j < last.

    full (r, at least last·b), float64, contiguous rows; blocks (at least last, b, c), float64, contiguous.
    """
    if not batches(xp):
        return None
    (r, width), (_, b, c) = full.shape, blocks.shape
    down, right = full.strides
    tight = right == 8 and down % 8 == 0 and blocks.flags.c_contiguous
    if not tight or any(str(a.dtype) != "float64" for a in (full, blocks)) or last * b > width or not r * c * b:
        return None
    out = xp.empty((last - first, r, c))
    # cuBLAS counts by columns: what it is given are the transposes, outᵀ = blocksᵀ · fullᵀ, without moving anything.
    xp.cuda.cublas.dgemmStridedBatched(
        xp.cuda.device.get_cublas_handle(), _NO, _NO, c, r, b, _ONE.ctypes.data,
        blocks.data.ptr + 8 * first * b * c, c, b * c,
        full.data.ptr + 8 * first * b, down // 8, b,
        _ZERO.ctypes.data, out.data.ptr, c, r * c, last - first,
    )  # fmt: skip
    return out
