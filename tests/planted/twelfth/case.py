"""What a case of a public thread is, and how one is registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planted.eleventh_onnx import Blind
from planted.onnx_faults import Array, Graph

Build = Callable[[Graph], Sequence[str]]
DIFFER = "files_differ other_arithmetic"
COARSE = "coarse coarse_scale outlier_channel"


@dataclass(frozen=True, kw_only=True)
class Thread(Blind):
    """thread: where somebody reported it. statuses: further statuses that are right. healthy where who is empty and
    status is 0. mends: how ``measure.py`` mends it without the tool, and what that brings."""

    thread: str
    statuses: tuple[int, ...] = ()
    mends: str = ""


def labelled(
    build: Callable[..., Any], thread: str, kind: str, mode: str, who: str, why: str, *, status: int | None = None,
    extra: str = "", also: str = "", facts: Sequence[str] = (), **more: Any,
) -> Thread:  # fmt: skip
    """One case: named by its function, whose docstring is what is so."""
    return Thread(
        name=build.__name__, thread=thread, kind=kind, mode=mode, who=tuple(who.split()), why=tuple(why.split()),
        status=int(bool(who)) if status is None else status, extra=tuple(extra.split()), also=tuple(also.split()),
        facts=tuple(facts), truth=" ".join((build.__doc__ or "").split()), **more,
    )  # fmt: skip


def graph(build: Build, seed: int = 1212, opset: int = 17) -> tuple[Graph, Sequence[str]]:
    g = Graph(seed=seed, opset=opset)
    return g, build(g)


def one_file(build: Build) -> Callable[[Path], tuple[Path, None, Mapping[str, Array]]]:
    """The model alone: its framework's unfused FP32 is the baseline."""

    def make(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
        g, outputs = graph(build)
        return g.save(folder / f"{build.__name__}.onnx", outputs), None, g.feeds

    return make


def two_files(build: Build, target: Build) -> Callable[[Path], tuple[Path, Path, Mapping[str, Array]]]:
    """``build`` is the baseline; what somebody's converter made of it, the target."""

    def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
        (g, outputs), (other, others) = graph(build), graph(target)
        return other.save(folder / f"{build.__name__}.onnx", others), g.save(folder / "base.onnx", outputs), g.feeds

    return make
