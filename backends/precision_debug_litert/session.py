"""One file in one run mode: lists its tensors, shows them to a hook, returns the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.feeds.check import engine_arrays
from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.protocols import Feeds, Hook, OneRun, Replace, Replacer
from precision_debug.reasons import NOTHING, Reason
from precision_debug.reasons.ways import NO_WAY, way
from precision_debug.records import Doubt, Grid, InputMeta, Operator, Stored, TensorMeta

from .engine.graph import BODIES, READS, Graph, Value
from .failures import running
from .make import Interpreted, Maker, Part, Variable
from .naming import dtype_of, operator_type
from .reasons import say

__all__ = ["LiteRtSession"]


class LiteRtSession:
    """See protocols.Session. file_numbers: what the file's quantised tensors stand for, by the file's names. raw:
    quantised inputs are fed as integers. own: tensors that the file does not have.

    By reference kernels one interpreter does all. As LiteRT ships, the outputs are always the plain interpreter's;
    tensors come from a second one that keeps them, and in which XNNPACK takes each operator by itself.
    """

    alone = ""
    layers = ()

    def __init__(
        self, *, graph: Graph, maker: Maker, inputs: Sequence[InputMeta], file_numbers: RealNumbers, raw: bool,
        own: Collection[str], versions: Mapping[str, str], notes: Sequence[Reason] = (), tells: bool = True,
    ) -> None:  # fmt: skip
        self._graph, self._maker, self._inputs, self._file_numbers, self._raw = graph, maker, inputs, file_numbers, raw
        self._real = graph.flat.real_numbers()
        self.holds_integers, self.scales = graph.in_whole_steps, graph.flat.file_scales()
        self.arithmetic = "int8" if self.holds_integers else ""
        self._said: dict[Reason, None] = dict.fromkeys(notes)
        self._one_run = OneRun(maker.path)
        self.versions: Mapping[str, str] = dict(versions)
        self.doubts: Sequence[Doubt] = ()
        self._plain: Interpreted | None = maker.plain()
        self._kept: Interpreted | None = self._plain if maker.reference else None
        self._parts: Mapping[int, Part | Variable] | None = None
        kernels = {} if maker.reference else self._delegated()
        self._tensors = _list_tensors(graph, self._real, frozenset(own), kernels if tells else {})

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return self._tensors

    @property
    def notes(self) -> Sequence[Reason]:
        return tuple(self._said)

    @property
    def replacer(self) -> Replacer | None:
        return self if self.replaces else None

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer."""
        return self._graph.runs_alone

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        with self._one_run:
            fed = self._fed(feeds)
            outputs = self._outputs(self._run(self._of_plain(), fed))
            if hook is None:
                return outputs
            kept = self._of_kept()
            if kept is not self._plain:
                self._run(kept, fed)
                self._tell_bits(outputs, self._outputs(kept))
            final = {index: name for name, index in self._graph.outputs.items()}
            for meta in self._tensors:
                if meta.unseen or (names is not None and meta.name not in names):
                    continue
                value = self._graph.named[meta.name]
                array = outputs[final[value.index]] if value.index in final else None
                hook(meta.op_type, meta.name, self._shown(kept, value) if array is None else np.array(array))
            return outputs

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer: each operator is an interpreter of its own, but those of variables."""
        with self._one_run:
            held: dict[int, Any] = dict(self._fed(feeds))
            parts = self._of_parts(held)
            for value in self._graph.values.values():
                if value.place < 0 and value.index in held:
                    held[value.index] = self._replaced(value, held[value.index], replace, names)
            last = {index: place for place, made in self._graph.made.items() for index in made[0].reads}
            kept = set(self._graph.outputs.values())
            for place, part in parts.items():
                made = self._graph.made[place]
                with running(self._maker.path, self._maker.mode):
                    arrays = part.run({index: held[index] for index in made[0].reads if index in held})
                for value in made:
                    held[value.index] = self._replaced(value, arrays[value.index], replace, names)
                for index in made[0].reads:
                    if last[index] == place and index not in kept:
                        held.pop(index, None)
            return {name: self._in_real(self._graph.values[index], held[index]) for name, index in self._ends(held)}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        one = self._graph.named.get(name)
        if one is None:
            return None
        if name in self._real:
            return self._real.held(name, value, one.dtype)
        array = np.asarray(value)
        return round_values(array, narrow_type(one.dtype)) if one.dtype in {"float16", "bfloat16"} else array

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        value = self._graph.named.get(name)
        return None if value is None or value.place < 0 else self._graph.operator(value)

    def stored(self, name: str) -> Stored | None:
        """See protocols.find_stored."""
        flat = self._graph.flat
        return next((flat.held(one) for one in flat.main.tensors if one.name.decode() == name), None)

    def close(self) -> None:
        with self._one_run.closing():
            self._plain = self._kept = self._parts = None

    def _ends(self, held: Mapping[int, Any]) -> Sequence[tuple[str, int]]:
        assert self._plain is not None
        for index in self._graph.outputs.values():
            if index not in held:  # a constant
                held[index] = self._plain.get(index)  # type: ignore[index]
        return tuple(self._graph.outputs.items())

    def _replaced(self, value: Value, array: Any, replace: Replace, names: Collection[str] | None) -> Any:
        if names is not None and value.name not in names:
            return array
        new = replace(value.op_type, value.name, self._in_real(value, array))
        if new is None or np.shape(new) != np.shape(array):
            return array
        if value.name in self._real:
            return self._real.codes(value.name, new, array)
        return np.asarray(new).astype(array.dtype)

    def _fed(self, feeds: Feeds) -> Mapping[int, Any]:
        """By tensor, in the type that the interpreter takes."""
        found = {}
        for name, array in engine_arrays(feeds, self._inputs, where=self._maker.path).items():
            value = self._graph.named[name]
            if array.dtype.name == value.dtype:
                found[value.index] = array
            elif name not in self._file_numbers:  # halves of the file, widened
                found[value.index] = array.astype(np.float32)
            elif self._raw:
                found[value.index] = self._file_numbers.shown(name, array)
            else:
                found[value.index] = self._file_numbers.codes(name, array, np.zeros(array.shape, value.dtype))
        return found

    def _run(self, one: Interpreted, fed: Mapping[int, Any]) -> Interpreted:
        with running(self._maker.path, self._maker.mode):
            one.run(fed)
        return one

    def _outputs(self, one: Interpreted) -> dict[str, Any]:
        values = self._graph.values
        return {name: self._shown(one, values[index]) for name, index in self._graph.outputs.items()}

    def _shown(self, one: Interpreted, value: Value) -> Any:
        with running(self._maker.path, self._maker.mode):
            array = one.get(value.index)
        return self._in_real(value, array)

    def _in_real(self, value: Value, array: Any) -> Any:
        return self._real.shown(value.name, array) if value.name in self._real else array

    def _of_plain(self) -> Interpreted:
        assert self._plain is not None
        return self._plain

    def _of_kept(self) -> Interpreted:
        if self._kept is None:
            self._kept = self._maker.keeping()
        return self._kept

    def _of_parts(self, fed: Mapping[int, Any]) -> Mapping[int, Part | Variable]:
        if self._parts is None:
            shown = {place: made for place, made in self._graph.made.items() if not made[0].hidden}
            read = {place for place, made in shown.items() if made[0].op_type == READS}
            kept = self._run(self._of_kept(), fed) if read else self._of_kept()
            self._parts = {
                place: Variable(index=made[0].index, first=kept.get(made[0].index)) if place in read
                else self._maker.part(self._graph, made) for place, made in shown.items()
            }  # fmt: skip
        return self._parts

    def _delegated(self) -> Mapping[int, str]:
        """Return which kernel makes each tensor, and a note of how many XNNPACK took."""
        kept = self._of_kept()
        with running(self._maker.path, self._maker.mode):
            ops = kept.interpreter._get_ops_details()
        taken = {int(index) for op in ops if op["op_name"] == "DELEGATE" for index in op["outputs"]}
        values = [value for value in self._graph.values.values() if value.place >= 0]
        places = {value.place: value for value in values}
        rest = Counter(value.op_type for value in places.values() if value.index not in taken)
        count = len(places) - rest.total()
        left = ", ".join(f"{kind} {number}" for kind, number in rest.most_common())
        some = say("delegated", taken=count, all=len(places), rest=left)
        self._said[some if rest else say("delegated_all", all=len(places))] = None
        return {value.index: "XNNPACK" if value.index in taken else "LiteRT" for value in values}

    def _tell_bits(self, plain: Mapping[str, Any], there: Mapping[str, Any]) -> None:
        differ = [name for name, array in plain.items() if np.asarray(array).tobytes() != there[name].tobytes()]
        if differ:
            self._said[say("other_bits", names=", ".join(differ[:3]))] = None


def _list_tensors(
    graph: Graph, real: RealNumbers, own: Collection[str], kernels: Mapping[int, str]
) -> Sequence[TensorMeta]:  # fmt: skip
    ends = set(graph.outputs.values())
    listed = [
        TensorMeta(
            name=value.name, op_type=value.op_type, node=_name_node(graph, value), dtype=value.dtype, shape=value.shape,
            inputs=tuple(graph.values[one].name for one in value.reads), is_output=value.index in ends,
            view=way("dequantised") if value.name in real else NO_WAY, own=value.name in own,
            unseen=say("no_values", dtype=value.dtype) if value.hidden else NOTHING,
            grids={value.name: grid} if (grid := _find_grid(graph, real, value)) is not None else {},
            extra={"Kernel": kernels[value.index]} if value.index in kernels else {},
        )
        for value in graph.values.values()
    ]  # fmt: skip
    return (*listed, *_list_inner_tensors(graph))


def _find_grid(graph: Graph, real: RealNumbers, value: Value) -> Grid | None:
    """Return a tensor's own grid, or that of the integers which a DEQUANTIZE makes it of."""
    if value.op_type == "DEQUANTIZE" and value.reads:
        value = graph.values[value.reads[0]]
    return real.grid(value.name, value.dtype)


def _name_node(graph: Graph, value: Value) -> str:
    """LiteRT's operators have no names: the first tensor that each makes stands for it."""
    return "" if value.place < 0 else graph.made[value.place][0].name


def _list_inner_tensors(graph: Graph) -> list[TensorMeta]:
    """Return what subgraphs of branches and loops compute."""
    model, found = graph.flat.model, []
    kinds = sorted({value.op_type for value in graph.values.values()} & BODIES)
    if not kinds:
        return []
    for number, sub in enumerate(model.subgraphs[1:], 1):
        scope = bytes(sub.name or b"").decode("utf-8", "replace") or f"subgraph_{number}"
        for op in sub.operators or ():
            for index in (int(one) for one in op.outputs if int(one) >= 0):
                own = bytes(sub.tensors[index].name or b"").decode("utf-8", "replace")
                found.append(
                    TensorMeta(
                        name=f"{scope}/{index}/{own}", op_type=operator_type(model.operatorCodes[op.opcodeIndex]),
                        dtype=dtype_of(sub.tensors[index].type), unseen=say("inside", kind=" / ".join(kinds)),
                    )
                )  # fmt: skip
    return found
