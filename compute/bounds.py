"""Tolerances that say why they are what they are: how far a correct run of a declared algorithm may be off.

Guarantees: kind "worst" is proved (compute/bounds.md): every run of the declared algorithm on these inputs, whatever
the order of its sums, is within `total` of the exact value, or the element is flagged `overflow`.
Does not: hold for an algorithm that was not declared; kinds "expected" and "probable" are models, not proofs, and an
adversary exceeds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compute import expected_gradients, worst_gradients
from compute.arrays import namespace
from compute.checks import choice
from compute.errors import InputError
from compute.expected import expected
from compute.expected import total as quadratic
from compute.heads import F64, Heads, exact64, split
from compute.roundings import Algorithm, Eager, Flash, limits, usual
from compute.spec import Spec
from compute.worst_case import forward

__all__ = ["Eager", "Flash", "Tolerance", "tolerance"]

Kind = Literal["worst", "expected", "probable"]
MISS = 1e-3  # chance that "probable" is exceeded anywhere, if errors are normal and independent


@dataclass(frozen=True)
class Tolerance:
    """A tolerance per element, with its sources.

    total: (…, n, d_v), inf where `overflow` is true or where nothing can be bounded. sources: the summands of total by
    the rounding they come from: "scores", "exp", "cast" (of the weights), "sums", "output", "underflow". overflow:
    "overflow predicted": a stored value may exceed its format there, or a normaliser vanish, so that no finite
    tolerance holds. gradients: tolerances of "dq", "dk", "dv", where grad_output was given; their sources are
    "weights", "delta" (the sum of grad_output times output), "cast", "sums", "output". chosen: why this algorithm,
    where none was declared.
    """

    total: F64
    sources: dict[str, F64]
    overflow: NDArray[np.bool_]
    algorithm: Algorithm
    kind: Kind
    gradients: dict[str, Tolerance] = field(default_factory=dict)
    chosen: str = ""

    def allows(self, got: Any, value: Any, radius: Any = 0.0) -> NDArray[np.bool_]:
        """Where `got` may come from the declared algorithm, if the exact value lies within `radius` of `value`.

        A NaN or an infinity is allowed only where overflow was predicted.
        """
        got, value, radius = (np.asarray(x, dtype=np.float64) for x in (got, value, radius))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(got - value) <= (self.total + radius) * (1 + 2.0**-50) + 2.0**-1074
        return np.asarray((near & np.isfinite(got)) | self.overflow)

    def dominant(self) -> str:
        """The source that gives most of the tolerance where it is largest."""
        finite = np.where(np.isfinite(self.total), self.total, -1.0)
        if not finite.size:
            return "none"
        worst = np.unravel_index(int(np.argmax(finite)), finite.shape)
        return max(self.sources, key=lambda name: float(self.sources[name][worst]))

    def text(self) -> str:
        """A few lines for people: size of the tolerance and what it is made of."""
        lines = [f"{self.kind} tolerance of {self.algorithm}"]
        if self.chosen:
            lines.append(f"the algorithm: {self.chosen}")
        finite = np.isfinite(self.total) & ~self.overflow
        if self.overflow.any():
            lines.append(f"overflow predicted in {int(self.overflow.sum())} of {self.overflow.size} elements")
        if finite.any():
            whole = float(self.total[finite].mean())
            lines.append(f"mean {whole:.3g}, largest {float(self.total[finite].max()):.3g}")
            for name, part in self.sources.items():
                mean = float(part[finite].mean())
                lines.append(f"  {name:<10} {mean:.3g}  {mean / whole if whole else 0:6.1%}")
        return "\n".join(lines)


def tolerance(
    q: Any,
    k: Any,
    v: Any,
    spec: Spec | None = None,
    algorithm: Algorithm | None = None,
    kind: Kind = "worst",
    *,
    grad_output: Any = None,
    mask: Any = None,
    bias: Any = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    key_lengths: Any = None,
) -> Tolerance:
    """How far the declared algorithm's output may be from exact attention, per element.

    q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or 2-D, exact as given (round them to the input format
    first; CuPy arrays are moved, the result is NumPy's); mask, bias, sink, alibi_slopes and key_lengths as in
    compute.attention, grad_output of the output's shape. algorithm: Flash(...) or Eager(...); None: Flash in the
    formats of q, k and v (compute.roundings.usual), said in the result's text.
    Source of the method: compute/bounds.md, with the any-order dot-product bound of Jeannerod and Rump (2013).

    kind: "worst" is proved; "expected" is the root mean square of a model of random roundings (its sources add up in
    quadrature); "probable" is that times √(2 ln(2N/0.001)) for N elements: exceeded by an adversary, hardly by chance.

    Raises InputError for shapes that don't fit, for an unknown kind, and for formats without an algorithm.

    >>> import numpy as np
    >>> q = k = v = np.eye(2)
    >>> t = tolerance(q, k, v, algorithm=Flash(weights="fp16", output="fp32"))
    >>> bool((t.total < 1e-3).all()), t.dominant()
    (True, 'cast')
    """
    if algorithm is not None and not isinstance(algorithm, (Flash, Eager)):
        raise InputError(f"algorithm is {algorithm!r}: expected Flash(...) or Eager(...)")
    choice("kind", kind, ("worst", "expected", "probable"))
    if spec is not None and not isinstance(spec, Spec):
        raise InputError(f"spec is a {type(spec).__name__}: expected a compute.Spec, or None")
    heads = split(
        q, k, v, spec, mask=mask, bias=bias, sink=sink, alibi_slopes=alibi_slopes, key_lengths=key_lengths
    )  # fmt: skip
    heads = heads.host()
    chosen = ""
    if algorithm is None:
        algorithm, chosen = usual(*(str(x.dtype) for x in (q, k, v)))
    parts, flags = [], []
    for head in heads:
        got, flag = forward(head, algorithm) if kind == "worst" else expected(head, algorithm)
        parts.append(got)
        flags.append(flag)
    names = ("scores", "exp", "cast", "sums", "output", "underflow")
    axes = (heads.problem.n, heads.problem.v.shape[-1])
    overflow = np.asarray(heads.join(flags, axes), dtype=bool)
    whole = heads.join([p.total if kind == "worst" else quadratic(p) for p in parts], axes)
    whole = whole * _factor(kind, whole.size)
    total = np.where(overflow, np.inf, whole)
    sources = {name: heads.join([getattr(p, name) for p in parts], axes) for name in names}
    gradients = {} if grad_output is None else _gradients(heads, algorithm, grad_output, kind)
    return Tolerance(total, sources, overflow, algorithm, kind, gradients, chosen)


def _factor(kind: Kind, size: int) -> float:
    """What "probable" multiplies a root mean square by."""
    return math.sqrt(2 * math.log(2 * max(size, 1) / MISS)) if kind == "probable" else 1.0


def _gradients(heads: Heads, algorithm: Algorithm, grad_output: Any, kind: Kind) -> dict[str, Tolerance]:
    problem = heads.problem
    n, m, d, d_v = problem.n, problem.m, problem.q.shape[-1], problem.v.shape[-1]
    shape = (*heads.shape, n, d_v)
    xp = namespace(grad_output=grad_output)
    if tuple(grad_output.shape) != shape:
        raise InputError(f"grad_output has shape {tuple(grad_output.shape)}: expected the output's, {shape}")
    grad = exact64(grad_output if xp is np else xp.asnumpy(grad_output), "grad_output").reshape(len(heads), n, d_v)
    if not np.isfinite(grad).all():
        raise InputError("grad_output has NaN or infinite values: expected finite numbers")
    model = worst_gradients.gradients if kind == "worst" else expected_gradients.gradients
    found = [model(head, algorithm, g) for head, g in zip(heads, grad, strict=True)]
    out = {}
    for name, axes in (("dq", (n, d)), ("dk", (m, d)), ("dv", (m, d_v))):
        sources = {
            source: heads.join([f[name].sources[i] for f in found], axes)
            for i, source in enumerate(worst_gradients.SOURCES)
        }
        size, overflow = (heads.join([getattr(f[name], part) for f in found], axes) for part in ("size", "overflow"))
        groups = problem.groups
        if name != "dq" and groups > 1 and not problem.flat:
            # heads of a group are added up, each sum rounded to the output format at worst
            cut = (*heads.shape[:-1], heads.shape[-1] // groups, groups, *axes)
            reach = (size + sum(sources.values())).reshape(cut).sum(axis=-3)
            extra = (groups - 1) * 2 * limits(algorithm.output).unit * reach
            if kind == "worst":
                sources = {k: x.reshape(cut).sum(axis=-3) for k, x in sources.items()}
            else:
                sources = {k: np.sqrt((x * x).reshape(cut).sum(axis=-3)) for k, x in sources.items()}
            sources["output"] = sources["output"] + (extra if kind == "worst" else 0.0)
            overflow = overflow.astype(bool).reshape(cut).any(axis=-3)
        overflow = np.asarray(overflow, dtype=bool)
        if kind == "worst":
            whole = np.asarray(sum(sources.values())) * (1 + 2.0**-45)
        else:
            whole = np.sqrt(sum(x * x for x in sources.values())) * _factor(kind, overflow.size)
        total = np.where(overflow, np.inf, whole)
        out[name] = Tolerance(total, sources, overflow, algorithm, kind)
    return out
