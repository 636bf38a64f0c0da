"""The core's own catalogue, with what is said of inputs, searches and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..safety.nearest import find_nearest
from .causes import WORDINGS
from .doubts import DOUBTS
from .exports import EXPORTS
from .failures import FAILURES
from .mistakes import MISTAKES
from .notes import NOTES, STAGES
from .proven import PROVEN
from .reason import NOTHING, Catalogue, Plain, Reason, Wording
from .rows import ROWS

__all__ = ["CORE", "INPUTS", "list_some", "suggest_nearest"]


# What was chosen for a model's inputs, or done to them.

_RANGE = "Use --val_range NAME:LOW,HIGH, or real --inputs."
_REAL = "Use real --inputs."

INPUTS: Mapping[str, Wording] = {
    "default_left_out": Wording("left out by default: the model has a value for it", "默认省略：模型自带其值"),
    "default_none": Wording("no default: give {give}", "没有默认值：请给出 {give}"),
    "default_fed": Wording("by default {shape}, {values}", "默认 {shape}，{values}"),
    "default_chosen": Wording(
        "by default {shape} ({chosen}: chosen), {values}", "默认 {shape}（{chosen} 为自选），{values}"
    ),
    "random_values": Wording("random, from 0 to 1", "0 到 1 的随机数"),
    "dimension": Wording("dimension {place} {size}", "第 {place} 维 {size}"),
    "dimension_named": Wording("'{name}' {size}", "'{name}' {size}"),
    "dimension_batch": Wording("batch {size}", "批大小 {size}"),
    "dimension_channels": Wording("channels {size}", "通道数 {size}"),
    "dimension_depth": Wording("depth {size}", "深度 {size}"),
    "dimension_height": Wording("height {size}", "高 {size}"),
    "dimension_width": Wording("width {size}", "宽 {size}"),
    "dimension_length": Wording("length {size}", "长度 {size}"),
    "dimension_layers": Wording("layers {size}", "层数 {size}"),
    "dimension_past": Wording("past {size}", "历史长度 {size}"),
    "dimension_samples": Wording("samples {size}", "采样点数 {size}"),
    "dimension_total": Wording("total {size}", "总长度 {size}"),
    "inputs_left_out": Wording(
        "left out, because the model has values of its own for them: {names}",
        "未给出，使用模型自带的值：{names}", "Provide others with --inputs.",
    ),
    "input_sized": Wording(
        "{name}: {chosen} chosen for dimensions that the model leaves open; {option} sets others",
        "{name}：模型未确定的维度取 {chosen}；可用 {option} 另设", "Use --input_shapes.",
    ),
    "input_convention": Wording(
        "{name} ({dtype}): {what}; --val_range {name}:LOW,HIGH sets others",
        "{name}（{dtype}）：{what}；可用 --val_range {name}:LOW,HIGH 另设", _RANGE,
    ),
    "input_words": Wording(
        "{name} (text): random words; --inputs gives real ones", "{name}（文本）：随机词；可用 --inputs 给出真实文本",
        _REAL,
    ),
    "input_whole": Wording(
        "{name} ({dtype}): whole numbers from {low} to {high}; --val_range sets others",
        "{name}（{dtype}）：{low} 到 {high} 的整数；可用 --val_range 另设", _RANGE,
    ),
    "ones": Wording("ones (nothing is masked)", "全为 1，即不遮蔽"),
    "no_padding": Wording("zeros (nothing is padding)", "全为 0，即没有填充"),
    "sampling_rate": Wording("a sampling rate of {rate}", "采样率 {rate}"),
    "zeros": Wording("zeros (a single token type)", "全为 0，即同一类 token"),
    "positions": Wording("positions from 0 up", "从 0 递增的位置"),
    "whole_numbers": Wording("whole numbers from {low} to {high}", "{low} 到 {high} 的整数"),
    "input_unchecked": Wording(
        "{name}: type {dtype} was passed on unchecked", "{name}：类型 {dtype} 未经检查直接传入"
    ),
    "input_raw": Wording(
        "{name}: raw {bytes}-byte values read as {dtype}", "{name}：{bytes} 字节的原始值按 {dtype} 读取"
    ),
    "input_scalar": Wording(
        "{name}: a scalar was given with the shape [1]", "{name}：以形状 [1] 给出了无维度的数"
    ),
    "input_converted": Wording(
        "{name}: {have} converted to {dtype} without loss", "{name}：{have} 转换为 {dtype}，数值不变"
    ),
    "input_codes": Wording(
        "{name}: {dtype} is the type of the file's own input, so the array is its integers: (integer - {zero}) *"
        " {scale:.6g}",
        "{name}：{dtype} 是文件自身输入的类型，因此数组即其整数：(整数 - {zero}) * {scale:.6g}",
    ),
    "input_non_finite": Wording(
        "{name}: {nan} NaN and {inf} infinite of {count} {count:value|values}",
        "{name}：{count} 个值中有 {nan} 个 NaN、{inf}"
        " 个无穷",
        "Use an input without them.",
    ),
    "range_idle": Wording(
        "--val_range has no effect on values from --inputs", "--val_range 对 --inputs 给出的值不起作用",
        "Remove --val_range.",
    ),
    "input_rounded_to_example": Wording(
        "{name}: {have} rounded to {dtype}, the type of the model's own example",
        "{name}：{have} 舍入为 {dtype}，即模型自带示例的类型",
    ),
    "input_rounded": Wording(
        "{name}: the target takes {dtype}, and is fed the baseline's {have} values rounded to it, as in deployment",
        "{name}：目标接受 {dtype}，按部署时的做法喂入舍入后的基线 {have} 值",
    ),
    "input_rounded_infinite": Wording(
        "{name}: the target takes {dtype}, and is fed the baseline's {have} values rounded to it, as in deployment;"
        " {beyond} {beyond:value becomes|values become} infinite",
        "{name}：目标接受 {dtype}，按部署时的做法喂入舍入后的基线 {have} 值；其中 {beyond} 个变为无穷",
        "Scale the input down.",
    ),
    "input_given": Wording(
        "The target's input {name} was fed the baseline's {other}: {how}.",
        "目标的输入 {name} 使用了基线 {other} 的值：{how}。", "If this is wrong, use --rename TARGET=BASELINE.",
    ),
    "input_turned": Wording(
        "The target takes its input {name} with the baseline's axes in the order {axes}: it was transposed.",
        "目标的输入 {name} 的轴顺序为基线的 {axes}：已相应转置。", "Nothing: converters do this (NHWC for NCHW).",
    ),
    "only_fit": Wording("no other input has this shape and type", "没有别的输入有此形状和类型"),
    "by_order": Wording(
        "by the order of the inputs; --rename TARGET=BASELINE overrides this",
        "按输入的顺序；可用 --rename TARGET=BASELINE 另设",
    ),
    "only_baseline": Wording(
        "The target has no input {names}: only the baseline was fed it.", "目标没有输入 {names}：只喂给了基线。"
    ),
    "polygraphy_outputs": Wording(
        "{file} holds the outputs of Polygraphy's runner {runner}", "{file} 保存的是 Polygraphy 运行器 {runner} 的输出"
    ),
    "polygraphy_others": Wording(
        "{file} holds the outputs of Polygraphy's runner {runner}, used as the baseline, and those of {others}",
        "{file} 保存的是 Polygraphy 运行器 {runner} 的输出，以其为基线；其中还有 {others}",
    ),
    "replayed": Wording("replayed from {folder}, recorded {when}", "由 {folder} 重放，录制于 {when}"),
}  # fmt: skip


# Labels of a report: what a search held its sets to and gives away, scores, and where inputs came from.

FIXES: Mapping[str, Wording] = {
    "every_output": Wording("every output", "所有输出"),
    "every_tensor": Wording("every tensor", "所有张量"),
    "limit_check": Wording("`{command}` ends with status 0", "`{command}` 以退出码 0 结束"),
    "limit_share": Wording(
        "{what}: Rel L2 at most {percent:g}% of the error with nothing kept",
        "{what}：相对 L2 误差不超过全部低精度时的 {percent:g}%",
    ),
    "limit_metric_share": Wording(
        "{what}: at most {percent:g}% of its value with nothing kept",
        "{what}：不超过全部低精度时其值的 {percent:g}%",
    ),
    "limit_error": Wording("{what}: error at most {limit:g}", "{what}：误差不超过 {limit:g}"),
    "limit_rel_l2": Wording("{what}: Rel L2 at most {limit:g}", "{what}：相对 L2 误差不超过 {limit:g}"),
    "limit_score": Wording("{what}: at least {limit:g}, on average", "{what}：平均不低于 {limit:g}"),
    "limit_drop": Wording("{what}: worse by at most {limit:.3g}, on average", "{what}：平均变差不超过 {limit:.3g}"),
    "limit_metric": Wording("{what}: it decides", "{what}：由它判定"),
    "limit_tolerance": Wording("{what}: atol {atol:g}, rtol {rtol:g}", "{what}：容差 atol {atol:g}，rtol {rtol:g}"),
    "limit_expected": Wording(
        "{what}: Rel L2 at most {limit:.3g}, the error expected of this arithmetic",
        "{what}：相对 L2 误差不超过该运算允许损失的 {limit:.3g}",
    ),
    "fix_large": Wording(
        "one run with something kept processes {gigabytes:.2g} GB of tensors and weights, too much for a comparison by"
        " default; add --explain full to try it, or use precision_debug search",
        "保留部分算子后运行一次需处理 {gigabytes:.2g} GB 的张量与权重，超出一次对比的默认工作量；"
        "同一命令加上 --explain full 会尝试，precision_debug search 可进一步查找",
    ),
    "fix_no_outputs": Wording(
        "not every output of the target has the same layout and name as the baseline's",
        "目标的输出与基线的布局或名称不完全一致",
    ),
    "fix_failed": Wording("the engine failed with something kept: {detail}", "保留部分算子后引擎运行失败：{detail}"),
    "fix_setting_failed": Wording(
        "the engine failed with every setting that was tried: {detail}", "试用的设置均使引擎运行失败：{detail}"
    ),
    "fix_setting_large": Wording(
        "one run with another setting processes {gigabytes:.2g} GB of tensors, too much for a comparison by default;"
        " add --explain full to try it",
        "换一种设置运行一次需处理 {gigabytes:.2g} GB 的张量，超出一次对比的默认工作量；加上 --explain full 会尝试",
    ),
    "fix_ended": Wording(
        "No fix is known: the run ended while sets of operators were tried on the engine.",
        "尚无可用的修复：运行在引擎上试验算子集合时结束。",
    ),
    "fix_random": Wording(
        "{name} gives a different result in each run, so no run can tell the effect of keeping an operator",
        "{name} 每次运行的结果都不同，因此无法通过运行判断保留算子的作用",
    ),
    "recorded_tensors": Wording("its tensors were recorded: nothing of it runs here", "其张量来自录制，此处不运行"),
    "for_this_tool": Wording("for this tool", "用于本工具"),
    "named_for_this_tool": Wording("{name} for this tool", "用于本工具的 {name}"),
    "score_agreement": Wording("top-{k} agreement", "top-{k} 一致率"),
    "score_accuracy": Wording("top-{k} accuracy", "top-{k} 准确率"),
    "score_baseline": Wording("{what}, baseline", "{what}（基线）"),
    "score_target": Wording("{what}, target", "{what}（目标）"),
    "recording_inputs": Wording("the inputs of recording {recording}", "录制 {recording} 的输入"),
    "from_the_caller": Wording("arrays from the caller", "调用者给出的数组"),
    "seeded_random": Wording("seeded random (seed {seed})", "固定种子的随机数（种子 {seed}）"),
}


# The core's own catalogue.

CORE = Catalogue(
    "",
    {**ROWS, **INPUTS, **EXPORTS, **NOTES, **STAGES, **DOUBTS, **FIXES, **FAILURES, **MISTAKES, **WORDINGS, **PROVEN},
)
"""Every reason that the core gives."""


# Names as arguments of a reason: the first few of many, and those that a mistyped one may have meant.

def list_some(names: Sequence[str], most: int = 3) -> Plain:
    """List the first names, and count the others: "a, b, c and 5 more"."""
    if len(names) <= most:
        return tuple(names)
    return CORE("and_more", names=names[:most], count=len(names) - most)


def suggest_nearest(name: str, names: Sequence[str], count: int = 3) -> Reason:
    """Ask "did you mean 'a' or 'b'?", or return NOTHING where nothing is near."""
    near = find_nearest(name, names, count)
    return CORE("did_you_mean", names=[repr(other) for other in near]) if near else NOTHING
