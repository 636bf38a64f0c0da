"""The tolerance rule in words."""

from __future__ import annotations

from ..reasons import Text
from ..records import Tolerance

__all__ = ["statistic", "tolerance_text"]

_STATISTICS = {"max": "最大值", "mean": "平均值", "median": "中位数"}


def statistic(tolerance: Tolerance) -> Text:
    """Name of the statistic that is judged, where it is not every element."""
    stat = tolerance.check_error_stat
    if stat == "quantile":
        return Text(f"{tolerance.quantile:g} quantile", f"{tolerance.quantile:g} 分位数")
    return Text(stat, _STATISTICS.get(stat, stat))


def tolerance_text(tolerance: Tolerance) -> tuple[Text, ...]:
    """Which elements count as mismatched, when a tensor passes, and what NaN does."""
    atol, rtol = f"{tolerance.atol:g}", f"{tolerance.rtol:g}"
    rule = {
        "isclose": f"|target - base| <= {atol} + {rtol} * |base|",
        "either": f"|target - base| <= {atol}  or  |target - base| <= {rtol} * |base|",
    }.get(tolerance.rule, f"{tolerance.rule}, atol {atol}, rtol {rtol}")
    element = Text(f"An element is within tolerance where {rule}.", f"元素在容差内的条件：{rule}。")
    if not tolerance.given:
        tensor = Text(
            "No tolerance was given: a tensor passes if its relative L2 error is within what the target's arithmetic"
            " costs.",
            "未给出容差：张量的相对 L2 误差不超过目标运算必然带来的损失即为通过。",
        )
    elif tolerance.check_error_stat == "elemwise":
        tensor = Text("A tensor passes if every element does.", "所有元素都在容差内，张量才算通过。")
    else:
        stat = statistic(tolerance)
        tensor = Text(
            f"A tensor passes when the {stat.en} of its absolute error is at most {atol}, or the {stat.en} of its"
            f" relative error at most {rtol}.",
            f"当绝对误差的{stat.zh}不超过 {atol}，或相对误差的{stat.zh}不超过 {rtol} 时，张量通过。",
        )
    nan = (
        Text("NaN in the same place on both sides counts as equal.", "两侧同一位置均为 NaN 视为相等。")
        if tolerance.equal_nan
        else Text("NaN never counts as equal.", "NaN 一律视为不相等。")
    )
    return element, tensor, nan
