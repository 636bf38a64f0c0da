"""What of TensorRT's choice of kernels can be switched off: tactic sources, and the search above the lowest level.

Fusions have no switch of their own in any release up to 11 (trt.BuilderFlag names none); a tensor that is marked or
kept prevents those around it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from precision_debug.errors import PrecisionDebugError
from precision_debug.records import SessionSpec

from ..modes import recipe
from ..settings import setting
from . import versions
from .messages import Messages, make_logger

__all__ = ["Tactics", "tactics"]

_LEVEL = "optimization_level"
"""The item that stands for all levels above 0, at which TensorRT takes kernels without timing others."""


@dataclass(frozen=True, kw_only=True)
class Tactics:
    """sources: those that are on, of which items are what may be off."""

    sources: tuple[str, ...]
    items: tuple[str, ...]
    name: str = "tactic sources and levels"
    needs: str = ""
    quick: bool = False

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        left = self._left(off)
        level = {_LEVEL: 0} if _LEVEL in off else {}
        return {"tactic_sources": left or ["none"], **level} if self.sources else level

    def snippet(self, off: Collection[str]) -> str:
        mask = " | ".join(f"1 << int(trt.TacticSource.{name})" for name in self._left(off)) or "0"
        lines = [f"config.set_tactic_sources({mask})"] if {*off} & {*self.sources} else []
        return "\n".join([*lines, *(["config.builder_optimization_level = 0"] if _LEVEL in off else [])])

    def _left(self, off: Collection[str]) -> list[str]:
        return [name for name in self.sources if name not in off]


def tactics(spec: SessionSpec) -> tuple[Tactics, ...]:
    """Return those that this release takes by itself, or that the user has left; none of an engine that is built
    already."""
    chosen = recipe(spec.mode)
    if spec.mode.endswith("_engine"):
        return ()
    try:
        api = versions.load_api(chosen.edition)
        given = setting(spec.options, "tactic_sources")
        sources = _default_sources(api) if given is None else tuple(given)
    except PrecisionDebugError as error:
        return (Tactics(sources=(), items=(), needs=str(error)),)
    except Exception as error:  # no card, or no driver: the builder says so in its own words
        return (Tactics(sources=(), items=(), needs=f"TensorRT makes no builder here ({error})"),)
    level = () if setting(spec.options, _LEVEL) is not None else (_LEVEL,)
    return (Tactics(sources=sources, items=(*sources, *level)),)


def _default_sources(api: versions.Api) -> tuple[str, ...]:
    """Return the sources that a fresh builder takes."""
    config = api.trt.Builder(make_logger(api.trt, Messages())).create_builder_config()
    mask = config.get_tactic_sources()
    return tuple(name for name, member in api.trt.TacticSource.__members__.items() if mask & (1 << int(member)))
