"""Roads of one language model, each held against the truth as the whole batch at once is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UsageError
from ..numbers.arrays import as_array
from ..numbers.measure_tokens import Roles, measure_tokens
from ..numbers.precisions import promised
from ..observe.token_errors import by_token
from ..protocols import Feeds, Roads
from ..records import SessionSpec
from .plan import Opening
from .side import guarded

__all__ = ["Road", "travelled"]

Array = np.ndarray[Any, Any]

_TIMES = 4.0
"""Times that a road may be as far from the truth as the whole batch at once before it is more than rounding: in another
order of sums five small architectures came to 0.7 to 1.3 times, in float32 and bfloat16."""

_UNITS = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
"""The largest relative error of rounding once."""

_FLOOR = 4
"""Roundings below which no tensor is looked at, however exact the other one is."""


@dataclass(frozen=True, kw_only=True)
class Road:
    """How a road compares with the whole batch at once.

    differs: by more than rounding. error, base_error: the largest relative L2 distance of a token's logits from
    float64's, by this road and at once. mean_abs, max_abs: of the log-probabilities' differences between the two.
    first: the first module, in execution order, where a token is that much farther from the truth, with its row and its
    place (from 0), and both distances there. modules: how many were compared.
    """

    name: str
    differs: bool
    error: float
    base_error: float
    mean_abs: float
    max_abs: float
    flips: int
    modules: int
    first: str = ""
    row: int = 0
    place: int = 0
    first_error: float = 0.0
    first_base: float = 0.0


def travelled(opening: Opening, feeds: Feeds, asked: Sequence[str] = ()) -> list[Road]:
    """Go every road that is asked for: the backend's own, and run modes by their names. Raises PrecisionDebugError."""
    roads = opening.capabilities.roads
    if roads is None:
        raise UsageError(f"run mode {opening.label} knows no roads", hint="PyTorch's do, of a folder of transformers")
    modes = {mode.name: mode for mode in opening.backend.run_modes} if opening.backend is not None else {}
    known = [name for name in roads.roads if name != "whole"]
    if strange := [name for name in asked if name not in known and name not in modes]:
        hint = f"there are {', '.join(known)}, and run modes"
        raise UsageError(f"there is no road '{strange[0]}'", where="--roads", hint=hint)
    trip = _Trip(roads, opening, feeds)
    truth, _ = trip.go("whole", dataclasses.replace(opening.spec, mode=roads.truth))
    base, logits = trip.go("whole", opening.spec)
    errors = {name: trip.error(value, truth.get(name)) for name, value in base.items()}
    found = []
    for name in asked or known:
        mode = name if name in modes else opening.spec.mode
        spec = dataclasses.replace(opening.spec, mode=mode)
        seen, other = trip.go("whole" if name in modes else name, spec)
        units = [_UNITS.get(promised(modes[one].precision).computes, 2.0**-24) for one in (opening.spec.mode, mode)]
        found.append(trip.judged(name, seen, other, truth, errors, logits, units))
    return found


class _Trip:
    """The same tokens by one road after the other."""

    def __init__(self, roads: Roads, opening: Opening, feeds: Feeds) -> None:
        self._roads, self._opening, self._feeds = roads, opening, feeds
        ids = np.asarray(feeds["input_ids"]) if "input_ids" in feeds else np.empty((0, 0))
        if ids.ndim != 2 or ids.shape[1] < 2:
            raise UsageError("roads need input_ids of shape [rows, tokens]", where="--inputs")
        self._shape: tuple[int, int] = (ids.shape[0], ids.shape[1])

    def go(self, road: str, spec: SessionSpec) -> tuple[dict[str, Array], Any]:
        """What each module made of each token, float32 or wider, and the logits."""
        seen: dict[str, Array] = {}

        def hook(_op: str, name: str, tensor: Any, /) -> None:
            lines = by_token(as_array(tensor, name=name), *self._shape)
            if lines is not None:
                seen[name] = lines.astype(np.float64 if lines.dtype == np.float64 else np.float32)

        outputs = guarded(self._opening.label, lambda: self._roads.travel(spec, road, self._feeds, hook))
        return seen, outputs["logits"]

    @staticmethod
    def error(value: Array, truth: Array | None) -> Array | None:
        """Relative L2 distance from the truth, a token each; NaN where a token is masked."""
        if truth is None or truth.shape != value.shape:
            return None
        with np.errstate(all="ignore"):
            wide, exact = value.astype(np.float64), truth.astype(np.float64)
            off = np.sqrt(np.sum(np.square(wide - exact), axis=1) / np.sum(np.square(exact), axis=1))
            off = np.where(np.all(wide == exact, axis=1), 0.0, off)
            broken = np.isnan(wide).any(axis=1) & ~np.isnan(exact).any(axis=1)
            return np.where(broken, math.inf, off)

    def judged(
        self, name: str, seen: dict[str, Array], logits: Any, truth: dict[str, Array], base: dict[str, Array | None],
        at_once: Any, units: Sequence[float],
    ) -> Road:  # fmt: skip
        """Whether and where first it is much farther from the truth than the whole batch at once."""
        coarser = max(1.0, units[1] / units[0])
        beyond: dict[str, tuple[int, float, float]] = {}
        compared = 0
        for one, value in seen.items():
            mine, theirs = self.error(value, truth.get(one)), base.get(one)
            if mine is None or theirs is None or np.isnan(mine).all() or np.isnan(theirs).all():
                continue
            compared += 1
            allowed = _TIMES * max(float(np.nanmax(theirs)) * coarser, _FLOOR * units[1])
            over = np.flatnonzero(np.nan_to_num(mine, nan=0.0) > allowed)
            if len(over):
                place = int(over[0])
                beyond[one] = place, float(mine[place]), float(theirs[place])
        tokens = measure_tokens(
            self._feeds, at_once, logits,
            Roles(ids="input_ids", logits="logits", target_logits="logits",
                  mask="attention_mask" if "attention_mask" in self._feeds else ""),
        )  # fmt: skip
        known = [d for one in tokens.tokens if (d := one.difference) is not None and not math.isnan(d)]
        differs = "logits" in beyond
        first = next(iter(beyond)) if differs else ""
        place, error, theirs_there = beyond.get(first, (0, 0.0, 0.0))
        row, column = divmod(place, self._shape[1])
        return Road(
            name=name, differs=differs, error=_most(self.error(seen["logits"], truth["logits"])),
            base_error=_most(base["logits"]), modules=compared,
            mean_abs=float(np.mean(np.abs(known))) if known else 0.0,
            max_abs=float(np.max(np.abs(known))) if known else 0.0,
            flips=sum(one.flips for one in tokens.tokens), first=first, row=row, place=column, first_error=error,
            first_base=theirs_there,
        )  # fmt: skip


def _most(errors: Array | None) -> float:
    return math.nan if errors is None or np.isnan(errors).all() else float(np.nanmax(errors))
