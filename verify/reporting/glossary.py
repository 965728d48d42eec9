"""The words of Japanese pages: one for each notion; and laws and scopes, which derive says in English, in Japanese.

Guarantees: `worded` puts a claim's own Japanese into the words of the glossary, and leaves code, formulas and links as
they are; a text in these words stays as it is (the tests ask every Japanese page). A law or a scope without a Japanese
form is said as it stands. Does not: translate free text.
"""

from __future__ import annotations

import re

# What a claim may say (a pattern) and the page's one word for it.
GLOSSARY: tuple[tuple[str, str], ...] = (
    ("注意", "アテンション"),
    (r"(?<=[ぁ-ヿ一-鿿]) ?softmax(?![\w.(]) ?(?=[ぁ-ヿ一-鿿])", "ソフトマックス"),
    (r" ?softmax(?![\w.(]) (?=[ぁ-ヿ一-鿿])", "ソフトマックス"),
    (r"(?<=[ぁ-ヿ一-鿿]) softmax(?![\w.(])", "ソフトマックス"),
    (r"softmax(?![\w.(])", "ソフトマックス"),
    ("鍵", "キー"),
    ("過剰尖度", "超過尖度"),
    ("平均二乗", "二乗平均"),
    ("クエリの重みによる微分", "クエリの重みで微分"),
    (r"(?<=[ぁ-ヿ一-鿿])一つ ?(?=の)", " 1 つ"),
    (r"一つ", "1 つ"),
    (r"(?<=[ぁ-ヿ一-鿿])二つ", " 2 つ"),
    (r"二つ", "2 つ"),
    (r"(?<=[ぁ-ヿ一-鿿])三つ", " 3 つ"),
    (r"三つ", "3 つ"),
    (r"(?<=[ぁ-ヿ一-鿿])(\d)つ", r" \1 つ"),
    (r"(\d)つ", r"\1 つ"),
)
_KEPT = re.compile(r"(```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\[[^\]\n]*\]\([^)\n]*\)|^#+ .*$)", re.S | re.M)


def worded(text: str) -> str:
    """A Japanese text in the words of the glossary.

    >>> worded("2つの鍵の自己注意、`2つ` は別")
    '2 つのキーの自己アテンション、`2つ` は別'
    """
    parts = _KEPT.split(text)
    for pattern, word in GLOSSARY:
        parts[::2] = [re.sub(pattern, word, part) for part in parts[::2]]
    return "".join(parts)


# Laws of random entries, whole: a pattern of the English and the Japanese with its groups.
_LAWS: tuple[tuple[str, str], ...] = (
    (r"N\(.+\)", r"\g<0>"),
    (r"mean (.+?)(?:,| and) variance ([^,]+)", r"平均 \1、分散 \2"),
    (r"mean (.+?), variance ([^,]+), skewness ([^,]+)", r"平均 \1、分散 \2、歪度 \3"),
    (
        r"mean (.+?), variance ([^,]+), skewness ([^,]+), excess kurtosis (.+)",
        r"平均 \1、分散 \2、歪度 \3、超過尖度 \4",
    ),
    (
        r"jointly Gaussian, means (\(.+?\)), deviations (\(.+?\)), correlation (.+)",
        r"同時ガウス分布:平均 \1、標準偏差 \2、相関 \3",
    ),
    (r"jointly Gaussian, centred, covariances (.+)", r"平均 0 の同時ガウス分布:共分散 \1"),
    (r"uniform on (\[.+\])", r"\1 の一様分布"),
    (
        r"Haar-distributed with orthonormal columns \(variance (.+), uncorrelated\)",
        r"列が正規直交の Haar 分布(分散 \1、無相関)",
    ),
    (r"mean (.+?), variance (.+), uncorrelated", r"平均 \1、分散 \2、無相関"),
    (r"Rademacher", "Rademacher 分布"),
    (r"(Laplace)\((.+)\)", r"\1 分布 (\2)"),
    (r"(.+) \+ exponential of mean (.+)", r"\1 + 平均 \2 の指数分布"),
    (r"Student t, (.+) degrees of freedom", r"自由度 \1 の Student の t 分布"),
)


def law(text: str) -> str:
    """The law of random entries in Japanese, or as it stands.

    >>> law("mean mu_q and variance sigma_q**2")
    '平均 mu_q、分散 sigma_q**2'
    """
    return _said(text, _LAWS)


# Scopes of verdicts, part by part.
_SCOPES: tuple[tuple[str, str], ...] = (
    ("all sizes", "すべてのサイズ"),
    (
        "all n, d_k, s and d_model, for keys of other tokens",
        "すべての n、d_k、s、d_model(キーはほかのトークンのもの)",
    ),
    ("all n, d_k and s", "すべての n、d_k、s"),
    ("d_model → ∞ at fixed n, d_k and s", "n、d_k、s を固定して d_model → ∞"),
    ("d_k → ∞, every value of the rest", "ほかのすべての値で d_k → ∞"),
    ("every n ≥ 1 and v", "すべての n ≥ 1 と v"),
    (r"every n ≥ (\d) and ([vg]) (≥|>) 0", r"すべての n ≥ \1 と \2 \3 0"),
    (r"every ([nd]) ≥ (\d)", r"すべての \1 ≥ \2"),
    (r"every n ≥ 1, to (v\^\d)", r"すべての n ≥ 1、\1 の項まで"),
    ("every n ≥ 1, every key", "すべての n ≥ 1 とすべてのキー"),
    ("n = 2, every v > 0", "n = 2、すべての v > 0"),
    ("n → ∞ at every fixed v, remainder of relative order 1/n²", "どの v も固定して n → ∞、剰余は相対的に 1/n² の次数"),
    (r"v → ∞ at every fixed n ≥ (\d)", r"どの n ≥ \1 も固定して v → ∞"),
    (r"v → ∞ at every fixed n ≥ 2 and 0 < ε < 1/2", "どの n ≥ 2、0 < ε < 1/2 も固定して v → ∞"),
    ("λ → ∞", "λ → ∞"),
    ("the limit bounds the left side from above", "極限は左辺の上界でもある"),
    ("wherever the argument is positive", "引数が正のところ"),
    ("wherever both sides are defined", "両辺が定義されるところ"),
    (r"(\d+) points against the oracle, each within the stated error", r"オラクルと \1 点で照合、どれも示した誤差以内"),
    (r"(\d+) points, each within (\S+)", r"\1 点、どれも誤差 \2 以内"),
    (
        r"extrapolated from d_k = ([\d, ]+), within (\S+) of the limit, relatively",
        r"d_k = \1 から外挿、極限から相対誤差 \2 以内",
    ),
)


def scope(text: str) -> str:
    """The scope of a verdict in Japanese; a part without a Japanese form as it stands.

    >>> scope("every n ≥ 2; its stated error is numeric, 8 points against the oracle, each within the stated error")
    'すべての n ≥ 2。示した誤差は数値による:オラクルと 8 点で照合、どれも示した誤差以内'
    """
    numeric = "its stated error is numeric, "
    parts = []
    for part in text.split("; "):
        lead = "示した誤差は数値による:" if part.startswith(numeric) else ""
        parts.append(lead + _said(part.removeprefix(numeric), _SCOPES))
    return "。".join(parts)


def _said(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for pattern, japanese in table:
        if found := re.fullmatch(pattern, text):
            return found.expand(japanese)
    return text
