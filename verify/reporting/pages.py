"""The pages that `attnproof report` writes beside the derivations: correctness, scaling, and real weights.

Guarantees: each is a function of results; nothing of the machine or the moment is on it. Does not: run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.reporting import markdown
from verify.reporting.formulas import block
from verify.reporting.words import Language, say
from verify.studies.study import Cell, StudyResult

if TYPE_CHECKING:
    from verify.crosschecks import CrossCheck

_PARTS = {
    "exact": "both sides in 50 digits",
    "formula": "formula in float64",
    "computed": "`compute` in float64",
}


def correctness(checks: Sequence[CrossCheck], language: Language = "en") -> str:
    """The page of cross-checks."""
    parts = [f"# {say('Correctness', language)}", say("correctness", language), _counts(checks, language)]
    rows: list[tuple[Cell, ...]] = [
        (f"`{c.claim}`", say(c.status, language), *(_share(c, p, language) for p in _PARTS)) for c in checks
    ]
    header = [say(word, language) for word in ("claim", "outcome", *_PARTS.values())]
    parts.append(markdown.table(header, rows))
    reasons = _reasons(checks, language)
    if reasons:
        parts += [f"## {say('What did not apply', language)}", reasons]
    return "\n\n".join(parts) + "\n"


def _counts(checks: Sequence[CrossCheck], language: Language) -> str:
    found = {name: [c.parts[name].status for c in checks] for name in _PARTS}
    rows: list[tuple[Cell, ...]] = [
        (say(text, language), *(found[name].count(status) for status in ("agrees", "differs", "skipped")))
        for name, text in _PARTS.items()
    ]
    return markdown.table([say(word, language) for word in ("comparison", "agree", "differ", "do not apply")], rows)


def _share(check: CrossCheck, name: str, language: Language) -> str:
    """Agreement in a word; the share of the bound depends on the machine's exp and stays off the page."""
    part = check.parts[name]
    if part.status == "skipped":
        return "–"
    if name == "exact":
        return say(part.status, language)
    if part.status == "agrees":
        return say("within", language)
    return say("{} times the bound", language, f"{part.worst:.1g}")


def _reasons(checks: Sequence[CrossCheck], language: Language) -> str:
    grouped: dict[str, list[str]] = {}
    for check in checks:
        for name, part in check.parts.items():
            if part.status == "skipped":
                grouped.setdefault(f"{say(_PARTS[name], language)}: {part.detail}", []).append(f"`{check.claim}`")
    return "\n".join(f"- {reason} ({', '.join(ids)})" for reason, ids in sorted(grouped.items()))


def scaling(main: StudyResult, others: Sequence[StudyResult], image: str | None, language: Language = "en") -> str:
    """The page of the variance studies on drawn queries and keys."""
    import derive

    law, scaled = derive.claim("variance.scores"), derive.claim("variance.scaled")
    parts = [
        f"# {say('Scaling', language)}",
        say("scaling", language),
        f"## {say('The law', language)}",
        block(law.lhs, law.relation, law.rhs),
        say("components", language),
        block(scaled.lhs, scaled.relation, scaled.rhs),
        f"## {say('Normal components', language)}",
        markdown.study(main, image=image, language=language),
        say("blocks", language),
    ]
    if others:
        parts.append(f"## {say('Other components', language)}")
        parts.append(say("any law", language))
        for one in others:
            parts.append(f"### q: {one.data['q']}, k: {one.data['k']}")
            parts.append(markdown.study(one, tables=("Levels",), language=language))
    return "\n\n".join(parts) + "\n"


def saturation(result: StudyResult, image: str | None) -> str:
    """The page of the saturation study."""
    parts = [
        "# Saturation",
        "Without the factor 1/√d_k the softmax is said to get extremely small gradients. That is true of the median "
        "row at large d_k; the mean square first grows and then falls only like d_k^(−1/2), since a few rows with two "
        "near-equal top scores carry it. Both are below, measured on rows of scores with the law of scale·q·k for "
        "standard normal q and k, beside exact values: quadrature at that very n, d_k and scale, no limit taken. "
        "Made by `attnproof report`.",
        f"## {result.title}",
        markdown.study(result, image=image),
        "The median has no exact value here; the dashed line in the picture is its law at σ = √d_k, "
        "1/(1 + cosh(σ·median gap)), which holds where it is small. It is drawn and not judged.",
    ]
    return "\n\n".join(parts) + "\n"


def weights(result: StudyResult, image: str | None) -> str:
    """The page of the study on a real model."""
    parts = [
        "# Real weights",
        "The same scores on a trained model, which is read from a package and never imported. For any queries and "
        "keys, exactly,",
        "$$\n\\frac{1}{n}\\sum_i \\mathrm{Var}_j\\, S_{ij} = s^2\\, \\mathrm{tr}(M_q \\Sigma_k)\n$$",
        "with s the scale, M_q the second moment of the queries and Σ_k the covariance of the keys. It splits into "
        "what independent isotropic components would give, s² d_k σ_q² σ_k², what the alignment of the two covariances "
        "adds, and what the mean query adds. Made by `attnproof report`.",
        f"## {result.title}",
        markdown.study(result, image=image),
    ]
    return "\n\n".join(parts) + "\n"
