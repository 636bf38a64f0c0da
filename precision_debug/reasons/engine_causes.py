"""Causes that lie in an engine: one of its passes, or a kernel that other implementations disagree with."""

from __future__ import annotations

from collections.abc import Mapping

from .cause import Cause, Kind
from .reason import Wording

__all__ = ["ENGINE_CAUSES"]

_FIGURE, _COUNT, _SHARE, _TEXT = Kind.FIGURE, Kind.COUNT, Kind.SHARE, Kind.TEXT

_PASS = {
    "passes": _TEXT, "before": _FIGURE, "after": _FIGURE, "runs": _COUNT, "of": _COUNT, "replaced": _TEXT,
    "instead": _TEXT, "paste": _TEXT, "option": _TEXT,
}  # fmt: skip
_UNROUNDED = {"exact_base": _FIGURE, "exact_target": _FIGURE}

ENGINE_CAUSES: Mapping[str, Cause] = {
    "faulty_pass": Cause(
        en="an engine pass changes the computation", zh="引擎的某个 pass 改变了计算",
        do="Switch the pass off with the line to paste, and report it to the engine's developers.",
        do_zh="按可粘贴的那一行关闭该 pass，并向引擎开发者报告。",
        why=Wording(
            "the engine turns {replaced} into {instead} ({passes}), which changes the computation: the outputs are off"
            " by {before} (Rel L2), and by {after} with the pass switched off (bisected {of} {of:pass|passes} in"
            " {runs} {runs:build|builds})",
            "引擎的 {passes} 将 {replaced} 变为 {instead}，改变了计算：启用时输出相差 {before}（相对"
            " L2），关闭后为 {after}（{of} 个 pass 中二分，构建 {runs} 次）",
        ),
        evidence=_PASS,
        sentence=Wording(
            "{what} `{name}` causes the error: {why}. Switch the pass off and report it: `{paste}`.",
            "误差来自 {what} `{name}`：{why}。请关闭它并向引擎开发者报告：`{paste}`。",
        ),
        mended=False, pastes="option",
    ),
    "pass_rounding": Cause(
        en="an engine pass moves the rounding, and this model amplifies it",
        zh="引擎的某个 pass 改变了舍入位置，而该模型将其放大",
        do="If that matters, switch the pass off with the line to paste.",
        do_zh="若有影响，按可粘贴的那一行关闭该 pass。",
        why=Wording(
            "the engine turns {replaced} into {instead} ({passes}), which rounds in other places, and this model"
            " amplifies rounding: the outputs are off by {before} (Rel L2), and by {after} with the pass switched off"
            " (bisected {of} {of:pass|passes} in {runs} {runs:build|builds})",
            "引擎的 {passes} 将 {replaced} 变为 {instead}，舍入位置不同，而该模型会放大舍入误差："
            "启用时输出相差 {before}（相对 L2），关闭后为 {after}（{of} 个 pass 中二分，构建"
            " {runs} 次）",
        ),
        evidence=_PASS,
        sentence=Wording(
            "{what} `{name}` causes the error: {why}. To switch the pass off: `{paste}`.",
            "误差来自 {what} `{name}`：{why}。关闭它：`{paste}`。",
        ),
        mended=False, pastes="option",
    ),
    "rounds_less_by_pass": Cause(
        en="an engine pass rounds fewer times than the model says, as expected",
        zh="引擎的某个 pass 比模型少舍入几次，属预期",
        do="Leave the pass on; use the line to paste if results have to equal the baseline's.",
        do_zh="保留该 pass；若结果须与基线一致，使用可粘贴的那一行。",
        why=Wording(
            "expected: it rounds fewer times, as the engine turns {replaced} into {instead} ({passes}): the outputs are"
            " off by {before} (Rel L2), and by {after} with the pass switched off; but against the same model without"
            " these roundings the baseline is off by {exact_base} and the target by {exact_target}",
            "属预期：舍入次数更少，引擎的 {passes} 将 {replaced} 变为 {instead}：输出相差 {before}（相对"
            " L2），关闭该 pass 后为 {after}；但与去掉这些舍入的同一模型相比，基线相差 {exact_base}，目标相差"
            " {exact_target}",
        ),
        evidence={**_PASS, **_UNROUNDED},
        sentence=Wording(
            "{what} `{name}` is where the two sides differ: {why}. Of the two, the target is the nearer one; to get the"
            " baseline's numbers all the same: `{paste}`.",
            "两侧的差异在于 {what} `{name}`：{why}。两者之中目标更接近；若仍须得到基线的数值：`{paste}`。",
        ),
        mended=False, pastes="option",
    ),
    "asked_pass": Cause(
        en="an engine pass that was asked for changes the computation", zh="按要求启用的引擎 pass 改变了计算",
        do="Leave the option out that asks for the pass, if the difference matters.",
        do_zh="若该差异有影响，去掉启用该 pass 的选项。",
        why=Wording(
            "the engine turns {replaced} into {instead} ({passes}), which `{asked}` asks for: the outputs are off by"
            " {before} (Rel L2), and by {after} without it",
            "引擎的 {passes} 将 {replaced} 变为 {instead}，这是 `{asked}` 要求的：输出相差 {before}（相对"
            " L2），去掉它后为 {after}",
        ),
        behind={
            "exact_base": Wording(
                "; against the same model without these roundings the baseline is off by {exact_base} and the target by"
                " {exact_target}",
                "；与去掉这些舍入的同一模型相比，基线相差 {exact_base}，目标相差 {exact_target}",
            )
        },
        evidence={**_PASS, **_UNROUNDED, "asked": _TEXT},
        sentence=Wording(
            "{what} `{name}` is where the two sides differ: {why}. It was asked for and is no fault of the engine; to"
            " leave it off, leave out `{asked}`.",
            "两侧的差异在于 {what} `{name}`：{why}。这是按要求启用的，并非引擎的错误；去掉 `{asked}` 即可关闭。",
        ),
        mended=False, pastes="option",
    ),
    "fewer_roundings": Cause(
        en="compiled kernels round less often than the baseline does", zh="编译后的内核比基线舍入得少",
        do="Use the option to paste if results have to equal the baseline's; of the two, trust the one that is nearer"
        " to float64.",
        do_zh="若结果须与基线一致，使用可粘贴的选项；两者之中，以更接近 float64 的一侧为准。",
        why=Wording(
            "compiled kernels keep float32 from one operator to the next, where the baseline rounds each result to"
            " {type}: with {switch} the outputs are off by {after} (Rel L2) instead of {before}",
            "编译后的内核在算子之间保持 float32，而基线会把每个结果舍入到 {type}：启用 {switch} 后输出相差 {after}"
            "（相对 L2），此前为 {before}",
        ),
        instead={
            "exact_base": Wording(
                "compiled kernels keep float32 from one operator to the next, where the baseline rounds each result to"
                " {type}: with {switch} the outputs are off by {after} (Rel L2) instead of {before}; against the same"
                " model in float64, the baseline is off by {exact_base} and the target by {exact_target}",
                "编译后的内核在算子之间保持 float32，而基线会把每个结果舍入到 {type}：启用 {switch} 后输出相差 {after}"
                "（相对 L2），此前为 {before}；与同一模型的 float64 相比，基线相差 {exact_base}，目标相差"
                " {exact_target}",
            ),
        },
        evidence={
            "type": _TEXT, "switch": _TEXT, "before": _FIGURE, "after": _FIGURE, "count": _COUNT,
            "exact_base": _FIGURE, "exact_target": _FIGURE,
        },
        sentence=Wording(
            "{what} `{name}` is where the two sides differ: {why}.", "两侧的差异在于 {what} `{name}`：{why}。"
        ),
        mended=False, one_switch=True,
    ),
    "saturating_sums": Cause(
        of_processor=True,
        en="the engine's 8-bit sums saturate on this processor", zh="引擎的 8 位求和在此处理器上饱和",
        do="Quantise the weights to 7 bits, run it on a processor with VNNI, or, in ONNX Runtime, add the option.",
        do_zh="将权重量化为 7 位，或在带 VNNI 的处理器上运行；在 ONNX Runtime 中也可加上该选项。",
        why=Wording(
            "on this processor the engine adds two 8-bit products in 16 bits, where they saturate: with `{switch}` the"
            " same integers leave {after} of its error of {before}",
            "引擎在此处理器上以 16 位累加两个 8 位乘积，会饱和：加上 `{switch}`，同样的整数使其误差由 {before} 降为"
            " {after}",
        ),
        instead={
            "differed": Wording(
                "on this processor the engine adds two 8-bit products in 16 bits, where they saturate: with `{switch}`"
                " {differ} of its {elements} results {differ:differs|differ} in place of {differed}",
                "引擎在此处理器上以 16 位累加两个 8 位乘积，会饱和：加上 `{switch}`，其 {elements} 个结果中不同的由"
                " {differed} 个降为 {differ} 个",
            ),
            "bits": Wording(
                "on this processor the engine adds two 8-bit products in 16 bits, where they saturate: with `{switch}`,"
                " weights in {bits} bits, {after} of its error of {before} is left",
                "引擎在此处理器上以 16 位累加两个 8 位乘积，会饱和：加上 `{switch}`（权重为 {bits} 位），"
                "其误差由 {before} 降为 {after}",
            ),
            "pairs": Wording(
                "on this processor the engine adds two 8-bit products in 16 bits, where they saturate: {pairs} of these"
                " sums do, of what it reads",
                "引擎在此处理器上以 16 位累加两个 8 位乘积，会饱和：对其读取的数，此类求和中有 {pairs} 饱和",
            ),
        },
        undone=Wording("with sums that do not saturate", "若求和不饱和"),
        evidence={
            "switch": _TEXT, "before": _FIGURE, "after": _FIGURE, "pairs": _SHARE, "differed": _COUNT, "differ": _COUNT,
            "elements": _COUNT, "bits": _COUNT,
        },
    ),
    "wrong_kernel": Cause(
        en="the baseline's own kernel is wrong", zh="基线自身的内核有误",
        do="Use another version of the engine, or another baseline, and report it to the engine's developers.",
        do_zh="使用引擎的其他版本或其他基线，并向引擎开发者报告。",
        why=Wording(
            "{own} disagrees with {others}, which agree with each other; off by {error} (Rel L2) on the same inputs",
            "{own} 的结果与彼此一致的 {others} 不同；以其自身输入相差 {error}（相对 L2）",
        ),
        evidence={"own": _TEXT, "others": _TEXT, "error": _FIGURE},
        sentence=Wording(
            "{what} `{name}` is wrong: {why}. Comparing two runs of the same engine cannot show this: use another"
            " version, and report it.",
            "{what} `{name}` 有误：{why}。同一引擎的两次运行对比看不出：请使用其他版本并报告。",
        ),
        mended=False,
    ),
    "kernels_disagree": Cause(
        en="another implementation gives a different result", zh="另一实现给出不同的结果",
        do="Check a third implementation, or the operator's specification.",
        do_zh="询问第三种实现，或查阅算子规范。",
        why=Wording(
            "{own} and {others} give different results, {error} apart (Rel L2) on the same inputs; which one is right"
            " is unknown",
            "{own} 与 {others} 的结果不同，以其自身输入相差 {error}（相对 L2）；尚不知哪个正确",
        ),
        evidence={"own": _TEXT, "others": _TEXT, "error": _FIGURE},
        sentence=Wording(
            "{what} `{name}` is in doubt: {why}. A third implementation, or the operator's specification, can settle"
            " it.",
            "{what} `{name}` 存疑：{why}。第三种实现或算子规范可判定。",
        ),
        mended=False,
    ),
}  # fmt: skip
