"""precision_debug roads: do the roads of one language model differ by more than rounding does, and where first?

The same tokens go through the model at once, decoded with its KV cache, in chunks, alone, padded, with another
attention, with lm_head in float32, or in another run mode. Each road is held against float64, and so is the whole batch
at once: a road that is as far from the truth as that one rounds in another order, one that is much farther does not.

    precision_debug roads --model_dir llama --run_mode torch_bf16 --inputs ids.npz --roads decode,padded_left,torch_fp16
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...cli import compare
from ...cli.language import Help, language_of
from ...cli.option_file import with_file
from ...cli.parser import flag, parse, program
from ...errors import UsageError
from ...reasons import Text
from ...report.atomic_file import replacing
from ...report.figures import figure
from ...run.overwriting import refuse_overwriting
from ...run.plan import make_plan
from ...safety.visible import visible

__all__ = ["run"]

SUMMARY = "a language model decoded, in chunks, alone, padded: more than rounding, and where first?"
SUMMARY_ZH = "语言模型的解码、分块、单独、填充等路径：差异是否超出舍入，首先出现在哪里"

DESCRIPTION_ZH = """precision_debug roads：同一语言模型的各条路径之差是否超出舍入，首先出现在哪里？

同样的词元一次前向、用 KV 缓存解码、分块、单独、填充、换一种注意力、lm_head 用 float32，或换一种运行模式。
各条路径与一次前向都与 float64 对比：离真值同样近，只是舍入顺序不同；远得多，则不是。
"""

_UNUSED = (
    "gen_script", "plots", "record", "save_inputs", "save_outputs", "save_tensors", "repeat", "jobs", "engine",
    "address", "gpus", "checkpoint",
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    """Print a line a road; 0 where each differs by rounding alone, 1 where one does not."""
    parser = compare.verb_parser("roads", __doc__, DESCRIPTION_ZH, _HEADING, _FLAGS)
    arguments = with_file(parser, "roads", arguments, without=(*_UNUSED, "output"))
    args = parse(parser, arguments)
    compare.refuse_unused(args, "roads", *_UNUSED)
    spec = compare.make_spec(args, command=shlex.join([program("roads"), *arguments]))
    if any(Path(path).suffix != ".json" for path in args.output):
        raise UsageError("roads only writes .json", where=args.output[0])
    refuse_overwriting(args.output, spec, args.marks)

    from ...run.inputs import feeds_of
    from ...run.roads import travelled

    plan = make_plan(spec, check_machine=False)
    asked = [word for word in str(args.roads).split(",") if word]
    found = travelled(plan.target, feeds_of(spec, plan, ()).feeds[0], asked)
    language = language_of(args.lang)
    for road in found:
        for line in _lines(road):
            print(visible(line.of(language)))
    if args.output:
        plain = {"command": spec.command, "roads": [dataclasses.asdict(road) for road in found]}
        with replacing(Path(args.output[0])) as temporary:
            temporary.write_text(json.dumps(_finite(plain), indent=1) + "\n", encoding="utf-8")
    return int(any(road.differs for road in found))


_HEADING = Help("which roads?", "哪些路径？")
_FLAGS = (
    flag("--roads", "which ones, with commas; run modes too (default: every one of this run mode)",
         "哪些路径，以逗号分隔；也可为运行模式（默认：该运行模式的全部路径）", metavar="ROAD,…", default=""),
)  # fmt: skip


def _lines(road: Any) -> list[Text]:
    mean, most = figure(road.mean_abs), figure(road.max_abs)
    numbers = Text(
        f"log-probabilities differ by {mean} in the mean, {most} at most; logits are {figure(road.error)} from float64,"
        f" at once {figure(road.base_error)}",
        f"对数概率平均相差 {mean}，最大 {most}；logits 距 float64 {figure(road.error)}，"
        f"一次前向为 {figure(road.base_error)}",
    )
    if not road.differs:
        return [Text(f"{road.name:12s} rounding alone: {numbers.en}", f"{road.name:12s} 仅为舍入：{numbers.zh}")]
    first = Text(
        f"  first at `{road.first}`, token {road.place} of row {road.row}: {figure(road.first_error)} from float64, at"
        f" once {figure(road.first_base)}",
        f"  首先出现在 `{road.first}`，第 {road.row} 行第 {road.place} 个词元：距 float64 {figure(road.first_error)}，"
        f"一次前向为 {figure(road.first_base)}",
    )
    return [Text(f"{road.name:12s} MORE THAN ROUNDING: {numbers.en}", f"{road.name:12s} 超出舍入：{numbers.zh}"), first]


def _finite(plain: Any) -> Any:
    """Strict JSON has no NaN and no infinity."""
    if isinstance(plain, Mapping):
        return {key: _finite(value) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_finite(value) for value in plain]
    return str(plain) if isinstance(plain, float) and plain - plain != 0 else plain
