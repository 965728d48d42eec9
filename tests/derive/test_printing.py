"""Printers: what is printed reads back as what was proved; one letter a binder; operation trees against 40 digits."""

import itertools
import random
import re
from typing import Any

import mpmath
import pytest
import sympy
from sympy import KroneckerDelta, Piecewise, Sum, exp, log, sqrt, tanh

from derive.assumptions import Defined, InRange
from derive.catalogue import Claim, claim, claims
from derive.errors import StatementError
from derive.families import _attention as vocabulary
from derive.language import Diff, array, index, scalar, size, total
from derive.printing.latex import to_latex, visible_width
from derive.printing.matrix_form import matrix_form, matrix_latex
from derive.printing.text import to_text
from derive.printing.tree import OPERATIONS, identifier, operation_tree
from derive.prover import first_checker
from tests.derive.latex_reader import MatrixReader, Reader

FAMILIES = ("projections", "scores", "scaling", "output", "gradients")
CORE = [one for family in FAMILIES for one in claims(family)]
n, m, d_k, d_v = vocabulary.n, vocabulary.m, vocabulary.d_k, vocabulary.d_v
a, b, c, i, j = vocabulary.a, vocabulary.b, vocabulary.c, vocabulary.i, vocabulary.j

NAMES = {
    "X": "X",
    "Q": "Q",
    "K": "K",
    "V": "V",
    "S": "S",
    "S'": "S'",
    "alpha": r"\alpha",
    "Z": "Z",
    "dZ": "dZ",
    "dalpha": r"d\alpha",
    "dS'": "dS'",
    "dS": "dS",
    "dQ": "dQ",
    "dK": "dK",
    "dV": "dV",
    "W_Q": "W^Q",
    "W_K": "W^K",
    "W_V": "W^V",
    "K^T": r"K^{\top}",
    "B": "B",
    "U": "U",
    "T": "T",
    "A": "A",
    "H": "H",
    "V2": "(V_2",
    "rho": r"\rho",
    "tau": r"\tau",
    "dlse": r"d\mathrm{lse}",
    "v": "v",
    "w": "w",
}
SCALARS = {
    "n": n,
    "m": m,
    "d_k": d_k,
    "d_v": d_v,
    r"d_{\mathrm{model}}": vocabulary.d_model,
    r"\sigma_q": scalar("sigma_q", positive=True),
    r"\sigma_k": scalar("sigma_k", positive=True),
    "x": scalar("x"),
    "y": scalar("y"),
    "h": scalar("h"),
}


def arrays_of(*exprs: Any) -> dict[str, Any]:
    bases = set().union(*(e.atoms(sympy.IndexedBase) for e in exprs))
    return {NAMES[str(base.label)]: base for base in bases}


def reader_for(one: Claim, kind: type[Reader]) -> Reader:
    extra = [x for d in one.assumptions if isinstance(d, Defined) for x in (d.body, d.array)]
    arrays = arrays_of(one.lhs, one.rhs, *extra)
    used = set().union(*(e.free_symbols for e in (one.lhs, one.rhs)))
    scalars = {k: v for k, v in SCALARS.items() if v in used}
    free = {x.index.name: x.index for x in one.assumptions if isinstance(x, InRange)}
    return kind(arrays, scalars, free)


def sides() -> list[tuple[str, Any, Claim]]:
    return [(f"{one.id} {side}", getattr(one, side), one) for one in CORE for side in ("lhs", "rhs")]


@pytest.mark.parametrize(("name", "expr", "one"), sides(), ids=[name for name, _, _ in sides()])
def test_latex_reads_back_as_the_statement(name: str, expr: Any, one: Claim) -> None:
    printed = to_latex(expr)
    again = reader_for(one, Reader).read(printed)
    answer = first_checker(expr, again, one.assumptions)
    assert answer.zero, f"{printed}\n{again}\n{answer.reason}"


def binders_on_each_path(tex: str) -> list[list[str]]:
    """The letters of the sums that enclose each sum, read off the LaTeX by its braces and parentheses."""
    found: list[list[str]] = []
    stack: list[list[str]] = [[]]
    for token in re.findall(r"\\sum_\{\w=|\\begin\{cases\}|\\end\{cases\}|[-+{}()\[\]]|\\\\|&", tex):
        if token.startswith("\\sum"):
            letter = token[-2]
            found.append([*itertools.chain(*stack), letter])
            stack[-1].append(letter)
            stack.append([])  # the brace that \sum_{ opened
        elif token == r"\begin{cases}":
            stack.append([])
        elif token == r"\end{cases}":
            stack.pop()
        elif token in ("&", r"\\"):
            stack[-1].clear()
        elif token in "{([":
            stack.append([])
        elif token in "})]" and len(stack) > 1:
            stack.pop()
        elif token in "+-":
            stack[-1].clear()  # a sum ends with its product
    return found


@pytest.mark.parametrize("one", CORE, ids=[one.id for one in CORE])
def test_one_letter_a_binder(one: Claim) -> None:
    for expr in (one.lhs, one.rhs):
        free = {s.name for s in expr.free_symbols if isinstance(s, sympy.Symbol)}
        for letters in binders_on_each_path(to_latex(expr)):
            assert letters[-1] not in free
            assert letters[-1] not in letters[:-1]


def test_nested_sums_of_one_name_get_two_letters() -> None:
    x, k = array("x", n), index("k")
    nested = total(x[k] * total(exp(x[k]), k, n), k, n)
    letters = re.findall(r"\\sum_\{(\w)=", to_latex(nested))
    assert len(letters) == len(set(letters)) == 2
    free = x[k] * total(x[k] ** 2, k, n)
    assert "\\sum_{k=" not in to_latex(free)
    assert to_text(free).count("k") == 1
    assert sympy.latex(nested).count("\\sum_{k=0}") == 2  # SymPy's own printer uses one letter twice


MATRIX = {
    "gradients.dv": (a, b),
    "gradients.dalpha": (a, b),
    "gradients.dscaled": (a, b),
    "gradients.dscores": (a, b),
    "gradients.dq": (a, b),
    "gradients.dk": (a, b),
    "gradients.dwq": (a, b),
    "gradients.dwk": (a, b),
    "gradients.dwv": (a, b),
    "gradients.dx": (a, b),
    "gradients.lse": (a, b),
    "gradients.double_backward_query": (a, b),
    "gradients.double_backward_key": (a, b),
    "gradients.double_backward_value": (a, b),
    "gradients.double_backward_incoming": (a, b),
}


@pytest.mark.parametrize("claim_id", MATRIX)
def test_matrix_form_reads_back_as_the_statement(claim_id: str) -> None:
    one = claim(claim_id)
    row, column = MATRIX[claim_id]
    printed = matrix_latex(one.rhs, row, column)
    assert printed is not None
    reader = reader_for(one, MatrixReader)
    assert isinstance(reader, MatrixReader)
    assert first_checker(one.rhs, reader.entry_of(printed, row, column), one.assumptions).zero, printed


def test_dq_is_short() -> None:
    printed = matrix_latex(claim("gradients.dq").rhs, a, b)
    assert printed == r"(\alpha\circ(d\alpha-\operatorname{rowsum}(\alpha\circ d\alpha)))K/\sqrt{d_k}"
    assert len(printed) <= 80
    assert "\\left" not in printed


def test_what_is_no_matrix_has_no_matrix_form() -> None:
    x, q, k = array("x", n), array("Q", n, d_k), array("K", m, d_k)
    assert matrix_form(x[a] * x[b], a, b) is None
    assert matrix_form(q[a, c] * k[b, c], a, b) is None
    assert matrix_form(total(q[a, c] * k[b, c] * q[b, c], c, d_k), a, b) == (
        "mul",
        ("matrix", "Q"),
        ("had", ("T", ("matrix", "K")), ("T", ("matrix", "Q"))),
    )
    assert matrix_form(total(exp(q[a, c] * k[b, c]), c, d_k), a, b) is None


def test_long_sums_of_terms_are_broken() -> None:
    rhs = claim("gradients.dx").rhs
    whole, broken = to_latex(rhs), to_latex(rhs, width=40)
    assert visible_width(whole) > 40
    lines = broken.removeprefix(r"\begin{aligned}").removesuffix(r"\end{aligned}").split(r" \\ ")
    assert len(lines) == 2
    assert all(visible_width(line) <= 46 for line in lines)
    joined = " ".join(line.replace("&", "").replace(r"\quad{}", "").strip() for line in lines)
    assert joined == whole
    assert to_latex(rhs, width=500) == whole


def test_a_broken_formula_is_the_whole_one_line_by_line() -> None:
    """Every side of every claim, at a width at which many break: nothing is lost or moved."""
    broken = 0
    for side in {x for one in claims() for step in one.steps for x in (step.lhs, step.rhs)}:
        if isinstance(side, sympy.Limit):
            continue
        whole, narrow = to_latex(side), to_latex(side, width=40)
        if narrow != whole:
            broken += 1
            inside = narrow.removeprefix(r"\begin{aligned}").removesuffix(r"\end{aligned}")
            lines = [line.removeprefix("&").removeprefix(r"\quad{} ") for line in inside.split(r" \\ &")]
            assert len(lines) >= 2
            assert " ".join(lines) == whole
    assert broken >= 40


EXACT = {
    "W^Q_{ab}": vocabulary.W_Q[a, b],
    r"\frac{1}{2}": sympy.Rational(1, 2),
    r"\frac{\alpha_i}{\sqrt{d_k}}": scalar("alpha_i") / sqrt(d_k),
    r"x_{i}^{2}": array("x", n)[i] ** 2,
    r"(W^Q_{ab})^{2}": vocabulary.W_Q[a, b] ** 2,
    r"(q'_{i})^{2}": array("q'", n)[i] ** 2,
    r"x_{i+1}": array("x", n)[i + 1],
    r"A_{i,j+1}": array("A", n, n)[i, j + 1],
    r"-x_{i}": -array("x", n)[i],
    r"\delta_{ij}": KroneckerDelta(i, j),
    r"\frac{\partial}{\partial x_{i}}[\sum_{j=0}^{n-1}x_{j}]": Diff(total(array("x", n)[j], j, n), array("x", n)[i]),
    r"\begin{cases}0 & i < j \\ 1 & \text{otherwise}\end{cases}": Piecewise((0, i < j), (1, True)),
    r"\log(n)\tanh(x_{i})": tanh(array("x", n)[i]) * log(n),
}


@pytest.mark.parametrize("tex", EXACT)
def test_latex_in_small(tex: str) -> None:
    assert to_latex(EXACT[tex]) == tex


def test_text_in_small() -> None:
    alpha = array("alpha", n, m)
    assert to_text(total(alpha[i, j] ** 2, j, m) - 1) == "Σ_{j=0}^{m-1} α[i, j]^2 - 1"
    assert to_text(Diff(alpha[i, j], alpha[a, b])) == "∂α[i, j]/∂α[a, b]"
    assert to_text(exp(scalar("s")) / sqrt(d_k)) == "exp(s)/√d_k"
    assert to_text(scalar("s") / (1 + exp(scalar("s")))) == "s/(exp(s) + 1)"


@pytest.mark.parametrize("one", CORE, ids=[one.id for one in CORE])
def test_text_is_one_line(one: Claim) -> None:
    for expr in (one.lhs, one.rhs):
        text = to_text(expr)
        assert "\n" not in text
        assert text.count("(") == text.count(")")


# ---- operation trees


def run(tree: Any, env: dict[str, Any]) -> Any:
    """The tree's value with mpmath, by its definition: this evaluator shares nothing with `compute`."""
    head, *rest = tree
    if head == "num":
        return mpmath.mpf(rest[0]) / rest[1]
    if head == "sym":
        return env[rest[0]]
    if head == "at":
        place = tuple(int(run(x, env)) for x in rest[1])
        return env[rest[0]][place]
    if head in ("sum", "product"):
        name, low, high, body = rest
        values = [run(body, {**env, name: k}) for k in range(int(run(low, env)), int(run(high, env)) + 1)]
        return mpmath.fsum(values) if head == "sum" else mpmath.fprod(values)
    if head == "where":
        return run(rest[1] if holds(rest[0], env) else rest[2], env)
    values = [run(x, env) for x in rest]
    if head == "delta":
        return mpmath.mpf(int(values[0] == values[1]))
    table: dict[str, Any] = {
        "add": lambda *v: mpmath.fsum(v),
        "mul": lambda *v: mpmath.fprod(v),
        "pow": mpmath.power,
        "exp": mpmath.exp,
        "log": mpmath.log,
        "sqrt": mpmath.sqrt,
        "tanh": mpmath.tanh,
        "max": max,
        "min": min,
        "abs": abs,
    }
    return table[head](*values)


def holds(condition: Any, env: dict[str, Any]) -> bool:
    head, *rest = condition
    if head in ("and", "or"):
        return (all if head == "and" else any)(holds(x, env) for x in rest)
    if head == "not":
        return not holds(rest[0], env)
    left, right = (run(x, env) for x in rest)
    return bool({"lt": left < right, "le": left <= right, "eq": left == right}[head])


def by_sympy(expr: Any, definitions: dict[str, Defined], values: dict[str, Any], indices: dict[Any, int]) -> Any:
    """The expression's value at 40 digits by expanding every sum, apart from the tree."""
    if expr.is_Rational:
        return mpmath.mpf(int(expr.p)) / int(expr.q)
    if isinstance(expr, sympy.Symbol):
        return indices[expr] if expr in indices else values[expr.name]
    if isinstance(expr, sympy.Indexed):
        place = tuple(int(by_sympy(x, definitions, values, indices)) for x in expr.indices)
        name = str(expr.base.label)
        if name in definitions:
            one = definitions[name]
            return by_sympy(one.body, definitions, values, {**dict(zip(one.indices, place, strict=True))})
        return values[name][place]
    if isinstance(expr, Sum):
        (binder, low, high), *others = reversed(expr.limits)
        inner = Sum(expr.function, *reversed(others)) if others else expr.function
        ends = [int(by_sympy(x, definitions, values, indices)) for x in (low, high)]
        return mpmath.fsum(
            by_sympy(inner, definitions, values, {**indices, binder: k}) for k in range(ends[0], ends[1] + 1)
        )
    args = [by_sympy(x, definitions, values, indices) for x in expr.args] if not isinstance(expr, Piecewise) else []
    if expr.is_Add:
        return mpmath.fsum(args)
    if expr.is_Mul:
        return mpmath.fprod(args)
    if isinstance(expr, sympy.exp):
        return mpmath.exp(args[0])
    if expr.is_Pow:
        return mpmath.power(*args)
    if isinstance(expr, sympy.log):
        return mpmath.log(args[0])
    if isinstance(expr, KroneckerDelta):
        return mpmath.mpf(int(args[0] == args[1]))
    assert isinstance(expr, Piecewise)
    for value, condition in expr.args:
        truth = condition.xreplace({k: sympy.Integer(v) for k, v in indices.items()})
        truth = truth.xreplace({s: sympy.Integer(values[s.name]) for s in truth.free_symbols})
        if truth == sympy.true:
            return by_sympy(value, definitions, values, indices)
    raise AssertionError("no case holds")


def draw(one: Claim, tree: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values by the tree's names and by the statement's names."""
    sizes = {"n": 2, "m": 3, "d_k": 2, "d_v": 2, "d_model": 2}
    by_tree: dict[str, Any] = dict(sizes)
    for entry in tree["inputs"]:
        if entry["name"] in sizes:
            continue
        shape = [sizes[x] for x in entry["axes"]]
        cells = itertools.product(*(range(k) for k in shape))
        values = {cell: mpmath.mpf(rng.uniform(0.2, 1)) for cell in cells}
        by_tree[entry["name"]] = values if shape else values[()]
    exprs = [one.lhs, one.rhs, *(d.body for d in one.assumptions if isinstance(d, Defined))]
    labels = {str(x.label) for e in exprs for x in e.atoms(sympy.IndexedBase)}
    labels |= {s.name for e in exprs for s in e.free_symbols if isinstance(s, sympy.Symbol)}
    by_name = {x: by_tree[identifier(x)] for x in labels if identifier(x) in by_tree}
    by_name |= {"tau": {(0,): by_tree["tau"]}} if "tau" in by_tree else {}
    return by_tree, {**by_name, **sizes}


WITH_TREES = [
    one
    for one in CORE
    if one.id not in ("scores.rank", "output.duplicate_key", "output.exchange_tokens") and not one.rhs.has(Diff)
]


@pytest.mark.parametrize("one", WITH_TREES, ids=[one.id for one in WITH_TREES])
def test_trees_agree_with_forty_digits(one: Claim) -> None:
    ranged = [x for x in one.assumptions if isinstance(x, InRange) and x.index in one.rhs.free_symbols]
    tree = operation_tree(one, [x.index for x in ranged])
    definitions = {str(d.array.label): d for d in one.assumptions if isinstance(d, Defined)}
    with mpmath.workdps(40):
        by_tree, by_name = draw(one, tree, random.Random(one.id))
        for place in ({x.index: 0 for x in ranged}, {x.index: 1 for x in ranged}):
            got = run(tree["body"], {**by_tree, **{identifier(k.name): v for k, v in place.items()}})
            want = by_sympy(one.rhs, definitions, by_name, place)
            assert abs(got - want) <= mpmath.mpf(10) ** -36 * (1 + abs(want))


def test_trees_are_plain_and_closed() -> None:
    one = claim("gradients.dq")
    tree = operation_tree(one, (a, b))
    assert tree["output"] == [["a", "n"], ["b", "d_k"]]
    assert [x["name"] for x in tree["inputs"]] == ["K", "Q", "V", "dZ"]

    binders: list[str] = []

    def visit(node: Any) -> None:
        assert isinstance(node, list)
        assert node[0] in OPERATIONS
        if node[0] in ("sum", "product"):
            binders.append(node[1])
        for x in node[1:]:
            for y in x if isinstance(x, list) and x and isinstance(x[0], list) else [x]:
                if isinstance(y, list):
                    visit(y)
                else:
                    assert isinstance(y, (int, str))

    visit(tree["body"])
    assert len(binders) == len(set(binders))


def test_trees_refuse_what_they_can_not_say() -> None:
    x = array("x", n)
    with pytest.raises(StatementError, match="Diff has no operation"):
        operation_tree(Diff(total(x[i], i, n), x[a]), (a,), (InRange(a, 0, n - 1),))
    with pytest.raises(StatementError, match="needs InRange"):
        operation_tree(x[a], (a,))
    with pytest.raises(StatementError, match="not among the output"):
        operation_tree(x[a] * x[b], (a,), (InRange(a, 0, n - 1), InRange(b, 0, n - 1)))
    with pytest.raises(StatementError, match="no input is named w"):
        operation_tree(total(x[i], i, n), inputs=("w",))
    with pytest.raises(StatementError, match="identifier"):
        operation_tree(scalar("a b"))
    assert operation_tree(size("n") * scalar("s"), inputs=("s", "n"))["inputs"] == [
        {"name": "s", "axes": []},
        {"name": "n", "axes": []},
    ]


SHOWN = {
    r"\lim_{s\to \infty}e^{-s}": sympy.Limit(exp(-scalar("s")), scalar("s"), sympy.oo, "-"),
    r"\prod_{i=0}^{n-1}x_{i}": sympy.Product(array("x", n)[i], (i, 0, n - 1)),
    r"\int_{0}^{\infty}e^{-s}\,ds": sympy.Integral(exp(-scalar("s")), (scalar("s"), 0, sympy.oo)),
    r"x_{\lfloor \frac{i}{2}\rfloor}": array("x", n)[sympy.floor(i / 2)],
}


@pytest.mark.parametrize("tex", SHOWN)
def test_other_nodes_in_latex(tex: str) -> None:
    assert to_latex(SHOWN[tex]) == tex


def test_every_claim_of_the_catalogue_prints() -> None:
    """No statement or step of any family is beyond the printers, and no printer leaves a placeholder."""
    for one in claims():
        for expr in (one.lhs, one.rhs, *(side for step in one.steps for side in (step.lhs, step.rhs))):
            tex, text = to_latex(expr), to_text(expr)
            assert tex
            assert text
            assert tex.count("{") == tex.count("}")
            assert "None" not in tex
            assert "object at" not in text
