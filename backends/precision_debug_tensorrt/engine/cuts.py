"""Tensors at which a network falls into parts: where marking splits a region between its blocks, not inside them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .network import LayerFacts

__all__ = ["cuts", "inside"]

_PRODUCTS = frozenset({"MATRIX_MULTIPLY", "CONVOLUTION", "DECONVOLUTION", "FULLY_CONNECTED", "EINSUM"})
_SILENT = frozenset({"CONSTANT", "SHAPE"})
_TELLING = ("SOFTMAX", "NORMALIZATION", "REDUCE", "MATRIX_MULTIPLY", "CONVOLUTION", "UNARY", "ACTIVATION")
"""Types of layers, those first that accumulate or amplify."""


def cuts(layers: Sequence[LayerFacts], wanted: Collection[str]) -> tuple[str, ...]:
    """The wanted tensors that alone carry everything from before them to behind them, in execution order.

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


def inside(layers: Sequence[LayerFacts], edges: Collection[str], wanted: Collection[str], each: int) -> tuple[str, ...]:
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
