"""Declare the columns of the table, those of several builds among them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ..numbers.metrics import DECLARED
from ..records import Row
from .values import (
    Get,
    compute_growth,
    compute_mismatched_share,
    count_elements,
    format_mismatched,
    get_declared,
    get_introduced,
    get_metric,
    get_of_base,
    get_of_target,
    get_range_cell,
    paddle_max_abs,
    paddle_max_rel,
)

__all__ = ["COLUMNS", "REPEATED", "Column", "make_column"]


# One column of the table.

@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table.

    key: stable name for programs. title, help: what people read; the ``_zh`` ones in Chinese.
    kind: what ``get`` yields, or None where there is nothing: "text" str, "int" int, "float" float (may be nan or
    inf), "share" float from 0 to 1, "index" tuple of ints, "flag" bool.
    style: how a number reads best: "error" scientific, "value" as it is, "ratio" and "db" with few digits; "alarm" a
    count that should be 0.
    width: in characters; of text the widest that it may become.
    """

    key: str
    title: str
    title_zh: str
    help: str
    help_zh: str
    kind: str
    width: int
    get: Get
    style: str = ""


def make_column(names: tuple[str, str, str], kind: str, width: int, get: Get, help: tuple[str, str]) -> Column:
    """names: key, English title, Chinese title. kind: with its style after a colon. help: English, Chinese."""
    key, title, title_zh = names
    kind, _, style = kind.partition(":")
    return Column(
        key=key, title=title, title_zh=title_zh, help=help[0], help_zh=help[1],
        kind=kind, width=width, get=get, style=style,
    )  # fmt: skip


# The fixed columns of the table.
#
# The first eight are those of Paddle-Inference-Demo's tensorrt_precision_debug, in its order and with its meaning: "Min
# Val(base)" and "Max Val(base)" hold the target's value and, in brackets, the baseline's. Numeric columns follow.

COLUMNS: tuple[Column, ...] = (
    make_column(
        ("op_type", "Operator Type", "算子类型"), "text", 26, attrgetter("op_type"),
        ("Type of the operator that produces the tensor, as the baseline names it.",
         "产生该张量的算子类型（以基线为准）。"),
    ),
    make_column(
        ("name", "Tensor Name", "张量名"), "text", 56, attrgetter("name"),
        ("The baseline's name, or the target's if the baseline has no such tensor. Rows are in the baseline's"
         " execution order.",
         "基线中的张量名；若基线没有该张量，则为目标中的名字。各行按基线的执行顺序排列。"),
    ),
    make_column(
        ("shape", "Shape", "形状"), "text", 44, attrgetter("shape_text"),
        ('"match, [..]", or "expect [baseline], but got [target]".',
         "“match, [..]”表示一致；“expect [基线], but got [目标]”表示不一致。"),
    ),
    make_column(
        ("mismatched_elements", "Mismatched Elements", "不一致元素"), "text", 24, format_mismatched,
        ("Elements outside the tolerance / all elements (percent). The same as numbers: Mismatched, Total, "
         "Mismatched Share.",
         "超出容差的元素数 / 元素总数（百分比）。可排序的数值列见 Mismatched、Total、Mismatched Share。"),
    ),
    make_column(
        ("max_atol", "Max Atol", "最大绝对误差"), "float:error", 11, paddle_max_abs,
        ("Largest |target - base|, as numpy has it: nan where a side holds NaN, or both the same infinity. Without"
         " those: Max Abs.",
         "|目标 - 基线| 的最大值（按 numpy 计算）：任一侧有 NaN，或两侧为同号无穷大时为 nan。不计这些元素的值见"
         " Max Abs。"),
    ),
    make_column(
        ("max_rtol", "Max Rtol", "最大相对误差"), "float:error", 11, paddle_max_rel,
        ("Largest |target - base| / (|base| + 1e-7), as numpy has it: nan where a side holds NaN or the baseline an"
         " infinity. Large for values near zero: read it together with Max Atol.",
         "|目标 - 基线| / (|基线| + 1e-7) 的最大值（按 numpy 计算）：任一侧有 NaN，或基线有无穷大时为 nan。"
         "接近零的值会使它很大，请与 Max Atol 一起看。"),
    ),
    make_column(
        ("min_val", "Min Val(base)", "最小值(基线)"), "text", 25, get_range_cell(0),
        ("Smallest value of the target, in brackets that of the baseline; nan or -inf where it holds one. Finite values"
         " alone: Base Min, Target Min.",
         "目标的最小值，括号内为基线的最小值；含 NaN 或 -Inf 时为 nan 或 -inf。只计有限值见 Base Min、Target Min。"),
    ),
    make_column(
        ("max_val", "Max Val(base)", "最大值(基线)"), "text", 25, get_range_cell(1),
        ("Largest value of the target, in brackets that of the baseline; nan or inf where it holds one. Finite values"
         " alone: Base Max, Target Max.",
         "目标的最大值，括号内为基线的最大值；含 NaN 或 Inf 时为 nan 或 inf。只计有限值见 Base Max、Target Max。"),
    ),
    make_column(
        ("status", "Status", "状态"), "text", 13, lambda row: row.status.value,
        ("pass, fail (out of tolerance), inconclusive (it would pass whatever it holds, or has no element), fused away"
         " (fused into another operator, or removed), unmatched (no partner in the baseline), not compared (see"
         " Reason).",
         "pass：在容差内；fail：超出容差；inconclusive：该容差无法判定，或没有元素；fused away：已被目标图融合；"
         "unmatched：基线中没有对应张量；not compared：未比较，见 Reason。"),
    ),
    make_column(
        ("reason", "Reason", "原因"), "text", 46, attrgetter("reason"),
        ("Why the row has this status.", "该状态的原因。"),
    ),
    make_column(
        ("index", "Order", "执行顺序"), "int", 8, attrgetter("index"),
        ("Position in the baseline's execution order, from 0. Sort by it to restore the original order.",
         "在基线执行顺序中的位置，从 0 开始。按此列排序可恢复原始顺序。"),
    ),
    make_column(
        ("paired_by", "Paired By", "配对方式"), "text", 14, attrgetter("paired_by"),
        ("How the two tensors were found to be the same: exact name, rename map, graph metadata or value "
         "fingerprint.",
         "两侧张量的配对依据：名称完全一致、重命名表、图元数据或数值指纹。"),
    ),
    make_column(
        ("target_name", "Target Name", "目标张量名"), "text", 48, attrgetter("target_name"),
        ("The tensor's name in the target.", "该张量在目标中的名字。"),
    ),
    make_column(
        ("view", "View", "取值方式"), "text", 13, attrgetter("view"),
        ("How the target's value was taken from the engine's: empty if unchanged; dequantised, unblocked, cast,"
         " unfused (it lies inside a fused layer, and was seen in a further run that gives the same around it), ...",
         "目标值的取得方式：空表示原样；dequantised 反量化，unblocked 还原布局，cast 类型转换，unfused 位于融合层内、"
         "由另一次在其前后给出相同结果的运行显示等。"),
    ),
    make_column(
        ("base_min", "Base Min", "基线最小值"), "float:value", 12, get_of_base("min"),
        ("Smallest finite value of the baseline.", "基线的最小有限值。"),
    ),
    make_column(
        ("base_max", "Base Max", "基线最大值"), "float:value", 12, get_of_base("max"),
        ("Largest finite value of the baseline.", "基线的最大有限值。"),
    ),
    make_column(
        ("target_min", "Target Min", "目标最小值"), "float:value", 12, get_of_target("min"),
        ("Smallest finite value of the target.", "目标的最小有限值。"),
    ),
    make_column(
        ("target_max", "Target Max", "目标最大值"), "float:value", 12, get_of_target("max"),
        ("Largest finite value of the target.", "目标的最大有限值。"),
    ),
    make_column(
        ("mismatched", "Mismatched", "不一致数"), "int", 12, get_metric("mismatched"),
        ("Elements outside the tolerance.", "超出容差的元素数。"),
    ),
    make_column(
        ("total", "Total", "元素总数"), "int", 12, count_elements,
        ("Elements of the tensor.", "张量的元素总数。"),
    ),
    make_column(
        ("mismatched_share", "Mismatched Share", "不一致比例"), "share", 12, compute_mismatched_share,
        ("Mismatched / Total.", "不一致数 / 元素总数。"),
    ),
    make_column(
        ("max_abs", "Max Abs", "有限最大绝对误差"), "float:error", 11, get_metric("max_abs"),
        ("Largest |target - base| without NaN and equal infinities. inf: one side is infinite and the other is not.",
         "不计 NaN 与同号无穷大时 |目标 - 基线| 的最大值。inf 表示只有一侧为无穷大。"),
    ),
    make_column(
        ("max_rel", "Max Rel", "有限最大相对误差"), "float:error", 11, get_metric("max_rel"),
        ("Largest |target - base| / (|base| + 1e-7) without NaN and equal infinities. inf: one side is infinite and the"
         " other is not.",
         "不计 NaN 与同号无穷大时 |目标 - 基线| / (|基线| + 1e-7) 的最大值。inf 表示只有一侧为无穷大。"),
    ),
    make_column(
        ("mean_abs", "Mean Abs", "平均绝对误差"), "float:error", 11, get_metric("mean_abs"),
        ("Mean of |target - base|.", "|目标 - 基线| 的平均值。"),
    ),
    make_column(
        ("mean_rel", "Mean Rel", "平均相对误差"), "float:error", 11, get_metric("mean_rel"),
        ("Mean of |target - base| / (|base| + 1e-7).", "|目标 - 基线| / (|基线| + 1e-7) 的平均值。"),
    ),
    *(
        make_column(
            (one.name, *one.title), "share" if one.share else "float:error", 12, get_declared(one.name), one.said,
        )
        for one in DECLARED
    ),
    make_column(
        ("rmse", "RMSE", "均方根误差"), "float:error", 11, get_metric("rmse"),
        ("sqrt(mean((target - base)^2)).", "误差平方均值的平方根。"),
    ),
    make_column(
        ("relative_l2", "Rel L2", "相对 L2 误差"), "float:error", 11, attrgetter("relative_l2"),
        ("|target - base| over |base|, both as L2 norms. The single most telling number; usual are about 1e-3 for"
         " FP16, 1e-2 for BF16, and 1e-2 to 1e-1 for INT8.",
         "误差的 L2 范数除以基线的 L2 范数。最有代表性的单一指标：FP16 约 1e-3，BF16 约 1e-2，INT8 约 1e-2 到"
         " 1e-1 属常见。"),
    ),
    make_column(
        ("cosine_distance", "Cosine Distance", "余弦距离"), "float:error", 11, get_metric("cosine_distance"),
        ("1 - cos(base, target). 0: same direction.", "1 - cos(基线, 目标)。0 表示方向相同。"),
    ),
    make_column(
        ("sqnr_db", "SQNR (dB)", "信噪比 (dB)"), "float:db", 11, get_metric("sqnr_db"),
        ("10 log10(sum base^2 / sum error^2); higher is better, inf: no error.",
         "10 log10(基线能量 / 误差能量)；越大越好，inf 表示无误差。"),
    ),
    make_column(
        ("error_growth", "Error Growth", "误差放大倍数"), "float:ratio", 11, compute_growth,
        ("Rel L2 of this tensor over the largest Rel L2 among its operator's inputs. Well above 1: the operator"
         " lost precision itself or enlarges what it was given (Introduced Rel L2 tells which); about 1: its inputs"
         " were off by as much; inf: its inputs had no error. Blank if it reads nothing, or if NaN or Inf first appears"
         " in it.",
         "本张量的相对 L2 误差与其算子各输入中最大者之比。明显大于 1：该算子自身损失精度，或放大了输入的误差（由"
         "引入误差一列区分）；约为 1：输入已有同样大的误差；inf：输入没有误差。没有输入的张量，以及产生"
         " NaN 或 Inf 处，为空。"),
    ),
    make_column(
        ("introduced_rel_l2", "Introduced Rel L2", "引入误差"), "float:error", 12, get_introduced("rel_l2"),
        ("Relative L2 error that the operator itself added: run alone, on the same inputs on both sides.",
         "算子自身引入的相对 L2 误差：两侧以相同输入单独运行该算子测得。"),
    ),
    make_column(
        ("inherited_rel_l2", "Inherited Rel L2", "继承误差"), "float:error", 12, get_introduced("inherited"),
        ("Relative L2 error that came with the operator's inputs: the baseline's operator run on the target's inputs,"
         " against the baseline. Blank where it was not measured: --explain full does it for large models.",
         "算子由输入继承的相对 L2 误差：以目标的输入运行基线算子，与基线结果相比。"
         "空白表示未测定；大模型请用 --explain full。"),
    ),
    make_column(
        ("rounding_units", "Rounding Units", "舍入倍数"), "float:ratio", 11, get_introduced("units"),
        ("Introduced Rel L2 over the error of rounding once to the target's type. About 1: healthy; above 8: far more "
         "than rounding.",
         "引入误差与目标类型单次舍入误差之比。约为 1：正常；大于 8：远超舍入。"),
    ),
    make_column(
        ("abs_p50", "Abs p50", "绝对误差 p50"), "float:error", 11, get_metric("abs_p50"),
        ("Median of |target - base|.", "绝对误差的中位数。"),
    ),
    make_column(
        ("abs_p90", "Abs p90", "绝对误差 p90"), "float:error", 11, get_metric("abs_p90"),
        ("90 % of the elements have at most this absolute error.", "90 % 的元素绝对误差不超过此值。"),
    ),
    make_column(
        ("abs_p99", "Abs p99", "绝对误差 p99"), "float:error", 11, get_metric("abs_p99"),
        ("99 % of the elements have at most this absolute error.", "99 % 的元素绝对误差不超过此值。"),
    ),
    make_column(
        ("abs_p999", "Abs p99.9", "绝对误差 p99.9"), "float:error", 11, get_metric("abs_p999"),
        ("99.9 % of the elements have at most this absolute error.", "99.9 % 的元素绝对误差不超过此值。"),
    ),
    make_column(
        ("quantiles_exact", "Quantiles Exact", "分位数精确"), "flag", 10, get_metric("quantiles_exact"),
        ("no: the p columns were read from a histogram, to within 12.5 %.",
         "no 表示 p 列由直方图估计，误差在 12.5 % 以内。"),
    ),
    make_column(
        ("required_atol", "Required Atol", "通过所需 atol"), "float:error", 11, get_metric("required_atol"),
        ("Smallest --atol with which every element would pass, with --rtol unchanged; inf: none would.",
         "保持 --rtol 不变，使所有元素通过的最小 --atol；inf 表示不存在。"),
    ),
    make_column(
        ("required_rtol", "Required Rtol", "通过所需 rtol"), "float:error", 11, get_metric("required_rtol"),
        ("Smallest --rtol with which every element would pass, with --atol unchanged; inf: none would.",
         "保持 --atol 不变，使所有元素通过的最小 --rtol；inf 表示不存在。"),
    ),
    make_column(
        ("base_nan", "Base NaN", "基线 NaN 数"), "int:alarm", 9, get_of_base("nan"),
        ("NaN elements of the baseline.", "基线中 NaN 的个数。"),
    ),
    make_column(
        ("base_inf", "Base Inf", "基线 Inf 数"), "int:alarm", 9, get_of_base("inf"),
        ("Infinite elements of the baseline.", "基线中 Inf 的个数。"),
    ),
    make_column(
        ("target_nan", "Target NaN", "目标 NaN 数"), "int:alarm", 9, get_of_target("nan"),
        ("NaN elements of the target.", "目标中 NaN 的个数。"),
    ),
    make_column(
        ("target_inf", "Target Inf", "目标 Inf 数"), "int:alarm", 9, get_of_target("inf"),
        ("Infinite elements of the target.", "目标中 Inf 的个数。"),
    ),
    make_column(
        ("fp16_overflow", "FP16 Overflow", "超出 FP16 范围"), "int:alarm", 11, get_metric("fp16_overflow"),
        ("Baseline elements with |x| > 65504: FP16 cannot hold them.", "基线中 |x| > 65504 的元素数，FP16 无法表示。"),
    ),
    make_column(
        ("fp16_subnormal", "FP16 Subnormal", "FP16 次正规数"), "int", 11, get_metric("fp16_subnormal"),
        ("Baseline elements with 0 < |x| < 2^-14: FP16 holds them with fewer bits, or as 0.",
         "基线中 0 < |x| < 2^-14 的元素数，FP16 只能以更低精度表示或变为 0。"),
    ),
    make_column(
        ("max_abs_index", "Max Atol At", "最大绝对误差位置"), "index", 16, get_metric("max_abs_index"),
        ("Index of the largest absolute error.", "最大绝对误差的元素下标。"),
    ),
    make_column(
        ("max_rel_index", "Max Rtol At", "最大相对误差位置"), "index", 16, get_metric("max_rel_index"),
        ("Index of the largest relative error.", "最大相对误差的元素下标。"),
    ),
    make_column(
        ("first_mismatch", "First Mismatch At", "首个不一致位置"), "index", 16, get_metric("first_mismatch"),
        ("Index of the first element out of tolerance, in C order.", "按 C 顺序第一个超出容差的元素下标。"),
    ),
    make_column(
        ("base_dtype", "Base Dtype", "基线数据类型"), "text", 11, get_of_base("dtype"),
        ("Data type of the baseline's tensor.", "基线张量的数据类型。"),
    ),
    make_column(
        ("target_dtype", "Target Dtype", "目标数据类型"), "text", 11, get_of_target("dtype"),
        ("Data type of the target's tensor.", "目标张量的数据类型。"),
    ),
    make_column(
        ("base_mean", "Base Mean", "基线均值"), "float:value", 12, get_of_base("mean"),
        ("Mean of the baseline's finite elements.", "基线有限元素的均值。"),
    ),
    make_column(
        ("target_mean", "Target Mean", "目标均值"), "float:value", 12, get_of_target("mean"),
        ("Mean of the target's finite elements.", "目标有限元素的均值。"),
    ),
    make_column(
        ("base_rms", "Base RMS", "基线均方根"), "float:value", 12, get_of_base("rms"),
        ("Root mean square of the baseline's finite elements.", "基线有限元素的均方根。"),
    ),
    make_column(
        ("target_rms", "Target RMS", "目标均方根"), "float:value", 12, get_of_target("rms"),
        ("Root mean square of the target's finite elements.", "目标有限元素的均方根。"),
    ),
    make_column(
        ("node", "Node", "节点"), "text", 40, attrgetter("node"),
        ("Name of the operator or layer that produces the tensor.", "产生该张量的算子或层的名字。"),
    ),
    make_column(
        ("target_op_type", "Target Operator", "目标算子"), "text", 26, attrgetter("target_op_type"),
        ("Type of the operator that produces it in the target.", "目标中产生该张量的算子类型。"),
    ),
    make_column(
        ("is_output", "Model Output", "模型输出"), "flag", 9, attrgetter("is_output"),
        ("yes: a final output of the model.", "yes 表示模型的最终输出。"),
    ),
    make_column(
        ("identical", "Identical", "逐位相同"), "flag", 9, get_metric("identical"),
        ("yes: both sides are equal bit for bit.", "yes 表示两侧逐位相同。"),
    ),
    make_column(
        ("inputs", "Inputs", "输入张量"), "text", 48, lambda row: ", ".join(row.inputs),
        ("Tensors that the operator reads.", "该算子读取的张量。"),
    ),
)  # fmt: skip


# Columns of a report with several builds of the target.

def _get_repeated(name: str) -> Get:
    def get(row: Row) -> Any:
        return None if row.repeated is None else getattr(row.repeated, name)

    return get


def _ratio_to_builds(row: Row) -> float | None:
    """Return how many times larger the error is than the distance between builds; None where a number is missing."""
    error = row.relative_l2
    if row.repeated is None or error is None:
        return None
    return error / float(row.repeated.rel_l2) if row.repeated.rel_l2 else math.inf if error else None


REPEATED: tuple[Column, ...] = (
    make_column(
        ("repeat_rel_l2", "Repeat Rel L2", "多次构建差异"), "float:error", 12, _get_repeated("rel_l2"),
        ("Largest relative L2 distance of a further build of the target (--repeat) from the first one.",
         "目标的各次构建（--repeat）与首次构建之间最大的相对 L2 差异。"),
    ),
    make_column(
        ("repeat_max_abs", "Repeat Max Abs", "多次构建最大差"), "float:error", 12, _get_repeated("max_abs"),
        ("Largest absolute difference between a further build and the first one.", "各次构建与首次之间的最大绝对差。"),
    ),
    make_column(
        ("error_over_repeat", "Error / Repeat", "误差与构建差异之比"), "float:ratio", 12, _ratio_to_builds,
        ("Rel L2 over Repeat Rel L2. Well above 1: the arithmetic causes the error; about 1 or less: it is chance.",
         "误差与多次构建差异之比。远大于 1：由算术引起；约为 1 或更小：属于偶然。"),
    ),
    make_column(
        ("repeat_first", "Differs First", "差异起点"), "flag", 10, _get_repeated("first"),
        ("yes: it differs between builds, and none of its inputs does.",
         "yes：各次构建之间有差异，而其来源都没有差异。"),
    ),
)  # fmt: skip
"""Columns of a report with several builds."""
