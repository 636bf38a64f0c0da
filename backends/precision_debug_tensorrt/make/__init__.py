"""From a model to a running engine: the road, the configuration, the constraints, the build."""

from __future__ import annotations

from .ahead_of_time import ChipBuild, build_for_chip, build_for_chips
from .config import LOOKED_AT
from .engine import Built, Maker, load_engine
from .road import Road, choose_road
from .typed import build_typed, drop_size_names, make_typed_source

__all__ = [
    "LOOKED_AT",
    "Built",
    "ChipBuild",
    "Maker",
    "Road",
    "build_for_chip",
    "build_for_chips",
    "build_typed",
    "choose_road",
    "drop_size_names",
    "load_engine",
    "make_typed_source",
]
