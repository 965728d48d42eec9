"""The main job: prove, cross-check, study drawn and real queries and keys, and write the pages.

Guarantees: a section's pages are written whole when the section ends, so an interruption loses only the section it
hits; a section whose data are missing says what is missing and how to get it, and the others run.
Does not: decide what a verdict is worth: sections carry their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verify.console import stage
from verify.errors import MissingError
from verify.jsonout import write_whole

SectionStatus = Literal["passed", "failed", "missing"]
# Components beside the normal ones: (law, mean of q, mean of k), over fewer d_k.
OTHERS = (("rademacher", 0.0, 0.0), ("exponential", 0.5, -0.25), ("student9", 0.0, 1.0))
OTHER_SIZES = (4, 16, 64, 256)
QUICK_SIZES = (4, 16, 64, 256)


@dataclass
class Section:
    """One part of the job: its title, how it went, the evidence in words, its page, and its data."""

    title: str
    status: SectionStatus
    evidence: str
    pages: list[str]
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "status": self.status,
            "evidence": self.evidence,
            "pages": self.pages,
            "data": self.data,
        }


@dataclass(frozen=True)
class Job:
    """What to run: where pages go (None: nowhere), the seed, and whether to be quick."""

    out: Path | None
    seed: int = 0
    quick: bool = False

    def sections(self) -> Iterator[Section]:
        """Run the sections in order, yielding each when its pages are written."""
        runs: tuple[Callable[[Job], Section], ...] = (_derivations, _crosschecks, _variance, _weights)
        for run in runs:
            yield run(self)

    def write(self, name: str, text: str) -> str:
        """Write one page, whole; returns its path as shown, or "" when nothing is written."""
        if self.out is None:
            return ""
        self.out.mkdir(parents=True, exist_ok=True)
        write_whole(self.out / name, text)
        return str(self.out / name)


def _derivations(job: Job) -> Section:
    import derive
    from verify.reporting.derivations import page, record, tally

    claims = derive.claims()
    proved = []
    with stage(f"proving {len(claims)} claims", total=len(claims)) as bar:
        for one in claims:
            bar.say(f"proving {one.id}")
            proved.append((one, one.prove()))
            bar.advance()
    place = job.write("derivation.md", page(proved))
    bad = [c.id for c, v in proved if v.kind in (derive.Kind.REFUTED, derive.Kind.UNKNOWN)]
    evidence = tally(v for _, v in proved) + (f"; not proved: {', '.join(bad)}" if bad else "")
    data = {"claims": [record(c, v) for c, v in proved]}
    return Section(f"{len(claims)} claims proved", "failed" if bad else "passed", evidence, _kept(place), data)


def _crosschecks(job: Job) -> Section:
    import derive
    from verify.crosschecks import crosscheck
    from verify.reporting.pages import correctness

    claims = derive.claims()
    found = []
    with stage(f"cross-checking {len(claims)} claims", total=len(claims)) as bar:
        for one in claims:
            bar.say(f"cross-checking {one.id}")
            found.append(crosscheck(one, seed=job.seed, draws=1 if job.quick else 2))
            bar.advance()
    place = job.write("correctness.md", correctness(found))
    bad = [c.claim for c in found if c.status == "differs"]
    agreed = sum(c.status == "agrees" for c in found)
    evidence = f"{agreed} agree, {len(bad)} differ, {len(found) - agreed - len(bad)} have nothing to compare"
    evidence += f"; differing: {', '.join(bad)}" if bad else ""
    data = {"crosschecks": [c.to_json() for c in found]}
    return Section("claims against numbers", "failed" if bad else "passed", evidence, _kept(place), data)


def _variance(job: Job) -> Section:
    from verify.reporting.figures import figure
    from verify.reporting.pages import scaling
    from verify.studies.variance import POWERS, study_variance

    precision = 0.004 if job.quick else 0.0015
    with stage("variance against d_k, drawn queries and keys") as bar:
        sizes = QUICK_SIZES if job.quick else POWERS
        main = study_variance(sizes, seed=job.seed, precision=precision, progress=bar.say)
        others = [
            study_variance(
                OTHER_SIZES[:2] if job.quick else OTHER_SIZES,
                components=law,
                q_mean=q_mean,
                k_mean=k_mean,
                seed=job.seed,
                precision=precision,
                progress=bar.say,
            )
            for law, q_mean, k_mean in OTHERS
        ]
    image = job.write("variance.svg", figure(main))
    place = job.write("scaling.md", scaling(main, others, "variance.svg"))
    results = [main, *others]
    good = all(r.outcome == "agrees" for r in results)
    evidence = f"{sum(r.outcome == 'agrees' for r in results)} of {len(results)} component laws agree; "
    evidence += main.tests[-1].detail
    data = {"studies": [r.to_json() for r in results]}
    return Section("Var(q·k) against d_k, drawn", "passed" if good else "failed", evidence, _kept(place, image), data)


def _weights(job: Job) -> Section:
    from verify.reporting.figures import figure
    from verify.reporting.pages import weights
    from verify.studies.weights import study_weights

    try:
        with stage("scores of a real model") as bar:
            result = study_weights(seed=job.seed, progress=bar.say)
    except MissingError as missing:
        return Section("scores of a real model", "missing", str(missing), [])
    image = job.write("weights.svg", figure(result))
    place = job.write("weights.md", weights(result, "weights.svg"))
    good = result.outcome == "agrees"
    evidence = "; ".join(t.detail for t in result.tests)
    return Section(
        f"scores of {result.data['layers'] * result.data['heads']} real heads",
        "passed" if good else "failed",
        evidence,
        _kept(place, image),
        {"study": result.to_json()},
    )


def _kept(*places: str) -> list[str]:
    return [place for place in places if place]
