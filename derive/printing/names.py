"""Names of symbols and arrays as LaTeX and plain text, and one letter for each bound index.

Guarantees: two nested binders never get one letter, nor a binder the letter of anything that is free.
Does not: decide how an expression is laid out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sympy

_UNICODE = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "zeta": "ζ",
    "eta": "η",
    "theta": "θ",
    "iota": "ι",
    "kappa": "κ",
    "lambda": "λ",
    "mu": "μ",
    "nu": "ν",
    "xi": "ξ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "upsilon": "υ",
    "phi": "φ",
    "chi": "χ",
    "psi": "ψ",
    "omega": "ω",
    "Gamma": "Γ",
    "Delta": "Δ",
    "Theta": "Θ",
    "Lambda": "Λ",
    "Xi": "Ξ",
    "Pi": "Π",
    "Sigma": "Σ",
    "Upsilon": "Υ",
    "Phi": "Φ",
    "Psi": "Ψ",
    "Omega": "Ω",
}
GREEK = frozenset(_UNICODE)
_SPECIAL = {"euler_gamma": (r"\gamma_E", "γ_E")}
LETTERS = tuple("ijlrstuvpqcabefghkmxyzw") + tuple("ABCDEFGHIJ")
Scope = Mapping[Any, str]


def array_name(base: Any) -> str:
    return str(getattr(base, "label", base))


def head_latex(word: str) -> str:
    if word in GREEK:
        return f"\\{word}"
    if len(word) > 1 and word[0] == "d" and (word[1:] in GREEK or word[1].isupper() or word[1:] == "lse"):
        return f"d{head_latex(word[1:])}"  # a gradient, as dQ or dα
    if len(word) == 1:
        return word
    return rf"\mathrm{{{word}}}"


def name_latex(name: str) -> str:
    """W_Q → W^{Q}, d_k → d_{k}, S' → S', alpha → \\alpha, dalpha → d\\alpha."""
    if name in _SPECIAL:
        return _SPECIAL[name][0]
    primes = len(name) - len(name.rstrip("'"))
    word = name.rstrip("'")
    if word.endswith("^T"):
        return rf"{name_latex(word[:-2])}^{{\top}}"
    head, _, tail = word.partition("_")
    head, digits = _digits(head)
    tex = head_latex(head) + "'" * primes
    if tail and tail.isupper():
        tex += f"^{tail}" if len(tail) == 1 else f"^{{{tail}}}"
    elif tail or digits:
        subscript = _subscript(tail or digits)
        tex += f"_{subscript}" if len(subscript) == 1 else f"_{{{subscript}}}"
    return tex


def _digits(word: str) -> tuple[str, str]:
    found = re.fullmatch(r"([^\d]+)(\d+)", word)
    return (found[1], found[2]) if found else (word, "")


def _subscript(tail: str) -> str:
    return ",".join(w if len(w) == 1 or w.isdigit() else head_latex(w) for w in tail.split("_"))


def name_text(name: str) -> str:
    """alpha → α, dalpha → dα, W_Q stays W_Q."""
    if name in _SPECIAL:
        return _SPECIAL[name][1]
    head, sep, tail = name.partition("_")
    bare = head.rstrip("'")
    primes = head[len(bare) :]
    if bare in _UNICODE:
        bare = _UNICODE[bare]
    elif bare[:1] == "d" and bare[1:] in _UNICODE:
        bare = "d" + _UNICODE[bare[1:]]
    return bare + primes + sep + tail


def taken_names(expr: Any) -> frozenset[str]:
    """Every name that is free in an expression: a binder may not look like one of these."""
    names = {s.name for s in expr.free_symbols if isinstance(s, sympy.Symbol)}
    names |= {array_name(b) for b in expr.atoms(sympy.IndexedBase)}
    return frozenset(names)


def letter(binder: Any, scope: Scope, taken: frozenset[str]) -> str:
    """One letter for a binder: its own name if that is one letter and not in use, else the first that isn't."""
    used = set(scope.values()) | taken
    if len(binder.name) == 1 and binder.name not in used:
        return str(binder.name)
    for choice in LETTERS:
        if choice not in used:
            return choice
    raise ValueError("more nested sums than letters")
