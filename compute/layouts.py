"""Other layouts of the same call: heads last, packed sequences, paged keys and values.

Guarantees: each layout is read as the canonical one (…, heads, length, channels) by views (a paged sequence's own
pages are copied together), so every Spec, mask rule and algorithm means the same in each.
Does not: let a sequence see another, whatever a mask says.

Masks, biases and dropout masks (the pairwise arrays) come in either of two forms, with compute.attention's kinds:
- one array in the layout's own coordinates, broadcast like any other. Packed: against (h, t_q, t_k), the tokens of q
  and of k as they lie; entries between two sequences are never read. Paged: against (b, h, n, most·page), where the
  last axis counts a sequence's own keys from 0 (its positions, not the slots of its pages); entries past its keys are
  never read. An axis of 1 stands for all: a bias (h, 1, t_k) over packed keys, a mask (b, 1, 1, most·page).
- a list of b arrays, one a sequence (None: none for it), each broadcast against (h, n_s, m_s), its own lengths.
FlashAttention's packed ("varlen") and paged calls take slopes of shape (h,) or (b, h), and so do these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compute.arrays import Array, Namespace
from compute.calls import Algorithm, Gradients, attention, attention_backward
from compute.checks import flag, required
from compute.errors import InputError
from compute.meaning import same_library
from compute.spec import Spec

Pairs = Array | list[Array] | tuple[Array, ...] | None  # a mask or bias: one array, or one a sequence


def swap_heads(x: Array) -> Array:
    """(…, n, h, d) as (…, h, n, d), and the other way round: a view."""
    required(x=x)
    if x.ndim < 3:
        raise InputError(f"array has shape {tuple(x.shape)}: expected at least (n, h, d)")
    return x.swapaxes(-2, -3)


def packed_attention(
    q: Array,
    k: Array,
    v: Array,
    q_starts: Array,
    k_starts: Array,
    spec: Spec = Spec(),
    *,
    mask: Pairs = None,
    bias: Pairs = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Pairs = None,
    return_lse: bool = False,
    algorithm: Algorithm = "auto",
    threads: int | None = None,
) -> Any:
    """Attention within each of b sequences that lie one behind the other ("thd").

    q (t_q, h, d_k), k (t_k, h_kv, d_k), v (t_k, h_kv, d_v); q_starts, k_starts (b + 1,): cumulative lengths, from 0 to
    t_q and t_k. mask, bias, dropout_mask: against (h, t_q, t_k), or a list, one a sequence (see the module);
    alibi_slopes (h,) or (b, h). Returns (t_q, h, d_v), and lse (t_q, h).

    Raises InputError for starts that fall, or don't begin at 0 and end at the array's length, and for arrays that fit
    neither form.

    >>> q = k = v = np.ones((3, 1, 2)); starts = np.array([0, 1, 3])
    >>> packed_attention(q, k, v, starts, starts, mask=[np.ones((1, 1), bool), np.eye(2, dtype=bool)])[2, 0].tolist()
    [1.0, 1.0]
    """
    xp = required(q=q, k=k, v=v)
    flag("return_lse", return_lse)
    spans = _spans(xp, q, k, v, q_starts, k_starts)
    full = (q.shape[1], q.shape[0], k.shape[0])
    pairs = {
        name: _pairs(xp, name, x, spans, full)
        for name, x in (("mask", mask), ("bias", bias), ("dropout_mask", dropout_mask))
    }
    slopes = _slopes(alibi_slopes, len(spans))
    out = xp.empty((q.shape[0], q.shape[1], v.shape[-1]), dtype=q.dtype)
    lse = xp.empty(q.shape[:2], dtype=np.float64 if str(q.dtype) == "float64" else np.float32)
    for i, (rows, cols) in enumerate(spans):
        o, l = attention(
            swap_heads(q[rows]),
            swap_heads(k[cols]),
            swap_heads(v[cols]),
            spec,
            sink=sink,
            alibi_slopes=slopes[i],
            return_lse=True,
            algorithm=algorithm,
            threads=threads,
            **{name: x[i] for name, x in pairs.items()},
        )
        out[rows], lse[rows] = swap_heads(o), l.swapaxes(0, 1)
    return (out, lse) if return_lse else out


def packed_attention_backward(
    grad_output: Array,
    q: Array,
    k: Array,
    v: Array,
    q_starts: Array,
    k_starts: Array,
    spec: Spec = Spec(),
    *,
    mask: Pairs = None,
    bias: Pairs = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Pairs = None,
    grad_lse: Array | None = None,
    algorithm: Algorithm = "auto",
    threads: int | None = None,
) -> Gradients:
    """Gradients of `packed_attention`, in its layout; each sequence's are those of that sequence alone.

    dbias is as bias: one array of its shape (0 where no sequence reads it), or a list of one a sequence.
    """
    xp = required(q=q, k=k, v=v, grad_output=grad_output)
    spans = _spans(xp, q, k, v, q_starts, k_starts)
    want = (*q.shape[:2], v.shape[-1])
    if tuple(grad_output.shape) != want:
        raise InputError(f"grad_output has shape {tuple(grad_output.shape)}: expected {want}")
    if grad_lse is not None:
        same_library(xp, "grad_lse", grad_lse)
        if tuple(grad_lse.shape) != tuple(q.shape[:2]):
            raise InputError(f"grad_lse has shape {tuple(grad_lse.shape)}: expected {tuple(q.shape[:2])}")
    full = (q.shape[1], q.shape[0], k.shape[0])
    pairs = {
        name: _pairs(xp, name, x, spans, full)
        for name, x in (("mask", mask), ("bias", bias), ("dropout_mask", dropout_mask))
    }
    slopes = _slopes(alibi_slopes, len(spans))
    dq, dk, dv = (xp.empty_like(x) for x in (q, k, v))
    dsink, dscale, dbias = None, 0.0, _BiasGradient(xp, bias)
    for i, (rows, cols) in enumerate(spans):
        g = attention_backward(
            swap_heads(grad_output[rows]),
            swap_heads(q[rows]),
            swap_heads(k[cols]),
            swap_heads(v[cols]),
            spec,
            sink=sink,
            alibi_slopes=slopes[i],
            grad_lse=None if grad_lse is None else grad_lse[rows].swapaxes(0, 1),
            algorithm=algorithm,
            threads=threads,
            **{name: x[i] for name, x in pairs.items()},
        )
        dbias.add(g.dbias, rows, cols)
        dq[rows], dk[cols], dv[cols] = swap_heads(g.dq), swap_heads(g.dk), swap_heads(g.dv)
        dscale += g.dscale
        dsink = g.dsink if dsink is None else dsink + g.dsink
    if sink is not None and dsink is None:
        dsink = xp.zeros_like(xp.asarray(sink))
    return Gradients(dq, dk, dv, dbias.result(), dsink, dscale)


# -- arrays of pairs ------------------------------------------------------------------------------------------------


def _pairs(xp: Namespace, name: str, x: Pairs, spans: list[tuple[slice, slice]], full: tuple[int, ...]) -> list[Array]:
    """Each sequence's part of a mask or bias, with its axes of 1 as they are; None for each where there is none."""
    if x is None:
        return [None] * len(spans)
    if isinstance(x, (list, tuple)):
        if len(x) != len(spans):
            raise InputError(f"{name} is a list of {len(x)}: expected one array a sequence, {len(spans)}")
        for i, part in enumerate(x):
            same_library(xp, f"{name}[{i}]", part)
        return list(x)
    same_library(xp, name, x)
    try:
        xp.broadcast_to(x, full)
    except ValueError:
        raise InputError(
            f"{name} has shape {tuple(x.shape)}: expected one that broadcasts against (h, t_q, t_k) = {full}, or a "
            "list of one array a sequence"
        ) from None
    return [x[_place(x, rows, cols)] for rows, cols in spans]


def _place(x: Array, rows: slice, cols: slice) -> tuple[Any, ...]:
    """Index of a block in an array whose axes of 1 stand for all."""
    ends = [at if size != 1 else slice(None) for at, size in zip((rows, cols), ((1, 1) + x.shape)[-2:], strict=True)]
    return (..., *ends[max(0, 2 - x.ndim) :])


def _slopes(slopes: Array | None, count: int) -> list[Array]:
    """Slopes of each sequence: (h,) serve all, (b, h) are one row a sequence."""
    if getattr(slopes, "ndim", 1) != 2:
        return [slopes] * count
    assert slopes is not None
    if len(slopes) != count:
        raise InputError(
            f"alibi_slopes has shape {tuple(slopes.shape)}: expected (h,) or ({count}, h), a row a sequence"
        )
    return list(slopes)


class _BiasGradient:
    """dbias in the bias's own form: one array, added up in float64, or a list of one a sequence."""

    def __init__(self, xp: Namespace, bias: Pairs) -> None:
        self.bias = bias
        self.parts: list[Array] = []
        whole = None if bias is None or isinstance(bias, (list, tuple)) else bias
        self.dtype = None if whole is None else whole.dtype
        self.total: Any = None if whole is None else xp.zeros(whole.shape)

    def add(self, part: Array | None, rows: slice, cols: slice) -> None:
        if self.total is None:
            self.parts.append(part)
        else:
            self.total[_place(self.total, rows, cols)] += part

    def result(self) -> Any:
        if self.bias is None:
            return None
        return self.parts if self.total is None else self.total.astype(self.dtype)


def _spans(xp: Namespace, q: Array, k: Array, v: Array, q_starts: Array, k_starts: Array) -> list[tuple[slice, slice]]:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3:
            raise InputError(f"{name} has shape {tuple(x.shape)}: expected (tokens, heads, channels)")
    rows, cols = _starts(xp, "q_starts", q_starts, q.shape[0]), _starts(xp, "k_starts", k_starts, k.shape[0])
    if len(rows) != len(cols):
        raise InputError(f"q_starts has {len(rows)} entries, k_starts {len(cols)}: expected the same number")
    return [(slice(a, b), slice(c, d)) for a, b, c, d in zip(rows[:-1], rows[1:], cols[:-1], cols[1:], strict=True)]


def _host(xp: Namespace, name: str, x: Array, rank: int) -> np.ndarray[Any, Any]:
    if required(**{name: x}) is not xp or x.ndim != rank or x.dtype.kind not in "iu":
        raise InputError(f"{name}: expected an integer array of {rank} axes, of the same library as q")
    return np.asarray(x if xp is np else xp.asnumpy(x)).astype(np.int64)


def _starts(xp: Namespace, name: str, starts: Array, total: int) -> list[int]:
    host = _host(xp, name, starts, 1)
    if host.size == 0 or host[0] != 0 or host[-1] != total or (np.diff(host) < 0).any():
        raise InputError(f"{name} is {host.tolist()}: expected to rise from 0 to {total}, the tokens given")
    return [int(x) for x in host]


def paged_attention(
    q: Array,
    key_pages: Array,
    value_pages: Array,
    page_table: Array,
    key_lengths: Array,
    spec: Spec = Spec(),
    *,
    mask: Pairs = None,
    bias: Pairs = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Pairs = None,
    return_lse: bool = False,
    algorithm: Algorithm = "auto",
    threads: int | None = None,
) -> Any:
    """Attention of q (b, h, n, d_k) over keys and values in pages.

    key_pages (pages, page, h_kv, d_k), value_pages (pages, page, h_kv, d_v); page_table (b, most): the pages of each
    sequence in order; key_lengths (b,): its keys. Entries of the table past a sequence's keys are never read; neither
    are slots of its last page. mask, bias, dropout_mask: against (b, h, n, most·page), the last axis in a sequence's
    own keys, or a list, one a sequence (see the module); alibi_slopes (h,) or (b, h). Returns (b, h, n, d_v), and lse
    (b, h, n).

    Raises InputError for a page out of the pool, or a length beyond the table.
    """
    xp = required(q=q, key_pages=key_pages, value_pages=value_pages)
    flag("return_lse", return_lse)
    if q.ndim != 4 or key_pages.ndim != 4 or value_pages.ndim != 4 or key_pages.shape[:3] != value_pages.shape[:3]:
        raise InputError(
            f"q {tuple(q.shape)}, key_pages {tuple(key_pages.shape)}, value_pages {tuple(value_pages.shape)}: expected "
            "(b, h, n, d_k), (pages, page, h_kv, d_k), (pages, page, h_kv, d_v)"
        )
    table, lengths = _host(xp, "page_table", page_table, 2), _host(xp, "key_lengths", key_lengths, 1)
    pool, size = int(key_pages.shape[0]), int(key_pages.shape[1])
    if table.shape[0] != q.shape[0] or lengths.shape[0] != q.shape[0]:
        raise InputError(f"page_table {table.shape} and key_lengths {lengths.shape}: expected {q.shape[0]} sequences")
    if (lengths < 0).any() or (lengths > table.shape[1] * size).any():
        raise InputError(f"key_lengths {lengths.tolist()}: expected 0 to {table.shape[1] * size}, what the table holds")
    pairs = {
        name: _paged_pairs(xp, name, x, lengths.tolist(), (*q.shape[:3], table.shape[1] * size))
        for name, x in (("mask", mask), ("bias", bias), ("dropout_mask", dropout_mask))
    }
    slopes = _slopes(alibi_slopes, len(lengths))
    out = xp.empty((*q.shape[:3], value_pages.shape[-1]), dtype=q.dtype)
    lse = xp.empty(q.shape[:3], dtype=np.float64 if str(q.dtype) == "float64" else np.float32)
    for b, length in enumerate(lengths.tolist()):
        pages = table[b, : -(-length // size) if size else 0]
        if ((pages < 0) | (pages >= pool)).any():
            raise InputError(f"page_table row {b} is {pages.tolist()}: expected pages 0 to {pool - 1}")
        k, v = (
            x[xp.asarray(pages)].reshape(-1, *x.shape[2:])[:length].swapaxes(0, 1) for x in (key_pages, value_pages)
        )
        out[b], lse[b] = attention(
            q[b],
            k,
            v,
            spec,
            sink=sink,
            alibi_slopes=slopes[b],
            return_lse=True,
            algorithm=algorithm,
            threads=threads,
            **{name: x[b] for name, x in pairs.items()},
        )
    return (out, lse) if return_lse else out


def _paged_pairs(xp: Namespace, name: str, x: Pairs, lengths: list[int], full: tuple[int, ...]) -> list[Array]:
    """Each sequence's part, cut at its keys."""
    if x is None or isinstance(x, (list, tuple)):
        return _pairs(xp, name, x, [(slice(None), slice(None))] * len(lengths), full)
    same_library(xp, name, x)
    try:
        view = xp.broadcast_to(x, full)
    except ValueError:
        raise InputError(
            f"{name} has shape {tuple(x.shape)}: expected one that broadcasts against (b, h, n, most·page) = {full}, "
            "or a list of one array a sequence"
        ) from None
    return [view[b, ..., :length] for b, length in enumerate(lengths)]
