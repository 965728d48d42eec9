"""Where a claim comes from: references as data, printed by reports and by `--cite`.

Guarantees: every source has a citation key, and `bibtex` of the sources used is what a report prints.
Does not: check that a reference exists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Source:
    """A reference. place: section, equation or footnote inside it, as "section 3.2.1, footnote 4"."""

    key: str
    authors: str
    title: str
    year: int
    venue: str = ""
    url: str = ""
    place: str = ""

    def at(self, place: str) -> Source:
        """The same reference at one place in it."""
        return replace(self, place=place)

    def __str__(self) -> str:
        text = f"{self.authors} ({self.year}). {self.title}."
        text += f" {self.venue}." if self.venue else ""
        return f"{text} {self.place[:1].upper()}{self.place[1:]}." if self.place else text

    def bibtex(self) -> str:
        fields = {"author": self.authors.replace(", ", " and "), "title": self.title, "year": str(self.year)}
        if self.venue:
            fields["howpublished"] = self.venue
        if self.url:
            fields["url"] = self.url
        body = ",\n".join(f"  {k} = {{{v}}}" for k, v in fields.items())
        return f"@misc{{{self.key},\n{body}\n}}"


VASWANI = Source(
    "vaswani2017",
    "Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin",
    "Attention Is All You Need",
    2017,
    "NeurIPS 2017, arXiv:1706.03762",
    "https://arxiv.org/abs/1706.03762",
)
MILAKOV = Source(
    "milakov2018",
    "Milakov, Gimelshein",
    "Online normalizer calculation for softmax",
    2018,
    "arXiv:1805.02867",
    "https://arxiv.org/abs/1805.02867",
)
DAO = Source(
    "dao2022",
    "Dao, Fu, Ermon, Rudra, Ré",
    "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
    2022,
    "NeurIPS 2022, arXiv:2205.14135",
    "https://arxiv.org/abs/2205.14135",
)
GLOROT = Source(
    "glorot2010",
    "Glorot, Bengio",
    "Understanding the difficulty of training deep feedforward neural networks",
    2010,
    "AISTATS 2010",
)
LECUN = Source(
    "lecun1998",
    "LeCun, Bottou, Orr, Müller",
    "Efficient BackProp",
    1998,
    "Neural Networks: Tricks of the Trade",
)
HE = Source(
    "he2015",
    "He, Zhang, Ren, Sun",
    "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet Classification",
    2015,
    "ICCV 2015, arXiv:1502.01852",
    "https://arxiv.org/abs/1502.01852",
)
HERE = Source("attnproof", "the attnproof authors", "Derived and checked in attnproof", 2026)
