"""Thresholds of a project, by tensor or operator type, and what a report does against them."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..claims import Claim, State, hold_claim, leave_claim_open, refute_claim
from ..errors import UsageError, shorten
from ..reasons import suggest_nearest
from ..records import Doubt, Row, Status
from ..report.blame import describe_culprit, named_culprits
from ..report.difference import TIMES, Change, compare_reports
from ..report.doubts import describe_doubt
from ..report.model import Report
from ..report.values import is_newly_broken
from ..report.words import format_figure
from ..safety.untrusted import make_visible, refuse_special

__all__ = ["Thresholds", "add_test_claims", "describe_complaint"]

_SHOWN = 5
_KEYS = ("outputs", "times", "tensors", "operators")
_FILES = ("precision_debug.yaml", "precision_debug.yml")


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Largest relative L2 errors that a test may have.

    In ``[tool.precision_debug.thresholds]`` of pyproject.toml, or the same table in a YAML or TOML file of its own
    (``precision_debug.yaml`` beside pyproject.toml is found by itself)::

        [tool.precision_debug.thresholds]
        outputs = 1e-2                    # every final output
        times = 2.0                       # against a golden report: how much worse is a regression
        [tool.precision_debug.thresholds.tensors]
        "*/attention/*" = 5e-2            # by tensor name, with * and ?
        [tool.precision_debug.thresholds.operators]
        Softmax = 1e-2                    # by operator type

    Of several that apply to one tensor the strictest counts. A NaN or an Inf that one side alone has is an infinite
    error, beyond every threshold, and at a final output it fails without one too. Of final outputs that no threshold
    is for, the report's own bounds decide; where none is for any of them, so does its whole verdict.
    """

    outputs: float | None = None
    times: float = TIMES
    tensors: Mapping[str, float] = field(default_factory=dict)
    operators: Mapping[str, float] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Something decides besides the verdict."""
        return self.outputs is not None or bool(self.tensors or self.operators)

    @classmethod
    def of(cls, plain: Any, where: str = "thresholds") -> Thresholds:
        """From plain values. Raises UsageError where a key or a value is not a threshold."""
        if not isinstance(plain, Mapping):
            raise UsageError("must be a table of thresholds", where=where)
        unknown = [key for key in plain if key not in _KEYS]
        if unknown:
            raise UsageError(
                f"unknown key {_shorten_value(unknown[0])}", where=where,
                hint=suggest_nearest(str(unknown[0]), _KEYS) or f"known: {', '.join(_KEYS)}",
            )
        tables = {name: plain.get(name, {}) for name in ("tensors", "operators")}
        for name, table in tables.items():
            if not isinstance(table, Mapping):
                raise UsageError("must be a table: name = largest Rel L2", where=f"{where}.{name}")
            if any(not isinstance(key, str) for key in table):
                raise UsageError("has a name that is not text", where=f"{where}.{name}", hint="put names in quotes")
        return cls(
            outputs=None if plain.get("outputs") is None else _read_number(plain["outputs"], f"{where}.outputs"),
            times=_read_number(plain.get("times", TIMES), f"{where}.times"),
            **{
                name: {key: _read_number(value, f"{where}.{name}.{key}") for key, value in table.items()}
                for name, table in tables.items()
            },
        )

    @classmethod
    def of_project(cls, root: Path) -> Thresholds:
        """Of a folder: in its pyproject.toml or in a precision_debug.yaml; none where neither has any.

        Raises UsageError, also where both have some.
        """
        found: list[Thresholds] = []
        path = root / "pyproject.toml"
        if path.is_file():
            tool = _read(path)
            for name in ("tool", "precision_debug"):
                tool = tool.get(name, {})
                if not isinstance(tool, Mapping):
                    raise UsageError(f"{name} must be a table", where=str(path))
            if "thresholds" in tool:
                found.append(cls.of(tool["thresholds"], f"{path.name} [tool.precision_debug.thresholds]"))
        found += [cls.of_file(root / name) for name in _FILES if (root / name).is_file()]
        if len(found) > 1:
            raise UsageError("thresholds are defined in two files", where=str(root), hint="keep one of them")
        return found[0] if found else cls()

    @classmethod
    def of_file(cls, path: Path) -> Thresholds:
        """From a .yaml, .yml or .toml file: the table, or one that has it under ``thresholds``. Raises UsageError."""
        plain = _read(path)
        return cls.of(plain.get("thresholds", plain) if isinstance(plain, Mapping) else plain, path.name)

    def of_row(self, row: Row) -> float | None:
        """Return the largest relative L2 error that a row may have; None where nobody said."""
        found = [most for pattern, most in self.tensors.items() if fnmatch.fnmatchcase(row.name, pattern)]
        if row.op_type in self.operators:
            found.append(self.operators[row.op_type])
        if row.is_output and self.outputs is not None:
            found.append(self.outputs)
        return min(found, default=None)


def add_test_claims(
    report: Report, thresholds: Thresholds, golden: Report | None = None, *, must_match: bool = False, missing: str = ""
) -> Report:
    """Return the report with the claims of a test: its verdict, sentences and pages then are the test's, too.

    golden: a stored report: only what is worse than in it counts, and what a threshold forbids. must_match: each
    threshold is meant for this model, so one that no tensor falls under is open. missing: a golden report that is not
    there. Where thresholds cover every final output they decide in place of the report's own bounds, else beside them.
    """
    claims = [*_claim_thresholds(report, thresholds, golden, must_match=must_match)]
    if missing:
        claims.append(leave_claim_open("golden", Doubt(code="golden_missing", values={"file": missing})))
    if golden is not None:
        claims += _claim_golden(report, golden, thresholds.times)
    return dataclasses.replace(report, asserted=tuple(claims))


def _claim_thresholds(
    report: Report, thresholds: Thresholds, golden: Report | None, *, must_match: bool
) -> Iterator[Claim]:
    if not thresholds.given:
        return
    patterns = (*thresholds.tensors, *thresholds.operators)
    unmatched = [name for name in patterns if not _does_match(report, name, thresholds)]
    if unmatched and must_match:
        names = tuple(unmatched)
        yield leave_claim_open("patterns", Doubt(code="threshold_unmatched", values={"names": names}), names=names)
    found = [_explain_exceeded(row, thresholds, golden is None) for row in report.rows]
    over = tuple(text for text in found if text)
    covered = [thresholds.of_row(row) is not None for row in report.outputs]
    if golden is None and covered and all(covered):
        yield _claim_limits("within", over, thresholds)
    elif golden is None and any(covered):  # of the others the report's own bounds decide
        own = [row for row in report.outputs if thresholds.of_row(row) is None and row.status is Status.FAIL]
        yield _claim_limits("within", (*over, *(f"{row.op_type} {row.name}: {row.status}" for row in own)), thresholds)
    else:
        yield _claim_limits("thresholds", over, thresholds)


def _claim_limits(code: str, over: Sequence[str], thresholds: Thresholds) -> Claim:
    if over:
        more = len(over) - _SHOWN
        said = "; ".join(over[:_SHOWN]) + (f"; … (+{more})" if more > 0 else "")
        return refute_claim(code, Doubt(code="threshold_exceeded", values={"over": said}), over=tuple(over))
    return hold_claim(
        code, thresholds=len(thresholds.tensors) + len(thresholds.operators) + (thresholds.outputs is not None)
    )


def _does_match(report: Report, name: str, thresholds: Thresholds) -> bool:
    if name in thresholds.operators:
        return any(row.op_type == name for row in report.rows)
    return any(fnmatch.fnmatchcase(row.name, name) for row in report.rows)


def _claim_golden(report: Report, golden: Report, times: float) -> Iterator[Claim]:
    """Nothing is worse than in a stored report, and no culprit is new."""
    changes = compare_reports(golden, report, times=times)
    worse = tuple(
        f"{tensor.op_type} {tensor.name}: {tensor.change}"
        + (" than in the golden report" if tensor.change is Change.WORSE else "")
        for tensor in changes.of(Change.WORSE, Change.LOST, Change.GONE)
    )
    fresh = tuple(culprit.name for culprit in changes.fresh)
    if not (worse or fresh):
        yield hold_claim("within", tensors=len(changes.tensors))
        return
    more = len(worse) - _SHOWN
    said = "; ".join([*worse[:_SHOWN], *([f"… (+{more})"] if more > 0 else []), *(f"new culprit {n}" for n in fresh)])
    yield refute_claim("within", Doubt(code="golden_worse", values={"worse": said}), worse=worse, fresh=fresh)


def describe_complaint(report: Report, golden: Report | None = None) -> str:
    """Return why a report with the claims of a test fails it; "" where it does not."""
    if not report.exit_status:
        return ""
    against = [claim for claim in report.claims if claim.state is not State.HELD]
    over = [line for claim in against for key in ("over", "worse") for line in _describe_claim(claim, key)]
    fresh = {name for claim in against for name in _describe_claim(claim, "fresh")}
    alone = golden is not None and not over  # then only who is new has to do with it
    blamed = {culprit.name: culprit for culprit in named_culprits(report) if not alone or culprit.name in fresh}
    lines = [f"{report.verdict}: {report.target.mode} against {report.baseline.mode}"]
    lines += [describe_culprit(report, culprit).en for culprit in blamed.values()]
    lines += over[:_SHOWN]
    if len(over) > _SHOWN:
        lines.append(f"… and {len(over) - _SHOWN} more tensors")
    told = [claim for claim in against if claim.why is not None and not {"over", "worse"} & claim.evidence.keys()]
    lines += [describe_doubt(claim.why).en for claim in told if claim.why is not None]
    if len(lines) == 1 and report.first_mismatch is not None:
        lines.append(f"first mismatch: {report.first_mismatch.op_type} {report.first_mismatch.name}")
    return "\n".join(map(make_visible, lines))  # a test's failure goes to the terminal as it is


def _describe_claim(claim: Claim, key: str) -> tuple[str, ...]:
    found = claim.evidence.get(key, ())
    return found if isinstance(found, tuple) else ()


def _explain_exceeded(row: Row, thresholds: Thresholds, alone: bool) -> str:
    """Return what a row exceeds. alone: no golden report says what its outputs may be."""
    most = thresholds.of_row(row)
    error = row.relative_l2
    if is_newly_broken(row) and (most is not None or (row.is_output and alone and thresholds.given)):
        return f"{row.op_type} {row.name}: {row.non_finite}" + (
            "" if most is None else f", allowed {format_figure(most)}"
        )
    if most is None:
        return ""
    if error is None or math.isnan(error):
        compared = row.comparison is not None
        return f"{row.op_type} {row.name}: {'NaN or another shape' if compared else 'not compared'}" * bool(
            compared or row.is_output
        )
    return (
        f"{row.op_type} {row.name}: Rel L2 {format_figure(error)}, allowed {format_figure(most)}"
        if error > most
        else ""
    )


def _read(path: Path) -> Any:
    """Return what a file of thresholds holds, as plain values. Raises UsageError."""
    ending = path.suffix.lower()
    refuse_special(path, UsageError)
    try:
        text = path.read_text(encoding="utf-8")
        if ending == ".toml":
            if sys.version_info >= (3, 11):
                import tomllib
            else:  # pytest itself brings it on 3.10
                import tomli as tomllib
            return tomllib.loads(text)
        if ending not in (".yaml", ".yml"):
            raise UsageError("is not a file of thresholds", where=str(path), hint="name a .yaml or .toml file")
        try:
            import yaml
        except ImportError as error:
            hint = "pip install 'precision_debug[yaml]', or write them in pyproject.toml"
            raise UsageError("PyYAML is not installed", where=str(path), hint=hint) from error
        try:
            return yaml.load(text, _make_loader(yaml)) or {}
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error
    except (ValueError, OSError, RecursionError) as error:
        raise UsageError(f"cannot be read: {error}", where=str(path)) from error


def _make_loader(yaml: Any) -> Any:
    """PyYAML's safe loader, which takes 1e-3 for a number too, as YAML 1.2 does (1.1 asks for 1.0e-3)."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    number = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Loader


def _read_number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise UsageError(f"expects a number, 0 or greater, got {_shorten_value(value)}", where=where)
    return float(value)


def _shorten_value(value: Any) -> str:
    """As it was written, shortened; of a list or a table its kind: a few lines of YAML can hold billions of words."""
    if isinstance(value, (str, float, bool)) or value is None:
        return shorten(repr(value), 80)
    return type(value).__name__
