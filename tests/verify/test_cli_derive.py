"""`attnproof derive`: what it prints, writes and returns."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sympy

import derive
from derive.assumptions import Defined
from derive.gradient_nodes import Gradient
from verify.cli import main
from verify.jsonout import schema
from verify.reporting.formulas import latex
from verify.reporting.plain import plain_text
from verify.reporting.rule_words import CONDITIONS, REASONS
from verify.reporting.symbol_words import japanese
from verify.reporting.symbols import explained
from verify.reporting.tex import latex_document, words


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["derive", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_list_names_every_claim_and_proves_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: Any) -> Any:
        raise AssertionError("--list proved something")

    monkeypatch.setattr(derive.Claim, "prove", never)
    code, out, _ = run(capsys, "--list")
    assert code == 0
    assert all(c.id in out for c in derive.claims())


def test_a_claim_is_proved_and_its_steps_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scores.bilinear")
    assert code == 0
    one = derive.claim("scores.bilinear")
    assert one.title["en"] in out
    assert "Proved" in out
    assert all(step.rule in out for step in one.steps)


@pytest.mark.parametrize(("form", "mark"), [("latex", r"\begin{align*}"), ("markdown", "$$")])
def test_other_formats(form: str, mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "softmax.jacobian", "--format", form)
    assert code == 0
    assert mark in out
    assert "Proved" in out


def test_cite_prints_each_source_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scores", "softmax", "--cite")
    assert code == 0
    assert out.count("@misc{vaswani2017") == 1


def test_json_follows_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "out.json"
    code, out, _ = run(capsys, "variance.scores", "scores.matrix", "--json", str(place))
    found = json.loads(place.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema("derive-1"))
    assert code == 0
    assert [c["id"] for c in found["claims"]] == ["variance.scores", "scores.matrix"]
    assert found["claims"][0]["verdict"]["kind"] == "Proved"
    assert "variance.scores" in out


def test_json_on_standard_output_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--list", "--json", "-")
    jsonschema.validate(json.loads(out), schema("derive-1"))


def test_an_unknown_claim_offers_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "softmax.jacobien")
    assert code == 2
    assert "softmax.jacobian" in err
    assert "Traceback" not in err


def test_what_is_not_proved_gives_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive.Claim, "prove", lambda self: derive.Verdict.unknown("no rule applies"))
    code, out, _ = run(capsys, "scores.matrix")
    assert code == 1
    assert "Unknown: no rule applies" in out
    assert "Refuted" not in out


# ---- LaTeX -----------------------------------------------------------------------------------------------------------

PROVED = derive.Verdict.proved()
# What LaTeX and amsmath know, of what is used; \\mathbb has a stand-in in the document itself.
KNOWN = set(
    re.findall(
        r"\w+",
        """
        documentclass usepackage providecommand mathbb mathbf allowdisplaybreaks begin end section paragraph item
        texttt tag ensuremath textbackslash textasciicircum textasciitilde dots text operatorname mathrm mathcal frac
        tfrac sqrt sum prod int lim infty le ge ne to top quad partial cdot times div pm circ surd mapsto in approx
        lfloor rfloor lceil rceil langle rangle ell nabla bar tilde log exp tanh sinh cosh sin cos max min arctan land
        lor lnot left right bmod sim textstyle alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi
        rho sigma tau phi varphi chi psi omega vartheta Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega odot mathbin
        """,
    )
)


def balanced(tex: str) -> bool:
    """Environments close in the order in which they were opened, and so do braces; dollars come in pairs."""
    tex = re.sub(r"(?<!\\)%.*", "", tex)
    open_environments: list[str] = []
    for what, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", tex):
        if what == "begin":
            open_environments.append(name)
        elif not open_environments or open_environments.pop() != name:
            return False
    if re.search(r"\\item\[(?!\{)[^\]]*[\[$]", tex):
        return False  # a label that isn't in braces ends at its first square bracket
    if re.search(r"'(?:_\{[^{}]*\}|_[A-Za-z0-9])\^", tex):
        return False  # a prime is a superscript; TeX takes another right beside it, and none after a subscript
    plain = re.sub(r"\\[{}$\\]", "", tex)
    depth = 0
    for ch in plain:
        depth += (ch == "{") - (ch == "}")
        if depth < 0:
            return False
    return not open_environments and depth == 0 and plain.count("$") % 2 == 0


def names(claim: derive.Claim) -> Iterator[str]:
    """Every letter that the statement of a claim and its steps mention and no sum binds, as it is printed."""
    for side in {x for part in (claim, *claim.steps) for x in (part.lhs, part.rhs)}:
        labels = {base.label for base in side.atoms(sympy.IndexedBase)}
        yield from (latex(label) for label in labels)
        apart = {node.args[0] for node in side.atoms(Gradient)}
        yield from (latex(s) for s in side.free_symbols - apart if isinstance(s, sympy.Symbol))


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize("family", derive.family_names())
def test_the_latex_of_every_claim_is_a_document(family: str, language: Any) -> None:
    proved = [(one, PROVED) for one in derive.claims(family)]
    tex = latex_document(proved, language)
    assert balanced(tex)
    assert re.findall(r"\\usepackage.*", tex) == [r"\usepackage{amsmath}"]
    unknown = set(re.findall(r"\\([A-Za-z]+)", tex)) - KNOWN
    assert not unknown
    assert tex.count(r"\left") == tex.count(r"\right")
    if language == "en":
        # pdfTeX reads letters with accents; every other sign must be written in ASCII.
        assert all(ch < "\N{DELETE}" or (ch.isalpha() and ch < "\N{GREEK CAPITAL LETTER ALPHA}") for ch in tex)
    for one, section in zip(derive.claims(family), tex.split(r"\section*")[1:], strict=True):
        assert words(one.title[language]) in section
        explained = set(re.findall(r"\\item\[\{\$(.*?)\$\}\]", section))
        assert set(names(one)) <= explained
        assert r"\operatorname{Derivative}" not in section
        defined = [a for a in one.assumptions if isinstance(a, Defined)]
        assert section.count(":=") == len(defined)
        told = len(one.assumptions) - len(defined)
        assert len(re.findall(r"\\item (?!\[)", section)) == told
        assert all(rf"\texttt{{{step.rule}}}" in section for step in one.steps)
        assert all(words(step.note[language]) in section for step in one.steps if step.note)
        assert "Proved: all sizes" in section


def test_the_check_of_documents_can_fail() -> None:
    assert balanced(r"\begin{a}{x}$y$\end{a}")
    for bad in (
        r"\begin{a}",
        r"\begin{a}\begin{b}\end{a}\end{b}",
        "{",
        "}{",
        "$x",
        r"\end{a}",
        r"\item[$a[b]$] c",
        "q'_{t}^{2}",
    ):
        assert not balanced(bad)


def test_words_are_escaped() -> None:
    assert words("50 % of d_k & {x}") == r"50 \% of d\_k \& \{x\}"
    assert words("α ≤ 1") == r"\ensuremath{\alpha} \ensuremath{\le} 1"
    assert words("`a_b`") == r"\texttt{a\_b}"
    assert words("mean c\N{COMBINING MACRON}") == r"mean \ensuremath{\bar c}"
    with pytest.raises(KeyError, match="no LaTeX"):
        words("\N{SNOWMAN}")


def test_long_steps_are_numbered_and_broken(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "output.convex_hull", "--format", "latex")
    assert code == 0
    assert out.startswith(r"\documentclass{article}")
    assert out.rstrip().endswith(r"\end{document}")
    assert r"\tag{1}" in out
    assert r"\tag{2}" in out
    assert out.index("Definitions") < out.index("Conditions") < out.index("Proof") < out.index("Verdict")


# ---- text and languages ----------------------------------------------------------------------------------------------


def test_text_explains_letters_and_gives_definitions_and_reasons() -> None:
    text = plain_text(derive.claim("softmax.jacobian"), PROVED)
    assert "α[i] := exp(x[i])/(Σ_{l=0}^{n-1} exp(x[l]))" in text
    assert "0 ≤ i ≤ n - 1" in text
    assert "x: (n,), the scores of one row" in text
    assert "By normal-form." in text
    assert "normal-form: Equality for all sizes" in text
    assert "Sum(" not in text


def test_japanese_has_japanese_words(capsys: pytest.CaptureFixture[str]) -> None:
    one = derive.claim("saturation.saturated_fraction")
    code, out, _ = run(capsys, one.id, "--lang", "ja")
    assert code == 0
    for word in (one.title["ja"], one.note["ja"], "記号", "条件", "証明", REASONS["near-tie-share"], "行のスコアは"):
        assert word in out
    _, out, _ = run(capsys, one.id, "--lang", "ja", "--format", "latex")
    assert r"\documentclass{ltjsarticle}" in out
    assert words("条件") in out
    _, out, _ = run(capsys, "scores", "--list", "--lang", "ja")
    assert derive.claim("scores.rank").title["ja"] in out


def test_every_meaning_of_a_letter_is_said_in_japanese() -> None:
    everything = derive.claims()
    for text in {text for one in everything for text in one.symbols.values()}:
        assert japanese(text)
    seen = {text for one in everything for _, text in explained(one, "ja")}
    english = {text for text in seen if re.search(r"\b(the|of|an|over|with) ", text)}
    assert not english


def test_every_rule_and_every_condition_in_words_is_said_in_japanese() -> None:
    everything = derive.claims()
    assert {s.rule for c in everything for s in c.steps} == set(REASONS)
    assert {a for c in everything for a in c.assumptions if isinstance(a, str)} == set(CONDITIONS)


# ---- progress and interruption ---------------------------------------------------------------------------------------


def test_nothing_of_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "scores.matrix")[2] == ""


def test_a_terminal_sees_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = run(capsys, "scores.matrix", "scores.bilinear")
    assert code == 0
    assert "2 of 2: scores.bilinear" in err
    assert "2 of 2" not in out


@pytest.mark.parametrize("done", [0, 1])
def test_an_interruption_keeps_what_was_done(
    done: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = iter([PROVED] * done)

    def prove(self: Any) -> Any:
        for verdict in calls:
            return verdict
        raise KeyboardInterrupt

    monkeypatch.setattr(derive.Claim, "prove", prove)
    place = tmp_path / "out.json"
    code, out, err = run(capsys, "scores.matrix", "scores.bilinear", "--json", str(place))
    assert code == 130
    assert f"interrupted: {done} of 2 claims were done" in err
    assert ("scores.matrix" in out) == bool(done)
    assert "scores.bilinear" not in out
    found = json.loads(place.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema("derive-1"))
    assert len(found["claims"]) == done
