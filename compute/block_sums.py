"""Products and sums over keys in blocks, the blocks joined in a binary tree.

Guarantees: the order inside a block is BLAS's, that of the blocks is a tree, so that a sum's error does not depend on
what BLAS does inside ((P2) of compute/enclosure.md). NumPy and CuPy alike.
Does not: bound anything; the tiers do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compute.arrays import Namespace, home
from compute.heads import F64
from compute.kernels.blas import column_blocks


def tree_sums(xp: Namespace, full: F64, first: int, last: int, block: int) -> F64:
    """Row sums: blocks in any order (a matrix-vector product with ones), blocks joined in a binary tree."""
    if last <= first:
        return xp.zeros(len(full))
    sums = xp.matmul(full.reshape(-1, block), xp.ones(block)).reshape(len(full), -1)[:, first:last]
    return tree(xp.ascontiguousarray(sums.T))


def tree(x: Any) -> Any:
    """Sum over the first axis in a binary tree; overwrites x."""
    while x.shape[0] > 1:
        half = (x.shape[0] + 1) // 2
        x[: x.shape[0] - half] += x[half:]
        x = x[:half]
    return x[0]


def block_product(full: Any, blocks: Any, first: int, last: int) -> Any:
    """(r, padded) times (blocks, block, c): each block's product by BLAS, joined in a tree."""
    xp, block = home(full), blocks.shape[1]
    if last - first <= 0:
        return xp.zeros((len(full), blocks.shape[2]), dtype=full.dtype)
    used = full[:, first * block : last * block]
    if last - first == 1:
        return used @ blocks[first]
    parts = None if xp is np else column_blocks(xp, full, blocks, first, last)
    if parts is not None:
        return tree(parts)
    return tree(xp.matmul(used.reshape(len(full), last - first, block).transpose(1, 0, 2), blocks[first:last]))
