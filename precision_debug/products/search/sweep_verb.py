"""precision_debug sweep: several run modes in one table, with error, culprit, answers, latency, size and build time.

Takes the options of a comparison, with --run_modes instead of --run_mode. Each mode is compared and timed in its own
processes; one that cannot run here is listed with the reason.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ...claims import exit_status_of
from ...cli import compare
from ...cli.option_file import with_file
from ...cli.parser import Help, choose_language, make_flag, parse, program_name
from ...errors import BackendError, OutputError, UsageError
from ...ownership import list_foreign_files, refuse_foreign
from ...reasons import Reason, say
from ...records import ModelFiles, RunSpec
from ...report.words import reason_text, wrap_text
from ...run.child import watch_signals
from ...run.companion_files import refuse_overwriting
from ...run.outcome import Outcome
from ...run.supervisor import supervise
from ...safety.untrusted import make_visible
from .sweep.remote_speed import measure_remotely
from .sweep.result import Speed, Sweep
from .sweep.run import ROUNDS, parse_modes, refuse_unknown, remove_inputs, sweep
from .sweep.speed import measure_speed
from .sweep.table import BASELINE
from .sweep.write import SUFFIXES, as_table, as_text, write

__all__ = ["run"]

SUMMARY = "several run modes in one table: error, culprit, accuracy, latency, size; with a plot"
SUMMARY_ZH = "多种运行模式列于一表：误差、元凶、准确率、延迟、大小，并附图"

DESCRIPTION_ZH = """precision_debug sweep：多种运行模式列于一表：误差、元凶、结果、延迟、大小和构建时间。

选项与对比相同，以 --run_modes 代替 --run_mode。每种模式在单独的进程中对比并计时；
不能在本机运行的列出原因。
"""

_DEFAULT = "output/sweep.html"

_UNUSED = ("gen_script", "plots")

_USAGE = "%(prog)s --model_file M --run_modes MODE MODE … [options]"


def run(arguments: Sequence[str]) -> int:
    """0 where every mode ran, 1 where one is out of tolerance, 2 where one was refused, 3 where one crashed."""
    parser = compare.make_comparison_parser("sweep", __doc__, DESCRIPTION_ZH, _HEADING, _FLAGS, usage=_USAGE)
    arguments = with_file(parser, "sweep", arguments, without=(*_UNUSED, "run_mode", "record", "output"))
    args = parse(parser, arguments)
    compare.refuse_unused(args, "sweep", *_UNUSED)
    if args.run_mode or args.record:
        raise UsageError(say("sweep_takes_modes"), where="--run_mode" if args.run_mode else "--record")
    spread = compare.workers_of(args)
    modes = ",".join(args.run_modes)
    wanted = parse_modes(modes)
    batches = _parse_batches(args.batch_sizes)
    args.run_mode = wanted[0][1]
    spec = compare.make_spec(args, command=f"{program_name('sweep')} {shlex.join(arguments)}")
    outputs = [Path(path) for path in args.output or [_DEFAULT]]
    models = [spec.model, *(ModelFiles(model_dir=path) if Path(path).is_dir() else ModelFiles(model_file=path)
                            for path in args.models)]  # fmt: skip
    refuse_unknown([mode for _, mode, _ in wanted], models)
    folder = _choose_reports_folder(outputs, spec, args.marks)
    language = choose_language(args.lang)

    def compared(one: RunSpec, path: Path) -> Outcome:
        return supervise(one, _list_written(path), verbose=args.verbose, spread=spread, language=args.lang)

    def timed(one: RunSpec, batch: int) -> Speed:
        if spread is not None and spread.engine == "ray":
            return measure_remotely(one, spread, batch=batch, seconds=args.speed_seconds / ROUNDS)
        return measure_speed(one, batch=batch, seconds=args.speed_seconds / ROUNDS)

    def stage(text: Reason) -> None:
        if not args.quiet:
            print(make_visible(f"precision_debug: {reason_text(text, language)}"), file=sys.stderr, flush=True)

    with watch_signals() as stopping:
        found = sweep(
            spec, modes, models=models, batches=batches, folder=folder, compare=compared, time_it=timed,
            on_stage=stage, stopped=lambda: stopping.asked,
        )  # fmt: skip
        if stopping.asked and not any(mode.verdict for mode in found.modes):
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise BackendError(say("interrupted"), hint=say("nothing_yet"))
        with stopping.finishing("the report is being written"):
            found = _deliver(found, spec.command, outputs, args.lang)
    if not args.quiet:
        _show(found, outputs, language)
    if stopping.asked:
        raise BackendError(say("interrupted"), hint=say("modes_in_report"))
    if any(mode.refused for mode in found.modes):
        return 2
    return min(1, exit_status_of(mode.verdict for mode in found.modes if mode.verdict != BASELINE))


def _choose_reports_folder(outputs: Sequence[Path], spec: RunSpec, marks: str) -> Path:
    """Return the folder of the modes' own reports, beside the first output.

    Raises UsageError or OutputError where that, or an output, cannot be written."""
    known = say("known", known=" ".join(SUFFIXES))
    for output in outputs:
        if output.suffix.lower() not in SUFFIXES:
            raise UsageError(say("no_sweep_format", ending=output.suffix), where=str(output), hint=known)
    refuse_overwriting(outputs, spec, marks)
    folder = outputs[0].with_name(f"{outputs[0].stem}.modes")
    drawn = [output.with_suffix(".svg") for output in outputs if output.suffix.lower() == ".md"]
    for path in (*drawn, *(list_foreign_files(folder, only=("*.json", "*.html")) if folder.is_dir() else ())):
        refuse_foreign(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder of the modes' reports cannot be made: {error.strerror}"
        raise OutputError(what, where=str(folder), hint="name another --output") from error
    return folder


def _deliver(found: Sweep, command: str, outputs: Sequence[Path], language: str) -> Sweep:
    """Write the table to every output; the inputs that each mode's report brought along are of no more use."""
    remove_inputs([_list_written(outputs[0].parent / mode.report) for mode in found.modes if mode.report])
    found = dataclasses.replace(found, command=command)
    for output in outputs:
        write(found, output, language=language)
    return found


_HEADING = Help("which modes, and how are they timed?", "哪些模式，如何计时？")
_FLAGS = (
    make_flag("--run_modes",
         "the modes; MODE+KEY=VALUE gives one its own setting, and may stand beside the plain mode",
         "各模式；MODE+KEY=VALUE 为其单独给出设置，可与不带设置的同一模式并列",
         metavar="MODE", nargs="+", default=[]),
    make_flag("--models", "further files of the same model: a mode runs the first one that it reads",
         "同一模型的其他文件：每种模式运行其能读取的第一个", metavar="FILE", nargs="+", default=[]),
    make_flag("--batch_sizes", "samples a run to time (default: as they are)", "计时时每次运行的样本数（默认原样）",
         metavar="N,…"),
    make_flag("--speed_seconds", "of timed runs each (default 3)", "每种模式计时的秒数（默认 3）", metavar="S",
    type=float,
         default=3.0),
)  # fmt: skip


def _show(found: Sweep, outputs: Sequence[Path], language: str) -> None:
    """The sentences, the table, the files: on a terminal at its width, elsewhere whole, as programs read it."""
    from rich.console import Console
    from rich.text import Text as Styled

    console = Console(highlight=False, soft_wrap=True)
    wide = console.width if console.is_terminal else 0
    for place, said in enumerate(as_text(found, language)):
        for line in wrap_text(make_visible(said), wide) if wide else [make_visible(said)]:
            console.print(Styled(line, style="" if place else "bold"), soft_wrap=True)
    for line in ("", *as_table(found, language, wide), ""):
        console.print(Styled(make_visible(line)), soft_wrap=True)
    for output in outputs:
        console.print(Styled(make_visible(f"{'报告' if language == 'zh' else 'report'}  {output}")), soft_wrap=True)


def _list_written(report: Path) -> list[Path]:
    """Return a mode's reports; the second one is what the sweep's page leads to."""
    return [report, report.with_suffix(".html")]


def _parse_batches(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        sizes = [0]
    if any(size < 1 for size in sizes):
        raise UsageError(f"expects whole numbers such as 1,8,32, got '{text}'", where="--batch_sizes")
    return sizes
