"""What the difference does to the answer: top-k, a metric of the user's, a comparison of the user's; of any samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError, UsageError
from ..events import Checked, Note, Scores
from ..feeds import FeedSet
from ..numbers import scores
from ..observe.shard import Shard
from ..reasons import say
from ..records import RunSpec, TensorMeta
from .journal import Journal
from .user_compare import UserCompare
from .user_metric import UserMetric

__all__ = ["Answers", "finish", "labels_of"]

_CHECK = "compare: "
"""What the names of a shard's scores begin with that are the user's own judgement."""


def labels_of(path: str, count: int) -> Any:
    """Labels of ``count`` samples or of all of their rows: a .npy or .npz array of any type, by its first axis.

    Raises InputError.
    """
    labels = scores.read_labels(path, hint=say("labels_with_numpy"))
    if not labels.ndim or len(labels) % count or not len(labels):
        raise InputError(f"{len(labels) if labels.ndim else 'no'} labels for {count} samples", where=path)
    return labels


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
        self._classes = scores.counts(spec.top1 or of_labels, spec.top_k)
        self._one = feed_set.many is None
        self._labels: Any = None
        if spec.labels and self._one and self._count == 1 and self.metric is None:
            self._labels = scores.load_labels(spec.labels)
            scores.check_labels(self._labels, feed_set.feeds[0])
        elif spec.labels:
            self._labels = labels_of(spec.labels, self._count)
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
        found = scores.score(base, target, labels, self._classes)
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
