"""How much of a token reaches another one L positions away: through attention, a linear RNN, and an LSTM's cell.

Guarantees: every mean is compared with its exact value by the standard error of independent replicates: attention's
weight on the farthest of L + 1 keys with the claims depth.path_mean and depth.path_square; the other two with the
values derived here, since only their logarithms have tests that a few replicates can carry (the mean of a product of
many factors is carried by rare replicates, as the mean of a saturated softmax is).
Does not: train anything; weights are drawn as at initialisation.

RNN: J = Π W_t with independent W_t of entries N(0, g²/N). For a unit u, ‖W u‖² has the law g²χ²_N/N whatever u is, so
E ln‖J u‖ = L (ln g + (ψ(N/2) − ln(N/2))/2), ψ the digamma function. LSTM: the cell's path is Π f_t (claim
recurrence.lstm_cell_path), f_t = sigmoid(b + s z_t) with normal z_t, so E ln Π f_t = L·E ln f.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compute.accumulate import Moments
from compute.errors import InputError
from compute.sampling import gaussian_rows
from compute.streams import Stream
from verify.studies.statistics import AGREES_BELOW, DIFFERS_BELOW, Measured, holm
from verify.studies.study import Cell, Phrase, Point, StudyResult, Table, Test

Array = npt.NDArray[np.float64]
LENGTHS = (1, 4, 16, 64, 256)
CLAIMS = ("depth.path_mean", "depth.path_square", "recurrence.linear_product", "recurrence.lstm_cell_path")
# What agreement means: attention within 20 %, logarithms of products within 0.35.
RELATIVE, ABSOLUTE = 0.2, 0.35
HEAD = 64  # d_k of the attention rows, scaled by 1/√d_k
GATE = (1.0, 1.0)  # mean and spread of an LSTM's forget gate before the sigmoid
# Every fourth of 61 tokens: one drawn example of each kind of path, for a picture.
TOKENS, STRIDE = 61, 4
QUANTITIES = ("attention: α", "attention: α²", "RNN: ln‖J u‖", "LSTM: ln Π f")


def study_path(
    lengths: Sequence[int] = LENGTHS,
    *,
    width: int = 16,
    gain: float = 0.9,
    rows: int = 40_000,
    products: int = 1600,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> StudyResult:
    """Measure the three paths at each distance L.

    width, gain: N and g of the RNN. rows: attention rows and LSTM paths; products: RNN matrix products. Raises
    InputError for a distance below 1, or sizes that hold no estimate.
    """
    distances = sorted(set(lengths))
    if not distances or distances[0] < 1 or width < 1 or not gain > 0 or rows < 100 or products < 10:
        raise InputError(
            f"lengths={list(lengths)}, width={width}, gain={gain}, rows={rows}, products={products}: "
            "expected distances >= 1, width >= 1, gain > 0, at least 100 rows and 10 products"
        )
    points: list[Point] = []
    typical: list[tuple[int, float, float, float]] = []
    for distance in distances:
        progress(f"paths over {distance} positions")
        weight = _attention(distance, rows, seed)
        rnn = _rnn(distance, width, gain, products, seed)
        lstm = _lstm(distance, rows, seed)
        measured = (weight, weight**2, rnn, lstm)
        for name, values, law in zip(QUANTITIES, measured, _laws(distance, width, gain), strict=True):
            points.append(Point({"quantity": name, "L": distance}, _mean(values), law))
        typical.append((distance, _median(weight), _median(np.exp(rnn)), _median(np.exp(lstm))))
    return StudyResult(
        name="path",
        title="How far a signal carries: attention, RNN, LSTM",
        claims=CLAIMS,
        command=_command(distances, seed),
        seed=seed,
        points=tuple(points),
        tests=tuple(_judge(points)),
        tables=(_means(points), _typical(typical)),
        data={
            "typical": typical,
            "tokens": list(range(0, TOKENS, STRIDE)),
            "between": _between(width, gain, seed),
            "settings": {"tokens": TOKENS, "width": width, "gain": gain, "d_k": HEAD, "gate": GATE},
        },
    )


def _median(values: Array) -> float:
    return float(np.median(values))


def _mean(values: Array) -> Measured:
    moments = Moments.of(values)
    return Measured(moments.mean, moments.standard_error, moments.count - 1)


def _attention(distance: int, rows: int, seed: int) -> Array:
    """Weight of the farthest of `distance` + 1 keys, in independent rows."""
    found = []
    for block, start in enumerate(range(0, rows, 4096)):
        stream = Stream(seed, f"path/attention/{distance}", block)
        s = gaussian_rows(stream, min(4096, rows - start), distance + 1, HEAD, HEAD**-0.5)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        found.append(e[:, 0] / e.sum(axis=1))
    return np.concatenate(found)


def _rnn(distance: int, width: int, gain: float, products: int, seed: int) -> Array:
    """ln‖W_L … W_1 u‖ for a fixed unit u, by multiplying the matrices of independent replicates."""
    found = []
    for block, start in enumerate(range(0, products, 400)):
        stream = Stream(seed, f"path/rnn/{distance}/{width}", block)
        count = min(400, products - start)
        u = np.zeros((count, width, 1))
        u[:, 0] = 1.0
        total = np.zeros(count)
        for _ in range(distance):
            u = (gain / math.sqrt(width)) * stream.normals((count, width, width)) @ u
            size = np.sqrt((u * u).sum(axis=(1, 2)))
            total += np.log(size)
            u /= size[:, None, None]
        found.append(total)
    return np.concatenate(found)


def _lstm(distance: int, rows: int, seed: int) -> Array:
    """ln Π f_t of independent gates: ln sigmoid(x) = −ln(1 + e^(−x))."""
    mean, spread = GATE
    count = min(rows, max(100, 1_600_000 // distance))
    x = mean + spread * Stream(seed, f"path/lstm/{distance}").normals((count, distance))
    total: Array = -np.logaddexp(0.0, -x).sum(axis=1)
    return total


def _between(width: int, gain: float, seed: int) -> dict[str, list[list[float]]]:
    """How strongly token j (column) reaches token i (row) in one drawn example of each kind, at every fourth token.

    Attention without a mask reaches both ways; a recurrent net reaches only later tokens (0 elsewhere, 1 at j = i).
    """
    stream = Stream(seed, "path/between")
    q, k = stream.normals((2, TOKENS, HEAD))
    scores = q @ k.T / math.sqrt(HEAD)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    attention = (e / e.sum(axis=1, keepdims=True))[::STRIDE, ::STRIDE]
    matrices = (gain / math.sqrt(width)) * stream.normals((TOKENS, width, width))
    gates = 1.0 / (1.0 + np.exp(-(GATE[0] + GATE[1] * stream.normals((TOKENS,)))))
    places = range(0, TOKENS, STRIDE)
    rnn, lstm = np.zeros((len(places),) * 2), np.zeros((len(places),) * 2)
    for column, j in enumerate(places):
        u, cell = np.eye(width)[0], 1.0
        for i in range(j, TOKENS):
            if i > j:
                u, cell = matrices[i] @ u, cell * float(gates[i])
            if i % STRIDE == 0:
                rnn[i // STRIDE, column], lstm[i // STRIDE, column] = float(np.linalg.norm(u)), cell
    return {"attention": attention.tolist(), "rnn": rnn.tolist(), "lstm": lstm.tolist()}


def _laws(distance: int, width: int, gain: float) -> tuple[float, float, float, float]:
    from scipy.integrate import quad
    from scipy.special import digamma

    import derive
    from derive.oracle import expect

    n = distance + 1
    mean_claim: Any = derive.claim("depth.path_mean").rhs
    mean = float(mean_claim.subs(dict.fromkeys(mean_claim.free_symbols, n)))
    square = float(expect("p2", n, d_k=HEAD).value) / n
    rnn = distance * (math.log(gain) + 0.5 * (float(digamma(width / 2)) - math.log(width / 2)))
    gate, spread = GATE

    def weighted(z: float) -> float:
        return float(-np.logaddexp(0.0, -(gate + spread * z)) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi))

    return mean, square, rnn, distance * float(quad(weighted, -12, 12, epsabs=1e-13)[0])


def _judge(points: Sequence[Point]) -> list[Test]:
    worst = min(holm([p.measured.p_equal(p.law) for p in points]))
    outside = [p.measured.p_outside(p.law, _margin(p)) for p in points]
    return [
        Test(
            "every mean is the exact one",
            Phrase("smallest Holm-adjusted p {:.2g} over {} means", worst, len(points)),
            worst,
            worst >= DIFFERS_BELOW,
        ),
        Test(
            Phrase("attention is within {:.0%}, logarithms within {} of the exact mean", RELATIVE, ABSOLUTE),
            Phrase("largest p of the two one-sided tests {:.2g}", max(outside)),
            max(outside),
            True if max(outside) < AGREES_BELOW else None,
        ),
    ]


def _margin(point: Point) -> float:
    return RELATIVE * point.law if str(point.factors["quantity"]).startswith("attention") else ABSOLUTE


def _means(points: Sequence[Point]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for p in sorted(points, key=lambda p: QUANTITIES.index(str(p.factors["quantity"]))):
        low, high = p.measured.interval()
        rows.append((p.factors["quantity"], p.factors["L"], p.law, p.measured.value, low, high, p.score))
    return Table(
        "Means over a distance L", ("mean of", "L", "exact", "measured", "95 % low", "95 % high", "z"), tuple(rows)
    )


def _typical(rows: Sequence[tuple[int, float, float, float]]) -> Table:
    header = ("L", "attention weight", "RNN ‖J u‖", "LSTM Π f")
    return Table("Medians: what a typical path carries", header, tuple(rows))


def _command(distances: Sequence[int], seed: int) -> str:
    words = ["attnproof study path --lengths", ",".join(map(str, distances))]
    return " ".join(words + ([f"--seed {seed}"] if seed else []))
