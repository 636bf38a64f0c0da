"""precision_debug roads: do the roads of one language model differ by more than rounding does, and where first?

The same tokens go through the model at once, decoded with its KV cache, in chunks, alone, padded, with another
attention, with lm_head in float32, or in another run mode. Each road is held against float64, and so is the whole batch
at once: a road that is as far from the truth as that one rounds in another order, one that is much farther does not.

    precision_debug roads --model_dir llama --run_mode torch_bf16 --inputs ids.npz --roads decode,padded_left,torch_fp16
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...cli import compare
from ...cli.parser import Help, choose_language, make_flag
from ...report.atomic_file import replace_atomically
from ...run.plan import make_plan
from ...safety.untrusted import make_visible
from .roads_report import ENDINGS, road_lines, write_roads

__all__ = ["run"]

SUMMARY = "a language model decoded, in chunks, alone, padded: more than rounding, and where first?"
SUMMARY_ZH = "语言模型的解码、分块、单独、填充等路径：差异是否超出舍入，首先出现在哪里"

DESCRIPTION_ZH = """precision_debug roads：同一语言模型的各条路径之差是否超出舍入，首先出现在哪里？

同样的词元一次前向、用 KV 缓存解码、分块、单独、填充、换一种注意力、lm_head 用 float32，或换一种运行模式。
各条路径与一次前向都与 float64 对比：离真值同样近，只是舍入顺序不同；远得多，则不是。
"""

def run(arguments: Sequence[str]) -> int:
    """Print a line a road; 0 where each differs by rounding alone, 1 where one does not."""
    args, spec = compare.read_verb("roads", __doc__, DESCRIPTION_ZH, _HEADING, _FLAGS, arguments, endings=ENDINGS)

    from ...run.inputs import load_feeds
    from .roads_report import travel_roads

    plan = make_plan(spec, check_machine=False)
    asked = [word for word in str(args.roads).split(",") if word]
    found = travel_roads(plan.target, load_feeds(spec, plan, ()).feeds[0], asked)
    language = choose_language(args.lang)
    for road in found:
        for line in road_lines(road):
            print(make_visible(line.of(language)))
    for output in map(Path, args.output):
        with replace_atomically(output) as temporary:
            write_roads(found, spec, temporary, output.suffix.lower(), args.lang)
    return int(any(road.differs for road in found))


_HEADING = Help("which roads?", "哪些路径？")
_FLAGS = (
    make_flag("--roads", "which ones, with commas; run modes too (default: every one of this run mode)",
         "哪些路径，以逗号分隔；也可为运行模式（默认：该运行模式的全部路径）", metavar="ROAD,…", default=""),
)  # fmt: skip
