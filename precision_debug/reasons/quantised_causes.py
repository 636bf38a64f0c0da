"""Causes of quantised tensors and constants: a range that is too small or too large, and what was stored wrongly."""

from __future__ import annotations

from collections.abc import Mapping

from .cause import OF_PARTS, PARTS, Cause, Kind
from .reason import Wording

__all__ = ["QUANTISED_CAUSES"]

_FIGURE, _COUNT, _SHARE, _TEXT, _WORD, _ANY = Kind.FIGURE, Kind.COUNT, Kind.SHARE, Kind.TEXT, Kind.WORD, Kind.ANY

_WRITTEN = {"from": _TEXT, "written": _TEXT, "read": _TEXT, "constant": _TEXT, "base": _TEXT}
"""Of a scale or a zero point with which one operator writes what another reads with its own."""

_CHANGED = {
    "constant": Wording("; constant {constant} is {base} in the baseline's", "；常量 {constant} 在基线中为 {base}"),
}

QUANTISED_CAUSES: Mapping[str, Cause] = {
    "saturation": Cause(
        undone=Wording(
            "with a range that holds the clipped results",
            "若量化范围能容纳被截断的结果",
        ),
        en="saturation", zh="饱和截断",
        do="Calibrate on inputs that reach these values, or use another calibration method.",
        do_zh="用能达到这些值的输入校准，或换一种方法。",
        why=Wording(
            "saturation, {share} of its results are clipped at {limit}, though they reach {largest}",
            "饱和，{share} 的结果被截断在 {limit}，而实际达到 {largest}",
        ),
        evidence={"share": _SHARE, "largest": _FIGURE, "limit": _FIGURE},
    ),
    "weight_clipped": Cause(
        en="a quantised weight is clipped", zh="量化权重被截断",
        do="Quantise the weight again with a scale that reaches its largest value.",
        do_zh="用能覆盖其最大值的比例重新量化该权重。",
        why=Wording(
            "its constant {weight} reaches {largest} and is clipped at {limit} by its scale"
            " ({count} {count:element|elements})",
            "其常量 {weight} 达到 {largest}，被其量化比例截断在 {limit}（{count} 个元素）",
        ),
        evidence={"weight": _TEXT, "count": _COUNT, "largest": _FIGURE, "limit": _FIGURE},
    ),
    "bias_clipped": Cause(
        en="a quantised bias is clipped", zh="量化偏置被截断",
        do="Use a larger weight scale, so that the bias fits into int32, or leave the operator in float.",
        do_zh="增大权重的比例，使偏置能放入 int32，或将该算子保留为浮点。",
        why=Wording(
            "its int32 bias {weight} stands at the type's maximum, {limit}, in {count} {count:element|elements}:"
            " it was clipped",
            "其 int32 偏置 {weight} 有 {count} 个元素位于该类型的端点 {limit}：已被截断",
        ),
        evidence={"weight": _TEXT, "count": _COUNT, "limit": _COUNT},
    ),
    "zero_point": Cause(
        undone=Wording(
            "without the shift",
            "若无此偏移",
        ),
        en="a wrong zero point", zh="零点错误",
        do="Compare the zero point used to quantise it with the one used to read it.",
        do_zh="对照量化时与读取时的零点。",
        why=Wording(
            "a wrong zero point: {which} are off by the same {shift}, {steps} {steps:step|steps}",
            "零点错误：{which}均偏移 {shift}，即 {steps} 个量化步长",
        ),
        instead={
            "read": Wording(
                "a wrong zero point: `{from}` is written with a zero point of {written} and read with {read}",
                "零点错误：`{from}` 写入时的零点为 {written}，读取时却为 {read}",
            ),
            "count": Wording(
                "a wrong zero point: {count} of {elements} numbers of its constant {weight}, from {first} to {last},"
                " are off by {steps} {steps:step|steps} of their scale",
                "零点错误：其常量 {weight} 的 {elements} 个数中有 {count} 个（{first} 至 {last}）偏移其比例的"
                " {steps} 个步长",
            ),
            "weight": Wording(
                "a wrong zero point: all values of its constant {weight} are off by the same {shift}, {steps}"
                " {steps:step|steps}",
                "零点错误：其常量 {weight} 的所有数均偏移 {shift}，即 {steps} 个量化步长",
            ),
        },
        behind=_CHANGED,
        evidence={
            "weight": _TEXT, "shift": _FIGURE, "steps": _FIGURE, "count": _COUNT, "elements": _COUNT, "first": _TEXT,
            "last": _TEXT, "which": _WORD, **_WRITTEN,
        },
    ),
    "scale": Cause(
        of_type=True,
        undone=Wording(
            "without the factor",
            "若无此倍数",
        ),
        en="a wrong scale", zh="比例错误",
        fails="least", fails_with="weight",
        do="Compare the scale used to quantise it with the one used to read it.",
        do_zh="对照量化时与读取时的比例。",
        why=Wording(
            "a wrong scale: {which} are {ratio} x what they should be",
            "比例错误：{which}均为应有值的 {ratio} 倍",
        ),
        behind=_CHANGED,
        instead={
            "read": Wording(
                "a wrong scale: `{from}` is written with a scale of {written} and read with {read}",
                "比例错误：`{from}` 写入时的比例为 {written}，读取时却为 {read}",
            ),
            "read_on": Wording(
                "a wrong scale: {count} of {elements} numbers of its bias {weight} are quantised with a scale of"
                " {scale} and read on {read_on}, its input's times its weight's, {ratio} x",
                "比例错误：其偏置 {weight} 的 {elements} 个数中有 {count} 个以比例 {scale} 量化，读取时却用 {read_on}"
                "（输入比例乘权重比例），为其 {ratio} 倍",
            ),
            "weight": Wording(
                "a wrong scale: {count} of {elements} numbers of its constant {weight}, from {first} to {last}, are"
                " {ratio} x what they should be",
                "比例错误：其常量 {weight} 的 {elements} 个数中有 {count} 个（{first} 至 {last}）为应有值的 {ratio} 倍",
            )
        },
        evidence={
            "ratio": _FIGURE, "weight": _TEXT, "count": _COUNT, "elements": _COUNT, "first": _TEXT, "last": _TEXT,
            "scale": _FIGURE, "read_on": _FIGURE, "which": _WORD, **_WRITTEN,
        },
    ),
    "coarse_scale": Cause(
        undone=Wording("with a scale that its values fit", "若比例与其数值相称"),
        en="a scale far too large for its values", zh="比例远大于其数值所需",
        do="Calibrate that tensor again: its scale leaves most of the type's steps unused.",
        do_zh="重新校准该张量：其比例使该类型的大部分步长闲置。",
        why=Wording(
            "`{from}` is quantised to {type} with a scale of {scale}, so that its values, up to {largest}, take"
            " {used} {used:step|steps} of {steps}; {fits} would do",
            "`{from}` 以比例 {scale} 量化为 {type}，其数值（最大 {largest}）只用到 {steps} 个步长中的 {used} 个；"
            "比例 {fits} 即可",
        ),
        instead={"with_zero": Wording(
            "`{from}` is quantised to {type} with a scale of {scale}, so that its values, up to {largest}, take"
            " {used} {used:step|steps} of {steps}; {fits} with a zero point of {with_zero} would do",
            "`{from}` 以比例 {scale} 量化为 {type}，其数值（最大 {largest}）只用到 {steps} 个步长中的 {used} 个；"
            "比例 {fits} 配零点 {with_zero} 即可",
        )},
        sentence=Wording(
            "{what} `{name}` lost the precision: {why}. Quantise `{from}` again with that scale.",
            "{what} `{name}` 丢失了精度：{why}。请用该比例重新量化 `{from}`。",
        ),
        evidence={
            "from": _TEXT, "type": _TEXT, "scale": _FIGURE, "largest": _FIGURE, "used": _COUNT, "steps": _COUNT,
            "fits": _FIGURE, "zero": _FIGURE, "with_zero": _TEXT,
        },
    ),
    "other_range": Cause(
        undone=Wording("with the ranges that its values have", "若换为与其数值相称的范围"),
        en="a range that is not its values'", zh="量化范围与其数值不符",
        do="Compare the quantiser's range, of each channel, with the values that reach it, and calibrate that tensor"
           " again.",
        do_zh="将量化器（各通道）的范围与到达它的数值对照，并重新校准该张量。",
        why=Wording(
            "`{from}` is quantised from {low} to {high}, though it reaches from {least} to {largest}",
            "`{from}` 的量化范围为 {low} 至 {high}，而其数值为 {least} 至 {largest}",
        ),
        instead={
            "order": Wording(
                "the ranges of the channels of `{from}` (axis {axis}) are in another order: channel {channel} is"
                " quantised from {low} to {high}, though it reaches from {least} to {largest}; their own are {order}",
                "`{from}` 各通道（轴 {axis}）的量化范围次序有误：通道 {channel} 为 {low} 至 {high}，而其数值为"
                " {least} 至 {largest}；正确的次序为 {order}",
            ),
            "count": Wording(
                "channel {channel} of `{from}` (axis {axis}) is quantised from {low} to {high}, though it reaches from"
                " {least} to {largest} ({count} of {channels} channels {count:is|are} off so)",
                "`{from}` 的通道 {channel}（轴 {axis}）的量化范围为 {low} 至 {high}，而其数值为 {least} 至 {largest}"
                "（{channels} 个通道中有 {count} 个如此）",
            ),
        },
        evidence={
            "from": _TEXT, "low": _FIGURE, "high": _FIGURE, "least": _FIGURE, "largest": _FIGURE, "axis": _COUNT,
            "channel": _COUNT, "count": _COUNT, "channels": _COUNT, "order": _ANY,
        },
    ),
    "broken_scale": Cause(
        undone=Wording("with a sound scale in its place", "若换为正常的比例"),
        en="a scale that holds no number", zh="无法表示任何数的比例",
        fails="always",
        do="Give it a finite scale above 0 (calibrate on inputs over which it varies, or by another method), or leave"
           " the operator in float.",
        do_zh="给它一个大于 0 的有限比例（用能使其变化的输入校准，或换一种方法），或将该算子保留为浮点。",
        why=Wording(
            "`{from}` is quantised to {type} with a scale of {scale}, on which no number has a place",
            "`{from}` 以比例 {scale} 量化为 {type}，任何数都无法由其表示",
        ),
        instead={
            "weight": Wording(
                "its constant {weight} is quantised to {type} with a scale of {scale}, on which no number has a place",
                "其常量 {weight} 以比例 {scale} 量化为 {type}，任何数都无法由其表示",
            ),
        },
        behind={"count": Wording(" ({count} of {elements} numbers)", "（{elements} 个数中的 {count} 个）")},
        evidence={
            "from": _TEXT, "weight": _TEXT, "type": _TEXT, "scale": _TEXT, "count": _COUNT, "elements": _COUNT,
        },
    ),
    "reads_rounded": Cause(
        undone=Wording("with what it reads not rounded", "若其读取的数不舍入"),
        en="it rounds what it reads to 8 bits", zh="它将读取的数舍入到 8 位",
        do="Let the operator multiply in float: accuracy_level 0 or 1 of MatMulNBits.",
        do_zh="让该算子以浮点相乘：将 MatMulNBits 的 accuracy_level 设为 0 或 1。",
        why=Wording(
            "it rounds what it reads, `{from}`, to 8-bit integers before it multiplies, as the file asks ({asked})",
            "它在相乘之前将读取的 `{from}` 舍入为 8 位整数，这是文件所要求的（{asked}）",
        ),
        sentence=Wording(
            "{what} `{name}` lost the precision: {why}. Let it multiply in float (accuracy_level 0 or 1 of"
            " MatMulNBits), or scale down what is large in `{from}`.",
            "{what} `{name}` 丢失了精度：{why}。请让它以浮点相乘（将 MatMulNBits 的 accuracy_level 设为 0 或 1），"
            "或缩小 `{from}` 中的大数。",
        ),
        evidence={"from": _TEXT, "asked": _TEXT, "block": _COUNT},
        mended=False,
    ),
    "constant_scale": Cause(
        undone=Wording("with that constant as the model has it", "若该常量与模型一致"),
        en="a scale too large for most of a constant", zh="比例对常量的大部分数值过大",
        do="Give the large numbers of that constant a scale of their own (per channel, smaller blocks), or keep the"
           " operator that reads it in FP32.",
        do_zh="为该常量中的大数值单独设比例（逐通道、更小的分块），或将读取它的算子保留为 FP32。",
        why=Wording(
            "quantised, {share} of its constant {weight} become 0: its numbers reach from {least} to {largest}",
            "量化后其常量 {weight} 的 {share} 变为 0：其数值从 {least} 到 {largest}",
        ),
        evidence={"weight": _TEXT, "least": _FIGURE, "largest": _FIGURE, "share": _SHARE, **OF_PARTS},
        behind=PARTS,
    ),
    "outlier_channel": Cause(
        undone=Wording(
            "with a scale of its own for what is larger",
            "若对较大者单独使用一个比例",
        ),
        en="an outlier channel", zh="离群通道",
        do="Quantise per channel, or smooth the outlier into the weights.",
        do_zh="逐通道量化，或将离群值平滑到权重中。",
        why=Wording(
            "{who} is {ratio} x larger than {than} and takes up the quantised range",
            "{who} 比{than}大 {ratio} 倍，占去了量化范围",
        ),
        instead={
            "too": Wording(
                "{who} is {ratio} x larger than {than} and takes up the quantised range, and the same one does so in"
                " {too}",
                "{who} 比{than}大 {ratio} 倍，占去了量化范围，在 {too} 中也是如此",
            ),
            "several": Wording(
                "along axis {axis} of `{several}` all share one scale, and the largest is {ratio} x larger than {than}",
                "`{several}` 沿轴 {axis} 的数值共用一个比例，其中最大者比{than}大 {ratio} 倍",
            ),
            "from": Wording(
                "{who} of `{from}` is {ratio} x larger than {than} and takes up the quantised range",
                "`{from}` 的{who} 比{than}大 {ratio} 倍，占去了量化范围",
            ),
        },
        evidence={
            "from": _TEXT, "who": _WORD, "several": _TEXT, "channel": _COUNT, "axis": _COUNT,
            "ratio": _FIGURE, "than": _WORD, "too": _TEXT, **OF_PARTS,
        },
        behind=PARTS,
        unproven=True,
    ),
}  # fmt: skip
