"""A real transformer's heads: how spread their scores are, what the laws say, and how concentrated the rows get.

Guarantees: per head and text, the mean over queries of the variance over keys is measured on the n×n scores and
compared with the claim variance.any_data, scale²·tr(M_q Σ_k) (M_q the second moment of the queries, Σ_k the covariance
of the keys), within a worst-case rounding bound derived in `rounding_bound`; what independent isotropic components
would give is shown beside it, and its share, with intervals that resample whole texts.
Does not: claim that trained weights follow the isotropic law; it measures how far they are from it.

The identity is algebra, so it holds for any data: a failure means that a product, a variance or a reader is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compute.observables import entropy, jacobian_norm, largest_weight, participation, row_variance
from verify.models.blocks import Heads
from verify.models.loading import Model, Text, load, texts
from verify.models.sentences import JAPANESE
from verify.studies.statistics import cluster_bootstrap
from verify.studies.study import Cell, Phrase, StudyResult, Table, Test

Array = npt.NDArray[np.float64]
UNIT = 2.0**-53
CLAIM = "variance.any_data"
# Rows count as saturated when ‖J‖_F is below this.
SATURATED = 0.01
MEASURES = (
    "variance",
    "identity",
    "isotropic",
    "query_mean",
    "alignment",
    "participation",
    "entropy",
    "largest",
    "jacobian",
    "saturated",
)


@dataclass(frozen=True)
class _Head:
    """One head on one text: the numbers of MEASURES in order, and |variance − identity| over its rounding bound."""

    numbers: tuple[float, ...]
    off: float


def study_weights(
    model: Path | None = None,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> StudyResult:
    """Measure every head of a model on a dozen sentences.

    model: a safetensors file of BERT, GPT-2 or Llama naming; None for the packaged MiniLM. Raises UsageError for an
    unknown layout, MissingError when the packaged weights are absent.
    """
    read = load(model, heads, kv_heads)
    inputs = texts(read, seed=seed)
    cube, worst = _measure_all(read, [t for t in inputs if t.label != JAPANESE], progress)
    return StudyResult(
        name="weights",
        title=Phrase(
            "Scores of a real model: {} ({}, {} layers of {} heads)", read.name, read.layout, read.layers, read.heads
        ),
        claims=(CLAIM,),
        command="attnproof study weights" + (f" --model {model.name}" if model else ""),
        seed=seed,
        points=(),
        tests=(_identity_test(worst, cube),),
        tables=(_by_layer(cube, read), _overall(cube, seed), _inputs(inputs)),
        notes=_notes(inputs),
        data={"cube": cube, "measures": MEASURES, "layers": read.layers, "heads": read.heads},
    )


def _measure_all(model: Model, inputs: Sequence[Text], progress: Callable[[str], None]) -> tuple[Array, float]:
    """Numbers (texts, layers, heads, measures), and the worst |variance − identity| over its bound."""
    cube = np.empty((len(inputs), model.layers, model.heads, len(MEASURES)))
    worst = 0.0
    for t, text in enumerate(inputs):
        progress(f"{model.name}: text {t + 1} of {len(inputs)}")
        for layer in model.forward(text.tokens)[0]:
            for h in range(model.heads):
                one = _measure(layer, h)
                cube[t, layer.layer, h] = one.numbers
                worst = max(worst, one.off)
    return cube, worst


def _measure(layer: Heads, h: int) -> _Head:
    q, k, scale = layer.q[h], layer.k[h], layer.scale
    measured = float(row_variance(layer.scores()[h]).mean())
    mean_q = q.mean(axis=0)
    spread_q, spread_k = np.cov(q.T, bias=True), np.cov(k.T, bias=True)
    identity = scale**2 * _identity()(Q=q, K=k)
    isotropic = scale**2 * float(np.trace(spread_q) * np.trace(spread_k)) / q.shape[1]
    alignment = scale**2 * float((spread_q * spread_k).sum()) - isotropic
    shift = scale**2 * float(mean_q @ spread_k @ mean_q)
    rows = layer.visible()[h]
    norms = jacobian_norm(rows)
    numbers = (
        measured,
        identity,
        isotropic,
        shift,
        alignment,
        float(participation(rows).mean()),
        float(entropy(rows).mean()),
        float(largest_weight(rows).mean()),
        float(np.median(norms)),
        float((norms < SATURATED).mean()),
    )
    return _Head(numbers, abs(measured - identity) / rounding_bound(q, k, scale))


@cache
def _identity() -> Any:
    """The right side of the claim as a function of Q and K: tr(M_q Σ_k), without the scale."""
    import derive
    from compute.functions import function_from
    from derive.printing.tree import operation_tree

    return function_from(operation_tree(derive.claim(CLAIM)))


def rounding_bound(q: Array, k: Array, scale: float) -> float:
    """How far the two float64 routes to the row variance may lie apart, with u = 2^-53 and B = scale·max‖q‖·max‖k‖.

    Scores: each within (d+2)u·B (any-order dot product, Cauchy and Schwarz, one scaling), so deviations from a row
    mean, at most 2B, are within 2(d+2)u·B + (n+2)u·B·2, squares and their mean within
    2·2B·(2(d+2) + 2(n+2))u·B + (n+2)u·4B². Identity: M_q, the second moment of the keys and the product of their means
    are sums of n terms, within (n+1)u, (n+1)u and (2n+3)u; the entrywise product is a sum of d² terms; in absolute
    values it is at most ‖M_q‖_F·2·max‖k‖² ≤ 2B²: within 2(d² + 4n + 10)u·B². Twice that is taken, and the last factor
    covers second-order terms.
    """
    n, d = k.shape[0], q.shape[1]
    top = scale * math.sqrt(float((q * q).sum(axis=1).max()) * float((k * k).sum(axis=1).max()))
    direct = 8 * ((d + 2) + (n + 2)) + 4 * (n + 2)
    traced = 4 * (d * d + 4 * n + 10)
    return (direct + traced) * UNIT * top**2 * (1 + 1e-9) + 1e-300


def _identity_test(worst: float, cube: Array) -> Test:
    count = cube[..., 0].size
    # How far inside depends on the machine's summation order; whether inside does not.
    if worst <= 1.0:
        detail = Phrase("|measured − identity| within the worst-case rounding bound, over {} heads and texts", count)
    else:
        told = "|measured − identity| up to {:.1e} times the worst-case rounding bound, over {} heads and texts"
        detail = Phrase(told, worst, count)
    return Test("row variance = scale²·tr(M_q Σ_k) on every head", detail, None, worst <= 1.0)


def _ratio(cube: Array, name: str) -> Array:
    return cube[..., MEASURES.index(name)] / cube[..., MEASURES.index("variance")]


def _by_layer(cube: Array, model: Model) -> Table:
    """Medians over heads and texts, one row a layer."""
    rows: list[tuple[Cell, ...]] = []
    for layer in range(model.layers):
        part = cube[:, layer]
        sd = float(np.median(np.sqrt(part[..., 0])))
        shares = [float(np.median(_ratio(part, name))) for name in ("isotropic", "alignment", "query_mean")]
        rest = [float(np.median(part[..., MEASURES.index(n)])) for n in ("participation", "entropy", "jacobian")]
        saturated = float(part[..., MEASURES.index("saturated")].mean())
        rows.append((layer, sd, *shares, *rest, saturated))
    header = (
        "layer",
        "row sd of the scores",
        "isotropic share",
        "alignment share",
        "query-mean share",
        "Σα²",
        "entropy (nat)",
        "‖J‖_F",
        Phrase("share of rows with ‖J‖_F < {}", SATURATED),
    )
    return Table("Medians over heads and texts, by layer", header, tuple(rows))


def _overall(cube: Array, seed: int) -> Table:
    """Median over heads of the mean over texts, with a 95 % interval that resamples texts."""
    flat = cube.reshape(cube.shape[0], -1, len(MEASURES))
    quantities: dict[str, Array] = {
        "row variance of the scores": flat[..., 0],
        "isotropic law over measured": _ratio(flat, "isotropic"),
        "Σα²": flat[..., MEASURES.index("participation")],
        "entropy (nat)": flat[..., MEASURES.index("entropy")],
        "largest weight": flat[..., MEASURES.index("largest")],
        "median ‖J‖_F of a row": flat[..., MEASURES.index("jacobian")],
    }
    rows: list[tuple[Cell, ...]] = []
    for name, values in quantities.items():
        middle, low, high = cluster_bootstrap(values, "median", seed=seed, experiment=name)
        each = values.mean(axis=0)
        rows.append((name, middle, low, high, float(each.min()), float(each.max())))
    header = ("median over heads", "value", "95 % low", "95 % high", "smallest head", "largest head")
    return Table("All heads (intervals resample whole texts)", header, tuple(rows))


def _inputs(inputs: Sequence[Text]) -> Table:
    rows = tuple((t.label, int(t.tokens.size), f"{t.unknown} ({t.unknown_share:.0%})") for t in inputs)
    return Table("Inputs", ("text", "tokens", "unknown to the vocabulary"), rows)


def _notes(inputs: Sequence[Text]) -> tuple[str, ...]:
    found = [t for t in inputs if t.label == JAPANESE]
    if not found:
        return ()
    return (
        Phrase(
            "The Japanese sentence is shown, not measured: {:.0%} of its tokens are unknown to this vocabulary.",
            found[0].unknown_share,
        ),
    )
