"""precision_debug ladder: which optimisation stage of the target causes the mismatch, and what to switch off.

Takes the options of a comparison. Enables the stages one at a time, from everything off up to --run_mode; in the first
one that fails, the passes and operators are bisected to the smallest set that must be off.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...claims import State, claim_stage, exit_status_of, fold_stage_verdicts
from ...cli import compare
from ...cli.parser import Help, choose_language, make_flag
from ...errors import BackendError, PrecisionDebugError, UsageError
from ...explain.ladder import Climb, StageExplanation, Step, climb, explain
from ...protocols import Ladder, Rung, Switch
from ...reasons import Text, say
from ...records import RunSpec, SessionSpec, Status
from ...report.atomic_file import replace_atomically
from ...report.doubts import describe_doubt, error_sentence
from ...report.model import Report
from ...report.words import measure_text_width, reason_text
from ...run.child import was_stopped, watch_signals
from ...run.locked_folder import make_scratch_folder
from ...run.plan import make_plan, make_stage_spec
from ...run.supervisor import supervise
from ...safety.untrusted import make_visible

__all__ = ["climb_stages", "run"]

SUMMARY = "enable an engine's optimisation stages one at a time, and bisect the one that causes the mismatch"
SUMMARY_ZH = "逐级开启引擎的优化，并对引入不一致的一级二分查找"

DESCRIPTION_ZH = """precision_debug ladder：目标的哪一级引入不一致，应关闭什么。

选项与对比相同。从全部关闭逐级升到 --run_mode；对首个不通过的一级，二分查找必须关闭的最小 pass 与算子集合。
"""

_DEFAULT_RUNS = 60

def run(arguments: Sequence[str]) -> int:
    """Print the stages and the explanation, and return the exit status.

    0 where the target passes, 1 where a stage does not, 2 or 3 where the target could not run."""
    args, spec = compare.read_verb(
        "ladder", __doc__, DESCRIPTION_ZH, _HEADING, _FLAGS, arguments, endings=(".json",)
    )  # fmt: skip
    opening = make_plan(spec, check_machine=False).target
    ladder = opening.capabilities.ladder
    if ladder is None:
        raise UsageError(
            f"run mode {spec.run_mode} has no optimisation stages", hint="compare its run modes instead"
        )
    climber = _Climber(spec, on_all=args.on == "all", verbose=args.verbose)
    language = choose_language(args.lang)
    with watch_signals() as stopping:
        found = climb(ladder.rungs(opening.spec), climber.step, _say_step(language))
        explanations = _explain(ladder, opening.spec, found, climber, args.runs, language) if found.failing else []
        if stopping.asked:
            explanations = []
        else:
            _say_end(found, explanations, language)
        if args.output:
            with stopping.finishing("the report is being written"):
                _write(Path(args.output[0]), spec, found, explanations)
    if stopping.asked:
        raise BackendError(say("interrupted"), hint=say("stages_told"))
    if found.exit_status > 1:
        raise _could_not_run(found)
    target = found.steps[-1][1].passes if found.steps else None
    return exit_status_of([fold_stage_verdicts(found.failing.name if found.failing else "", found.not_run, target)])


_HEADING = Help("how far does the ladder go?", "逐级到何处为止？")
_FLAGS = (
    make_flag("--on", "what must be within tolerance: the model's outputs, or every compared tensor (default outputs)",
         "什么须在容差内：模型的输出，或每个比较的张量（默认 outputs）", choices=("outputs", "all"), default="outputs"),
    make_flag("--runs", "runs for each bisection", "每次二分的运行次数", metavar="N", type=int, default=_DEFAULT_RUNS),
)  # fmt: skip


def _could_not_run(found: Climb) -> PrecisionDebugError:
    """Return why the target could not run, for standard error."""
    rung, step = found.steps[-1]
    kind = BackendError if step.exit_status == BackendError.exit_status else UsageError
    return kind(step.text, where=rung.mode)


def climb_stages(spec: RunSpec, *, on_all: bool, verbose: bool, language: str) -> None:
    """Compare the target at each optimisation stage, and print the stages, where its backend has some.

    The coarse answer of a search in which not even everything in high precision holds."""
    opening = make_plan(spec, check_machine=False).target
    if opening.capabilities.ladder is not None:
        climber = _Climber(spec, on_all=on_all, verbose=verbose)
        with watch_signals():
            found = climb(opening.capabilities.ladder.rungs(opening.spec), climber.step, _say_step(language))
        if found.failing is not None:
            brings = Text(f"{found.failing.name} brings it", f"由“{_name_rung(found.failing, 'zh')}”引起")
            print(make_visible(brings.of(language)))


_INTERRUPTED = Step(passes=None, text="interrupted", chinese="被中断", exit_status=BackendError.exit_status)


class _Climber:
    """Runs one stage in a child process, so that an abort is only a stage that could not run."""

    def __init__(self, spec: RunSpec, *, on_all: bool, verbose: bool) -> None:
        self.spec, self.on_all, self.verbose = spec, on_all, verbose

    def step(self, rung: Rung, options: Mapping[str, Any]) -> Step:
        spec = make_stage_spec(self.spec, rung.mode, {**rung.options, **options})
        if was_stopped():
            return _INTERRUPTED
        with make_scratch_folder() as (folder, _):
            outcome = supervise(spec, [folder / "report.json"], verbose=self.verbose)
        if was_stopped():
            return _INTERRUPTED
        if outcome.error is not None or outcome.report is None:
            chinese = reason_text(error_sentence(outcome.error), "zh") if outcome.error is not None else ""
            return Step(passes=None, text=str(outcome.error), chinese=chinese, exit_status=outcome.exit_status or 3)
        return self._judge(outcome.report)

    def bisected(self, rung: Rung, switches: Sequence[Switch]) -> StageExplanation | None:
        """Return what one child finds that builds the target again and again, in place of a child for each build."""
        if was_stopped():
            return None
        spec = dataclasses.replace(make_stage_spec(self.spec, rung.mode, rung.options), find_pass=True)
        with make_scratch_folder() as (folder, _):
            report = supervise(spec, [folder / "report.json"], verbose=self.verbose).report
        found = report.explanation.culprits if report is not None and report.explanation is not None else ()
        for evidence in (one.evidence for one in found if "passes" in one.evidence):
            off = tuple(str(evidence["passes"]).split(" and "))
            switch = next((one for one in switches if {*off} <= {*one.items}), None)
            if switch is not None:
                return StageExplanation(switch=switch, off=off, found=True, minimal=True, runs=int(evidence["runs"]))
        return None

    def _judge(self, report: Report) -> Step:
        from ...cli.summary import describe_row

        rows = [row for row in report.rows if row.comparison is not None and (self.on_all or row.is_output)]
        if not rows:
            return Step(passes=None, text="nothing could be compared", chinese="没有可对比的张量", exit_status=1)
        types = tuple(dict.fromkeys(row.target_op_type for row in report.rows if row.target_op_type))
        claims = claim_stage(report, outputs_only=not self.on_all)
        refuted = [claim for claim in claims if claim.state is State.REFUTED]
        unknown = next((claim.why for claim in claims if claim.state is State.OPEN and claim.why is not None), None)
        if unknown is not None and not refuted:  # it would pass whatever it holds, which is not a pass
            sentence = describe_doubt(unknown)
            said = Text(f"inconclusive: {sentence.en}", f"无法下结论：{sentence.zh}")
            return Step(passes=None, text=said.en, chinese=said.zh, op_types=types, exit_status=1)
        wrong = next((row for row in rows if row.status is Status.FAIL), None)
        why = next((claim.why for claim in refuted if claim.why is not None), None)
        if wrong is None and why is not None:
            sentence = describe_doubt(why)
            return Step(passes=False, text=sentence.en, chinese=sentence.zh, op_types=types)
        worst = max(rows, key=lambda row: (row.comparison.max_abs or 0.0) if row.comparison else 0.0)
        sentence = describe_row(wrong or worst)
        return Step(passes=not refuted, text=sentence.en, chinese=sentence.zh, op_types=types)


def _explain(
    ladder: Ladder, spec: SessionSpec, found: Climb, climber: _Climber, runs: int, language: str
) -> list[StageExplanation]:  # fmt: skip
    rung, step = next((rung, step) for rung, step in found.steps if step.passes is False)
    session = dataclasses.replace(spec, mode=rung.mode)
    before = next((step.passes for other, step in reversed(found.steps) if other is not rung), None)
    explanations = []
    switches = ladder.switches(session, rung, step.op_types)
    if any(switch.quick for switch in switches) and not climber.on_all and not climber.spec.tolerance.given:
        quickly = climber.bisected(rung, switches)
        if quickly is not None:
            return [quickly]
    for switch in switches:
        if switch.needs:
            cannot = Text(f"cannot be switched off here, as {switch.needs}", f"无法在此关闭：{switch.needs}")
            print(make_visible(f"{switch.name}: {cannot.of(language)}"))
            continue
        number = len(switch.items)
        doing = Text(f"bisecting {number} {switch.name} …", f"二分 {number} 项 {switch.name} …")
        print(doing.of(language), file=sys.stderr)
        explanations.append(
            explain(
                switch,
                lambda options: climber.step(rung, options).passes is True,
                budget=runs,
                # the stage before is this one with every operator in FP32
                all_off_passes=bool(before) and "bfloat16" in switch.name,
            )
        )
        if explanations[-1].found:
            break
    return explanations


def _say_step(language: str) -> Callable[[Rung, Step], None]:
    def tell(rung: Rung, step: Step) -> None:
        unknown = step.passes is None and step.exit_status == 1
        verdict = (_UNKNOWN if unknown else _VERDICTS[step.passes]).of(language)
        settings = "".join(f" {key}={value}" for key, value in rung.options.items())
        where = f"{_name_rung(rung, language)} ({rung.mode}{settings}): {_describe_step(step, language)}"
        print(make_visible(f"{verdict}{' ' * (8 - measure_text_width(verdict))} {where}"), flush=True)

    return tell


_VERDICTS = {True: Text("pass", "通过"), False: Text("FAIL", "超差"), None: Text("not run", "未运行")}
_UNKNOWN = Text("unknown", "未知")
_NAMES = {
    "everything off": "全部关闭", "fusions": "融合", "passes": "pass", "memory optimisation": "内存优化",
    "TensorRT in FP32": "FP32 的 TensorRT",
}  # fmt: skip


def _name_rung(rung: Rung, language: str) -> str:
    return _NAMES.get(rung.name, rung.name) if language == "zh" else rung.name


def _describe_step(step: Step, language: str) -> str:
    return (step.chinese or step.text) if language == "zh" else step.text


def _say_end(found: Climb, explanations: Sequence[StageExplanation], language: str) -> None:
    def tell(en: str, zh: str) -> None:
        print(make_visible(Text(en, zh).of(language)))

    if found.failing is None:
        left = found.not_run
        if not left:
            tell("no stage exceeds the tolerance", "没有阶段超出容差")
        elif found.exit_status == 0:
            tell(f"no stage that was judged exceeds the tolerance; not judged: {', '.join(left)}",
                 f"已判定的阶段均未超出容差；未判定：{'、'.join(left)}")  # fmt: skip
        else:
            rung, step = found.steps[-1]
            ran, why = step.exit_status == 1, _describe_step(step, "zh")
            tell(f"nothing is known of {rung.mode}: " + (step.text if ran else f"it could not run ({step.text})"),
                 f"对 {rung.mode} 一无所知：" + (why if ran else f"无法运行（{why}）"))  # fmt: skip
        return
    if not explanations:
        tell(f"{found.failing.name} brings it; `precision_debug search` with the same options finds the operators",
             f"由“{_name_rung(found.failing, 'zh')}”引起；"
             "以相同选项运行 `precision_debug search` 可找出算子")  # fmt: skip
    for item in explanations:
        name, runs = item.switch.name, item.runs
        if not item.found:
            number = len(item.switch.items)
            tell(f"{name}: none of the {number} explains it ({runs} runs)",
                 f"{name}：{number} 项均不能解释（运行 {runs} 次）")  # fmt: skip
            continue
        kept = "" if item.minimal else f", perhaps fewer: the {runs} runs were used up"
        keyi = "" if item.minimal else "，或可更少：次数已用完"
        off = " ".join(item.off)
        tell(f"{name}: it passes with {off} off ({runs} runs{kept})",
             f"{name}：关闭 {off} 后通过（运行 {runs} 次{keyi}）")  # fmt: skip
        print("\n" + make_visible(item.snippet, keep="\n"))


def _write(path: Path, spec: RunSpec, found: Climb, explanations: Sequence[StageExplanation]) -> None:
    plain = {
        "command": spec.command,
        "stages": [{**dataclasses.asdict(rung), **dataclasses.asdict(step)} for rung, step in found.steps],
        "failing": found.failing.name if found.failing else "",
        "explanations": [
            {
                "what": item.switch.name, "found": item.found, "off": item.off, "minimal": item.minimal,
                "runs": item.runs, "snippet": item.snippet,
            }
            for item in explanations
        ],
    }  # fmt: skip
    with replace_atomically(path) as temporary:
        temporary.write_text(json.dumps(plain, indent=1, default=list) + "\n", encoding="utf-8")
