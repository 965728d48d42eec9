"""The pages of the studies of saturation, of real weights, and of paths.

Guarantees: each is a function of a result and of the claims it names; nothing of the machine or the moment is on it.
Does not: run anything.
"""

from __future__ import annotations

from verify.reporting import markdown
from verify.reporting.formulas import block
from verify.reporting.words import Language, known, say
from verify.studies.study import Cell, StudyResult

SATURATION_SHOWS = "Saturation of softmax against d_k: the mean falls slowly without scaling, the median dies out"
WEIGHTS_SHOWS = (
    "The heads of a real model: row variance beside the exact identity and the isotropic law; where rows saturate"
)
PATH_SHOWS = (
    "Attention reaches any token in one step; an RNN passes through every position between, and fades with distance"
)
BETWEEN_SHOWS = "How strongly each token reaches each other: attention everywhere alike, RNN and LSTM only nearby"


def saturation(result: StudyResult, image: str | None, language: Language = "en") -> str:
    """The page of the saturation study."""
    parts = [
        f"# {say('Saturation', language)}",
        say("saturation", language),
        f"## {known(result.title, language)}",
        say("saturation symbols", language),
        markdown.study(result, image=image, shows=SATURATION_SHOWS, language=language),
        say("saturation median", language),
    ]
    return "\n\n".join(parts) + "\n"


def weights(result: StudyResult, image: str | None, language: Language = "en") -> str:
    """The page of the study on a real model."""
    parts = [
        f"# {say('Real weights', language)}",
        say("weights", language),
        "$$\n\\frac{1}{n}\\sum_i \\mathrm{Var}_j S_{ij} = s^2 \\mathrm{tr}(M_q \\Sigma_k)\n$$",
        say("weights identity", language),
        f"## {known(result.title, language)}",
        markdown.study(result, image=image, shows=WEIGHTS_SHOWS, language=language),
        say("weights columns", language),
    ]
    return "\n\n".join(parts) + "\n"


def path(result: StudyResult, images: tuple[str, str] | None, language: Language = "en") -> str:
    """The page of the study of paths. images: of the comparison by distance, and between any two tokens."""
    settings = result.data["settings"]
    picture = [markdown.picture(images[0], say(PATH_SHOWS, language))] if images else []
    between = [markdown.picture(images[1], say(BETWEEN_SHOWS, language))] if images else []
    mean, spread = settings["gate"]
    drawn = (settings["tokens"], settings["d_k"], settings["width"], settings["gain"], mean, spread)
    parts = [
        f"# {say('Paths', language)}",
        markdown.with_links(say("path", language), language),
        *picture,
        f"## {say('One step', language)}",
        markdown.with_links(say("path attention", language), language),
        _claim("recurrence.attention_value_path"),
        markdown.with_links(say("path dilution", language), language),
        _claim("depth.path_mean"),
        _claim("depth.path_square"),
        f"## {say('Through every position between', language)}",
        markdown.with_links(say("path rnn", language), language),
        "$$\n\\mathbb{E} \\ln \\Vert J u \\Vert = "
        "L \\left( \\ln g + \\tfrac12 \\left( \\psi(N/2) - \\ln(N/2) \\right) \\right)\n$$",
        markdown.with_links(say("path lstm", language), language),
        _claim("recurrence.lstm_cell_path"),
        markdown.with_links(say("path steps", language), language),
        f"## {say('Between any two tokens', language)}",
        say("path between", language, *drawn),
        *between,
        f"## {say('Measured', language)}",
        markdown.study(result, language=language),
        f"## {say('What it costs', language)}",
        markdown.with_links(say("path counts", language), language),
        _costs(language),
    ]
    return "\n\n".join(parts) + "\n"


def _claim(claim_id: str) -> str:
    import derive

    one = derive.claim(claim_id)
    return block(one.lhs, one.relation, one.rhs)


# kind, multiplications, sequential steps, longest path, and the claims that prove them.
_COSTS = (
    ("self-attention", "2n²d", "1", "1", ("counts.self_attention", "recurrence.attention_value_path")),
    ("recurrent", "nd²", "n", "n − 1", ("counts.recurrent", "counts.recurrent_steps", "counts.recurrent_path")),
    (
        "convolution of width k, stacked",
        "knd²",
        "1",
        "(n − 1)/(k − 1)",
        ("counts.convolutional", "counts.contiguous_reach"),
    ),
    ("dilated convolutions, stacked", "knd²", "1", "⌈log_k n⌉", ("counts.convolutional", "counts.dilated_reach")),
)


def _costs(language: Language) -> str:
    rows: list[tuple[Cell, ...]] = [
        (known(kind, language), work, steps, longest, ", ".join(markdown.linked(c, language) for c in claims))
        for kind, work, steps, longest, claims in _COSTS
    ]
    header = ("kind of layer", "multiplications", "sequential steps", "longest path", "claims")
    return markdown.table([say(word, language) for word in header], rows)
