"""Say what is known without a culprit: by the files alone, and by other implementations of each operator."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import registry
from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array, measure_distance
from ..numbers.number_types import is_narrow
from ..protocols import Backend
from ..reasons import Reason, say
from ..records import Culprit, Explanation, ModelFiles, RunMode, SessionSpec
from .plan import Opening
from .side import OpenSide

__all__ = ["list_same_kernels", "prove_faults_of_sides", "with_second_opinion"]


# Runs of each operator type of a model in other implementations.
#
# What one engine computes alike on both sides of a comparison, wrong or right, shows only there.

_OFF = 1e-3
"""Relative L2 from which on two implementations of one operator in float32 do not agree."""

_LARGEST = 1 << 22
"""Elements of an operator's inputs up to which it is tried: of each kind the smallest one is."""

_KINDS = 80
"""Kinds of operators, by type and attributes, that are tried."""

_LEFT_OUT = frozenset({
    "Constant", "Identity", "If", "Loop", "Scan", "Dropout", "RandomNormal", "RandomUniform", "RandomNormalLike",
    "RandomUniformLike", "Multinomial", "Bernoulli", "Shape", "Size", "SequenceConstruct", "SequenceAt",
})  # fmt: skip
_TIES = frozenset({"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Unique"})
"""Of equal values any may come first: their indices are not compared."""

_OFTEN_WRONG = frozenset({
    "Resize", "Upsample", "Attention", "MultiHeadAttention", "GroupQueryAttention", "GridSample", "RoiAlign",
    "DeformConv", "ConvTranspose", "LpPool", "GRU", "LSTM", "RNN", "STFT", "Col2Im", "RotaryEmbedding",
})  # fmt: skip
"""Whose kernels were found wrong in published bugs; of pools and Pad only some forms."""


def list_same_kernels(model: Any) -> tuple[str, ...]:
    """Return types of a graph's operators whose kernels were wrong before, and which one engine alone does not
    check."""
    found = dict.fromkeys(node.op_type for node in model.proto.graph.node if _is_often_wrong(node))
    return tuple(found)


def _is_often_wrong(node: Any) -> bool:
    from ..onnx.graph import read_attribute

    if node.op_type in ("AveragePool", "MaxPool"):
        dilated = any(one != 1 for one in read_attribute(node, "dilations", ()))
        return bool(dilated or read_attribute(node, "ceil_mode", 0) or read_attribute(node, "count_include_pad", 0))
    if node.op_type == "Pad":
        return read_attribute(node, "mode", b"constant") not in (b"constant", "constant")
    return node.op_type in _OFTEN_WRONG


@dataclass(frozen=True, kw_only=True)
class _Opinion:
    """mode: who computed it, with its version. outputs: by name; None where it cannot run this operator."""

    mode: str
    outputs: Mapping[str, Any] | None


def with_second_opinion(
    explanation: Explanation, base: OpenSide, feeds: Mapping[str, Any], folder: Path
) -> tuple[Explanation, list[Reason]]:
    """Return the explanation with a culprit for each kind of operator that only the baseline's engine computes so.

    It computes that otherwise than two others, which agree. Also returns what was compared with what, and where one
    alone gives something else. Of a model that is not an .onnx file, a sentence that says so."""
    path = base.opening.spec.model.model_file
    if base.opening.backend is None or not path.lower().endswith(".onnx"):
        return explanation, [say("no_second_opinion")]
    others = list(_iterate_other_engines(base.opening, path))
    if not others:
        return explanation, [say("no_other_engine")]
    found: list[Culprit] = []
    doubted: list[Reason] = []
    tried: dict[str, None] = {}
    versions: dict[str, None] = {}
    for number, (node, part) in enumerate(_iterate_parts(base, path, feeds)):
        mine = _Opinion(mode=_name_engine(base.opening.spec.mode, base.session.versions), outputs=part.outputs)
        opinions = [_ask_engine(backend, mode, part, folder / f"opinion{number}") for backend, mode in others]
        answered = [one for one in opinions if one.outputs is not None]
        if not answered:
            continue
        tried[node.op_type] = None
        versions.update(dict.fromkeys(one.mode for one in answered))
        culprit = _weigh_opinions(node, mine, answered)
        if culprit is not None and culprit.cause == "wrong_kernel":
            found.append(culprit)
        elif culprit is not None:  # one against one: either may be wrong, and nobody is accused
            error, own, asked = (culprit.evidence[key] for key in ("error", "own", "others"))
            doubted.append(
                say("opinions_differ", op=node.op_type, name=culprit.name, error=error, own=own, others=asked)
            )  # fmt: skip
    notes = [say("second_opinion", count=len(tried), types=tuple(tried), by=tuple(versions), wrong=len(found))]
    notes += doubted
    if not found:
        return explanation, notes
    named = {one.name for one in found}
    rest = tuple(one for one in explanation.culprits if one.name not in named)
    return dataclasses.replace(explanation, state="culprits", culprits=(*found, *rest)), notes


def _iterate_other_engines(baseline: Opening, path: str) -> Iterator[tuple[Backend, RunMode]]:
    """Run modes of float32 or more that are nobody's simulation, one a backend, and what is truer than the baseline."""
    known: set[tuple[str, str]] = set()
    for backend, mode in registry.modes_for(ModelFiles(model_file=path)):
        same = mode.name == baseline.spec.mode
        plain = mode.baseline == mode.name or mode.precision == "float64"
        key = (backend.name, mode.precision)
        if same or mode.simulation or is_narrow(mode.precision) or not plain or key in known:
            continue
        if backend is baseline.backend and mode.precision != "float64":
            continue  # its own kernels again
        if backend.availability(mode.name).ok:
            known.add(key)
            yield backend, mode


@dataclass(frozen=True, kw_only=True)
class _Part:
    proto: Any
    feeds: Mapping[str, Any]
    outputs: Mapping[str, Any]


def _iterate_parts(base: OpenSide, path: str, feeds: Mapping[str, Any]) -> Iterator[tuple[Any, _Part]]:
    """Yield the smallest operator of each kind, as a model of its own, with what the baseline read and gave there."""
    import onnx

    from ..onnx.model import load_model, name_every_node
    from ..onnx.submodel import Parts

    proto = load_model(path)
    onnx.load_external_data_for_model(proto, str(Path(path).absolute().parent))
    proto = name_every_node(proto, path)
    values = _as_stored(base, proto, _read_values(base, feeds))
    constants = {tensor.name for tensor in proto.graph.initializer}
    kinds: dict[Any, tuple[int, Any]] = {}
    for node in proto.graph.node:
        outputs = [name for name in node.output if name]
        read = [name for name in node.input if name and name not in constants]
        if node.op_type in _LEFT_OUT or not outputs or outputs[0] not in values or any(n not in values for n in read):
            continue
        size = sum(values[name].size for name in read)
        key = (node.domain, node.op_type, _signature_of(node), tuple(values[name].ndim for name in read))
        if size <= _LARGEST and (key not in kinds or size < kinds[key][0]):
            kinds[key] = (size, node)
    chosen = sorted(kinds.values(), key=lambda pair: not _is_often_wrong(pair[1]))[:_KINDS]
    for _, node in chosen:
        produced = {name: values[name] for name in node.output if name in values}
        try:
            part = Parts(proto, values, next(name for name in node.output if name)).last(1)
        except PrecisionDebugError:
            continue
        if part.nodes == 1:
            yield node, _Part(proto=part.proto, feeds=part.feeds, outputs=produced)


def _signature_of(node: Any) -> bytes:
    return b"".join(sorted(item.SerializeToString() for item in node.attribute))


def _read_values(base: OpenSide, feeds: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: np.array(as_array(one)) for name, one in feeds.items() if not isinstance(one, (list, dict))}

    def keep(_op_type: str, name: str, tensor: Any, /) -> None:
        """Keep a copy of each tensor that is small enough, the first of a name."""
        array = as_array(tensor)
        if array.size <= _LARGEST:
            values.setdefault(name, np.array(array))

    outputs = base.session.run(feeds, keep)
    for name, one in outputs.items():
        if name not in values and not isinstance(one, (list, dict)):
            values[name] = np.array(as_array(one))
    return values


def _as_stored(base: OpenSide, proto: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as operators read and give them.

    A session shows integers that stand for numbers as these numbers. Those whose scale is no constant of the file are
    left out."""
    from onnx import numpy_helper

    shown = {meta.name for meta in base.session.tensors if meta.view == "dequantised"}
    if not shown & values.keys():
        return dict(values)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    found = {name: value for name, value in values.items() if name not in shown}
    for node in proto.graph.node:
        name, place = _find_quantised(node)
        scale = constants.get(node.input[place]) if name in shown and len(node.input) > place else None
        if scale is None or name in found:
            continue
        zero = constants.get(node.input[place + 1]) if len(node.input) > place + 1 else None
        zero = np.zeros((), np.uint8) if zero is None else zero
        shape = [1] * values[name].ndim
        if scale.size > 1:
            axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
            shape[axis] = -1
        limits = np.iinfo(zero.dtype) if zero.dtype.kind in "iu" else None
        if limits is not None:
            steps = np.rint(values[name].astype(np.float64) / scale.astype(np.float64).reshape(shape))
            whole = np.clip(steps + zero.astype(np.float64).reshape(shape), limits.min, limits.max)
            found[name] = whole.astype(zero.dtype)
    return found


_RESULT = {"QuantizeLinear": 1, "QLinearConv": 6, "QLinearMatMul": 6}


def _find_quantised(node: Any) -> tuple[str, int]:
    """Return a quantised tensor that a node makes or reads, and which of its inputs is that tensor's scale; ("", 0):
    none."""
    if node.op_type == "DequantizeLinear":
        return node.input[0], 1
    return (node.output[0], _RESULT[node.op_type]) if node.op_type in _RESULT else ("", 0)


def _ask_engine(backend: Backend, mode: RunMode, part: _Part, folder: Path) -> _Opinion:
    folder.mkdir(exist_ok=True)
    file = folder / "part.onnx"
    file.write_bytes(part.proto.SerializeToString())
    try:
        spec = SessionSpec(model=ModelFiles(model_file=str(file)), mode=mode.name, work_dir=str(folder))
        session = backend.open(spec, [part.feeds])
        try:
            outputs = {name: np.array(as_array(one)) for name, one in session.run(part.feeds).items()}
            return _Opinion(mode=_name_engine(mode.name, session.versions), outputs=outputs)
        finally:
            session.close()
    except Exception:  # whatever an engine makes of one operator: it has no opinion then
        return _Opinion(mode=mode.name, outputs=None)


def _name_engine(mode: str, versions: Mapping[str, str]) -> str:
    joined = ", ".join(f"{name} {number}" for name, number in versions.items() if name not in ("device", "numpy"))
    return f"{mode} ({joined})" if joined else mode


def _weigh_opinions(node: Any, own: _Opinion, others: Sequence[_Opinion]) -> Culprit | None:
    """None where the baseline's engine agrees with one of the others."""
    off = {one.mode: _measure_difference(node, own, one) for one in others}
    known = {name: far for name, far in off.items() if far is not None}
    if not known or min(known.values()) <= _OFF:
        return None
    agreeing = [
        (first, second) for first, second in itertools.combinations(others, 2)
        if (between := _measure_difference(node, first, second)) is not None and between <= _OFF
    ]  # fmt: skip
    name = next(name for name in node.output if name)
    by = agreeing[0][0].mode if agreeing else next(iter(known))
    evidence = {
        "own": own.mode, "others": " and ".join(one.mode for one in (agreeing[0] if agreeing else others)),
        "error": known[by],
    }  # fmt: skip
    return Culprit(
        name=name, node=node.name, op_types=(node.op_type,), cause="wrong_kernel" if agreeing else "kernels_disagree",
        evidence=evidence, confidence="compared", at=name, keep=(name,),
    )  # fmt: skip


def _measure_difference(node: Any, first: _Opinion, second: _Opinion) -> float | None:
    """Return the largest difference of their outputs; None where nothing can be compared."""
    assert first.outputs is not None
    assert second.outputs is not None
    shared = [name for name in node.output if name in first.outputs and name in second.outputs]
    if node.op_type in _TIES:
        shared = [name for name in shared if np.asarray(first.outputs[name]).dtype.kind == "f"]
    found = [measure_distance(first.outputs[name], second.outputs[name]) for name in shared]
    return max(found, default=None)


# What the files of a run prove by themselves, before anything is run.

_ENDING = ".onnx"


def prove_faults_of_sides(baseline: Opening, target: Opening, *, asked: bool) -> list[Reason]:
    """One sentence each; nothing of files that are not ONNX, or cannot be read. asked: for a second opinion, too."""
    backend = target.backend
    first, second = baseline.spec.model, target.spec.model
    if backend is None or not second.model_file.lower().endswith(_ENDING):
        return []
    from ..onnx.provable import prove_faults
    from ..onnx.provable_apart import prove_differences
    from ..onnx.without_weights import read_light

    found: list[Reason] = []
    with contextlib.suppress(PrecisionDebugError):
        theirs = read_light(second.model_file)
        if baseline.backend is backend and not asked and (kernels := list_same_kernels(theirs)):
            found.append(say("same_kernels", types=kernels))
        to = target.precision if is_narrow(target.precision) else ""
        found += prove_faults(theirs, to=to, int32=backend.name == "tensorrt", kept=_list_kept(target) if to else ())
        if baseline.backend is not None and first != second and first.model_file.lower().endswith(_ENDING):
            found += prove_differences(read_light(first.model_file), theirs)
    return found


def _list_kept(opening: Opening) -> frozenset[str]:
    """Return what a side's own settings leave in a wider type, by the names of nodes or of tensors.

    Raises PrecisionDebugError."""
    keep = opening.keep()
    listed = keep.options(()).values() if keep is not None else ()
    return frozenset(name for value in listed if isinstance(value, (tuple, list)) for name in map(str, value))
