"""Which roundings an attention algorithm makes: the declared algorithm that a tolerance speaks of.

Guarantees: `Flash` and `Eager` are pure data, checked when made; `limits(name)` gives a format's unit roundoff and
range, so that a bound never holds a number of its own.
Does not: compute anything on arrays (`compute.bounds` does), nor run the algorithm (`compute.emulate` does).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from compute.checks import choice, flag, number, whole
from compute.errors import InputError

ScaleOn = Literal["scores", "query", "both"]
Sums = Literal["any", "blocks"]


@dataclass(frozen=True)
class Limits:
    """Round to nearest in one format. unit: unit roundoff; tiny: half the least subnormal number (the error of a
    rounding below the normal range); normal: least normal number; largest: greatest finite number."""

    name: str
    unit: float
    tiny: float
    normal: float
    largest: float


_LIMITS = {
    limit.name: limit
    for limit in (
        Limits("float64", 2.0**-53, 2.0**-1074, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
        Limits("float32", 2.0**-24, 2.0**-150, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
        Limits("tf32", 2.0**-11, 2.0**-137, 2.0**-126, (2 - 2.0**-10) * 2.0**127),
        Limits("float16", 2.0**-11, 2.0**-25, 2.0**-14, 65504.0),
        Limits("bfloat16", 2.0**-8, 2.0**-134, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
        Limits("float8_e4m3fn", 2.0**-4, 2.0**-10, 2.0**-6, 448.0),
        Limits("float8_e5m2", 2.0**-3, 2.0**-17, 2.0**-14, 57344.0),
    )
}
ALIASES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


def limits(name: str) -> Limits:
    """The limits of a format by name ("float16", "fp16", "bf16", "e4m3", ...).

    Raises InputError for a name that is not one of them.

    >>> limits("fp16").unit == 2.0**-11
    True
    """
    found = _LIMITS.get(ALIASES.get(str(name), str(name)))
    if found is None:
        raise InputError(f"format is {name!r}: expected one of {', '.join(_LIMITS)} ({', '.join(ALIASES)})")
    return found


def product_unit(products: str) -> float:
    """Bound of the relative error of one product beyond its accumulation.

    "exact": factors as given. "tf32": both factors rounded to tf32. "bf16x3": a = a1 + a2 + r with a1, a2 bfloat16
    and |r| ≤ c²|a|, c = 2⁻⁸; three of the four products are kept, so that the error is at most
    (c(1 + c))² for a2·b2 plus c²(1 + c²) + c² for the two remainders.
    """
    choice("products", products, ("exact", "tf32", "bf16x3"))
    if products == "exact":
        return 0.0
    if products == "tf32":
        u = limits("tf32").unit
        return 2 * u + u * u
    c = limits("bfloat16").unit
    return (c + c * c) ** 2 + 2 * c * c + c**4


def split_tiny(products: str) -> float:
    """Absolute error of a factor that is rounded or split below the normal range; 0 where factors stay as given.

    A product of factors a, b then errs by at most twice this times |a| + |b|, beyond `product_unit`: a remainder of at
    most (1 + c)η times the other factor, and for bf16x3 the dropped product of two low parts, each within 2η more.
    """
    return {"tf32": limits("tf32").tiny, "bf16x3": limits("bfloat16").tiny}.get(products, 0.0)


def dot_error(unit: float, length: float, products: str) -> float:
    """(S1) of compute/bounds.md: relative to Σ|a||b|, rounded products included; bf16x3 adds up three sums.

    Its three kept products add up to at most (1 + c)²(1 + 2c) ≤ 1 + 5c times |a||b|.
    """
    split = products == "bf16x3"
    paths = math.expm1((length + 2 * split) * math.log1p(unit)) * (1 + 2.0**-50)
    if split:
        return paths * (1 + 5 * limits("bfloat16").unit) + product_unit(products)
    return (1 + paths) * (1 + product_unit(products)) - 1


@dataclass(frozen=True)
class _Common:
    """What every algorithm declares; see Flash and Eager."""

    weights: str = "float32"
    accumulate: str = "float32"
    exp_ulp: float = 3.0
    output: str = "float32"
    products: str = "exact"
    scale_on: ScaleOn = "scores"
    scale_format: str | None = None
    flush: bool = False
    exp_flushes: bool = True

    def __post_init__(self) -> None:
        for name in (self.weights, self.accumulate, self.output):
            limits(name)
        if self.scale_format is not None:
            limits(self.scale_format)
        product_unit(self.products)
        if not 0 <= number("exp_ulp", self.exp_ulp, "the error of exp in ulp, at least 0 and below 2^20") < 2.0**20:
            raise InputError(f"exp_ulp is {self.exp_ulp}: expected the error of exp in ulp, at least 0 and below 2^20")
        choice("scale_on", self.scale_on, ("scores", "query", "both"))
        flag("flush", self.flush)
        flag("exp_flushes", self.exp_flushes)


@dataclass(frozen=True)
class Flash(_Common):
    """Attention in blocks of keys with a running maximum (Dao et al. 2022, FlashAttention, algorithm 1).

    block: keys a block. weights: format that exp(s − m) is cast to before it meets V (the normaliser sums the weights
    before that cast). accumulate: format of scores, exp, sums, rescaling and division. exp_ulp: error of exp (and of
    tanh) in ulp of `accumulate`, an ulp being at most 2 units of roundoff; what comes back below the normal range may
    be flushed to zero (exp_flushes). output: format of the result. products: "exact", "tf32" or "bf16x3".
    scale_on: where the scale is applied: "scores", "query" or "both" (its square root on q and k; the scaled arrays
    are stored in scale_format, or in `accumulate` if that is None). flush: arithmetic flushes subnormal results.
    sums: "any" order of addition, also into the running accumulator, or "blocks" (a block's sum is finished before it
    is added to the accumulator; the tighter bound). base2: exp(x) is computed as exp2 of one multiply-add s·c − m·c,
    c = scale·log2(e) rounded.
    """

    block: int = 64
    sums: Sums = "any"
    base2: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("block", self.block, 1, "keys a block")
        choice("sums", self.sums, ("any", "blocks"))
        flag("base2", self.base2)


@dataclass(frozen=True)
class Eager(_Common):
    """Attention as separate operations over the whole row, each in `accumulate` inside.

    weights: format that the normalised weights are stored in. scores: format that scores are stored in (None: kept in
    `accumulate`); score_stores: 1 if product and scale are one operation, 2 if the raw product is stored first, and
    then scaled. every_op: every result of the softmax (shift, exp, sum) is stored in `scores` too. shifted: whether
    the row's maximum is subtracted. Other fields as in Flash.
    """

    scores: str | None = None
    score_stores: int = 1
    every_op: bool = False
    shifted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scores is not None:
            limits(self.scores)
        if whole("score_stores", self.score_stores, 1, "1 or 2") > 2:
            raise InputError(f"score_stores is {self.score_stores}: expected 1 or 2")
        flag("every_op", self.every_op)
        flag("shifted", self.shifted)
        if self.every_op and self.scores is None:
            raise InputError("every_op is true and scores is None: name the format that results are stored in")


Algorithm = Flash | Eager


def usual(q: str, k: str, v: str) -> tuple[Flash, str]:
    """The algorithm that arrays of these formats stand for where none is declared, and why, in words.

    One format: Flash with weights and output in it, and float64 sums for float64 (an exp within 1 ulp), else float32
    sums; 8-bit inputs give bfloat16. Mixed formats: the weights meet V, so they are cast to v's format where it is
    narrower than the sums; the output has the widest of the formats, float32 where none of them holds the others.

    Raises InputError for a format that `limits` does not know.

    >>> usual("float16", "float16", "float16")[0] == Flash(weights="float16", output="float16")
    True
    """
    formats = tuple(limits(name).name for name in (q, k, v))
    wide = "float64" if "float64" in formats else "float32"
    weights = formats[2] if limits(formats[2]).unit > limits(wide).unit else wide
    algorithm = Flash(
        weights=weights,
        accumulate=wide,
        output=_widest(formats),
        exp_ulp=1.0 if wide == "float64" else Flash.exp_ulp,
    )
    if len(set(formats)) == 1:
        return algorithm, f"none was declared: chosen for the inputs' format, {formats[0]}"
    return algorithm, (
        f"none was declared: chosen for mixed formats, q {formats[0]}, k {formats[1]}, v {formats[2]} (weights in v's, "
        "output in the widest)"
    )


def _widest(formats: tuple[str, ...]) -> str:
    """The output's format: the one that holds all, by fewest bits; float8 ones widen to bfloat16."""
    kept = set(formats) - {"float8_e4m3fn", "float8_e5m2"} or {"bfloat16"}
    if "float64" in kept:
        return "float64"
    return kept.pop() if len(kept) == 1 else "float32"
