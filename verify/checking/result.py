"""What a check came to: findings with their evidence, conventions met, and what it could not have seen.

Guarantees: one exit code for one status; the text, the JSON and the JUnit page say the same.
Does not: judge anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

from verify import errors

Class = Literal["proved wrong", "property broken", "suspicious"]
ORDER = ("proved wrong", "property broken", "suspicious")
_WRONG_VALUES = {"values": "values differ", "non-finite": "NaN or inf where the answer is finite"}
# name of a convention, as it is shown -> what it is, in words
GLOSSARY = {
    "causal": "the corner from which causal counts when queries and keys differ in number",
    "empty-row": "what a query that sees no key gives",
    "finfo-row": "what a row gives whose mask is the least finite number instead of -inf",
    "behind-mask": "whether NaN or inf at a masked key touches the output: inert, no; reaches, yes",
    "masking": "whether a masked key stays out beside very low scores",
    "group-order": "which key-value head a query head reads",
    "window-ends": "whether a window's ends count as inside",
    "softcap-order": "whether the softcap comes before or after the bias",
    "alibi-ahead": "whether ALiBi's slopes lower a later key by its distance or raise it, where rows see later keys",
    "lse-base": "the base of the log-sum-exp",
    "empty-lse": "the log-sum-exp of a query that sees no key",
    "no keys": "what the output is when there is no key at all",
    "deterministic": "whether equal calls gave equal bits",
}


@dataclass(frozen=True)
class Finding:
    """One answer with its evidence.

    verdict: its class. kind: the kind of fault, in the field's words. rule: what was violated. index: the worst
    entry, (batch, head, query, channel). got; expected ± radius; allowed beyond the radius, and `why` that much, by
    source, largest first. ulp: the error in units of the target's last place. row: the keys the row sees; dominant:
    (key, weight). smallest: the smallest failing input found. replay: the command that shows it again.
    probability: of a false alarm, for "suspicious". Not in the JSON: about, the kind of fault the case was made for,
    which is not yet what is wrong; features that the smallest call has; how many numbers it holds.
    """

    verdict: Class
    kind: str
    rule: str
    message: str
    case: str = ""
    diagnosis: str = ""
    index: tuple[int, ...] = ()
    got: float | None = None
    expected: float | None = None
    radius: float | None = None
    allowed: float | None = None
    why: tuple[tuple[str, float], ...] = ()
    ulp: float | None = None
    row: str = ""
    dominant: tuple[tuple[int, float], ...] = ()
    smallest: dict[str, Any] = field(default_factory=dict)
    dtype: str = ""
    seed: int = 0
    replay: str = ""
    probability: float | None = None
    about: str = ""
    features: frozenset[str] = frozenset()
    numbers: int = 0

    @property
    def heading(self) -> str:
        """What is wrong, in words: the kind only where something says that it is of that kind, never a case's topic."""
        named = self.kind != self.about
        if self.rule in _WRONG_VALUES and not named:
            return f"{_WRONG_VALUES[self.rule]}, case {self.case!r}"
        if self.rule in ("raises", "shape") and not named:
            return f"{'raises' if self.rule == 'raises' else 'wrong shape'}, case {self.case!r}"
        return self.kind if named else self.rule

    def text(self) -> str:
        """The finding as a person reads it."""
        lines = [f"{self.verdict.upper()}: {self.heading}: {self.message}"]
        if self.diagnosis:
            lines.append(f"  diagnosis  {self.diagnosis}")
        if self.case:
            lines.append(f"  case       {self.case} ({self.dtype}, seed {self.seed}); rule: {self.rule}")
        if self.got is not None and self.expected is not None:
            at = f" at {self.index}" if self.index else ""
            lines.append(f"  got        {self.got!r}{at}")
            lines.append(f"  expected   {self.expected!r} ± {self.radius or 0.0:.3g}")
        if self.allowed is not None:
            reasons = ", ".join(f"{name} {part:.2g}" for name, part in self.why[:3])
            ulp = f"; error {self.ulp:.4g} ulp" if self.ulp is not None else ""
            lines.append(f"  allowed    {self.allowed:.3g}{f' ({reasons})' if reasons else ''}{ulp}")
        if self.row:
            keys = ", ".join(f"{j}: {w:.4g}" for j, w in self.dominant)
            lines.append(f"  row        sees {self.row}; weights {keys}")
        if self.smallest:
            shown = "; ".join(f"{name} = {value}" for name, value in self.smallest.items())
            lines.append(f"  smallest   {shown}")
        if self.probability is not None:
            lines.append(f"  false alarm probability at most {self.probability:.1g} a run")
        if self.replay:
            lines.append(f"  replay     {self.replay}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        found = {name: value for name, value in self.__dict__.items() if name not in ("about", "features", "numbers")}
        found["index"] = list(self.index)
        found["why"] = [{"source": name, "share": share} for name, share in self.why]
        found["dominant"] = [{"key": key, "weight": weight} for key, weight in self.dominant]
        return found


@dataclass(frozen=True)
class Convention:
    """A choice on which correct implementations differ: what was met, among what, and what was declared."""

    name: str
    met: str
    among: tuple[str, ...] = ()
    declared: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "met": self.met, "among": list(self.among), "declared": self.declared}


@dataclass(frozen=True)
class CheckResult:
    """All that a check of one target found. `ok` when something was judged, nothing differs, nothing is suspicious.

    unmet: what was asked for in so many words and could not be judged; a run with any is never "agrees".
    open: what the target can be asked and no input judged, for want of a declaration; the status line says it.
    asked: the kinds of fault that some input of this run was about; not_shown: what it could not have seen.
    """

    target: str
    dtype: str
    algorithm: str
    seed: int
    findings: tuple[Finding, ...] = ()
    conventions: tuple[Convention, ...] = ()
    out_of_domain: tuple[str, ...] = ()
    not_shown: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    statistics: dict[str, float] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    cases: int = 0
    calls: int = 0
    seconds: float = 0.0
    unmet: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """ "agrees", "suspicious", "differs" or "not judged"."""
        if any(f.verdict != "suspicious" for f in self.findings):
            return "differs"
        if self.findings:
            return "suspicious"
        return "not judged" if self.unmet or not self.cases else "agrees"

    @property
    def ok(self) -> bool:
        return self.status == "agrees"

    @property
    def exit_code(self) -> int:
        """0 agrees, 1 differs, suspicious or not judged."""
        return errors.AGREES if self.ok else errors.DIFFERS

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of fault found, the first finding's first."""
        return tuple(dict.fromkeys(f.kind for f in self.findings))

    def text(self) -> str:
        """The whole result as a person reads it: one cause once, with its smallest example."""
        from verify.checking.grouping import grouped, refusals

        said = f"{self.status}, except that {'; '.join(self.open)}" if self.ok and self.open else self.status
        lines = [f"{self.target}: {said} ({self.dtype}, {self.cases} cases, {self.calls} calls, seed {self.seed})"]
        lines.append(f"judged as: {self.algorithm}")
        if self.switches:
            lines.append("runs on: " + ", ".join(f"{name} {value}" for name, value in self.switches.items()))
        lines += [f"not judged: {text}" for text in self._unjudged()]
        for first, *others in grouped(self.findings):
            lines += ["", first.text()]
            if others:
                lines.append(f"  also seen in: {', '.join(dict.fromkeys(f.case or f.kind for f in others))}")
                if not first.diagnosis:
                    lines.append("  (one cause is likely; mend it, then run again)")
        if self.conventions:
            lines += ["", "conventions met:"]
            for c in self.conventions:
                tail = f" (declared: {c.declared})" if c.declared else ""
                lines.append(f"  {c.name}: {c.met}{tail}")
            met = [name for name in GLOSSARY if any(c.name.startswith(name) for c in self.conventions)]
            if met:
                lines.append("  in words: " + "; ".join(f"{name}: {GLOSSARY[name]}" for name in met))
        if self.out_of_domain:
            lines += ["", "out of domain:", *(f"  {text}" for text in self.out_of_domain)]
        if self.statistics:
            shown = ", ".join(f"{name} {value:.3g}" for name, value in self.statistics.items())
            lines += ["", f"statistics of error: {shown}"]
        if self.asked:
            lines += ["", f"kinds of fault asked about ({len(self.asked)}): {', '.join(self.asked)}"]
        if self.not_shown:
            lines += ["", "not shown by this run:", *(f"  {text}" for text in refusals(self.not_shown))]
        return "\n".join(lines)

    def _unjudged(self) -> tuple[str, ...]:
        """Why the run is no agreement, where it found nothing; and requests not met, in any case."""
        return self.unmet or (() if self.cases or self.findings else ("no input was judged",))

    def to_json(self) -> dict[str, Any]:
        """Under schema check-1."""
        return {
            "target": self.target,
            "status": self.status,
            "exit_code": self.exit_code,
            "dtype": self.dtype,
            "algorithm": self.algorithm,
            "seed": self.seed,
            "cases": self.cases,
            "calls": self.calls,
            "seconds": self.seconds,
            "switches": dict(self.switches),
            "findings": [f.to_json() for f in self.findings],
            "conventions": [c.to_json() for c in self.conventions],
            "out_of_domain": list(self.out_of_domain),
            "not_shown": [*(f"not judged: {text}" for text in self._unjudged()), *self.not_shown],
            "asked": list(self.asked),
            "statistics": dict(self.statistics),
        }

    def to_junit(self) -> str:
        """One test case a finding, and one that passes when there is none."""
        name = quoteattr(f"attnproof check {self.target}")
        count = len(self.findings)
        cases = [
            f"  <testcase name={quoteattr(f.kind)} classname={quoteattr(self.target)}>"
            f"<failure message={quoteattr(f.message)}>{escape(f.text())}</failure></testcase>"
            for f in self.findings
        ]
        if not cases and self.ok:
            cases = [f'  <testcase name="agrees" classname={quoteattr(self.target)}/>']
        elif not cases:
            said, count = quoteattr("; ".join(self._unjudged())), 1
            cases = [
                f'  <testcase name="not judged" classname={quoteattr(self.target)}><failure message={said}/></testcase>'
            ]
        head = f'<testsuite name={name} tests="{max(count, 1)}" failures="{count}" time="{self.seconds:.3f}">'
        return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, *cases, "</testsuite>", ""])


def merged(results: list[CheckResult]) -> CheckResult:
    """Several results of one target (one a dtype) as one."""
    first = results[0]
    findings = tuple(sorted((f for r in results for f in r.findings), key=lambda f: ORDER.index(f.verdict)))
    return CheckResult(
        target=first.target,
        dtype=", ".join(r.dtype for r in results),
        algorithm="; ".join(dict.fromkeys(r.algorithm for r in results)),
        seed=first.seed,
        findings=findings,
        conventions=tuple(dict.fromkeys(c for r in results for c in r.conventions)),
        out_of_domain=tuple(dict.fromkeys(t for r in results for t in r.out_of_domain)),
        not_shown=tuple(dict.fromkeys(t for r in results for t in r.not_shown)),
        asked=tuple(dict.fromkeys(k for r in results for k in r.asked)),
        statistics={f"{r.dtype} {n}": v for r in results for n, v in r.statistics.items()},
        switches=first.switches,
        cases=sum(r.cases for r in results),
        calls=sum(r.calls for r in results),
        seconds=sum(r.seconds for r in results),
        open=tuple(dict.fromkeys(t for r in results for t in r.open)),
        unmet=tuple(dict.fromkeys(t for r in results for t in (r.unmet or ())))
        or tuple(f"{r.dtype}: no input was judged" for r in results if len(results) > 1 and r.status == "not judged"),
    )
