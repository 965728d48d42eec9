"""What the letters of a claim mean: its sizes, indices, scalars, arrays, and the nodes of random rows and moments.

Guarantees: every symbol, array and node of the statement, the steps and the conditions is there once, in the claim's
own words where it has them, else by its kind. Indices that only a sum or a definition binds explain themselves.
Does not: print; a caller says how an expression and a text are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from verify.reporting.words import Language, meaning, say

if TYPE_CHECKING:
    from derive.catalogue import Claim


def explained(claim: Claim, language: Language = "en") -> list[tuple[Any, str]]:
    """(symbol, array or node, its meaning) in the order of their names."""
    import sympy

    from derive.printing.names import array_name

    found: dict[str, tuple[Any, str]] = {}
    for base in _arrays(claim):
        name = array_name(base)
        shape = say("array of shape ({})", language, ", ".join(map(str, base.shape or ())))
        found[name] = base.label, _own(claim, name, language) or shape
    ranges = _ranges(claim)
    for symbol in _symbols(claim):
        if symbol.name not in found:
            kind = _kind(symbol, symbol in ranges, language)
            found[symbol.name] = symbol, _own(claim, symbol.name, language) or kind
    for name in _named_in_laws(claim) - set(found):
        found[name] = sympy.Symbol(name), _own(claim, name, language)
    nodes = {type(node): node for node in sorted(_nodes(claim), key=sympy.default_sort_key, reverse=True)}
    rows = [found[name] for name in sorted(found, key=lambda name: (name.lower(), name))]
    return rows + [
        (node, meaning(_first_line(kind), language))
        for kind, node in sorted(nodes.items(), key=lambda kv: kv[0].__name__)
    ]


def _own(claim: Claim, name: str, language: Language) -> str:
    """The claim's own words for a name, or none."""
    return meaning(claim.symbols.get(name, ""), language)


def _expressions(claim: Claim) -> Iterator[Any]:
    """Everything that a claim shows: sides, sides of steps, and what stands in conditions that are data."""
    import sympy

    yield from (claim.lhs, claim.rhs)
    for step in claim.steps:
        yield from (step.lhs, step.rhs)
    for one in claim.assumptions:
        if is_dataclass(one):
            values = [getattr(one, f.name) for f in fields(one)]
            for value in [*(v for v in values if not isinstance(v, tuple)), *(x for v in values if isinstance(v, tuple)
                                                                            for x in v)]:  # fmt: skip
                if isinstance(value, sympy.Basic):
                    yield value


def _arrays(claim: Claim) -> list[Any]:
    import sympy

    found = set().union(*(e.atoms(sympy.IndexedBase) for e in _expressions(claim)))
    return sorted(found, key=str)


def _symbols(claim: Claim) -> list[Any]:
    """Symbols that are not only bound by sums and definitions, nor the names of arrays."""
    import sympy

    from derive.assumptions import Defined
    from derive.gradient_nodes import Gradient
    from derive.instances import free_symbols

    labels = {base.label for base in _arrays(claim)}
    own = {i for a in claim.assumptions if isinstance(a, Defined) for i in a.indices}
    free: set[Any] = set()
    for expr in _expressions(claim):
        free |= free_symbols(expr) if isinstance(expr, sympy.Expr) else set()
        for node in _own_nodes(expr):  # what is averaged over is not free, and needs a meaning all the same
            free |= node.atoms(sympy.Symbol)
        labels |= {node.args[0] for node in expr.atoms(Gradient)} | {node.args[3] for node in expr.atoms(sympy.Limit)}
    shapes = {s for base in _arrays(claim) for length in base.shape or () for s in length.free_symbols}
    sides = {s for e in (claim.lhs, claim.rhs, *(x for t in claim.steps for x in (t.lhs, t.rhs)))
             for s in free_symbols(e)}  # fmt: skip
    dummies = {limit[0] for e in _expressions(claim) for i in e.atoms(sympy.Integral) for limit in i.limits}
    kept = (free | shapes) - labels - dummies - (own - sides - _ranges(claim))
    return sorted(kept, key=str)


def _named_in_laws(claim: Claim) -> set[str]:
    """Parameters that only a law mentions, where the claim says what they are: an excess kurtosis, say."""
    from derive.assumptions import RandomEntries

    laws = " ".join(str(a.law) for a in claim.assumptions if isinstance(a, RandomEntries))
    return set(re.findall(r"[A-Za-z]\w*", laws)) & set(claim.symbols)


def _ranges(claim: Claim) -> set[Any]:
    from derive.assumptions import InRange

    return {a.index for a in claim.assumptions if isinstance(a, InRange)}


def _nodes(claim: Claim) -> set[Any]:
    return {node for expr in _expressions(claim) for node in _own_nodes(expr)}


def _own_nodes(expr: Any) -> set[Any]:
    """Nodes of our own that print as a sign of their own: means, medians, constants of random rows, expectations."""
    import sympy

    from derive.language import Diff

    return {
        node
        for node in expr.atoms(sympy.Expr)
        if type(node).__module__.startswith("derive.")
        and node.args
        and not isinstance(node, (Diff, sympy.IndexedBase))  # an array is a letter
    }


def _kind(symbol: Any, ranged: bool, language: Language) -> str:
    if ranged or (symbol.is_integer and not symbol.is_nonnegative):
        return say("an index", language)
    if symbol.is_integer:
        return say("size, a whole number", language)
    return say("positive number" if symbol.is_positive else "real number", language)


def _first_line(kind: type) -> str:
    """The first line of a class's text, after its own call: `RowMean(f, n, v): mean over …` says `mean over …`."""
    line = (kind.__doc__ or "").strip().splitlines()[0]
    head, colon, rest = line.partition("): ")
    return rest if colon and head.startswith(kind.__name__) else line
