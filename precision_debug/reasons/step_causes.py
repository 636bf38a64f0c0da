"""Causes of an error that only a training step has."""

from __future__ import annotations

from collections.abc import Mapping

from .cause import Cause, Kind
from .reason import Wording

__all__ = ["STEP_CAUSES"]

_FIGURE, _COUNT, _SHARE, _TEXT = Kind.FIGURE, Kind.COUNT, Kind.SHARE, Kind.TEXT

STEP_CAUSES: Mapping[str, Cause] = {
    "gradient_underflow": Cause(
        en="gradients underflow", zh="梯度下溢",
        do="Increase the loss scale (torch.amp.GradScaler) to the value given.",
        do_zh="按该句所示增大损失缩放（torch.amp.GradScaler）。",
        why=Wording(
            "{share} of it becomes 0 in {dtype} at a loss scale of {now}; the largest scale that fits this whole"
            " backward pass is {scale}",
            "损失缩放为 {now} 时，其中 {share} 在 {dtype} 中变为 0；本次反向可容纳的最大缩放为 {scale}",
        ),
        evidence={
            "gradient": _TEXT, "gradients": _COUNT, "where": _TEXT, "dtype": _TEXT, "share": _SHARE, "scale": _TEXT,
            "now": _TEXT, "option": _TEXT,
        },
        sentence=Wording(
            "The gradient of `{gradient}` is lost where `{where}` is cast to {dtype}: {share} of it becomes 0"
            " (gradients affected in all: {gradients}). Scale the loss by {scale} (now {now}).",
            "`{gradient}` 的梯度丢失：`{where}` 转为 {dtype} 时有 {share} 变为 0（受影响的梯度共 {gradients} 个）。"
            "请将损失放大 {scale} 倍（现为 {now}）。",
        ),
        mended=False, out_of_range="below", one_switch=True, fails="least", pastes="option",
    ),
    "gradient_overflow": Cause(
        en="gradients overflow", zh="梯度上溢",
        do="Decrease the loss scale to the value given; a GradScaler gets there by itself, skipping steps.",
        do_zh="按该句所示减小损失缩放；GradScaler 会跳过若干步后自行降到该值。",
        why=Wording(
            "its values reach {largest} at a loss scale of {now}, above {dtype}'s maximum of {limit}; the largest"
            " scale that fits this whole backward pass is {scale}",
            "损失缩放为 {now} 时，其数值达到 {largest}，而 {dtype} 最大为 {limit}；本次反向可容纳的最大缩放为 {scale}",
        ),
        evidence={
            "gradient": _TEXT, "gradients": _COUNT, "where": _TEXT, "dtype": _TEXT, "largest": _FIGURE,
            "limit": _FIGURE, "scale": _TEXT, "now": _TEXT, "option": _TEXT,
        },
        sentence=Wording(
            "The gradient of `{gradient}` is NaN or Inf: `{where}` reaches {largest}, above {dtype}'s maximum of"
            " {limit} (gradients affected in all: {gradients}). Scale the loss by {scale} (now {now}): a GradScaler"
            " skips steps until it gets there.",
            "`{gradient}` 的梯度为 NaN 或 Inf：`{where}` 达到 {largest}，而 {dtype} 最大为 {limit}（受影响的梯度共"
            " {gradients} 个）。请将损失放大 {scale} 倍（现为 {now}）：GradScaler 会一直跳过更新，直到降至该值。",
        ),
        mended=False, out_of_range="above", one_switch=True, fails="always", pastes="option",
    ),
    "epsilon_lost": Cause(
        en="the optimiser's epsilon is 0", zh="优化器的 epsilon 为 0",
        do="Keep the parameters in float32, as autocast does, or keep the optimiser's state in float32.",
        do_zh="参数保留为 float32（如 autocast 所做），或优化器状态保留为 float32。",
        why=Wording(
            "{share} of what it divides by becomes 0 in {dtype}, and so does its epsilon of {epsilon}",
            "其除数的 {share} 在 {dtype} 中变为 0，其 epsilon（{epsilon}）也为 0",
        ),
        evidence={
            "parameter": _TEXT, "parameters": _COUNT, "epsilon": _FIGURE, "share": _SHARE, "dtype": _TEXT,
        },
        sentence=Wording(
            "The optimiser divides the update of `{parameter}` by 0: {share} of the mean square of its gradient becomes"
            " 0 in {dtype}, and so does the epsilon of {epsilon} (parameters affected in all: {parameters}).",
            "优化器更新 `{parameter}` 时除以 0：其梯度平方均值的 {share} 在 {dtype} 中变为 0，epsilon（{epsilon}）"
            "也为 0（受影响的参数共 {parameters} 个）。",
        ),
        mended=False, one_switch=True, fails="always", of_parameters=True,
    ),
    "operand_flushed": Cause(
        en="an operand becomes 0 in float8", zh="操作数在 float8 中变为 0",
        do="Leave that layer out of float8 (keep_modules), or scale each row by itself (torchao's rowwise recipe).",
        do_zh="不将该层转为 float8（keep_modules），或逐行缩放（torchao 的 rowwise 方案）。",
        why=Wording(
            "{share} of `{where}` becomes 0 in {dtype}: one scale for the whole tensor follows its largest element,"
            " {largest}, while the median is {typical}",
            "`{where}` 的 {share} 在 {dtype} 中变为 0：整个张量共用一个缩放，由最大元素 {largest} 决定，"
            "而中位数为 {typical}",
        ),
        evidence={
            "where": _TEXT, "dtype": _TEXT, "share": _SHARE, "largest": _FIGURE, "typical": _FIGURE,
        },
        sentence=Wording(
            "{what} `{name}` lost the precision: {share} of its operand `{where}` becomes 0 in {dtype}, because one"
            " scale for the whole tensor follows its largest element, {largest}, while the median is {typical}. Leave"
            " that layer out of float8, or scale each row by itself.",
            "{what} `{name}`丢失精度：其操作数 `{where}` 有 {share} 在 {dtype} 中变为 0，因为整个张量共用一个缩放，"
            "由最大元素 {largest} 决定，而中位数为 {typical}。请不将该层转为 float8，或逐行缩放。",
        ),
        fails="always",
    ),
    "update_lost": Cause(
        en="the update is lost", zh="更新丢失",
        do="Keep the parameters in float32, as autocast does, or keep a float32 copy of them in the optimiser.",
        do_zh="参数保留为 float32（如 autocast 所做），或在优化器中保留其 float32 副本。",
        why=Wording(
            "{share} of its update is less than half a unit in the last place of the {dtype} parameter, and changes"
            " nothing",
            "其更新的 {share} 小于 {dtype} 在该参数处的半个单位，没有任何改变",
        ),
        evidence={"parameter": _TEXT, "parameters": _COUNT, "share": _SHARE, "dtype": _TEXT},
        sentence=Wording(
            "`{parameter}` stagnates: {share} of its update is less than half a unit in the last place of the {dtype}"
            " parameter, and is lost (parameters that stagnate: {parameters}).",
            "`{parameter}` 停滞：其更新的 {share} 小于 {dtype} 在该参数处的半个单位而丢失（停滞的参数共"
            " {parameters} 个）。",
        ),
        mended=False, fails="least", of_parameters=True,
    ),
}
"""Code to record."""
