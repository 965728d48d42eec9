"""The rule for mean squared gradients at random inputs.

Guarantees: `Proved` means that the stated right side has, observable by observable, the coefficients that the traces in
`derive.gradient_words` give, as rational functions of n, d_k, d_model and s.
Does not: evaluate them; that is the oracle's part.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.gradient_words import Key, from_one_input, independent, same
from derive.oracle_rules import guarded, with_stated_error
from derive.row_nodes import Gradient, HeadMean, SelfGradient, SelfMean
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

_KINDS = {False: ("q", "k", "v", "S"), True: ("q", "k", "v", "S", "W_Q", "W_K")}


@rule("gradient-traces")
@guarded
def gradient_traces(step: Step) -> Verdict:
    """Mean squared gradients are traces of J, the values' and the keys' Gram matrices; Wick pairing gives their means.

    Given the query, a row sees one direction of the keys only; everything across it is an independent Gaussian matrix,
    of which a Wishart matrix remains: E B = mI, E BAB = m²A + mAᵀ + m tr(A) I. See `derive.gradient_words`.
    """
    node = step.lhs
    shared = isinstance(node, SelfGradient)
    if not isinstance(node, Gradient) or node.args[0].name not in _KINDS[shared]:
        return Verdict.unknown("expected Gradient(q | k | v | S, …), or SelfGradient of these, W_Q or W_K, on the left")
    of, sizes = node.args[0].name, node.args[1:]
    known = from_one_input(of, *sizes) if shared else independent(of, *sizes)
    try:
        stated = _read(step.rhs, SelfMean if shared else HeadMean, sizes)
    except StatementError as error:
        return Verdict.unknown(str(error))
    wrong = same(known, stated)
    if wrong:
        return Verdict.refuted(wrong[0], differences=wrong)
    scope = "all n, d_k, s and d_model, for keys of other tokens" if shared else "all n, d_k and s"
    return with_stated_error(step, Verdict.proved(scope, checkers=["coefficients of the traces"]))


def _read(side: Any, kind: Any, sizes: tuple[Any, ...]) -> dict[Key, Any]:
    out: dict[Key, Any] = {}
    expanded = sympy.expand(side)
    for term in sympy.Add.make_args(expanded):
        means = [f for f in sympy.Mul.make_args(term) if isinstance(f, kind)]
        if len(means) != 1:
            raise StatementError(f"{term} is not a number times one mean of the setting of the left side")
        (mean,) = means
        body, n, d, s, *rest = mean.args
        along = row = 0
        if kind is SelfMean:
            width, along, row = rest
            if width != sizes[3]:
                raise StatementError(f"{mean}: the width must be {sizes[3]}")
        extra = sympy.expand(d - sizes[1])
        if (n, s) != (sizes[0], sizes[2]) or not all(x in (0, 2) for x in (extra, along, row)):
            raise StatementError(f"{mean} is a mean in another setting than the left side")
        key = (body, int(along), int(row), int(extra))
        out[key] = out.get(key, 0) + term / mean
    return out
