"""Builds engines ahead of time, for cards that are not here: the proof that a model is taken, without a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendError, ModelError
from precision_debug.reasons import Reason

from ..engine.messages import Messages
from ..engine.options import Options
from ..engine.timing_cache import TimingCache
from ..engine.versions import Api
from ..model import OnnxModel, Script
from ..modes import Recipe
from .engine import Built, Maker
from .road import choose_road
from .typed import build_typed, drop_size_names, make_typed_source

__all__ = ["ChipBuild", "build_for_chip", "build_for_chips"]


@dataclass(frozen=True, kw_only=True)
class ChipBuild:
    """What a build for one chip gave. chip: compute capability. built: None where it failed, for the reason ``why``.

    source: what it was built from, with the precisions written into it; notes: on these."""

    chip: str
    built: Built | None = None
    source: OnnxModel | Script | None = None
    notes: tuple[Reason, ...] = ()
    why: str = ""


def build_for_chip(
    api: Api, logger: Any, messages: Messages, source: OnnxModel, recipe: Recipe, options: Options,
    feeds: Sequence[Mapping[str, Any]], *, chip: str,
) -> tuple[Maker, Built]:  # fmt: skip
    """Return the engine for one chip, serialized, and what built it: its ``plan`` needs no card.

    feeds: arrays by input; their shapes decide where the model leaves them open, their values calibrate INT8. Raises
    UsageError, ModelError or BackendError.
    """
    source = drop_size_names(source, feeds)
    road = choose_road(api, recipe, options, source)

    def plan(typed: OnnxModel) -> tuple[Maker, Built]:
        maker = Maker(
            api=api, logger=logger, messages=messages, source=typed, recipe=recipe, options=options, road=road,
            device=None, feeds=feeds, timing=TimingCache("", anew=True), chips=(chip,),
        )  # fmt: skip
        return maker, maker.plan()

    if not road.strong:
        return plan(source)
    with tempfile.TemporaryDirectory(prefix="precision_debug-") as folder:
        (maker, built), _, notes, _ = build_typed(
            lambda kept: make_typed_source(
                api, logger, messages, source, recipe, options, feeds, Path(folder), refused_by_builder=kept
            ),
            plan,
        )
        maker.notes = tuple(notes)
        return maker, built


def build_for_chips(
    api: Api, logger: Any, messages: Messages, source: OnnxModel, recipe: Recipe, options: Options,
    feeds: Sequence[Mapping[str, Any]],
) -> list[ChipBuild]:  # fmt: skip
    """One build for each chip that the edition knows. Raises UsageError where the options do not fit the mode."""
    found = []
    for chip in api.chips:
        try:
            maker, built = build_for_chip(api, logger, messages, source, recipe, options, feeds, chip=chip)
            found.append(ChipBuild(chip=chip, built=built, source=maker.source, notes=maker.notes))
        except (BackendError, ModelError) as error:
            found.append(ChipBuild(chip=chip, why=error.what))
    return found
