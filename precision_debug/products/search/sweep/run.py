"""Runs a sweep: each mode is compared and timed, in processes of its own; a refused one stands with its reason."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .... import registry
from ....errors import ModelError, PrecisionDebugError, UsageError
from ....numbers.slices import largest_lost_error
from ....observe.sample_columns import SAMPLES
from ....reasons import Reason, say
from ....records import ModelFiles, Row, RunSpec, Status
from ....report import sections
from ....report.doubts import error_sentence
from ....report.model import Report
from ....run.companion_files import forget_inputs
from ....run.outcome import Outcome
from ....run.plan import make_plan
from .result import Mode, Speed, Sweep
from .speed import measure_speed
from .table import BASELINE

__all__ = ["ROUNDS", "Compare", "Time", "parse_modes", "refuse_unknown", "remove_inputs", "report_file_name", "sweep"]

Compare = Callable[[RunSpec, Path], Outcome]
"""Compares one mode and writes its report."""

_LONGEST = 160
"""Bytes of a report's name; a file system takes 255, with all that is put behind it."""

Time = Callable[[RunSpec, int], Speed]
"""Times the target of a command with so many samples a run; 0: as they are."""


def parse_modes(text: str) -> list[tuple[str, str, dict[str, str]]]:
    """(name, run mode, settings) of "ort_fp16,trt_fp16+use_dynamic_shape=1". Raises UsageError."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        mode, *settings = name.split("+")
        if not mode or any("=" not in one for one in settings):
            raise UsageError(say("no_mode", name=name), where="--run_modes", hint=say("mode_form"))
        if name in (one[0] for one in found):
            raise UsageError(say("named_twice", name=name), where="--run_modes", hint=say("name_it_once"))
        pairs = (one.partition("=") for one in settings)
        found.append((name, mode, {f"target.{key}": value for key, _, value in pairs}))
    if not found:
        raise UsageError(say("no_modes"), where="--run_modes", hint=say("modes_form"))
    return found


def refuse_unknown(modes: Sequence[str], models: Sequence[ModelFiles]) -> None:
    """Raise UsageError or ModelError for a model that is not there, or a mode that no backend has on any machine.

    That is minutes before its turn would come."""
    for model in models:
        plain = model.path.partition(".py:")[0] + ".py" if ".py:" in model.path else model.path
        if not Path(plain).exists():
            raise ModelError(say("no_such_model"), where=model.path, hint=say("check_the_path"))
    known = {mode.name for backend in registry.backends() for mode in backend.run_modes}
    for mode in modes:
        if mode not in known:
            _find_first_readable(models, mode)


def _do_some_calibrate(modes: Sequence[str]) -> bool:
    return any(mode.calibrates and mode.name in modes for backend in registry.backends() for mode in backend.run_modes)


def sweep(
    spec: RunSpec,
    modes: str,
    *,
    models: Sequence[ModelFiles],
    batches: Sequence[int] = (),
    folder: Path,
    compare: Compare,
    time_it: Time = lambda spec, batch: measure_speed(spec, batch=batch),
    on_stage: Callable[[Reason], None],
    stopped: Callable[[], bool] = lambda: False,
) -> Sweep:
    """Compare and time every mode.

    spec: the comparison, without a run mode. models: a mode runs the first one that it reads. batches: samples a run;
    none: as they are. folder: for each mode's own report. stopped: whether the rest is to be left out, which then
    stands as refused. The baseline's row comes first.
    Raises UsageError where nothing can be run at all.
    """
    begun, started = time.monotonic(), sections.local_time()
    spec = dataclasses.replace(spec, judged_alike=_do_some_calibrate([mode for _, mode, _ in parse_modes(modes)]))
    rows: list[Mode] = []
    specs: dict[str, RunSpec] = {}
    baseline = ""
    for name, mode, settings in parse_modes(modes):
        if stopped():
            rows.append(Mode(name=name, refused=say("interrupted")))
            continue
        on_stage(say("stage_comparing", mode=name))
        row, made = _compare_mode(spec, name, mode, settings, models, folder, compare)
        rows.append(row)
        if made is not None:
            specs[name] = made.target
            if not baseline:
                baseline = made.name
                specs.setdefault(baseline, made.baseline)
    if baseline:
        own = next((row for row in rows if row.name == baseline), Mode(name=baseline, model=specs[baseline].model.path))
        others = [row for row in rows if row.name != baseline]
        rows = [_as_baseline(own, others), *others]
    rows = _time_modes(rows, specs, batches, time_it, on_stage, stopped)
    return Sweep(
        modes=tuple(rows), baseline=baseline, command=spec.command, started=started,
        machine=sections.describe_machine(),
        seconds=time.monotonic() - begun,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Made:
    """Both commands of a mode that was compared. name: the baseline's run mode."""

    name: str
    baseline: RunSpec
    target: RunSpec


def _compare_mode(
    spec: RunSpec, name: str, mode: str, settings: Mapping[str, str], models: Sequence[ModelFiles], folder: Path,
    compare: Compare,
    ) -> tuple[Mode, _Made | None]:  # fmt: skip
    """Return the row, and what can be timed; None where nothing can."""
    path = folder / f"{report_file_name(name)}.json"
    try:
        model = _find_first_readable(models, mode)
        one = dataclasses.replace(spec, model=model, run_mode=mode, options={**spec.options, **settings})
        plan = make_plan(one, check_machine=False)
    except PrecisionDebugError as error:
        return Mode(name=name, refused=error_sentence(error)), None
    label = plan.baseline.label if plan.baseline is not None else ""
    of_baseline = dataclasses.replace(
        one, model=spec.baseline_model or model, run_mode=label, baseline=label, baseline_model=None,
        options={key: value for key, value in spec.options.items() if not key.startswith("target.")},
    )  # fmt: skip
    try:
        outcome = compare(one, path)
    except PrecisionDebugError as error:
        return Mode(name=name, model=model.path, refused=error_sentence(error)), None
    row = Mode(name=name, model=model.path)
    if outcome.report is not None:
        row = _make_row(name, model.path, outcome.report, f"{folder.name}/{path.name}")
    if outcome.error is not None:
        return dataclasses.replace(row, refused=error_sentence(outcome.error)), None
    return row, _Made(name=label, baseline=of_baseline, target=one)


def _find_first_readable(models: Sequence[ModelFiles], mode: str) -> ModelFiles:
    problem: PrecisionDebugError | None = None
    for model in models:
        try:
            registry.find(model, mode)
            return model
        except PrecisionDebugError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _make_row(name: str, model: str, report: Report, path: str) -> Mode:
    outputs = [row for row in report.outputs if row.comparison is not None]
    worst_output = max(outputs, key=_error_of_row, default=None)
    compared = [row for row in report.compared if row.status is not Status.UNMATCHED]
    worst = max(compared, key=_error_of_row, default=None)
    numbers = worst_output.comparison if worst_output is not None else None
    culprits = report.explanation.culprits if report.explanation is not None else ()
    state = report.explanation.state if report.explanation is not None else ""
    return Mode(
        name=name, model=model, verdict=report.verdict.value,
        samples=max((int(row.extra.get(SAMPLES, 1)) for row in compared), default=0),
        mean_rel=numbers.mean_rel if numbers else None,
        share_over_1pct=numbers.share_rel_over_1pct if numbers else None,
        rel_l2=_ranking_error(worst_output),
        worst=worst.name if worst is not None else "", worst_rel_l2=_ranking_error(worst),
        culprit=culprits[0].name if culprits else "", cause=culprits[0].cause if culprits else state,
        apart=max((float(row.repeated.rel_l2) for row in report.outputs if row.repeated is not None), default=None),
        metric=next((claim.why for claim in report.claims if claim.code == "metric" and claim.why is not None), None),
        scores=dict(report.scores), report=path, against=report.baseline.mode,
    )  # fmt: skip


def _ranking_error(row: Row | None) -> float | None:
    """Return the error that a row is ranked by; of an output that lost slices theirs. None where it has none."""
    return None if row is None or row.relative_l2 is None else max(row.relative_l2, _error_of_row(row))


def _error_of_row(row: Row) -> float:
    error = row.relative_l2
    lost = largest_lost_error(row.comparison) if row.comparison is not None else 0.0
    return -1.0 if error is None or math.isnan(error) else max(error, lost)


ROUNDS = 3
"""How often the modes take turns (A B C, A B C, …): a machine that is busy for a while is so for all of them."""
_CHEAP = 5.0
"""Seconds until a mode's first run has ended, beyond which it is built and timed once."""


def _time_modes(
    rows: Sequence[Mode], specs: Mapping[str, RunSpec], batches: Sequence[int], time_it: Time,
    on_stage: Callable[[Reason], None], stopped: Callable[[], bool],
) -> list[Mode]:  # fmt: skip
    """Return the rows with their times."""
    found: dict[tuple[str, int], list[Speed]] = {}
    failed: dict[str, dict[str, Reason]] = {row.name: {} for row in rows}
    for number in range(ROUNDS):
        for row, batch in itertools.product(rows, batches or (0,)):
            before = found.setdefault((row.name, batch), [])
            once = bool(before) and before[0].build > _CHEAP
            if row.name not in specs or str(batch) in failed[row.name] or once:
                continue
            if stopped():
                if not before:
                    failed[row.name][str(batch)] = say("interrupted")
                continue
            if number == 0:
                on_stage(say("stage_timing", mode=f"{row.name}, {batch}" if batch else row.name))
            try:
                before.append(time_it(specs[row.name], batch))
            except PrecisionDebugError as error:
                if not before:
                    failed[row.name][str(batch)] = error_sentence(error)
    of_rounds = {key: Speed.of_rounds(speeds) for key, speeds in found.items() if speeds}
    return [
        dataclasses.replace(
            row,
            failed=failed[row.name],
            speeds=tuple(speed for (name, _), speed in of_rounds.items() if name == row.name),
        )
        for row in rows
    ]


def _as_baseline(row: Mode, others: Sequence[Mode]) -> Mode:
    """Return what the other rows' comparisons say of the baseline's answers."""
    scores: dict[str, float] = {}
    for mode in others:
        for name, value in mode.scores.items():
            if name.endswith(", baseline"):
                scores.setdefault(name, value)
    return dataclasses.replace(
        row, mean_rel=0.0, share_over_1pct=0.0, rel_l2=0.0, verdict=BASELINE, scores=scores or row.scores,
        samples=max((mode.samples for mode in others), default=0),
    )  # fmt: skip


def report_file_name(name: str) -> str:
    """Of a mode's report, without its ending: no two modes have one name."""
    plain = "".join(letter if letter.isalnum() or letter in "._-+=" else "_" for letter in name)
    if plain == name and len(plain.encode()) <= _LONGEST:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{plain.encode()[:_LONGEST].decode(errors='ignore')}-{digest}"


def remove_inputs(reports: Sequence[Sequence[Path]]) -> None:
    """The inputs beside each mode's reports are the same: those of the first are enough."""
    for paths in reports[1:]:
        forget_inputs(paths)
