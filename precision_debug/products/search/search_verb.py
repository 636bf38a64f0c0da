"""precision_debug search: the smallest set of operators to keep in higher precision, verified and ready to use.

Takes the options of a comparison. Every set that is run is one line of a journal beside the report, so the same command
continues where an earlier one was killed.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import registry
from ...claims import Claim, Judge, State, claims_of_search, exit_status_of, verdict_of_search
from ...cli import compare, summary
from ...cli.option_file import with_file
from ...cli.parser import Help, choose_language, format_error_line, make_flag, parse, program_name
from ...errors import BackendCrash, UsageError
from ...events import Stage, Tried, read
from ...reasons import Text, say
from ...records import RunSpec
from ...report.doubts import describe_doubt
from ...run.companion_files import refuse_overwriting
from ...run.criterion import CheckCommand
from ...run.outcome import Outcome
from ...run.supervisor import supervise
from ...safety.untrusted import make_visible
from ...search.fix import SearchRequest, limit_of
from ...settings import SAVED, without_saving
from ...settings.options import Workers, list_options
from .evaluations import note_crash
from .search_run import EVALUATIONS

__all__ = ["run"]

SUMMARY = "find the smallest set of operators to keep in higher precision, verified and ready to use"
SUMMARY_ZH = "找出应保留为高精度的最小算子集合，加以验证并交付"

DESCRIPTION_ZH = """precision_debug search：应保留为高精度的最小算子集合，经验证后交付。

选项与对比相同。每运行一个集合，报告旁的日志就多一行：再次运行同一命令会从被终止处继续。
"""

_UNUSED = ("gen_script", "plots", *(one.name for one in list_options(Workers)))

_CRASHES = 20
"""New processes after a crash of the engine: each crash is one set that failed."""


def run(arguments: Sequence[str]) -> int:
    """Run the search verb and return its exit status.

    0 where a set was found and verified, or none is needed; 1 where there is none, or it proves nothing; 2 or 3 as
    ever."""
    parser = compare.make_comparison_parser("search", __doc__, DESCRIPTION_ZH, _HEADING, _FLAGS)
    arguments = with_file(parser, "search", arguments, without=(*_UNUSED, "record"))
    args = parse(parser, arguments)
    compare.refuse_unused(args, "search", *_UNUSED)
    _refuse_contradictions(args)
    spec = compare.make_spec(args, command=f"{program_name('search')} {shlex.join(arguments)}")
    if args.record:
        raise UsageError("search does not record runs", where="--record", hint="leave it out")
    outputs = [Path(path) for path in args.output or [compare.DEFAULT_OUTPUT]]
    refuse_overwriting(outputs, spec, args.marks)
    if not spec.metric_drop:
        spec = dataclasses.replace(spec, metric="")  # the search judges by it, with the baseline's outputs for labels
    spec, save = _without_saving(spec)
    compare.check_before(spec, outputs)
    first = outputs[0].absolute()
    asked = SearchRequest(
        on=args.metric or args.on, limit=args.limit, score=bool(args.metric and not spec.metric_drop),
        drop=spec.metric_drop, check=args.check, runs=args.runs, seconds=args.seconds, held_out=args.held_out,
        folder=str(first.with_name(f"{first.stem}.search")),
        artefacts=str(Path(args.artefacts).absolute() if args.artefacts else first.with_name(f"{first.stem}.fix")),
        save=save,
    )  # fmt: skip
    outcome = _search_with_restarts(spec, outputs, asked, args)
    if outcome.report is not None and not args.quiet:
        summary.show(outcome.report, outputs, language=args.lang)
    if outcome.error is not None:
        print(f"precision_debug: {make_visible(format_error_line(outcome.error, args.lang))}", file=sys.stderr)
        return outcome.exit_status
    report = outcome.report
    if report is None:
        return 1
    fix = report.fix
    if fix is not None and fix.state == "not possible" and not args.quiet and registry.list_behind_door("stages"):
        print("which stage brings it:", flush=True)
        climbed = registry.import_from_door("stages", "climbed")
        climbed(spec, on_all=args.on == "all", verbose=args.verbose, language=choose_language(args.lang))
    judge = _judge(args)
    claims = claims_of_search(report, fix, judge)
    if not args.quiet:
        _say_open(claims, args.lang)
    return exit_status_of([verdict_of_search(claims, judge)])


def _judge(args: Any) -> Judge:
    """Return what decides of a set."""
    if args.check:
        return "command"
    if args.metric or args.on not in ("outputs", "all"):
        return "metric"
    return "limit" if args.limit else "tolerance"


def _say_open(claims: Sequence[Claim], language: str) -> None:
    """Why the answer proves less than it seems to, where it would pass otherwise."""
    said = [describe_doubt(claim.why) for claim in claims if claim.state is State.OPEN and claim.why is not None]
    for text in dict.fromkeys(said):
        named = Text(f"not proven: {text.en}", f"未证明：{text.zh}")
        print(make_visible(named.of(choose_language(language))), flush=True)


_HEADING = Help("what has to hold, and for how long is it searched?", "须满足什么，搜索多久？")
_FLAGS = (
    make_flag("--on",
         "what is judged: the outputs, every tensor, the KL of a language model's predictions, or a metric(baseline, "
         "target) of your own (default outputs)",
         "判定对象：输出、每个张量、语言模型预测的 KL 散度，或您自己的 metric(baseline, target)（默认 outputs）",
         metavar="outputs|all|kl|FILE.py:f", default="outputs"),
    make_flag("--limit",
         "largest relative L2 error, or share of the error with nothing kept (default: the tolerance); with --metric "
         "the least that it may give, up to 1, for a target's outputs and the baseline's",
         "最大相对 L2 误差，或占未保留时误差的比例（默认按容差）；与 --metric 合用时为其对目标与基线输出的最低值（不超"
         "过 1）", metavar="X|P%"),
    make_flag("--check", 'a command of your own decides, by its exit status, of each saved model: "python check.py'
    ' {model}"',
         '由您自己的命令以退出码判定每个保存的模型："python check.py {model}"', metavar="COMMAND"),
    make_flag("--held_out", "inputs that only check the answer", "只用于检验结果的输入", metavar="FILE|DIR"),
    make_flag("--runs", "at most so many sets (default 200)", "最多运行的集合数（默认 200）", metavar="N", type=int,
         default=200),
    make_flag("--seconds", "no new set after so long", "超过此秒数后不再运行新集合", metavar="S", type=float,
    default=0.0),
    make_flag("--artefacts", "folder for the results (default: beside the report)", "交付文件的目录（默认在报告旁）",
         metavar="DIR"),
)  # fmt: skip


def _refuse_contradictions(args: Any) -> None:
    """Raises UsageError for options that contradict each other, or themselves."""
    limit_of(args.limit)
    if args.check:
        CheckCommand.of(args.check)
        _refuse_beside(args, ("on", "limit", "held_out"), "the command alone decides", "--check")
    if args.runs < 0 or not 0 <= args.seconds < math.inf:
        raise UsageError("--runs and --seconds must be 0 or greater")
    if args.metric and args.metric_drop:
        others = ["held_out"] if args.labels else []  # whose labels nobody gave
        _refuse_beside(args, ("on", "check", "limit", *others), say("metric_alone"), "--metric")
    elif args.metric:  # of a metric that decides somebody has to say how much
        what = "cannot be combined with labels or a tolerance: the baseline's outputs are its labels"
        _refuse_beside(args, ("on", "check", "labels"), what, "--metric")
        least = limit_of(args.limit)[0]
        if least is None or least > 1:
            raise UsageError("needs the lowest acceptable value, at most 1", where="--metric",
                             hint="add --limit 0.95, or --metric_drop 1%")  # fmt: skip


def _refuse_beside(args: Any, names: Sequence[str], what: str, where: str) -> None:
    for name in names:
        if getattr(args, name) not in (None, "", "outputs"):
            raise UsageError(what, where=where, hint=say("leave_out", option=f"--{name}"))


def _without_saving(spec: RunSpec) -> tuple[RunSpec, dict[str, str]]:
    """Return what a search's sets are run as, and where the user wants what is handed over: no set of them is saved
    there."""
    names = {key: key.removeprefix("target.") for key in spec.options}
    save = {name: str(Path(spec.options[key]).absolute()) for key, name in names.items() if name in SAVED}
    return dataclasses.replace(spec, options=without_saving(spec.options)), save


def _search_with_restarts(spec: RunSpec, outputs: Sequence[Path], asked: SearchRequest, args: Any) -> Outcome:
    """Where an engine takes the process with it, that set fails, and the search goes on in a new process."""
    for _ in range(_CRASHES):
        outcome = supervise(
            spec, outputs, verbose=args.verbose, on_event=_make_progress_listener(args.quiet, args.lang, asked.on),
            asked=asked, language=args.lang,
        )  # fmt: skip
        crashed = isinstance(outcome.error, BackendCrash)
        if not crashed or not note_crash(Path(asked.folder, EVALUATIONS), str(outcome.error)):
            return outcome
        said = f"precision_debug: a set crashed the engine, and counts as failed: {outcome.error}"
        print(make_visible(said), file=sys.stderr)
    return outcome


def _make_progress_listener(quiet: bool, language: str, on: str) -> Callable[[Mapping[str, Any]], None]:
    """Return a listener that prints one line on standard error for each stage and each set. on: see SearchRequest."""
    from ...report.words import reason_text

    language = choose_language(language)
    by = Text("Rel L2", "相对 L2") if on in ("outputs", "all") else Text("metric", "指标")

    def tell(event: Mapping[str, Any]) -> None:
        if quiet or event["event"] not in (Stage.event, Tried.event):
            return
        match read(event):
            case Stage(text=text):
                print(make_visible(f"  {reason_text(text, language)} …"), file=sys.stderr, flush=True)
            case Tried(kept=kept, evaluation=found):
                holds = Text("holds", "成立") if found.passes else Text("fails", "不成立")
                bad = found.text or "NaN or Inf"
                said = bad if found.error is None else f"{by.of(language)} {found.error:.3g}"
                line = Text(f"{kept} kept: {holds.en}, {said}", f"保留 {kept}：{holds.zh}，{said}")
                print(make_visible(f"    {line.of(language)}"), file=sys.stderr, flush=True)

    return tell
