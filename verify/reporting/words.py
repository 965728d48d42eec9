"""The fixed words of pages, in English and Japanese.

Guarantees: every phrase has both languages; asking for one that is not here is a KeyError, which the tests would meet.
Does not: translate what claims say: they carry their own titles and notes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from verify.reporting import glossary
from verify.reporting.glossary import worded
from verify.reporting.study_words import PHRASES, REASONS, TEXTS
from verify.studies.study import Phrase

if TYPE_CHECKING:
    from derive.verdict import Verdict

Language = Literal["en", "ja"]

# Long texts: name -> (English, Japanese).
_TEXTS: dict[str, tuple[str, str]] = {
    "derivations": (
        "Every statement below is for symbolic sizes. A verdict is the weakest of its steps': `Proved` needs two "
        "independent checkers, `Unknown` is not `Refuted`. Made by `attnproof report`; one claim again: "
        "`attnproof derive CLAIM`.",
        "以下の命題はすべて記号的なサイズについてのもの。判定は各ステップの判定のうち最も弱いものである。`Proved`"
        " には独立な 2 つの検査器が必要で、`Unknown` は `Refuted` ではない。このページは `attnproof report` が作"
        "る。1 つの命題だけなら `attnproof derive CLAIM`。",
    ),
    "correctness": (
        "Every claim of `derive` against numbers, three times: both sides evaluated node by node in 50 digits at "
        "drawn sizes and inputs; the right side as a float64 function against its value in many digits, within "
        "the worst-case rounding bound of its own operations; and what `compute` computes, within the bound of "
        "the plain algorithm. A dash means that a comparison does not apply (a softmax's mean, a limit, no such "
        "call); the list below says why. Made by `attnproof report`.",
        "`derive` の命題を 3 通りに数値と照合する。(1) 乱数で選んだサイズと入力で両辺を 50 桁で 1 演算ずつ評価す"
        "る。(2) 右辺を float64 の関数にし、多倍長の値との差が演算ごとの最悪の丸め誤差の範囲にあることを確かめる"
        "。(3) `compute` の計算結果との差が素朴なアルゴリズムの誤差限界の範囲にあることを確かめる。ダッシュは照合"
        "の対象外(ソフトマックスの平均、極限、対応する関数なし)を表し、理由は下の一覧にある。このページは "
        "`attnproof report` が作る。",
    ),
    "scaling": (
        "Why scores are divided by √d_k: how the variance of q·k grows with d_k, measured on drawn queries and "
        "keys beside the proved law. Made by `attnproof report`; real weights are on [their own page](weights.md)"
        ", saturation on [its own](saturation.md).",
        "スコアを √d_k で割る理由:q·k の分散が d_k とともにどう増えるかを、乱数のクエリとキーで測り、証明された"
        "法則と並べる。このページは `attnproof report` が作る。実際のモデルの重みは[別のページ](weights.ja.md)、飽和"
        "も[別のページ](saturation.ja.md)にある。",
    ),
    "variance columns": (
        "A block is N queries against N keys; z is (measured − claim)/standard error, the ratio is measured/claim, and "
        "p-values are of two-sided tests, adjusted by Holm's method where several are judged together.",
        "1 ブロックは N 個のクエリと N 個のキーの組。z は(測定値 − 命題の値)/標準誤差、比は測定値/命題の値。p 値は両側"
        "検定のもので、まとめて判定するときは Holm の方法で補正する。",
    ),
    "components": (
        "with independent components of means μ and standard deviations σ; for zero means",
        "成分は独立で、平均 μ、標準偏差 σ。平均が 0 のとき",
    ),
    "blocks": (
        "Scores of one block of N queries and N keys are not independent; every interval here is between "
        "independent blocks, of which there are as many as the precision needs.",
        "N 個のクエリと N 個のキーから作る 1 ブロックのスコアは互いに独立ではない。ここの区間はすべて独立なブロッ"
        "クの間のばらつきによる。ブロックの数は必要な精度から決まる。",
    ),
    "any law": (
        "The law needs means and variances only, so any components obey it.",
        "法則に必要なのは平均と分散だけなので、どんな分布の成分にも成り立つ。",
    ),
}
# Short phrases: the English is the key; one with braces is a format.
_JAPANESE = {
    "Derivations": "導出",
    "{} claims: {}.": "命題 {} 件:{}。",
    "claim": "命題",
    "what it says": "内容",
    "verdict": "判定",
    "In matrix form the right side is": "右辺を行列で書くと",
    "Conditions:": "条件:",
    "Conditions": "条件",
    "Definitions": "定義",
    "Symbols": "記号",
    "Proof": "証明",
    "Verdict": "判定",
    "By {}{}.": "規則 {}{}。",
    "array of shape ({})": "形 ({}) の配列",
    "an index": "添字",
    "size, a whole number": "サイズ(0 以上の整数)",
    "positive number": "正の数",
    "real number": "実数",
    "{} claims": "命題 {} 件",
    "interrupted: {} of {} claims were done": "中断:命題 {} / {} 件まで終了",
    "Steps:": "ステップ:",
    "One step, by `{}`{}.": "1 ステップ、規則 `{}`{}。",
    "{}. by `{}`{}.": "{}. 規則 `{}`{}。",
    ", from {}": "(前提 {})",
    "Source: {}": "出典:{}",
    "Rules": "規則",
    "References": "参考文献",
    "Correctness": "数値との照合",
    "comparison": "照合",
    "agree": "一致",
    "differ": "不一致",
    "do not apply": "対象外",
    "both sides in 50 digits": "両辺、50 桁",
    "formula in float64": "式、float64",
    "`compute` in float64": "`compute`、float64",
    "outcome": "結果",
    "agrees": "一致",
    "differs": "不一致",
    "skipped": "対象外",
    "undecided": "未決",
    "within": "範囲内",
    "{} times the bound": "限界の {} 倍",
    "What did not apply": "対象外の理由",
    "Scaling": "スケーリング",
    "The law": "法則",
    "Normal components": "正規分布の成分",
    "Other components": "ほかの分布の成分",
    "Outcome: **{}**.{} Again: `{}` (seed {}).": "結果:**{}**。{}再実行:`{}`(シード {})。",
    " Law: {}.": "法則:{}。",
    "tested": "検定",
    "evidence": "根拠",
    "holds": "成り立つ",
    "**fails**": "**成り立たない**",
    "every level is the claim's": "すべての水準が命題の値に等しい",
    "every local slope is the claim's": "すべての局所的な傾きが命題の値に等しい",
    "Levels": "水準",
    "Slopes of ln Var against ln d_k": "ln d_k に対する ln Var の傾き",
    "scale": "スケール",
    "d_k": "d_k",
    "blocks": "ブロック数",
    "measured": "測定値",
    "95 % low": "95 % 下限",
    "95 % high": "95 % 上限",
    "ratio": "比",
    "z": "z",
    "claim's slope": "命題の傾き",
    "Variance of q·k against d_k": "d_k に対する q·k の分散",
    "all, weighted fit": "全体(重み付き最小二乗)",
}


_TEXTS |= TEXTS
_JAPANESE |= PHRASES


def say(phrase: str, language: Language, *parts: object) -> str:
    """A phrase, or the text of a name, in a language, its braces filled.

    >>> say("{} claims: {}.", "en", 3, "3 Proved")
    '3 claims: 3 Proved.'
    """
    if phrase in _TEXTS:
        text = _TEXTS[phrase][language == "ja"]
        return text.format(*parts) if parts else text
    text = phrase if language == "en" else _JAPANESE[phrase]
    return text.format(*parts) if parts else text


def reason(rule: str, language: Language) -> str:
    """Why a rule is sound: the first paragraph of its own text, or the same in Japanese."""
    if language == "ja":
        from verify.reporting.rule_words import REASONS

        return REASONS[rule]
    from derive.rules import rules

    return " ".join((rules()[rule].__doc__ or "").strip().split("\n\n")[0].split())


def meaning(text: str, language: Language) -> str:
    """What a letter means; a meaning that a reader's own claim brings is said as it stands."""
    if language == "ja":
        from verify.reporting.symbol_words import japanese

        try:
            return japanese(text)
        except KeyError:
            return text
    return text


def condition_words(condition: str, language: Language) -> str:
    """A condition in words; one that a reader's own claim brings is said as it stands."""
    if language == "ja":
        from verify.reporting.rule_words import CONDITIONS

        return CONDITIONS.get(condition, condition)
    return condition


def own(words: Mapping[str, str], language: Language) -> str:
    """A claim's own words, its Japanese in the words of the glossary, for a page; "" where it has none."""
    text = words.get(language, "")
    return worded(text) if language == "ja" else text


def joined(text: str, more: str, language: Language) -> str:
    """Two sentences in a row: a space between them in English, none in Japanese."""
    return f"{text}{' ' if language == 'en' else ''}{more}" if more else text


def data_words(one: Any, language: Language) -> str | None:
    """A condition that is data and no formula, in Japanese; None where the English is meant, or it is a formula."""
    from derive.assumptions import FixedArray, RandomEntries, ZeroOne

    if language == "en":
        return None
    if isinstance(one, ZeroOne):
        return f"{one.array} の成分はすべて 0 か 1"
    if isinstance(one, FixedArray):
        return f"{one.array} は固定"
    if isinstance(one, RandomEntries):
        names = "、".join(str(a) for a in one.arrays)
        law = glossary.law(str(one.law)).replace("**", "^")
        gap = " " if law[0].isascii() else ""
        return f"{names}:位置が異なる成分は互いに独立、各位置は{gap}{law}、ほかのすべてと独立"
    return None


def verdict_words(verdict: Verdict, language: Language) -> str:
    """A verdict with its scope; its kind is a name and stays."""
    if language == "ja" and verdict.scope:
        return f"{verdict.kind.title}:{glossary.scope(verdict.scope)}"
    return str(verdict)


def skipped_for(detail: str, language: Language) -> str:
    """Why a comparison did not apply; a reason without a translation is said as it stands."""
    if language == "ja":
        for pattern, japanese in REASONS:
            if found := re.fullmatch(pattern, detail):
                return re.sub(r".*(?=:成分ごとの分布がない$)", lambda m: glossary.law(m[0]), found.expand(japanese))
    return detail


def known(phrase: str, language: Language) -> str:
    """A word that may also be data (a scale, a number): said in the language where it is a phrase."""
    if language == "en":
        return str(phrase)
    if isinstance(phrase, Phrase) and phrase.parts:
        parts = (known(part, language) if isinstance(part, str) else part for part in phrase.parts)
        return _JAPANESE.get(phrase.template, phrase.template).format(*parts)
    return _JAPANESE.get(phrase, phrase)
