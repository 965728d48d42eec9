"""Pages and pictures: stable, readable on light and dark, and equal to what is committed."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import derive
from verify.crosschecks import Comparison, CrossCheck
from verify.errors import MissingError, UsageError
from verify.reporting import markdown, svg, tasks
from verify.reporting.compare import differences
from verify.reporting.derivations import page, record, tally
from verify.reporting.figures import figure
from verify.reporting.glossary import worded
from verify.reporting.job import Job, Section
from verify.reporting.numbers import cell, number
from verify.reporting.pages import correctness
from verify.reporting.plain import plain_text
from verify.reporting.tasks import Task, completed
from verify.reporting.tex import latex_section
from verify.studies.statistics import Measured
from verify.studies.study import Point, StudyResult, Table
from verify.studies.study import Test as Tested

REPORTS = Path(__file__).parent.parent.parent / "reports"


# -- the committed pages ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Section]]:
    """The main job, run whole, in this process."""
    out = tmp_path_factory.mktemp("reports")
    return out, list(Job(out).sections())


@pytest.mark.slow
def test_the_job_passes(fresh: tuple[Path, list[Section]]) -> None:
    assert {s.name: (s.status, s.evidence) for s in fresh[1] if s.status == "failed"} == {}


@pytest.mark.slow
def test_every_claim_with_a_counterpart_was_compared_with_compute(fresh: tuple[Path, list[Section]]) -> None:
    from verify.crosschecking.counterparts import COUNTERPARTS

    (section,) = (s for s in fresh[1] if s.name == "crosschecks")
    found = {c["claim"]: c for c in section.data["crosschecks"]}
    assert set(found) == {c.id for c in derive.claims()}
    assert {i for i, c in found.items() if c["computed"]["status"] == "agrees"} == set(COUNTERPARTS)
    # A comparison is not idle: most claims have both sides in 50 digits, and a function in float64.
    for part in ("exact", "formula"):
        assert sum(c[part]["status"] == "agrees" for c in found.values()) > len(found) / 2


@pytest.mark.slow
def test_derivations_are_committed_to_the_byte(fresh: tuple[Path, list[Section]]) -> None:
    assert (fresh[0] / "derivation.md").read_bytes() == (REPORTS / "derivation.md").read_bytes()


@pytest.mark.slow
def test_numbers_are_committed_within_their_last_digit(fresh: tuple[Path, list[Section]]) -> None:
    pages = sorted(p.name for p in fresh[0].iterdir())
    for name in ("README", "derivation", "correctness", "scaling", "saturation", "path", "weights"):
        assert {f"{name}.md", f"{name}.ja.md"} <= set(pages)
    assert {"variance.svg", "saturation.svg", "path.svg", "path_tokens.svg", "weights.svg"} <= set(pages)
    for name in pages:
        made, kept = ((folder / name).read_text(encoding="utf-8") for folder in (fresh[0], REPORTS))
        assert differences(kept, made) == [], name


@pytest.mark.slow
def test_nothing_of_the_machine_is_on_a_page(fresh: tuple[Path, list[Section]]) -> None:
    import platform
    from importlib.metadata import version

    for place in fresh[0].iterdir():
        text = place.read_text(encoding="utf-8")
        for word in (platform.node(), platform.python_version(), f"numpy {version('numpy')}", str(fresh[0]), "2026-"):
            assert word not in text, (place.name, word)


def test_committed_pages_link_to_what_exists() -> None:
    texts = {place: place.read_text(encoding="utf-8") for place in REPORTS.glob("*.md")}
    anchors = {
        place: {
            re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, flags=re.M)
        }
        for place, text in texts.items()
    }
    for place, text in texts.items():
        prose = re.sub(r"\$\$.*?\$\$|\$[^$\n]*\$|`[^`\n]*`", "", text, flags=re.S)
        for target in re.findall(r"\]\(([^)]+)\)", prose):
            file, _, anchor = target.partition("#")
            where = REPORTS / file if file else place
            assert where.is_file(), (place.name, target)
            assert not anchor or anchor in anchors[where], (place.name, target)
        assert text.count("$$") % 2 == 0


def test_last_digits_of_computed_numbers_move_no_byte_of_the_derivations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another processor or BLAS moves last digits: here far more than it would, up and down."""
    from itertools import cycle

    import mpmath

    import derive.score_law as law
    from derive import oracle_rules
    from derive.verdict import weakest

    numeric = [c for c in derive.claims() if any(s.rule == "score-law" or s.data.get("grid") for s in c.steps)]

    def sections() -> dict[str, tuple[str, str]]:
        # Step by step, since a claim's own verdict is kept.
        verdicts = [(c, weakest(c.step_verdicts())) for c in numeric]
        return {c.id: (page([(c, v)]), page([(c, v)], "ja")) for c, v in verdicts}

    # The verdicts that a claim keeps are those before anything was shaken, and cost nothing where they are known.
    before = {c.id: (page([(c, c.prove())]), page([(c, c.prove())], "ja")) for c in numeric}
    assert sum("Numeric" in english for english, _ in before.values()) >= 20
    signs, moved = cycle((1, -1, -1, 1, 1)), []

    def shaken(function: Callable[..., Any], size: Any) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            found = function(*given)
            moved.append(function)
            value, *rest = found if isinstance(found, tuple) else (found,)
            value *= 1 + next(signs) * size
            return (value, *rest) if rest else value

        return call

    tiny = mpmath.mpf(10) ** -27
    places: list[tuple[Any, str, Any]] = [(oracle_rules, "numeric", 1e-12), (law, "_chi_mean", tiny)]
    places.append((law, "_number", tiny))
    functions = [getattr(where, name) for where, name, _ in places] + list(law._DISTANCES.values())
    for where, name, size in places:
        monkeypatch.setattr(where, name, shaken(getattr(where, name), size))
    for node, function in law._DISTANCES.items():
        monkeypatch.setitem(law._DISTANCES, node, shaken(function, 1e-12))
    assert sections() == before
    assert set(moved) == set(functions)  # every one was called, and shaken


@pytest.mark.parametrize("name", sorted(p.name for p in REPORTS.glob("*.md")))
def test_github_shows_every_formula_picture_and_link(name: str) -> None:
    """Markdown eats a backslash before punctuation, GitHub refuses some macros, and reads `<a` as a tag."""
    text = (REPORTS / name).read_text(encoding="utf-8")
    code = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
    formulas = re.findall(r"\$\$\n(.*?)\n\$\$", code, flags=re.S)
    inline = re.findall(r"(?<!\$)\$([^$\n]+)\$(?!\$)", code)
    for formula in formulas + inline:
        assert not re.findall(r"\\[^a-zA-Z\s]|\\operatorname|\\mbox|\*|<[a-zA-Z/!]", formula), formula[:200]
        assert formula.count("{") == formula.count("}"), formula[:200]
        assert formula.count(r"\left") == formula.count(r"\right"), formula[:200]
        assert "\n\n" not in formula
    assert all(not f.startswith(" ") and not f.endswith(" ") for f in inline)
    # Every displayed formula stands alone between blank lines.
    assert len(re.findall(r"(?:^|\n\n)\$\$\n.*?\n\$\$(?=\n\n|\n*$)", code, flags=re.S)) == len(formulas)
    for alt in re.findall(r"!\[([^\]]*)\]\(", text):
        assert len(alt) > 15, (name, alt)


def test_what_github_would_not_show_is_rewritten_or_refused() -> None:
    from verify.reporting.github import safe

    assert safe(r"\{a\} \, b \! c") == r"\lbrace a\rbrace  \thinspace  b  c"
    assert safe(r"x_{i} < y \le z'") == r"x_{i} < y \le z'"
    for bad in (r"\mbox{a}", r"a<b", r"x^*", r"\_", r"a $ b", r"\def\x{y}", r"\operatorname*{min}"):
        with pytest.raises(ValueError, match="GitHub would not show"):
            safe(bad)


# -- comparing pages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("x 1.234 y", "x 1.235 y", True),
        ("x 1.234 y", "x 1.236 y", False),
        ("x 1.234e-05 y", "x 1.235e-05 y", True),
        ("x 1.234e-05 y", "x 1.234e-06 y", False),
        ("24 blocks", "25 blocks", False),
        ("p = 0.50", "q = 0.50", False),
        ("a\nb", "a", False),
        ("d_2 is 1.0", "d_3 is 1.0", False),
        ("-0.5", "0.5", False),
        ("line", "line", True),
    ],
)
def test_differences(a: str, b: str, same: bool) -> None:
    assert (differences(a, b) == []) is same


# -- numbers and tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.000"),
        (99.996, "100.0"),
        (0.099999, "0.1000"),
        (123456.0, "123500"),
        (-2.5e-9, "-2.500e-09"),
        (0.0, "0"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text
    assert float(number(value)) == pytest.approx(value, rel=6e-4)


def test_cells_cannot_break_a_table() -> None:
    lines = markdown.table(("a|b", "c"), [("x|y\nz", None)]).splitlines()
    assert lines[0] == "| a\\|b | c |"
    assert lines[2] == "| x\\|y z | – |"
    assert cell(None) == "–"


# -- pictures -------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("background", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("colour", [svg.INK, *svg.CYCLE])
def test_colours_read_on_both_pages(colour: str, background: str) -> None:
    light, dark = sorted((luminance(colour), luminance(background)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def small_study(value: float = 4.01) -> StudyResult:
    points = [
        Point(
            {"scale": s, "d_k": d, "blocks": 24},
            Measured(value * d / 4 if s == "1" else 1.0, 0.01 * d, 23),
            float(d) if s == "1" else 1.0,
        )
        for s in ("1", "1/√d_k")
        for d in (4, 16)
    ]
    return StudyResult(
        "variance", "A study", ("variance.scores",), "attnproof study variance", 0, tuple(points),
        (Tested("it holds", "z = 1", 0.3, True),), (Table("Levels", ("a",), ((1.0,),)),), data={"q": "q", "k": "k"},
    )  # fmt: skip


def test_a_picture_is_the_same_twice_and_has_no_background() -> None:
    first, second = figure(small_study()), figure(small_study())
    assert first == second
    assert first != figure(small_study(4.5))
    root = ElementTree.fromstring(first)
    assert root.tag.endswith("svg")
    assert "date" not in first.lower()
    assert "#ffffff" not in first.lower()
    assert "Only unscaled scores spread" in first  # text stays text


def test_a_study_without_a_picture_is_said() -> None:
    odd = StudyResult("odd", "", (), "", 0, (), ())
    with pytest.raises(UsageError, match="no picture"):
        figure(odd)


def test_outcomes() -> None:
    def of(*passed: bool | None) -> StudyResult:
        return StudyResult("s", "", (), "", 0, (), tuple(Tested("", "", None, p) for p in passed))

    assert of(True, True).outcome == "agrees"
    assert of(True, None).outcome == "undecided"
    assert of(None, False).outcome == "differs"
    assert of().outcome == "undecided"
    assert [of(True).exit_code, of(None).exit_code, of(False).exit_code] == [0, 1, 1]


# -- derivations and cross-checks ---------------------------------------------------------------------------------


def test_a_page_is_made_from_the_steps_that_were_checked() -> None:
    one = derive.claim("scores.bilinear")
    text = page([(one, derive.Verdict.proved("all sizes"))])
    assert text.count("$$") == 2 * (1 + len(one.steps)) + 2 * text.count("In matrix form")
    assert "Proved: all sizes" in text
    assert str(one.source.at("")) in text
    assert all(step.note["en"] in text for step in one.steps if step.note)


def test_unknown_is_never_printed_as_refuted_nor_the_reverse() -> None:
    one = derive.claim("scores.bilinear")
    unknown, refuted = derive.Verdict.unknown("no rule"), derive.Verdict.refuted("n = 2", n=2)
    for show in (plain_text, latex_section):
        assert "Refuted" not in show(one, unknown)
        assert "Unknown" not in show(one, refuted)
    assert tally([unknown, refuted, derive.Verdict.proved()]) == "1 Proved, 1 Unknown, 1 Refuted"
    assert record(one, refuted)["verdict"]["evidence"] == {"n": 2}


def test_every_claim_can_be_printed() -> None:
    verdict = derive.Verdict.proved()
    text = page([(one, verdict) for one in derive.claims()])
    assert all(f"### {one.id}" in text for one in derive.claims())


def test_correctness_says_what_did_not_apply() -> None:
    good, bad, none = Comparison("agrees", "", 0.1), Comparison("differs", "", 17.0), Comparison("skipped", "a limit")
    text = correctness([CrossCheck("a.b", good, bad, none), CrossCheck("c.d", none, none, none)])
    assert "2e+01 times the bound" in text
    assert "a limit (`a.b`, `c.d`)" in text
    assert "| `a.b` | differs |" in text


# -- the job --------------------------------------------------------------------------------------------------------


@functools.cache
def _studied(name: str, options: tuple[tuple[str, Any], ...]) -> Any:
    return _run_study(name, dict(options))


_run_study = tasks.study


def one_claim_job(monkeypatch: pytest.MonkeyPatch, out: Path, **options: Any) -> Job:
    """The job over one small family, quick; each of its studies is run once for all tests here."""
    few = derive.claims("scores")
    every = derive.claims
    monkeypatch.setattr(derive, "claims", lambda family=None: few if family is None else every(family), raising=False)
    monkeypatch.setattr(tasks, "study", lambda name, given: _studied(name, tuple(sorted(given.items()))))
    return Job(out, quick=True, **options)


def test_missing_weights_are_said_and_the_rest_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = one_claim_job(monkeypatch, tmp_path)
    real = tasks.study

    def study(name: str, options: dict[str, Any]) -> Any:
        return MissingError("pip install --no-deps it") if name == "weights" else real(name, options)

    monkeypatch.setattr(tasks, "study", study)
    found = {s.name: s for s in job.sections()}
    assert found["weights"].status == "missing"
    assert "--no-deps" in found["weights"].evidence
    assert found["derivations"].status == "passed"
    assert not (tmp_path / "weights.md").exists()
    assert (tmp_path / "derivation.md").exists()


def test_an_interruption_keeps_what_is_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from verify.cli import main

    def check(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "check", check)
    one_claim_job(monkeypatch, tmp_path)
    place = tmp_path / "out.json"
    code = main(["report", "--quick", "--out", str(tmp_path / "pages"), "--workers", "1", "--json", str(place)])
    assert code == 130
    assert (tmp_path / "pages" / "derivation.md").read_text(encoding="utf-8").endswith("\n")
    assert (tmp_path / "pages" / "scaling.md").exists()
    assert not (tmp_path / "pages" / "correctness.md").exists()
    import json

    import jsonschema

    from verify.jsonout import schema

    found = json.loads(place.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema("report-1"))
    assert found["finished"] is False
    assert {s["name"] for s in found["sections"]} == {"derivations", "variance", "saturation", "path", "weights"}


def test_a_difference_fails_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    off = Comparison("differs", "off by 1", 2.0)
    monkeypatch.setattr(tasks, "check", lambda claim_id, *given: CrossCheck(claim_id, off, off, off))
    monkeypatch.setattr(tasks, "prove", lambda claim_id: derive.Verdict.unknown("no rule"))
    found = {s.name: s for s in one_claim_job(monkeypatch, tmp_path).sections()}
    assert found["crosschecks"].status == "failed"
    assert "scores.matrix" in found["crosschecks"].evidence
    assert found["derivations"].status == "failed"


def test_quick_writes_no_pages_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from verify.cli import main

    one_claim_job(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--quick", "--workers", "1"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_bad_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from verify.cli import main

    place = tmp_path / "file"
    place.write_text("", encoding="utf-8")
    assert main(["report", "--out", str(place)]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["report", "--workers", "0"]) == 2


def test_workers_give_what_one_process_gives() -> None:
    work = [Task("s", f"t{k}", divmod, (k, 3)) for k in range(6)]
    alone = {t.label: r for t, r in completed(work, 1)}
    assert alone == {t.label: r for t, r in completed(work, 2)}
    assert alone["t5"] == (1, 2)


@pytest.fixture
def stopped() -> Callable[[], int]:
    import multiprocessing

    return lambda: len(multiprocessing.active_children())


def test_an_error_in_a_worker_stops_the_others(stopped: Callable[[], int]) -> None:
    work = [Task("s", "bad", divmod, (1, 0)), *(Task("s", f"t{k}", pow, (2, 10)) for k in range(4))]
    with pytest.raises(ZeroDivisionError):
        list(completed(work, 2))
    import time

    for _ in range(100):
        if stopped() == 0:
            break
        time.sleep(0.1)
    assert stopped() == 0


# -- two languages ------------------------------------------------------------------------------------------------


def test_japanese_pages_have_the_same_formulas_and_numbers() -> None:
    from verify.reporting.pages import scaling

    proved = [(one, derive.Verdict.proved("all sizes")) for one in derive.claims("scores")]
    english, japanese = page(proved), page(proved, "ja")
    assert re.findall(r"\$\$\n.*?\n\$\$", english, flags=re.S) == re.findall(r"\$\$\n.*?\n\$\$", japanese, flags=re.S)
    assert "# 導出" in japanese
    assert all(worded(one.title["ja"]) in japanese for one, _ in proved)
    english, japanese = (scaling(small_study(), [small_study()], "variance.svg", language) for language in ("en", "ja"))
    assert english.count("|") == japanese.count("|")
    assert "一致" in japanese


SMALL_STUDIES: dict[str, dict[str, Any]] = {
    "variance": {"d_k": (4, 8), "precision": 0.05, "block": 16, "components": "student9"},
    "saturation": {"d_k": (4, 8), "n": 8, "rows": 200},
    "path": {"lengths": (1, 4), "rows": 200, "products": 20},
}


@pytest.fixture(scope="module")
def small_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudyResult]:
    from tests.verify import tiny_models as tiny
    from verify.studies.run import study

    results = {name: study(name, **options) for name, options in SMALL_STUDIES.items()}
    model = tiny.write(tmp_path_factory.mktemp("model"), tiny.bert(), tiny.BERT_CONFIG)
    return {**results, "weights": study("weights", model=model)}


@pytest.mark.parametrize("name", [*SMALL_STUDIES, "weights"])
def test_a_study_speaks_only_words_that_have_a_translation(name: str, small_results: dict[str, StudyResult]) -> None:
    from verify.reporting.words import known

    found = small_results[name]
    spoken = {found.title, *(t.statement for t in found.tests), *(t.detail for t in found.tests), *found.notes}
    spoken |= {word for t in found.tables for word in (t.title, *t.header)}
    spoken |= {str(p.factors["quantity"]) for p in found.points if "quantity" in p.factors}
    same = {"d_k", "z", "L", "Σα²", "‖J‖_F", "RNN: ln‖J u‖", "LSTM: ln Π f"}  # symbols
    for phrase in spoken - same:
        said = known(phrase, "ja")
        assert any(ord(c) > 0x3000 for c in said), phrase
        assert re.findall(r"\d[\d.]*", said.replace("2 つの", "")) == re.findall(r"\d[\d.]*", str(phrase)), phrase


def test_pages_of_studies_have_the_same_numbers_formulas_and_pictures_in_both_languages(
    small_results: dict[str, StudyResult],
) -> None:
    from verify.reporting import study_pages

    made = {
        "saturation": (study_pages.saturation, "saturation.svg"),
        "path": (study_pages.path, ("path.svg", "path_tokens.svg")),
        "weights": (study_pages.weights, "weights.svg"),
    }
    for name, (function, image) in made.items():
        write: Any = function
        english, japanese = (write(small_results[name], image, language) for language in ("en", "ja"))
        for pattern in (r"\$\$\n.*?\n\$\$", r"\| -?\d[\d.e+-]* (?=\|)", r"\]\((\w+\.svg)\)"):
            found = re.findall(pattern, english, flags=re.S)
            assert found or (name, pattern[:2]) == ("saturation", r"\$"), (name, pattern)
            assert found == re.findall(pattern, japanese, flags=re.S), (name, pattern)
        titles = [len(re.findall(r"^#+ ", text, flags=re.M)) for text in (english, japanese)]
        assert titles[0] == titles[1]
        assert [len(alt) > 20 for alt in re.findall(r"!\[([^\]]*)\]", english)]
        # Links stay in their language.
        assert not re.findall(r"\]\((?!derivation|scaling|saturation|\w+\.svg)", english)
        assert set(re.findall(r"\]\((\w+\.\w+(?:\.md)?)", japanese)) <= {
            "derivation.ja.md", "scaling.ja.md", "saturation.ja.md", *re.findall(r"\w+\.svg", japanese),
        }  # fmt: skip


def test_every_reason_on_the_japanese_page_is_said_in_japanese() -> None:
    english, japanese = ((REPORTS / f"correctness{e}").read_text(encoding="utf-8") for e in (".md", ".ja.md"))
    lines = [re.findall(r"^- [^:]*: (.*) \((`.*)\)$", text, flags=re.M) for text in (english, japanese)]
    assert len(lines[0]) == len(lines[1]) > 20
    assert sorted(ids for _, ids in lines[0]) == sorted(ids for _, ids in lines[1])
    assert all(any(ord(c) > 0x3000 for c in reason) for reason, _ in lines[1])


JAPANESE_PAGES = sorted(REPORTS.glob("*.ja.md"), key=str) + [REPORTS.parent / "README.ja.md"]


@pytest.mark.parametrize("place", JAPANESE_PAGES, ids=lambda place: f"{place.parent.name}/{place.name}")
def test_a_japanese_page_has_one_word_for_one_notion(place: Path) -> None:
    text = place.read_text(encoding="utf-8")
    for line, said in zip(text.splitlines(), worded(text).splitlines(), strict=True):
        assert line == said
    assert not re.findall(r"^\*\*[^*]*\.\*\*", text, flags=re.M)  # titles end as Japanese sentences do
    assert not re.findall(r"。 (?=[ぁ-ヿ一-鿿A-Z])", text)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("自己注意", "自己アテンション"),
        ("softmax の行", "ソフトマックスの行"),
        ("行の softmax", "行のソフトマックス"),
        ("`softmax` と softmax(x)", "`softmax` と softmax(x)"),
        ("[softmax.rows](#softmaxrows)", "[softmax.rows](#softmaxrows)"),
        ("上位二つの差", "上位 2 つの差"),
        ("2つの鍵", "2 つのキー"),
        ("重み2つが 1/2", "重み 2 つが 1/2"),
    ],
)
def test_the_words_of_the_glossary(said: str, word: str) -> None:
    assert worded(said) == word
    assert worded(word) == word


# Conditions of the Japanese page that are the same in both languages.
SAME_CONDITIONS = {
    "`n = 2`",
    "`n ≥ 2`",
    "`v > 0`",
    "`0 < epsilon < 1/2`",
    "`d_k ≤ d_model`",
    "`⟨x_i, x_i⟩ = 1、⟨x_i, x_j⟩ = rho < 1`",
}


def test_every_condition_and_scope_on_the_japanese_page_is_said_in_japanese() -> None:
    text = (REPORTS / "derivation.ja.md").read_text(encoding="utf-8")
    conditions = {
        line
        for part in re.findall(r"^条件:\n\n((?:- .*\n)+)", text, flags=re.M)
        for line in part.replace("- ", "", 1).replace("\n- ", "\n").splitlines()
    }
    assert len(conditions) > 100
    left = {one for one in conditions if not re.search("[ぁ-ヿ一-鿿]", one) and not re.fullmatch(r"\$.*\$", one)}
    assert left <= SAME_CONDITIONS
    assert not [one for one in conditions if re.search("entries at different|every entry|is fixed", one)]
    scopes = set(re.findall(r"^\*\*.*\*\* (?:Proved|Numeric|ExactAtSizes|Assumed):(.*)$", text, flags=re.M))
    assert len(scopes) > 20
    assert {one for one in scopes if not re.search("[ぁ-ヿ一-鿿]", one)} <= {"λ → ∞"}
    assert not [one for one in scopes if re.search(r"\b(every|each|all|within|fixed|wherever)\b", one)]


def test_texts_have_the_same_fields_in_both_languages() -> None:
    from verify.reporting.study_words import PHRASES, TEXTS

    for english, japanese in [*PHRASES.items(), *TEXTS.values()]:
        assert sorted(re.findall(r"\{[^}]*\}", english)) == sorted(re.findall(r"\{[^}]*\}", japanese)), english
        assert sorted(re.findall(r"`[^`]*`", english)) == sorted(re.findall(r"`[^`]*`", japanese)), english


def test_the_index_names_every_page_and_claims_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    from derive.errors import UnknownClaim
    from verify.reporting import index

    for language, ending in (("en", ".md"), ("ja", ".ja.md")):
        text = index.index(language)  # type: ignore[arg-type]
        for page_name in ("derivation", "correctness", "scaling", "saturation", "path", "weights"):
            assert f"({page_name}{ending})" in text, page_name
        assert "(findings.md)" in text
        for _, claims, _ in index.TOPICS:
            assert all(f"[`{c}`](derivation{ending}#{c.replace('.', '')})" in text for c in claims)
    gone = (("several heads", ("heads.nowhere",), ("path",)),)
    monkeypatch.setattr(index, "TOPICS", gone)
    with pytest.raises(UnknownClaim):
        index.index()


def test_a_phrase_survives_another_process_and_json() -> None:
    import json
    import pickle

    from verify.reporting.words import known
    from verify.studies.study import Phrase

    one = Phrase("smallest Holm-adjusted p {:.2g} over {} means", 0.5, 3)
    again = pickle.loads(pickle.dumps(one))
    assert again == one == "smallest Holm-adjusted p 0.5 over 3 means"
    assert known(again, "ja") == known(one, "ja") != one
    assert known(one, "en") == one
    assert json.dumps([again]) == '["smallest Holm-adjusted p 0.5 over 3 means"]'
