"""How a hook gets a value in the model's own layout and numbers: side branches off the edge, and numpy after the tap.

Nothing here touches the main path: every step reads the value and feeds a tap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from precision_debug.onnx.scales import Scale
from precision_debug.onnx.types import numpy_dtype
from precision_debug.reasons import NOTHING, Reason
from precision_debug.reasons.ways import NO_WAY, Way, way

from ..reasons import say
from . import taps
from .same_tensor import NCHWC, Form
from .types import TypeInfo

__all__ = ["View", "make_view"]

_FLOAT, _UINT8, _INT8, _STRING = 1, 2, 3, 8
# types without a place in numpy's C interface, and one that holds all their values
_VIA = {10: _FLOAT, 16: _FLOAT, 17: _FLOAT, 18: _FLOAT, 19: _FLOAT, 20: _FLOAT, 24: _FLOAT}
_VIA |= {21: _UINT8, 22: _INT8, 25: _UINT8, 26: _INT8}

Step = Callable[[str, str], Any]


@dataclass(frozen=True, kw_only=True)
class View:
    """label: TensorMeta.view. unseen: why there is no view. steps: node makers, each from an input and an output name.

    finish: what numpy does to the tapped array.
    """

    label: Way = NO_WAY
    unseen: Reason = NOTHING
    steps: tuple[Step, ...] = ()
    finish: Callable[[Any], Any] | None = None

    @property
    def at_end(self) -> bool:
        """What no tap can read, strings and sequences, is shown after the run where it is an output of the model."""
        return self.label == "" and self.unseen.code in _AT_END

    def nodes(self, name: str, prefix: str) -> tuple[list[Any], str]:
        """Return the side branch off ``name``, and the value at its end; new names begin with prefix."""
        made = []
        for place, step in enumerate(self.steps):
            output = f"{prefix}.{place}"
            made.append(step(name, output))
            name = output
        return made, name


_STRINGS = say("strings")
_AT_END = frozenset({_STRINGS.code, say("kind", kind="sequence").code})


def make_view(info: TypeInfo, form: Form, channels: int | None, shape: tuple[int | str, ...] | None) -> View:
    """Return the view of one value. channels, shape: of the source tensor, where a layout or blocks have to be
    undone."""
    if info.kind == "tensor" and info.elem == _STRING:
        return View(unseen=_STRINGS)
    if info.kind != "tensor":
        return View(unseen=say("kind", kind=info.kind) if info.kind else say("no_type"))
    if form.blocked and form.perm is not None:
        return _undo_blocks(info, channels, form.perm)
    if form.perm is None or not _fits(info, form.perm, shape):
        return View(unseen=say("layout"))
    if form.scale is not None:
        return View(label=way("dequantised"), steps=(_dequantise(form.scale),), finish=_transpose(form.perm))
    if info.elem in taps.types():
        return View(label=way("transposed") if form.perm else NO_WAY, finish=_transpose(form.perm))
    if info.elem not in _VIA:
        return View(unseen=say("no_cast", dtype=info.dtype))
    return View(steps=(_cast(_VIA[info.elem]),), finish=_narrow(info.elem, form.perm))


def _undo_blocks(info: TypeInfo, channels: int | None, perm: tuple[int, ...]) -> View:
    if channels is None or info.elem != _FLOAT:
        return View(unseen=say("blocks"))
    return View(label=way("unblocked"), steps=(_reorder(channels),), finish=_transpose(perm))


def _fits(info: TypeInfo, perm: tuple[int, ...], shape: tuple[int | str, ...] | None) -> bool:
    """Return whether a transposed value's shape can be the source tensor's."""
    if not perm:
        return True
    if any(len(known) != len(perm) for known in (shape, info.shape) if known is not None):
        return False
    if shape is None or info.shape is None:
        return True
    pairs = ((info.shape[place], shape[axis]) for place, axis in enumerate(perm))
    return all(mine == theirs for mine, theirs in pairs if isinstance(mine, int) and isinstance(theirs, int))


def _reorder(channels: int) -> Step:
    def make(name: str, output: str) -> Any:
        from onnx import helper

        return helper.make_node("ReorderOutput", [name], [output], name=output, domain=NCHWC, channels=channels)

    return make


def _cast(to: int) -> Step:
    def make(name: str, output: str) -> Any:
        from onnx import helper

        return helper.make_node("Cast", [name], [output], name=output, to=to)

    return make


def _dequantise(scale: Scale) -> Step:
    def make(name: str, output: str) -> Any:
        from onnx import helper

        inputs = [name, scale.scale, *([scale.zero_point] if scale.zero_point else ())]
        extra = {} if scale.axis is None else {"axis": scale.axis}
        if scale.block:
            extra["block_size"] = scale.block
        return helper.make_node("DequantizeLinear", inputs, [output], name=output, domain=scale.domain, **extra)

    return make


def _transpose(perm: tuple[int, ...]) -> Callable[[Any], Any] | None:
    if not perm:
        return None
    back = tuple(perm.index(axis) for axis in range(len(perm)))
    # of an open shape the rank is known now alone: what has another one lies in no layout of these axes
    return lambda array: array.transpose(back) if array.ndim == len(back) else array


def _narrow(elem: int, perm: tuple[int, ...]) -> Callable[[Any], Any]:
    """Back to the engine's own type: exact, since the array holds that type's values."""
    dtype, turn = numpy_dtype(elem), _transpose(perm)

    def finish(array: Any) -> Any:
        narrow = array if dtype is None else array.astype(dtype)
        return narrow if turn is None else turn(narrow)

    return finish
