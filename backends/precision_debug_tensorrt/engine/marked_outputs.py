"""Intermediate tensors as further outputs of rebuilt engines: every TensorRT can, and it disturbs the fusion.

A tensor that TensorRT refuses by name is left out. Marks cut a region into parts, and it may find no implementation of
those: then only the cuts between the region's blocks are marked, and after that one tensor inside each block, as far as
the number of builds goes. Halving the marks until it builds is no way: it took a 12-layer encoder five times its real
build, for a seventh of the rows (8.6 on an H100).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.inspector import EngineDiff, EngineLayer, compare_engines
from precision_debug.protocols import tell
from precision_debug.reasons import Reason

from ..make import Built, Maker
from ..reasons import say
from .execution import Runner
from .network import LayerFacts, read_layers

__all__ = ["Batch", "Marking", "are_finite", "choose_inside", "find_cuts", "group", "largest_difference"]


# Tensors at which a network falls into parts: where marking splits a region between its blocks, not inside them.

_PRODUCTS = frozenset({"MATRIX_MULTIPLY", "CONVOLUTION", "DECONVOLUTION", "FULLY_CONNECTED", "EINSUM"})
_SILENT = frozenset({"CONSTANT", "SHAPE"})
_TELLING = ("SOFTMAX", "NORMALIZATION", "REDUCE", "MATRIX_MULTIPLY", "CONVOLUTION", "UNARY", "ACTIVATION")
"""Types of layers, those first that accumulate or amplify."""


def find_cuts(layers: Sequence[LayerFacts], wanted: Collection[str]) -> tuple[str, ...]:
    """Return the wanted tensors that alone carry everything from before them to behind them, in execution order.

    Of a transformer these are the sums of the residual stream and the normalised ones that nothing bypasses, between
    which TensorRT compiles regions anyway. Constants and what is computed from shapes alone is no data, and crosses
    nothing. Of several cuts with no product between them, such as the steps of a normalisation, the first and the last
    are taken.

    A tensor is a cut where no other tensor that was made before it is read behind it: an articulation point of the
    graph from inputs to outputs, found in one pass over the execution order.
    """
    last = {name: place for place, layer in enumerate(layers) for name in layer.inputs}
    made = {output.name for layer in layers for output in layer.outputs}
    data = {name for layer in layers for name in layer.inputs if name not in made}
    alive = set(data)
    runs: list[list[str]] = []
    product = False
    for place, layer in enumerate(layers):
        product = product or layer.type in _PRODUCTS
        if layer.type not in _SILENT and not data.isdisjoint(layer.inputs):
            data.update(output.name for output in layer.outputs if not output.is_shape)
        mine = {output.name for output in layer.outputs if output.name in data}
        alive = {name for name in alive | mine if last.get(name, -1) > place}
        if len(alive) != 1 or not alive <= mine or not alive <= set(wanted):
            continue
        (name,) = alive
        if runs and not product:
            runs[-1].append(name)
        else:
            runs.append([name])
        product = False
    return tuple(dict.fromkeys(name for run in runs for name in (run[0], run[-1])))


def choose_inside(
    layers: Sequence[LayerFacts], edges: Collection[str], wanted: Collection[str], each: int
) -> tuple[str, ...]:
    """Up to ``each`` wanted tensors of each part between two edges: those whose operators most often lose precision."""
    parts: list[list[tuple[int, int, str]]] = [[]]
    for place, layer in enumerate(layers):
        names = {output.name for output in layer.outputs}
        rank = _TELLING.index(layer.type) if layer.type in _TELLING else len(_TELLING)
        parts[-1] += [(rank, place, name) for name in sorted(names & set(wanted))]
        if names & set(edges):
            parts.append([])
    chosen = sorted((place, name) for part in parts for _, place, name in sorted(part)[:each])
    return tuple(name for _, name in chosen)


# Marked tensors in groups that fit the memory budget, in execution order.

def group(names: Sequence[str], size: Callable[[str], int], budget: int | None) -> list[tuple[str, ...]]:
    """Consecutive groups whose sizes add up to at most ``budget`` bytes; a tensor above it stands alone.

    size: bytes of a tensor; 0 where unknown. budget: None for no limit.
    """
    groups: list[list[str]] = []
    held = 0
    for name in names:
        wanted = size(name)
        if not groups or (budget is not None and held + wanted > budget):
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += wanted
    return [tuple(part) for part in groups]


_LAYERS, _LEAST, _MOST = 1500, 3, 12
"""Layers of the network that may be built again after a refusal, in all; and builds, however large or small it is.

A build with marks takes 0.4 of the real one, whose timings it uses: 19 s of 48, 15 of 35 (12 layers, 8.6 on an H100).
"""

_REFUSALS = 12
"""Builds that may be refused beside: each ends after 1.2 to 1.5 s there, before a kernel is timed."""

_FINITE = 2
"""Builds in all once one gives finite outputs where the real engine's are not: what is inside it has no such fault."""

_RENAMED = 12
"""Refusals by name before the rest of the marks is given up: each takes a build that ends at once."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One rebuilt engine. diff: against the real engine. layers: of the rebuilt one. text: its inspector's JSON."""

    names: tuple[str, ...]
    built: Built
    layers: tuple[EngineLayer, ...]
    diff: EngineDiff
    text: str


@dataclass(kw_only=True)
class Marking:
    """Rebuilds with marks and runs.

    real: layers of the undisturbed engine. refused: filled with the tensors that TensorRT did not let be marked.
    open_runner: makes a Runner with the inputs set. kept: engines of earlier runs; one that shows all that is asked
    for is used again, so that a tensor's value does not depend on which others are looked at. more: builds that may
    follow one that was refused; None: as many as come to a fixed number of layers, so that a large network takes no
    more than three times the build of the engine that ships, and a small one shows all that can be shown. finite:
    set by who runs them, see ``_FINITE``. longest: seconds of such builds of a large network, unasked, after which
    none is begun; of those that look inside the parts, none that would end later.
    """

    maker: Maker
    real: Sequence[EngineLayer]
    open_runner: Callable[[Built, Mapping[str, Any]], Runner]
    refused: dict[str, Reason] = field(default_factory=dict)
    kept: list[Batch] = field(default_factory=list)
    more: int | None = None
    failures: int = 0
    finite: bool = False
    longest: float = math.inf

    def batches(self, names: Sequence[str], feeds: Mapping[str, Any]) -> Iterator[tuple[Batch, Runner]]:
        """Engines that together show ``names``, each with a Runner that has run; the caller closes it."""
        left = dict.fromkeys(name for name in names if name not in self.refused)
        for batch in tuple(self.kept):
            if left.keys().isdisjoint(batch.names):
                continue
            runner = self.open_runner(self.maker.load(batch.built), feeds)
            runner.run()
            yield batch, runner
            for name in batch.names:
                left.pop(name, None)
        waiting = [tuple(left)]
        while waiting:
            part = waiting.pop(0)
            if not part:
                continue
            try:
                built = self.maker.build(part)
                runner = self.open_runner(built, feeds)
            except BackendError as error:
                named = self._refused_by_name(part, error)
                if named:
                    waiting.insert(0, named)
                else:
                    yield from self._between(part, feeds, error)
                continue
            text, layers = runner.inspect()
            try:
                runner.run()
            except BackendError:
                runner.close()
                if len(part) == 1:
                    raise
                waiting = [part[: len(part) // 2], part[len(part) // 2 :], *waiting]
                continue
            yield self._batch(part, built, text, layers), runner

    def _between(
        self, part: tuple[str, ...], feeds: Mapping[str, Any], error: BackendError
    ) -> Iterator[tuple[Batch, Runner]]:
        """Builds after a refused one: the cuts, then one tensor inside each part; of what fails, its halves."""
        layers = read_layers(self.maker.network().network)
        left = dict.fromkeys(part)
        edges = find_cuts(layers, part)
        queue = [edges or part[0::2], *([] if edges else [part[1::2]])]
        allowed = self.more if self.more is not None else min(max(_LAYERS // max(len(layers), 1), _LEAST), _MOST)
        each, built_so_far, refusals, spent, last = 1, 0, 0, 0.0, 0.0
        longest = self.longest if self.more is None and allowed == _LEAST else math.inf
        while built_so_far < allowed and refusals < _REFUSALS:
            if spent + (0.0 if queue else last) > longest:
                allowed = built_so_far
                break
            if not queue:
                queue, each = [choose_inside(layers, edges, left, each)], 2 * each
            wanted = queue.pop(0)
            if not wanted:
                break
            tell(say("building_between", count=len(wanted), number=built_so_far + 1, builds=allowed))
            try:
                built = self.maker.build(wanted)
                runner = self.open_runner(built, feeds)
                text, found = runner.inspect()
                runner.run()
            except BackendError as again:
                error = again
                if len(wanted) == 1:
                    left.pop(wanted[0])
                    self.refused[wanted[0]] = say("refused", detail=error.what)
                else:
                    queue[:0] = [wanted[0::2], wanted[1::2]]
                each, refusals = 1, refusals + 1
                continue
            built_so_far, spent, last = built_so_far + 1, spent + built.seconds, built.seconds
            for name in wanted:
                left.pop(name, None)
            yield self._batch(wanted, built, text, found), runner
            if self.finite and self.more is None:
                allowed = min(allowed, _FINITE)
        for name in left:
            self.refused[name] = say("inside_refused", detail=error.what, builds=allowed)

    def _batch(self, part: tuple[str, ...], built: Built, text: str, layers: tuple[EngineLayer, ...]) -> Batch:
        plan = dataclasses.replace(built, engine=None, runtime=None)
        batch = Batch(names=part, built=plan, layers=layers, diff=compare_engines(self.real, layers), text=text)
        self.kept.append(batch)
        return batch

    def _refused_by_name(self, part: tuple[str, ...], error: BackendError) -> tuple[str, ...]:
        """Return the marks that are left where the error names some, which are put down as refused; () where it names
        none."""
        named = {name for name in part if re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/.])", error.what)}
        region = "ForeignNode" in error.what  # names the region's first and last operator, and refuses neither
        if not named or region or len(named) == len(part) or self.failures >= _RENAMED:
            return ()
        self.failures += 1
        for name in named:
            self.refused[name] = say("refused", detail=error.what)
        return tuple(name for name in part if name not in named)


def are_finite(outputs: Mapping[str, Any]) -> bool:
    """Return whether no floating-point output holds NaN or Inf."""
    arrays = [np.asarray(value) for value in outputs.values()]
    return all(bool(np.isfinite(array).all()) for array in arrays if array.dtype.kind == "f")


def largest_difference(real: Mapping[str, Any], marked: Mapping[str, Any]) -> float:
    """Return the largest |difference| between outputs of the same name; nan where one is not finite and the other
    differs."""
    worst = 0.0
    for name in set(real) & set(marked):
        a, b = np.asarray(real[name]), np.asarray(marked[name])
        if a.shape == b.shape and a.size and a.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
            gap = np.where(a == b, 0.0, gap)
            worst = max(worst, float(np.max(gap))) if not np.isnan(gap).any() else float("nan")
    return worst
