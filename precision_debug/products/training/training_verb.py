"""precision_debug training: what precision_debug.training() logged: the first step out of its band, and curves.

FOLDER is the one that training(record=…) was given. Of a run of several ranks (DDP, FSDP2) each rank's gradients are
looked at before and after the reduction, too. Exit status 0: no gradient leaves the band of the steps before it, and
no rank is off; 1: one does, or too little was logged to say so (few steps, no gradient at all, not every rank's file).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...claims import exit_status_of
from ...claims.claim import Claim, Verdict, fold_claims, hold_claim, leave_claim_open, refute_claim
from ...cli.parser import Help, Parser, add_language, choose_language, make_formatter, parse, program_name
from ...errors import UsageError
from ...recording.rank_log import RankedStep, join_shards, read_ranks
from ...recording.training_log import StepNumbers, read_log
from ...records import Doubt
from ...report.atomic_file import replace_atomically
from ...report.doubts import describe_doubt
from ...safety.untrusted import make_visible
from .rank_faults import RankFault, find_first_rank_fault, find_token_weights
from .rank_text import describe_missing, rank_table, rank_text, suggest_next, token_text
from .training_faults import (
    Departure,
    count_steps_with_band,
    find_changes_by_plan,
    find_first_departure,
    find_not_given,
    find_restart,
    find_untrained,
)
from .training_page import (
    describe_changes_by_plan,
    describe_departure,
    describe_not_given,
    describe_restart,
    describe_untrained,
    make_training_page,
)

__all__ = ["claim_training", "fold_training_claims", "run"]


# The claims that a training log makes in which nothing is wrong.

_NEEDED = ("gradients_logged", "steps_enough", "within_band", "ranks_right")


def claim_training(
    steps: Sequence[StepNumbers], ranks: Sequence[RankedStep], found: Departure | None, off: RankFault | None
) -> tuple[Claim, ...]:
    """Return the claims that a training log holds, refutes or leaves open.

    steps: of the run, or of all its ranks together. ranks: () of a run of one process. found: the first step out of its
    band. off: what is wrong with the ranks."""
    return tuple(_claim_on_training(steps, ranks, found, off))


def fold_training_claims(claims: Sequence[Claim]) -> Verdict:
    """Return the answer of a log."""
    return fold_claims(claims, _NEEDED, asked=True)


def _claim_on_training(
    steps: Sequence[StepNumbers], ranks: Sequence[RankedStep], found: Departure | None, off: RankFault | None
) -> Iterator[Claim]:
    numbers = [one for step in steps for one in step.parameters.values()]
    alive = sum(one.norm > 0 or one.broken > 0 for one in numbers)
    if steps and not alive:
        yield leave_claim_open("gradients_logged", Doubt(code="training_no_gradient", values={"steps": len(steps)}))
    elif steps:
        yield hold_claim("gradients_logged", gradients=alive)
    known = count_steps_with_band(steps)
    if known:
        yield hold_claim("steps_enough", steps=len(steps), with_a_band=known)
    else:
        yield leave_claim_open("steps_enough", Doubt(code="training_few_steps", values={"steps": len(steps)}))
    if found is not None:
        yield refute_claim("within_band", step=found.step, parameter=found.parameter, what=found.what)
    else:
        yield hold_claim("within_band", steps=known)
    here = {rank for step in ranks for rank in step.ranks}
    whole = max((step.of for step in ranks), default=0)
    if off is not None:
        yield refute_claim("ranks_right", step=off.step, parameter=off.parameter, what=off.what)
    elif len(here) < whole:
        yield leave_claim_open(
            "ranks_right", Doubt(code="training_ranks_missing", values={"here": len(here), "ranks": whole})
        )
    else:
        yield hold_claim("ranks_right", ranks=whole)


SUMMARY = "the log of a training run: the first step out of its band, and curves"
SUMMARY_ZH = "训练过程的记录：首先超出范围的一步，以及曲线"

DESCRIPTION_ZH = """precision_debug training：precision_debug.training() 所保存的训练记录中，首先超出范围的一步。

FOLDER 是 training(record=…) 所给的目录。多个 rank（DDP、FSDP2）的训练还会检查各 rank 归约前后的梯度。
退出码 0：没有梯度超出此前各步的范围，各 rank 均正常；
1：有，或保存的内容不足以判断（步太少、从无梯度、缺少某些 rank 的文件）。
"""


def run(arguments: Sequence[str]) -> int:
    """Print the sentence, and write the page where one is asked for."""
    args = parse(_make_parser(), arguments)
    language = choose_language(args.lang)
    if args.output and Path(args.output).suffix.lower() != ".html":
        raise UsageError("expects an .html file", where=f"--output {args.output}", hint="end the name in .html")
    ranks = read_ranks(args.folder)
    steps = join_shards(ranks) if ranks else read_log(args.folder)
    found, off = find_first_departure(steps), find_first_rank_fault(ranks)
    claims = claim_training(steps, ranks, found, off)
    status = exit_status_of([fold_training_claims(claims)])
    said = [describe_departure(steps, found)]
    said[:0] = [
        describe_doubt(claim.why) for claim in claims
        if claim.code == "gradients_logged" and claim.why is not None
    ]  # fmt: skip
    if ranks:
        about = [
            describe_missing(ranks) or rank_text(ranks, off),
            suggest_next(off, args.folder) if off is not None else None,
            token_text(weighed) if off is None and (weighed := find_token_weights(ranks)) is not None else None,
        ]
        said = [*(text for text in about if text is not None), *said]
    if (never := find_untrained(steps)) is not None:
        said.append(describe_untrained(never))
    if (unmoved := find_not_given(steps)) is not None:
        said.append(describe_not_given(unmoved))
    if (restart := find_restart(steps)) is not None:
        said.append(describe_restart(restart))
    if (planned := find_changes_by_plan(steps)) is not None:
        said.append(describe_changes_by_plan(planned))
    for text in said:
        print(make_visible(text.of(language)))
    if args.output:
        path = Path(args.output)
        with replace_atomically(path) as file:
            shown = [step for step in ranks if off is None or step.step == off.step][-1:]
            table = "".join(rank_table(step) for step in shown)
            page = make_training_page(
                steps, found, about=args.folder, said=said, bad=bool(status), below=table, language=args.lang or ""
            )
            file.write_text(page, encoding="utf-8")
        print(make_visible(f"  {path}"))
    return status


def _make_parser() -> Parser:
    """Return what the verb takes."""
    parser = Parser(
        prog=program_name("training"), formatter_class=make_formatter, description=Help(__doc__ or "", DESCRIPTION_ZH)
    )
    parser.add_argument(
        "folder", metavar="FOLDER", help=Help("the folder with statistics.jsonl", "含 statistics.jsonl 的目录")
    )
    parser.add_argument("--output", metavar="FILE.html", default="", help=Help("a page of curves", "曲线页面"))
    add_language(parser)
    parser.add_argument("--verbose", action="store_true", help=Help("tracebacks", "显示 traceback"))
    return parser
