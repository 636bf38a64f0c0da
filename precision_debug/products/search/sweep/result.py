"""What a sweep found: one record a mode, and which of them no other one beats."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....reasons import NOTHING, Reason
from ....records import Doubt

__all__ = ["Mode", "Speed", "Sweep", "find_pareto_front"]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times of runs without a hook, in seconds.

    build: until the first run had ended. size: bytes of what runs, 0: not known. p01: 1 % of the runs were faster; 0:
    not known. rounds: the median of each round, where the modes took turns; ``median`` is that of these."""

    batch: int
    runs: int
    median: float
    p99: float
    build: float
    size: int
    file: str = ""
    p01: float = 0.0
    rounds: tuple[float, ...] = ()

    @property
    def low(self) -> float:
        """The fastest round's median; of one round, which says nothing of the machine's moods, the fastest runs'."""
        return min(self.rounds) if len(self.rounds) > 1 else self.p01 or self.median

    @property
    def high(self) -> float:
        """The slowest round's median, or the slowest runs'."""
        return max(self.rounds) if len(self.rounds) > 1 else self.p99 if self.p01 else self.median

    def faster_than(self, other: Speed) -> bool:
        """Return whether each round was faster than each of the other's: what overlaps is not ranked."""
        return self.high < other.low

    @staticmethod
    def of_rounds(found: Sequence[Speed]) -> Speed:
        """Several rounds as one; build, size and file are the first one's, and p99 the worst."""
        medians = tuple(one.median for one in found)
        return dataclasses.replace(
            found[0], runs=sum(one.runs for one in found), median=statistics.median(medians),
            p99=max(one.p99 for one in found), p01=min(one.p01 for one in found), rounds=medians,
        )  # fmt: skip

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return self.batch / self.median if self.median else 0.0


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One row. name: the run mode with the settings of its own ("trt_fp16+use_dynamic_shape=1").

    refused: why it did not run, or only in part; "" where it did. mean_rel, share_over_1pct, rel_l2: of the final
    output that is worst by its relative L2 error. worst: tensor with the largest one. culprit: who introduced it, and
    its cause. scores: as in a report. metric: how the user's own got worse; None where it did not. speeds: one a batch
    size; failed: by batch size why there is none. apart: with --repeat, the largest relative L2 between two builds at
    an output. report: of this mode alone, relative to the sweep's. against: the run mode of its own baseline.
    """

    name: str
    model: str = ""
    refused: Reason = NOTHING
    verdict: str = ""
    samples: int = 0
    mean_rel: float | None = None
    share_over_1pct: float | None = None
    rel_l2: float | None = None
    worst: str = ""
    worst_rel_l2: float | None = None
    culprit: str = ""
    cause: str = ""
    apart: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    metric: Doubt | None = None
    speeds: tuple[Speed, ...] = ()
    failed: Mapping[str, Reason] = field(default_factory=dict)
    report: str = ""
    against: str = ""

    @property
    def speed(self) -> Speed | None:
        """Of the first batch size."""
        return self.speeds[0] if self.speeds else None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """baseline: the name of the row that ratios are of, "" where it did not run. machine: what it ran on."""

    modes: tuple[Mode, ...]
    baseline: str = ""
    command: str = ""
    started: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def mode(self, name: str) -> Mode | None:
        """Return the row of a name."""
        return next((mode for mode in self.modes if mode.name == name), None)

    @property
    def first(self) -> Mode | None:
        """The baseline's row."""
        return self.mode(self.baseline)


def find_pareto_front(modes: Sequence[Mode]) -> list[Mode]:
    """Return the Pareto front of error against latency: modes for which no other is as exact and as fast, and better in
    one.

    Fastest first; modes without an error or a time are none of it. Where the times of two overlap, neither is the
    faster one.
    """
    points = [
        (mode.speed, mode.rel_l2, mode)
        for mode in modes
        if mode.speed and mode.rel_l2 is not None and math.isfinite(mode.rel_l2)
    ]
    kept = [
        (speed.median, error, mode)
        for speed, error, mode in points
        if not any(_is_better(fast, exact, speed, error) for fast, exact, _ in points)
    ]
    return [mode for *_, mode in sorted(kept, key=lambda point: point[:2])]


def _is_better(speed: Speed, error: float, other: Speed, others: float) -> bool:
    """Return whether a mode is as exact and as fast as another one, and better in one of both."""
    if error > others or other.faster_than(speed):
        return False
    return error < others or speed.faster_than(other)
