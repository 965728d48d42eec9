"""The main job: prove, cross-check, study drawn and real queries and keys, and write the pages.

Guarantees: a section's pages are written whole as soon as its last piece is done, so an interruption loses only
unfinished sections; a section whose data are missing says what is missing and how to get it, and the others run;
results do not depend on the number of workers.
Does not: decide what a verdict is worth: sections carry their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verify.errors import MissingError
from verify.jsonout import write_whole
from verify.reporting import tasks
from verify.reporting.tasks import Task

if TYPE_CHECKING:
    from verify.crosschecks import CrossCheck
    from verify.studies.study import StudyResult

SectionStatus = Literal["passed", "failed", "missing"]
# Components beside the normal ones: (law, mean of q, mean of k, sizes d_k). A component of Student's t takes ten normal
# draws, so its largest size alone would cost more than all else here together.
OTHERS = (
    ("rademacher", 0.0, 0.0, (4, 16, 64, 256)),
    ("exponential", 0.5, -0.25, (4, 16, 64, 256)),
    ("student9", 0.0, 1.0, (4, 16, 64)),
)
QUICK_SIZES = (4, 16, 64)


@dataclass
class Section:
    """One part of the job: its title, how it went, the evidence in words, its page, and its data."""

    name: str
    title: str
    status: SectionStatus
    evidence: str
    pages: list[str]
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "status": self.status,
            "evidence": self.evidence,
            "pages": self.pages,
            "data": self.data,
        }


@dataclass(frozen=True)
class Job:
    """What to run: where pages go (None: nowhere), the seed, whether to be quick, and how many workers."""

    out: Path | None
    seed: int = 0
    quick: bool = False
    workers: int = 1

    def tasks(self) -> list[Task]:
        """Every piece of work, the long ones first."""
        import derive

        claims = sorted(derive.claims(), key=lambda c: -_size(c))
        return [
            *(
                Task("variance", f"study variance, {o['components']}", tasks.study, ("variance", o))
                for o in self._laws()
            ),
            Task("saturation", "study saturation", tasks.study, ("saturation", self._saturation())),
            Task("path", "study path", tasks.study, ("path", self._path())),
            Task("weights", "study weights", tasks.study, ("weights", {"seed": self.seed})),
            *(Task("derivations", f"prove {c.id}", tasks.prove, (c.id,)) for c in claims),
            *(Task("crosschecks", f"cross-check {c.id}", tasks.check, (c.id, self.seed, 1)) for c in claims),
        ]

    def sections(self, progress: Callable[[str], None] = lambda text: None) -> Iterator[Section]:
        """Run everything, yielding each section once its pages are written. progress is told each finished task."""
        work = self.tasks()
        left = {name: sum(t.section == name for t in work) for name in _FINISH}
        results: dict[str, dict[str, Any]] = {name: {} for name in _FINISH}
        for task, result in tasks.completed(work, self.workers):
            progress(task.label)
            results[task.section][task.label] = result
            left[task.section] -= 1
            if left[task.section] == 0:
                yield _FINISH[task.section](self, results.pop(task.section))

    def write(self, name: str, text: str) -> str:
        """Write one page, whole; returns its path as shown, or "" when nothing is written."""
        if self.out is None:
            return ""
        self.out.mkdir(parents=True, exist_ok=True)
        write_whole(self.out / name, text)
        return str(self.out / name)

    def _laws(self) -> list[dict[str, Any]]:
        common = {"seed": self.seed, "precision": 0.0025 if self.quick else 0.0015}
        main = {**common, "components": "normal", **({"d_k": QUICK_SIZES} if self.quick else {})}
        others = [
            {**common, "components": law, "q_mean": q_mean, "k_mean": k_mean, "d_k": sizes[:2] if self.quick else sizes}
            for law, q_mean, k_mean, sizes in OTHERS
        ]
        return [main, *others]

    def _saturation(self) -> dict[str, Any]:
        return {"seed": self.seed, **({"d_k": QUICK_SIZES} if self.quick else {})}

    def _path(self) -> dict[str, Any]:
        return {"seed": self.seed, **({"lengths": QUICK_SIZES} if self.quick else {})}


def _size(claim: Any) -> int:
    """How long a claim may take, roughly: steps times the sums in what they speak of."""
    from sympy import Sum

    told = [claim.lhs, claim.rhs, *(a.body for a in claim.assumptions if hasattr(a, "body"))]
    return len(claim.steps) * sum(1 + len(e.atoms(Sum)) for e in told if hasattr(e, "atoms"))


def _derivations(job: Job, results: dict[str, Any]) -> Section:
    import derive
    from verify.reporting.derivations import page, record, tally
    from verify.reporting.index import index

    proved = [(c, results[f"prove {c.id}"]) for c in derive.claims()]
    place = job.write("derivation.md", page(proved))
    japanese = job.write("derivation.ja.md", page(proved, "ja"))
    first = [job.write("README.md", index()), job.write("README.ja.md", index("ja"))]
    bad = [c.id for c, v in proved if v.kind in (derive.Kind.REFUTED, derive.Kind.UNKNOWN)]
    evidence = tally(v for _, v in proved) + (f"; not proved: {', '.join(bad)}" if bad else "")
    data = {"claims": [record(c, v) for c, v in proved]}
    title = f"proofs of {len(proved)} claims"
    return Section("derivations", title, "failed" if bad else "passed", evidence, _kept(*first, place, japanese), data)


def _crosschecks(job: Job, results: dict[str, Any]) -> Section:
    import derive
    from verify.reporting.pages import correctness

    found: list[CrossCheck] = [results[f"cross-check {c.id}"] for c in derive.claims()]
    places = [job.write("correctness.md", correctness(found)), job.write("correctness.ja.md", correctness(found, "ja"))]
    bad = [c.claim for c in found if c.status == "differs"]
    agreed = sum(c.status == "agrees" for c in found)
    evidence = f"{agreed} agree, {len(bad)} differ, {len(found) - agreed - len(bad)} have nothing to compare"
    evidence += f"; differing: {', '.join(bad)}" if bad else ""
    data = {"crosschecks": [c.to_json() for c in found]}
    status: SectionStatus = "failed" if bad else "passed"
    return Section("crosschecks", "claims against numbers", status, evidence, _kept(*places), data)


def _variance(job: Job, results: dict[str, Any]) -> Section:
    from verify.reporting.figures import figure
    from verify.reporting.pages import scaling

    studied: list[StudyResult] = [results[f"study variance, {o['components']}"] for o in job._laws()]
    main, others = studied[0], studied[1:]
    image = job.write("variance.svg", figure(main))
    place = job.write("scaling.md", scaling(main, others, "variance.svg"))
    japanese = job.write("scaling.ja.md", scaling(main, others, "variance.svg", "ja"))
    good = sum(r.outcome == "agrees" for r in studied)
    evidence = f"{good} of {len(studied)} laws of the components agree; normal: {main.tests[0].detail}"
    data = {"studies": [r.to_json() for r in studied]}
    status: SectionStatus = "passed" if good == len(studied) else "failed"
    return Section("variance", "Var(q·k) against d_k, drawn", status, evidence, _kept(place, japanese, image), data)


def _saturation(job: Job, results: dict[str, Any]) -> Section:
    from verify.reporting.figures import figure
    from verify.reporting.study_pages import saturation

    result: StudyResult = results["study saturation"]
    image = job.write("saturation.svg", figure(result))
    place = job.write("saturation.md", saturation(result, "saturation.svg"))
    japanese = job.write("saturation.ja.md", saturation(result, "saturation.svg", "ja"))
    evidence = "; ".join(t.detail for t in result.tests)
    status: SectionStatus = "passed" if result.outcome == "agrees" else "failed"
    data = {"study": result.to_json()}
    return Section(
        "saturation", "softmax saturation against d_k", status, evidence, _kept(place, japanese, image), data
    )


def _path(job: Job, results: dict[str, Any]) -> Section:
    from verify.reporting.figures import between, figure
    from verify.reporting.study_pages import path

    result: StudyResult = results["study path"]
    drawn = ("path.svg", "path_tokens.svg")
    images = [job.write(drawn[0], figure(result)), job.write(drawn[1], between(result))]
    places = [job.write("path.md", path(result, drawn)), job.write("path.ja.md", path(result, drawn, "ja"))]
    evidence = "; ".join(t.detail for t in result.tests)
    status: SectionStatus = "passed" if result.outcome == "agrees" else "failed"
    data = {"study": result.to_json()}
    return Section("path", "paths: attention, RNN, LSTM", status, evidence, _kept(*places, *images), data)


def _weights(job: Job, results: dict[str, Any]) -> Section:
    from verify.reporting.figures import figure
    from verify.reporting.study_pages import weights

    result: StudyResult | MissingError = results["study weights"]
    if isinstance(result, MissingError):
        return Section("weights", "scores of real heads", "missing", str(result), [])
    image = job.write("weights.svg", figure(result))
    place = job.write("weights.md", weights(result, "weights.svg"))
    japanese = job.write("weights.ja.md", weights(result, "weights.svg", "ja"))
    evidence = "; ".join(t.detail for t in result.tests)
    status: SectionStatus = "passed" if result.outcome == "agrees" else "failed"
    title = f"scores of {result.data['layers'] * result.data['heads']} real heads"
    return Section("weights", title, status, evidence, _kept(place, japanese, image), {"study": result.to_json()})


def _kept(*places: str) -> list[str]:
    return [place for place in places if place]


_FINISH: dict[str, Callable[[Job, dict[str, Any]], Section]] = {
    "derivations": _derivations,
    "crosschecks": _crosschecks,
    "variance": _variance,
    "saturation": _saturation,
    "path": _path,
    "weights": _weights,
}
