"""e^x by the table of `compute.table_exp`, on a GPU or in the emulator: one pass over the array.

Guarantees: for x ≤ 0 the bits of `compute.table_exp.exp64`, so assumption A1 with E = 1 is the theorem (T1) to (T8) of
compute/enclosure.md here as well: CUDA's own exp states no bound. −inf gives 0, NaN gives NaN, 0 gives 1.
Does not: take positive arguments (they give NaN, never a wrong number), or dtypes other than float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from compute import table_exp
from compute.errors import InputError
from compute.kernels.attention import NULL, Backend

THREADS = 256
EACH = 4  # entries of a thread (EXP_EACH of table_exp.cuh)
BLOCKS = 1 << 16


def exp64(backend: Backend, x: Any, out: Any = None) -> Any:
    """e^x for x ≤ 0, any shape, into `out` (which may be x itself) or a new array.

    Contiguous arrays, and matrices whose rows are contiguous, are read where they lie; others are copied first.
    Raises InputError for a dtype other than float64, or an `out` of another shape.
    """
    xp = backend.xp
    _check("x", x)
    if out is None:
        out = xp.empty(x.shape, np.float64)
    _check("out", out)
    if out.shape != x.shape:
        raise InputError(f"out has shape {out.shape}: expected that of x, {x.shape}")
    source = _rows(x)
    if source is None:
        x = xp.ascontiguousarray(x)
        source = _rows(x)
    target = _rows(out)
    if target is None or source is None or target[1:] != source[1:]:
        # One of the two is a matrix with gaps and the other isn't: rows as they are in the shape.
        source, target = _matrix(x), _matrix(out)
    if source is None or target is None:
        out[...] = exp64(backend, xp.ascontiguousarray(x))
        return out
    _launch(backend, x, source[0], out, target[0], NULL, *source[1:])
    return out


def shifted_exp64(backend: Backend, scores: Any, top: Any) -> Any:
    """scores[i, j] ← e^(scores[i, j] − top[i]) in place, the difference rounded once; returns scores.

    scores (n, m), rows contiguous but for a stride ≥ m; top (n,), at least the row's largest score, both float64. A
    score of −inf gives 0; −inf − (−inf) is NaN: the top of a row without a key must be finite.
    Raises InputError for other shapes, dtypes or strides.
    """
    _check("scores", scores)
    _check("top", top)
    if scores.ndim != 2 or top.shape != scores.shape[:1]:
        raise InputError(f"scores {scores.shape} and top {top.shape}: expected (n, m) and (n,)")
    rows = _matrix(scores)
    if rows is None:
        raise InputError(
            f"scores has strides {scores.strides}: expected contiguous rows, as a slice of a padded buffer"
        )
    _launch(backend, scores, rows[0], scores, rows[0], backend.xp.ascontiguousarray(top), *rows[1:])
    return scores


def _check(name: str, array: Any) -> None:
    if str(getattr(array, "dtype", None)) != "float64":
        raise InputError(f"{name} has dtype {getattr(array, 'dtype', type(array).__name__)}: expected float64")


def _rows(a: Any) -> tuple[int, int, int] | None:
    """(stride, rows, columns) in entries: one row where the array is contiguous; None where it can't be read so."""
    if a.flags.c_contiguous:
        return a.size, 1, a.size
    return _matrix(a)


def _matrix(a: Any) -> tuple[int, int, int] | None:
    """The same with the rows of a matrix; a contiguous array of another rank is a matrix of its last axis."""
    if a.flags.c_contiguous and a.ndim != 2:
        columns = a.shape[-1] if a.ndim else 1
        return columns, a.size // max(columns, 1), columns
    if a.ndim != 2:
        return None
    (n, m), (down, right) = a.shape, a.strides
    tight = m <= 1 or right == 8
    apart = n <= 1 or (down % 8 == 0 and down >= 8 * m)
    return (down // 8, n, m) if tight and apart else None


def _launch(
    backend: Backend, x: Any, x_stride: int, out: Any, out_stride: int, top: Any, rows: int, columns: int
) -> None:
    if not rows * columns:
        return
    warps = -(-columns // (32 * EACH))
    threads = min(THREADS, 32 * warps)
    pieces = rows * -(-columns // (threads * EACH))
    function = backend.function("table_exp", "float64", "table_exp", 64, 64, 0)
    sizes = (np.int64(rows), np.int64(columns))
    arguments = (x, np.int64(x_stride), out, np.int64(out_stride), top, _table(backend), *sizes)
    function((min(pieces, BLOCKS),), (threads,), arguments)


@cache
def _table(backend: Backend) -> Any:
    """(153601, 2): heads beside tails, once a backend and so once a device."""
    return backend.keep(np.stack(table_exp.table(), axis=1))
