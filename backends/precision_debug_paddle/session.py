"""One loaded model in one run mode, where every tensor is shown by the predictor's own hook, under Paddle's name.

That is right for legacy programs whose tensors keep the model's layout: on the CPU without oneDNN, and on the GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from precision_debug.protocols import Feeds, Hook
from precision_debug.records import TensorMeta

from . import naming
from .model import Model
from .program import Value
from .runtime import Runner

__all__ = ["HookSession", "meta_of"]


class HookSession:
    """runner: the predictor. unfused: it runs the program as it is, so that the program says what will be seen."""

    def __init__(
        self, model: Model, runner: Runner, *, unfused: bool, versions: Mapping[str, str], notes: Sequence[str] = ()
    ) -> None:
        self.versions = versions
        self._runner = runner
        self._values = {value.name: value for value in model.program.values}
        self._hidden = model.program.parameters()
        self._left_out: set[str] = set()
        self._notes = list(notes)
        self.tensors: Sequence[TensorMeta] = tuple(meta_of(v) for v in model.program.values) if unfused else ()
        self._probed = unfused

    @property
    def notes(self) -> Sequence[str]:
        count = len(self._left_out)
        said = f"{count} running statistics, folded constants and empty tensors are no activations and are left out."
        return (*self._notes, said) if count else tuple(self._notes)

    def probe(self, feeds: Feeds) -> None:
        """Run once to learn which tensors the optimised program still has, in its own order."""
        found: dict[str, TensorMeta] = {}

        def look(op_type: str, name: str, array: Any) -> None:
            if self._shown(name, array):
                found[name] = self._meta(name, op_type, array)

        self._runner.run(feeds, look)
        self.tensors = tuple(found.values())
        self._probed = True

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if not self._probed:
            self.probe(feeds)
        if hook is None:
            return self._runner.run(feeds)

        def show(op_type: str, name: str, array: Any) -> None:
            if self._shown(name, array) and (names is None or name in names):
                hook(naming.plain_type(op_type), name, array)

        return self._runner.run(feeds, show)

    def close(self) -> None:
        self._runner.close()

    def _shown(self, name: str, array: Any) -> bool:
        """Whether a tensor is an activation; a running statistic has the name of a parameter."""
        value = self._values.get(name)
        if value is not None and (array.size or 0 in (value.shape or ())):
            return True
        if name not in self._hidden and value is None and array.size and not self._probed:
            return False
        self._left_out.add(name)
        return False

    def _meta(self, name: str, op_type: str, array: Any) -> TensorMeta:
        value = self._values[name]
        kind = naming.plain_type(op_type)
        return TensorMeta(
            name=name, op_type=kind, dtype=array.dtype.name, shape=array.shape, inputs=value.inputs,
            is_output=bool(value.output),
        )  # fmt: skip


def meta_of(value: Value, **changes: Any) -> TensorMeta:
    """A value of the unoptimised program as the core wants it."""
    known: dict[str, Any] = {
        "name": value.name, "op_type": value.op_type, "node": value.node, "dtype": value.dtype, "shape": value.shape,
        "inputs": value.inputs, "is_output": bool(value.output),
    }  # fmt: skip
    return TensorMeta(**{**known, **changes})
