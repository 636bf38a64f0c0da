"""precision_debug --model_file M --run_mode MODE: the main job."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..reasons import say
from ..records import ModelFiles, RunSpec, Tolerance
from ..run.overwriting import refuse_overwriting
from ..run.spreading.asked import Spread
from ..safety.visible import visible
from . import overlaid
from . import verbs as all_verbs
from .engine_options import add_engine_options, engine_options, settings_help
from .language import Both, add_language, in_words, language_of, told
from .parser import Parser, formatter, parse, program

__all__ = ["DEFAULT_OUTPUT", "USAGE", "build_parser", "check_before", "make_spec", "run", "spread_of"]

SUMMARY = "compare two run modes of a model (the default)"

DEFAULT_OUTPUT = "output/output.xlsx"

USAGE = "%(prog)s --model_file M --run_mode MODE [options]"
"""Of each verb that takes these options: a list of all of them would fill the screen before what they are."""

EPILOG = (
    """exit status:
  0  within tolerance (or, where none is given, as expected of the target's arithmetic), every final output compared
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
    """The options, grouped by the question that they answer."""
    verbs = "\n".join(f"  {name:9s} {text}" for name, text in all_verbs().items())
    parser = Parser(
        prog=program(),
        usage=f"{USAGE}\n       %(prog)s VERB --help",
        formatter_class=formatter,
        description="Which operator lost the precision? Runs a model in two modes on the same input, compares every "
        f"intermediate tensor,\nand writes a table.\n\nverbs:\n{verbs}",
        epilog=Both(*(f"{settings}\n{statuses}" for settings, statuses in zip(settings_help(), EPILOG, strict=True))),
        allow_abbrev=False,
    )
    from ..__about__ import __version__

    parser.add_argument("--version", action="version", version=f"precision_debug {__version__}")

    group = parser.add_argument_group("which model?")
    group.add_argument("--model_file", metavar="M", default="", help="the model: .onnx, .pdmodel, .json, .engine, …")
    group.add_argument(
        "--params_file", metavar="P", default="", help="its parameters, where they are a file of their own"
    )
    group.add_argument("--model_dir", metavar="D", default="", help="a folder that holds the model")
    group.add_argument(
        "--baseline_model", metavar="M2", default="", help="the baseline's model, where it is another file"
    )
    group.add_argument("--baseline_params", metavar="P2", default="", help="the parameters of --baseline_model")

    group = parser.add_argument_group("which two runs?")
    group.add_argument(
        "--run_mode", metavar="MODE", default="", help="the target: ort_int8, trt_fp16, … (see `doctor`)"
    )
    group.add_argument(
        "--baseline", metavar="MODE|DIR", default="",
        help="what it is compared with: a run mode, a recorded run, or none, with --validate (default: the unfused FP32"
        " mode)",
    )  # fmt: skip
    group.add_argument(
        "--load_outputs", metavar="FILE.json", default="",
        help="the baseline is what Polygraphy saved with --save-outputs; give its inputs with --inputs",
    )  # fmt: skip
    group.add_argument(
        "--record",
        metavar="DIR",
        default="",
        help="keep the target's tensors, to be a --baseline elsewhere; without --baseline nothing is compared",
    )
    group.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a backend's own setting, see below; baseline.KEY or target.KEY for one side; may be repeated",
    )
    group.add_argument("--use_dynamic_shape", metavar="0|1", default=None, help="build for a range of shapes")
    for which in ("min", "opt", "max"):
        group.add_argument(
            f"--{which}_shapes", metavar="NAME:SHAPE", nargs="+", default=[], help=f"the {which} of that range"
        )

    group = parser.add_argument_group("on which input?")
    group.add_argument(
        "--inputs",
        metavar="FILE|DIR|SCRIPT.py[:f]",
        default="",
        help=".npz, .npy, a folder of them, Polygraphy's JSON, a dataset folder, or a script's function; of many"
        " samples each row is one tensor over all of them (default: seeded random)",
    )
    group.add_argument(
        "--samples_axis", metavar="N", default="", help="the arrays of --inputs hold many samples along this axis"
    )
    group.add_argument("--sample", metavar="N|FROM:TO", default="", help="only this sample, from 0, or these")
    group.add_argument(
        "--input_shapes",
        metavar="NAME:SHAPE",
        nargs="+",
        default=[],
        help="e.g. x:[1,3,224,224], for dynamic dimensions",
    )
    group.add_argument(
        "--val_range", metavar="[NAME:]LOW,HIGH", nargs="+", default=[], help="range of random values (default 0,1)"
    )
    group.add_argument("--seed", metavar="N", type=int, default=0, help="seed of random values (default 0)")
    group.add_argument(
        "--save_inputs", metavar="FILE.json", default="", help="keep what was fed, as Polygraphy's --load-inputs reads"
    )
    group.add_argument(
        "--labels",
        metavar="FILE",
        default="",
        help="class index of each sample (.npy): the report then shows both runs' accuracy",
    )
    group.add_argument(
        "--metric", metavar="FILE.py:f", default="",
        help="a number of your own, from a sample's outputs and labels (any .npy), for both runs",
    )  # fmt: skip

    group.add_argument(
        "--top1",
        action="store_true",
        help="in how many samples both runs have the same first class, without labels too",
    )

    group.add_argument(
        "--top_k", metavar="N", default="", help="the same of the first N classes, in any order; with --labels, too"
    )

    group = parser.add_argument_group(
        "how close is close?", "without any of these a tensor passes where its error is what the target must lose"
    )
    group.add_argument("--atol", metavar="X", type=float, help="absolute tolerance (1e-4 where only --rtol is given)")
    group.add_argument("--rtol", metavar="X", type=float, help="relative tolerance (1e-4 where only --atol is given)")
    group.add_argument(
        "--tolerance_rule", choices=("isclose", "either"), default="isclose",
        help="isclose: |t-b| <= atol + rtol*|b|; either: |t-b| <= atol or <= rtol*|b| (default isclose)",
    )  # fmt: skip
    group.add_argument(
        "--check_error_stat", choices=("elemwise", "max", "mean", "median", "quantile"), default="elemwise",
        help="what must be within tolerance: every element, or a statistic of the error (default elemwise)",
    )  # fmt: skip
    group.add_argument(
        "--error_quantile", metavar="Q", type=float, default=0.99, help="for --check_error_stat quantile (default 0.99)"
    )
    group.add_argument("--equal_nan", action="store_true", help="NaN in the same place on both sides is equal")

    group.add_argument(
        "--validate", action="store_true", help="NaN and Inf are out of tolerance, also where both sides have them"
    )

    group.add_argument(
        "--compare", metavar="FILE.py:f", default="",
        help="a function of your own that decides in their place, from both runs' outputs: true or false, or a dict of"
        " them by output name",
    )  # fmt: skip

    group.add_argument("--fail_fast", action="store_true", help="stop at the first tensor, or sample, that fails")

    group = parser.add_argument_group("how many at once, of many samples?")
    group.add_argument("--jobs", metavar="N", type=int, default=0, help="child processes, each with both sides open")
    group.add_argument("--engine", choices=("", "ray"), default="", help="ray: actors of a Ray cluster, in their place")
    group.add_argument("--address", metavar="A", default="", help="of a Ray cluster (default: one is started here)")
    group.add_argument("--gpus", metavar="X", type=float, default=0.0, help="GPUs of each actor, 0.5 shares one")
    group.add_argument(
        "--checkpoint", metavar="FILE", default="", help="keeps what is finished, for the same command to go on from"
    )

    group = parser.add_argument_group("who did it?")
    group.add_argument(
        "--explain", choices=("off", "fast", "full"), default="fast",
        help="run each operator alone and name the culprits: fast takes about as long as the run, full measures the"
        " effect of every operator (default fast)",
    )  # fmt: skip

    group.add_argument(
        "--repeat", metavar="N", default="",
        help="build and run the target N times: how far its builds are apart, and where that begins",
    )  # fmt: skip

    group = parser.add_argument_group("which tensors?")
    group.add_argument(
        "--mark",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="only these: a name, a glob, or re:REGEX (default: all)",
    )
    group.add_argument("--marks", metavar="FILE", default="", help="names from a file, one a line or a JSON list")
    group.add_argument(
        "--marks_between",
        metavar=("START", "END"),
        nargs=2,
        default=None,
        help="all between two names, in execution order",
    )
    group.add_argument(
        "--marks_from_inspector",
        metavar="GLOB",
        default="",
        help="the fused layers' outputs in engine-inspector JSON files",
    )
    group.add_argument("--fused_only", action="store_true", help="only the outputs of the target's fused layers")
    group.add_argument(
        "--rename",
        metavar="TARGET=BASELINE",
        nargs="+",
        action="extend",
        default=[],
        help="pair tensors whose names differ",
    )

    add_engine_options(parser)

    group = parser.add_argument_group("what comes out?")
    group.add_argument(
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help=f"report; format by suffix, may be repeated (default {DEFAULT_OUTPUT}); explorer:FILE.json, "
        "netron:FILE.onnx, tensorboard:FILE.tfevents: for those viewers; github: adds to a step's summary",
    )
    group.add_argument(
        "--save_outputs", metavar="FILE.json", default="", help="keep both runs' outputs, as --load_outputs reads"
    )
    group.add_argument(
        "--save_tensors", metavar="N", type=int, default=None,
        help="keep the N worst tensors of both sides as .npz beside the report, which links it",
    )  # fmt: skip
    group.add_argument(
        "--memory_budget", metavar="SIZE", default="", help="e.g. 4G: baseline tensors beyond it wait on disk, 0: all"
    )
    group.add_argument(
        "--lockstep",
        choices=("auto", "on", "off"),
        nargs="?",
        const="on",
        default="auto",
        help="both runs advance together and meet at each tensor, so that none waits (default: where both can)",
    )
    group.add_argument(
        "--gen_script",
        metavar="FILE.py",
        default="",
        help="write this command as a script on the API, in place of it",
    )
    group.add_argument(
        "--plots", metavar="N", type=int, nargs="?", const=1, default=0,
        help="draw the N worst tensors in the terminal: values, errors, and errors against magnitudes (1 without N)",
    )  # fmt: skip
    add_language(group)
    group.add_argument("--verbose", action="store_true", help="show what the frameworks print, and tracebacks")
    group.add_argument("--quiet", action="store_true", help="no summary; the exit status and the report tell")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Compare, write the report and the summary, and return the exit status."""
    parser = build_parser()
    if not arguments:
        parser.print_help()
        return 2
    given = parse(parser, arguments)
    spec = make_spec(given, command=f"{program()} {shlex.join(arguments)}")
    wanted, shown = overlaid.asked(given.output)
    outputs = [] if spec.record and not spec.baseline else wanted or [Path(DEFAULT_OUTPUT)]
    refuse_overwriting([*outputs, *shown.values()], spec, given.marks)
    check_before(spec, outputs)
    if given.gen_script:
        from .script import write_script

        refuse_overwriting([given.gen_script], spec, given.marks)
        write_script(given.gen_script, spec, outputs)
        return 0

    from ..run.supervisor import supervise
    from . import progress

    with progress.bar(quiet=given.quiet or given.verbose, language=given.lang) as on_event:
        outcome = supervise(
            spec, outputs, verbose=given.verbose, on_event=on_event, on_note=_note, spread=spread_of(given),
            language=given.lang,
        )  # fmt: skip
    recorded_only = not outputs
    if outcome.report is not None:
        overlaid.write(outcome.report, shown)
    if outcome.report is not None and not given.quiet and not recorded_only:
        from . import summary
        from .plots import show_plots

        summary.show(outcome.report, outputs, language=given.lang)
        if given.plots:
            show_plots(outcome.report, given.plots, language=given.lang)
    if outcome.error is not None:
        print(f"precision_debug: {visible(told(outcome.error, given.lang))}", file=sys.stderr)
        return outcome.exit_status
    if recorded_only:
        if not given.quiet:
            from ..report.words import Text

            mode, model, place = spec.run_mode, spec.model.path, spec.record
            said = Text(
                f"recorded {mode} of {model} in {place}; use it with --baseline {place}",
                f"已将 {model} 的 {mode} 录制到 {place}；用 --baseline {place} 与它比较",
            )
            print(visible(in_words(said, language_of(given.lang))))
        return 0
    return outcome.exit_status


def spread_of(given: argparse.Namespace) -> Spread | None:
    """Several workers, where they are asked for. Raises UsageError."""
    if given.jobs < 0 or given.gpus < 0:
        raise UsageError("--jobs and --gpus are numbers from 0 up")
    if not given.jobs and not given.engine:
        for name in ("address", "gpus", "checkpoint"):
            if getattr(given, name):
                raise UsageError(f"--{name} goes with --engine ray or --jobs", hint="add one of them")
        return None
    for name in ("save_inputs", "save_outputs", "save_tensors", "fail_fast", "repeat"):
        if getattr(given, name):
            raise UsageError("is for one process", where=f"--{name}", hint="leave --jobs and --engine out")
    return Spread(
        jobs=given.jobs, engine=given.engine, address=given.address, gpus=given.gpus, checkpoint=given.checkpoint
    )


def _note(text: str) -> None:
    print(f"precision_debug: {visible(text)}", file=sys.stderr)


def make_spec(given: argparse.Namespace, *, command: str) -> RunSpec:
    """The options as a RunSpec. Raises UsageError."""
    from ..feeds.parse import parse_shapes, parse_val_range

    if not given.run_mode:
        raise UsageError(
            say("no_run_mode"), hint=say("name_the_target")
        )  # fmt: skip
    if not (given.model_file or given.model_dir):
        raise UsageError(say("no_model"), hint=say("name_a_model"))
    plain = Tolerance()
    tolerance = Tolerance(
        atol=plain.atol if given.atol is None else given.atol,
        rtol=plain.rtol if given.rtol is None else given.rtol,
        rule=given.tolerance_rule, check_error_stat=given.check_error_stat,
        quantile=given.error_quantile, equal_nan=given.equal_nan,
        given=(given.atol, given.rtol, given.tolerance_rule, given.check_error_stat)
        != (None, None, plain.rule, plain.check_error_stat),
    )  # fmt: skip
    for name, value in (("--atol", tolerance.atol), ("--rtol", tolerance.rtol)):
        if not 0 <= value < float("inf"):
            raise UsageError(say("no_tolerance", value=value), where=name)
    if not 0 <= tolerance.quantile <= 1:
        raise UsageError(f"a quantile lies from 0 to 1, not at {tolerance.quantile}", where="--error_quantile")
    marks = tuple(given.mark)
    if given.marks:
        from ..pairing.marks import read_marks_file

        marks += tuple(read_marks_file(given.marks))
    options: dict[str, Any] = _options(given.option)
    for which in ("min_shapes", "opt_shapes", "max_shapes"):
        if getattr(given, which):
            options[which] = parse_shapes(getattr(given, which), option=f"--{which}")
    options |= engine_options(given)
    if given.use_dynamic_shape is not None:
        options["use_dynamic_shape"] = given.use_dynamic_shape
    if given.load_outputs:
        from ..recording import is_outputs

        if given.baseline:
            raise UsageError("is a baseline, and so is --baseline", where="--load_outputs", hint="keep one")
        if not is_outputs(given.load_outputs):
            raise UsageError("is no .json file, nor a folder of them", where=f"--load_outputs {given.load_outputs}")
        if not marks and not given.marks_between and not given.marks_from_inspector:
            marks = ("*",)  # of the baseline's tensors: what the file does not hold is not asked for
    for name in (
        "samples_axis",
        "sample",
        "metric",
        "top_k",
        "compare",
        "repeat",
        "save_inputs",
        "save_outputs",
        "fail_fast",
    ):
        if getattr(given, name):
            options[name] = getattr(given, name)
    if given.save_tensors is not None:
        options["save_tensors"] = given.save_tensors
    if given.memory_budget != "":
        options["memory_budget"] = given.memory_budget
    return RunSpec(
        model=ModelFiles(model_file=given.model_file, params_file=given.params_file, model_dir=given.model_dir),
        run_mode=given.run_mode,
        baseline=given.baseline or given.load_outputs,
        baseline_model=_baseline_model(given),
        inputs=given.inputs,
        input_shapes=parse_shapes(given.input_shapes),
        val_range=parse_val_range(given.val_range),
        seed=given.seed,
        tolerance=tolerance,
        marks=marks,
        marks_between=tuple(given.marks_between) if given.marks_between else None,
        marks_from_inspector=given.marks_from_inspector,
        fused_only=given.fused_only,
        renames=dict(_rename(text) for text in given.rename),
        labels=given.labels,
        record=given.record,
        validate=given.validate,
        top1=given.top1,
        explain=given.explain,
        lockstep={"auto": None, "on": True, "off": False}[given.lockstep],
        options=options,
        command=command,
    )


def check_before(spec: RunSpec, outputs: Sequence[Path]) -> None:
    """What can be found wrong without starting a framework."""
    from ..report.formats import endings
    from ..run.plan import make_plan

    for output in outputs:
        if output.suffix.lower() not in endings():
            raise UsageError(
                say("no_format", ending=output.suffix), where=str(output), hint=say("known", known=" ".join(endings()))
            )
        if os.path.isdir(output):  # False for a name that no file can have, which is refused later
            raise UsageError(say("is_a_folder"), where=str(output), hint=say("name_a_report"))
    make_plan(spec, check_machine=False)


def _baseline_model(given: argparse.Namespace) -> ModelFiles | None:
    if not given.baseline_model:
        if given.baseline_params:
            raise UsageError("--baseline_params goes with --baseline_model")
        return None
    if Path(given.baseline_model).is_dir():
        return ModelFiles(model_dir=given.baseline_model)
    return ModelFiles(model_file=given.baseline_model, params_file=given.baseline_params)


def _options(texts: Sequence[str]) -> dict[str, Any]:
    """As written: each setting's declaration says how its value is read."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key or not value:
            raise UsageError(f"'{text}' is no setting", where="--option", hint="write KEY=VALUE")
        if found.setdefault(key, value) != value:
            raise UsageError(f"two values: {found[key]} and {value}", where=f"--option {key}", hint="keep one")
    return found


def _rename(text: str) -> tuple[str, str]:
    target, equals, baseline = text.rpartition("=")
    if not equals or not target or not baseline:
        raise UsageError(say("no_rename", value=text), where="--rename", hint=say("rename_form"))
    return target, baseline
