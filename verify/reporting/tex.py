"""Claims as a LaTeX document: symbols, definitions, conditions, steps with their rules' reasons, verdict and source.

Guarantees: the document needs amsmath alone (for Japanese also LuaLaTeX and its class ltjsarticle); every letter in a
formula is explained; words are escaped, and signs in them set as mathematics; formulas are derive's own.
Does not: typeset; a word's sign that has no LaTeX here is a KeyError, which the tests would meet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from verify.reporting.formulas import condition_latex, condition_text, latex, matrix_latex, relation
from verify.reporting.symbols import explained
from verify.reporting.words import Language, condition_words, data_words, joined, reason, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.catalogue import Claim
    from derive.step import Step
    from derive.verdict import Verdict

_WIDTH = 72  # visible characters of one side on one line of an article
_CLASSES = {"en": "article", "ja": "ltjsarticle"}
_ASCII = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}", '"': "''",
}  # fmt: skip
_WORDS = {"–": "--", "—": "---", "“": "``", "”": "''", "‘": "`", "’": "'", "…": r"\dots{}"}
_MATHS = {
    "±": r"\pm", "·": r"\cdot", "×": r"\times", "÷": r"\div", "½": r"\tfrac{1}{2}", "→": r"\to", "↦": r"\mapsto",
    "∂": r"\partial", "−": "-", "∘": r"\circ", "√": r"\surd", "∞": r"\infty", "∫": r"\int", "≠": r"\ne", "≤": r"\le",
    "≥": r"\ge", "≈": r"\approx", "∈": r"\in", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil",
    "⟨": r"\langle", "⟩": r"\rangle", "‖": r"\|", "ℓ": r"\ell",
    "⁻": "^{-}", "ᵀ": r"^{\top}", "ᵢ": "_{i}", "ⱼ": "_{j}",
    "ϑ": r"\vartheta", "∇": r"\nabla", "Σ": r"\Sigma", "Π": r"\Pi", "Γ": r"\Gamma", "Δ": r"\Delta",
    "Φ": r"\Phi", "Λ": r"\Lambda", "Θ": r"\Theta", "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta",
    "ε": r"\epsilon", "η": r"\eta", "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "ν": r"\nu",
    "π": r"\pi", "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "φ": r"\varphi", "χ": r"\chi", "ψ": r"\psi",
    "ω": r"\omega",
}  # fmt: skip
_MATHS |= {sign: f"^{{{digit}}}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_MATHS |= {sign: f"_{{{digit}}}" for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")}


def latex_document(proved: Sequence[tuple[Claim, Verdict]], language: Language = "en") -> str:
    """A whole document with a section for each claim."""
    head = [
        rf"\documentclass{{{_CLASSES[language]}}}" + (" % lualatex" if language == "ja" else ""),
        r"\usepackage{amsmath}",
        r"\providecommand{\mathbb}[1]{\mathbf{#1}} % amsfonts has a better one",
        r"\allowdisplaybreaks",
        r"\begin{document}",
    ]
    return "\n\n".join(["\n".join(head), *(latex_section(*one, language) for one in proved), r"\end{document}"])


def latex_section(claim: Claim, verdict: Verdict, language: Language = "en") -> str:
    """One claim as a section."""
    from derive.assumptions import Defined

    parts = [rf"\section*{{{words(claim.title[language])}}}", rf"\texttt{{{words(claim.id)}}}"]
    parts.append(_display([_row(claim.lhs, claim.relation, claim.rhs)]))
    if form := matrix_latex(claim):
        parts.append(f"{words(say('In matrix form the right side is', language))}\n\\[\n{form}\n\\]")
    meanings = [rf"  \item[{{${latex(one)}$}}] {words(text)}" for one, text in explained(claim, language)]
    parts += [_heading("Symbols", language), _list("description", meanings)]
    definitions = [a for a in claim.assumptions if isinstance(a, Defined)]
    if definitions:
        rows = [_row(d.array[d.indices] if d.indices else d.array, ":=", d.body) for d in definitions]
        parts += [_heading("Definitions", language), _display(rows)]
    told = [rf"  \item {_condition(a, language)}" for a in claim.assumptions if not isinstance(a, Defined)]
    if told:
        parts += [_heading("Conditions", language), _list("itemize", told)]
    parts += [_heading("Proof", language), *_steps(claim, language)]
    parts += [_heading("Rules", language), _rules(claim, language)]
    if note := claim.note.get(language):
        parts.append(words(note))
    parts.append(rf"{_heading('Verdict', language)} {words(str(verdict))}")
    parts.append(words(say("Source: {}", language, claim.source)))
    return "\n\n".join(parts)


def _heading(name: str, language: Language) -> str:
    return rf"\paragraph{{{words(say(name, language))}}}"


def _list(kind: str, items: Sequence[str]) -> str:
    return "\n".join([rf"\begin{{{kind}}}", *items, rf"\end{{{kind}}}"])


def _display(rows: Sequence[str]) -> str:
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"


def _row(lhs: Any, name: str, rhs: Any, tag: str = "") -> str:
    """lhs REL rhs as a row of align*, on two lines where one is too short."""
    from derive.printing.latex import visible_width

    left, right = latex(lhs), latex(rhs, width=_WIDTH)
    sign = ":=" if name == ":=" else relation(lhs, name)
    if visible_width(left) > _WIDTH // 2:
        return rf"&{latex(lhs, width=_WIDTH)} \\" + f"\n&\\quad {sign} {right}{tag}"
    return f"{left} &{sign} {right}{tag}"


def _condition(one: Any, language: Language) -> str:
    form = condition_latex(one)
    if form:
        return f"${form}$"
    if isinstance(one, str):
        return words(condition_words(one, language))
    return words(data_words(one, language) or condition_text(one))


def _steps(claim: Claim, language: Language) -> list[str]:
    """The chain with numbered rows, and below it why each of them holds."""
    single = len(claim.steps) == 1
    parts = []
    if not single:
        first, *rest = claim.steps
        rows = [_row(first.lhs, first.relation, first.rhs, r" \tag{1}")]
        rows += [
            rf"&{relation(s.lhs, s.relation)} {latex(s.rhs, width=_WIDTH)} \tag{{{k}}}" for k, s in enumerate(rest, 2)
        ]
        parts.append(_display(rows))
    items = [
        rf"  \item[{'' if single else f'({k})'}] {_reason(step, language)}" for k, step in enumerate(claim.steps, 1)
    ]
    return [*parts, _list("description", items)]


def _reason(step: Step, language: Language) -> str:
    name = rf"\texttt{{{words(step.rule)}}}"
    premises = [rf"\texttt{{{words(p)}}}" for p in step.premises]
    text = say("By {}{}.", language, name, say(", from {}", language, ", ".join(premises)) if premises else "")
    return joined(text, words(step.note.get(language, "")), language)


def _rules(claim: Claim, language: Language) -> str:
    used = dict.fromkeys(step.rule for step in claim.steps)
    return _list("description", [rf"  \item[\texttt{{{words(r)}}}] {words(reason(r, language))}" for r in used])


def words(text: str) -> str:
    """A text with everything that LaTeX would read otherwise escaped.

    >>> words("‖J‖_F² ≤ 1")
    '\\\\ensuremath{\\\\|}J\\\\ensuremath{\\\\|}\\\\_F\\\\ensuremath{^{2}} \\\\ensuremath{\\\\le} 1'
    """
    text = re.sub("(.)\N{COMBINING MACRON}", lambda m: f"\0{m[1]}\1", text)
    code = re.split(r"`([^`]*)`", text)
    return "".join(rf"\texttt{{{_escaped(part)}}}" if k % 2 else _escaped(part) for k, part in enumerate(code))


def _escaped(text: str) -> str:
    return "".join(_sign(ch) for ch in text).replace("\0", r"\ensuremath{\bar ").replace("\1", "}")


def _sign(ch: str) -> str:
    if ch < "\N{DELETE}":
        return _ASCII.get(ch, ch)
    if ch in _WORDS:
        return _WORDS[ch]
    if ch in _MATHS:
        return rf"\ensuremath{{{_MATHS[ch]}}}"
    if ch.isalpha() or ch > "\N{CJK RADICAL REPEAT}":
        return ch  # letters with accents, and Japanese, are read as they are
    raise KeyError(f"no LaTeX for {ch!r} (U+{ord(ch):04X})")
