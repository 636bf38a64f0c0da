"""Keep one side of a run open: what it is and has, how long it took, and in which precision it ran."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import BackendError, PrecisionDebugError
from ..events import SideDone, SideOpened, Stage, Tensors
from ..explain.operators import MOVE, plain_type
from ..explain.units import INTEGERS
from ..feeds import FeedSet, as_option
from ..inspector import find_real_precision, has_body
from ..numbers.cores import count_cores_of_each
from ..numbers.number_types import BEFORE_ROUNDING, BEHIND_FLOAT32, CONVERTS, MIXED, QUANTISED, Precision, find_promise
from ..observe.loops import merge_iterations
from ..protocols import Executed, Feeds, Hook, Session, progress_to
from ..reasons import Reason, say
from ..records import UNFUSED, Doubt, Side, TensorMeta
from ..settings import SIDES
from .content import compare_with_stored, list_model_files
from .journal import Journal
from .plan import Opening

__all__ = ["DRAWS", "OpenSide", "count_executed", "doubt_not_run", "guard_call", "open_both", "open_one"]


# In which precision a session ran: as its backend reads it, else by its layers, else by the types of its tensors.

_WIDE, _INTEGERS = ("FP32", "TF32", "FP64"), ("INT8", "INT4")

_NO_OPERATOR = frozenset({"Input", "Constant", "Output", "Parameter", "feed", "data", "Result"})


def count_executed(opening: Opening, session: Session) -> Executed | None:
    """Return what ran in a side's low precision, of a session that has run; None where nobody can tell, or it has
    none."""
    narrow = find_promise(opening.precision)
    if not narrow.narrow:
        return None
    reader = opening.capabilities.precision_reader
    executed = reader.executed(session) if reader is not None else None
    if executed is not None:
        return Executed(low=executed[0], of=executed[1], precision=narrow.short)
    if any(map(has_body, session.layers)):
        return None  # a count of the others would pass for one of all
    busy = (one for one in session.layers if not one.is_reformat and plain_type(one.layer_type) not in MOVE)
    layers = [find_real_precision(layer)[0] for layer in busy]
    known = [name for name in layers if name]
    if known:
        mixed = opening.precision == MIXED
        low = sum(name not in _WIDE if mixed else name == narrow.short for name in known)
        return Executed(low=low, of=len(known), precision=narrow.short)
    computed: dict[str, list[TensorMeta]] = {}
    for meta in session.tensors:
        if _computes(meta):
            computed.setdefault(meta.node or meta.name, []).append(meta)
    each = [metas for metas in computed.values() if _is_low_operator(metas, narrow)]
    names = tuple(tuple(dict.fromkeys(name for meta in metas for name in _list_made(meta))) for metas in each)
    return Executed(low=len(each), of=len(computed), precision=narrow.short, names=names) if computed else None


def _list_made(meta: TensorMeta) -> tuple[str, ...]:
    """Return the source model's tensors that are computed with one of a session's: itself, and what is fused into
    it."""
    return meta.origin or meta.name, *meta.absorbs


def doubt_not_run(opening: Opening, session: Session) -> Doubt | None:
    """That nothing ran in the precision that a mode promises, of a session that has run, in every engine alike.

    It takes a session that knows: by its backend's reader, or by views that tell what computed in float32. What the
    session itself says of it is more exact. An engine's layers are read by ``report.doubts``, which asks how sure their
    types are, and so is the error of tensors that only have a type: what is shown as float32 may have been rounded.
    """
    if session.layers or opening.mode is None or opening.mode.simulation:
        return None
    if any(doubt.code == "precision_not_run" for doubt in session.doubts):
        return None
    reader = opening.capabilities.precision_reader
    told = reader is not None and reader.executed(session) is not None
    if not told and not any(meta.view.endswith(BEHIND_FLOAT32) for meta in session.tensors):
        return None
    executed = count_executed(opening, session)
    if executed is None or executed.low or not executed.of:
        return None
    return Doubt(code="precision_not_run", values={"precision": executed.precision, "detail": say("none_of")})


def _is_low_operator(metas: Sequence[TensorMeta], narrow: Precision) -> bool:
    """Return whether an operator, of which these are all results, ran in the low precision.

    What is seen before it is rounded was computed in float32, and so was what is listed in float32 beside the integers
    that a converter makes of it."""
    if narrow.short in _INTEGERS:
        return all(_is_low(meta, narrow) for meta in metas)
    return not any(meta.view == BEFORE_ROUNDING for meta in metas) and any(_is_low(meta, narrow) for meta in metas)


def _computes(meta: TensorMeta) -> bool:
    """Return whether a tensor is an operator's own arithmetic: what only moves or converts numbers has no precision,
    and what a further, unfused run shows is none of what ran."""
    if meta.view == UNFUSED:
        return False
    floats = not meta.dtype or "float" in meta.dtype or meta.dtype in INTEGERS
    kind = plain_type(meta.op_type)
    return floats and meta.op_type not in _NO_OPERATOR and kind not in MOVE and not CONVERTS.fullmatch(kind)


def _is_low(meta: TensorMeta, narrow: Precision) -> bool:
    if meta.view.endswith(BEHIND_FLOAT32):
        return False
    held = meta.view.removeprefix("rounded to ").split()[0] if meta.view.startswith("rounded to ") else meta.dtype
    if held.startswith(narrow.shown_by) or meta.op_type.startswith(narrow.shown_by):  # float8.mm is held in bfloat16
        return True
    return narrow.short in _INTEGERS and (meta.view == "dequantised" or bool(QUANTISED.search(meta.op_type)))


# One side of a run while it is open: it tells the journal what it is, what it has and how long it took.

@contextlib.contextmanager
def open_both(
    first: Opening, second: Opening, feed_set: FeedSet, journal: Journal, together: bool
) -> Iterator[tuple[OpenSide, OpenSide]]:
    """Both sides, opened at the same time where they will also run so, and closed whatever happens."""
    of_target = feed_set.for_target()
    if together:
        first, second = _with_its_share(first), _with_its_share(second)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        later = beside.submit(OpenSide, "target", second, of_target, journal) if together else None
        try:
            base = stack.enter_context(OpenSide("baseline", first, feed_set, journal))
        except BaseException:
            if later is not None and later.exception() is None:
                later.result().session.close()
            raise
        target = later.result() if later is not None else OpenSide("target", second, of_target, journal)
        yield base, stack.enter_context(target)


@contextlib.contextmanager
def open_one(opening: Opening, feed_set: FeedSet, journal: Journal) -> Iterator[tuple[OpenSide, OpenSide]]:
    """One session that stands for both sides: what it shows is held against itself."""
    with OpenSide("target", opening, feed_set, journal, both=True) as side:
        yield side, side


def _with_its_share(opening: Opening) -> Opening:
    """One of two runs side by side: each gets half of the cores, since more threads than cores wait for each other."""
    return dataclasses.replace(opening, spec=dataclasses.replace(opening.spec, cores=count_cores_of_each()))


class OpenSide:
    """A side's session, opened at once. role: "baseline" or "target". both: it stands for the baseline too.

    merges: of a loop of many iterations, a tensor is told once.
    """

    def __init__(self, role: str, opening: Opening, feed_set: FeedSet, journal: Journal, *, both: bool = False) -> None:
        self._roles = SIDES if both else (role,)
        self.role, self.opening, self.feed_set, self.journal = role, opening, feed_set, journal
        self.seconds: float | None = None
        self.merges = False
        self._listed: tuple[TensorMeta, ...] = ()
        self._seen: tuple[TensorMeta, ...] = ()
        self.announced: tuple[TensorMeta, ...] = ()
        self.on_announced: Callable[[], None] = _do_nothing
        self._side = say("baseline") if role == "baseline" else say("target")
        self._outputs, drawn = _read_declared(opening)
        self._files, self._digest, self._stored = (
            (() if opening.recording else list_model_files(opening.spec.model)),
            "",
            "",
        )
        self._doubts = drawn
        journal.write(Stage(text=say("stage_opening", side=self._side, mode=opening.label)))
        self._tell(())
        sets = feed_set.feeds if opening.recording else feed_set.calibrating
        begun = time.monotonic()
        self.session: Session = self._sized(lambda: opening.open(sets))
        self.opened = time.monotonic()
        self.opening_seconds = self.opened - begun
        self._hold_recording()
        self._sized(self.announce)  # what can be shown an engine may find out only now

    def _hold_recording(self) -> None:
        """Hold a side that only replays against the model that it was made of."""
        opening, session = self.opening, self.session
        if not opening.recording:
            return
        kept = [str(getattr(session, name, "")) for name in ("model", "created", "model_digest")]
        path, when, self._digest = kept
        found = compare_with_stored(opening.label, path, when, self._digest, opening.spec.model, named=opening.named)
        self._stored, doubts = found
        self._doubts = (*self._doubts, *doubts)

    def __enter__(self) -> OpenSide:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return self.session.tensors

    def run(
        self, hook: Hook, names: Collection[str] | None, feeds: Feeds | None = None, *, quiet: bool = False
    ) -> Mapping[str, Any]:
        """feeds: in place of the first sample. quiet: the journal is not told."""
        fed = self.feed_set.feeds[0] if feeds is None else feeds
        if not quiet:
            self.journal.write(Stage(text=say("stage_running", side=self._side, mode=self.opening.label)))
        begun = time.monotonic()
        outputs: Mapping[str, Any] = self._sized(lambda: self.session.run(fed, hook, names))
        if self.seconds is None and (doubt := doubt_not_run(self.opening, self.session)) is not None:
            self.doubt((doubt,))
        if self.seconds is None:
            self.doubt(_doubt_random_operators(self.opening, self.session.tensors))
            self._hold_outputs(outputs)
        self.seconds = time.monotonic() - begun
        if not quiet:
            for role in self._roles:
                self.journal.write(SideDone(side=role))
        return outputs

    def _hold_outputs(self, returned: Collection[str]) -> None:
        """Take what a run of the whole file returns for its outputs, where the core cannot read what the file declares.

        A factory's program declares nothing."""
        opening = self.opening
        if self._outputs or opening.backend is None or ".py" in opening.spec.model.model_file.lower():
            return
        finals = {meta.name for meta in self.session.tensors if meta.is_output}
        self._outputs = tuple(name for name in returned if name in finals)
        self._tell(self.announced)

    def _sized(self, call: Callable[[], Any]) -> Any:
        """See ``guard_call``; an error of an engine says which sizes were our choice, as they may not be what it
        needs."""
        try:
            with progress_to(self._stage):
                return guard_call(self.opening.label, call)
        except BackendError as error:
            if not self.feed_set.chosen:
                raise
            options = " ".join(as_option(name, shape) for name, shape in self.feed_set.chosen.items())
            ours = f"if it needs other sizes than those that were chosen for it: {options}"
            hint = f"{error.hint}; {ours}" if error.hint else ours
            raise type(error)(error.what, where=error.where, hint=hint) from error

    def _stage(self, text: Reason) -> None:
        """The session goes on to something that takes long; what it has learnt by now outlives an end in that."""
        if getattr(self, "session", None) is not None and tuple(self.session.tensors) != self._listed:
            self.announce()
        self.journal.write(Stage(text=say("stage_within", side=self._side, what=text)))

    def announce(self, seen: Sequence[TensorMeta] = ()) -> None:
        """Tell what the session lists, and what its hook showed beyond that; ``announced`` is all of it."""
        listed = {meta.name for meta in self.session.tensors}
        self._listed, self._seen = tuple(self.session.tensors), tuple(seen) or self._seen
        before = self.announced
        every = (*self._listed, *(meta for meta in self._seen if meta.name not in listed))
        self.announced = merge_iterations(every) if self.merges else every
        for role in self._roles:
            self.journal.write(Tensors(side=role, tensors=self.announced))
        self._tell(self.announced)
        if self.announced != before:
            self.on_announced()

    def doubt(self, doubts: Sequence[Doubt]) -> None:
        """Tell what weakens the comparison, beyond what the session says of itself."""
        if doubts:
            self._doubts = (*self._doubts, *doubts)
            self.announce()

    @property
    def draws(self) -> bool:
        """Whether it is known to draw numbers that another run would not."""
        return any(doubt.code == "draws_numbers" for doubt in (*self.session.doubts, *self._doubts))

    def _tell(self, tensors: Sequence[TensorMeta]) -> None:
        opening, session = self.opening, getattr(self, "session", None)
        info = Side(
            mode=opening.label,
            backend=opening.backend.name if opening.backend else "recording",
            model=opening.spec.model.path if opening.backend else opening.label,
            precision=opening.precision or (session.arithmetic if session else ""),
            versions=dict(session.versions) if session else {},
            notes=tuple(session.notes) if session else (),
            doubts=(*(session.doubts if session else ()), *self._doubts),
            simulation=bool(opening.mode and opening.mode.simulation),
            tensors=len(tensors),
            seconds=self.seconds,
            outputs=self._outputs,
            files=self._files,
            digest=self._digest,
            stored=self._stored,
        )
        for role in self._roles:
            self.journal.write(SideOpened(side=role, info=info))


def _read_declared(opening: Opening) -> tuple[tuple[str, ...], tuple[Doubt, ...]]:
    """Return the outputs that the model's own file declares, and that it draws numbers; nothing of what is no ONNX
    file."""
    file = opening.spec.model.model_file
    if opening.backend is None or not file.lower().endswith(".onnx"):
        return (), ()
    from ..onnx.without_weights import list_random_operators, read_declared_outputs

    outputs: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    with contextlib.suppress(PrecisionDebugError):
        outputs = read_declared_outputs(file)
        drawn = list_random_operators(file)
    if not drawn:
        return outputs, ()
    some = ", ".join(drawn[:_SOME]) + (f", … (+{len(drawn) - _SOME})" if len(drawn) > _SOME else "")
    return outputs, (Doubt(code="draws_numbers", values={"mode": opening.label, "detail": some}),)


def _doubt_random_operators(opening: Opening, tensors: Sequence[TensorMeta]) -> tuple[Doubt, ...]:
    """Return a doubt where a session lists operators that draw random numbers.

    Of an ONNX file their seeds are known, and a step of training means them: neither is looked at here."""
    if opening.backend is None or opening.spec.model.model_file.lower().endswith(".onnx"):
        return ()
    found = [f"{meta.op_type} {meta.name}" for meta in tensors if DRAWS.match(meta.op_type) and not meta.phase]
    if not found or any(meta.phase for meta in tensors):
        return ()
    some = ", ".join(found[:_SOME]) + (f", … (+{len(found) - _SOME})" if len(found) > _SOME else "")
    return (Doubt(code="draws_numbers", values={"mode": opening.label, "detail": some}),)


DRAWS = re.compile(
    r"(aten\.|pd_op\.)?(rand|randn|randint|randperm|bernoulli|multinomial|poisson|gaussian|uniform|normal)"
    r"(_like|_random|_)?$|Random(Normal|Uniform)(Like)?$"
)
"""Operators that draw numbers, by their types in PyTorch, Paddle and OpenVINO."""
_SOME = 3
"""Operators that a doubt names."""


def _do_nothing() -> None:
    pass


def guard_call(label: str, call: Callable[[], Any]) -> Any:
    """Return what a backend's call returns; whatever it raises becomes one of our errors."""
    try:
        return call()
    except PrecisionDebugError:
        raise
    except MemoryError as error:
        raise BackendError("out of memory", where=label, hint="use a smaller batch or mark fewer tensors") from error
    except Exception as error:
        raise BackendError(
            f"{type(error).__name__}: {error}", where=label, hint="--verbose shows the traceback"
        ) from error
