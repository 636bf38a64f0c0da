"""What the ranks of a training run did wrong, in a sentence, and each rank's gradients of that step as a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ...reasons import Text
from ...recording.rank_log import GradientNumbers, RankedStep
from ...report.blame import name_ranks
from ...report.formats.html.text import both_languages, escape_html
from ...report.words import format_figure
from .rank_faults import RankFault, TokenWeights

__all__ = ["describe_missing", "rank_table", "rank_text", "suggest_next", "token_text"]

_ROWS = 200
"""Parameters of the table."""


def rank_text(steps: Sequence[RankedStep], found: RankFault | None) -> Text:
    """One sentence: the first step at which the ranks are wrong, or that none is."""
    if found is None:
        return Text(
            f"No rank of {_number_of_ranks(steps)} is off in the {len(steps)} logged steps: each gradient after the"
            f" reduction is a"
            " mean of the ranks'.",
            f"在保存的 {len(steps)} 个步中，{_number_of_ranks(steps)} 个 rank 均正常：归约后的梯度是各 rank 的平均值。",
        )
    said = _describe_fault(found)
    if found.what in ("same_batch", "scale"):  # of inputs
        return Text(f"Step {found.step}: {said.en}.", f"第 {found.step} 步：{said.zh}。")
    skipped_en = " GradScaler skipped the optimiser's step." if found.skipped else ""
    skipped_zh = "GradScaler 跳过了该步的优化器更新。" if found.skipped else ""
    return Text(
        f"Step {found.step}: {said.en} (parameters affected: {found.parameters}).{skipped_en}",
        f"第 {found.step} 步：{said.zh}（受影响的参数：{found.parameters} 个）。{skipped_zh}",
    )


def token_text(found: TokenWeights) -> Text:
    """One sentence: how the reduction weighs ranks of other numbers of tokens, and what that asks of their losses."""
    tokens = ", ".join(map(str, found.tokens))
    weights = ", ".join(format_figure(one) for one in found.weights)
    sentences = {
        "alike": Text(
            f"Step {found.step}: the ranks have {tokens} tokens, and the reduction weighs their gradients alike. This"
            " is right if each rank's loss is the sum over its tokens, divided by the mean number of them over the"
            " ranks; if it is the mean over its own tokens, those of the shorter ranks count more",
            f"第 {found.step} 步：各 rank 的 token 数为 {tokens}，而归约对其梯度等权平均。"
            "若各 rank 的损失为本地 token 之和除以各 rank token 数的平均值，则正确；"
            "若为本地 token 的平均值，则 token 较少的 rank 权重偏大",
        ),
        "by_tokens": Text(
            f"Step {found.step}: the reduction weighs the ranks by their tokens ({tokens})",
            f"第 {found.step} 步：归约按各 rank 的 token 数（{tokens}）加权",
        ),
        "other": Text(
            f"Step {found.step}: the reduction weighs the ranks by {weights}, which is neither alike nor their share of"
            f" the tokens ({tokens})",
            f"第 {found.step} 步：归约对各 rank 的权重为 {weights}，既非等权，也不是其 token 数（{tokens}）所占的比例",
        ),
    }
    said = sentences[found.what]
    return Text(f"{said.en}.", f"{said.zh}。")


def _number_of_ranks(steps: Sequence[RankedStep]) -> int:
    return max((step.of for step in steps), default=0)


def _describe_fault(found: RankFault) -> Text:
    who = name_ranks(found.ranks)
    name, value = f"`{found.parameter}`", format_figure(found.value)
    sentences = {
        "broken": Text(
            f"the gradient of {name} has {value} elements that are NaN or Inf on {who.en} alone, before the reduction,"
            " which brings them to every rank",
            f"归约前只有 {who.zh} 上 {name} 的梯度有 {value} 个元素为 NaN 或 Inf，归约将其带到所有 rank",
        ),
        "reduction_broken": Text(
            f"the gradient of {name} is finite on every rank, and {value} of its elements are NaN or Inf after the"
            " reduction, which overflows: reduce in float32",
            f"{name} 的梯度在每个 rank 上均为有限值，归约后却有 {value} 个元素为 NaN 或 Inf：归约溢出，"
            "请用 float32 归约",
        ),
        "unused": Text(
            f"{who.en} has no gradient of {name}, because its loss does not depend on it; the mean counts it as 0",
            f"{who.zh} 没有 {name} 的梯度（其损失不依赖该参数），平均时按 0 计",
        ),
        "weights": Text(
            f"the ranks do not hold the same parameters: {name} of {who.en} differs from the first rank's",
            f"各 rank 的参数不一致：{who.zh} 的 {name} 与第一个 rank 不同",
        ),
        "sum": Text(
            f"the reduction adds the ranks' gradients up where it should average: that of {name} is {value} times the"
            " mean. Divide it by the number of ranks",
            f"归约求和而未取平均：{name} 的梯度是平均值的 {value} 倍。请除以 rank 数",
        ),
        "factor": Text(
            f"after the reduction, the gradient of {name} is {value} times the mean of the ranks'",
            f"归约后 {name} 的梯度是各 rank 平均值的 {value} 倍",
        ),
        "left_out": Text(
            f"the reduction leaves {who.en} out: nothing of that gradient of {name} is in the result",
            f"归约漏掉了 {who.zh}：结果中不含其 {name} 的梯度",
        ),
        "apart": Text(
            f"after the reduction, {who.en} has another gradient of {name} than the first rank: it was not reduced"
            " there",
            f"归约后 {who.zh} 的 {name} 梯度与第一个 rank 不同：该处未归约",
        ),
        "reduction": Text(
            f"after the reduction, the gradient of {name} is not the mean of the ranks', nor a sum of them with any"
            " factors",
            f"归约后 {name} 的梯度不是各 rank 的平均值，也不是各 rank 按固定系数之和",
        ),
        "rounded": Text(
            f"the reduction rounds: before it each rank's gradient of {name} has more digits, and after it only those"
            f" of {found.type}. Reduce in float32, unless this is meant",
            f"归约做了舍入：归约前各 rank 上 {name} 的梯度精度更高，归约后只有 {found.type} 的精度。"
            "若非有意，请用 float32 归约",
        ),
        "same_batch": Text(
            f"{who.en} read the same batch in all {value} logged steps, so that the others of them add nothing: give"
            " each rank its own part of the data (DistributedSampler)",
            f"{who.zh} 在保存的 {value} 个步中读取同一批数据，其余 rank 没有贡献：请为每个 rank 分配各自的数据"
            "（DistributedSampler）",
        ),
        "scale": Text(
            f"the input {name} of {who.en} is {value} times as large as the other ranks': it is not normalised as"
            " theirs is",
            f"{who.zh} 的输入 {name} 是其他 rank 的 {value} 倍：其归一化与其他 rank 不同",
        ),
        "narrow": Text(
            f"{who.en} alone rounds: before the reduction its gradient of {name} has only the precision of"
            f" {found.type}, and the other ranks' have more",
            f"只有 {who.zh} 做了舍入：归约前其 {name} 的梯度只有 {found.type} 的精度，其他 rank 更高",
        ),
    }
    return sentences[found.what]


def suggest_next(found: RankFault, folder: str) -> Text | None:
    """Return how the operator is found, where one of a rank's own backward pass did it."""
    if found.what not in ("broken", "narrow"):
        return None
    kept = Path(folder, f"step_{found.step:06d}")
    option = f"--step backward --option from_step={shlex.quote(str(kept))}"
    if Path(f"{kept}_rank{found.ranks[0]}.pt").is_file():
        return Text(f"Which operator of it: {option}", f"定位其算子：{option}")
    return Text(
        f"Which operator of it: keep the step, training(…, steps=[{found.step}]), then {option}",
        f"定位其算子：先用 training(…, steps=[{found.step}]) 保存该步，再用 {option}",
    )


def describe_missing(steps: Sequence[RankedStep]) -> Text | None:
    """Where the files of some ranks are not here; None where all are."""
    here = sorted({rank for step in steps for rank in step.ranks})
    if len(here) == _number_of_ranks(steps):
        return None
    listed = ", ".join(map(str, here))
    return Text(
        f"Of {_number_of_ranks(steps)} ranks only the files of {listed} are here: the reduction was not checked.",
        f"{_number_of_ranks(steps)} 个 rank 中只有 {listed} 的文件：未检查归约。",
    )


def rank_table(step: RankedStep) -> str:
    """HTML: each parameter's gradient by rank, before and after the reduction, in the order of the backward pass."""
    before, after = Text("before", "归约前"), Text("after", "归约后")
    heads = "".join(
        f"<th>rank {rank}: {both_languages(before)}</th><th>{both_languages(after)}</th>" for rank in step.ranks
    )
    names = list(dict.fromkeys(name for one in step.ranks.values() for name in one.gradients))
    rows = []
    for name in names[:_ROWS]:
        cells = []
        for one in step.ranks.values():
            sides = one.gradients.get(name)
            cells += [_format_cell(sides.local if sides else None), _format_cell(sides.reduced if sides else None)]
        rows.append(f"<tr><td><code>{escape_html(name)}</code></td>{''.join(cells)}</tr>")
    title = Text(
        f"Step {step.step}: norm of each rank's gradient before and after the reduction",
        f"第 {step.step} 步：各 rank 归约前后梯度的范数",
    )
    about = Text("In the order of the backward pass; – where there is none.", "按反向的顺序；– 表示没有梯度。")
    parameter = both_languages(Text("parameter", "参数"))
    table = f"<thead><tr><th>{parameter}</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return (
        f'<section class="card"><h2>{both_languages(title)}</h2><p>{both_languages(about)}</p><div'
        f' class="wide"><table class="list">'
        f"{table}</table></div></section>"
    )


def _format_cell(one: GradientNumbers | None) -> str:
    if one is None:
        return "<td>–</td>"
    if one.broken:
        return f'<td class="bad">{one.broken} × NaN, Inf</td>'
    return f"<td>{format_figure(one.norm)}{f' <small>{one.narrow}</small>' if one.narrow else ''}</td>"
