"""Faulty implementations of attention, one for each fault kind of the public threads that an implementation can show.

Each is a whole function with one thing wrong. `row` is the row of the collection of public faults, `kinds` the kinds
under which a check may file it, `spec` what is declared of it, `dtypes` where it can show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

ALL = ("float32", "float16", "bfloat16")
BF16 = np.dtype(ml_dtypes.bfloat16)
Fn = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    name: str
    row: int
    kinds: tuple[str, ...]
    function: Fn
    spec: str | None = None
    dtypes: tuple[str, ...] = ALL
    backward: Fn | None = None
    layout: str = "bhnd"


FAULTS: list[Fault] = []


def fault(row: int, *kinds: str, spec: str | None = None, dtypes: tuple[str, ...] = ALL, layout: str = "bhnd") -> Any:
    def add(function: Fn) -> Fn:
        FAULTS.append(Fault(function.__name__, row, kinds, function, spec, dtypes, None, layout))
        return function

    return add


# -- a correct attention in parts ------------------------------------------------------------------------------------


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64 if x.dtype == np.float64 else np.float32)


def scores(q: np.ndarray, k: np.ndarray, scale: float | None = None) -> np.ndarray:
    q, k = wide(q), repeated(wide(k), q.shape[1])
    return (q @ k.swapaxes(-1, -2)) * q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)


def repeated(x: np.ndarray, heads: int) -> np.ndarray:
    return np.repeat(x, heads // x.shape[1], axis=1)


def exps(s: np.ndarray) -> np.ndarray:
    top = s.max(-1, keepdims=True)
    return np.exp(s - np.where(np.isfinite(top), top, 0).astype(s.dtype))


def softmax(s: np.ndarray) -> np.ndarray:
    e = exps(s)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


def apply(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (p @ repeated(wide(v), p.shape[1])).astype(v.dtype)


def attend(s: np.ndarray, v: np.ndarray) -> np.ndarray:
    return apply(softmax(s), v)


def masked(s: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return s if mask is None else np.where(mask, s, s.dtype.type(-np.inf))


def corner(s: np.ndarray, causal: bool, offset: int = 0) -> np.ndarray:
    if not causal:
        return s
    n, m = s.shape[-2:]
    return np.where(np.arange(m) <= np.arange(n)[:, None] + offset, s, s.dtype.type(-np.inf))


def band(s: np.ndarray, window: Any, offset: int = 0) -> np.ndarray:
    if window is None:
        return s
    n, m = s.shape[-2:]
    i, j = np.arange(n)[:, None] + offset, np.arange(m)
    left, right = window
    keep = np.ones((n, m), bool)
    if left is not None:
        keep &= j >= i - left
    if right is not None:
        keep &= j <= i + right
    return np.where(keep, s, s.dtype.type(-np.inf))


def tiles(m: int, size: int) -> list[slice]:
    return [slice(a, min(m, a + size)) for a in range(0, m, size)]


def lse_of(s: np.ndarray) -> np.ndarray:
    top = s.max(-1, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return (np.log(np.exp(s - safe).sum(-1, keepdims=True)) + safe)[..., 0]


# -- empty rows ------------------------------------------------------------------------------------------------------


@fault(1, "empty row", spec="empty-row=zero")
def empty_row_is_nan(q, k, v, *, mask=None):
    s = masked(scores(q, k), mask)
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(2, "finfo.min row")
def lowest_row_is_nan(q, k, v, *, bias=None):
    s = scores(q, k)
    if bias is not None:
        low = (wide(bias) < -3e4) & np.isfinite(wide(bias))
        s = s + wide(bias) * np.where(low, 2, 1).astype(np.float32)
        if q.dtype == np.float16:
            s = np.where(s < -65504, -np.inf, s).astype(np.float32)
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(3, "empty row")
def empty_row_spoils_the_others(q, k, v, *, mask=None):
    s = masked(scores(q, k), mask)
    e = np.exp(s - s.max(-1, keepdims=True))
    out = apply(e / e.sum(-1, keepdims=True), v)
    return out + 0 * out.sum(-2, keepdims=True)


@fault(4, "empty row", spec="empty-row=zero")
def one_path_guards_the_empty_row(q, k, v, *, mask=None, bias=None):
    if bias is None:
        return attend(masked(scores(q, k), mask), v)
    s = masked(scores(q, k) + wide(bias), mask)
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(12, "empty row", spec="empty-row=zero")
def empty_row_detector_misses_inf(q, k, v, *, mask=None, bias=None):
    s = scores(q, k)
    low = np.finfo(np.float32).min
    if bias is not None:
        s = s + wide(bias)
    s = np.maximum(s if mask is None else np.where(mask, s, low), low).astype(s.dtype)
    e = np.exp(s - s.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    if mask is not None:
        p = p * np.broadcast_to(mask, p.shape).any(-1, keepdims=True)
    return apply(p, v)


@fault(10, "empty row", "mask dtype", spec="empty-row=zero")
def planes_of_the_lowest_number_overflow(q, k, v, *, mask=None, causal=False):
    s = scores(q, k)
    low = np.finfo(np.float32).min
    plane = np.zeros_like(s)
    with np.errstate(over="ignore"):
        if mask is not None:
            plane = plane + np.where(mask, 0, low).astype(np.float32)
        if causal:
            plane = plane + np.where(np.tril(np.ones(s.shape[-2:], bool)), 0, low).astype(np.float32)
        s = (s + plane).astype(np.float32)
    s = np.where(plane <= low, -np.inf, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(99, "empty row", spec="empty-row=zero", dtypes=("float16",))
def fill_does_not_fit_float16(q, k, v, *, mask=None):
    s = scores(q, k)
    if mask is not None:
        with np.errstate(over="ignore"):
            s = np.where(mask, s, np.float32(np.float32(-1e10).astype(np.float16)))
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(100, "finfo.min row", spec="finfo-row=mean", dtypes=("float16",))
def lowest_plus_negative_is_inf(q, k, v, *, bias=None):
    s = scores(q, k).astype(np.float16)
    with np.errstate(over="ignore"):
        s = s if bias is None else s + bias
    s = s.astype(np.float32)
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(55, "empty row", spec="empty-row=zero")
def merging_two_empty_states(q, k, v, *, mask=None):
    s, w = masked(scores(q, k), mask), wide(v)
    half = max(s.shape[-1] // 2, 1)
    lses, outs = [], []
    for part in (slice(0, half), slice(half, None)):
        if s[..., part].shape[-1]:
            lses.append(lse_of(s[..., part])[..., None])
            outs.append(softmax(s[..., part]) @ w[:, :, part])
    top = np.maximum.reduce(lses)
    weights = [np.exp(x - top) for x in lses]
    total = sum(weights)
    return (sum(a * b for a, b in zip(weights, outs, strict=True)) / total).astype(v.dtype)


# -- sentinels and tiles ---------------------------------------------------------------------------------------------


def online(s: np.ndarray, v: np.ndarray, size: int, first: float = -np.inf, guard: float = 0.0) -> np.ndarray:
    """Tiles with a running maximum that starts at `first`."""
    w = wide(v)
    top = np.full((*s.shape[:-1], 1), first, s.dtype)
    total, acc = np.zeros_like(top), np.zeros((*s.shape[:-1], v.shape[-1]), s.dtype)
    for t in tiles(s.shape[-1], size):
        new = np.maximum(top, s[..., t].max(-1, keepdims=True))
        safe = np.where(np.isfinite(new), new, guard).astype(s.dtype)
        e = np.exp(s[..., t] - safe)
        old = np.where(np.isfinite(top), np.exp(np.minimum(top - safe, 80)), 0).astype(s.dtype)
        total, acc = total * old + e.sum(-1, keepdims=True), acc * old + e @ w[:, :, t]
        top = safe if guard == 0.0 and first == -np.inf and not np.isfinite(new).all() else new
    return (acc / np.where(total > 0, total, 1)).astype(v.dtype)


@fault(5, "tile max")
def empty_tile_sets_the_maximum_to_zero(q, k, v, *, mask=None):
    return online(masked(scores(q, k), mask), v, 16)


@fault(98, "tile max")
def first_tile_masked_gives_nan(q, k, v, *, mask=None):
    s, w = masked(scores(q, k), mask), wide(v)
    top = np.full((*s.shape[:-1], 1), -np.inf, s.dtype)
    total, acc = np.zeros_like(top), np.zeros((*s.shape[:-1], v.shape[-1]), s.dtype)
    for t in tiles(s.shape[-1], 16):
        new = np.maximum(top, s[..., t].max(-1, keepdims=True))
        e = np.exp(s[..., t] - new)
        old = np.exp(top - new)
        total, acc, top = total * old + e.sum(-1, keepdims=True), acc * old + e @ w[:, :, t], new
    return np.where(total > 0, acc / total, np.where(np.isnan(total), np.nan, 0)).astype(v.dtype)


@fault(6, "finite -inf")
def running_maximum_starts_at_a_sentinel(q, k, v):
    return online(scores(q, k), v, 16, first=-5e4)


@fault(43, "tile max")
def tile_maximum_instead_of_the_running_one(q, k, v):
    s, w = scores(q, k), wide(v)
    top = s[..., :1] * 0 - np.inf
    total, acc = np.zeros_like(top), np.zeros((*s.shape[:-1], v.shape[-1]), s.dtype)
    for t in tiles(s.shape[-1], 16):
        new = s[..., t].max(-1, keepdims=True)
        e, old = np.exp(s[..., t] - new), np.exp(top - new)
        total, acc, top = total * old + e.sum(-1, keepdims=True), acc * old + e @ w[:, :, t], new
    return (acc / total).astype(v.dtype)


@fault(7, "finite -inf")
def mask_by_minus_ten(q, k, v, *, mask=None):
    s = scores(q, k)
    return attend(s if mask is None else np.where(mask, s, s - 10).astype(s.dtype), v)


@fault(8, "finite -inf")
def mask_by_adding_minus_ten_thousand(q, k, v, *, mask=None):
    s = scores(q, k)
    return attend(s if mask is None else np.where(mask, s, s - 10000).astype(s.dtype), v)


@fault(41, "no max shift")
def exp_of_raw_scores(q, k, v):
    e = np.exp(scores(q, k))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(42, "no max shift")
def fixed_shift_of_ten(q, k, v):
    e = np.exp(scores(q, k) - 10)
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(101, "no max shift")
def shift_by_the_first_score(q, k, v):
    s = scores(q, k)
    e = np.exp(s - s[..., :1])
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(49, "underflow", "finite -inf", dtypes=("float32", "bfloat16"))
def exp_clamped_at_the_least_normal(q, k, v, *, mask=None):
    s = masked(scores(q, k), mask)
    e = np.maximum(exps(s), np.float32(2.0**-126))
    return apply(e / e.sum(-1, keepdims=True), v)


# -- masks -----------------------------------------------------------------------------------------------------------


@fault(9, "mask composition", "finfo.min row", spec="finfo-row=empty")
def lowest_key_beside_inf_takes_all(q, k, v, *, bias=None):
    s = scores(q, k)
    return attend(s if bias is None else s + wide(bias), v)


@fault(11, "mask arithmetic")
def zero_times_inf(q, k, v, *, mask=None):
    s = scores(q, k)
    return attend(s if mask is None else s + (1 - mask.astype(s.dtype)) * s.dtype.type(-np.inf), v)


@fault(13, "mask meaning")
def finite_bias_read_as_masked(q, k, v, *, bias=None):
    s = scores(q, k)
    return attend(s if bias is None else masked(s, wide(bias) == 0), v)


@fault(14, "mask axis")
def mask_over_queries(q, k, v, *, mask=None):
    s = scores(q, k)
    if mask is not None and s.shape[-1] == s.shape[-2]:
        mask = np.broadcast_to(mask, s.shape).swapaxes(-1, -2)
    return attend(masked(s, mask), v)


@fault(15, "mask dropped")
def mask_suppresses_causal(q, k, v, *, mask=None, causal=False):
    s = scores(q, k)
    return attend(corner(s, causal) if mask is None else masked(s, mask), v)


@fault(94, "mask meaning")
def mask_of_the_other_polarity(q, k, v, *, mask=None):
    return attend(masked(scores(q, k), None if mask is None else ~mask), v)


@fault(95, "mask values")
def allowed_cells_hold_one(q, k, v, *, mask=None, return_lse=False):
    s = scores(q, k)
    if mask is not None:
        s = masked(s + 1, mask)
    out = attend(s, v)
    return (out, lse_of(s)) if return_lse else out


@fault(97, "mask meaning", "mask arithmetic")
def additive_mask_read_as_zero_and_one(q, k, v, *, bias=None):
    s = scores(q, k)
    return attend(s if bias is None else s + (1 - np.where(np.isfinite(wide(bias)), 0, 1e9)).astype(s.dtype) * -1e9, v)


@fault(105, "mask arithmetic")
def inf_in_a_bias_gives_nan(q, k, v, *, bias=None):
    s = scores(q, k)
    if bias is not None:
        s = s + np.where(np.isneginf(wide(bias)), wide(bias) - wide(bias), wide(bias))
    return attend(s, v)


@fault(107, "mask broadcast")
def mask_for_head_zero_only(q, k, v, *, mask=None):
    s = scores(q, k)
    if mask is not None:
        full = np.broadcast_to(mask, s.shape).copy()
        if mask.shape[1] == 1:
            full[:, 1:] = True
        s = masked(s, full)
    return attend(s, v)


@fault(108, "mask dropped")
def mask_ignored(q, k, v, *, mask=None):
    return attend(scores(q, k), v)


@fault(69, "0*inf", spec="behind-mask=inert")
def inf_beyond_the_length_reaches(q, k, v, *, key_lengths=None):
    s = scores(q, k)
    if key_lengths is not None:
        s = masked(s, np.arange(s.shape[-1]) < key_lengths.reshape(-1, 1, 1, 1))
    return attend(s, v)


@fault(70, "NaN score", spec="behind-mask=inert")
def nan_behind_a_mask_reaches(q, k, v, *, mask=None):
    s = scores(q, k)
    if mask is not None:
        s = s + np.where(mask, 0, -np.inf).astype(s.dtype)
    p = softmax(s)
    w = np.where(np.isfinite(wide(v)), wide(v), 0)
    return (p @ w).astype(v.dtype)


# -- causal and caches -----------------------------------------------------------------------------------------------


@fault(16, "causal alignment", spec="causal=bottom-right")
def top_left_where_bottom_right_is_meant(q, k, v, *, causal=False):
    return attend(corner(scores(q, k), causal), v)


@fault(17, "causal alignment", spec="causal=top-left")
def bottom_right_where_top_left_is_meant(q, k, v, *, causal=False):
    return attend(corner(scores(q, k), causal, k.shape[2] - q.shape[2]), v)


@fault(18, "causal alignment", spec="causal=bottom-right")
def top_left_at_one_query(q, k, v, *, causal=False):
    offset = 0 if q.shape[2] == 1 else k.shape[2] - q.shape[2]
    return attend(corner(scores(q, k), causal, offset), v)


@fault(19, "static cache", spec="causal=bottom-right")
def causal_from_the_cache_length(q, k, v, *, causal=False, key_lengths=None):
    s = corner(scores(q, k), causal, k.shape[2] - q.shape[2])
    if key_lengths is not None and not causal:
        s = masked(s, np.arange(s.shape[-1]) < key_lengths.reshape(-1, 1, 1, 1))
    return attend(s, v)


@fault(20, "causal alignment", spec="causal=bottom-right")
def leading_rows_see_key_zero(q, k, v, *, causal=False):
    return attend(corner(scores(q, k), causal, max(0, k.shape[2] - q.shape[2])), v)


@fault(96, "causal dropped")
def causal_ignored_without_a_mask(q, k, v, *, causal=False, mask=None):
    s = scores(q, k)
    return attend(s if mask is None else corner(masked(s, mask), causal), v)


# -- windows ---------------------------------------------------------------------------------------------------------


@fault(21, "window", spec="window-ends=inclusive")
def window_one_key_too_wide(q, k, v, *, window=None):
    if window is not None and window[0] is not None:
        window = (window[0] + 1, window[1])
    return attend(band(scores(q, k), window), v)


@fault(22, "window", spec="window-ends=inclusive")
def window_one_key_too_narrow(q, k, v, *, window=None):
    if window is not None and window[0]:
        window = (window[0] - 1, window[1])
    return attend(band(scores(q, k), window), v)


@fault(23, "window")
def window_of_zero_is_no_window(q, k, v, *, window=None):
    if window is not None:
        window = (window[0] or None, window[1])
    return attend(band(scores(q, k), window), v)


@fault(24, "window")
def key_zero_always_in_the_window(q, k, v, *, window=None):
    s = scores(q, k)
    inside = band(s, window)
    inside[..., 0] = s[..., 0]
    return attend(inside, v)


@fault(25, "window decode", "window", "causal alignment", spec="causal=bottom-right")
def window_around_the_wrong_corner(q, k, v, *, window=None, causal=False):
    s = corner(scores(q, k), causal, k.shape[2] - q.shape[2])
    return attend(band(s, window, 0), v)


@fault(92, "window")
def window_dropped_under_causal(q, k, v, *, window=None, causal=False):
    s = corner(scores(q, k), causal)
    return attend(s if causal else band(s, window), v)


@fault(93, "window")
def no_window_spelled_minus_one(q, k, v, *, window=None):
    if window is not None:
        window = tuple(-1 if w is None else w for w in window)
    return attend(band(scores(q, k), window), v)


@fault(106, "window")
def window_forward_only_gives_nan(q, k, v, *, window=None):
    s = band(scores(q, k), window)
    if window is not None and window[0] == 0 and window[1]:
        e = np.exp(s - s[..., :1])
        return apply(e / e.sum(-1, keepdims=True), v)
    return attend(s, v)


# -- heads and layout ------------------------------------------------------------------------------------------------


@fault(26, "GQA order", spec="groups=2 group-order=blocked")
def tiled_groups(q, k, v):
    g = q.shape[1] // k.shape[1]
    return attend(scores(q, np.tile(k, (1, g, 1, 1))), np.tile(v, (1, g, 1, 1)))


@fault(27, "GQA axis", spec="groups=2")
def groups_repeated_along_the_sequence(q, k, v, *, causal=False):
    g = q.shape[1] // k.shape[1]
    long_k, long_v = np.repeat(k, g, axis=2), np.repeat(v, g, axis=2)
    return attend(corner(scores(q, long_k), causal), long_v)


@fault(28, "layout")
def heads_and_tokens_swapped(q, k, v):
    if q.shape[2] == k.shape[2] and q.shape[1] > 1:
        v = v.reshape(v.shape[0], v.shape[2], v.shape[1], v.shape[3]).swapaxes(1, 2)
    return attend(scores(q, k), v)


@fault(29, "scale")
def scale_by_the_embedding(q, k, v):
    return attend(scores(q, k, (q.shape[1] * q.shape[3]) ** -0.5), v)


@fault(30, "d_v != d_k")
def value_width_must_equal_key_width(q, k, v):
    if v.shape[-1] != q.shape[-1]:
        raise ValueError("shapes differ")
    return attend(scores(q, k), v)


@fault(31, "scale")
def no_scale(q, k, v):
    return attend(scores(q, k, 1.0), v)


@fault(32, "scale")
def square_root_of_the_scale_on_both_sides(q, k, v, *, scale=None):
    root = np.sqrt(np.float32(q.shape[-1] ** -0.5 if scale is None else scale))
    return attend((wide(q) * root) @ (wide(k) * root).swapaxes(-1, -2), v)


@fault(33, "head padding")
def scale_of_the_padded_head(q, k, v):
    return attend(scores(q, k, 2.0 ** (-math.ceil(math.log2(q.shape[-1])) / 2)), v)


# -- 16 bits ---------------------------------------------------------------------------------------------------------


@fault(34, "fp16 overflow", dtypes=("float16",))
def raw_scores_in_float16(q, k, v):
    with np.errstate(over="ignore"):
        raw = (wide(q) @ wide(k).swapaxes(-1, -2)).astype(np.float16)
    s = raw.astype(np.float32) * np.float32(q.shape[-1] ** -0.5)
    e = np.exp(s - s.max(-1, keepdims=True))
    return apply(e / e.sum(-1, keepdims=True), v)


@fault(36, "fp16 overflow", dtypes=("float16",))
def overflowing_rows_are_lost(q, k, v):
    with np.errstate(over="ignore"):
        raw = (wide(q) @ wide(k).swapaxes(-1, -2)).astype(np.float16)
    s = raw.astype(np.float32) * np.float32(q.shape[-1] ** -0.5)
    return attend(np.where(np.isinf(raw), -np.inf, s), v)


def stuck(terms: np.ndarray, dtype: Any) -> np.ndarray:
    total = np.zeros(terms.shape[1:], np.float32)
    with np.errstate(over="ignore"):
        for term in terms:
            total = (total + term).astype(dtype).astype(np.float32)
    return total


@fault(45, "fp16 accumulation", "bf16 accumulation", "long row", dtypes=("float16",))
def normaliser_in_float16(q, k, v):
    e = exps(scores(q, k))
    return apply(e / stuck(np.moveaxis(e, -1, 0), np.float16)[..., None], v)


@fault(46, "bf16 accumulation", "fp16 accumulation", "long row", dtypes=("bfloat16", "float32"))
def normaliser_in_bfloat16(q, k, v):
    e = exps(scores(q, k))
    return apply(e / stuck(np.moveaxis(e, -1, 0), BF16)[..., None], v)


@fault(52, "fp16 accumulation", "long row", dtypes=("float16",))
def unnormalised_sum_overflows_float16(q, k, v):
    e = exps(scores(q, k))
    with np.errstate(over="ignore"):
        acc = (e @ wide(v)).astype(np.float16).astype(np.float32)
    return (acc / e.sum(-1, keepdims=True)).astype(v.dtype)


@fault(51, "values", "softmax missing", "scale", "softmax axis", dtypes=("float16",))
def float16_products_are_zero(q, k, v):
    return attend(scores(q, k) * 0, v)


@fault(85, "fp8 underflow")
def weights_in_fp8(q, k, v):
    e = exps(scores(q, k))
    small = e.astype(ml_dtypes.float8_e4m3fn).astype(e.dtype)
    return apply(small / e.sum(-1, keepdims=True), v)


@fault(86, "precision", "values", dtypes=("float32",))
def queries_and_keys_in_fp8(q, k, v):
    low = [x.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) for x in (q, k)]
    return attend(scores(*low), v)


# -- softmax ---------------------------------------------------------------------------------------------------------


@fault(39, "softmax missing")
def no_softmax(q, k, v):
    return apply(scores(q, k), v)


@fault(40, "softmax axis")
def softmax_over_queries(q, k, v):
    return apply(softmax(scores(q, k).swapaxes(-1, -2)).swapaxes(-1, -2), v)


@fault(47, "softmax plus one")
def one_added_after_the_shift(q, k, v, *, sink=None):
    e = exps(scores(q, k))
    total = e.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(wide(sink)).reshape(-1, 1, 1)
    return apply(e / total, v)


# -- softcap ---------------------------------------------------------------------------------------------------------


@fault(37, "softcap order", "finite -inf")
def softcap_after_the_mask(q, k, v, *, mask=None, softcap=None):
    s = scores(q, k)
    if mask is not None:
        s = np.where(mask, s, -1e30).astype(s.dtype)
    if softcap is not None:
        s = s.dtype.type(softcap) * np.tanh(s / s.dtype.type(softcap))
        return attend(s, v)
    return attend(masked(s, mask), v)


@fault(38, "softcap dropped")
def softcap_ignored(q, k, v, *, softcap=None):
    return attend(scores(q, k), v)


# -- sinks, log-sum-exp, merging -------------------------------------------------------------------------------------


def with_sink(s: np.ndarray, sink: Any, v: np.ndarray, times: int = 1) -> np.ndarray:
    column = np.broadcast_to(wide(sink).reshape(1, -1, 1, 1), (*s.shape[:-1], 1))
    top = np.maximum(s.max(-1, keepdims=True), column)
    e = np.exp(s - top)
    return apply(e / (e.sum(-1, keepdims=True) + times * np.exp(column - top)), v)


@fault(57, "sink")
def sink_counted_in_every_split(q, k, v, *, sink=None):
    s = scores(q, k)
    return attend(s, v) if sink is None else with_sink(s, sink, v, times=2)


@fault(58, "sink")
def sink_left_out_of_the_maximum(q, k, v, *, sink=None, return_lse=False):
    s = scores(q, k)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(wide(sink).reshape(-1, 1, 1) - top)
    out = apply(e / total, v)
    return (out, (np.log(total) + top)[..., 0]) if return_lse else out


@fault(59, "sink, empty row")
def leading_empty_rows_with_a_sink_are_nan(q, k, v, *, sink=None, mask=None):
    s = masked(scores(q, k), mask)
    if sink is None:
        return attend(s, v)
    out = wide(with_sink(s, sink, v))
    first = np.isneginf(s).all(-1) & (np.arange(s.shape[-2]) == 0)
    return np.where(first[..., None], np.nan, out).astype(v.dtype)


@fault(44, "LSE overflow")
def naive_log_sum_exp(q, k, v, *, return_lse=False):
    s = scores(q, k)
    dtype = np.float16 if q.dtype == np.float16 else np.float32
    with np.errstate(over="ignore"):
        lse = np.log(np.exp(s).astype(dtype).sum(-1))
    return (attend(s, v), lse) if return_lse else attend(s, v)


@fault(53, "LSE of empty", spec="empty-lse=-inf empty-row=zero")
def log_sum_exp_of_empty_is_plus_inf(q, k, v, *, mask=None, return_lse=False):
    s = masked(scores(q, k), mask)
    lse = np.where(np.isneginf(s).all(-1), np.inf, lse_of(s))
    return (attend(s, v), lse) if return_lse else attend(s, v)


@fault(54, "LSE base", "merge")
def log2_states_merged_by_base_e(q, k, v):
    s, w = scores(q, k), repeated(wide(v), q.shape[1])
    half = max(s.shape[-1] // 2, 1)
    parts = [p for p in (slice(0, half), slice(half, None)) if s[..., p].shape[-1]]
    lses = [lse_of(s[..., p])[..., None] / math.log(2) for p in parts]
    top = np.maximum.reduce(lses)
    weights = [np.exp(x - top) for x in lses]
    outs = [softmax(s[..., p]) @ w[:, :, p] for p in parts]
    return (sum(a * b for a, b in zip(weights, outs, strict=True)) / sum(weights)).astype(v.dtype)


@fault(54, "LSE base", spec="lse-base=e")
def log_sum_exp_in_base_two(q, k, v, *, return_lse=False):
    s = scores(q, k)
    return (attend(s, v), lse_of(s) / math.log(2)) if return_lse else attend(s, v)


@fault(56, "tile max", "merge")
def empty_state_marked_plus_inf(q, k, v, *, mask=None):
    s, w = masked(scores(q, k), mask), wide(v)
    parts = tiles(s.shape[-1], 16)
    lses = [lse_of(s[..., p])[..., None] for p in parts]
    lses = [np.where(np.isneginf(x), np.inf, x) if len(parts) > 1 else x for x in lses]
    outs = [softmax(s[..., p]) @ w[:, :, p] for p in parts]
    top = np.maximum.reduce(lses)
    weights = [np.exp(x - np.where(np.isfinite(top), top, 0)) for x in lses]
    total = sum(weights)
    return (sum(a * b for a, b in zip(weights, outs, strict=True)) / np.where(total > 0, total, 1)).astype(v.dtype)


# -- dropout, ALiBi, RoPE --------------------------------------------------------------------------------------------


@fault(61, "dropout")
def dropout_in_evaluation(q, k, v, *, dropout_p=0.0, training=False):
    p = softmax(scores(q, k))
    keep = np.random.default_rng().random(p.shape) >= dropout_p
    return apply(p * keep / max(1 - dropout_p, 1e-9), v)


def slopes(heads: int) -> np.ndarray:
    power = 2 ** int(math.log2(heads))
    rest = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return np.array([2.0 ** (-8.0 * (i + 1) / power) for i in range(power)] + rest, np.float32)


def distances(n: int, m: int, offset: int = 0) -> np.ndarray:
    return -np.abs(np.arange(n)[:, None] + offset - np.arange(m)).astype(np.float32)


@fault(62, "ALiBi", spec="alibi=standard")
def slopes_one_power_too_large(q, k, v):
    h = q.shape[1]
    own = 2.0 ** (-8.0 * np.arange(h) / h)
    return attend(scores(q, k) + (own[:, None, None] * distances(q.shape[2], k.shape[2])).astype(np.float32), v)


@fault(62, "ALiBi", spec="alibi=standard")
def slopes_for_a_power_of_two_only(q, k, v):
    h = q.shape[1]
    own = 2.0 ** (-8.0 * (np.arange(h) + 1) / h)
    return attend(scores(q, k) + (own[:, None, None] * distances(q.shape[2], k.shape[2])).astype(np.float32), v)


@fault(63, "ALiBi", "causal alignment", spec="causal=bottom-right")
def alibi_is_zero_at_decode(q, k, v, *, causal=False, alibi_slopes=None):
    n, m = q.shape[2], k.shape[2]
    s = corner(scores(q, k), causal, m - n)
    if alibi_slopes is not None and n > 1:
        offset = m - n if causal else 0
        s = s + wide(alibi_slopes)[:, None, None] * distances(n, m, offset)
    return attend(s, v)


def rotate(x: np.ndarray, position: np.ndarray, layout: str, cast: Any = np.float64) -> np.ndarray:
    d = x.shape[-1]
    frequency = 10000.0 ** (-2.0 * np.arange(d // 2) / d)
    angle = (position.astype(cast).astype(np.float64)[:, None] * frequency).astype(cast).astype(np.float64)
    cos, sin = np.cos(angle), np.sin(angle)
    x = wide(x).astype(np.float64)
    out = x.copy()
    if layout == "half":
        a, b = x[..., : d // 2], x[..., d // 2 :]
        out[..., : d // 2], out[..., d // 2 :] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., ::2], x[..., 1::2]
        out[..., ::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    return out.astype(np.float32)


def roped(q: Any, k: Any, v: Any, q_offset: int, k_offset: int, layout: str, cast: Any = np.float64) -> np.ndarray:
    if q.shape[-1] % 2:
        raise NotImplementedError("an odd head size can't be rotated in pairs")
    a = rotate(q, np.arange(q.shape[2]) + q_offset, layout, cast)
    b = rotate(k, np.arange(k.shape[2]) + k_offset, layout, cast)
    return attend(scores(a, b), v)


@fault(65, "RoPE precision", spec="rope=half")
def angles_in_float16(q, k, v, *, q_offset=0, k_offset=0):
    return roped(q, k, v, q_offset, k_offset, "half", np.float16)


@fault(66, "RoPE precision", spec="rope=half")
def positions_in_bfloat16(q, k, v, *, q_offset=0, k_offset=0):
    return roped(q, k, v, q_offset, k_offset, "half", BF16)


@fault(68, "RoPE layout", spec="rope=half")
def interleaved_pairs_where_halves_are_meant(q, k, v):
    return roped(q, k, v, 0, 0, "interleaved")


@fault(67, "RoPE layout", spec="rope=half")
def second_half_of_the_angles_ignored(q, k, v):
    if q.shape[-1] % 2:
        raise NotImplementedError("an odd head size can't be rotated in pairs")

    def turn(x: np.ndarray) -> np.ndarray:
        out = rotate(x, np.arange(x.shape[2]), "half")
        half = x.shape[-1] // 2
        out[..., half:] = wide(x)[..., half:]
        return out

    return attend(scores(turn(q), turn(k)), v)


# -- memory, determinism, index width, lengths -----------------------------------------------------------------------


@fault(80, "strides")
def value_read_in_the_order_of_memory(q, k, v):
    if v.ndim == 4 and not v.flags.c_contiguous and v.strides[-1] > v.strides[-2]:
        v = np.ascontiguousarray(v.swapaxes(-1, -2)).reshape(v.shape)
    return attend(scores(q, k), v)


@fault(81, "strides")
def last_axis_must_be_contiguous(q, k, v):
    def flat(x: np.ndarray) -> np.ndarray:
        if (x.strides[-1] in (x.itemsize, -x.itemsize) and x.flags.c_contiguous) or x.size < 2:
            return x
        return np.ascontiguousarray(x[..., ::-1]) if x.strides[-1] != x.itemsize else x

    return attend(scores(flat(q), k), v)


@fault(78, "determinism", spec="deterministic=yes")
def order_of_sums_by_chance(q, k, v):
    order = np.random.default_rng().permutation(k.shape[2])
    e = exps(scores(q, k))[..., order]
    w = wide(v)[:, :, order]
    acc = np.zeros((*e.shape[:-1], v.shape[-1]), np.float32)
    for j in range(k.shape[2]):
        acc = acc + e[..., j, None] * w[:, :, None, j]
        if q.dtype != np.float32:
            acc = acc.astype(np.float32) if k.shape[2] < 100 else (acc * 4096).round().astype(np.float32) / 4096
    return (acc / e.sum(-1, keepdims=True)).astype(v.dtype)


@fault(82, "index width")
def mask_row_offset_in_sixteen_bits(q, k, v, *, mask=None):
    s = scores(q, k)
    if mask is not None:
        full = np.broadcast_to(mask, s.shape)
        n, m = s.shape[-2:]
        offset = (np.arange(n) * m % 65536) // m
        s = masked(s, full[..., offset, :])
    return attend(s, v)


@fault(84, "index width")
def mask_lookup_wraps(q, k, v, *, mask=None):
    s = scores(q, k)
    if mask is not None:
        full = np.broadcast_to(mask, s.shape).copy()
        n, m = s.shape[-2:]
        full[..., np.arange(n) * m >= 32768, :] = True
        s = masked(s, full)
    return attend(s, v)


@fault(83, "index width")
def keys_beyond_fifteen_bits(q, k, v):
    out = attend(scores(q, k), v)
    return (wide(out) * np.float32(np.nan)).astype(out.dtype) if k.shape[2] > 32768 else out


@fault(87, "zero length")
def one_query_and_zero_length(q, k, v, *, key_lengths=None):
    s = scores(q, k)
    if key_lengths is not None:
        if q.shape[2] == 1 and (key_lengths == 0).any():
            raise ValueError("shape '[4, 1]' is invalid for input of size 2")
        s = masked(s, np.arange(s.shape[-1]) < key_lengths.reshape(-1, 1, 1, 1))
    return attend(s, v)
