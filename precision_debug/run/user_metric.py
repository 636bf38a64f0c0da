"""A metric of the user's: FILE.py:function of one sample's outputs and labels, for the baseline and for the target.

The function returns a number, whose mean over the samples is shown; or (sum, count), whose sums are divided (errors and
words of a WER); or, where the script has ``FUNCTION_of_all``, whatever that one takes a list of, in the order of the
samples, to return the number (an mAP needs every sample at once). More is better, but where the script says
``FUNCTION_less_is_better = True``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..feeds.script import load_function
from ..observe.shard import Shard
from ..records import MetricChange

__all__ = ["SIDES", "UserMetric"]

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
            shard.parts[sample] = _plain(found[0]), _plain(found[1])
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
        """The numbers of all samples, by "NAME, baseline" and "NAME, target"; those of sums are the shard's own."""
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
        """How the metric changes, and between what by resampling. found: the numbers of all samples, as scores."""
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
        """How much worse the target is in samples drawn anew, with repetition; none where there are too few."""
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


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return {str(key): _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
