"""What a difference between two reports says, in sentences: what got worse, what got better, who did it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...reasons import Text
from ...records import Culprit
from ...report.blame import said_of
from ...report.difference import Change, Difference, Tensor
from ...report.doubts import worded
from ...report.figures import count, figure
from ...report.summary import VERDICT_NAME
from ...report.words import explained

__all__ = ["CHANGES", "TONE_OF", "errors", "ordered", "ratio", "sentences"]

CHANGES = {
    Change.WORSE: Text("worse", "变差"),
    Change.LOST: Text("no longer compared", "不再比较"),
    Change.GONE: Text("gone", "已消失"),
    Change.BETTER: Text("better", "变好"),
    Change.NEW: Text("newly compared", "新增比较"),
    Change.SAME: Text("same", "不变"),
}
"""Each change in words, in the order in which they matter."""

TONE_OF = {
    Change.WORSE: "bad", Change.LOST: "bad", Change.GONE: "bad", Change.BETTER: "good", Change.NEW: "muted",
    Change.SAME: "",
}  # fmt: skip
"""As in ``section.Cell``."""


def sentences(found: Difference) -> list[Text]:
    """The first one stands alone: whether anything got worse, and what the most."""
    stale = [worded(doubt) for doubt in found.after.doubts if doubt.code == "model_changed"]
    said = [*stale, _first(found)]
    said += [_culprit(Text("New culprit:", "新的元凶："), culprit, found) for culprit in found.fresh]
    said += _output(found)
    said.append(_verdicts(found))
    for one in found.gone:
        said.append(Text(f"No longer a culprit: `{one.name}`.", f"不再是元凶：`{one.name}`。"))
    counted = [(found.counts[change], name) for change, name in CHANGES.items() if found.counts[change]]
    said.append(
        Text(
            "Tensors: " + ", ".join(f"{count(number)} {name.en}" for number, name in counted) + ".",
            "张量：" + "，".join(f"{name.zh} {count(number)}" for number, name in counted) + "。",
        )
    )
    return said


def ordered(found: Difference) -> list[Tensor]:
    """Every tensor that changed: what is worse before what is better, the largest change of a kind first."""
    return [tensor for change in CHANGES if change is not Change.SAME for tensor in found.of(change)]


def errors(tensor: Tensor) -> str:
    """Return both relative L2 errors of a tensor, as "0.0122 -> 0.00094"; "-" where there is none."""
    return " -> ".join("-" if row is None or row.relative_l2 is None else figure(row.relative_l2)
                       for row in (tensor.before, tensor.after))  # fmt: skip


def ratio(tensor: Tensor) -> str:
    """The later error over the earlier one; "" where that says nothing."""
    factor = tensor.ratio
    return "" if factor is None or not factor or not math.isfinite(factor) else f"{factor:.3g} x"


def _first(found: Difference) -> Text:
    worse, better = found.of(Change.WORSE), found.of(Change.BETTER)
    lost = len(found.of(Change.LOST, Change.GONE))
    if found.after.failure:
        why = explained(found.after.failure)
        return Text(
            f"The later run ended early ({why.en}), so nothing is known of what it did not reach.",
            f"较晚的运行提前结束（{why.zh}），未到达之处一无所知。",
        )
    if worse:
        return _most(worse, Text("got worse", "变差"))
    if lost:
        verb, noun = ("is", "tensor") if lost == 1 else ("are", "tensors")
        return Text(
            f"Nothing got worse, but {count(lost)} {noun} {verb} no longer compared.",
            f"没有张量变差，但有 {count(lost)} 个张量不再比较。",
        )
    if found.fresh:
        return Text("No tensor got worse, but there is a new culprit.", "没有张量变差，但出现了新的元凶。")
    if better:
        most = _most(better, Text("got better", "变好"))
        return Text(f"Nothing got worse. {most.en}", f"没有张量变差。{most.zh}")
    return Text("Nothing got worse or better.", "没有变差，也没有变好。")


def _most(some: Sequence[Tensor], became: Text) -> Text:
    worst = some[0]  # what became NaN or Inf is first, and has no ratio
    if "inf" not in errors(worst):
        worst = next((tensor for tensor in some if ratio(tensor)), worst)
    times = f" ({ratio(worst)})" if ratio(worst) else ""
    shi = f"（{ratio(worst)}）" if times else ""
    tensors = "1 tensor" if len(some) == 1 else f"{count(len(some))} tensors"
    name = f"{worst.op_type} `{worst.name}`"
    return Text(
        f"{tensors} {became.en}, {name} the most: {errors(worst).replace('->', 'to')}{times}.",
        f"{count(len(some))} 个张量{became.zh}，变化最大的是 {name}：{errors(worst).replace('->', '到')}{shi}。",
    )


def _output(found: Difference) -> list[Text]:
    """The output that is worst afterwards."""
    rows = [one for one in found.tensors if one.after is not None and one.after.is_output and one.before is not None]
    measured = [one for one in rows if one.after is not None and one.after.relative_l2 is not None]
    worst = max(measured, key=lambda one: (one.after.relative_l2 if one.after is not None else 0) or 0, default=None)
    if worst is None or worst.before is None or worst.after is None or worst.before.relative_l2 is None:
        return []
    now, then = figure(worst.after.relative_l2), figure(worst.before.relative_l2)
    return [
        Text(
            f"The worst output `{worst.name}` is off by {now} (Rel L2), {then} before.",
            f"误差最大的输出 `{worst.name}` 相对 L2 误差为 {now}，之前为 {then}。",
        )
    ]


def _verdicts(found: Difference) -> Text:
    then, now = VERDICT_NAME[found.before.verdict], VERDICT_NAME[found.after.verdict]
    if then == now:
        return Text(f"Verdict: {now.en.lower()}, as before.", f"结论：{now.zh}，与之前相同。")
    return Text(f"Verdict: {now.en.lower()}, before: {then.en.lower()}.", f"结论：{now.zh}，之前：{then.zh}。")


def _culprit(title: Text, culprit: Culprit, found: Difference) -> Text:
    sentence = said_of(found.after, culprit)
    return Text(f"{title.en} {sentence.en}", f"{title.zh}{sentence.zh}")
