"""Static (QDQ) and dynamic int8, and weights of 4 bits, with onnxruntime.quantization."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import inspect
import json
import threading
import traceback
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import (
    BackendCrash,
    BackendError,
    BackendUnavailable,
    InputError,
    ModelError,
    NothingToQuantise,
    PrecisionDebugError,
    UsageError,
    shorten,
)
from precision_debug.explain.operators import find_reached
from precision_debug.onnx.graph import copy_but, iterate_graphs, iterate_subgraphs
from precision_debug.onnx.model import Model, name_nodes, read_model
from precision_debug.onnx.removed_activations import find_wrongly_removed
from precision_debug.protocols import Feeds
from precision_debug.reasons import NOTHING, Reason, list_some

from ..engine.light_imports import import_lean, import_quantisation, run_quietly
from ..engine.remedies import PRODUCTS, count_quantised
from ..engine.runtime import Runtime, our_errors, plain, raise_if_full
from ..engine.stock_script import FLOAT8, METHODS, PER_CHANNEL, TYPES, method_of
from ..keep import find_nodes
from ..reasons import say
from ..settings import setting
from .names_given import give_names_back, give_other_names
from .opset import opset_of, raise_opset
from .running_graph import dump, infer_types

__all__ = ["after_quantisation", "quantise"]

_BIASED = ("Conv", "ConvTranspose", "Gemm")
"""Operators whose third input the quantiser copies where another one reads it too."""

_CACHE = "calibration_cache_path"
"""Of quantize_static since ONNX Runtime 1.32: it reads ranges from there, or leaves them."""
_SHARING = "_quantize_sharing_param_tensors"
"""The quantiser's loop over the tensors that share another one's range."""

_HINT = "keep what it stumbles over in float: options nodes_to_exclude, op_types"
_QUANTISED_HINT = "compare ort_opt, which runs it unchanged"


def quantise(
    source: Model, change: str, runtime: Runtime, feeds: Sequence[Feeds], folder: Path
) -> tuple[Model, tuple[Reason, ...]]:
    """Return the quantised model and what the reader must know of it.

    The quantiser is called as a script of two lines calls it: on the file as it was exported, with its own defaults.
    Folding constants first (setting "pre_process") moves a product into the weights before it and so changes their
    scales. Where the quantiser fails, leaves all of it in float, or makes what does not load, it is asked otherwise,
    and a note says so: with constants folded or without, then with weights per tensor.
    Options: "calibration" ("minmax", "entropy", "percentile", "distribution"), "activation_type", "weight_type",
    "per_channel", "pre_process", "reduce_range", "nodes_to_exclude", "op_types", "raise_opset"; of int4 "block_size",
    "symmetric", "accuracy_level". Raises UsageError, InputError, ModelError or BackendError.
    """
    raised_to: tuple[Reason, ...] = ()
    if change == "int8" and (opset := setting(runtime.settings, "raise_opset")):
        source, raised_to = raise_opset(source, opset, "raise_opset")
    settings = _Settings(runtime.settings, source)
    if change == "int8" and (settings.activation == FLOAT8) != (settings.weight == FLOAT8):
        raise UsageError(
            "the quantiser takes float8 for activations and weights alike", where="--option activation_type",
            hint="give both: activation_type=float8 and weight_type=float8",
        )  # fmt: skip
    if change == "int8" and not feeds:
        raise InputError("static quantisation needs inputs to calibrate on", where="ort_int8", hint="give --inputs")
    folded = _Folded(source, runtime, folder)
    channels, first = settings.channels(change), settings.pre_process and change == "int8"
    ways = [(fold, each) for each in ((True, False) if channels else (False,)) for fold in (first, not first)]
    refused: PrecisionDebugError | None = None
    nothing: _NothingLeft | None = None
    for fold, per_channel in ways:
        try:
            model = folded.model if fold else source
            quantised, left = _quantise_once(
                model, source, change, runtime, settings.common(per_channel, model, source), settings, feeds, folder
            )
        except _NothingLeft as error:  # folding may leave it none of the operators that it quantises
            refused, nothing = refused or error, error
            continue
        except (ModelError, BackendError) as error:
            refused = refused or error
            continue
        otherwise = _describe_other_way(
            change, refused, folds=fold if fold != first else None, per_tensor=channels and not per_channel
        )
        in_vain = per_channel and change != "int4" and not _has_scales_of_channels(quantised, model)
        notes = settings.notes(change, len(feeds), per_channel, otherwise, in_vain=in_vain)
        return quantised, (*raised_to, *notes, *left)
    if nothing is not None and settings.exclude:
        return source, (say("all_excluded"),)
    assert refused is not None
    if nothing is None and not settings.op_types and change != "int4":
        kinds = _find_quantisable_types(ways, folded, source, change, runtime, settings, feeds, folder)
        if kinds:
            hint = say("kept_runs", option=f"op_types={','.join(kinds)}")
            raise type(refused)(refused.what, where=refused.where, hint=hint) from refused
    raise nothing or refused  # that there is nothing to quantise is the reason, whatever another way came to


@dataclass
class _Folded:
    """The model as ``quant_pre_process`` leaves it, made when it is first asked for."""

    source: Model
    runtime: Runtime
    folder: Path

    @cached_property
    def model(self) -> Model:
        """Raises ModelError or BackendError."""
        prepared = dump(self.source, self.runtime, self.folder, "basic")
        _mark_prepared(prepared)
        return prepared


def _find_quantisable_types(
    ways: Sequence[tuple[bool, bool]], folded: _Folded, source: Model, change: str, runtime: Runtime,
    settings: _Settings, feeds: Sequence[Feeds], folder: Path,
) -> tuple[str, ...]:  # fmt: skip
    """Of the operators that gain most of 8 bits those that can be quantised alone, tried: what is quantised, and loads;
    () where there are none."""
    here = {node.op_type for graph in iterate_graphs(source.proto.graph) for node in graph.node}
    products = tuple(kind for kind in PRODUCTS if kind in here)
    for kinds in dict.fromkeys([products, *((kind,) for kind in products)]) if products else ():
        for fold, per_channel in ways:
            with contextlib.suppress(ModelError, BackendError):
                model = folded.model if fold else source
                common = {**settings.common(per_channel, model, source), "op_types_to_quantize": list(kinds)}
                _quantise_once(model, source, change, runtime, common, settings, feeds, folder)
                return kinds
    return ()


class _NothingLeft(NothingToQuantise):
    """Nothing of the model is in few bits, before it or after."""

    @classmethod
    def of(cls, model: Model, source: Model, change: str) -> _NothingLeft:
        nested = sorted({node.op_type for node in model.proto.graph.node if any(iterate_subgraphs(node))})
        if not nested:
            hint = "choose another run mode" if change == "int4" else "choose other op_types, or another run mode"
            return cls("the quantiser leaves every operator of it in float", where=source.path, hint=hint)
        inside = f" (it does not look into {' and '.join(nested)})"
        return cls(
            f"the quantiser leaves every operator of it in float{inside}", where=source.path,
            hint="choose a run mode that does (ort_fp16)",
        )  # fmt: skip


def _has_scales_of_channels(quantised: Model, model: Model) -> bool:
    """Return whether the quantiser gave any constant of a model a scale for each channel."""
    own = {one.name for one in model.proto.graph.initializer}  # a scale that the model itself has is none of a channel
    made = (one for one in quantised.proto.graph.initializer if one.name not in own)
    return any(one.name.endswith("_scale") and np.prod(one.dims) > 1 for one in made)


def _describe_other_way(
    change: str, refused: PrecisionDebugError | None, *, folds: bool | None, per_tensor: bool
) -> Reason:
    """Return what is said of a way that failed before the one that worked.

    folds: whether constants were folded, where that is not what was asked for; None where it is. per_tensor: whether
    weights are quantised per tensor, where they were asked for per channel.
    """
    if refused is None or change == "int4":
        return NOTHING
    if folds:
        called = "quantize_static" if change == "int8" else "quantize_dynamic"
        return say("folded_first", called=called, detail=refused.what)
    if folds is not None:
        return say("otherwise", done=say("not_folded"), detail=refused.what)
    return say("otherwise", done=say("per_channel_off"), detail=refused.what) if per_tensor else NOTHING


def _quantise_once(
    model: Model, source: Model, change: str, runtime: Runtime, common: Mapping[str, Any], settings: _Settings,
    feeds: Sequence[Feeds], folder: Path,
) -> tuple[Model, tuple[Reason, ...]]:  # fmt: skip
    """One attempt, and what was left in float beyond what was asked for: what the quantiser removes wrongly. Raises
    ModelError or BackendError where it fails, or where what it makes does not load."""
    import onnx

    path, result = folder / "before_quantisation.onnx", folder / "quantised.onnx"
    for left in folder.glob("quantised.onnx*"):
        left.unlink()
    known = _remember(source, change, settings, feeds, as_it_is=model is source)
    # what folds constants reads the session's options, and 4 bits have some of their own
    more = {} if model is source and change != "int4" else {"settings": repr(sorted(runtime.settings.items()))}
    written = known.bring({**_exclude_too(common, known.removed), **more}, result)
    if written is not None:
        made = _read(result, source, model, change)
        give_names_back(made.proto.graph, known.others)
        with after_quantisation():
            infer_types(made, runtime, folder)
        return made, (*_iterate_left_in_float(known.removed, known.stock, None), *written.notes)
    if model is source:
        whole = read_model(source.path)
        with our_errors(source.path):
            onnx.load_external_data_for_model(whole.proto, str(whole.folder))
            prepared, others = _prepare(whole)
            onnx.save_model(
                whole.proto, str(path), save_as_external_data=True, location="before.bin", size_threshold=1024
            )
    else:
        whole = dataclasses.replace(model, proto=copy.deepcopy(model.proto))
        prepared, others = _prepare(whole)
        path.write_bytes(whole.proto.SerializeToString())
    kept, stock, measured = dict(known.removed), known.stock, False
    while True:
        excluded = _exclude_too(common, kept)
        excluded["nodes_to_exclude"] = [others.get(name, name) for name in excluded["nodes_to_exclude"]]
        try:
            with run_quietly(folder):
                if change == "int8":
                    _quantise_statically(path, result, settings, excluded, feeds, known)
                elif change == "int8_dynamic":
                    _quantise_dynamically(path, result, excluded)
                else:
                    _quantise_to_4_bits(path, result, runtime.settings, excluded["nodes_to_exclude"])
        except (MemoryError, BackendUnavailable):
            raise
        except Exception as error:
            raise_if_full(error, str(folder))
            if change == "int8" and (broken := _list_not_finite(feeds)):
                raise InputError(say("broken_calibration", names=", ".join(broken)), where="--inputs") from error
            if change == "int8" and _finds_nothing(path, result, settings, excluded, feeds):
                raise _NothingLeft.of(model, source, change) from error
            if change == "int8" and (born := _find_born(model, runtime, feeds, settings.method, error)):
                op, name, what = born
                told = say("calibration_born", op=op, name=name, what=what)
                raise ModelError(told, where=source.path, hint=_HINT) from error
            failed, kinds = f"onnxruntime.quantization fails on it ({_describe_error(error)})", _list_quantised(source)
            if kinds:
                failed = f"it is quantised already ({kinds}), and {failed}"
            raise ModelError(failed, where=source.path, hint=_QUANTISED_HINT if kinds else _HINT) from error
        made = _read(result, source, model, change)
        wrong = find_wrongly_removed(whole, made)
        if not wrong.keys() - kept.keys():
            break
        if not kept:
            stock, measured = _measure_error(source, result, feeds), True
        kept |= wrong
    known.removed, known.stock, known.others = kept, stock, others
    if twice := give_names_back(made.proto.graph, others):
        prepared = (say("names_twice", names=list_some(twice)), *prepared)
    with after_quantisation():
        infer_types(made, runtime, folder)
    ours = _measure_error(source, result, feeds) if measured else None  # of further sets nobody reads it
    known.keep({**_exclude_too(common, kept), **more}, result, prepared)
    return made, (*_iterate_left_in_float(kept, stock, ours), *prepared)


def _exclude_too(common: Mapping[str, Any], kept: Mapping[str, Reason]) -> dict[str, Any]:
    return {**common, "nodes_to_exclude": [*common["nodes_to_exclude"], *kept]}


@dataclass(frozen=True)
class _Written:
    """The files of a quantised model by name, and what is said of it."""

    files: Mapping[str, bytes]
    notes: tuple[Reason, ...]


@dataclass
class _Known:
    """What one quantisation of a model found that the next one finds again.

    ranges: of the float model's tensors, as ``quantize_static`` writes them, whatever is excluded; b"" before they were
    measured. removed, stock: see ``_iterate_left_in_float``. others: see ``give_other_names``. written: what was made,
    by the quantiser's arguments: a set is run again before it is offered, and a session option changes no file."""

    ranges: bytes = b""
    removed: Mapping[str, Reason] = field(default_factory=dict)
    stock: float | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    written: OrderedDict[str, _Written] = field(default_factory=OrderedDict)

    def bring(self, arguments: Mapping[str, Any], result: Path) -> _Written | None:
        """Write the files again that these arguments made before, and return them; None where there are none."""
        with _lock:
            found = self.written.get(repr(sorted(arguments.items())))
        for name, content in found.files.items() if found is not None else ():
            result.with_name(name).write_bytes(content)
        return found

    def keep(self, arguments: Mapping[str, Any], result: Path, notes: tuple[Reason, ...]) -> None:
        files = {path.name: path for path in result.parent.glob(f"{result.name}*")}
        if sum(path.stat().st_size for path in files.values()) * _FILES > _BYTES:
            return
        made = _Written({name: path.read_bytes() for name, path in files.items()}, notes)
        with _lock:
            self.written[repr(sorted(arguments.items()))] = made
            while len(self.written) > _FILES:
                self.written.popitem(last=False)


_FILES, _BYTES = 4, 256 << 20
"""Quantised files of a model that are kept, and bytes up to which all of them may be."""

_MODELS = 4
"""Models whose ``_Known`` are kept in a process: of a search it is one, as it is and folded."""

_known: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
_lock = threading.Lock()


def _remember(source: Model, change: str, settings: _Settings, feeds: Sequence[Feeds], *, as_it_is: bool) -> _Known:
    """Return what is known of a model with these settings and inputs, to be filled where that is nothing yet."""
    file, held = Path(source.path).stat(), hashlib.sha256()
    for feed in feeds if change == "int8" else ():
        for name, value in sorted(feed.items()):
            for array in map(np.ascontiguousarray, value if isinstance(value, (list, tuple)) else (value,)):
                held.update(f"{name} {array.dtype} {array.shape} ".encode())
                held.update(repr(array.tolist()).encode() if array.dtype.kind in "OUS" else array.tobytes())
    key = (
        str(source.path), file.st_mtime_ns, file.st_size, change, settings.opset, settings.method, settings.op_types,
        settings.activation, settings.weight, as_it_is, held.hexdigest(),
    )  # fmt: skip
    with _lock:
        found = _known.setdefault(key, _Known())
        _known.move_to_end(key)
        while len(_known) > _MODELS:
            _known.popitem(last=False)
    return found


def _iterate_left_in_float(found: Mapping[str, Reason], stock: float | None, ours: float | None) -> Iterator[Reason]:
    """Yield what stays in float since the quantiser would remove it, a note for each reason.

    stock, ours: how far the quantiser's own file and the one that is compared are off; None where that could not run.
    """
    for why in dict.fromkeys(found.values()):
        names = list_some([name for name, other in found.items() if other == why])
        if stock is None or ours is None:
            yield say("left_in_float", names=names, why=why)
        else:
            yield say("left_in_float_measured", names=names, why=why, stock=stock, ours=ours)


def _measure_error(source: Model, result: Path, feeds: Sequence[Feeds]) -> float | None:
    """Return relative L2 error of the worst output of a written file against the source's on the first sample, both as
    a script of a few lines runs them; inf where it alone makes NaN or Inf; None where one of them does not run or no
    output has numbers to compare."""
    import onnxruntime as ort

    if not feeds:
        return None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        both = [
            ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, dict(feeds[0]))
            for path in (source.path, result)
        ]
    except Exception:  # onnxruntime raises classes of its own; a file that does not run has no number
        return None
    worst = None
    for mine, other in zip(*both, strict=False):
        true, given = np.asarray(mine, np.float64), np.asarray(other, np.float64)
        fair = np.isfinite(true)
        size = float(np.linalg.norm(true[fair]))
        if true.shape == given.shape and size:
            made = bool(np.isfinite(given[fair]).all())  # else the file makes NaN or Inf of numbers
            off = float(np.linalg.norm(given[fair] - true[fair])) / size if made else np.inf
            worst = max(worst or 0.0, off)
    return worst


def _prepare(model: Model) -> tuple[tuple[Reason, ...], dict[str, str]]:
    """Take out of a model what the quantiser gets wrong or refuses without need; return what is said of it, and the
    names that are others meanwhile."""
    said, others = [], give_other_names(model.proto.graph)
    if named := _give_biases_names(model.proto.graph):
        said.append(say("biases_named", names=list_some(named)))
    opsets = model.proto.opset_import
    if len(once := {(item.domain, item.version): item for item in opsets}) < len(opsets):
        kept = list(once.values())
        del opsets[:]
        opsets.extend(kept)
        said.append(say("opset_twice", opset=opset_of(model)))
    return tuple(said), others


def _give_biases_names(graph: Any) -> list[str]:
    """Return a bias that several nodes read becomes one for each, where the quantiser's own copy, whose name has the
    next number behind it ("conv1d_25" gives "conv1d_252"), would have the name of another tensor. Gives their names."""
    names = {name for node in graph.node for name in (*node.input, *node.output)}
    biases = Counter(node.input[2] for node in graph.node if node.op_type in _BIASED and len(node.input) > 2)
    held = {item.name: item for item in graph.initializer if biases[item.name] > 1}
    meant = {name for name in held if any(other[len(name) :].isdigit() for other in names if other.startswith(name))}
    for node in graph.node:
        if node.op_type in _BIASED and len(node.input) > 2 and node.input[2] in meant:
            copy = graph.initializer.add()
            copy.CopyFrom(held[node.input[2]])
            copy.name = f"{node.output[0]}/bias"
            node.input[2] = copy.name
    return sorted(meant)


@contextlib.contextmanager
def after_quantisation() -> Iterator[None]:
    """Say of what ONNX Runtime refuses inside that it was the quantised model. The mode then cannot run this one."""
    try:
        yield
    except (BackendCrash, BackendUnavailable):
        raise
    except PrecisionDebugError as error:
        raise ModelError(f"after its quantisation: {error.what}", where=error.where, hint=_HINT) from error


_SAID = 160
"""Characters of an error that are told: some list all of an object."""


def _describe_error(error: Exception) -> str:
    """Return what an error of the quantiser says where it was raised on purpose; else only where it happened."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    on_purpose = (last.line or "").startswith("raise") or "onnxruntime" in type(error).__module__
    return shorten(plain(str(error)), _SAID) if on_purpose else f"{type(error).__name__} in its {last.name}"


class _Settings:
    """The user's options, checked."""

    def __init__(self, options: Mapping[str, Any], source: Model) -> None:
        self.activation: str = setting(options, "activation_type")
        self.weight: str = setting(options, "weight_type")
        self.method = method_of(self.activation, setting(options, "calibration"))
        self.per_channel: bool = setting(options, "per_channel")
        self.pre_process: bool = setting(options, "pre_process")
        self.opset = max((item.version for item in source.proto.opset_import if not item.domain), default=0)
        self.reduce_range: bool = setting(options, "reduce_range")
        self.exclude = find_nodes(source, setting(options, "nodes_to_exclude"), "nodes_to_exclude")
        self.op_types: tuple[str, ...] = setting(options, "op_types")
        self.block: int = setting(options, "block_size")

    def notes(
        self, change: str, count: int, channels: bool, otherwise: Reason, *, in_vain: bool
    ) -> tuple[Reason, ...]:
        """channels: whether weights are quantised per channel. otherwise: why not as asked; "" where they are. in_vain:
        the quantiser was asked for channels and made none."""
        how = say("per_channel_in_vain") if in_vain else say("per_channel") if channels else say("per_tensor")
        more = (otherwise,) if otherwise else ()
        if change == "int8_dynamic":
            return say("quantised_dynamic", weight=self.weight, how=how), *more
        if change == "int4":
            return (say("quantised_4_bits", block=self.block),)
        if self.per_channel and not channels and self.opset < PER_CHANNEL:
            how = say("per_tensor_opset", needs=PER_CHANNEL, opset=self.opset)
        note = say(
            "quantised", activation=self.activation, weight=self.weight, how=how, method=self.method, count=count
        )
        return note, *more

    def channels(self, change: str) -> bool:
        """Return whether weights have a scale for each channel: QDQ of an opset that has no axis cannot."""
        return self.per_channel and (change != "int8" or self.opset >= PER_CHANNEL)

    def common(self, per_channel: bool, prepared: Model, source: Model) -> dict[str, Any]:
        """prepared: what is quantised, whose nodes may be several of the source's in one."""
        library = import_quantisation()
        exclude = list(dict.fromkeys((*self.exclude, *_find_absorbing_nodes(self.exclude, prepared, source))))
        # the quantiser itself first makes a MatMul and an Add of these names out of a Gemm
        exclude += [f"{name}{part}" for name in exclude for part in ("_MatMul", "_Add")]

        return {
            "op_types_to_quantize": list(self.op_types) or None,
            "per_channel": per_channel,
            "reduce_range": self.reduce_range,
            "weight_type": getattr(library.QuantType, TYPES[self.weight]),
            "nodes_to_exclude": exclude,
            "use_external_data_format": True,
        }


def _find_absorbing_nodes(names: Sequence[str], prepared: Model, source: Model) -> list[str]:
    """Return the prepared graph's nodes that source nodes of these names went into: a product and a sum become one
    Gemm, under a name of its own and, of more than two dimensions, between two Reshapes; and a normalisation goes into
    its convolution."""
    there = {node.name for node in prepared.proto.graph.node}
    lost = {name for name in names if name not in there}
    if not lost or prepared is source:
        return []
    maker = {name: node for node in source.proto.graph.node for name in node.output if name}
    readers: dict[str, list[Any]] = {}
    for node in prepared.proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    gone = maker.keys() - {name for node in prepared.proto.graph.node for name in (*node.input, *node.output)}
    found = []
    for node in prepared.proto.graph.node:
        made = _list_made(node, maker, readers)
        inside = find_reached(made, lambda name: [one for one in maker[name].input if one in gone])
        if lost.intersection(maker[name].name for name in (*made, *inside)):
            found.append(node.name)
    return found


def _list_made(node: Any, maker: Mapping[str, Any], readers: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the source's tensors that a prepared node makes, itself or by way of tensors that the source does not
    have."""
    def read(name: str) -> list[str]:
        onward = readers.get(name, ()) if name not in maker else ()
        return [out for reader in onward for out in reader.output if out]

    first = [name for name in node.output if name]
    return [name for name in (*first, *find_reached(first, read)) if name in maker]


def _list_not_finite(feeds: Sequence[Feeds]) -> list[str]:
    """Return inputs with NaN or Inf in them, of which no range can be taken."""
    arrays = [(name, np.asarray(value)) for fed in feeds for name, value in fed.items()]
    found = [name for name, value in arrays if value.dtype.kind == "f" and not np.isfinite(value).all()]
    return list(dict.fromkeys(found))


def _quantise_statically(
    path: Path, result: Path, settings: _Settings, common: Mapping[str, Any], feeds: Sequence[Feeds], known: _Known
) -> None:
    """known: takes the ranges, and gives those that it has: they are the float model's, whatever is excluded."""
    library = import_quantisation()
    more: dict[str, Any] = {}
    ranges = result.with_name("ranges.json")
    ranges.unlink(missing_ok=True)
    if _CACHE in inspect.signature(library.quantize_static).parameters:
        more[_CACHE] = str(ranges)
        if known.ranges:
            ranges.write_bytes(known.ranges)

    with _stop_without_progress():
        library.quantize_static(
            str(path),
            str(result),
            _Reader(feeds),
            quant_format=library.QuantFormat.QDQ,
            activation_type=getattr(library.QuantType, TYPES[settings.activation]),
            calibrate_method=getattr(library.CalibrationMethod, METHODS[settings.method]),
            **more,
            **common,
        )
    if ranges.exists() and (text := ranges.read_bytes()) != known.ranges:
        known.ranges = _without_histograms(text)


def _without_histograms(ranges: bytes) -> bytes:
    """Return ranges without what they were chosen by, thousands of numbers a tensor that each trial would read twice
    and that no scale is made of."""
    found = json.loads(ranges)
    found["data"] = {
        name: {key: value for key, value in one.items() if key not in ("hist", "hist_edges", "bins")}
        for name, one in found["data"].items()
    }
    return json.dumps(found).encode()


def _finds_nothing(
    path: Path, result: Path, settings: _Settings, common: Mapping[str, Any], feeds: Sequence[Feeds]
) -> bool:
    """Return whether the quantiser leaves all of a model in float where it takes ranges by their ends: other methods
    end with an exception of their own where there is no tensor to take one of."""
    by_ends = copy.copy(settings)
    by_ends.method, by_ends.activation = "minmax", "int8"
    common = {**common, "weight_type": getattr(import_quantisation().QuantType, TYPES["int8"])}
    result.unlink(missing_ok=True)
    with contextlib.suppress(Exception), run_quietly(path.parent):
        _quantise_statically(path, result, by_ends, common, feeds, _Known())
    return result.exists() and not count_quantised(_load(result))


_OF_RANGES = ("calibrate", "compute_scale_zp", "compute_scale_zp_float8")
"""The quantiser's module, and functions, in which ranges and scales are made."""


def _find_born(
    model: Model, runtime: Runtime, feeds: Sequence[Feeds], method: str, error: Exception
) -> tuple[str, str, str] | None:  # fmt: skip
    """Return type and result of the first operator that gives numbers of which no range can be taken, on the inputs
    that calibrate, and which, where the quantiser failed as it took ranges or made scales of them; None elsewhere. Of
    ends one may be infinite."""
    frames = traceback.extract_tb(error.__traceback__)
    if not any({Path(frame.filename).stem, frame.name} & {*_OF_RANGES} for frame in frames):
        return None
    marked = copy_but(model.proto, graph="output")
    nodes = [(name, node.op_type) for node in marked.graph.node for name in node.output if name]
    for name, _ in nodes:
        marked.graph.output.add().name = name
    broken = np.isnan if method == "minmax" else lambda values: ~np.isfinite(values)
    with contextlib.suppress(PrecisionDebugError):
        session = runtime.open(Model(proto=marked, folder=model.folder, path=model.path))
        for fed in feeds:
            with our_errors(model.path):
                values = session.run([name for name, _ in nodes], dict(fed))
            for (name, kind), value in zip(nodes, values, strict=True):
                if isinstance(value, np.ndarray) and value.dtype.kind == "f" and broken(value).any():
                    return kind, name, "NaN" if np.isnan(value).any() else "Inf"
    return None


@contextlib.contextmanager
def _stop_without_progress() -> Iterator[None]:
    """Have the quantiser raise where it would run for ever: where a tensor takes the range of one that it never
    quantises (a Pad behind the file's own DequantizeLinear), it passes over what is left again and again."""
    kind = import_lean("onnxruntime.quantization.qdq_quantizer").QDQQuantizer
    original = getattr(kind, _SHARING, None)
    if original is None:
        yield
        return

    def watch(quantiser: Any) -> None:
        quantiser.tensors_to_quantize = _Shrinking(quantiser.tensors_to_quantize)
        original(quantiser)

    setattr(kind, _SHARING, watch)
    try:
        yield
    finally:
        setattr(kind, _SHARING, original)


class _Shrinking(dict[str, Any]):
    """The tensors that wait for another one's range; each pass over them begins with a copy."""

    passed = -1

    def copy(self) -> dict[str, Any]:
        if len(self) == self.passed:
            raise RuntimeError(f"it never ends: {next(iter(self))} waits for the range of what it leaves alone")
        self.passed = len(self)
        return super().copy()


def _quantise_dynamically(path: Path, result: Path, common: Mapping[str, Any]) -> None:
    import_quantisation().quantize_dynamic(str(path), str(result), **common)


def _quantise_to_4_bits(path: Path, result: Path, options: Mapping[str, Any], exclude: Sequence[str]) -> None:
    import onnx

    try:
        tool = import_lean("onnxruntime.quantization.matmul_nbits_quantizer")
    except ImportError as error:
        # it needs onnx_ir, which no package of ONNX Runtime brings
        missing = (error.name or "onnxruntime").partition(".")[0]
        raise BackendUnavailable(
            f"onnxruntime.quantization.matmul_nbits_quantizer cannot be imported ({error})",
            hint=f"pip install {missing}" if missing != "onnxruntime" else "pip install 'onnxruntime>=1.22'",
        ) from error
    made = tool.MatMulNBitsQuantizer(
        onnx.load(str(path)), bits=4, block_size=setting(options, "block_size"),
        is_symmetric=setting(options, "symmetric"), accuracy_level=setting(options, "accuracy_level") or None,
        nodes_to_exclude=list(exclude),
    )  # fmt: skip
    made.process()
    made.model.save_model_to_file(str(result), use_external_data_format=True)


class _Reader:
    """Hands the calibrator one sample set after the other (onnxruntime.quantization.CalibrationDataReader)."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._left = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next((dict(feed) for feed in self._left), None)

    def __iter__(self) -> _Reader:
        return self

    def __next__(self) -> dict[str, Any]:
        feed = self.get_next()
        if feed is None:
            raise StopIteration
        return feed


def _mark_prepared(model: Model) -> None:
    # before version 4 every constant had to be an input as well, which the quantiser's own constants are not
    model.proto.ir_version = max(model.proto.ir_version, 4)
    entry = model.proto.metadata_props.add()
    entry.key, entry.value = "onnx.quant.pre_process", "onnxruntime.quant"


def _read(path: Path, source: Model, before: Model, change: str) -> Model:
    """Return the quantised model. Raises ModelError where nothing in it is quantised that was not before."""
    import onnx

    proto = _load(path)
    for tensor in _iterate_constants(proto):  # the quantiser writes those of Constant nodes outside, too
        if tensor.data_location == tensor.EXTERNAL:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]
    had, has = count_quantised(before.proto), count_quantised(proto)
    if not has:
        raise _NothingLeft.of(before, source, change)
    if not has - had:
        raise NothingToQuantise(
            f"it is quantised already ({_list_quantised(before)}), and the quantiser changes nothing in it",
            where=source.path, hint=_QUANTISED_HINT,
        )  # fmt: skip
    for graph in iterate_graphs(proto.graph):
        name_nodes(graph)
    return Model(proto=proto, folder=path.parent, path=source.path)


def _load(path: Path) -> Any:
    import onnx

    return onnx.load(str(path), load_external_data=False)


def _iterate_constants(proto: Any) -> Iterator[Any]:
    """Yield the tensors that stand in nodes."""
    for graph in iterate_graphs(proto.graph):
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t


def _list_quantised(model: Model) -> str:
    return ", ".join(f"{kind} {number}" for kind, number in count_quantised(model.proto).most_common(3))
