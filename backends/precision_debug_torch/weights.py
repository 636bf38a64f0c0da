"""Whether an exported ONNX file holds a module's weights: the first thing to know before an operator is blamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.arrays import as_array
from precision_debug.errors import ModelError

from .model import Model

__all__ = ["Weight", "check_arrays", "check_weights", "summary", "weights_of"]

Array = np.ndarray[Any, Any]

EQUAL, TURNED, ROUNDED, FOLDED, DIFFERS, ABSENT = "equal", "transposed", "rounded", "folded", "differs", "absent"


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One parameter or buffer of the module.

    state: "equal", "transposed" (equal after a transposition, under any name), "rounded" (equal in the file's lower
    precision), "folded" (each output channel times a factor of its own, as folding a batch norm does), "differs", or
    "absent" (neither its name nor its values are in the file). distance: relative L2 from the module's, where both are.
    """

    name: str
    state: str
    distance: float | None = None


def check_weights(model: Model, path: str | Path) -> tuple[Weight, ...]:
    """Compare a module's parameters and buffers with the initializers of an ONNX file. Raises ModelError."""
    return check_arrays(weights_of(model), path)


def weights_of(model: Model) -> dict[str, Array]:
    """A module's parameters and buffers as arrays."""
    state = {**dict(model.module.named_parameters()), **dict(model.module.named_buffers())}
    return {name: as_array(tensor, name=name) for name, tensor in state.items() if tensor.numel()}


def check_arrays(weights: Mapping[str, Array], path: str | Path) -> tuple[Weight, ...]:
    """The same of weights that are arrays already; needs no torch."""
    known = _initializers(path)
    by_size: dict[tuple[int, ...], list[Array]] = {}
    for array in known.values():
        by_size.setdefault(tuple(sorted(array.shape)), []).append(array)
    return tuple(_weight(name, array, known, by_size) for name, array in weights.items())


def summary(weights: Sequence[Weight], path: str | Path) -> tuple[str, ...]:
    """One sentence on what agrees, and one on what does not."""
    names: dict[str, list[str]] = {}
    for weight in weights:
        names.setdefault(weight.state, []).append(weight.name)
    same = sum(len(names.get(state, ())) for state in (EQUAL, TURNED))
    parts = [f"{same} of {len(weights)} weights of the module are in {Path(path).name} as they are"]
    for state, words in ((ROUNDED, "rounded to a lower precision"), (FOLDED, "scaled by a folded batch norm")):
        if state in names:
            parts.append(f"{len(names[state])} {words}")
    if ABSENT in names:
        parts.append(f"{len(names[ABSENT])} not there (folded into others, or not exported)")
    found = ["; ".join(parts) + "."]
    if DIFFERS in names:
        worst = max((w for w in weights if w.state == DIFFERS), key=lambda w: w.distance or 0.0)
        found.append(
            f"{len(names[DIFFERS])} weights in {Path(path).name} differ from the module's, most of all {worst.name} "
            f"(relative distance {worst.distance:.3g}): is this an old export, or another checkpoint?"
        )
    return tuple(found)


def _initializers(path: str | Path) -> dict[str, Array]:
    import onnx
    from onnx import numpy_helper

    try:
        graph = onnx.load(str(path)).graph
        found = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    except Exception as error:
        raise ModelError(f"its weights cannot be read: {type(error).__name__}: {error}", where=str(path)) from error
    for node in graph.node:
        for item in node.attribute if node.op_type == "Constant" else ():
            if item.name == "value" and item.t.dims:
                found[node.output[0]] = numpy_helper.to_array(item.t)
    return found


def _weight(name: str, own: Array, known: Mapping[str, Array], by_size: Mapping[Any, Sequence[Array]]) -> Weight:
    exported = known.get(name)
    if exported is not None and exported.shape == own.shape:
        return _compared(name, own, exported)
    for other in by_size.get(tuple(sorted(own.shape)), ()):
        if other.shape == own.shape and np.array_equal(own, other):
            return Weight(name=name, state=EQUAL, distance=0.0)
        if own.ndim == 2 and other.shape == own.shape[::-1] and np.array_equal(own, other.T):
            return Weight(name=name, state=TURNED, distance=0.0)
    return Weight(name=name, state=ABSENT)


def _compared(name: str, own: Array, exported: Array) -> Weight:
    if np.array_equal(own, exported):
        return Weight(name=name, state=EQUAL, distance=0.0)
    one, two = own.astype(np.float64), exported.astype(np.float64)
    norm = float(np.linalg.norm(one))
    distance = float(np.linalg.norm(one - two)) / norm if norm else float("inf")
    if exported.dtype != own.dtype and np.array_equal(own.astype(exported.dtype), exported):
        return Weight(name=name, state=ROUNDED, distance=distance)
    if one.ndim > 1:
        flat, other = one.reshape(len(one), -1), two.reshape(len(two), -1)
        factors = (flat * other).sum(1) / np.maximum(np.square(flat).sum(1), 1e-300)
        if np.linalg.norm(other - factors[:, None] * flat) <= 1e-5 * np.linalg.norm(other):
            return Weight(name=name, state=FOLDED, distance=distance)
    return Weight(name=name, state=DIFFERS, distance=distance)
