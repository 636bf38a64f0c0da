"""One model in one run mode: lists its tensors, shows them to a hook while they live, returns the outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.errors import BackendError
from precision_debug.inspector import EngineLayer
from precision_debug.onnx.file_operators import FileOperators
from precision_debug.onnx.graph import iterate_subgraphs
from precision_debug.onnx.model import Model, read_tensor_shape
from precision_debug.onnx.types import elem_of, numpy_dtype
from precision_debug.protocols import Borrower, Feeds, Hook, OneRun, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.records import Doubt, Operator, Stored, TensorMeta

from .engine import engine_layout, ort_values, taps
from .engine.opened import Opened
from .engine.ort_values import check_feeds
from .engine.providers import CPU, Shares, unknown
from .engine.runtime import Runtime, our_errors
from .engine.seen_tensors import Shown, wanted
from .engine.signals import Interrupts
from .engine.tapped_graph import Tap, insert_taps
from .engine.tensor_list import Entry

__all__ = ["Opening", "OrtSession"]

Opening = Callable[[], Opened | None] | None
"""Finds out how to show what the optimiser hides; None where nothing is to be found."""

IN_BODIES = False
"""Whether tensors are shown on the device in graphs with bodies (If, Loop, Scan) too: ONNX Runtime 1.31 ends there."""


class OrtSession:
    """See protocols.Session. Holds one ONNX Runtime session at a time, with taps on what the last run showed.

    on_device: hooks that use a tensor during the call alone are shown it in the memory of the CUDA device.
    opened: finds out, where it is asked, how to show what the optimiser hides.
    """

    layers: Sequence[EngineLayer] = ()
    alone = ""

    def __init__(
        self,
        *,
        model: Model,
        source: Model,
        made: Model,
        entries: Sequence[Entry],
        runtime: Runtime,
        notes: Sequence[Reason],
        versions: Mapping[str, str],
        arithmetic: str = "",
        on_device: bool = False,
        opened: Opening = None,
    ) -> None:
        self.arithmetic = arithmetic
        self._on_device = on_device and (
            IN_BODIES or not any(any(iterate_subgraphs(node)) for node in model.proto.graph.node)
        )
        self._model, self._runtime = model, runtime
        self._entries = tuple(entries)
        self._opening: Opening = opened
        self._inside: Opened | None = None
        self._tensors: tuple[TensorMeta, ...] = tuple(entry.meta for entry in entries)
        self._said = tuple(notes)
        self.notes: Sequence[Reason] = self._said
        self.doubts: Sequence[Doubt] = ()
        self.versions: Mapping[str, str] = dict(versions)
        self._one_run = OneRun(model.path)
        self._open: _Opened | None = None
        self._by_name = {entry.meta.name: entry for entry in self._entries}
        self._constants = FileOperators(model)
        self._source = FileOperators(source)
        self._made = FileOperators(made)

    @property
    def by_threads(self) -> tuple[str, ...]:
        """Tensors whose kernels give each thread some rows of the batch, and a scale of their own to quantise them."""
        nodes = ((entry.meta.name, entry.value.node) for entry in self._entries)
        return tuple(name for name, node in nodes if node is not None and node.op_type == "DynamicQuantizeLSTM")

    @property
    def replacer(self) -> Replacer:
        return self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer: a tap has the engine's own memory, which it has not where a GPU holds the tensor."""
        return taps.exchanges() and self._runtime.providers == ("CPUExecutionProvider",)

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        entry = self._by_name.get(name) or self._by_name.get(name.rpartition("@")[0])
        return None if entry is None else engine_layout.round_as_engine(entry, value, self._constants)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer. As the source model has it, before a mode rounds, fuses or quantises it."""
        entry = self._by_name.get(name) or self._by_name.get(name.rpartition("@")[0])
        own = name if entry is None else entry.meta.origin or entry.meta.name
        found = self._source.operator_of(own.removesuffix("!rounded"))
        if found is not None and name in found.reads:  # integers, by the name of what is dequantised from them
            found = self._source.operator_of(name) or found
        if found is not None or entry is None or entry.value.node is None:
            return found
        return self._constants.described(entry.value.node)

    def stored(self, name: str) -> Stored | None:
        """See protocols.find_stored."""
        return self._constants.find_quantised(name)

    @property
    def scales(self) -> Mapping[str, tuple[Any, Any]]:
        """See protocols.find_file_scales. As the mode made them, whatever ONNX Runtime's optimiser folds."""
        return self._made.scales

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""
        copies = {name: array.copy() for name, array in feeds.items()}  # a tap of an input has the caller's memory
        return self.run(copies, _Replacing(replace), names)

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        self._find_inside()
        return self._tensors

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        with self._one_run:
            return self._run(feeds, hook, names)

    def close(self) -> None:
        with self._one_run.closing():
            self._drop()
            if self._inside is not None:
                self._inside.session.close()

    def _find_inside(self) -> None:
        """Find out what of the file the optimiser hides, once."""
        if self._opening is not None:
            find, self._opening = self._opening, None
            self._inside = find()
            self._tensors = (*self._tensors, *(self._inside.inner.values() if self._inside is not None else ()))

    def _tell_shares(self, shares: Shares | None) -> None:
        """Say who runs the model, which is known once it is open."""
        asked = self._runtime.asked
        if shares is None:
            self.doubts = (unknown(asked),)
        else:
            self.notes = (*self._said, shares.note(asked))

    def _drop(self) -> None:
        if self._open is not None:
            taps.disconnect(self._open.number)
            self._open = None

    def _run(self, feeds: Feeds, hook: Hook | None, names: Collection[str] | None) -> Mapping[str, Any]:
        borrow = hook.borrow if taps.borrows_memory() and isinstance(hook, Borrower) else None
        lending = None if borrow is None else _find_sizes(self._model.proto.graph, feeds)
        there = self._on_device and bool(getattr(hook, "borrows", False))
        replacing = isinstance(hook, _Replacing)
        if hook is not None and not replacing and names is None:
            self._find_inside()
        inside = None if hook is None or replacing or self._inside is None else self._inside.wanted(names)
        tapped = names if names is None or inside is None else {*names, *inside.own}
        try:
            opened = self._opened(hook is not None, tapped, lending, replacing, there)
        except BackendError:
            if not there:
                raise
            self._on_device = False  # ONNX Runtime does not take the taps of the device in this graph
            opened = self._opened(hook is not None, tapped, lending, replacing, False)
        names_of_outputs = [item.name for item in opened.ort.get_outputs()]
        run = _Run(
            hook=hook, borrow=borrow, opened=opened, shown=Shown(self._entries, names), constants=self._constants,
            also=inside.begin if inside is not None else None,
        )  # fmt: skip
        opened.current.append(run)
        try:
            with run.interrupts.around_run(), our_errors(self._model.path):
                fed = {opened.renamed.get(name, name): value for name, value in feeds.items()}
                values = ort_values.run(opened.ort, _check_feeds(opened.ort, fed), run.options)
        except Exception:
            if run.error is not None:
                raise run.error from None
            raise
        finally:
            opened.current.clear()
        if run.error is not None:
            raise run.error
        outputs = dict(zip(names_of_outputs, values, strict=True))
        self._show_at_end(outputs, hook, names)
        more = () if inside is None or hook is None else inside.show(feeds, hook, names)
        if hook is not None and names is None:
            self._tensors = (*run.shown.listed(), *more)
        return outputs

    def _show_at_end(self, outputs: Mapping[str, Any], hook: Hook | None, names: Collection[str] | None) -> None:
        for entry in self._entries:
            if hook is not None and entry.view.at_end and not entry.meta.unseen and wanted(entry, names):
                hook(entry.meta.op_type, entry.meta.name, outputs[entry.value.name])

    def _opened(
        self, hooked: bool, names: Collection[str] | None, lending: Mapping[str, int] | None, writing: bool,
        there: bool,
    ) -> _Opened:  # fmt: skip
        chosen = [
            entry for entry in self._entries
            if hooked and not entry.meta.unseen and not entry.view.at_end and wanted(entry, names)
        ]  # fmt: skip
        key = frozenset(entry.meta.name for entry in chosen), lending is not None, writing, there
        if self._open is not None and self._open.key == key:
            return self._open
        self._drop()
        taps.register()
        current: list[_Run] = []
        number = taps.connect(
            lambda place, tensor: current[0].receive(place, tensor) if current else None,
            on_a_card="CUDAExecutionProvider" in self._runtime.providers,
        )
        graph = insert_taps(
            self._model, chosen, number, lending=lending, writing=writing, on_device=there,
            exchanging=writing and not taps.borrows_memory(),
        )  # fmt: skip
        session = self._runtime.open(graph.model, taps=True)
        if self._runtime.asked != CPU:
            self._tell_shares(self._runtime.shares(session, graph.model))
        self._open = _Opened(
            key=key, number=number, ort=session, taps=graph.taps, current=current, renamed=graph.renamed
        )
        return self._open


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """An ONNX Runtime session with taps, and the run that they report to. key: what they show, if it is lent, if it
    can be written to, and if it is shown on its device. renamed: inputs that are fed under another name."""

    key: tuple[frozenset[str], bool, bool, bool]
    number: int
    ort: Any
    taps: tuple[Tap, ...]
    current: list[_Run]
    renamed: Mapping[str, str]


@dataclass(kw_only=True)
class _Run:
    """One run: what a tap reports goes to the hook, and the first exception of the hook is kept.

    borrow: the hook's, where it is lent to. lent: by the place of a tap, what ends the loan. put: what goes in place
    of a tensor, as soon as the tap comes that has the engine's own memory of it, and how it was shown. also: is told
    of what a tap shows, too.
    """

    hook: Hook | None
    borrow: Callable[[str, str, Any], Callable[[], None]] | None
    opened: _Opened
    shown: Shown
    constants: FileOperators
    also: Callable[[str, Any], None] | None = None
    error: BaseException | None = None
    copies: bool = field(init=False)
    lent: dict[int, Callable[[], None]] = field(default_factory=dict)
    put: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    options: Any = field(init=False)
    interrupts: Interrupts = field(init=False)

    def __post_init__(self) -> None:
        import onnxruntime as ort

        self.copies = taps.borrows_memory() and not getattr(self.hook, "borrows", False)
        self.options = ort.RunOptions()
        self.interrupts = Interrupts(self.options)

    def receive(self, place: int, tensor: Any) -> Any:
        """Return what goes on in place of a tensor that is asked for; else None. Never raises: what the hook raises is
        kept, and ends the run."""
        if self.error is not None:
            return None
        try:
            with self.interrupts.inside_hook():
                tap = self.opened.taps[place]
                if tap.event == "put" and tap.entry is not None:
                    return self._exchanged(tap.entry, tensor, *self.put.pop(tap.entry.meta.name, (None, None)))
                self._receive(place, tap, tensor)
        except BaseException as error:
            self.error = error
            self.options.terminate = True
        return None

    def _exchanged(self, entry: Entry, tensor: Any, new: Any, shown: Any) -> Any:
        """Return the tensor as the engine would hold what was put in its place; None where nothing was."""
        if new is None:
            return None
        narrow = numpy_dtype(elem_of(entry.meta.dtype))
        memory = tensor.astype(narrow)
        engine_layout.write(entry, new, memory, self.constants, shown)
        return memory.astype(tensor.dtype)

    def _receive(self, place: int, tap: Tap, tensor: Any) -> None:
        if tap.event == "return":
            self.lent.pop(tap.lent, _ignore_tensor)()
        elif tap.event == "enter":
            self.shown.enter(tap.loop)
        elif tap.event == "write" and tap.entry is not None:
            self._write(tap.entry, tensor, *self.put.pop(tap.entry.meta.name, (None, None)))
        elif tap.event:
            self.shown.iterate(tap.loop)
        elif tap.entry is not None and self.hook is not None:
            meta = self.shown.instance(tap.entry)
            if meta is not None or self.also is not None:
                if tensor is None:
                    raise BackendError("ONNX Runtime did not hand this tensor over", where=tap.entry.meta.name)
                finish = tap.entry.view.finish
                shown = tensor if finish is None else finish(_to_host_array(tensor))
                if self.also is not None:
                    self.also(tap.entry.meta.name, shown)
                if meta is None:
                    return
                if isinstance(self.hook, _Replacing):
                    self._replaced(tap.entry, meta, tensor, shown)
                elif self.borrow is not None:
                    self.lent[place] = self.borrow(meta.op_type, meta.name, shown)
                else:
                    self.hook(meta.op_type, meta.name, shown.copy() if self.copies else shown)

    def _replaced(self, entry: Entry, meta: TensorMeta, tensor: Any, shown: Any) -> None:
        new = self.hook.replace(meta.op_type, meta.name, shown) if isinstance(self.hook, _Replacing) else None
        if new is not None and not entry.never_written:
            if entry.view.steps or not taps.borrows_memory():
                self.put[entry.meta.name] = (new, shown.copy())
            else:
                self._write(entry, tensor, new, shown)

    def _write(self, entry: Entry, tensor: Any, new: Any, shown: Any) -> None:
        if new is not None and tensor is not None:
            tensor.flags.writeable = True
            engine_layout.write(entry, new, tensor, self.constants, shown)


@dataclass(frozen=True, kw_only=False)
class _Replacing:
    """A hook that may put something in place of what it is shown."""

    replace: Replace

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        self.replace(op_type, name, tensor)


def _to_host_array(tensor: Any) -> Any:
    """Return a tensor of a device as an array; an array as it is."""
    return tensor.numpy(tensor.stream) if hasattr(tensor, "stream") else tensor


def _ignore_tensor() -> None:
    """A tensor was not shown, since this iteration of it was not asked for."""


def _find_sizes(graph: Any, feeds: Feeds) -> dict[str, int]:
    """Sizes of the axes that a graph's inputs name, by their names."""
    sizes: dict[str, int] = {}
    for item in graph.input:
        shape = getattr(feeds.get(item.name), "shape", ())
        named = zip(read_tensor_shape(item.type.tensor_type) or (), shape, strict=False)
        sizes.update({axis: size for axis, size in named if isinstance(axis, str)})
    return sizes


def _check_feeds(session: Any, feeds: Feeds) -> dict[str, Any]:
    import numpy as np

    inputs = session.get_inputs()
    known = [item.name for item in (*inputs, *session.get_overridable_initializers())]
    checked = check_feeds(feeds, known, [item.name for item in inputs if "optional" not in item.type])
    for item in inputs:  # the converter to float16 keeps the types of tensors that are fed, but not of sequences
        value = checked.get(item.name)
        if isinstance(value, list) and item.type == "seq(tensor(float16))":
            checked[item.name] = [np.asarray(part).astype(np.float16) for part in value]
    return checked
