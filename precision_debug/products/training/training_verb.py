"""precision_debug training: what precision_debug.training() logged: the first step out of its band, and curves.

FOLDER is the one that training(record=…) was given. Of a run of several ranks (DDP, FSDP2) each rank's gradients are
looked at before and after the reduction, too. Exit status 0: no gradient leaves the band of the steps before it, and
no rank is off; 1: one does, or too little was logged to say so (few steps, no gradient at all, not every rank's file).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...claims import status_of
from ...claims.claim import Claim, Verdict, held, opened, refuted, verdict_of
from ...cli.parser import Help, Parser, add_language, formatter, language_of, parse, program
from ...errors import UsageError
from ...recording.rank_log import RankedStep, joined, read_ranks
from ...recording.training_log import StepNumbers, read_log
from ...records import Doubt
from ...report.atomic_file import replacing
from ...report.doubts import worded
from ...safety.untrusted import visible
from .rank_faults import RankFault, first_rank_fault
from .rank_text import missing_text, next_text, rank_table, rank_text
from .training_faults import Departure, first_departure, steps_with_a_band, untrained
from .training_page import departure_text, training_page, untrained_text

__all__ = ["claims_of_training", "run", "verdict_of_training"]


# The claims that a training log makes in which nothing is wrong.

_NEEDED = ("gradients_logged", "steps_enough", "within_band", "ranks_right")


def claims_of_training(
    steps: Sequence[StepNumbers], ranks: Sequence[RankedStep], found: Departure | None, off: RankFault | None
) -> tuple[Claim, ...]:
    """Return the claims that a training log holds, refutes or leaves open.

    steps: of the run, or of all its ranks together. ranks: () of a run of one process. found: the first step out of its
    band. off: what is wrong with the ranks."""
    return tuple(_claims(steps, ranks, found, off))


def verdict_of_training(claims: Sequence[Claim]) -> Verdict:
    """Return the answer of a log."""
    return verdict_of(claims, _NEEDED, asked=True)


def _claims(
    steps: Sequence[StepNumbers], ranks: Sequence[RankedStep], found: Departure | None, off: RankFault | None
) -> Iterator[Claim]:
    numbers = [one for step in steps for one in step.parameters.values()]
    alive = sum(one.norm > 0 or one.broken > 0 for one in numbers)
    if steps and not alive:
        yield opened("gradients_logged", Doubt(code="training_no_gradient", values={"steps": len(steps)}))
    elif steps:
        yield held("gradients_logged", gradients=alive)
    known = steps_with_a_band(steps)
    if known:
        yield held("steps_enough", steps=len(steps), with_a_band=known)
    else:
        yield opened("steps_enough", Doubt(code="training_few_steps", values={"steps": len(steps)}))
    if found is not None:
        yield refuted("within_band", step=found.step, parameter=found.parameter, what=found.what)
    else:
        yield held("within_band", steps=known)
    here = {rank for step in ranks for rank in step.ranks}
    whole = max((step.of for step in ranks), default=0)
    if off is not None:
        yield refuted("ranks_right", step=off.step, parameter=off.parameter, what=off.what)
    elif len(here) < whole:
        yield opened("ranks_right", Doubt(code="training_ranks_missing", values={"here": len(here), "ranks": whole}))
    else:
        yield held("ranks_right", ranks=whole)


SUMMARY = "the log of a training run: the first step out of its band, and curves"
SUMMARY_ZH = "训练过程的记录：首先超出范围的一步，以及曲线"

DESCRIPTION_ZH = """precision_debug training：precision_debug.training() 所保存的训练记录中，首先超出范围的一步。

FOLDER 是 training(record=…) 所给的目录。多个 rank（DDP、FSDP2）的训练还会检查各 rank 归约前后的梯度。
退出码 0：没有梯度超出此前各步的范围，各 rank 均正常；
1：有，或保存的内容不足以判断（步太少、从无梯度、缺少某些 rank 的文件）。
"""


def run(arguments: Sequence[str]) -> int:
    """Print the sentence, and write the page where one is asked for."""
    args = parse(_parser(), arguments)
    language = language_of(args.lang)
    if args.output and Path(args.output).suffix.lower() != ".html":
        raise UsageError("expects an .html file", where=f"--output {args.output}", hint="end the name in .html")
    ranks = read_ranks(args.folder)
    steps = joined(ranks) if ranks else read_log(args.folder)
    found, off = first_departure(steps), first_rank_fault(ranks)
    claims = claims_of_training(steps, ranks, found, off)
    status = status_of([verdict_of_training(claims)])
    said = [departure_text(steps, found)]
    said[:0] = [
        worded(claim.why) for claim in claims
        if claim.code == "gradients_logged" and claim.why is not None
    ]  # fmt: skip
    if ranks:
        about = [missing_text(ranks) or rank_text(ranks, off), next_text(off, args.folder) if off is not None else None]
        said = [*(text for text in about if text is not None), *said]
    if (never := untrained(steps)) is not None:
        said.append(untrained_text(never))
    for text in said:
        print(visible(text.of(language)))
    if args.output:
        path = Path(args.output)
        with replacing(path) as file:
            shown = [step for step in ranks if off is None or step.step == off.step][-1:]
            table = "".join(rank_table(step) for step in shown)
            page = training_page(
                steps, found, about=args.folder, said=said, bad=bool(status), below=table, language=args.lang or ""
            )
            file.write_text(page, encoding="utf-8")
        print(visible(f"  {path}"))
    return status


def _parser() -> Parser:
    """Return what the verb takes."""
    parser = Parser(
        prog=program("training"), formatter_class=formatter, description=Help(__doc__ or "", DESCRIPTION_ZH)
    )
    parser.add_argument(
        "folder", metavar="FOLDER", help=Help("the folder with statistics.jsonl", "含 statistics.jsonl 的目录")
    )
    parser.add_argument("--output", metavar="FILE.html", default="", help=Help("a page of curves", "曲线页面"))
    add_language(parser)
    parser.add_argument("--verbose", action="store_true", help=Help("tracebacks", "显示 traceback"))
    return parser
