"""precision_debug --model_file M --run_mode MODE: the main job."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import UsageError
from ..reasons import Text, say
from ..records import ModelFiles, RunSpec
from ..run.companion_files import refuse_overwriting
from ..safety.untrusted import make_visible
from ..settings.options import DEFAULT_OUTPUT, GROUPS, OPTIONS, Workers, list_options, spec_of
from . import completion, overlay_outputs
from . import verbs as all_verbs
from .engine_options import add_engine_options, engine_options, settings_help
from .option_file import with_file
from .parser import (
    Flag,
    Help,
    Parser,
    add_flags,
    add_options,
    choose_language,
    format_error_line,
    given_options,
    make_formatter,
    parse,
    program_name,
)

__all__ = [
    "DEFAULT_OUTPUT",
    "USAGE",
    "build_parser",
    "check_before",
    "make_comparison_parser",
    "make_spec",
    "read_verb",
    "refuse_unused",
    "run",
    "workers_of",
]  # fmt: skip

SUMMARY = "compare two run modes of a model (the default)"
SUMMARY_ZH = "比较一个模型的两种运行模式（默认）"

USAGE = "%(prog)s --model_file M --run_mode MODE [options]"
"""Of each verb that takes these options: a list of all of them would fill the screen before what they are."""

_DESCRIPTION = (
    "Which operator lost the precision? Runs a model in two modes on the same input, compares every intermediate"
    " tensor,\nand writes a table.\n\nverbs:",
    "哪个算子损失了精度？以同一输入在两种模式下运行模型，比较每一个中间张量，\n并写成表格。\n\n子命令：",
)
EPILOG = (
    """exit status:
  0  within tolerance (or, if none is given, as expected of the target's arithmetic), every final output compared
  1  a difference exceeds the tolerance, or the result is inconclusive
  2  the command or its input is wrong, or the run mode cannot run here
  3  a backend crashed or was interrupted; the partial report was written
""",
    """退出码：
  0  在容差内（未给出容差时：符合目标运算的预期），且所有最终输出均已比较
  1  有差异超出容差，或无法下结论
  2  命令或输入有误，或该运行模式无法在此运行
  3  后端崩溃或被中断；已写出部分报告
""",
)
"""In English and Chinese."""


def build_parser() -> Parser:
    """Return the options of RunSpec, of several workers, of this command line and of the backends, by what they
    answer."""
    from ..__about__ import __version__

    parser = Parser(
        prog=program_name(),
        usage=f"{USAGE}\n       %(prog)s VERB --help",
        formatter_class=make_formatter,
        description=Help(*(f"{text}\n{_format_verbs(place)}" for place, text in enumerate(_DESCRIPTION))),
        epilog=Help(*(f"{settings}\n{statuses}" for settings, statuses in zip(settings_help(), EPILOG, strict=True))),
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"precision_debug {__version__}")
    for group in GROUPS:
        if group == "out":
            add_engine_options(parser, reserved={one.name for one in OPTIONS})
        add_options(parser, (one for one in OPTIONS if one.group == group))
    parser.set_defaults(options_from="")
    return parser


def make_comparison_parser(
    verb: str, text: str | None, zh: str, heading: Help, flags: Iterable[Flag], *, usage: str = USAGE
) -> Parser:
    """Of a verb that takes the options of a comparison, and below a heading some of its own."""
    parser = build_parser()
    parser.prog, parser.description, parser.usage = program_name(verb), Help(text or "", zh), usage
    add_flags(parser.add_argument_group(heading), flags)
    return parser


_OF_ONE_RUN = (
    "gen_script", "plots", "record", "save_inputs", "save_outputs", "save_tensors", "repeat", "jobs", "engine",
    "address", "gpus", "checkpoint",
)  # fmt: skip
"""Options of a comparison that mean nothing where several runs are judged and one file is written."""


def read_verb(
    verb: str, text: str | None, zh: str, heading: Help, flags: Iterable[Flag], arguments: Sequence[str], *,
    endings: Sequence[str],
) -> tuple[argparse.Namespace, RunSpec]:  # fmt: skip
    """Read the arguments of a verb that judges several runs and writes files of its own, with these endings.

    Raises UsageError."""
    parser = make_comparison_parser(verb, text, zh, heading, flags)
    arguments = with_file(parser, verb, arguments, without=(*_OF_ONE_RUN, "output"))
    args = parse(parser, arguments)
    refuse_unused(args, verb, *_OF_ONE_RUN)
    spec = make_spec(args, command=shlex.join([program_name(verb), *arguments]))
    for path in args.output:
        if Path(path).suffix.lower() not in endings:
            raise UsageError(f"{verb} only writes {', '.join(endings)}", where=path)
    refuse_overwriting(args.output, spec, args.marks)
    return args, spec


def _format_verbs(place: int) -> str:
    return "\n".join(f"  {name:9s} {error_line[place]}" for name, error_line in all_verbs().items())


def run(arguments: Sequence[str]) -> int:
    """Compare, write the report and the summary, and return the exit status."""
    parser = build_parser()
    arguments = with_file(parser, "compare", arguments)
    if not arguments and not completion.is_completion_asked():
        parser.print_help()
        raise UsageError(say("no_model"), hint=say("name_a_model"))
    args = parse(parser, arguments, verbs=tuple(all_verbs()))
    spec = make_spec(args, command=f"{program_name()} {shlex.join(arguments)}")
    wanted, shown = overlay_outputs.split_outputs(args.output)
    outputs = [] if spec.record and not spec.baseline else wanted or [Path(DEFAULT_OUTPUT)]
    overlay_outputs.refuse(outputs, shown, spec, args.marks)
    check_before(spec, outputs)
    if args.gen_script:
        refuse_overwriting([args.gen_script], spec, args.marks)
        registry.import_from_door("options", "gen_script")(args.gen_script, spec, outputs)
        return 0

    from ..run.supervisor import supervise
    from . import progress

    with progress.show_progress(quiet=args.quiet or args.verbose, language=args.lang) as on_event:
        outcome = supervise(
            spec, outputs, verbose=args.verbose, on_event=on_event, on_note=_note, spread=workers_of(args),
            language=args.lang,
        )  # fmt: skip
    if outcome.report is not None:
        overlay_outputs.write(outcome.report, shown)
        from ..report.formats.md import make_annotation

        if said := make_annotation(outcome.report, language=choose_language(args.lang)):
            print(make_visible(said))
        if outputs and not args.quiet:
            from . import summary

            summary.show(outcome.report, outputs, language=args.lang)
            if args.plots:
                registry.import_from_door("options", "plots")(outcome.report, args.plots, language=args.lang)
    if outcome.error is not None:
        print(f"precision_debug: {make_visible(format_error_line(outcome.error, args.lang))}", file=sys.stderr)
        return outcome.exit_status
    if outputs:
        return outcome.exit_status
    if not args.quiet:
        print(make_visible(_describe_recording(spec, choose_language(args.lang))))
    return 0


def _describe_recording(spec: RunSpec, language: str) -> str:

    mode, model, place = spec.run_mode, spec.model.path, spec.record
    said = Text(
        f"recorded {mode} of {model} in {place}; use it with --baseline {place}",
        f"已将 {model} 的 {mode} 录制到 {place}；用 --baseline {place} 与它比较",
    )
    return said.of(language)


def workers_of(args: argparse.Namespace) -> Workers | None:
    """Return the settings of several workers, where they are asked for. Raises UsageError."""
    asked = given_options(args, list_options(Workers))
    if not asked.get("jobs") and not asked.get("engine"):
        for name in asked:
            if name not in ("jobs", "engine"):
                raise UsageError(say("needs_workers", option=f"--{name}"), hint=say("add_one"))
        return None
    for one in list_options(RunSpec):
        if "workers" in one.not_with and given_options(args, [one]):
            raise UsageError("only works in one process", where=one.option, hint="leave --jobs and --engine out")
    return Workers(**asked)


def _note(text: str) -> None:
    print(f"precision_debug: {make_visible(text)}", file=sys.stderr)


def _are_both_recordings(values: Mapping[str, Any]) -> bool:
    """Return whether both sides are recordings, or dumps: then nothing runs."""
    from ..recording import is_recording
    from ..run.plan import find_side

    sides = [str(values.get(name) or "") for name in ("run_mode", "baseline")]
    return all(os.path.isdir(side) and (is_recording(side) or find_side(side) is not None) for side in sides)


def make_spec(args: argparse.Namespace, *, command: str) -> RunSpec:
    """Return the options as a RunSpec. Raises UsageError."""
    table = list_options(RunSpec)
    values, options = given_options(args, table), _parse_options(args.option)
    for one in table:
        if one.name in options:  # an option of ours is not a backend's setting, however it was given
            value = one.read(options.pop(one.name), f"--option {one.name}")
            if values.setdefault(one.name, value) != value:
                raise UsageError(say("given_twice"), where=one.option, hint=say("keep_one"))
    if not values.get("run_mode"):
        raise UsageError(say("no_run_mode"), hint=say("name_the_target"))
    if not (values.get("model_file") or values.get("model_dir")) and not _are_both_recordings(values):
        raise UsageError(say("no_model"), hint=say("name_a_model"))
    marks = values.get("marks", ())
    if args.marks:
        from ..pairing.marks import read_marks_file

        marks += tuple(read_marks_file(args.marks))
    if args.load_outputs:
        from ..recording import is_outputs

        if values.get("baseline"):
            raise UsageError(say("exclusive", one="--load_outputs", other="--baseline"), hint=say("keep_one"))
        if not Path(args.load_outputs).exists():
            raise UsageError(say("no_such_inputs"), where=f"--load_outputs {args.load_outputs}")
        if not is_outputs(args.load_outputs):
            raise UsageError("is not a .json file, nor a folder of them", where=f"--load_outputs {args.load_outputs}")
        values["baseline"] = args.load_outputs
        if not marks and not args.marks_between and not args.marks_from_inspector:
            marks = ("*",)  # of the baseline's tensors: what the file does not hold is not asked for
    return spec_of(
        values | {"marks": marks}, baseline_model=_baseline_model(args), options=options | engine_options(args),
        command=command, options_from=args.options_from,
    )  # fmt: skip


def refuse_unused(args: argparse.Namespace, verb: str, *names: str, hint: str = "") -> None:
    """Raise UsageError for an option that was given to a verb which does nothing with it."""
    for one in OPTIONS:
        if one.name in names and getattr(args, one.spelled or one.name) not in (None, one.default):
            raise UsageError(say("verb_without_use", verb=verb), where=one.option, hint=hint or say("leave_it_out"))


def check_before(spec: RunSpec, outputs: Sequence[Path]) -> None:
    """Check what can be found wrong without starting a framework."""
    from ..report.formats import list_endings
    from ..run.plan import make_plan

    for output in outputs:
        if os.path.isdir(output):  # False for a name that no file can have, which is refused later
            raise UsageError(say("is_a_folder"), where=str(output), hint=say("name_a_report"))
        if output.suffix.lower() not in list_endings():
            raise UsageError(
                say("no_format", ending=output.suffix),
                where=str(output),
                hint=say("known", known=" ".join(list_endings())),
            )
    make_plan(spec, check_machine=False)


def _baseline_model(args: argparse.Namespace) -> ModelFiles | None:
    if not args.baseline_model:
        if args.baseline_params:
            raise UsageError("--baseline_params requires --baseline_model")
        return None
    if Path(args.baseline_model).is_dir():
        return ModelFiles(model_dir=args.baseline_model)
    return ModelFiles(model_file=args.baseline_model, params_file=args.baseline_params)


def _parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """As written: each setting's declaration says how its value is read."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key or not value:
            raise UsageError(say("no_pair", value=text), where="--option")
        if found.setdefault(key, value) != value:
            raise UsageError(f"given twice: {found[key]} and {value}", where=f"--option {key}", hint="keep one of them")
    return found
