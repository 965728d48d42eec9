"""Other layouts of the same call: heads last, packed sequences, paged keys and values.

Guarantees: each layout is read as the canonical one (…, heads, length, channels) by views (a paged sequence's own
pages are copied together), so every Spec, mask rule and algorithm means the same in each.
Does not: take masks or biases in packed and paged form; corners, windows, sinks and slopes do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compute.arrays import Array, Namespace, namespace
from compute.calls import Gradients, attention, attention_backward
from compute.errors import InputError
from compute.spec import Spec


def swap_heads(x: Array) -> Array:
    """(…, n, h, d) as (…, h, n, d), and the other way round: a view."""
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
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention within each of b sequences that lie one behind the other ("thd").

    q (t_q, h, d_k), k (t_k, h_kv, d_k), v (t_k, h_kv, d_v); q_starts, k_starts (b + 1,): cumulative lengths, from 0 to
    t_q and t_k. Returns (t_q, h, d_v), and lse (t_q, h). options: algorithm, threads.

    Raises InputError for starts that fall, or don't begin at 0 and end at the array's length.
    """
    xp = namespace(q=q, k=k, v=v)
    spans = _spans(xp, q, k, v, q_starts, k_starts)
    out = xp.empty((q.shape[0], q.shape[1], v.shape[-1]), dtype=q.dtype)
    lse = xp.empty(q.shape[:2], dtype=np.float64 if str(q.dtype) == "float64" else np.float32)
    for rows, cols in spans:
        o, l = attention(
            swap_heads(q[rows]),
            swap_heads(k[cols]),
            swap_heads(v[cols]),
            spec,
            sink=sink,
            alibi_slopes=alibi_slopes,
            return_lse=True,
            **options,
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
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    grad_lse: Array | None = None,
    **options: Any,
) -> Gradients:
    """Gradients of `packed_attention`, in its layout; each sequence's are those of that sequence alone."""
    xp = namespace(q=q, k=k, v=v, grad_output=grad_output)
    dq, dk, dv = (xp.empty_like(x) for x in (q, k, v))
    dsink, dscale = None, 0.0
    if tuple(grad_output.shape) != (*q.shape[:2], v.shape[-1]):
        raise InputError(f"grad_output has shape {tuple(grad_output.shape)}: expected {(*q.shape[:2], v.shape[-1])}")
    for rows, cols in _spans(xp, q, k, v, q_starts, k_starts):
        g = attention_backward(
            swap_heads(grad_output[rows]),
            swap_heads(q[rows]),
            swap_heads(k[cols]),
            swap_heads(v[cols]),
            spec,
            sink=sink,
            alibi_slopes=alibi_slopes,
            grad_lse=None if grad_lse is None else grad_lse[rows].swapaxes(0, 1),
            **options,
        )
        dq[rows], dk[cols], dv[cols] = swap_heads(g.dq), swap_heads(g.dk), swap_heads(g.dv)
        dscale += g.dscale
        dsink = g.dsink if dsink is None else dsink + g.dsink
    return Gradients(dq, dk, dv, None, dsink, dscale)


def _spans(xp: Namespace, q: Array, k: Array, v: Array, q_starts: Array, k_starts: Array) -> list[tuple[slice, slice]]:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3:
            raise InputError(f"{name} has shape {tuple(x.shape)}: expected (tokens, heads, channels)")
    rows, cols = _starts(xp, "q_starts", q_starts, q.shape[0]), _starts(xp, "k_starts", k_starts, k.shape[0])
    if len(rows) != len(cols):
        raise InputError(f"q_starts has {len(rows)} entries, k_starts {len(cols)}: expected the same number")
    return [(slice(a, b), slice(c, d)) for a, b, c, d in zip(rows[:-1], rows[1:], cols[:-1], cols[1:], strict=True)]


def _host(xp: Namespace, name: str, x: Array, rank: int) -> np.ndarray[Any, Any]:
    if namespace(**{name: x}) is not xp or x.ndim != rank or x.dtype.kind not in "iu":
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
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention of q (b, h, n, d_k) over keys and values in pages.

    key_pages (pages, page, h_kv, d_k), value_pages (pages, page, h_kv, d_v); page_table (b, most): the pages of each
    sequence in order; key_lengths (b,): its keys. Entries of the table past a sequence's keys are never read; neither
    are slots of its last page. Returns (b, h, n, d_v), and lse (b, h, n).

    Raises InputError for a page out of the pool, or a length beyond the table.
    """
    xp = namespace(q=q, key_pages=key_pages, value_pages=value_pages)
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
    out = xp.empty((*q.shape[:3], value_pages.shape[-1]), dtype=q.dtype)
    lse = xp.empty(q.shape[:3], dtype=np.float64 if str(q.dtype) == "float64" else np.float32)
    for b, length in enumerate(lengths.tolist()):
        pages = table[b, : -(-length // size) if size else 0]
        if ((pages < 0) | (pages >= pool)).any():
            raise InputError(f"page_table row {b} is {pages.tolist()}: expected pages 0 to {pool - 1}")
        k, v = (
            x[xp.asarray(pages)].reshape(-1, *x.shape[2:])[:length].swapaxes(0, 1) for x in (key_pages, value_pages)
        )
        out[b], lse[b] = attention(q[b], k, v, spec, sink=sink, alibi_slopes=alibi_slopes, return_lse=True, **options)
    return (out, lse) if return_lse else out
