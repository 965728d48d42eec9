"""The first checker and `prove`: what each rewriting is for, what must not pass, and how bad input is refused."""

from typing import Any

import pytest
import sympy
from sympy import Eq, KroneckerDelta, Piecewise, Rational, Sum, exp, log, sqrt, tanh

import derive
from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, Positive, ZeroOne
from derive.errors import CheckersDisagree, DeriveError, StatementError
from derive.language import Diff, array, index, scalar, size, total
from derive.prover import coincidences, first_checker, prove
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind

n, m, d = size("n"), size("m"), size("d")
i, j, k, l, a, b = (index(s) for s in "ijklab")
x, y, v = array("x", n), array("y", n), array("v", n)
A, B, C = array("A", n, n), array("B", n, n), array("C", n, m)
s, t = scalar("s"), scalar("t")
pos = scalar("pos", positive=True)
IN = {ix: InRange(ix, 0, n - 1) for ix in (i, j, k, a, b)}


def part(low: Any, high: Any, shift: Any = 0) -> Any:
    return Sum(exp(x[l] - shift), (l, low, high))


ROW = part(0, n - 1)

TRUE: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "renamed": (total(x[i], i, n), total(x[j], j, n), ()),
    "square of a sum": (total(x[i], i, n) ** 2, total(total(x[i] * x[j], i, n), j, n), ()),
    "delta": (total(KroneckerDelta(i, j) * x[j], j, n), x[i], (IN[i],)),
    "delta twice": (total(total(KroneckerDelta(i, j) * A[i, j], i, n), j, n), total(A[k, k], k, n), ()),
    "trace of a product": (
        total(total(A[i, j] * B[j, i], i, n), j, n),
        total(total(B[i, j] * A[j, i], j, n), i, n),
        (),
    ),
    "exchange, triangle": (
        Sum(A[i, j], (j, 0, i), (i, 0, n - 1)),
        Sum(A[i, j], (i, j, n - 1), (j, 0, n - 1)),
        (),
    ),
    "triangles joined": (
        Sum(A[i, j], (j, 0, i), (i, 0, n - 1)) + Sum(A[i, j], (j, i + 1, n - 1), (i, 0, n - 1)),
        total(total(A[i, j], i, n), j, n),
        (),
    ),
    "shift": (Sum(x[j + 1], (j, 0, n - 2)), Sum(x[j], (j, 1, n - 1)), (AtLeast(n, 1),)),
    "reversed": (total(x[n - 1 - j], j, n), total(x[j], j, n), ()),
    "split": (Sum(x[j], (j, 0, m - 1)) + Sum(x[j], (j, m, n - 1)), total(x[j], j, n), (Ordered(0, m, n),)),
    "difference of ranges": (
        total(x[j], j, n) - Sum(x[j], (j, 0, m - 1)),
        Sum(x[j], (j, m, n - 1)),
        (Ordered(0, m, n),),
    ),
    "last term": (Sum(x[j], (j, 0, n - 2)) + x[n - 1], total(x[j], j, n), (AtLeast(n, 1),)),
    "first term": (x[0] + Sum(x[j], (j, 1, n - 1)), total(x[j], j, n), (AtLeast(n, 1),)),
    "sum of squares": (total(j**2, j, n), n * (n - 1) * (2 * n - 1) / 6, ()),
    "double count": (Sum(1, (j, 0, i), (i, 0, n - 1)), n * (n + 1) / 2, ()),
    "weights add up": (total(exp(x[i]) / ROW, i, n), 1, (AtLeast(n, 1),)),
    "causal weights add up": (
        Sum(exp(A[i, j]) / Sum(exp(A[i, l]), (l, 0, i)), (j, 0, i), (i, 0, n - 1)),
        n,
        (),
    ),
    "exp(a + b)": (exp(x[i] + s) / part(0, n - 1, -s), exp(x[i]) / ROW, (IN[i],)),
    "exp(log)": (exp(x[i] - log(ROW)), exp(x[i]) / ROW, (IN[i],)),
    "log of a shifted sum": (log(part(0, n - 1, s)) + s, log(ROW), (AtLeast(n, 1),)),
    "two blocks": (
        (exp(s) * part(0, m - 1, s) + exp(t) * part(m, n - 1, t)) / ROW,
        1,
        (Ordered(0, m, n), AtLeast(n, 1)),
    ),
    "common denominator": (1 / pos - 1 / (pos + ROW), ROW / (pos * (pos + ROW)), ()),
    "common denominator under a sum": (
        total(1 / (pos + exp(x[i])) + exp(x[i]) / (pos * (pos + exp(x[i]))), i, n),
        n / pos,
        (),
    ),
    "sigmoid": (1 / (1 + exp(-s)) + 1 / (1 + exp(s)), 1, ()),
    "roots": (total(x[i], i, n) / sqrt(d) * sqrt(d), total(x[i], i, n), (AtLeast(d, 1),)),
    "root of twelve": (sqrt(12 * pos), 2 * sqrt(3) * sqrt(pos), ()),
    "odd function": (tanh(-x[i]) + tanh(x[i]), 0, (IN[i],)),
    "mask squared": (array("M", n)[i] ** 2 * x[i], array("M", n)[i] * x[i], (IN[i], ZeroOne(array("M", n)))),
    "cases": (total(Piecewise((A[i, j], j <= i), (0, True)), j, n), Sum(A[i, j], (j, 0, i)), (IN[i],)),
    "case inside exp": (
        total(exp(Piecewise((x[j] + s, Eq(j, a)), (x[j], True))), j, n),
        ROW + (exp(s) - 1) * exp(x[a]),
        (IN[a],),
    ),
    "distinct indices": (KroneckerDelta(i, j) * x[i], 0, (IN[i], IN[j], Distinct(i, j))),
    "flattened heads": (
        Sum(array("Z", n * m)[i * m + j], (j, 0, m - 1), (i, 0, n - 1)),
        Sum(array("Z", n * m)[i * m + j], (i, 0, n - 1), (j, 0, m - 1)),
        (),
    ),
    "derivative of a sum of squares": (Diff(total(x[i] ** 2, i, n), x[a]), 2 * x[a], (IN[a],)),
    "derivative named as the binder": (Diff(total(x[i] ** 2, i, n), x[i]), 2 * x[i], (IN[i],)),
    "derivative of log-sum-exp": (Diff(log(ROW), x[a]), exp(x[a]) / ROW, (IN[a],)),
    "softmax Jacobian": (
        Diff(exp(x[i]) / ROW, x[a]),
        exp(x[i]) / ROW * (KroneckerDelta(i, a) - exp(x[a]) / ROW),
        (IN[i], IN[a]),
    ),
    "Hessians are symmetric": (
        Diff(Diff(log(ROW), x[a]), x[b]),
        Diff(Diff(log(ROW), x[b]), x[a]),
        (IN[a], IN[b]),
    ),
    "chain rule through tanh": (
        Diff(total(tanh(x[i]) * y[i], i, n), x[a]),
        (1 - tanh(x[a]) ** 2) * y[a],
        (IN[a],),
    ),
    "through a definition": (
        Diff(total(v[i] ** 2, i, n), x[a]),
        2 * v[a] * y[a],
        (IN[a], Defined(v, (i,), x[i] * y[i])),
    ),
    "a defined array as variable": (
        Diff(total(v[i] * x[i], i, n), v[a]),
        x[a],
        (IN[a], Defined(v, (i,), x[i] * y[i])),
    ),
}


T4 = array("T", size("N"), size("h"), n, m)
DIRECTION = array("U", n)
b4, h4, c4 = index("e"), index("g"), index("c")
ANY_RANK = (InRange(b4, 0, size("N") - 1), InRange(h4, 0, size("h") - 1), InRange(c4, 0, m - 1), IN[i], IN[a])
TRUE |= {
    "batch and heads": (
        total(exp(T4[b4, h4, i, j]) / total(exp(T4[b4, h4, i, l]), l, m), j, m),
        1,
        (*ANY_RANK, AtLeast(m, 1)),
    ),
    "gradient at rank four": (
        Diff(total(total(T4[b4, h4, i, j] ** 2, j, m), i, n), T4[b4, h4, a, c4]),
        2 * T4[b4, h4, a, c4],
        ANY_RANK,
    ),
    "vector-Jacobian product": (
        Diff(total(y[i] * exp(x[i]) / ROW, i, n), x[a]),
        exp(x[a]) / ROW * (y[a] - total(y[i] * exp(x[i]) / ROW, i, n)),
        (IN[a],),
    ),
    "Jacobian-vector product": (
        total(Diff(exp(x[i]) / ROW, x[k]) * DIRECTION[k], k, n),
        exp(x[i]) / ROW * (DIRECTION[i] - total(DIRECTION[k] * exp(x[k]) / ROW, k, n)),
        (IN[i],),
    ),
    "Hessian-vector product": (
        Diff(total(Diff(log(ROW), x[k]) * DIRECTION[k], k, n), x[a]),
        exp(x[a]) / ROW * (DIRECTION[a] - total(DIRECTION[k] * exp(x[k]) / ROW, k, n)),
        (IN[a],),
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_statements_are_proved(name: str) -> None:
    lhs, rhs, assumptions = TRUE[name]
    verdict = prove(lhs, rhs, assumptions)
    assert verdict.is_proved, str(verdict)
    assert verdict.evidence["checkers"] == ("normal form", "modular")


FALSE: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "captured: the square's indices tied": (total(x[i], i, n) ** 2, total(x[i] * x[i], i, n), ()),
    "captured: a free index bound": (total(A[i, j], j, n), total(A[j, j], j, n), (IN[i],)),
    "captured: the normaliser's index": (
        exp(A[i, j]) / total(exp(A[i, l]), l, n),
        exp(A[i, j]) / total(exp(A[l, j]), l, n),
        (IN[i], IN[j]),
    ),
    "captured by the derivative": (Diff(total(x[i] ** 2, i, n), x[i]), total(2 * x[i], i, n), (IN[i],)),
    "captured: nested normalisers": (
        total(exp(A[i, j]) / total(exp(A[i, l]), l, n) * x[j], j, n),
        total(exp(A[i, j]) / total(exp(A[j, l]), l, n) * x[j], j, n),
        (IN[i],),
    ),
    "transposed": (total(A[i, j] * x[j], j, n), total(A[j, i] * x[j], j, n), (IN[i],)),
    "one entry too many": (Sum(x[j], (j, 0, n - 2)), total(x[j], j, n), (AtLeast(n, 1),)),
    "triangle without the diagonal": (
        Sum(A[i, j], (j, 0, i), (i, 0, n - 1)),
        Sum(A[i, j], (i, j + 1, n - 1), (j, 0, n - 1)),
        (),
    ),
    "rank-1 term dropped": (
        Diff(exp(x[i]) / ROW, x[a]),
        exp(x[i]) / ROW * KroneckerDelta(i, a),
        (IN[i], IN[a]),
    ),
    "delta dropped": (Diff(x[i] ** 2, x[a]), 2 * x[i], (IN[i], IN[a])),
    "sizes mixed up": (total(1, i, n), m, ()),
    "exp of a product": (exp(s * t), exp(s) * exp(t), ()),
    "log of a sum": (log(pos + 1), log(pos), ()),
    "root of a square": (sqrt(s**2 + 1), s, ()),
    "mask where none is": (x[i] ** 2, x[i], (IN[i],)),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_statements_are_refuted_with_a_witness(name: str) -> None:
    lhs, rhs, assumptions = FALSE[name]
    assert not first_checker(lhs, rhs, assumptions).zero
    verdict = prove(lhs, rhs, assumptions)
    assert verdict.kind is Kind.REFUTED, str(verdict)
    assert verdict.evidence["witness"] is not None


# Statements whose side condition is taken away: (lhs, rhs, what remains, what is missing).
NEEDED: dict[str, tuple[Any, Any, tuple[Any, ...], Any]] = {
    "non-empty row": (total(exp(x[i]) / ROW, i, n), 1, (), AtLeast(n, 1)),
    "positive sum": (total(y[i] / total(y[l], l, n), i, n), 1, (), Positive(total(y[l], l, n))),
    "positive scalar": (1 / s - 1 / (s + 1), 1 / (s * (s + 1)), (), Positive(s)),
    "the split's place": (
        Sum(j * s, (j, 0, m - 1)) + Sum(j * s, (j, m, n - 1)),
        Sum(j * s, (j, 0, n - 1)),
        (),
        Ordered(0, m, n),
    ),
    "d is not 0 under an empty sum": (total(s / d, i, d), s, (), AtLeast(d, 1)),
    "d is not 0 in a root": (total((s / sqrt(d)) ** 2, i, d), s**2, (), AtLeast(d, 1)),
    "log of a row": (log(part(0, n - 1, s)) + s, log(ROW), (), AtLeast(n, 1)),
    "distinct": (KroneckerDelta(i, j) * x[i], 0, (IN[i], IN[j]), Distinct(i, j)),
    "zero or one": (x[i] ** 2, x[i], (IN[i],), ZeroOne(x)),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_side_condition_is_never_read_off_the_expression(name: str) -> None:
    lhs, rhs, remaining, condition = NEEDED[name]
    assert first_checker(lhs, rhs, (*remaining, condition)).zero, "true with its condition"
    assert not first_checker(lhs, rhs, remaining).zero
    assert not prove(lhs, rhs, remaining).is_proved


def test_a_stated_sign_reaches_no_further_than_its_range() -> None:
    """y > 0 from the second entry on says nothing of the first; what is stated of the statement's i is of that i."""
    later = (InRange(j, 1, n - 1), Positive(y[j]))
    assert first_checker(Sum(y[k] / y[k] ** 2 * y[k], (k, 1, n - 1)), n - 1, (*later, AtLeast(n, 1))).zero
    assert not first_checker(total(y[k] ** 2 / total(y[l], l, n), k, n), 0, later).zero
    assert first_checker(total(1 / y[l], l, n), total(1 / y[k], k, n), later).missing
    here = (IN[i], Positive(y[i]))
    assert first_checker(y[i] * (1 / (y[i] + y[i] ** 2)), 1 / (1 + y[i]), here).zero
    assert first_checker(y[i] * total(1 / (1 + y[l]), l, n), y[i] * total(1 / (1 + y[k]), k, n), here).missing
    every = (IN[j], Positive(y[j]))
    assert first_checker(total(1 / (1 + y[l]), l, n), total(1 / (1 + y[k]), k, n), every).zero
    apart = (IN[i], IN[j], Positive(y[j]), Distinct(i, j))
    assert first_checker(y[i] + total(1 / (1 + y[l]), l, n), y[i] + total(1 / (1 + y[k]), k, n), apart).missing


def test_a_scalar_named_like_a_constant_is_not_the_constant() -> None:
    assert not first_checker(scalar("e"), sympy.E).zero
    assert not first_checker(scalar("pi"), sympy.pi).zero


def test_the_missing_condition_is_named() -> None:
    verdict = prove(total(exp(x[i]) / ROW, i, n) * s, s, ())
    assert verdict.kind in (Kind.UNKNOWN, Kind.REFUTED)
    reason = first_checker(1 / total(y[i], i, n), 1 / total(y[j], j, n)).reason
    assert "Positive(" in reason
    assert "AtLeast" in reason


BAD: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "unbound index": (x[i], (), "unbound index i"),
    "unbound index in a value": (s * i, (), "unbound index i"),
    "mixed sizes": (total(x[i], i, m), (), "mixed sizes: index i of x\\[i\\]"),
    "index past the end": (total(x[i + 1], i, n), (), "mixed sizes: index i \\+ 1"),
    "array without a shape": (total(sympy.IndexedBase("w")[i], i, n), (), "no shape"),
    "sum without a range": (sympy.Expr.__new__(Sum, x[i], sympy.Tuple(i)), (), "without a range"),
    "infinite range": (Sum(exp(-i * s), (i, 0, sympy.oo)), (), "not finite"),
    "unsupported function": (sympy.zeta(s), (), "unsupported function or number zeta"),
    "unsupported exponent": (pos**s, (), "unsupported exponent s"),
    "rounded number": (s * sympy.Float("0.1"), (), "rounded number"),
    "SymPy's own derivative": (sympy.Derivative(exp(s), s), (), "unsupported function or number Derivative"),
    "one name for two things": (total(x[i], i, n) + scalar("x"), (), "named x"),
    "one name, two symbols": (scalar("n") + total(x[i], i, n), (), "named n"),
    "binder that is no integer": (Sum(s, (s, 0, n - 1)), (), "not an integer"),
    "derivative by a size": (Diff(total(x[i], i, n), n), (), "differentiates by n"),
    "derivative of an unknown function": (Diff(sympy.gamma(pos * x[i] ** 2 + 1), x[i]), (IN[i],), "no derivative"),
    "a definition through itself": (v[i], (IN[i], Defined(v, (i,), v[i] + 1)), "itself"),
    "an open case": (Piecewise((s, i < 1)), (IN[i],), "case open"),
    "derivative by a mask": (Diff(total(x[i] ** 2, i, n), x[a]), (IN[a], ZeroOne(x)), "only 0 or 1"),
    "a name that is no name": (scalar("a*b") * s, (), "no name here"),
    "nothing is positive": (s, (Positive(s - s),), "can't be positive"),
    "imaginary": (sympy.I * s, (), "unsupported function or number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_the_sub_expression(name: str) -> None:
    expr, assumptions, message = BAD[name]
    with pytest.raises(StatementError, match=message):
        first_checker(expr, 0, assumptions)


def test_text_is_never_evaluated() -> None:
    with pytest.raises((sympy.SympifyError, StatementError)):
        prove("__import__('os').getcwd()", 0)  # a string is no statement


def test_the_public_name() -> None:
    assert derive.prove is prove


def test_disagreement_of_the_checkers_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from derive import prover

    monkeypatch.setattr(prover, "first_checker", lambda *_, **__: prover.FirstAnswer(True))
    with pytest.raises(CheckersDisagree, match="fault of attnproof"):
        prove(total(x[i], i, n), total(2 * x[i], i, n))


def test_true_but_not_shown_is_exact_at_sizes() -> None:
    """Two factorisations that the normal form doesn't find are not called proved, and not false."""
    both = 1 / ((pos + 1) * (pos + 2)) + 1 / ((pos + 2) * (pos + 3))
    once = 2 / ((pos + 1) * (pos + 3))
    verdict = prove(both, once)
    assert verdict.kind in (Kind.PROVED, Kind.EXACT_AT_SIZES)


def test_an_opaque_softmax_needs_its_premise() -> None:
    alpha = array("alpha", n, n)
    weights = Defined(alpha, (i, j), exp(A[i, j]) / total(exp(A[i, l]), l, n))
    lhs = Diff(total(alpha[i, k] * x[k], k, n), A[a, b])
    rhs = KroneckerDelta(i, a) * alpha[i, b] * (x[b] - total(alpha[i, k] * x[k], k, n))
    step = Step(lhs, rhs, "normal-form", assumptions=(IN[i], IN[a], IN[b], weights), data={"opaque": ("alpha",)})
    with pytest.raises(DeriveError, match=r"softmax\.jacobian"):
        check_step(step)
    named = Step(
        step.lhs, step.rhs, step.rule, premises=("softmax.jacobian",), assumptions=step.assumptions, data=step.data
    )
    assert check_step(named).is_proved
    assert first_checker(lhs, rhs, step.assumptions, opaque=("alpha",)).zero
    assert not first_checker(lhs, 2 * rhs, step.assumptions, opaque=("alpha",)).zero


def test_coincidences_are_all_partitions_of_indices_that_share_a_range() -> None:
    patterns = coincidences(x[i] + x[j] + x[k], sympy.Integer(0), (IN[i], IN[j], IN[k], InRange(a, 0, m - 1)))
    assert len(patterns) == 5  # the Bell number of 3
    assert len({str(p) for p in patterns}) == 5


def test_other_relations_can_only_be_refuted_here() -> None:
    assert prove(s**2 + 1, 0, (), "<=").kind is Kind.REFUTED
    assert prove(-(s**2), 1, (), "<").kind is Kind.UNKNOWN


def test_half_integer_powers_do_not_forget_a_sign() -> None:
    """(s²)^(1/2) is |s|, not s."""
    assert not first_checker(sympy.Pow(s**2, Rational(1, 2), evaluate=False), s).zero
