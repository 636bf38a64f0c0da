"""What to look at, from the numbers of one row: the plain rules that an experienced reader would apply."""

from __future__ import annotations

import math

from ..numbers.number_types import find_promise, is_narrow
from ..reasons import Text, as_reason
from ..records import Comparison, Row, Status
from .model import Report
from .words import count, format_figure, format_percent, format_sufficient

__all__ = ["advise_on_fine_tolerance", "list_advice"]

_PASSED_ON = 2.0
"""Below this error growth an operator was given about as large an error as it gives."""

_MOST_ITSELF = 0.5
"""Part of an operator's error below which what it introduced itself is not what it is off by."""


def list_advice(row: Row, precision: str) -> tuple[Text, ...]:
    """Sentences for a row that was compared, the most telling first; none for one that was not.

    precision: what the target's mode promises (see ``numbers.number_types``).
    """
    comparison = row.comparison
    if comparison is None:
        return ()
    if as_reason(row.reason).code == "map_keys":
        return ()
    if not comparison.shapes_match:
        return (
            Text(
                "The shapes differ, so no numbers were compared: check dynamic dimensions, layouts and the export"
                " before the precision.",
                "形状不一致，未做数值比较：请先检查动态维度、数据布局和模型导出方式，再看精度。",
            ),
        )
    broken = _advise_on_non_finite(comparison, precision)
    if broken:
        return broken
    return (
        *_advise_on_growth(row, comparison, precision),
        *(_advise_on_subnormals(comparison) if precision == "float16" else ()),
        *_advise_on_few_elements(row, comparison),
        *_advise_on_tolerance(comparison),
    )


def advise_on_fine_tolerance(report: Report) -> tuple[Text, ...]:
    """Return a sentence where most tensors fail because the tolerance asks for more than the target's arithmetic can
    hold."""
    mode, tolerance = report.target.mode, report.spec.tolerance
    promise = find_promise(report.target.precision)
    rounding = promise.rounding if promise.narrow else 0.0
    failed, compared = report.counts[Status.FAIL], len(report.compared)
    if rounding <= tolerance.rtol or 2 * failed < compared or not failed:
        return ()
    return (
        Text(
            f"The tolerance (rtol {tolerance.rtol:g}) is finer than one rounding in {mode} (about"
            f" {format_figure(rounding)}),"
            " so most tensors exceed it: rely on Rel L2, Error Growth and the final outputs.",
            f"容差（rtol {tolerance.rtol:g}）小于 {mode} 一次舍入的误差（约 {format_figure(rounding)}），因此多数张"
            f"量超差："
            "请以相对 L2 误差、误差放大倍数和最终输出为准。",
        ),
    )


def _advise_on_non_finite(comparison: Comparison, precision: str) -> tuple[Text, ...]:
    base = comparison.base.nan + comparison.base.inf
    target = comparison.target.nan + comparison.target.inf
    if base:
        return (
            Text(
                f"The baseline itself has {count(base)} NaN or Inf elements: check the input, the weights and the model"
                " before the precision.",
                f"基线自身就有 {count(base)} 个 NaN 或 Inf：请先检查输入、权重和模型，再看精度。",
            ),
        )
    if not target:
        return ()
    beyond = comparison.fp16_overflow
    if beyond and precision == "float16":
        return (
            Text(
                f"FP16 overflow: {count(beyond)} baseline elements exceed 65504, and the target has {count(target)}"
                " NaN or Inf. Keep this operator in FP32 or BF16, or scale its input down.",
                f"FP16 溢出：基线有 {count(beyond)} 个元素超过 65504，目标出现 {count(target)} 个 NaN 或 Inf。"
                "请让该算子保持 FP32 或 BF16，或缩小其输入。",
            ),
        )
    return (
        Text(
            f"{count(target)} NaN or Inf elements that the baseline does not have: look for overflow in this"
            " operator's sums, and check divisions, square roots, logarithms and exponentials.",
            f"目标出现基线没有的 {count(target)} 个 NaN 或 Inf：请检查该算子累加溢出，以及除法、开方、对数和指数运算。",
        ),
    )


def _advise_on_growth(row: Row, comparison: Comparison, precision: str) -> tuple[Text, ...]:
    growth = row.error_growth
    if growth is None or math.isnan(growth):
        return ()
    if not row.inputs and math.isinf(growth):
        return (
            Text(
                "Nothing comes before it: this is the rounding of the tensor itself, as the target casts or quantises"
                " it.",
                "它没有上游张量：这里看到的是目标对该张量自身的舍入（类型转换或量化）。",
            ),
        )
    if growth < _PASSED_ON:
        return (
            Text(
                f"Error growth {format_figure(growth)}: its inputs were off by about as much. The loss begins"
                f" earlier, or"
                " little by little: compare the operators below.",
                f"误差放大 {format_figure(growth)} 倍：其输入已有大致相同的误差。损失始于更早的算子或逐步累积，"
                "请对照下面列出的算子。",
            ),
        )
    remedy = (
        Text("Try it in FP32 first.", "请先让它以 FP32 运行。")
        if is_narrow(precision)
        else Text(
            "The target computes in FP64, which rounds less: compare what both sides compute here.",
            "目标以 FP64 计算，舍入更小：请对照两侧在此处的运算。",
        )
        if precision == "float64"
        else _advise_on_narrow_model(comparison)
    )
    if math.isinf(growth):
        return (
            Text(
                f"Its inputs had no error: the loss begins in this operator. {remedy.en}",
                f"它的输入没有误差：损失从该算子开始。{remedy.zh}",
            ),
        )
    own = row.introduced.rel_l2 if row.introduced is not None else None
    size = row.relative_l2
    if own is not None and size is not None and own < _MOST_ITSELF * size:
        return (
            Text(
                f"Error growth {format_figure(growth)}: it introduced {format_figure(own)} itself, and enlarges what"
                f" it was given."
                " The loss begins earlier: compare the operators below.",
                f"误差放大 {format_figure(growth)} 倍：其自身仅引入 {format_figure(own)}，主要是放大了输入的误差。"
                f"损失始于更早的"
                "算子，请对照下面列出的算子。",
            ),
        )
    itself = (
        Text(
            "whether it lost that itself or enlarges what it was given was not measured",
            "是其自身的损失还是放大了输入的误差，未测量",
        )
        if own is None
        else Text(f"it introduced {format_figure(own)} itself", f"其自身引入 {format_figure(own)}")
    )
    return (
        Text(
            f"Error growth {format_figure(growth)}: {itself.en}. {remedy.en}",
            f"误差放大 {format_figure(growth)} 倍：{itself.zh}。{remedy.zh}",
        ),
    )


def _advise_on_narrow_model(comparison: Comparison) -> Text:
    """Of a target that promises no narrow type: a model's own may be one, on both sides."""
    held = {find_promise(side.dtype).short for side in (comparison.base, comparison.target)}
    if len(held) > 1 or "" in held:
        return Text("Compare what both sides compute here.", "请对照两侧在此处的运算。")
    short = held.pop()
    return Text(
        f"The target computes in {short} too: compare what both sides compute here.",
        f"目标同样以 {short} 计算：请对照两侧在此处的运算。",
    )


def _advise_on_subnormals(comparison: Comparison) -> tuple[Text, ...]:
    elements = comparison.base.elements
    small = comparison.fp16_subnormal / elements if elements else 0.0
    if small < 0.01:
        return ()
    return (
        Text(
            f"{format_percent(small)} of the baseline's elements are below 2^-14, where FP16 keeps fewer bits or none.",
            f"基线 {format_percent(small)} 的元素小于 2^-14，FP16 只能以更低精度表示或变为 0。",
        ),
    )


def _advise_on_few_elements(row: Row, comparison: Comparison) -> tuple[Text, ...]:
    """Return a handful of elements far out while the tensor as a whole agrees."""
    error, elements = row.relative_l2, comparison.base.elements
    if error is None or comparison.mismatched is None or not elements or error > 0.01:
        return ()
    part = comparison.mismatched / elements
    if part > 0.01:
        return ()
    return (
        Text(
            f"Only {format_percent(part)} of the elements are out of tolerance, but the tensor as a whole agrees"
            f" (relative L2"
            f" error {format_figure(error)}): single outliers, or values near zero.",
            f"仅 {format_percent(part)} 的元素超差，张量整体一致（相对 L2 误差 {format_figure(error)}）：个别离群值"
            f"或接近零的值。",
        ),
    )


def _advise_on_tolerance(comparison: Comparison) -> tuple[Text, ...]:
    """Return what every element would pass with, where a result of nothing but 0 would not."""
    largest = max(abs(comparison.base.min or 0.0), abs(comparison.base.max or 0.0))
    parts = [
        f"--{name} {format_sufficient(value)}"
        for name, value, most in (("atol", comparison.required_atol, largest), ("rtol", comparison.required_rtol, 1.0))
        if value is not None and 0 < value < most
    ]
    if not parts:
        return ()
    return (
        Text(
            f"Every element of it would pass with {' or with '.join(parts)}.",
            f"若用 {' 或 '.join(parts)}，它的所有元素都会通过。",
        ),
    )
