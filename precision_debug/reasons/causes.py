"""Every cause of an error that is known: words, evidence and what follows, one entry each (see ``cause.Cause``)."""

from __future__ import annotations

from collections.abc import Mapping

from .cause import MEASURED, OF_PARTS, PARTS, SEEN, THINGS, Cause, Kind
from .engine_causes import ENGINE_CAUSES
from .quantised_causes import QUANTISED_CAUSES
from .range_causes import RANGE_CAUSES
from .reason import Wording
from .step_causes import STEP_CAUSES
from .whole_causes import WHOLE_CAUSES

__all__ = ["CAUSES", "DO_ABOUT_CAUSES", "WORDINGS"]

_FIGURE, _COUNT, _SHARE, _TEXT, _WORD, _ANY = Kind.FIGURE, Kind.COUNT, Kind.SHARE, Kind.TEXT, Kind.WORD, Kind.ANY

_NOISE = {
    "noise": Wording(
        "; one rounding of the baseline's own in its place moves the baseline's result there by {noise} (Rel L2), so"
        " that neither side can be trusted: change that operator or what it reads, not the target",
        "；基线在同一处的一次舍入也会使基线在那里的结果变动 {noise}（相对 L2），因此两侧都不可信：请修改该算子或其"
        "输入，而不是目标",
    ),
}

CAUSES: Mapping[str, Cause] = {
    "inputs_differ": Cause(
        en="the two sides were given different inputs", zh="两侧的输入不同",
        fails="always",
        do="Give both sides the same inputs, in the same types.",
        do_zh="给两侧相同类型的相同输入。",
        why=Wording(
            "{base_dtype} of {base_range} in the baseline, {target_dtype} of {target_range}"
            " in the target, off by {error}",
            "基线为 {base_dtype}（{base_range}），目标为 {target_dtype}（{target_range}），相差 {error}",
        ),
        evidence={
            "error": _FIGURE, "base_dtype": _TEXT, "target_dtype": _TEXT, "base_range": _TEXT,
            "target_range": _TEXT,
        },
        sentence=Wording(
            "Input `{name}` differs between the two sides: {why}. No error after it means anything.",
            "两侧的输入 `{name}` 不同：{why}。其后的一切误差均无意义。",
        ),
        mended=False,
    ),
    "random": Cause(
        en="the result differs from run to run", zh="每次运行结果不同",
        fails="always",
        do="Switch the randomness off before comparing: evaluation mode, a fixed seed, no dropout.",
        do_zh="关闭随机性后再比较：评估模式、固定种子、无 dropout。",
        why=Wording(
            "two runs of the same side on the same inputs differ by {between} (Rel L2) here, as much as the two sides"
            " do",
            "同一侧以相同输入运行两次，此处相差 {between}（相对 L2），与两侧之差相当",
        ),
        evidence={"between": _FIGURE},
        sentence=Wording(
            "{what} `{name}` causes the error: {why}. Fix its seed or its order of summation, or leave the tensors"
            " computed from it out of the comparison.",
            "误差来自 {what} `{name}`：{why}。请固定随机种子或求和顺序，或不比较由它得出的张量。",
        ),
        mended=False,
    ),
    "not_obeyed": Cause(
        en="the requested precision was not obeyed", zh="未遵守所要求的精度",
        fails="always",
        do="Use --precision_constraints obey, or cast in the model itself.",
        do_zh="加上 --precision_constraints obey，或在模型中显式转换。",
        why=Wording(
            "{asked} was requested for layer {layer}, but the engine ran it in {real}",
            "对层 {layer} 要求 {asked}，而引擎以 {real} 运行",
        ),
        evidence={"layer": _TEXT, "asked": _TEXT, "real": _TEXT},
        sentence=Wording(
            "{what} `{name}` causes the error: {why}. Also set the types of its outputs and of the layers that read"
            " it, and rebuild with obey.",
            "误差来自 {what} `{name}`：{why}。请同时指定其输出及读取者的类型，并以 obey 重新构建。",
        ),
        mended=False,
    ),
    "tf32": Cause(
        en="TF32 instead of FP32", zh="以 TF32 代替 FP32",
        do="Switch TF32 off for these operators, or accept about three significant digits.",
        do_zh="对这些算子关闭 TF32，或接受约三位有效数字。",
        why=Wording(
            "its error matches operands rounded to TF32's 11 bits ({units} x such a rounding), not FP32's 24;"
            " operators of this kind: {count}",
            "其误差相当于操作数舍入到 TF32 的 11 位（该舍入的 {units}），而非 FP32 的 24 位；此类算子共 {count} 个",
        ),
        evidence={"units": _FIGURE, "count": _COUNT},
        sentence=Wording(
            "{what} `{name}` causes the error: {why}. Switch TF32 off if FP32 is intended (trt_fp32; use_tf32=0;"
            " torch.backends.cuda.matmul.allow_tf32 = False; NVIDIA_TF32_OVERRIDE=0).",
            "误差来自 {what} `{name}`：{why}。若需 FP32，请关闭 TF32（trt_fp32；use_tf32=0；torch.backends.cuda.matmul."
            "allow_tf32 = False；NVIDIA_TF32_OVERRIDE=0）。",
        ),
        mended=False, one_switch=True,
    ),
    "files_differ": Cause(
        undone=Wording(
            "with the baseline's in its place",
            "若换为基线的",
        ),
        en="the two models differ here", zh="两个模型在此处不同",
        fails="least",
        do="Compare the two files at this operator: they are different models.",
        do_zh="对照两个文件的此算子：它们不是同一模型。",
        why=Wording(
            "{what} {name} is {base} in the baseline's and {target} in the target's",
            "{what} {name} 在基线中为 {base}，在目标中为 {target}",
        ),
        instead={"sole": Wording("only the {sole} has it", "仅{sole}有此算子"), "undone": Wording(
            "{what} {name} is {base} in the baseline's and {target} in the target's, which is undone in {undone}, but"
            " not in {kept}",
            "{what} {name} 在基线中为 {base}，在目标中为 {target}，这一差异在 {undone} 中被抵消，而在 {kept} 中没有",
        ), "folded": Wording(
            "{what} {name} is {target} at {at} in the target's, where folding the baseline's {folded} gives {base}"
            " ({count} of {elements} numbers {count:differs|differ})",
            "{what} {name} 的 {at} 处在目标中为 {target}，而折叠基线的 {folded} 应得 {base}"
            "（{elements} 个数中有 {count} 个不同）",
        ), "beyond": Wording(
            "{what} {name} is {base} at {at} in the baseline's and {target} in the target's ({count} of {elements}"
            " numbers {count:differs|differ}, {beyond} by more than rounding)",
            "{what} {name} 的 {at} 处在基线中为 {base}，在目标中为 {target}（{elements} 个数中有 {count} 个不同，"
            "其中 {beyond} 个超出舍入误差）",
        ), "at": Wording(
            "{what} {name} is {base} at {at} in the baseline's and {target} in the target's ({count} of {elements}"
            " numbers {count:differs|differ})",
            "{what} {name} 的 {at} 处在基线中为 {base}，在目标中为 {target}（{elements} 个数中有 {count} 个不同）",
        )},
        evidence={
            "what": _WORD, "name": _WORD, "base": _ANY, "target": _ANY, "count": _COUNT, "elements": _COUNT, "at": _ANY,
            "beyond": _COUNT, "undone": _TEXT, "kept": _TEXT, "folded": _TEXT, "owner": _TEXT, "owner_type": _TEXT,
            "sole": _WORD, "seen": _TEXT, "held": _TEXT, "held_there": _TEXT, "others": _TEXT, "alone": _SHARE,
        },
        behind={"seen": SEEN, "held": Wording(
            ", which hold it in {held} and {held_there}", "，二者分别以 {held} 与 {held_there} 保存",
        ), "others": Wording(
            "; it and {others} make the error together: with it alone put back in the target's, {alone} of this"
            " operator's own error (L2) is left",
            "；误差由它与 {others} 共同造成：在目标中仅换回它，此算子自身误差（L2）仍剩 {alone}",
        )},
        sentence=Wording(
            "{what} `{name}` differs between the two models: {why}.",
            "两个模型的 {what} `{name}` 不同：{why}。",
        ),
        mended=False,
    ),
    "held_narrower": Cause(
        undone=Wording(
            "with the constants in FP32 again",
            "若常量恢复为 FP32",
        ),
        en="constants in a narrower type in the target's file", zh="目标文件以较窄类型保存常量",
        do="Nothing, where this file was meant to be converted; else hold these constants in FP32.",
        do_zh="若此文件本就是转换所得，则无需处理；否则将这些常量保存为 FP32。",
        why=Wording(
            "the target has {weight} rounded to {held}, which is off by {off} (Rel L2)"
            " ({count} {count:constant|constants} of it)",
            "目标中的 {weight} 被舍入为 {held}，相对 L2 误差为 {off}（其中共 {count} 个常量）",
        ),
        evidence={"weight": _WORD, "held": _TEXT, "off": _FIGURE, "count": _COUNT},
        sentence=Wording(
            "{what} `{name}` reads rounded constants: {why}.",
            "{what} `{name}` 读取的是舍入过的常量：{why}。",
        ),
        mended=False,
    ),
    "few_bits": Cause(
        undone=Wording(
            "with the original's weight in its place",
            "若换回原来的权重",
        ),
        en="a weight in few bits", zh="权重以少量比特保存",
        do="Hold this weight in more bits: `search --on kl` gives the quantiser's own list.",
        do_zh="将此权重以更多比特保存：`search --on kl` 会给出量化器自身的列表。",
        why=Wording(
            "its weight {weight} is held in few bits, which are off by {off} (Rel L2)",
            "其权重 {weight} 以少量比特保存，相对 L2 误差为 {off}",
        ),
        evidence={"weight": _WORD, "off": _FIGURE},
        sentence=Wording(
            "{what} `{name}` loses by what its weight is held in: {why}.",
            "{what} `{name}` 的损失来自其权重的保存方式：{why}。",
        ),
        mended=False,
    ),
    "neighbours": Cause(
        en="it depends on what stands beside the sample", zh="依赖样本旁边的内容",
        do="Compute it over the sample alone: no statistics of the batch, and a mask wherever padding is summed up.",
        do_zh="只在样本自身上计算：不用批次统计量，凡对填充求和处都要有掩码。",
        why=Wording(
            "on the same sample it gives something else {variant}: it computes over what stands beside the sample",
            "对同一样本，{variant}时给出不同的结果：它的计算包含了样本旁边的内容",
        ),
        evidence={"variant": _WORD},
        sentence=Wording(
            "{what} `{name}` depends on its neighbours: {why}. Compute it over the sample alone, or mask the rest.",
            "{what} `{name}` 依赖相邻内容：{why}。请只在样本自身上计算，或用掩码排除其余部分。",
        ),
        mended=False,
    ),
    **RANGE_CAUSES,
    **QUANTISED_CAUSES,
    "inside_body": Cause(
        en="inside a body that was not seen", zh="出自未能查看的子图",
        do="Compare the body as a model of its own, or in an engine that shows its operators.",
        do_zh="将该子图作为单独的模型对比，或使用能显示其算子的引擎。",
        why=Wording(
            "its error arises among the operators of its body, which were not seen one by one",
            "误差产生于其子图的算子之间，而这些算子未能逐一查看",
        ),
        evidence={"units": _FIGURE},
        unproven=True, of_many=True,
    ),
    "mask_range": Cause(
        en="a mask sets the range", zh="掩码决定量化范围",
        do="Keep the operator that reads the mask in higher precision, or use a smaller mask value.",
        do_zh="将读取掩码的算子保留为更高精度，或用更小的掩码值。",
        why=Wording(
            "a mask value of {largest} sets the quantised range, so every real score becomes 0",
            "掩码值 {largest} 决定了量化范围，所有真实得分变为 0",
        ),
        evidence={"largest": _FIGURE, "mask": _TEXT},
        instead={
            "mask": Wording(
                "the mask `{mask}` is quantised, and with {largest} in its range one quantised step is larger than any"
                " real score",
                "掩码 `{mask}` 被量化，其范围含 {largest}，一个量化步长就大于任何真实得分",
            ),
        },
    ),
    "cancellation": Cause(
        undone=Wording(
            "with its own constants not rounded",
            "若其自身常量不舍入",
        ),
        gradient="below",
        en="cancellation", zh="相消",
        do="Keep this operator and the one that subtracts in FP32.",
        do_zh="将该算子与做减法的算子保留为 FP32。",
        why=Wording(
            "cancellation: {amplifier_type} `{amplifier}` subtracts nearly equal numbers (size {input_size}, result"
            " {output_size}), which amplifies this operator's rounding {factor} x",
            "相消：{amplifier_type} `{amplifier}` 对近似相等的数相减（输入量级 {input_size}，"
            "结果 {output_size}），将本算子的舍入误差放大 {factor} 倍",
        ),
        instead={
            "own": Wording(
                "cancellation: it adds up terms that nearly cancel (size {input_size}, result {output_size}), which"
                " amplifies the rounding of its own {own:constant|constants} {factor} x",
                "相消：其各项相加后几乎抵消（量级 {input_size}，结果 {output_size}），将其自身 {own} 个常量的舍入误差"
                "放大 {factor} 倍",
            ),
        },
        evidence={
            "amplifier": _TEXT, "amplifier_type": _TEXT, "factor": _FIGURE, "input_size": _FIGURE,
            "output_size": _FIGURE, "own": _COUNT, "noise": _FIGURE,
        },
        behind=_NOISE, enlarged=True,
    ),
    "amplified": Cause(
        gradient="below",
        en="ordinary rounding, amplified", zh="普通舍入误差被放大",
        do="Keep this operator and the one that amplifies it in FP32.",
        do_zh="将该算子与放大它的算子保留为 FP32。",
        why=Wording(
            "ordinary rounding, amplified {factor} x by {amplifier_type} `{amplifier}`",
            "普通舍入误差，被 {amplifier_type} `{amplifier}` 放大 {factor} 倍",
        ),
        instead={
            "broken": Wording(
                "ordinary rounding, of which {amplifier_type} `{amplifier}` makes NaN or Inf (elements: {broken})",
                "普通舍入误差，{amplifier_type} `{amplifier}` 由此产生 NaN 或 Inf（{broken} 个元素）",
            ),
            "weight": Wording(
                "its constant {weight} was rounded to {held} (off by {off}), amplified {factor} x by {amplifier_type}"
                " `{amplifier}`",
                "其常量 {weight} 被舍入为 {held}（相差 {off}），又被 {amplifier_type} `{amplifier}` 放大 {factor} 倍",
            ),
            "inner": Wording(
                "ordinary rounding of `{inner}` inside it, amplified {factor} x by what follows there",
                "其中 `{inner}` 的普通舍入误差，被其后的运算放大 {factor} 倍",
            ),
        },
        behind=_NOISE,
        evidence={
            "amplifier": _TEXT, "amplifier_type": _TEXT, "factor": _FIGURE, "weight": _TEXT, "held": _TEXT,
            "off": _FIGURE, "broken": _COUNT, "inner": _TEXT, "noise": _FIGURE,
        },
        unproven=True,
    ),
    "constant_rounded": Cause(
        undone=Wording("with that constant not rounded", "若该常量不舍入"),
        gradient="below",
        en="a rounded constant, amplified by its operator", zh="常量的舍入被其算子放大",
        do="Keep this operator and the constant that it reads in a wider type.",
        do_zh="将该算子及其读取的常量保留为更宽的类型。",
        why=Wording(
            "its constant {weight} was rounded to {held} (off by {off}), which makes {units} times one rounding here",
            "其常量 {weight} 被舍入为 {held}（相差 {off}），在此造成 {units} 倍于一次舍入的误差",
        ),
        evidence={"weight": _TEXT, "held": _TEXT, "off": _FIGURE, "units": _FIGURE},
    ),
    "packed": Cause(
        en="one tensor packs unlike quantities", zh="一个张量拼入了量级不同的量",
        fails="always",
        do="Give what is lost an output, or a scale, of its own: split the operator that packs it, or keep it.",
        do_zh="给丢失的部分单独的输出或单独的比例：拆开把它拼入的算子，或保留该算子。",
        why=Wording(
            "{count:slice|slices} {slices} of axis {axis} ({count} of {all}) {count:is|are} lost, off by {part} of"
            " {count:its|their} own size: {count:it reaches|they reach}"
            " {peak}, and {count:shares|share} one type with values up to {largest}",
            "第 {axis} 轴的切片 {slices}（{all} 个中的 {count} 个）已丢失，误差为其自身大小的 {part}："
            "其最大值为 {peak}，却与最大为 {largest} 的值共用同一类型",
        ),
        evidence={
            "slices": _TEXT, "axis": _COUNT, "count": _COUNT, "all": _COUNT, "part": _SHARE, "peak": _FIGURE,
            "largest": _FIGURE,
        },
    ),
    "stepped": Cause(
        en="what varies little about a large mean stands on steps of the type",
        zh="在大均值附近微小变化的量落在该类型的步长上",
        fails="always",
        do="Keep it in a wider type, or hold the difference from the mean, and add the mean afterwards in FP32.",
        do_zh="将其保留为更宽的类型；或只保存与均值之差，之后再以 FP32 加上均值。",
        why=Wording(
            "{count:slice|slices} {slices} of axis {axis} ({count} of {all}) {count:is|are} lost: at up to {peak} the"
            " type knows only multiples of {step}, and {count:it varies|they vary} by {spread}",
            "第 {axis} 轴的切片 {slices}（{all} 个中的 {count} 个）已丢失："
            "在最大 {peak} 处该类型只能表示 {step} 的倍数，而其自身仅变化 {spread}",
        ),
        instead={
            "elements": Wording(
                "all {elements} numbers are lost: at up to {peak} the type knows only multiples of {step}, and they"
                " vary by {spread}",
                "全部 {elements} 个数已丢失：在最大 {peak} 处该类型只能表示 {step} 的倍数，而其自身仅变化 {spread}",
            )
        },
        evidence={
            "elements": _COUNT, "slices": _TEXT, "axis": _COUNT, "count": _COUNT, "all": _COUNT, "peak": _FIGURE,
            "step": _FIGURE, "spread": _FIGURE,
        },
    ),
    "cancels": Cause(
        gradient="below",
        en="subtracts nearly equal numbers", zh="对近似相等的数相减",
        do="Rewrite the formula (a variance as the mean of squared differences), or keep this operator and what it"
           " reads in a wider type.",
        do_zh="改写公式（例如方差取偏差平方的均值），或将该算子及其输入保留为更宽的类型。",
        why=Wording(
            "cancellation: it subtracts nearly equal numbers (size {input_size}, result {output_size}), which amplifies"
            " the ordinary rounding of what it reads {factor} x",
            "相消：它对近似相等的数相减（输入量级 {input_size}，结果 {output_size}），将其输入的普通舍入误差放大"
            " {factor} 倍",
        ),
        instead={
            "gathered": Wording(
                "cancellation: it subtracts nearly equal numbers (size {input_size}, result {output_size}), which"
                " amplifies the error that what it reads has gathered (of `{source}` {gathered}, {times} x its own"
                " rounding) {factor} x",
                "相消：它对近似相等的数相减（输入量级 {input_size}，结果 {output_size}），将其输入累积的误差"
                "（`{source}` 为 {gathered}，是其自身舍入的 {times} 倍）放大 {factor} 倍",
            ),
        },
        evidence={
            "factor": _FIGURE, "input_size": _FIGURE, "output_size": _FIGURE, "gathered": _FIGURE, "times": _FIGURE,
            "source": _TEXT,
        },
    ),
    "amplifies": Cause(
        gradient="below",
        en="amplifies ordinary rounding", zh="放大普通舍入误差",
        do="Keep this operator and what it reads in a wider type.",
        do_zh="将该算子及其输入保留为更宽的类型。",
        why=Wording(
            "{operator} amplifies the ordinary rounding of what it reads (size {input_size}) {factor} x",
            "{operator} 将其输入（量级 {input_size}）的普通舍入误差放大 {factor} 倍",
        ),
        instead={
            "gathered": Wording(
                "{operator} amplifies the error that what it reads has gathered (of `{source}` {gathered}, {times} x"
                " its own rounding) {factor} x",
                "{operator} 将其输入累积的误差（`{source}` 为 {gathered}，是其自身舍入的 {times} 倍）放大 {factor} 倍",
            ),
            "apart": Wording(
                "`{source}` is made in {held_as}, in which numbers near {largest} are {apart} apart, so that several"
                " become one; {operator} makes that {factor} x larger",
                "`{source}` 以 {held_as} 计算，其在 {largest} 附近的相邻数相差 {apart}，多个数值因此变为同一个；"
                "{operator} 将其放大 {factor} 倍",
            ),
        },
        evidence={
            "factor": _FIGURE, "input_size": _FIGURE, "operator": _TEXT, "apart": _FIGURE, "largest": _FIGURE,
            "source": _TEXT, "held_as": _TEXT, "gathered": _FIGURE, "times": _FIGURE,
        },
    ),
    "born_on_both": Cause(
        en="NaN or Inf in both runs", zh="两次运行均产生 NaN 或 Inf",
        do="Check what this operator reads: weights that hold NaN or Inf, a division by 0, a root or logarithm of what"
           " is not positive, labels that are all ignored.",
        do_zh="检查该算子的输入：权重中的 NaN 或 Inf、除以 0、对非正数开方或取对数、标签全部被忽略等。",
        why=Wording(
            "of the tensors that were compared, its result is the first with {kind} ({count} {count:element|elements}),"
            " in the baseline too",
            "在参与比较的张量中，其结果最先出现 {kind}（{count} 个元素），基线中也是如此",
        ),
        evidence={"kind": _TEXT, "count": _COUNT, "output": _TEXT},
        sentence=Wording(
            "{what} `{name}` makes the {kind} of `{output}`: {why}. The precision is not the reason: look at what it"
            " reads, its weights among it.",
            "`{output}` 的 {kind} 来自 {what} `{name}`：{why}。与精度无关：请检查它的输入与权重。",
        ),
        mended=False, fails="always",
    ),
    "slope_infinite": Cause(
        en="an infinite slope times 0", zh="无穷大的斜率乘以 0",
        do="Keep the operator away from there: an epsilon beneath a root, torch.where on its input as well as on its"
           " result.",
        do_zh="避免该算子取到此处：在根号内加 epsilon；torch.where 除结果外也要作用于其输入。",
        why=Wording(
            "its slope is infinite where it reads 0, and times 0 that is NaN"
            " ({count} {count:element|elements}), in the baseline too",
            "它在 0 处的斜率为无穷大，乘以 0 即为 NaN（{count} 个元素），基线中也是如此",
        ),
        evidence={"kind": _TEXT, "count": _COUNT, "output": _TEXT, "slope": _TEXT},
        sentence=Wording(
            "`{slope}` of the forward pass makes the {kind} of `{output}`, by {what} `{name}`: {why}. The precision is"
            " not the reason, and torch.where behind it does not help: 0 times Inf is NaN.",
            "前向的 `{slope}` 使 `{output}` 出现 {kind}（经由 {what} `{name}`）：{why}。与精度无关；"
            "在其后使用 torch.where 无济于事：0 乘以无穷大是 NaN。",
        ),
        mended=False, fails="always",
    ),
    "long_reduction": Cause(
        gradient="below",
        of_type=True,
        en="a long sum in a narrow type", zh="窄类型长求和",
        do="Let the sum accumulate in FP32.",
        do_zh="让求和以 FP32 累加。",
        why=Wording("it sums up to {depth} terms in a narrow type", "以窄类型对多达 {depth} 项求和"),
        evidence={"depth": _COUNT, "units": _FIGURE},
        unproven=True,
    ),
    "drift": Cause(
        en="rounding biased to one side in each iteration", zh="每次迭代的舍入都偏向同一侧",
        do="Keep the state of the loop in FP32, or use larger steps.",
        do_zh="将循环的状态保留为 FP32，或使用更大的步长。",
        why=Wording(
            "over {depth} {depth:iteration|iterations} its rounding is biased to one side because of the loop's"
            " own state; together that"
            " makes {share} of the squared error",
            "在 {depth} 次迭代中，其舍入因循环自身的状态而总偏向同一侧，合计占平方误差的 {share}",
        ),
        instead={
            "lost": Wording(
                "an update lost: over {depth} updates in a row {lost} of the elements that are to move stay as they"
                " were, since what is added is below half of the spacing of {type} there; together that makes {share}"
                " of the squared error",
                "更新丢失：在连续 {depth} 次更新中，应变化的元素有 {lost} 保持原值，因为所加的量小于该处 {type}"
                " 相邻数间距的一半；合计占平方误差的 {share}",
            ),
        },
        evidence={"depth": _COUNT, "share": _SHARE, "lost": _SHARE, "type": _TEXT},
        enlarged=True,
    ),
    "born": Cause(
        gradient="below above",
        en="NaN or Inf first appears here", zh="此处产生 NaN 或 Inf",
        do="Check divisions, square roots, logarithms and exponentials here.",
        do_zh="检查该处的除法、开方、对数与指数。",
        why=Wording(
            "{what} from finite inputs ({count} {count:element|elements})", "由有限输入产生 {what}（{count} 个元素）",
        ),
        instead={"infinite": Wording(
            "{what} ({count} {count:element|elements}) from inputs that hold {infinite} infinite"
            " {infinite:value|values} on both sides",
            "由两侧均含 {infinite} 个无穷值的输入产生 {what}（{count} 个元素）",
        )},
        evidence={"what": _TEXT, "count": _COUNT, "infinite": _COUNT},
        out_of_range="above", unproven=True, by_a_pass=True,
    ),
    "infinite_constant": Cause(
        en="a constant is infinite", zh="常量为无穷大",
        do="Replace the infinity with a large finite number, or keep the operator that reads it in FP32.",
        do_zh="用较大的有限值代替无穷大，或将读取它的算子保留为 FP32。",
        why=Wording(
            "its constant {weight} holds NaN or Inf, and {count} results are not finite although the baseline's are",
            "其常量 {weight} 含有无穷大或 NaN，有 {count} 个结果非有限而基线为有限值",
        ),
        evidence={"weight": _TEXT, "count": _COUNT},
    ),
    **WHOLE_CAUSES,
    "other_arithmetic": Cause(
        en="the target computes something else", zh="目标的计算不同",
        do="Compare what both sides compute here.", do_zh="对照两侧在此处的运算。",
        evidence={
            "rel_l2": _FIGURE, "count": _COUNT, "elements": _COUNT, "turned": _COUNT, "ours": _TEXT, "theirs": _TEXT,
            "at": _TEXT, "place": _WORD, "differing": _COUNT, "base_there": _TEXT, "target_there": _TEXT,
            "relation": _WORD, "relation_there": _WORD, "within": _WORD, "left": _SHARE, "owner": _TEXT,
            "owner_type": _TEXT, "sole": _WORD, "seen": _TEXT, "met": _WORD, "met_there": _WORD, "shape": _TEXT,
            "shape_there": _TEXT,
        },
        behind={"seen": SEEN},
        instead={"sole": Wording(
            "the target computes something else: only the {sole} has it", "目标的计算不同：仅{sole}有此算子"
        ), "shape": Wording(
            "the target computes something else: its result has the shape {shape_there} and the baseline's {shape}",
            "目标的计算不同：其结果形状为 {shape_there}，而基线为 {shape}",
        ), "met": Wording(
            "the target computes something else: of several numbers that go to one place, as indices repeat, it has"
            " {met_there}, and the baseline {met}",
            "目标的计算不同：索引重复时，对写入同一位置的多个数，目标取{met_there}，而基线取{met}",
        ), "ours": Wording(
            "the target computes something else: {theirs} where the baseline has {ours} (`{at}`)",
            "目标的计算不同：基线为 {ours} 之处，目标为 {theirs}（`{at}`）",
        ), "turned": Wording(
            "the target computes something else: the same {turned} {turned:operator|operators} in another order",
            "目标的计算不同：{turned} 个同类算子的顺序不同",
        ), "count": Wording(
            "the target computes something else: {count} of {elements} whole numbers or truth values differ on the"
            " same inputs",
            "目标的计算不同：相同输入下 {elements} 个整数或布尔结果中有 {count} 个不同",
        ), "relation": Wording(
            "the target computes something else: its results are {relation}", "目标的计算不同：其结果为{relation}",
        ), "relation_there": Wording(
            "the target computes something else at {place} ({differing} of {elements} numbers differ): its results are"
            " {relation_there}",
            "目标在 {place} 处的计算不同（{elements} 个数中有 {differing} 个不同）：其结果为{relation_there}",
        ), "within": Wording(
            "the target computes something else only where the baseline has numbers {within} ({differing} of"
            " {elements})",
            "目标的计算仅在基线的数{within}之处不同（{elements} 个数中的 {differing} 个）",
        ), "base_there": Wording(
            "the target computes something else at {place} ({differing} of {elements} numbers differ), where the"
            " baseline has {base_there} throughout",
            "目标在 {place} 处的计算不同（{elements} 个数中有 {differing} 个不同），基线在该处全为 {base_there}",
        ), "target_there": Wording(
            "the target computes something else at {place} ({differing} of {elements} numbers differ), where it has"
            " {target_there} throughout",
            "目标在 {place} 处的计算不同（{elements} 个数中有 {differing} 个不同），目标在该处全为 {target_there}",
        ), "place": Wording(
            "the target computes something else at {place} ({differing} of {elements} numbers differ)",
            "目标在 {place} 处的计算不同（{elements} 个数中有 {differing} 个不同）",
        )},
        unproven=True, by_a_pass=True,
    ),
    **ENGINE_CAUSES,
    "found_by_repair": Cause(
        gradient="below",
        en="found by its repair", zh="由修复得出",
        do="Keep these operators in higher precision.", do_zh="将这些算子保留为更高精度。",
        why=Wording(
            "with {kept} in FP32 on the engine {after} of the error of {before} is left; why it loses so much was not"
            " found",
            "在引擎上将 {kept} 保留为 FP32 后，误差由 {before} 降至 {after}；其原因未查明",
        ),
        evidence={"kept": _TEXT, "before": _FIGURE, "after": _FIGURE},
        unproven=True,
    ),
    "metric_lost": Cause(
        gradient="below",
        en="the user's metric falls by it", zh="用户的指标因此下降",
        do="Keep these operators in higher precision.",
        do_zh="将这些算子保留为更高精度。",
        why=Wording(
            "its error is small beside its numbers, and what `{metric}` asks hangs on it: with {kept} in FP32 on the"
            " engine it loses {after} in place of {before}",
            "其误差相对自身数值很小，但 `{metric}` 取决于它：在引擎上将 {kept} 保留为 FP32 后，其损失由 {before}"
            " 变为 {after}",
        ),
        evidence={"kept": _TEXT, "metric": _WORD, "before": _FIGURE, "after": _FIGURE},
        unproven=True,
    ),
    "unfound": Cause(
        gradient="below",
        en="introduced here, cause not found", zh="误差产生于此，原因未查明",
        do="Keep the operator in higher precision, and look at what it computes.",
        do_zh="将该算子保留为更高精度，并查看它的计算。",
        why=Wording(
            "it introduces the error itself, by a cause that was not found; tried and refuted: {tried}",
            "误差由其自身引入，原因未查明；已试验并排除：{tried}",
        ),
        evidence={"tried": _WORD, "units": _FIGURE},
        unproven=True,
    ),
    "coarse": Cause(
        gradient="below",
        of_type=True,
        en="this type is too coarse", zh="该类型精度不足",
        do="Keep the operator in higher precision.",
        do_zh="将该算子保留为更高精度。",
        instead={
            "parts": Wording(
                "this type is too coarse: of its own squared error, each rounded alone makes: {parts}",
                "该类型精度不足：在其自身误差平方中，各自单独舍入所占：{parts}",
            ),
            "steps": Wording(
                "this type is too coarse: its values span {steps} {steps:step|steps} of {step} each",
                "该类型精度不足：其数值只占 {steps} 个量化步长，每步 {step}",
            ),
            "before": Wording(
                "it runs in {cast}, in which {before} different numbers of `{source}` become {after}",
                "它以 {cast} 运行，`{source}` 的 {before} 个不同的数值因此变为 {after} 个",
            ),
            "cast": Wording(
                "`{source}` is cast to {cast}, which is too coarse: that alone makes an error of {error} (Rel L2)",
                "`{source}` 转为 {cast}，精度不足：仅此一步的相对 L2 误差就有 {error}",
            ),
            "fits": Wording(
                "its constant {weight} is rounded by a scale that does not fit: its numbers are whole multiples (up to"
                " {fits} times, of either sign) of one number for each scale, which this type holds exactly",
                "其常量 {weight} 的缩放因子不合适：每个缩放因子所辖的数均为同一数的整数倍（至多 ±{fits} 倍），"
                "该类型可精确表示",
            ),
        },
        evidence={
            "units": _FIGURE, "steps": _COUNT, "step": _FIGURE, "cast": _TEXT, "source": _TEXT, "error": _FIGURE,
            "before": _COUNT, "after": _COUNT, "fits": _COUNT, "weight": _TEXT, **OF_PARTS, **MEASURED,
        },
        behind={"folded": PARTS["folded"]},
        unproven=True,
    ),
    **STEP_CAUSES,
}  # fmt: skip
"""Code to record; the order is that of the page of all reasons."""

WORDINGS: Mapping[str, Wording] = {
    **{f"cause_{code}": Wording(cause.en, cause.zh, cause.do) for code, cause in CAUSES.items()},
    **{f"why_{code}": cause.why for code, cause in CAUSES.items() if cause.why is not None},
    **{f"undone_{code}": cause.undone for code, cause in CAUSES.items() if cause.undone is not None},
    **{f"why_{code}_{key}": one for code, cause in CAUSES.items() for key, one in cause.instead.items()},
    **{f"why_{code}_{key}": one for code, cause in CAUSES.items() for key, one in cause.behind.items()},
    **THINGS,
}
"""The same for the catalogue."""

DO_ABOUT_CAUSES: Mapping[str, str] = {cause.do: cause.do_zh for cause in CAUSES.values()}
"""What to do, English to Chinese."""
