"""What became of some of the samples: one row a tensor over all of them, as plain JSON that merges with any other's.

Samples, child processes and machines all give shards; the merge of any split is the whole, bit for bit: see
``numbers.merged``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..codec import decode, encode, parse_json
from ..numbers import judge
from ..numbers.born import make_infinite
from ..numbers.exact_sum import ExactSum
from ..numbers.merged import Merged, MergedSide, from_plain, side_from_plain, side_to_plain, to_plain
from ..records import Row, Status, TensorStats, Tolerance
from .sample_columns import SAMPLES, WORST_AT, WORST_SAMPLES

__all__ = ["Shard"]

_MOST = 1 << 24
"""Samples that stand side by side in one shard, at most: more is damage, and would fill the memory."""

Score = tuple[ExactSum, int]
Key = tuple[str, str, bool]


class Shard:
    """Rows and scores of some samples.

    samples: their numbers. scores: by name the sum over samples and what it is divided by. parts: by a sample's number
    what a metric of the user's keeps of the baseline and the target.
    """

    def __init__(self) -> None:
        self.samples: set[int] = set()
        self.scores: dict[str, Score] = {}
        self.parts: dict[int, tuple[Any, Any]] = {}
        self.seconds = 0.0
        self._alone: dict[str, tuple[int, MergedSide]] = {}
        self._tensors: dict[Key, tuple[int, Row, Merged | None]] = {}

    def add(self, sample: int, rows: Iterable[Row]) -> None:
        """Take in a sample; comparisons are best Measured."""
        self.samples.add(sample)
        for row in rows:
            merged = None if row.comparison is None else Merged.of(row.comparison, sample)
            self._take(_key_of(row), sample, dataclasses.replace(row, comparison=None), merged)

    def add_alone(self, sample: int, stats: Mapping[str, TensorStats]) -> None:
        """Take in numbers of the baseline's tensors that no partner came for in a sample."""
        for name, one in stats.items():
            self._take_alone(name, sample, MergedSide.of(one, None, 0))

    def _take_alone(self, name: str, sample: int, side: MergedSide) -> None:
        if name in self._alone:
            first, before = self._alone[name]
            side = before.merged(side) if first < sample else side.merged(before)
            sample = min(first, sample)
        self._alone[name] = sample, side

    @property
    def alone(self) -> dict[str, TensorStats]:
        """Return the numbers over all samples of the baseline's tensors that no partner came for."""
        return {name: side.stats for name, (_, side) in self._alone.items()}

    def score(self, name: str, total: float, count: int) -> None:
        """Add to a score."""
        before = self.scores.get(name, (ExactSum(), 0))
        self.scores[name] = before[0] + ExactSum.of(total), before[1] + count

    def merge(self, other: Shard) -> None:
        """Take in other samples."""
        self.samples |= other.samples
        self.parts |= other.parts
        self.seconds += other.seconds
        for name, (total, count) in other.scores.items():
            before = self.scores.get(name, (ExactSum(), 0))
            self.scores[name] = before[0] + total, before[1] + count
        for name, (sample, side) in other._alone.items():
            self._take_alone(name, sample, side)
        for key, found in other._tensors.items():
            self._take(key, *found)

    def _take(self, key: Key, sample: int, row: Row, merged: Merged | None) -> None:
        if key not in self._tensors:
            self._tensors[key] = sample, row, merged
            return
        first, kept, before = self._tensors[key]
        if before is not None:
            merged = before if merged is None else Merged.merge(before, merged)
        self._tensors[key] = (sample, row, merged) if sample < first else (first, kept, merged)

    def rows(self, tolerance: Tolerance) -> list[Row]:
        """Return one row a tensor, judged over all samples, in the order in which the first samples showed them."""
        found = sorted(self._tensors.values(), key=lambda item: (item[0], item[1].index))
        return [_judge_merged(row, merged, tolerance) for _, row, merged in found]

    @property
    def means(self) -> dict[str, float]:
        """The scores; those of nothing are left out."""
        return {name: total.scaled(0, count) for name, (total, count) in sorted(self.scores.items()) if count}

    def worst(self, names: Iterable[str] = ()) -> list[tuple[float, int]]:
        """(error, sample) of the worst samples of some tensors (none: of all), the worst first; each sample once."""
        wanted = set(names)
        worst: dict[int, float] = {}
        for _, row, merged in self._tensors.values():
            for error, sample in merged.worst if merged is not None and (not wanted or row.name in wanted) else ():
                worst[sample] = max(error, worst.get(sample, -1.0))
        return sorted(((error, sample) for sample, error in worst.items()), key=lambda pair: (-pair[0], pair[1]))

    def to_plain(self) -> dict[str, Any]:
        """Return the shard as JSON values."""
        return {
            "samples": _join_ranges(self.samples),
            "seconds": self.seconds,
            "scores": {name: [total.text, count] for name, (total, count) in self.scores.items()},
            "parts": {str(sample): list(parts) for sample, parts in self.parts.items()},
            "alone": {name: [sample, side_to_plain(side)] for name, (sample, side) in self._alone.items()},
            "tensors": [
                {"first": first, "row": encode(row), "totals": None if merged is None else to_plain(merged)}
                for first, row, merged in self._tensors.values()
            ],
        }

    def to_text(self) -> str:
        """Return the shard as JSON text."""
        return json.dumps(self.to_plain(), allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> Shard:
        """Read a shard from its JSON text. Raises KeyError, TypeError or ValueError on foreign data."""
        plain = parse_json(text)
        try:
            return cls.from_plain(plain)
        except (AttributeError, IndexError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Shard:
        """Return the inverse of ``to_plain``."""
        found = cls()
        end = 0
        for low, high in plain["samples"]:
            if not (type(low) is type(high) is int and end <= low < high <= low + _MOST):
                raise ValueError(f"samples {low} to {high}")
            found.samples.update(range(low, high))
            end = high
        found.seconds = float(plain["seconds"])
        found.scores = {name: (ExactSum.from_text(text), int(count)) for name, (text, count) in plain["scores"].items()}
        found.parts = {int(sample): (parts[0], parts[1]) for sample, parts in plain["parts"].items()}
        found._alone = {name: (int(first), side_from_plain(side)) for name, (first, side) in plain["alone"].items()}
        for item in plain["tensors"]:
            row = decode(Row, item["row"])
            totals = None if item["totals"] is None else from_plain(item["totals"])
            found._tensors[_key_of(row)] = int(item["first"]), row, totals
        found._refuse_strangers()
        return found

    def _refuse_strangers(self) -> None:
        """Raises ValueError where something is said of samples that are not among these."""
        named = {*self.parts, *(first for first, _ in self._alone.values())}
        for first, _, merged in self._tensors.values():
            named |= {first, *(sample for _, sample in (merged.worst if merged is not None else ()))}
        if not named <= self.samples:
            raise ValueError(f"samples that are not among these: {sorted(named - self.samples)[:5]}")


def _key_of(row: Row) -> Key:
    return row.name, row.target_name, row.status is Status.UNMATCHED


def _judge_merged(row: Row, merged: Merged | None, tolerance: Tolerance) -> Row:
    if merged is None:
        return row
    comparison = merged.comparison()
    worst = ", ".join(f"{sample} ({error:.2e})" for error, sample in merged.worst)
    extra = {**row.extra, SAMPLES: str(merged.samples), WORST_SAMPLES: worst}
    if merged.max_abs is not None:
        extra[WORST_AT] = str(merged.max_abs.sample)
    over_all = dataclasses.replace(row, comparison=make_infinite(comparison), status=Status.PASS, extra=extra)
    return judge.judge_row(over_all, tolerance)


def _join_ranges(samples: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for sample in sorted(samples):
        if found and found[-1][1] == sample:
            found[-1][1] += 1
        else:
            found.append([sample, sample + 1])
    return found
