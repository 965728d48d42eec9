"""The first page of reports/: which page shows what, and where each topic of the verified text is proved and measured.

Guarantees: every claim it names exists (an unknown one is an error), every page it names is written by the job or
committed beside it. Does not: hold results.
"""

from __future__ import annotations

from verify.reporting import markdown
from verify.reporting.words import Language, say
from verify.studies.study import Cell

# (file without ending, has a Japanese twin, title, what it shows, the command that makes it)
PAGES = (
    ("derivation", True, "Derivations", "every claim with its steps, conditions, source and verdict", "derive"),
    ("correctness", True, "Correctness", "claims against numbers: 50 digits, float64, `compute`", "report"),
    ("scaling", True, "Scaling", "the variance of q·k against d_k, with and without 1/√d_k", "study variance"),
    ("saturation", True, "Saturation", "how far softmax saturates, and its gradient with it", "study saturation"),
    ("path", True, "Paths", "one step between any two tokens, against RNN and LSTM", "study path"),
    ("weights", True, "Real weights", "the heads of a trained 6-layer encoder", "study weights"),
    ("findings", False, "Findings", "faults found in other libraries by `attnproof check` (English)", "check"),
)  # fmt: skip
# The contents of the verified text, in its order: topic, claims, pages where it is measured.
TOPICS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "Q = XW^Q, K = XW^K, V = XW^V, all from one X",
        ("projections.query", "projections.key", "projections.value", "projections.self_attention"),
        ("correctness",),
    ),
    ("score(i, j) = q_i·k_j, S = QKᵀ", ("scores.matrix", "scores.bilinear"), ("correctness",)),
    (
        "the variance of a score grows in proportion to d_k",
        ("variance.mean", "variance.scores", "variance.scaled", "variance.any_data"),
        ("scaling", "weights"),
    ),
    (
        "without scaling softmax saturates and its gradient vanishes",
        ("softmax.jacobian", "softmax.saturation", "saturation.jacobian_unscaled", "saturation.median_jacobian",
         "saturation.gradient_q_unscaled"),
        ("saturation", "weights"),
    ),
    ("S' = S/√d_k", ("scaling.variance_free", "scaling.queries", "scaling.split"), ("scaling",)),
    (
        "α = softmax of each row of S'; each row sums to 1",
        ("softmax.rows_sum", "softmax.nonnegative", "softmax.shift", "output.weights_sum"),
        ("correctness",),
    ),
    ("z_i = Σ_j α_ij v_j, Z = softmax(QKᵀ/√d_k)V", ("output.matrix", "output.convex_hull"), ("correctness",)),
    (
        "any two tokens are one step apart; an RNN or LSTM passes through all between and degrades",
        ("recurrence.attention_value_path", "recurrence.attention_one_step", "recurrence.linear_product",
         "recurrence.tanh_norm", "recurrence.lstm_cell_path", "depth.path_mean", "counts.recurrent_path"),
        ("path",),
    ),
    ("several heads", ("heads.concat", "heads.one_head"), ("correctness", "weights")),
    ("residual connections", ("residual.block", "residual.gradient", "residual.stack_expanded"), ("correctness",)),
    (
        "masks: causal, window, padding",
        ("masks.removed_key", "masks.causal_no_future", "masks.window"),
        ("correctness",),
    ),
    (
        "the gradients of all of it",
        ("gradients.dq", "gradients.dk", "gradients.dv", "gradients.dwq", "gradients.dx"),
        ("correctness",),
    ),
)  # fmt: skip


def index(language: Language = "en") -> str:
    """The page. Raises derive's UnknownClaim for a topic whose claim is gone."""
    pages: list[tuple[Cell, ...]] = [
        (_page(name, language), say(shows, language), f"`attnproof {command}`") for name, _, _, shows, command in PAGES
    ]
    topics: list[tuple[Cell, ...]] = [
        (
            say(topic, language),
            ", ".join(markdown.linked(c, language) for c in claims),
            ", ".join(_page(name, language) for name in where),
        )
        for topic, claims, where in TOPICS
    ]
    other = "[日本語](README.ja.md)" if language == "en" else "[English](README.md)"
    parts = [
        f"# {say('Reports', language)}",
        other,
        say("index", language),
        markdown.table([say(word, language) for word in ("page", "what it shows", "made again by")], pages),
        f"## {say('Contents', language)}",
        say("index topics", language),
        markdown.table([say(word, language) for word in ("topic", "claims", "measured on")], topics),
        f"## {say('Reading a verdict', language)}",
        say("reading verdicts", language),
    ]
    return "\n\n".join(parts) + "\n"


def _page(name: str, language: Language) -> str:
    twin, title = next((twin, title) for page, twin, title, _, _ in PAGES if page == name)
    file = f"{name}.ja.md" if language == "ja" and twin else f"{name}.md"
    return f"[{say(title, language)}]({file})"
