"""Input families that enclosures and bounds are attacked with: one function a family, all of small shapes.

Each returns (q, k, v, extras), extras being keyword arguments: mask, bias, causal, scale, softcap, sink.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Rng = np.random.Generator
Case = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
Family = Callable[[Rng, int, int, int, int], Case]
FAMILIES: dict[str, Family] = {}


def family(name: str) -> Callable[[Family], Family]:
    def keep(function: Family) -> Family:
        FAMILIES[name] = function
        return function

    return keep


def gauss(rng: Rng, n: int, m: int, d: int, d_v: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)), rng.standard_normal((m, d_v))


def _scaled(size: float) -> Family:
    def make(rng, n, m, d, d_v):
        q, k, v = gauss(rng, n, m, d, d_v)
        return q * size, k, v, {}

    return make


for _size in (1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e3, 1e5, 1e7):
    FAMILIES[f"normal times {_size:g}"] = _scaled(_size)


def _stored(dtype: Any) -> Family:
    def make(rng, n, m, d, d_v):
        q, k, v = gauss(rng, n, m, d, d_v)
        q = q * rng.choice([1.0, 4.0])
        return (*(x.astype(dtype).astype(np.float64) for x in (q, k, v)), {})

    return make


for _name, _dtype in (
    ("float32", np.float32),
    ("float16", np.float16),
    ("bfloat16", ml_dtypes.bfloat16),
    ("e4m3", ml_dtypes.float8_e4m3fn),
    ("e5m2", ml_dtypes.float8_e5m2),
):
    FAMILIES[f"stored in {_name}"] = _stored(_dtype)


@family("repeated keys")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q, k[rng.integers(0, max(1, m // 3), m)], v, {}


@family("zero queries")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 0, k, v, {}


@family("values that cancel")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    v = v * 10.0 ** rng.integers(0, 16, (m, 1))
    h = m // 2
    v[h : 2 * h], k[h : 2 * h] = -v[:h], k[:h]
    return q * 1e-8, k, v, {}


@family("heavy tails")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    tail = [np.exp(s * rng.standard_normal(x.shape)) for s, x in ((3, q), (3, k), (8, v))]
    return q * tail[0], k * tail[1] * 1e-2, v * tail[2], {}


@family("subnormal queries and values")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 1e-310, k * 1e5, v * 1e-308, {}


@family("least values")
def _(rng, n, m, d, d_v):
    q, k, _ = gauss(rng, n, m, d, d_v)
    return q * 1e-160, k * 1e160, rng.integers(-9, 9, (m, d_v)) * 5e-324, {}


@family("tiny queries, huge keys")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 1e-305, k * 1e305, v * 1e-315, {}


@family("huge values")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 1e150, k * 1e-150, v * 1e300, {}


@family("random mask")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 3, k, v, {"mask": rng.random((n, m)) < rng.choice([0.1, 0.5, 0.9])}


@family("causal")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 2, k, v, {"causal": "top-left"}


@family("bias with holes")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    bias = rng.standard_normal((n, m)) * 10.0 ** rng.integers(-2, 4)
    bias[rng.random((n, m)) < 0.2] = -np.inf
    return q * 2, k, v, {"bias": bias}


@family("small dyadic numbers")
def _(rng, n, m, d, d_v):
    q, k = rng.integers(-4, 5, (n, d)).astype(float), rng.integers(-4, 5, (m, d)) / 4
    return q, k, rng.integers(-8, 9, (m, d_v)).astype(float), {}


@family("thirds")
def _(rng, n, m, d, d_v):
    def near(x: float, shape: tuple[int, int]) -> np.ndarray:
        return np.full(shape, x) * (1 + rng.integers(0, 9, shape) * 2.0**-52)

    return near(1 / 3, (n, d)), near(2 / 3, (m, d)), near(1 / 3, (m, d_v)), {}


@family("weights at the edge of underflow")
def _(rng, n, m, d, d_v):
    q, k = np.zeros((n, d)), np.zeros((m, d))
    q[:, 0], k[:, 0] = 1, -(740 + rng.random(m) * 12) * np.sqrt(d)
    k[0, 0] = 0
    v = rng.standard_normal((m, d_v)) * 10.0 ** rng.integers(0, 300)
    v[0] = rng.standard_normal(d_v) * 1e-10
    return q, k, v, {}


@family("outliers")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    k[rng.integers(0, m)] *= 200
    v[rng.integers(0, m)] *= 1e6
    return q, k, v, {}


@family("scores that cancel")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    h = d // 2
    if h:
        q[:, h : 2 * h] = q[:, :h]
        k[:, h : 2 * h] = -k[:, :h] * (1 + 1e-10 * rng.standard_normal((m, h)))
        q, k = q * 1e4, k * 1e3
    return q, k, v, {}


@family("constant values")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 5, k, np.repeat(v[:1], m, axis=0), {}


@family("values far from zero")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 2, k, v + 1e6, {}


@family("grids that differ from key to key")
def _(rng, n, m, d, d_v):
    q, k = np.zeros((n, d)), np.zeros((m, d))
    q[:, 0], k[:, 0] = 1, rng.choice([64.5, -12.681885138599021, 3.0, 0.1], m)
    v = rng.standard_normal((m, d_v)) * np.exp(rng.choice([0.0, 40.0, 77.2], (m, 1)))
    return q, k, v, {"scale": 1.0}


@family("softcap")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * rng.choice([1.0, 30.0]), k, v, {"softcap": float(rng.choice([0.5, 5.0, 50.0]))}


@family("sink")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    extras: dict[str, Any] = {"sink": float(rng.standard_normal() * rng.choice([1, 10, 100]))}
    if rng.random() < 0.3:
        extras["mask"] = rng.random((n, m)) < 0.3
    return q * 2, k, v, extras


@family("exact rational scale")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q * 2, k, v, {"scale": Fraction(int(rng.integers(1, 20)), 7)}


@family("softcap, bias, causal and sink together")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return q, k, v, {"softcap": 4.0, "bias": rng.standard_normal((n, m)), "causal": "bottom-right", "sink": 0.5}


@family("one needle")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    q[:, 0], k[:, 0] = 5.0, 0.0
    k[rng.integers(0, m), 0] = 4 * np.sqrt(d) * rng.choice([1, 4])
    return q, k, v, {}


@family("signed ones")
def _(rng, n, m, d, d_v):
    q, k, v = gauss(rng, n, m, d, d_v)
    return np.sign(q), np.sign(k), np.sign(v), {}


def shapes(rng: Rng) -> tuple[int, int, int, int]:
    """(n, m, d, d_v), small, with lengths of one and around powers of two."""
    pick = rng.choice
    return (
        int(pick([1, 2, 3, 5])),
        int(pick([1, 2, 3, 7, 16, 33])),
        int(pick([1, 2, 3, 4, 8, 16, 64])),
        int(pick([1, 2, 5])),
    )


def _wild(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.standard_normal(shape)
    kind = rng.integers(0, 7)
    if kind == 1:
        return x * np.exp2(rng.integers(-20, 20, shape).astype(float))
    if kind == 2:
        return x * np.exp2(rng.integers(-500, 500, shape).astype(float))
    if kind == 3:
        return np.ldexp(x, rng.integers(-1070, 1000))
    if kind == 4:
        return np.where(rng.random(shape) < 0.5, 0, x)
    if kind == 5:
        return np.round(x * 4) / 4
    return x if kind == 0 else x * np.exp2(float(rng.integers(-60, 60)))


def wild_case(rng: Rng) -> tuple[Case, np.ndarray]:
    """A case and a grad_output with entries anywhere in float64's range; judge them with 3000 bits."""
    n, m = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5, 9]))
    d, d_v = int(rng.choice([1, 2, 4, 5, 16])), int(rng.integers(1, 3))
    with np.errstate(all="ignore"):
        q, k, v, grad = _wild(rng, (n, d)), _wild(rng, (m, d)), _wild(rng, (m, d_v)), _wild(rng, (n, d_v))
        size = float(np.abs(q @ k.T).max())
        if rng.random() < 0.5 and np.isfinite(size) and size > 0:
            q = q / size * rng.choice([1, 10, 700, 750])
    extras: dict[str, Any] = {}
    kind = rng.random()
    if kind < 0.2:
        extras["scale"] = float(rng.choice([-1, 1, 0.3, -0.01, 1e-5, 0.0]))
    elif kind < 0.3:
        extras["scale"] = Fraction(int(rng.integers(-9, 9)), int(rng.integers(1, 9)))
    if rng.random() < 0.2:
        extras["bias"] = _wild(rng, (n, m))
    if rng.random() < 0.2:
        extras["sink"] = float(_wild(rng, (1,))[0])
    if rng.random() < 0.15:
        extras["softcap"] = float(np.exp(rng.uniform(-8, 8)))
    if rng.random() < 0.2:
        extras["mask"] = rng.random((n, m)) < 0.5
    fine = all(np.isfinite(x).all() and np.abs(x).max() < 1e307 for x in (q, k, v, grad))
    if not fine or not np.isfinite(extras.get("bias", np.zeros(1))).all():
        return wild_case(rng)
    return (q, k, v, extras), grad


def opposite_case(rng: Rng) -> tuple[Case, np.ndarray]:
    """The same with sizes of q, k and the scale that make moderate scores out of numbers far from 1, beside values and
    a grad_output of any size, some of them cancelling; judge them with 6000 bits."""
    n, m = int(rng.integers(1, 4)), int(rng.choice([2, 3, 5]))
    d, d_v = int(rng.choice([1, 2, 4])), int(rng.choice([1, 2]))
    q, k, v, grad = (rng.standard_normal(shape) for shape in ((n, d), (m, d), (m, d_v), (n, d_v)))
    if rng.random() < 0.3:
        k = k * np.exp2(rng.integers(-30, 0, (m, 1)).astype(float))
    if rng.random() < 0.5:
        v[1] = -v[0] * (1 + 1e-6 * rng.choice([0, 1]) * rng.standard_normal())
    of_q = int(rng.integers(-1000, 1000))
    of_scale = int(rng.choice([0, rng.integers(-900, 900)]))
    of_k = int(np.clip(-of_q - of_scale + rng.integers(-3, 4), -1060, 1000))
    q, k = np.ldexp(q, of_q), np.ldexp(k, of_k)
    v, grad = (np.ldexp(x, int(rng.integers(-1060, 900))) for x in (v, grad))
    extras: dict[str, Any] = {"scale": float(np.ldexp(1.0 + rng.choice([0, 1]) * rng.random(), of_scale))}
    if rng.random() < 0.2:
        extras["softcap"] = float(np.exp(rng.uniform(-4, 6)))
    if rng.random() < 0.2:
        extras["bias"] = rng.standard_normal((n, m))
    if rng.random() < 0.2:
        extras["sink"] = float(rng.standard_normal())
    return (q, k, v, extras), grad


def keep_of(extras: dict[str, Any], n: int, m: int) -> np.ndarray | None:
    """The boolean matrix that a case means, built apart from compute.meaning."""
    keep = np.ones((n, m), bool)
    if "mask" in extras:
        keep &= extras["mask"]
    if "bias" in extras:
        keep &= np.isfinite(extras["bias"])
    if "causal" in extras:
        past = m - n if extras["causal"] == "bottom-right" else 0
        keep &= np.arange(m)[None, :] <= np.arange(n)[:, None] + past
    return None if keep.all() else keep
