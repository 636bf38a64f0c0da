"""One loaded model in one run mode, where every tensor is shown by the predictor's own hook, under Paddle's name.

That is right for legacy programs whose tensors keep the model's layout: on the CPU without oneDNN, and on the GPU.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from precision_debug.protocols import Feeds, Hook
from precision_debug.records import TensorMeta

from . import naming
from .model import Model
from .program import Value
from .runtime import Runner

__all__ = ["HookSession", "meta_of", "metas_of"]


_FOLDED = frozenset({"batch_norm", "sync_batch_norm", "affine_channel"})
_LINEAR = frozenset({
    "conv2d", "conv2d_transpose", "conv3d", "depthwise_conv2d", "depthwise_conv2d_transpose", "matmul", "matmul_v2",
    "mul",
})  # fmt: skip


class HookSession:
    """runner: the predictor. extra: further columns of the report, by tensor name. apart: batch norms that are known to
    be operators of their own still.

    kinds: how many tensors ``probe`` saw of each operator type, whether they are shown or not. Until ``probe`` or
    ``run``, ``tensors`` are those of the unoptimised program.
    """

    def __init__(
        self, model: Model, runner: Runner, *, versions: Mapping[str, str], notes: Sequence[str] = (),
        extra: Mapping[str, Mapping[str, str]] | None = None, apart: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.versions = versions
        self._apart = frozenset(apart)
        self._extra = extra or {}
        self._runner = runner
        self._values = {value.name: value for value in model.program.values}
        self._left_out: set[str] = set()
        self.kinds: collections.Counter[str] = collections.Counter()
        self._refused: frozenset[str] = frozenset()
        self._notes = list(notes)
        self.tensors: Sequence[TensorMeta] = metas_of(meta_of(value) for value in model.program.values)
        self._probed = False

    @property
    def notes(self) -> Sequence[str]:
        count = len(self._left_out)
        said = f"{count} running statistics, folded constants and empty tensors are no activations and are left out."
        return (*self._notes, said) if count else tuple(self._notes)

    def add_note(self, text: str) -> None:
        """Say something more to the reader of a report."""
        self._notes.append(text)

    def probe(self, feeds: Feeds) -> None:
        """Run once to learn which tensors the program that runs has, in its own order."""
        found: dict[str, TensorMeta] = {}

        def look(op_type: str, name: str, array: Any) -> None:
            self.kinds[naming.plain_type(op_type)] += 1
            if self._shown(name, array):
                found[name] = self._meta(name, op_type, array)

        self._runner.run(feeds, look)
        refilled = self._refilled(found)
        if refilled:
            self._notes.append(
                f"{len(refilled)} tensors before a batch norm that was folded into weights hold something else under "
                "their old name now and are left out."
            )
        self._refused = refilled
        self.tensors = metas_of(meta for meta in found.values() if meta.name not in refilled)
        if len(self.tensors) < len(self._values):
            self._notes.append(
                f"{len(self.tensors)} of {len(self._values)} tensors of the program are still there and can be seen."
            )
        self._probed = True

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if not self._probed:
            self.probe(feeds)
        if hook is None:
            return self._runner.run(feeds)

        def show(op_type: str, name: str, array: Any) -> None:
            if name not in self._refused and self._shown(name, array) and (names is None or name in names):
                hook(naming.plain_type(op_type), name, array)

        return self._runner.run(feeds, show)

    def close(self) -> None:
        self._runner.close()

    def _shown(self, name: str, array: Any) -> bool:
        """Whether a tensor is an activation; a running statistic has the name of a parameter."""
        value = self._values.get(name)
        if value is not None and (array.size or 0 in (value.shape or ())):
            return True
        self._left_out.add(name)
        return False

    def _refilled(self, found: Mapping[str, TensorMeta]) -> frozenset[str]:
        """Tensors between a linear operator and the batch norm that was folded into its weights.

        The convolution keeps its output's name, but with other weights it is another tensor.
        """
        readers = collections.Counter(name for value in self._values.values() for name in value.inputs)
        names: set[str] = set()
        for norm in self._values.values():
            now = found.get(norm.name)
            whole = norm.name in self._apart or (now is not None and now.op_type == norm.op_type)
            if norm.op_type not in _FOLDED or whole:
                continue
            before = list(norm.inputs)
            while before:
                value = self._values.get(before.pop())
                if value is None or readers[value.name] != 1:
                    continue
                bias = value.op_type == "elementwise_add" and len(value.inputs) == 1
                if (value.op_type in _LINEAR or bias) and value.name in found:
                    names.add(value.name)
                before += value.inputs if bias else ()
        return frozenset(names)

    def _meta(self, name: str, op_type: str, array: Any) -> TensorMeta:
        value = self._values[name]
        kind = naming.plain_type(op_type)
        return TensorMeta(
            name=name, op_type=kind, dtype=array.dtype.name, shape=array.shape, inputs=value.inputs,
            is_output=bool(value.output), extra=self._extra.get(name, {}),
        )  # fmt: skip


def metas_of(metas: Iterable[TensorMeta]) -> tuple[TensorMeta, ...]:
    """The list that a session announces: ``inputs`` name only what is in it."""
    listed = tuple(metas)
    names = {meta.name for meta in listed}
    return tuple(
        dataclasses.replace(meta, inputs=tuple(name for name in meta.inputs if name in names)) for meta in listed
    )


def meta_of(value: Value, **changes: Any) -> TensorMeta:
    """A value of the unoptimised program as the core wants it."""
    known: dict[str, Any] = {
        "name": value.name, "op_type": value.op_type, "node": value.node, "dtype": value.dtype, "shape": value.shape,
        "inputs": value.inputs, "is_output": bool(value.output),
    }  # fmt: skip
    return TensorMeta(**{**known, **changes})
