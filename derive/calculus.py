"""Differentiation by index, at symbolic sizes, on terms.

Guarantees: ∂X[i, j]/∂X[a, b] is the pair of equations i = a, j = b, and everything else is the product and chain rule,
so nothing is silently zero: a function without a stated derivative is an error. Derivatives of derivatives, VJPs and
JVPs are sums over these.
Does not: differentiate by an index or a size.

Every entry of the array that isn't the one named is held fixed. Where the array is itself defined (`Defined`), it is a
variable: what is defined through it is unfolded down to it, and its own definition is put back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from derive.binders import canonical
from derive.errors import StatementError
from derive.index import Ix
from derive.terms import Atom, Mono, Poly, Power, fresh, wrap


class Definitions(Protocol):
    """What the calculus asks of an importer: the definitions of arrays that are kept as they are."""

    opaque: frozenset[str]

    def definition(self, name: str, keep: frozenset[str]) -> tuple[tuple[str, ...], Poly]: ...

    def require_positive(self, base: Poly, bounds: frozenset[Ix]) -> None:
        """Raise where a root's base isn't known to be positive: the root has no derivative at 0."""


def derivative(poly: Poly, name: str, indices: tuple[Ix, ...] | None, definitions: Definitions | None = None) -> Poly:
    """∂poly/∂name[indices], or ∂poly/∂name for a scalar (indices None). The indices are free in the result."""
    total = Poly({})
    for m, c in poly.terms:
        total = total + _term(m, name, indices, definitions).scaled(c)
    return total


def _term(mono: Mono, name: str, indices: tuple[Ix, ...] | None, definitions: Definitions | None) -> Poly:
    """The product rule over one term, under its binders."""
    incoming = frozenset().union(*(i.free for i in indices)) if indices else frozenset({name})
    mono = mono.renamed_apart(incoming)
    total = Poly({})
    for atom, p in mono.factors:
        inner = _atom(atom, name, indices, definitions)
        if inner.is_zero:
            continue
        if atom.kind == "pow" and p.denominator != 1 and definitions is not None:
            definitions.require_positive(atom.parts[0], mono.bounds)
        others = [(a, k) for a, k in mono.factors if a != atom]
        frame = Mono((), mono.bounds, mono.equations, [*others, (atom, p - 1)], mono.argument)
        total = total + wrap(frame, mono.binders, inner.scaled(p))
    if mono.argument is not None:
        inner = derivative(mono.argument, name, indices, definitions)
        if not inner.is_zero:
            frame = Mono((), mono.bounds, mono.equations, mono.factors, mono.argument)
            total = total + wrap(frame, mono.binders, inner)
    return total


def _atom(atom: Atom, name: str, indices: tuple[Ix, ...] | None, definitions: Definitions | None) -> Poly:
    if atom.kind == "at":
        if atom.name == name and indices is not None:
            return Poly.mono(Mono(equations=(i - j for i, j in zip(atom.indices, indices, strict=True))))
        if definitions is not None and atom.name in definitions.opaque:
            return _defined(atom, name, indices, definitions)
        return Poly({})
    if atom.kind == "var":
        return Poly.const(1 if indices is None and atom.name == name else 0)
    if atom.kind == "prime":
        return Poly({})
    if atom.kind == "pow":
        return derivative(atom.parts[0], name, indices, definitions)
    inner = [derivative(p, name, indices, definitions) for p in atom.parts]
    if all(d.is_zero for d in inner):
        return Poly({})
    rule = FUNCTION_DERIVATIVES.get(atom.name)
    if rule is None or len(inner) != 1:
        raise StatementError(f"no derivative is known for {atom.name}, which depends on {name}")
    return rule(atom.parts[0]).times(inner[0])


def _call(function: str, x: Poly, p: int = 1) -> Poly:
    return Poly.atom(Atom("fn", function, parts=(x,)), Power(p))


FUNCTION_DERIVATIVES: dict[str, Callable[[Poly], Poly]] = {
    "log": lambda x: Poly.atom(Atom("pow", parts=(x,)), Power(-1)),
    "tanh": lambda x: Poly.const(1) - _call("tanh", x, 2),
    "sinh": lambda x: _call("cosh", x),
    "cosh": lambda x: _call("sinh", x),
    "sin": lambda x: _call("cos", x),
    "cos": lambda x: _call("sin", x).scaled(-1),
    "atan": lambda x: Poly.atom(Atom("pow", parts=(Poly.const(1) + x.times(x),)), Power(-1)),
    # d erf(x)/dx = 2 π^(−1/2) exp(−x²)
    "erf": lambda x: Poly.mono(Mono(factors=((Atom("var", "!pi"), Power(-1, 2)),), argument=x.times(x).scaled(-1)), 2),
}


def _defined(atom: Atom, name: str, indices: tuple[Ix, ...] | None, definitions: Definitions) -> Poly:
    """The derivative of an entry of an array that is kept opaque.

    Where the body is a softmax exp(x_j) / Σ_l exp(x_l), the lemma "softmax.jacobian" keeps it opaque:
    ∂α_j = α_j (∂x_j − Σ_l α_l ∂x_l). Any other body is differentiated as it stands.
    """
    names, body = definitions.definition(atom.name, definitions.opaque)
    parts = softmax_parts(body, names[-1])
    values = dict(zip(names, atom.indices, strict=True))
    if parts is None:
        return derivative(body.substitute(values), name, indices, definitions)
    argument, lead = parts
    binder = fresh()
    slope = derivative(argument.substitute(values), name, indices, definitions)
    weight = Atom(atom.kind, atom.name, (*atom.indices[:-1], Ix.var(binder)))
    inner = derivative(argument.substitute({**values, names[-1]: Ix.var(binder)}), name, indices, definitions)
    limits = {**values, lead.binders[0]: Ix.var(binder)}
    mean = Poly.atom(weight).times(inner).summed(binder, (b.substitute(limits) for b in lead.bounds))
    return Poly.atom(atom).times(slope - mean)


def softmax_parts(body: Poly, own: str) -> tuple[Poly, Mono] | None:
    """(x, denominator's term) if the body is exp(x) · (Σ_l exp(x with l for the index `own`))^(−1), else None."""
    if len(body.terms) != 1:
        return None
    mono, c = body.terms[0]
    if c != 1 or mono.binders or mono.bounds or mono.equations or mono.argument is None or len(mono.factors) != 1:
        return None
    atom, p = mono.factors[0]
    if atom.kind != "pow" or p != -1 or len(atom.parts[0].terms) != 1:
        return None
    lead, d = atom.parts[0].terms[0]
    if d != 1 or len(lead.binders) != 1 or lead.factors or lead.equations or lead.argument is None:
        return None
    if own in lead.free:
        return None
    as_lead = canonical(mono.argument.substitute({own: Ix.var(lead.binders[0])}))
    return (mono.argument, lead) if as_lead.key == canonical(lead.argument).key else None
