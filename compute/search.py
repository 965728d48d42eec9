"""Inputs that show a kernel at its worst: a search guided by where its declared algorithm rounds.

Guarantees: the error reported is proved (the exact value is enclosed by `compute.certify`); the search uses at most
about `budget` seconds beyond the kernel's own calls and the certificate. Every row of the output is tuned, and what
each attains of its bound is reported (compute.tuning says why rows that share the keys do not compete).
Does not: find the largest error there is. The guide is the rounding of the weights (Flash), of the stored scores
(Eager), or of P and dS in the backward pass: each vector is moved by a few ulp until its local rounding error has the
sign that adds up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from compute.bounds import tolerance
from compute.calls import attention, attention_backward
from compute.certificate import certify
from compute.errors import InputError
from compute.heads import F64
from compute.roundings import Algorithm, Eager, Flash, limits
from compute.spec import Spec
from compute.tuning import Inputs, Target, cases_of, draw, tune

Kernel = Callable[..., Any]
# spread of the queries, and what the kernel's own exp and sums may move a weight by: float32's, or a rough exp's
ATTEMPTS = ((1.0, 2.0**-20), (1.0, 2.0**-14), (0.25, 2.0**-20))
TARGETS = get_args(Target)
# what the target is linear in: errors are compared at entries of size 1
LINEAR = {"output": (2,), "dq": (1, 2, 3), "dk": (0, 2, 3), "dv": (3,)}


@dataclass(frozen=True)
class WorstInput:
    """q (n, d), k (m, d), v (m, d_v) and grad_output (n, d_v; None where the output is the target) in float64, numbers
    of the input format; output: what the kernel made of them; exact, radius: an enclosure of the right target.

    error: proved lower bound of the largest |output − exact|, at the entry `at`; size: product of the largest entries
    of the arrays that the target is linear in (of v, for the output); random_mean, random_largest: errors on random
    inputs of that shape, over their own sizes; shares: of each row of the target, the largest error over its
    worst-case bound of the declared algorithm; share: that at `at` (None without an algorithm).
    """

    target: Target
    q: F64
    k: F64
    v: F64
    grad_output: F64 | None
    output: F64
    exact: F64
    radius: F64
    error: float
    at: tuple[int, int]
    size: float
    random_mean: float
    random_largest: float
    share: float | None
    shares: F64 | None
    seconds: float

    @property
    def gain(self) -> float:
        """How many times the mean random error, at equal sizes."""
        return self.error / self.size / self.random_mean if self.random_mean else float("inf")

    def text(self) -> str:
        """One paragraph for people."""
        bound = ""
        if self.share is not None and self.shares is not None:
            bound = f", {self.share:.0%} of the declared algorithm's worst-case bound"
            if len(self.shares) > 1:
                bound += f" (rows: {self.shares.min():.0%} to {self.shares.max():.0%})"
        return (
            f"error {self.error:.3g} of {self.target} at row {self.at[0]}, channel {self.at[1]}: {self.gain:.0f} times "
            f"the mean error on random inputs ({self.random_mean:.2g}; largest {self.random_largest:.2g}){bound}; "
            f"{self.seconds:.1f} s"
        )


def worst_inputs(
    kernel: Kernel,
    spec: Spec | None = None,
    formats: str = "float16",
    shape: tuple[int, int, int, int] = (1, 4096, 64, 1),
    budget: float = 5.0,
    *,
    target: Target = "output",
    algorithm: Algorithm | None = None,
    seed: int = 0,
) -> WorstInput:
    """Search for inputs on which a kernel errs most.

    kernel(q, k, v) takes float64 arrays (n, d), (m, d), (m, d_v) that hold numbers of the input format, and gives the
    output (n, d_v), or, if it refuses these, the same behind two axes of 1 (batch, head); where target is "dq", "dk"
    or "dv", kernel(q, k, v, grad_output) gives that gradient, in the shape of q, k or v. spec: scale, softcap and, for
    the output, a causal corner that leaves each row its first key (windows, rotations, dropout and groups are not
    searched). formats: name of the input format. shape: (n, m, d, d_v). budget: seconds. algorithm: the declared one,
    for the guide and the shares; None: both guides are tried, and the kernel decides. seed: of the random numbers.

    Raises InputError for arguments of another kind, or a kernel whose result has another shape; what the kernel
    raises comes through.
    """
    spec = Spec() if spec is None else spec
    _check(kernel, spec, formats, budget, target, algorithm, seed)
    n, m, d, d_v = _shape(shape)
    start = time.perf_counter()
    rng = np.random.default_rng(int(seed))
    run = _Run(kernel, spec, target)
    mean, largest = _random_errors(run, formats, (n, m, d, d_v), rng, budget / 5)
    wide = formats if limits(formats).unit > 2.0**-12 else "bfloat16"
    guides: list[Algorithm] = [algorithm] if algorithm is not None else [
        Flash(weights=wide, output=wide),
        Eager(weights=wide, output=wide, scores=wide),
    ]  # fmt: skip
    best: tuple[float, Inputs, F64] | None = None
    tries = [
        (case, noise)
        for guide in guides
        for size, noise in ATTEMPTS
        for case in cases_of(target, spec, formats, (n, m, d, d_v), guide, rng, size)
    ]
    each = (budget - (time.perf_counter() - start)) * 0.7 / len(tries)
    for case, noise in tries:
        found = tune(case, formats, rng, noise, each)
        got = run(found)
        error = float(np.abs(got - run.plain(found)).max()) / _size(target, found)
        if best is None or not error <= best[0]:
            best = (error, found, got)
    assert best is not None
    return _proved(best[1], best[2], run, algorithm, mean, largest, start)


def _check(
    kernel: object, spec: object, formats: object, budget: object, target: object, algorithm: object, seed: object
) -> None:
    if not callable(kernel):
        raise InputError(f"kernel is {kernel!r}: expected a function of q, k, v (and grad_output for a gradient)")
    if not isinstance(spec, Spec):
        raise InputError(f"spec is a {type(spec).__name__}: expected a compute.Spec, or None")
    if not isinstance(formats, str):
        raise InputError(f"formats is {formats!r}: expected the name of the input format, as 'float16'")
    limits(formats)
    if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < float(budget) < math.inf:
        raise InputError(f"budget is {budget!r}: expected seconds, a finite number above 0")
    if target not in TARGETS:
        raise InputError(f"target is {target!r}: expected one of {', '.join(TARGETS)}")
    if algorithm is not None and not isinstance(algorithm, (Flash, Eager)):
        raise InputError(f"algorithm is {algorithm!r}: expected Flash(...), Eager(...) or None")
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise InputError(f"seed is {seed!r}: expected a whole number, at least 0")
    if spec.window is not None or spec.rope is not None or spec.dropout is not None or spec.groups not in (None, 1):
        raise InputError("spec has a window, rope, dropout or groups: expected none of them, as they are not searched")
    if spec.causal != "none" and target != "output":
        raise InputError(f"spec is causal and target is {target!r}: expected causal='none' for a gradient")


def _shape(shape: object) -> tuple[int, int, int, int]:
    whole = isinstance(shape, (tuple, list)) and all(isinstance(s, Integral) and not isinstance(s, bool) for s in shape)
    if not isinstance(shape, (tuple, list)) or not whole or len(shape) != 4 or any(s < 1 for s in shape):
        raise InputError(f"shape is {shape!r}: expected (n, m, d, d_v), each a whole number of at least 1")
    n, m, d, d_v = (int(s) for s in shape)
    return n, m, d, d_v


@dataclass
class _Run:
    """The kernel, and float64 attention good enough to compare candidates by.

    batched: whether it is given (1, 1, …) arrays; found out at the first call.
    """

    kernel: Kernel
    spec: Spec
    target: Target
    batched: bool | None = None

    def _call(self, inputs: Inputs) -> Any:
        given = inputs if self.target != "output" else inputs[:3]
        if self.batched is None:
            try:
                result = self.kernel(*(x.copy() for x in given))
            except Exception as error:
                try:
                    self.kernel(*(x[None, None].copy() for x in given))
                except Exception:
                    raise error from None  # what it says of the shape that is documented
                self.batched = True
            else:
                self.batched = False
                return result
        if not self.batched:
            return self.kernel(*(x.copy() for x in given))
        result = self.kernel(*(x[None, None].copy() for x in given))
        return result[0, 0] if getattr(result, "ndim", 0) == 4 else result

    def __call__(self, inputs: Inputs) -> F64:
        result = self._call(inputs)
        try:
            got = np.asarray(result, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the kernel gave a {type(result).__name__}: expected an array of numbers") from error
        q, k, v, go = inputs
        shape = {"output": go, "dq": q, "dk": k, "dv": v}[self.target].shape
        if got.shape != shape:
            raise InputError(f"the kernel gave shape {got.shape}: expected {shape}, that of {self.target}")
        return got

    def plain(self, inputs: Inputs) -> F64:
        q, k, v, go = inputs
        if self.target == "output":
            return np.asarray(attention(q, k, v, self.spec))
        return np.asarray(getattr(attention_backward(go, q, k, v, self.spec), self.target))


def _size(target: Target, inputs: Inputs) -> float:
    return math.prod(float(np.abs(inputs[i]).max()) for i in LINEAR[target]) or 1.0


def _random_errors(
    run: _Run, fmt: str, shape: tuple[int, int, int, int], rng: np.random.Generator, seconds: float
) -> tuple[float, float]:
    """Mean and largest error on random inputs, at entries of size 1 of what the target is linear in."""
    n, m, d, d_v = shape
    errors, entries, end = [], 0, time.perf_counter() + seconds
    for _ in range(200):
        inputs = draw(rng, fmt, n, d), draw(rng, fmt, m, d), draw(rng, fmt, m, d_v), draw(rng, fmt, n, d_v)
        error = np.abs(run(inputs) - run.plain(inputs))
        errors.append(error[np.isfinite(error)] / _size(run.target, inputs))
        entries += errors[-1].size
        if time.perf_counter() > end and entries >= 8:
            break
    joined = np.concatenate(errors)
    return (float(joined.mean()), float(joined.max())) if joined.size else (0.0, 0.0)


def _proved(
    inputs: Inputs,
    got: F64,
    run: _Run,
    algorithm: Algorithm | None,
    mean: float,
    largest: float,
    start: float,
) -> WorstInput:
    q, k, v, go = inputs
    target = run.target
    grad = None if target == "output" else go
    found = getattr(certify(q, k, v, run.spec, tier="abs", grad_output=grad), target)
    error = np.maximum(np.abs(got - found.mid) * (1 - 2.0**-50) - found.rad, 0.0)
    error = np.where(np.isfinite(got), error, np.inf)
    row, channel = divmod(int(np.argmax(error)), error.shape[1])
    share, shares = None, None
    if algorithm is not None:
        tol = tolerance(q, k, v, run.spec, algorithm, grad_output=grad)
        bound = (tol if target == "output" else tol.gradients[target]).total
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.where(error > 0, error / bound, 0.0)
        share, shares = float(part[row, channel]), part.max(axis=1)
    return WorstInput(
        target, q, k, v, grad, got, found.mid, found.rad, float(error[row, channel]), (row, channel),
        _size(target, inputs), mean, largest, share, shares, time.perf_counter() - start,
    )  # fmt: skip
