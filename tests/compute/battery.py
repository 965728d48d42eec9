"""The calls that every algorithm is tried on: each argument alone, and all of them together, on ragged tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import compute
from compute import Rope, Spec
from compute.tiles import Plan
from tests.compute.reference import Case, faults, forward, gradients

TINY = Plan(rows=2, cols=3, band=4)  # several bands, blocks and tiles at the sizes of the battery
FAST = ("shifted", "online", "bounded")


def case(
    seed: int,
    spec: Spec = Spec(),
    *,
    heads: tuple[int, int] = (1, 1),
    n: int = 5,
    m: int = 7,
    d: tuple[int, int] = (4, 3),
    batch: tuple[int, ...] = (),
    size: float = 1.0,
    dtype: Any = np.float64,
    **given: Any,
) -> Case:
    rng = np.random.default_rng(seed)
    q = (size * rng.normal(size=(*batch, heads[0], n, d[0]))).astype(dtype)
    k = (size * rng.normal(size=(*batch, heads[1], m, d[0]))).astype(dtype)
    v = rng.normal(size=(*batch, heads[1], m, d[1])).astype(dtype)
    return Case(q, k, v, spec, given)


def battery() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(99)
    yield "plain call", case(1)
    yield "scale", case(2, Spec(scale=-0.7), d=(3, 5))
    yield "grouped heads", case(3, heads=(4, 2), batch=(2,))
    yield "causal", case(4, Spec(causal=True), n=7, m=7)
    yield "causal, past keys", case(5, Spec(causal=True, past=2))
    yield "causal, bottom-right", case(6, Spec(causal="bottom-right"))
    yield "causal, more queries than keys", case(7, Spec(causal="bottom-right"), n=7, m=4)
    yield "window", case(8, Spec(window=(2, 1), past=1), n=7, m=9)
    yield "window, one side", case(9, Spec(window=(None, 1), causal="bottom-right"), n=4, m=9)
    yield "window, causal", case(10, Spec(window=(1, 3), causal=True), n=7, m=7)
    yield "mask", case(11, mask=rng.random((5, 7)) > 0.4, heads=(2, 2))
    yield "mask a head", case(12, mask=rng.random((2, 1, 7)) > 0.4, heads=(2, 1))
    yield "empty rows", case(13, mask=np.arange(5)[:, None] % 2 == np.zeros(7, int))
    yield "empty rows, mean", case(14, Spec(empty_row="mean"), mask=rng.random((5, 1)) > 0.5, key_lengths=np.int64(6))
    yield "empty rows, nan", case(15, Spec(empty_row="nan"), mask=rng.random((5, 1)) > 0.5)
    added = np.where(rng.random((5, 7)) > 0.3, rng.normal(size=(5, 7)), -np.inf)
    yield "additive mask", case(16, mask=added)
    yield "bias", case(17, bias=rng.normal(size=(2, 5, 7)), heads=(2, 1))
    yield "bias, broadcast", case(18, bias=rng.normal(size=(2, 1, 1, 7)), heads=(2, 1), batch=(2,))
    yield "bias with -inf", case(19, bias=np.where(rng.random((5, 1)) > 0.3, 0.5, -np.inf))
    yield "sink", case(20, sink=rng.normal(size=2), heads=(2, 1))
    yield "sink, large", case(21, sink=np.array(30.0))
    yield "sink, empty rows", case(22, sink=np.array(0.5), mask=rng.random((5, 1)) > 0.5)
    yield "alibi", case(23, Spec(causal=True), alibi_slopes=np.array([0.5, 0.25]), heads=(2, 1), n=7)
    yield "alibi, distance", case(24, Spec(alibi="distance", past=2), alibi_slopes=np.array([0.5]))
    yield "softcap", case(25, Spec(softcap=1.5), size=2.0)
    yield "softcap, bias, mask", case(26, Spec(softcap=0.5), bias=added, size=2.0)
    yield "rope, half", case(27, Spec(rope=Rope("half", 100.0, 3, 1)))
    yield "rope, interleaved, partial", case(28, Spec(rope=Rope("interleaved", 50.0, 0, 2, dims=2)))
    yield "lengths", case(29, key_lengths=np.array([3, 0]), batch=(2,))
    yield "lengths, bottom-right", case(30, Spec(causal="bottom-right"), key_lengths=np.array([6, 4]), batch=(2,))
    yield "dropout", case(31, Spec(dropout=0.25), dropout_mask=rng.random((5, 7)) > 0.25)
    yield "dropout, multipliers", case(32, dropout_mask=rng.integers(0, 3, (5, 7)).astype(float))
    yield "base 2", case(33, Spec(lse_base=2.0))
    yield "one key", case(34, m=1)
    yield "one query", case(35, Spec(causal="bottom-right"), n=1)
    yield "large scores", case(36, Spec(scale=9.0), size=3.0)
    yield "float32", case(37, dtype=np.float32, heads=(2, 1))
    yield "float32, large scores", case(38, Spec(scale=4.0), size=3.0, dtype=np.float32)
    for which, rows in (
        ("no row is safe", slice(None)),
        ("some rows are safe, large scores", slice(1, 4)),
    ):
        unsafe = case(41, dtype=np.float32)  # rows whose bound is too large for the shift 0, though no score is
        unsafe.q[:, rows, :2], unsafe.k[..., :2] = 1e3, 0
        unsafe.k[:, 0, :2] = 300, -300
        yield f"float32, {which}", unsafe
    yield "float16", case(39, Spec(causal=True), dtype=np.float16)
    everything = Spec(
        scale=0.6, causal="bottom-right", window=(4, 0), rope=Rope("half"), softcap=2.0, empty_row="mean", lse_base=2.0
    )
    yield (
        "everything",
        case(
            40,
            everything,
            heads=(4, 2),
            batch=(2,),
            mask=rng.random((2, 1, 5, 7)) > 0.2,
            bias=rng.normal(size=(4, 1, 7)),
            sink=rng.normal(size=(2, 1)),
            alibi_slopes=rng.random(4),
            dropout_mask=rng.random((5, 7)) * 2,
            key_lengths=np.array([7, 5]),
        ),
    )


def cotangents(c: Case) -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    rows = c.q.shape[:-1]
    return rng.normal(size=(*rows, c.v.shape[-1])).astype(c.q.dtype), rng.normal(size=rows).astype(c.q.dtype)


def worst_forward(c: Case, algorithm: str, want: Any = None) -> float:
    """The largest error over its bound, output and log-sum-exp."""
    want = forward(c) if want is None else want
    out, lse = compute.attention(*c.args, **c.given, return_lse=True, algorithm=algorithm, threads=1)
    return max(faults(out, want.out, want.bound), faults(lse, want.lse, np.maximum(want.lse_bound, 1e-300)))


def worst_backward(c: Case, algorithm: str, want: Any = None) -> float:
    """The same for every gradient."""
    go, gl = cotangents(c)
    values, bounds = gradients(c, go, gl) if want is None else want
    g = compute.attention_backward(go, *c.args, **c.given, grad_lse=gl, algorithm=algorithm, threads=1)
    ratios = []
    for name, value in values.items():
        got = getattr(g, name)
        if value is None or got is None:
            ratios.append(0.0 if value is got else np.inf)
        else:
            ratios.append(faults(got, value, bounds[name]))
    return max(ratios)
