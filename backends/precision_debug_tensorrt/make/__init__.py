"""From a model to a running engine: the road, the configuration, the constraints, the build."""

from __future__ import annotations

from .ahead import Ahead, build_ahead, built_ahead
from .engine import Built, Maker, load_engine
from .road import Road, choose_road
from .typed import typed_build, typed_source

__all__ = [
    "Ahead",
    "Built",
    "Maker",
    "Road",
    "build_ahead",
    "built_ahead",
    "choose_road",
    "load_engine",
    "typed_build",
    "typed_source",
]
