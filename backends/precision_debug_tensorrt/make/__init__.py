"""From a model to a running engine: the road, the configuration, the constraints, the build."""

from __future__ import annotations

from .engine import Built, Maker, load_engine
from .road import Road, choose_road

__all__ = ["Built", "Maker", "Road", "choose_road", "load_engine"]
