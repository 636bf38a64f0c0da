"""What a command asks for, resolved: which backend opens which model in which mode, on either side.

All of it before anything is opened: a build takes minutes, and a wrong mode, file or setting should cost a line. A
setting that no side reads is an error for the same reason: it would change nothing, and nobody would notice.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .. import recording, registry
from ..errors import ModelError, RecordingError, UsageError
from ..numbers.cores import count_shared_cores
from ..protocols import Backend, Capabilities, Comparer, Feeds, Keep, Session, demand
from ..reasons import say, suggest_nearest
from ..recording.format import TENSORS
from ..records import InputMeta, ModelFiles, RunMode, RunSpec, SessionSpec
from ..safety.nearest import list_files_beside
from ..safety.untrusted import is_utf8, refuse_special
from ..settings import SIDES, Setting, Taker, read_by, share_settings
from ..settings.options import Tolerance, iterate_differing

if TYPE_CHECKING:
    from ..feeds import FeedSet
    from ..pairing.arrangement import Arrangement

__all__ = [
    "NONE",
    "Opening",
    "RunPlan",
    "Side",
    "find_maker",
    "find_side",
    "is_across_frameworks",
    "is_converted",
    "make_plan",
    "make_stage_spec",
]


NONE = "none"
"""The baseline of a run that is only validated."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One side before it is opened: a backend's run mode, the folder of a recorded run, or Polygraphy's outputs.

    iteration: of Polygraphy's outputs, the only one that is wanted; None: the one whose inputs are fed.
    comparer: what its session shows tensors to, on their own device; None: in the host's memory, as arrays.
    alone, variants: a sample, and the same among others or padded: of its tensors the sample's own part is shown.
    arranged: how its tensors become those of the other side's, where a converter chose other layouts.
    dump: the recording is another tool's folder of tensors still. called: what the user called it.
    named: the user says which model the recording is of.
    """

    spec: SessionSpec
    mode: RunMode | None = None
    backend: Backend | None = None
    recording: str = ""
    iteration: int | None = None
    comparer: Comparer | None = None
    arranged: Mapping[str, Arrangement] = field(default_factory=dict)
    alone: Feeds | None = None
    variants: Sequence[Feeds] = ()
    dump: bool = False
    named: bool = False
    called: str = ""

    @property
    def label(self) -> str:
        """The mode's name, or the recording's folder."""
        return self.called or self.recording or self.spec.mode

    @property
    def precision(self) -> str:
        """What the mode promises to compute in (see RunMode); a recording promises nothing."""
        return self.mode.precision if self.mode is not None else ""

    @property
    def capabilities(self) -> Capabilities:
        """What its backend can do beyond opening sessions; of a recording, nothing."""
        return Capabilities() if self.backend is None else self.backend.capabilities

    def keep(self) -> Keep | None:
        """Return what can stay in a higher precision in its mode; None: nothing. Raises PrecisionDebugError."""
        keeper = self.capabilities.keeper
        return None if keeper is None else keeper.keep(self.spec)

    def in_mode(self, mode: str = "") -> Opening:
        """Return how the same model is opened in another run mode ("": the one that its own is compared with), with
        those of its options that this one reads."""
        mode = mode or (self.spec.mode if self.mode is None else self.mode.baseline)
        backend, found = registry.find(self.spec.model, mode)
        unread = {one.name for one in self.settings if not one.matters("target", mode)}
        options = {name: value for name, value in self.spec.options.items() if name not in unread}
        return Opening(spec=dataclasses.replace(self.spec, mode=mode, options=options), mode=found, backend=backend)

    @property
    def settings(self) -> Sequence[Setting]:
        """What its backend declares; a recording takes none."""
        return () if self.backend is None else self.backend.settings

    @property
    def brings_inputs(self) -> bool:
        """Whether it is a recording that holds the inputs of its run; Polygraphy's outputs do not."""
        return bool(self.recording) and not self.dump and not recording.is_outputs(self.recording)

    def inputs(self) -> Sequence[InputMeta]:
        """Return the model's inputs. Raises ModelError; a recording has none of its own."""
        return () if self.backend is None else self.backend.inputs(self.spec)

    def open(self, feeds: Sequence[Feeds]) -> Session:
        """Load the model, or open the recording."""
        session = self._opened(feeds)
        if self.alone is not None:
            from .sessions import CutSession

            return CutSession(session, self.alone, self.variants)
        if not self.arranged:
            return session
        from .sessions import ArrangedSession  # needs numpy, which a command does without

        return ArrangedSession(session, self.arranged)

    def _opened(self, feeds: Sequence[Feeds]) -> Session:
        if self.recording and not self.brings_inputs:
            return recording.open_outputs(self.recording, feeds, self.iteration)
        if self.backend is None:
            return recording.open_recording(self.recording)
        able = self.backend.capabilities
        opener = able.on_device or able.on_device_alone
        if self.comparer is not None and opener is not None:
            return opener.open_for(self.comparer, self.spec, feeds)
        return self.backend.open(self.spec, feeds)


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Both sides. ``baseline`` is None where a run is only recorded."""

    baseline: Opening | None
    target: Opening


class Side(Protocol):
    """How a side comes about that is neither an engine's run nor a recording of ours; behind the door "sides"."""

    def is_dump(self, path: str) -> bool:
        """Return whether a baseline, or a run mode, of this name is such a side."""

    def read_dumped_inputs(self, path: str, metas: Sequence[InputMeta]) -> Mapping[str, Any]:
        """Return the model's inputs, where all of them are there; {} otherwise. Raises RecordingError."""

    def with_recorded_dumps(self, plan: RunPlan, feed_set: FeedSet, folder: Path) -> RunPlan:
        """Return a plan in which every such side is a recording. Raises PrecisionDebugError."""


def find_side(path: str) -> Side | None:
    """Return what makes a side of a folder or file that another tool left; None where nothing does."""
    found: list[Side] = [registry.import_from_door("sides", name) for name in registry.list_behind_door("sides")]
    return next((side for side in found if side.is_dump(path)), None)


def make_plan(spec: RunSpec, *, work_dir: str = "", check_machine: bool = True) -> RunPlan:
    """Resolve a command.

    work_dir: existing folder; each side gets a folder of its own in it. check_machine: ask the backends whether the
    modes can run here (this may import a framework). Raises UsageError, ModelError or BackendUnavailable.
    """
    if not 0 <= spec.seed < 2**63:
        raise UsageError(f"expects a whole number, 0 or greater, got {spec.seed}", where="--seed")
    if spec.record and spec.baseline and os.path.realpath(spec.record) == os.path.realpath(spec.baseline):
        raise UsageError(say("records_over_its_baseline"), where=f"--record {spec.record}", hint=say("another_folder"))
    _refuse_idle(spec)
    sides = _list_sides(spec)
    takers = _list_takers(sides)
    shared = share_settings(spec.options, takers, {backend.name: backend.settings for backend in registry.backends()})
    made: dict[str, Opening] = {}
    for opening, taker, options in zip(sides, takers, shared, strict=True):
        if opening.backend is not None and check_machine:
            demand(opening.backend.availability(taker.mode), taker.mode)
        common = {one.name: value for one, value in iterate_differing(spec) if taker.find(one.name) is not None}
        folder = Path(work_dir, taker.side)
        if work_dir:
            folder.mkdir(exist_ok=True)
        session = dataclasses.replace(
            opening.spec,
            options={**common, **options, "side": taker.side, "seed": spec.seed, "target_mode": spec.run_mode},
            work_dir=str(folder) if work_dir else "",
        )  # fmt: skip
        made[taker.side] = dataclasses.replace(opening, spec=session)
    return RunPlan(baseline=made.get("baseline"), target=made["target"])


def _refuse_idle(spec: RunSpec) -> None:
    """Options that only matter beside another one, or that write another format than their file's name says."""
    how, explained = spec.tolerance, spec.explain != "off"
    by_quantile = how.check_error_stat == "quantile" or how.quantile == Tolerance.quantile
    for option, ok, other in (
        ("--error_quantile", by_quantile, "--check_error_stat quantile"),
        ("--find_pass", explained or not spec.find_pass, "--explain fast"),
        ("--second_opinion", explained or not spec.second_opinion, "--explain fast"),
    ):
        if not ok:
            raise UsageError(say("needs_option", option=other), where=option, hint=say("add_or_leave_out"))
    for option, path in (("--save_inputs", spec.save_inputs), ("--save_outputs", spec.save_outputs)):
        if path and not path.lower().endswith(".json"):
            raise UsageError(say("not_ending", ending=".json"), where=f"{option} {path}", hint=say("name_a_file"))


_WHOLE = frozenset({".engine", ".onnx", ".plan", ".pt2", ".tflite"})
"""Formats of which no backend reads parameters from a file that is named beside them."""

_CONVERTED = frozenset({".tflite"})
"""Formats that nobody's framework writes by itself: a converter chose the names and the layouts."""


def is_converted(first: Opening, second: Opening) -> bool:
    """Return whether one side is a file that a converter made, and the other is none of its format."""
    if not first.brings_inputs and first.backend is None:
        return False
    ours, theirs = (registry.suffix(_find_model(side)) in _CONVERTED for side in (first, second))
    return ours != theirs and second.backend is not None


def _find_model(side: Opening) -> ModelFiles:
    """Return a recording's own model, where it says which."""
    if not side.recording:
        return side.spec.model
    session = recording.open_recording(side.recording)
    session.close()
    return ModelFiles(model_file=session.model)


def is_across_frameworks(first: Opening, second: Opening) -> bool:
    """Return whether the names of both sides come from different frameworks: a model against a file exported from
    it."""
    maker = find_maker(first)
    if second.backend is None or maker is None or maker is second.backend:
        return False
    namesake = second.backend.capabilities.namesake
    if namesake is not None and maker.name in namesake.named_after:
        return False
    return maker.capabilities.exporter is not None


def find_maker(side: Opening) -> Backend | None:
    """Return the backend whose names the side has; a recording says which one made it."""
    if not side.recording or not side.brings_inputs:
        return side.backend
    session = recording.open_recording(side.recording)
    session.close()
    return next((found for found in registry.backends() if found.name == session.backend), None)


def make_stage_spec(spec: RunSpec, mode: str, options: Mapping[str, Any]) -> RunSpec:
    """Return a command whose target runs in another mode of the same way, with further settings of the target.

    What the command set for its own mode alone, and neither side reads in this one, is left out.
    """
    there = dataclasses.replace(spec, run_mode=mode)
    kept = {
        **read_by(spec.options, _list_takers(_list_sides(there))),
        **{f"target.{name}": one for name, one in options.items()},
    }
    return dataclasses.replace(there, options=kept)


def _list_sides(spec: RunSpec) -> tuple[Opening, ...]:
    """Return the baseline, where there is one, and the target; they have no settings yet."""
    target = _find_opening(spec.model, spec.run_mode)
    if spec.record and not spec.baseline:
        _needs_no_comparison(spec)
        return (target,)
    if spec.baseline == NONE:
        if not spec.validate:
            raise UsageError(say("compares_nothing"), where="--baseline none", hint=say("add_validate"))
        return (target, target)
    mode = spec.baseline or _choose_default_baseline(spec, target)
    baseline = _find_opening(spec.baseline_model or spec.model, mode)
    if baseline.recording and spec.baseline_model is not None:
        baseline = dataclasses.replace(baseline, named=True)
    if recording.is_outputs(mode) and spec.sample.isdigit():
        baseline = dataclasses.replace(baseline, iteration=int(spec.sample))
    return (baseline, target)


def _needs_no_comparison(spec: RunSpec) -> None:
    """A run that is only recorded has no rows: what would judge them is refused, not ignored."""
    for one, _ in iterate_differing(spec):
        if "recording" in one.not_with:
            raise UsageError(say("needs_a_comparison"), where=one.option, hint=say("add_a_baseline"))


def _list_takers(sides: Sequence[Opening]) -> list[Taker]:
    return [
        Taker(
            side=side, mode=opening.label, backend=opening.backend.name if opening.backend else "",
            table=opening.settings,
        )
        for side, opening in zip(SIDES[-len(sides) :], sides, strict=True)
    ]  # fmt: skip


def _find_opening(model: ModelFiles, mode: str) -> Opening:
    session = SessionSpec(model=model, mode=mode, cores=count_shared_cores())
    if os.path.exists(mode) and find_side(mode) is not None:  # reads tensors: a mode's name needs none of it
        return Opening(spec=session, recording=mode, dump=True)
    if recording.is_outputs(mode):
        return Opening(spec=session, recording=mode)
    if Path(mode).is_dir() and not recording.is_recording(mode) and not (Path(mode) / TENSORS).is_dir():
        raise RecordingError(say("no_tensors"), where=mode, hint=say("use_tensor_folder"))
    if "/" in mode and not os.path.exists(mode):
        raise RecordingError(say("no_such_folder"), where=mode, hint=say("use_tensor_folder"))
    if recording.is_recording(mode) or Path(mode).is_dir() or "/" in mode:
        return Opening(spec=session, recording=mode)
    if not model.path:
        raise UsageError(say("no_model"), hint=say("name_a_model"))
    for named in (model.model_file, model.model_file.partition(".py:")[0] + ".py", model.params_file, model.model_dir):
        refuse_special(named, ModelError)
        if named and not is_utf8(named):
            raise ModelError(say("not_utf8"), where=named, hint=say("move_it"))
        if named.endswith(os.sep) and os.path.isfile(named.rstrip(os.sep)):
            raise ModelError(say("file_no_folder"), where=named, hint=say("check_the_path"))
    if model.model_file and model.model_dir:
        raise UsageError(say("exclusive", one="--model_file", other="--model_dir"), hint=say("leave_one_out"))
    if model.params_file and not Path(model.params_file).exists():
        raise ModelError(say("no_such_file"), where=model.params_file, hint=say("check_option", option="--params_file"))
    if model.params_file and registry.suffix(model) in _WHOLE:
        said = say("has_no_params", ending=registry.suffix(model))
        raise ModelError(said, where=model.params_file, hint=say("leave_it_out"))
    plain = model.path if Path(model.path).exists() else model.path.partition(".py:")[0] + ".py"
    if not Path(model.path).exists() and not (".py:" in model.path and Path(plain).exists()):
        near = (
            say("download_it") if "://" in model.path else suggest_nearest(model.path, list_files_beside(model.path), 1)
        )
        raise ModelError(say("no_such_model"), where=model.path, hint=near or say("check_the_path"))
    if Path(mode).suffix and registry.modes_for(ModelFiles(model_file=mode)):
        raise UsageError(say("model_as_mode"), where=mode, hint=say("model_by_its_option", path=shlex.quote(mode)))
    if not any(mode == one.name for _, one in registry.modes_for(model)) and not registry.is_mode_like(mode):
        raise UsageError(say("neither_mode_nor_folder"), where=mode, hint=say("modes_or_folder"))
    backend, run_mode = registry.find(model, mode)
    return Opening(spec=session, mode=run_mode, backend=backend)


def _choose_wider_integers(target: Opening) -> str:
    """Return another engine's plain mode where the target's own would share what it computes too narrowly.

    "": where it would not, or there is none."""
    holder = target.capabilities.holds_narrower
    if holder is None or not holder.computed_narrower(target.spec):
        return ""
    for backend, mode in registry.modes_for(target.spec.model):
        plain = mode.baseline == mode.name and mode.precision == "float32" and not mode.simulation
        if plain and backend.capabilities.holds_narrower is None and backend.availability(mode.name).ok:
            return mode.name
    return ""


def _choose_default_baseline(spec: RunSpec, target: Opening) -> str:
    if spec.input_variants and target.mode is not None:
        return target.mode.name  # one run mode on other inputs
    if spec.baseline_model is None and target.mode is not None:
        if (chooser := target.capabilities.baseline_chooser) and (chosen := chooser.baseline_of(target.spec)):
            return chosen
        if wider := _choose_wider_integers(target):
            return wider
        if any(mode.name == target.mode.baseline for _, mode in registry.modes_for(spec.model)):
            return target.mode.baseline
        raise UsageError(
            say("no_default_baseline", mode=target.mode.name, baseline=target.mode.baseline),
            where=spec.model.path, hint=say("add_baseline_model"),
        )  # fmt: skip
    model = spec.baseline_model or spec.model
    offered = [(backend, mode) for backend, mode in registry.modes_for(model) if mode.baseline == mode.name]
    wanted = target.mode.baseline if target.mode is not None else ""
    own = [mode.name for backend, mode in offered if backend is target.backend or mode.name == wanted]
    if own:
        return wanted if wanted in own else own[0]
    makers = {backend.name: mode.name for backend, mode in reversed(offered)}
    if len(makers) > 1 and registry.suffix(model) == ".py":  # which framework's module it makes, its own text tells
        makers = {name: mode for name, mode in makers.items() if _does_import(model, name)} or makers
        if len(makers) > 1:
            raise UsageError(
                "several engines read this file", where=model.path,
                hint=f"say which one made it: --baseline {' or --baseline '.join(makers.values())}",
            )  # fmt: skip
    if makers:
        return [*makers.values()][-1]
    raise UsageError("no default baseline for this model", where=model.path, hint="name one with --baseline MODE")


def _does_import(model: ModelFiles, name: str) -> bool:
    """Return whether a Python file says that it imports a framework."""
    path = Path(model.model_file.partition(".py:")[0].removesuffix(".py") + ".py")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"^\s*(?:import|from)\s+{re.escape(name)}\b", text, re.MULTILINE) is not None
