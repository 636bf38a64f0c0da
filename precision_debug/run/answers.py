"""Measure what the difference does to the answer: top-k, a metric or a comparison of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, UsageError
from ..events import Checked, Note, Scores
from ..feeds import FeedSet
from ..feeds.script import load_function
from ..numbers import scores
from ..observe.shard import Shard
from ..reasons import say
from ..records import MetricChange, RunSpec, TensorMeta
from .journal import Journal

__all__ = ["SIDES", "Answers", "UserCompare", "UserMetric", "finish", "labels_by_sample", "load_labels"]


# A comparison of the user's own: FILE.py:function of both runs' outputs, in place of tolerances.
#
# The function is given two mappings of output names to arrays, the baseline's and the target's, and returns true or
# false, or a mapping of names to true or false; Polygraphy's scripts for --compare-func-script do.

class UserCompare:
    """source: FILE.py:function. Raises InputError where there is none."""

    def __init__(self, source: str) -> None:
        self.name = source.rpartition(":")[2]
        self._source = source
        self._function = load_function(source)

    def judge(self, baseline: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, bool]:
        """Return whether each output is good enough, by its name; {"": …} where the function says it of all at once.

        Raises InputError with what went wrong in the function.
        """
        sides = [{name: np.array(value) for name, value in side.items()} for side in (baseline, target)]  # to keep ours
        try:
            found = self._function(*sides)
            outcomes = found if isinstance(found, Mapping) else {"": found}
            told = {str(name): self._truth(one) for name, one in outcomes.items()}
            if not told:
                raise InputError(say("judged_nothing"), where=self._source, hint=say("judge_form"))
            if strange := [name for name in told if name and name not in baseline and name not in target]:
                known = say("such_as", example=", ".join(map(repr, baseline)))
                raise InputError(say("judged_strange", names=strange), where=self._source, hint=known)
            return told
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{type(error).__name__}: {error}", where=self._source) from error

    def _truth(self, value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        number = isinstance(value, (int, float, np.ndarray, np.number))
        if number or not hasattr(type(value), "__bool__") or value is None:
            said = say("judged_with", kind=type(value).__name__)
            raise InputError(said, where=self._source, hint=say("judge_form"))
        return bool(value)  # Polygraphy's own results are true or false in this way


# A metric of the user's: FILE.py:function of one sample's outputs and labels, for the baseline and for the target.
#
# The function returns a number, whose mean over the samples is shown; or (sum, count), whose sums are divided (errors
# and words of a WER); or, where the script has ``FUNCTION_of_all``, whatever that one takes a list of, in the order of
# the samples, to return the number (an mAP needs every sample at once). More is better, but where the script says
# ``FUNCTION_less_is_better = True``.

SIDES = ("baseline", "target")

_FEWEST = 6
"""Samples from which on resampling them says anything: of five, each as it happens, one draw in 32 goes one way."""

_DRAWS, _AT_ONCE, _OF_ALL, _READ = 1000, 1 << 22, 40, 20_000
"""How often samples are drawn anew, numbers of them at a time; the same at least for a function of all samples, which
takes long, and how many samples it may be given in all."""


class UserMetric:
    """source: FILE.py:function. Raises InputError where there is none."""

    def __init__(self, source: str) -> None:
        self.name = source.rpartition(":")[2]
        self._source = source
        self._function = load_function(source)
        self._of_all: Callable[..., Any] | None = None
        known = getattr(self._function, "__globals__", {})
        self.less_is_better = bool(known.get(f"{self.name}_less_is_better"))
        if f"{self.name}_of_all" in known:
            self._of_all = load_function(f"{source}_of_all")

    def add(self, shard: Shard, sample: int, outputs: tuple[Mapping[str, Any], Mapping[str, Any]], labels: Any) -> None:
        """Evaluate one sample on both sides."""
        found = [self._call(side, labels) for side in outputs]
        if self._of_all is not None:
            shard.parts[sample] = _to_plain_value(found[0]), _to_plain_value(found[1])
            return
        parts = []
        for side, value in zip(SIDES, found, strict=True):
            try:
                total, count = value if isinstance(value, tuple) else (value, 1)
                shard.score(f"{self.name}, {side}", float(total), int(count))
                parts.append([repr(float(total)), int(count)])  # a shard's text knows no NaN
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"it returned {type(value).__name__}", where=self._source, hint="return a number, or (sum, count)"
                ) from error
        shard.parts[sample] = parts[0], parts[1]

    def finish(self, shard: Shard) -> dict[str, float]:
        """Return the numbers of all samples, by "NAME, baseline" and "NAME, target"; those of sums are the shard's
        own."""
        if self._of_all is None or not shard.parts:
            return {}
        parts = [shard.parts[sample] for sample in sorted(shard.parts)]
        found = {}
        for place, side in enumerate(SIDES):
            try:
                found[f"{self.name}, {side}"] = float(self._of_all([part[place] for part in parts]))
            except (Exception, SystemExit) as error:
                raise InputError(f"{type(error).__name__}: {error}", where=f"{self._source}_of_all") from error
        return found

    def change(self, shard: Shard, found: Mapping[str, float]) -> MetricChange | None:
        """Return how the metric changes, and between what by resampling. found: the numbers of all samples, as
        scores."""
        names = [f"{self.name}, {side}" for side in SIDES]
        if not set(names) <= set(found):
            return None
        base, target = (found[name] for name in names)
        worse = sorted(self._drawn([shard.parts[sample] for sample in sorted(shard.parts)]))
        edge = len(worse) // 40  # 2.5 % on each side
        return MetricChange(
            name=self.name, baseline=base, target=target, samples=len(shard.parts), less_is_better=self.less_is_better,
            low=worse[edge] if worse else None, high=worse[-1 - edge] if worse else None,
        )  # fmt: skip

    def _drawn(self, parts: Sequence[Any]) -> list[float]:
        """Return how much worse the target is in samples drawn anew, with repetition; none where there are too few."""
        count, sign = len(parts), -1.0 if self.less_is_better else 1.0
        draws = np.random.default_rng(0)
        if count < _FEWEST:
            return []
        if self._of_all is not None:
            often = min(_READ // count, _DRAWS)
            chosen = (draws.integers(count, size=count) for _ in range(often if often >= _OF_ALL else 0))
            both = [[float(self._of_all([parts[one][side] for one in drawn])) for side in (0, 1)] for drawn in chosen]
            found = np.array(both).reshape(-1, 2)
        else:
            values = np.array([[[float(total), count] for total, count in pair] for pair in parts])
            found = np.empty((0, 2))
            while len(found) < _DRAWS:
                drawn = values[draws.integers(count, size=(max(1, min(_DRAWS, _AT_ONCE // count)), count))].sum(axis=1)
                with np.errstate(divide="ignore", invalid="ignore"):
                    found = np.concatenate([found, drawn[..., 0] / drawn[..., 1]])
        worse = sign * (found[:, 0] - found[:, 1])
        return [float(one) for one in worse[np.isfinite(worse)]]

    def _call(self, outputs: Mapping[str, Any], labels: Any) -> Any:
        try:
            return self._function({name: np.asarray(value) for name, value in outputs.items()}, labels)
        except (Exception, SystemExit) as error:
            raise InputError(f"{type(error).__name__}: {error}", where=self._source) from error


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_to_plain_value(item) for item in value]
    return {str(key): _to_plain_value(item) for key, item in value.items()} if isinstance(value, Mapping) else value


# What the difference does to the answer: top-k, a metric of the user's, a comparison of the user's; of any samples.

_CHECK = "compare: "
"""What the names of a shard's scores begin with that are the user's own judgement."""


def load_labels(path: str, count: int) -> Any:
    """Labels of ``count`` samples or of all of their rows: a .npy or .npz array of any type, by its first axis.

    Raises InputError.
    """
    labels = scores.read_labels(path, hint=say("labels_with_numpy"))
    if not labels.ndim or len(labels) % count or not len(labels):
        raise InputError(f"{len(labels) if labels.ndim else 'no'} labels for {count} samples", where=path)
    return labels


def labels_by_sample(spec: RunSpec, count: int) -> Callable[[int], Any]:
    """Return what gives a sample's own labels, as its metric gets them; None where there are none. Raises
    InputError."""
    every = load_labels(spec.labels, count) if spec.labels else None
    each = 0 if every is None else len(every) // count

    def of(sample: int) -> Any:
        if every is None:
            return None
        return every[sample] if each == 1 else every[sample * each : (sample + 1) * each]

    return of


class Answers:
    """Evaluates one sample after the other. Raises InputError where a file of the user's is missing or wrong."""

    def __init__(self, spec: RunSpec, feed_set: FeedSet, first: int = 0) -> None:
        """first: the sample that is compared, where it is one alone."""
        self._spec, self._count = spec, len(feed_set.feeds)
        metric, compare = spec.metric, spec.compare
        if spec.metric_drop and not metric:
            raise UsageError(say("no_metric"), where="--metric_drop", hint=say("add_metric"))
        self.metric = UserMetric(metric) if metric else None
        self._compare = UserCompare(compare) if compare else None
        of_labels = bool(spec.labels) and self.metric is None
        self._classes = scores.choose_class_counts(spec.top1 or of_labels, spec.top_k)
        self._one = feed_set.many is None
        self._labels: Any = None
        if spec.labels and self._one and self._count == 1 and self.metric is None:
            self._labels = scores.load_labels(spec.labels)
            scores.check_labels(self._labels, feed_set.feeds[0])
        elif spec.labels:
            self._labels = load_labels(spec.labels, self._count)
            if self._one:
                self._labels, self._count = self._of(first), 1
        self._feeds = feed_set.feeds

    def check(self, outputs: Sequence[TensorMeta]) -> None:
        """Raise InputError where labels cannot belong to any of these outputs."""
        if self._one and self._labels is not None and self.metric is None:
            scores.check_labels(self._labels, self._feeds[0], outputs)

    @property
    def asked(self) -> bool:
        """Whether there is anything to evaluate."""
        return bool(self._classes or self.metric or self._compare)

    def add(self, part: Shard, sample: int, base: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
        """Evaluate a sample's outputs; False where top-k was asked for and no output holds class scores."""
        labels = None if self._labels is None else self._of(0 if self._one else sample)
        if self._compare is not None:
            for name, good in self._compare.judge(base, target).items():
                part.score(f"{_CHECK}{name}", float(good), 1)
        if self.metric is not None:
            one = labels[0] if labels is not None and len(labels) == 1 else labels
            self.metric.add(part, sample, (base, target), one)
            labels = None  # they are the metric's, whatever they say
        if not self._classes:
            return True
        found = scores.score_classes(base, target, labels, self._classes)
        for name, share in found.shares.items() if found is not None else ():
            part.score(name, round(share * found.samples), found.samples)  # type: ignore[union-attr]
        return found is not None

    def _of(self, sample: int) -> Any:
        each = len(self._labels) // self._count
        return self._labels[sample * each : (sample + 1) * each]


def finish(spec: RunSpec, whole: Shard, journal: Journal, metric: UserMetric | None = None) -> None:
    """Tell the journal what came of all samples. metric: the command's own, where it is loaded already."""
    source = spec.metric
    if metric is None and source and whole.parts:
        metric = UserMetric(source)
    found = {**whole.means, **(metric.finish(whole) if metric is not None else {})}
    checks = {name.removeprefix(_CHECK): found.pop(name) for name in list(found) if name.startswith(_CHECK)}
    samples = max((count for name, (_, count) in whole.scores.items() if not name.startswith(_CHECK)), default=0)
    if found:
        change = metric.change(whole, found) if metric is not None else None
        journal.write(Scores(scores=found, samples=len(whole.samples) or samples, metric=change))
    if checks:
        function = spec.compare.rpartition(":")[2]
        times = max(count for name, (_, count) in whole.scores.items() if name.startswith(_CHECK))
        journal.write(Checked(function=function, shares=checks, samples=times))
    if (spec.top1 or spec.top_k) and not found and not source:
        journal.write(Note(text=say("no_top1")))
