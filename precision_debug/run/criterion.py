"""A command of the user's that says whether a saved model is good enough: by its exit status, nothing else."""

from __future__ import annotations

import dataclasses
import math
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .. import numbers
from ..errors import UsageError, shorten
from ..feeds.script import load_function
from ..numbers import judge
from ..numbers.arrays import as_array
from ..numbers.born import is_broken
from ..numbers.measure_tokens import compute_mean_kl
from ..numbers.slices import largest_lost_error, list_lost_parts, measure_again, with_slices
from ..reasons import Reason, say
from ..records import Comparison, Row, Slices, Status, Tolerance
from ..search.fix import TOKENS_KL, SearchRequest, limit_of
from ..settings import Setting
from ..settings.options import parse_allowed_drop

__all__ = [
    "SAVED_AS", "CheckCommand", "Criterion", "Sample", "Verdict", "choose_save_setting", "list_lost", "with_drop",
]  # fmt: skip


PLACE = "{model}"
"""Stands for the saved model's path, as often as the command has it."""

SAVED_AS = {"save_engine": "set.engine", "save_model": "set.onnx", "save_ir": "set.xml"}
"""The settings by which a mode saves what it runs, the nearest to the engine first, and the file's name."""

_NOT_RUN = {126: "cannot be executed", 127: "was not found"}
"""What a shell says of a command that did not run at all."""


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """words: the program and its arguments; no shell reads them."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> CheckCommand:
        """Raises UsageError for what cannot be run, or does not say where the model's path goes."""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"its quotes do not match ({error})", where="--check", hint=_EXAMPLE) from error
        if "\0" in text:
            raise UsageError("contains a NUL character", where="--check", hint=_EXAMPLE)
        if not any(PLACE in word for word in words[1:]):
            raise UsageError(say("no_place_for_model", place=PLACE), where="--check",
                             hint=_EXAMPLE)  # fmt: skip
        if shutil.which(words[0]) is None:
            raise UsageError(f"program not found: {words[0]}", where="--check", hint=_EXAMPLE)
        return cls(words=words)

    def passes(self, path: Path) -> tuple[bool, str]:
        """Return whether it ends with status 0 on a model, and what to say where it does not.

        It runs in the current folder; what it prints goes where this process prints. Raises UsageError where it did
        not run at all.
        """
        if not path.exists():
            raise UsageError("the run mode saved no model to check", where="--check", hint="name another run mode")
        words = [word.replace(PLACE, str(path)) for word in self.words]
        try:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as error:
            raise UsageError(f"cannot be started: {error.strerror}", where="--check", hint=_EXAMPLE) from error
        if status in _NOT_RUN:
            raise UsageError(f"its command {_NOT_RUN[status]} (status {status})", where="--check",
                             hint="try the command by hand")  # fmt: skip
        if status < 0:
            return False, f"the check was ended by signal {-status}"
        return status == 0, "" if status == 0 else f"the check ends with status {status}"

    @property
    def text(self) -> str:
        """As it was typed, shortened."""
        return shorten(shlex.join(self.words), 120)


_EXAMPLE = say("such_as", example=f'--check "python check.py {PLACE}"')


def choose_save_setting(settings: Sequence[Setting], mode: str) -> str:
    """Return the target's setting that saves what a mode runs; "" where it saves nothing."""
    known = {setting.name for setting in settings if setting.matters("target", mode)}
    return next((name for name in SAVED_AS if name in known), "")


# When a target with kept operators is good enough: its outputs, every tensor or a metric, by tolerance or limit.

Values = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One set of inputs, for both sides, and what the baseline gives: its outputs, or every tensor.

    low: the error with nothing kept, where a limit is a share of it. labels: the sample's own, for a metric that may
    only get so much worse. lost: slices of outputs that are lost with nothing kept, of this sample alone."""

    feeds: Mapping[str, Any]
    target_feeds: Mapping[str, Any]
    values: Values
    low: float | None = None
    labels: Any = None
    lost: Mapping[str, Sequence[Slices]] = field(default_factory=dict)


class Verdict(NamedTuple):
    """Whether a sample passes, its error (inf: NaN or Inf), and the first mismatch in words. outputs: the largest
    relative L2 error of whole outputs; None where nothing else is the error."""

    passes: bool
    error: float
    text: str
    outputs: float | None = None


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """The rule by which a search decides whether a sample passes.

    pairs: the baseline's name of each tensor that is judged to the target's. allowed: relative L2 error up to which it
    passes where the user gave no tolerance and no limit. check: what decides in place of all that. bounds: such errors
    of outputs that have one of their own, as a training step's have; the error of a sample is then that of the outputs
    whose bound is ``allowed`` at most: beside a gradient that is nothing but rounding, whose relative error is any
    number, the others' would not be seen. lost: slices of outputs that were lost with nothing kept: the error is
    theirs, beside their own size, with nothing kept and with anything, lost then or not."""

    asked: SearchRequest
    tolerance: Tolerance
    pairs: Mapping[str, str]
    allowed: float
    metric: Callable[[Values, Values], Any] | None = field(default=None)
    check: CheckCommand | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, Sequence[Slices]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, asked: SearchRequest, tolerance: Tolerance, pairs: Mapping[str, str], allowed: float,
        bounds: Mapping[str, float] = MappingProxyType({}),
        lost: Mapping[str, Sequence[Slices]] = MappingProxyType({}),
    ) -> Criterion:  # fmt: skip
        """Raises UsageError for a metric that is none, or has no limit."""
        metric = None
        if asked.on not in ("outputs", "all"):
            metric = compute_mean_kl if asked.on == TOKENS_KL else load_function(asked.on)
        if metric is not None and asked.drop and f"{asked.on.rpartition(':')[2]}_of_all" in metric.__globals__:
            raise UsageError(say("metric_of_all"), where="--metric", hint=say("metric_of_one"))
        absolute, share = limit_of(asked.limit)
        of_errors = metric is None and not (asked.drop or asked.score or asked.check)
        if of_errors and ((absolute or 0) >= 1 or (share or 0) >= 1):
            raise UsageError(say("limit_of_anything", value=asked.limit), where="--limit", hint=say("limit_form"))
        check = CheckCommand.of(asked.check) if asked.check else None
        return cls(
            asked=asked, tolerance=tolerance, pairs=pairs, allowed=allowed, metric=metric, check=check, bounds=bounds,
            lost=lost,
        )  # fmt: skip

    @property
    def in_slices(self) -> bool:
        """Whether the error is that of slices that were lost, too."""
        return bool(self.lost) and self.metric is None

    def limit(self, sample: Sample) -> float | None:
        """Return the error up to which a sample passes; None where a tolerance of elements decides."""
        if self.check is not None:
            return None
        absolute, share = limit_of(self.asked.limit)
        if self.asked.drop:
            return parse_allowed_drop(self.asked.drop)[0]
        if self.asked.score:
            return 1.0 - (absolute or 0.0)
        if share is not None and sample.low is None:
            return 0.0  # with nothing kept, whose error it is a share of
        if share is not None and sample.low is not None:
            if self.metric is not None and not math.isfinite(sample.low):
                raise UsageError(
                    "with nothing kept it gives no finite number, so a percentage of it is meaningless",
                    where=f"--on {self.asked.on}", hint="write --limit as a number",
                )  # fmt: skip
            return share * sample.low if math.isfinite(sample.low) else self.allowed
        if absolute is not None or self.metric is not None or self.tolerance.given:
            return absolute
        return self.allowed

    @property
    def words(self) -> Reason:
        """What has to hold, for the report."""
        if self.check is not None:
            return say("limit_check", command=self.check.text)
        what = {"outputs": say("every_output"), "all": say("every_tensor")}.get(self.asked.on, self.asked.on)
        absolute, share = limit_of(self.asked.limit)
        if self.asked.drop:
            return say("limit_drop", what=what, limit=parse_allowed_drop(self.asked.drop)[0])
        if self.asked.score:
            return say("limit_score", what=what, limit=absolute or 0.0)
        if share is not None:
            return (
                say("limit_metric_share", what=what, percent=100 * share) if self.metric
                else say("limit_share", what=what, percent=100 * share)
            )  # fmt: skip
        if absolute is not None:
            return (
                say("limit_error", what=what, limit=absolute) if self.metric
                else say("limit_rel_l2", what=what, limit=absolute)
            )  # fmt: skip
        if self.metric is not None:
            return say("limit_metric", what=what)
        if self.tolerance.given:
            return say("limit_tolerance", what=what, atol=self.tolerance.atol, rtol=self.tolerance.rtol)
        return say("limit_expected", what=what, limit=self.allowed)

    def judge(self, sample: Sample, got: Values) -> Verdict:
        """Return whether a sample passes, and its error."""
        limit = self.limit(sample)
        if self.metric is not None:
            return self._by_metric(sample, got, limit)
        worst, passes, text, elements, whole = 0.0, True, "", 0, 0.0
        for name, there in self.pairs.items():
            if there not in got or name not in sample.values:
                return Verdict(False, math.inf, f"{name}: the target does not give it")
            mine, theirs = as_array(sample.values[name], name=name), as_array(got[there], name=there)
            lost = (*self.lost.get(name, ()), *sample.lost.get(name, ()))
            found = with_slices(numbers.compare(mine, theirs, self.tolerance), mine, theirs, list_lost_parts(lost))
            whole = max(whole, compute_error(found))
            error = max(compute_error(found), largest_lost_error(found))
            told = max(error, measure_again(lost, mine, theirs))
            error = told if limit_of(self.asked.limit)[1] is not None else error  # a share of what was lost
            elements += found.base.elements + found.target.elements
            bound = self.bounds.get(name)
            if bound is not None and limit == self.allowed:
                good = error <= bound
                worst = worst if bound > self.allowed and math.isfinite(error) else max(worst, told)
            else:
                good = error <= limit if limit is not None else self._within(name, found)
                worst = max(worst, told)
            if not good and passes:
                passes, text = False, f"{name}: Rel L2 {error:.3g}" if math.isfinite(error) else f"{name}: NaN or Inf"
        if not elements:  # nothing is off, and nothing is right
            raise UsageError(say("all_empty"), hint=say("use_not_empty"))
        return Verdict(passes, worst, text, whole if self.lost or sample.lost else None)

    def with_lost(self, sample: Sample, got: Values) -> Sample:
        """Return a sample with what is lost of it beside what is lost everywhere. got: with nothing kept."""
        lost: dict[str, Sequence[Slices]] = {}
        for name, there in self.pairs.items():
            if self.metric is None and there in got and name in sample.values:
                mine, theirs = as_array(sample.values[name], name=name), as_array(got[there], name=there)
                known = list_lost_parts(self.lost.get(name, ()))
                found = with_slices(numbers.compare(mine, theirs, self.tolerance), mine, theirs, known)
                lost |= {name: found.lost} if found.lost else {}
        return dataclasses.replace(sample, lost=lost)

    def _within(self, name: str, found: Comparison) -> bool:
        row = Row(index=0, op_type="", name=name, status=Status.PASS, comparison=found)
        return judge.judge_row(row, self.tolerance, allowed=self.allowed).status is Status.PASS

    def worse_by(self, mine: Values, theirs: Values, labels: Any) -> float:
        """Return how much worse the metric is for the target in one sample; below 0 where it is better."""
        assert self.metric is not None
        base, target = (_evaluate_metric(self.metric, self.asked.on, one, labels) for one in (mine, theirs))
        name = self.asked.on.rpartition(":")[2]
        less = bool(getattr(self.metric, "__globals__", {}).get(f"{name}_less_is_better"))
        worse = target - base if less else base - target
        return worse if math.isfinite(worse) else math.inf

    def _by_metric(self, sample: Sample, got: Values, limit: float | None) -> Verdict:
        assert self.metric is not None
        mine = {name: np.asarray(as_array(sample.values[name], name=name)) for name in self.pairs}
        theirs = {
            name: np.asarray(as_array(got[there], name=there)) for name, there in self.pairs.items() if there in got
        }
        if self.asked.drop:
            short = self.worse_by(mine, theirs, sample.labels)
            good = limit is not None and short <= limit
            return Verdict(good, short, "" if good else f"{self.asked.on} is worse by {short:.3g}")
        try:
            said = self.metric(theirs, mine) if self.asked.score else self.metric(mine, theirs)
        except (Exception, SystemExit) as error:
            raise UsageError(f"failed: {type(error).__name__}: {error}", where=f"--on {self.asked.on}") from error
        if isinstance(said, (bool, np.bool_)):
            return Verdict(bool(said), 0.0 if said else 1.0, "" if said else f"{self.asked.on} says no")
        value = float(said)
        if self.asked.score:
            short = 1.0 - value if math.isfinite(value) else math.inf
            good = limit is not None and short <= limit
            return Verdict(good, max(0.0, short), "" if good else f"{self.asked.on} gives {value:.3g}")
        if limit is None:
            raise UsageError("returns a number, so a --limit is needed", where=f"--on {self.asked.on}")
        good = value <= limit
        text = "" if good else f"{self.asked.on} gives {value:.3g}"
        return Verdict(good, value if not math.isnan(value) else math.inf, text)


def _evaluate_metric(metric: Callable[[Any, Any], Any], source: str, outputs: Values, labels: Any) -> float:
    """Return what a metric gives for one sample: a number, or a sum over a count. Raises UsageError."""
    try:
        said = metric(outputs, labels)
        total, count = said if isinstance(said, tuple) else (said, 1)
        return float(total) / int(count) if int(count) else 0.0
    except (Exception, SystemExit) as error:
        raise UsageError(f"failed: {type(error).__name__}: {error}", where=f"--metric {source}") from error


def with_drop(asked: SearchRequest, names: Sequence[str], seen: Sequence[Sample]) -> SearchRequest:
    """Return the request with the number that a share of the baseline's metric is. names: of the outputs that are
    judged."""
    most, of_baseline = parse_allowed_drop(asked.drop) if asked.drop else (0.0, False)
    if not of_baseline:
        return asked
    metric = load_function(asked.on)
    found = [_evaluate_metric(metric, asked.on, {name: one.values[name] for name in names}, one.labels) for one in seen]
    return dataclasses.replace(asked, drop=repr(most * abs(sum(found) / len(found))))


def compute_error(found: Comparison) -> float:
    """Return the relative L2 error; inf where NaN or Inf are not those of the baseline; of integers, the share that
    differs."""
    if not found.shapes_match or found.mismatched is None:
        return math.inf
    if is_broken(found) or found.target.inf > found.base.inf:
        return math.inf
    if found.relative_l2 is None:
        if found.mismatched == 0 or not found.base.elements:
            return 0.0
        return found.mismatched / found.base.elements if "float" not in found.base.dtype else math.inf
    return found.relative_l2


def list_lost(rows: Iterable[Row]) -> dict[str, Sequence[Slices]]:
    """Of each output that lost slices, these, by its name."""
    return {row.name: row.comparison.lost for row in rows if row.comparison is not None and row.comparison.lost}


def largest_error(errors: Sequence[float]) -> float:
    """Return the largest error: inf where one is NaN or there is none."""
    return max((math.inf if math.isnan(error) else error for error in errors), default=math.inf)
