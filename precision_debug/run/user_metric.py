"""A metric of the user's: FILE.py:function of one sample's outputs and labels, for the baseline and for the target.

The function returns a number, whose mean over the samples is shown; or (sum, count), whose sums are divided (errors and
words of a WER); or, where the script has ``FUNCTION_of_all``, whatever that one takes a list of, in the order of the
samples, to return the number (an mAP needs every sample at once).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from ..feeds.script import load_function
from ..observe.shard import Shard

__all__ = ["SIDES", "UserMetric"]

SIDES = ("baseline", "target")


class UserMetric:
    """source: FILE.py:function. Raises InputError where there is none."""

    def __init__(self, source: str) -> None:
        self.name = source.rpartition(":")[2]
        self._source = source
        self._function = load_function(source)
        self._of_all: Callable[..., Any] | None = None
        if f"{self.name}_of_all" in getattr(self._function, "__globals__", {}):
            self._of_all = load_function(f"{source}_of_all")

    def add(self, shard: Shard, sample: int, outputs: tuple[Mapping[str, Any], Mapping[str, Any]], labels: Any) -> None:
        """Evaluate one sample on both sides."""
        found = [self._call(side, labels) for side in outputs]
        if self._of_all is not None:
            shard.parts[sample] = _plain(found[0]), _plain(found[1])
            return
        for side, value in zip(SIDES, found, strict=True):
            try:
                total, count = value if isinstance(value, tuple) else (value, 1)
                shard.score(f"{self.name}, {side}", float(total), int(count))
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"it returned {type(value).__name__}", where=self._source, hint="return a number, or (sum, count)"
                ) from error

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
