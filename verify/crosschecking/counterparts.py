"""What `compute` says for the quantity of a claim, and how far float64 may take it from the exact value.

Guarantees: for each claim named here, a call of `compute` on the inputs of the cross-check, and a worst-case bound on
its error from `PlainSteps` (or a derivation beside it). Arrays come back over the claim's free indices, in order.
Does not: use the claim's own formula: that is what it is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from verify.crosschecking.arithmetic import Rounded
from verify.crosschecking.draws import Inputs
from verify.crosschecking.plain_steps import Matrix, PlainSteps, exact_matrix, product, quotient, transposed

Answer = tuple[Any, Any]
Counterpart = Callable[[Inputs], Answer]
UNIT = 2.0**-53


def _arithmetic() -> Rounded:
    context = mpmath.MPContext()
    context.dps = 60
    return Rounded(context)


class _Run:
    """One call of compute beside the same algorithm with rounding bounds.

    q, k, v: arrays; scale None is 1/√d_k. tree: matrices of pairs in place of exact q, k, v (projections that were
    rounded themselves).
    """

    def __init__(self, q: Any, k: Any, v: Any, *, scale: float | None = None, tree: Any = None, **told: Any) -> None:
        import compute

        self.a = _arithmetic()
        self.told = told
        softcap = told.pop("softcap", None)
        self.spec = compute.Spec(scale=scale, softcap=softcap, causal=told.pop("causal", "none"))
        self.q, self.k, self.v = q, k, v
        queries, keys, values = tree or (exact_matrix(self.a, x) for x in (q, k, v))
        keep = told.get("mask")
        if self.spec.causal != "none":
            corner = k.shape[0] - q.shape[0] if self.spec.causal == "bottom-right" else 0
            keep = np.tri(q.shape[0], k.shape[0], corner, dtype=bool)
        bias = told.get("bias")
        self.steps = PlainSteps(
            self.a,
            queries,
            keys,
            values,
            self._tau(q.shape[1], scale),
            bias=None if bias is None else exact_matrix(self.a, np.broadcast_to(bias, (q.shape[0], k.shape[0]))),
            keep=keep,
            softcap=softcap,
            sink=told.get("sink"),
        )

    def _tau(self, d_k: int, scale: float | None) -> Any:
        if scale is not None:
            return self.a.exact(scale)
        return quotient(self.a, self.a.exact(1), self.a.function("sqrt", self.a.exact(d_k)))

    def output(self) -> Answer:
        import compute

        return compute.attention(self.q, self.k, self.v, self.spec, **self.told), bounds(self.steps.output)

    def lse(self) -> Answer:
        import compute

        _, lse = compute.attention(self.q, self.k, self.v, self.spec, return_lse=True, **self.told)
        return lse, bounds([self.steps.lse])[0]

    def gradients(self, grad: Any, grad_lse: Any = None) -> tuple[Any, dict[str, Any]]:
        import compute

        got = compute.attention_backward(grad, self.q, self.k, self.v, self.spec, grad_lse=grad_lse, **self.told)
        lse = None if grad_lse is None else [self.a.exact(float(x)) for x in grad_lse]
        return got, self.steps.backward(exact_matrix(self.a, grad), lse)


def bounds(m: Matrix) -> Any:
    """The bounds of a matrix of pairs, rounded up."""
    return np.array([[float(e) * (1 + 4 * UNIT) for _, e in row] for row in m])


# -- attention of Q, K, V -------------------------------------------------------------------------------------------


def _output(drawn: Inputs) -> Answer:
    return _Run(*(drawn.arrays[n] for n in "QKV")).output()


def _gradient(name: str) -> Counterpart:
    def run(drawn: Inputs) -> Answer:
        got, steps = _Run(*(drawn.arrays[n] for n in "QKV")).gradients(drawn.arrays["dZ"])
        return getattr(got, name), bounds(steps[name])

    return run


def _scores_gradient(drawn: Inputs) -> Answer:
    """dS' is the gradient of an additive bias, here of zeros."""
    q, k, v = (drawn.arrays[n] for n in "QKV")
    got, steps = _Run(q, k, v, bias=np.zeros((len(q), len(k)))).gradients(drawn.arrays["dZ"])
    return got.dbias, bounds(steps["dbias"])


def _bias_gradient(drawn: Inputs) -> Answer:
    got, steps = _Run(*(drawn.arrays[n] for n in "QKV"), bias=drawn.arrays["B"]).gradients(drawn.arrays["dZ"])
    return got.dbias, bounds(steps["dbias"])


def _scale_gradient(drawn: Inputs) -> Answer:
    scale = float(drawn.arrays["tau"][0])
    got, steps = _Run(*(drawn.arrays[n] for n in "QKV"), scale=scale).gradients(drawn.arrays["dZ"])
    return np.asarray(got.dscale), np.asarray(float(steps["dscale"][1]) * (1 + 4 * UNIT))


def _lse_gradient_q(drawn: Inputs) -> Answer:
    run = _Run(*(drawn.arrays[n] for n in "QKV"))
    got, steps = run.gradients(drawn.arrays["dZ"], drawn.arrays["dlse"])
    return got.dq, bounds(steps["dq"])


# -- self-attention from one X --------------------------------------------------------------------------------------


def _projected(drawn: Inputs) -> _Run:
    """Projections round before attention sees them: their bounds travel on."""
    x, weights = drawn.arrays["X"], [drawn.arrays[f"W_{n}"] for n in "QKV"]
    a = _arithmetic()
    pairs = [product(a, exact_matrix(a, x), exact_matrix(a, w)) for w in weights]
    return _Run(*(x @ w for w in weights), tree=pairs)


def _self_attention(drawn: Inputs) -> Answer:
    return _projected(drawn).output()


def _weight_gradient(name: str) -> Counterpart:
    """dW = Xᵀ d(XW)."""

    def run(drawn: Inputs) -> Answer:
        made = _projected(drawn)
        got, steps = made.gradients(drawn.arrays["dZ"])
        x = drawn.arrays["X"]
        allowed = product(made.a, transposed(exact_matrix(made.a, x)), steps[name])
        return x.T @ getattr(got, name), bounds(allowed)

    return run


def _token_gradient(drawn: Inputs) -> Answer:
    """dX = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ."""
    made = _projected(drawn)
    got, steps = made.gradients(drawn.arrays["dZ"])
    total, parts = 0.0, []
    for name, weight in (("dq", "W_Q"), ("dk", "W_K"), ("dv", "W_V")):
        w = drawn.arrays[weight]
        total = total + getattr(got, name) @ w.T
        parts.append(product(made.a, steps[name], transposed(exact_matrix(made.a, w))))
    summed = [[made.a.add(list(pairs)) for pairs in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]
    return total, bounds(summed)


# -- one row of scores x: a query of 1 and keys of x give exactly these scores ------------------------------------


def _row(x: Any, v: Any, **told: Any) -> _Run:
    return _Run(np.ones((1, 1)), x[:, None], v, scale=1.0, **told)


def _weights_of_row(drawn: Inputs) -> Answer:
    x = drawn.arrays["x"]
    got, allowed = _row(x, np.eye(len(x))).output()
    return got[0], allowed[0]


def _log_sum_exp(drawn: Inputs) -> Answer:
    x = drawn.arrays["x"]
    got, allowed = _row(x, np.zeros((len(x), 1))).lse()
    return got[0], allowed[0]


def _row_sum(drawn: Inputs) -> Answer:
    x = drawn.arrays["x"]
    got, allowed = _row(x, np.ones((len(x), 1))).output()
    return got[0, 0], allowed[0, 0]


def _softmax_jacobian(drawn: Inputs) -> Answer:
    """Row i of the Jacobian is the gradient of weight i by the keys."""
    x = drawn.arrays["x"]
    rows, allowed = [], []
    for i in range(len(x)):
        got, steps = _row(x, np.eye(len(x))).gradients(np.eye(len(x))[i : i + 1])
        rows.append(got.dk[:, 0])
        allowed.append(bounds(steps["dk"])[:, 0])
    return np.array(rows), np.array(allowed)


def _row_output(drawn: Inputs, **told: Any) -> Answer:
    got, allowed = _row(drawn.arrays["x"], drawn.arrays["V"], **told).output()
    return got[0], allowed[0]


def _removed_key(drawn: Inputs) -> Answer:
    n = len(drawn.arrays["x"])
    answers = [
        _row_output(drawn, mask=(np.arange(n) != a)[None]) if n > 1 else (np.zeros(1), np.ones(1)) for a in range(n)
    ]
    return np.array([g for g, _ in answers]), np.array([b for _, b in answers])


def _sink_output(drawn: Inputs) -> Answer:
    return _row_output(drawn, sink=float(drawn.arrays["sink"][0]))


def _sink_gradient(drawn: Inputs) -> Answer:
    """dsink = −α_sink·Σ_c Z dZ, computed as −(own weight)·Σ_j P dP."""
    run = _row(drawn.arrays["x"], drawn.arrays["V"], sink=float(drawn.arrays["sink"][0]))
    got, _ = run.gradients(drawn.arrays["dZ"][None])
    a, steps = run.a, run.steps
    own = quotient(a, a.function("exp", a.exact(run.told["sink"])), a.function("exp", steps.lse[0]))
    dp = product(a, exact_matrix(a, drawn.arrays["dZ"][None]), transposed(steps.v))
    inner = a.add([a.mul([x, y]) for x, y in zip(steps.weights[0], dp[0], strict=True)])
    return np.asarray(got.dsink).reshape(()), np.asarray(float(a.mul([own, inner])[1]) * (1 + 4 * UNIT))


def _row_gradient(drawn: Inputs, **told: Any) -> Answer:
    got, steps = _row(drawn.arrays["x"], drawn.arrays["V"], **told).gradients(drawn.arrays["dZ"][None])
    return got.dk[:, 0], bounds(steps["dk"])[:, 0]


def _softcap_gradient(drawn: Inputs) -> Answer:
    return _row_gradient(drawn, softcap=drawn.scalars["cap"])


def _row_value_gradient(drawn: Inputs) -> Answer:
    got, steps = _row(drawn.arrays["x"], drawn.arrays["V"]).gradients(drawn.arrays["dZ"][None])
    return got.dv, bounds(steps["dv"])


# -- observables of a row -------------------------------------------------------------------------------------------


def _observed(name: str, then: Callable[[float], float] = lambda y: y) -> Counterpart:
    """An observable from gaps: a gap g rounds by u·g and exp by 4u, so weights are within (2g + 8)u of their size; sums
    of n positive terms add n·u, and at most sixteen such factors meet: 16(2g + n + 8)u of the value, once more for
    what `then` does with it (a square, or 1 minus it, each at most twice as much of at most 1)."""

    def run(drawn: Inputs) -> Answer:
        from compute.observables import OBSERVABLES

        x = drawn.arrays["x"]
        value = float(OBSERVABLES[name](x))
        allowed = 32 * (2 * float(np.ptp(x)) + len(x) + 8) * UNIT * max(abs(value), abs(then(value))) + 2.0**-1074
        return np.asarray(then(value)), np.asarray(allowed)

    return run


COUNTERPARTS: dict[str, Counterpart] = {
    "output.matrix": _output,
    "projections.self_attention": _self_attention,
    **{f"gradients.{n}{form}": _gradient(n) for n in ("dq", "dk", "dv") for form in ("", "_opened")},
    "gradients.dscaled": _scores_gradient,
    "gradients.dbias": _bias_gradient,
    "gradients.dscale": _scale_gradient,
    "gradients.lse_dq": _lse_gradient_q,
    **{f"gradients.dw{n}{form}": _weight_gradient(f"d{n}") for n in "qkv" for form in ("", "_opened")},
    **{f"gradients.dx{form}": _token_gradient for form in ("", "_opened")},
    "softmax.rows_sum": _row_sum,
    "softmax.jacobian": _softmax_jacobian,
    "softmax.lse_gradient": _weights_of_row,
    "softmax.trace": _observed("participation", lambda y: 1 - y),
    "softmax.frobenius": _observed("jacobian_norm", lambda y: y * y),
    "softmax.entropy": _observed("entropy"),
    "online.lse": _log_sum_exp,
    "online.weights_from_lse": _weights_of_row,
    "online.backward": _row_gradient,
    "online.backward_values": _row_value_gradient,
    "masks.removed_key": _removed_key,
    "masks.sink_output": _sink_output,
    "masks.sink_gradient": _sink_gradient,
    "masks.softcap_gradient": _softcap_gradient,
}
