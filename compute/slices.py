"""Matrices cut into slices of a few bits, whose products BLAS forms without error in any order.

Guarantees: a product of first slices is exact; sums, products and quotients of pairs (unevaluated sums of two floats)
err by what the labels of compute/enclosure.md in brackets say. NumPy and CuPy alike.
Does not: bound the products of the other slices; each caller does.
"""

from __future__ import annotations

import math
from typing import Any

from compute.arrays import Array, Namespace, namespace
from compute.outward import ETA, U, largest, norm_up
from compute.table_exp import two_product, two_sum

BLOCK = 128  # keys whose products are summed by one call of BLAS
Pair = tuple[Array, Array]


def bits_of(count: int) -> int:
    """Least b with count ≤ 2^b."""
    return math.ceil(math.log2(count)) if count > 1 else 0


def grid_at(xp: Namespace, exponent: Any) -> Any:
    """(F2) 1.5·2^(exponent + 52): adding and subtracting it rounds to multiples of 2^exponent. An int, or an array."""
    if isinstance(exponent, int):
        return 1.5 * 2.0 ** (exponent + 52)
    return xp.ldexp(xp.full(exponent.shape, 1.5), exponent + 52)


def split_at(x: Array, exponent: Any) -> Array:
    """(F2) x rounded to multiples of 2^exponent; x minus it is exact."""
    grid = grid_at(namespace(x=x), exponent)
    return (x + grid) - grid


class Columns:
    """A matrix (m, c) whose columns are brought to size 1 by powers of two, in blocks of rows and in two slices.

    first, rest, whole: (count, block, c), whole = first + rest exactly. bits: a factor whose entries are multiples of
    2^(−bits), at most 1, has an exact product with a block of `first`. norm, top: 2-norms and largest entries of the
    columns; rest_norm, rest_top: of the second slice.
    """

    def __init__(self, x: Array) -> None:
        xp, m = namespace(x=x), len(x)
        self.exponent = xp.frexp(largest(abs(x), 0))[1]
        x = xp.ldexp(x, -self.exponent)  # (F4) what underflows here is below ETA of a column of size 1
        self.block = min(BLOCK, max(m, 1))
        self.count = -(-max(m, 1) // self.block)
        total = 52 - bits_of(self.block)
        self.bits, own = (total + 1) // 2, total // 2
        first = split_at(x, -own)
        rest = x - first
        self.scaled = x
        self.first, self.whole, self.rest = (self._pad(xp, part) for part in (first, x, rest))
        self.norm, self.rest_norm = norm_up(x, 0), norm_up(rest, 0)
        self.top, self.rest_top = largest(abs(x), 0), largest(abs(rest), 0)
        self.levels = bits_of(2 * self.count) + 1

    def _pad(self, xp: Namespace, x: Array) -> Array:
        missing = self.count * self.block - len(x)
        full = xp.concatenate([x, xp.zeros((missing, x.shape[1]))]) if missing else xp.ascontiguousarray(x)
        return full.reshape(self.count, self.block, x.shape[1])

    def exact(self, factor: Array) -> Pair:
        """(F6) factor (r, padded) times the first slice: blocks without error, joined as a pair."""
        blocks = factor.reshape(len(factor), self.count, self.block).transpose(1, 0, 2)
        return pair_tree(namespace(x=factor).matmul(blocks, self.first))


def pair_tree(x: Array) -> Pair:
    """(F6) sum over the first axis: heads in a tree without error, and the sum of what was rounded off."""
    xp = namespace(x=x)
    lost = xp.zeros(x.shape[1:])
    while x.shape[0] > 1:
        half = (x.shape[0] + 1) // 2
        pairs = x.shape[0] - half
        s, e = two_sum(x[:pairs], x[half:])
        lost = lost + e.sum(axis=0)
        x = xp.concatenate([s, x[pairs:half]]) if half > pairs else s
    return x[0], lost


def quotient(top: Pair, bottom: Pair) -> tuple[Array, Array, Array]:
    """(F9) (high, low, error) of (nh + nl)/(lh + ll) for lh > 0 and |ll| ≤ u·lh; high is the sum's nearest float."""
    (nh, nl), (lh, ll) = top, bottom
    q = nh / lh
    p, pe = two_product(q, lh)
    rest = ((nh - p) - pe) + (nl - q * ll)
    mid, tail = two_sum(q, rest / lh)
    sized = abs(nh - p) + abs(pe) + abs(nl) + abs(q * ll)
    return mid, tail, (8 * U * sized + 4 * U * abs(rest)) / lh + 4 * ETA
