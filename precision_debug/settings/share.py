"""Who gets which setting: each goes to the sides that read it, before anything is opened.

Baseline and target may be of two backends: a setting that only one of them knows is no mistake, one that none knows is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..reasons import Reason, say, suggest_nearest
from .setting import SIDES, Setting

__all__ = ["CALIBRATED", "Taker", "get_passed", "read_by", "share_settings"]

_PASSED: Mapping[str, Any] = {"side": "target", "seed": 0, "anew": False, "target_mode": "", "calibrated": ""}

CALIBRATED = "calibrated"


def get_passed(options: Mapping[str, Any], name: str) -> Any:
    """Return what the core itself tells a session among its options, plain values too.

    "side", "seed", and "anew": it is one of several builds that are to differ as builds do, so that nothing that was
    measured before may steer it. "target_mode": the run mode of the command's target, "" where there is none.
    "calibrated": a folder of many sets of kept operators that are only chosen among, where what one of them measured of
    the inputs may be left for the next; "": what is opened is what the user gets, and may leave that in the folder
    CALIBRATED of its own one for them."""
    default = _PASSED[name]
    return options.get(name, default) if options.get(name) is not None else default


@dataclass(frozen=True, kw_only=True)
class Taker:
    """One side of a run, as far as settings go. backend: its name, "" for a recording, which takes none."""

    side: str
    mode: str
    backend: str
    table: Sequence[Setting] = ()

    def find(self, name: str) -> Setting | None:
        """Return the setting of that name, where this side reads it in this mode."""
        return next((one for one in self.table if one.name == name and one.matters(self.side, self.mode)), None)

    def gatherer(self, name: str) -> Setting | None:
        """Return the setting whose pairs a name of the engine's own joins, where this side reads it in this mode."""
        if any(one.name == name for one in self.table):
            return None
        return next(
            (one for one in self.table if one.native and re.fullmatch(one.native, name)
             and one.matters(self.side, self.mode)), None,
        )  # fmt: skip


def share_settings(
    options: Mapping[str, Any], takers: Sequence[Taker], tables: Mapping[str, Sequence[Setting]]
) -> tuple[dict[str, Any], ...]:
    """Return the settings of each taker, in their declared types.

    options: KEY for every side that reads it, "baseline.KEY" and "target.KEY" for one side, before KEY.
    tables: of all backends, by name, for what is said of a setting that is another's.
    Raises UsageError for a setting that nobody takes, with the nearest name, and for a wrong value.
    """
    found: tuple[dict[str, Any], ...] = tuple({} for _ in takers)
    places = [taker.side for taker in takers]
    for key in sorted(options, key=lambda key: bool(_find_side(key))):  # those of one side last: they win
        side = _find_side(key)
        name = key[len(side) + 1 :] if side else key
        if name in _PASSED:
            hint = "give it with --seed N" if name == "seed" else "leave it out"
            raise UsageError("is not a setting of a backend", where=f"--option {key}", hint=hint)
        asked = [(place, taker) for place, taker in enumerate(takers) if side in ("", taker.side)]
        taken = [(place, one) for place, taker in asked if (one := taker.find(name) or taker.gatherer(name))]
        if not side:
            taken = [(place, one) for place, one in taken if not one.target_unless_said or places[place] == "target"]
        if not taken:
            raise _make_not_taken_error(key, name, [taker for _, taker in asked], tables)
        for place, setting in taken:
            if options[key] is None:
                continue
            if setting.name == name and setting.kind != "pairs":
                found[place][name] = setting.read(options[key], f"--option {key}" if side else "")
                continue
            pairs = options[key] if setting.name == name else {name: options[key]}
            read = setting.read(pairs, f"--option {key}")
            found[place][setting.name] = {**found[place].get(setting.name, {}), **read}
    return found


def read_by(options: Mapping[str, Any], takers: Sequence[Taker]) -> dict[str, Any]:
    """Return the options that at least one taker (a side's backend and run mode) reads, values unchanged."""

    def is_read(key: str) -> bool:
        side = _find_side(key)
        name = key[len(side) + 1 :] if side else key
        return any(side in ("", taker.side) and (taker.find(name) or taker.gatherer(name)) for taker in takers)

    return {key: value for key, value in options.items() if is_read(key)}


def _find_side(key: str) -> str:
    """Return the side that a key names: "baseline" or "target" of "baseline.KEY" and "target.KEY", else ""."""
    return next((side for side in SIDES if key.startswith(f"{side}.")), "")


def _make_not_taken_error(
    key: str, name: str, asked: Sequence[Taker], tables: Mapping[str, Sequence[Setting]]
) -> UsageError:  # fmt: skip
    everywhere = [(backend, setting) for backend, table in tables.items() for setting in table]
    flagged = key == name and any(setting.flag for _, setting in everywhere if setting.name == name)
    where = f"--{name}" if flagged else f"--option {key}"
    labels = [say("the_side", side=_name_side(taker.side), mode=taker.mode) for taker in asked]
    what = (
        say("nobody_takes_it", first=labels[0], second=labels[1]) if len(labels) > 1
        else say("does_not_take_it", side=labels[0]) if labels else f"there is no {key.partition('.')[0]} here"
    )  # fmt: skip
    hint = ""
    own = [(taker, setting) for taker in asked for setting in taker.table if setting.name == name]
    if own:
        hint = _explain_where_it_matters(*own[0])
    elif others := sorted({backend for backend, setting in everywhere if setting.name == name}):
        hint = say("others_setting", count=len(others), names=others)
    else:
        near = [s.name for taker in asked for s in taker.table if s.matters(taker.side, taker.mode)]
        hint = suggest_nearest(name, near) or suggest_nearest(name, [setting.name for _, setting in everywhere])
    tableless = [taker.backend for taker in asked if taker.backend and not taker.table]
    if tableless and (not hint or len(tableless) == len(asked)):
        hint = f"the backend {tableless[0]} declares no settings"
    return UsageError(what, where=where, hint=hint or say("settings_lists"))


def _name_side(name: str) -> Reason:
    return say("baseline") if name == "baseline" else say("target")


def _explain_where_it_matters(taker: Taker, setting: Setting) -> str:
    if taker.side not in setting.sides:
        return say("one_side_only", side=_name_side(setting.sides[0]))
    return say("it_matters_in", modes=" ".join(setting.modes))
