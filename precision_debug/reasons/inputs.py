"""What was chosen for a model's inputs, or done to them."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["INPUTS"]

_RANGE = "Give --val_range NAME:LOW,HIGH, or real --inputs."
_REAL = "Give real --inputs."

INPUTS: Mapping[str, Wording] = {
    "input_left_out": Wording(
        "{name}: left out, the model has a default for it", "{name}：未给出，模型有默认值", "Give it with --inputs."
    ),
    "input_sized": Wording(
        "{name}: {chosen} chosen for what the model leaves open; {option} sets others",
        "{name}：模型未确定的维度取 {chosen}；可用 {option} 另设", "Give --input_shapes.",
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
    "ones": Wording("ones, as nothing is masked", "全为 1，即不遮蔽"),
    "no_padding": Wording("zeros, as nothing is padding", "全为 0，即没有填充"),
    "sampling_rate": Wording("a sampling rate of {rate}", "采样率 {rate}"),
    "zeros": Wording("zeros, one kind of token", "全为 0，即同一类 token"),
    "positions": Wording("positions from 0 up", "从 0 递增的位置"),
    "whole_numbers": Wording("whole numbers from {low} to {high}", "{low} 到 {high} 的整数"),
    "input_unchecked": Wording(
        "{name}: type {dtype} was passed on unchecked", "{name}：类型 {dtype} 未经检查直接传入"
    ),
    "input_raw": Wording(
        "{name}: raw {bytes}-byte values read as {dtype}", "{name}：{bytes} 字节的原始值按 {dtype} 读取"
    ),
    "input_scalar": Wording(
        "{name}: the shape [1] was given for a number without dimensions", "{name}：以形状 [1] 给出了无维度的数"
    ),
    "input_converted": Wording(
        "{name}: {have} converted to {dtype}, every value kept", "{name}：{have} 转换为 {dtype}，数值不变"
    ),
    "input_non_finite": Wording(
        "{name}: {nan} NaN and {inf} infinite of {count} values", "{name}：{count} 个值中有 {nan} 个 NaN、{inf}"
        " 个无穷",
        "Give an input without them.",
    ),
    "range_idle": Wording(
        "--val_range has no effect on values from --inputs", "--val_range 对 --inputs 给出的值不起作用",
        "Leave --val_range out.",
    ),
    "input_rounded": Wording(
        "{name}: the target takes {dtype}, and is fed the baseline's {have} values rounded to it, as a"
        " deployment would",
        "{name}：目标接受 {dtype}，按部署时的做法喂入舍入后的基线 {have} 值",
    ),
    "input_rounded_infinite": Wording(
        "{name}: the target takes {dtype}, and is fed the baseline's {have} values rounded to it, as a deployment"
        " would; {beyond} values become infinite",
        "{name}：目标接受 {dtype}，按部署时的做法喂入舍入后的基线 {have} 值；其中 {beyond} 个变为无穷",
        "Scale the input down.",
    ),
    "input_given": Wording(
        "The target's input {name} was given what the baseline's {other} was given: {how}.",
        "目标的输入 {name} 使用了基线 {other} 的值：{how}。", "Give --rename TARGET=BASELINE where this is wrong.",
    ),
    "input_turned": Wording(
        "The target takes its input {name} with the axes in the order {axes} of the baseline's: it is turned.",
        "目标的输入 {name} 的轴顺序为基线的 {axes}：已相应转置。", "Nothing: converters do so (NHWC for NCHW).",
    ),
    "only_fit": Wording("no other one has this shape and type", "没有别的输入有此形状和类型"),
    "by_order": Wording(
        "by the order of the inputs; --rename TARGET=BASELINE says otherwise",
        "按输入的顺序；可用 --rename TARGET=BASELINE 另设",
    ),
    "only_baseline": Wording(
        "The target has no input {names}: only the baseline was given it.", "目标没有输入 {names}：只喂给了基线。"
    ),
    "polygraphy_outputs": Wording(
        "{file} holds what Polygraphy's runner {runner} gave", "{file} 保存的是 Polygraphy 运行器 {runner} 的输出"
    ),
    "polygraphy_others": Wording(
        "{file} holds what Polygraphy's runner {runner} gave, which is compared with; it also holds {others}",
        "{file} 保存的是 Polygraphy 运行器 {runner} 的输出，以其为基线；其中还有 {others}",
    ),
    "replayed": Wording("replayed from {folder}, recorded {when}", "由 {folder} 重放，录制于 {when}"),
}  # fmt: skip
