"""Why a row has its status, in two languages: the core and the built-in backends give their reasons in English.

What a backend quotes of its engine, and what another wheel's backend says, stays as it is.
"""

from __future__ import annotations

import functools
import re

from .words import Text

__all__ = ["explained"]

_SENTENCES: tuple[tuple[str, str], ...] = (
    # the verdict
    (r"shape", "形状不同"),
    (r"types: (.+) against (.+)", "类型不同：{0} 与 {1}"),
    (r"(\d+) of (\d+) elements", "{1} 个元素中有 {0} 个"),
    (r"(\d+) of (\d+) elements, (.+)", "{1} 个元素中有 {0} 个，{2:zh}"),
    (r"(NaN|inf) on both sides", "两侧都有 {0}"),
    (r"(NaN|inf) in the baseline", "基线中有 {0}"),
    (r"(NaN|inf) in the target", "目标中有 {0}"),
    (r"(.+) was not computed", "未计算 {0}"),
    (r"0 elements on both sides", "两侧都没有元素"),
    (
        r"passes by atol (\S+) alone, which exceeds its RMS (\S+), with Rel L2 (\S+)",
        "仅因 atol {0} 而通过，该值大于其均方根 {1}，相对 L2 误差为 {2}",
    ),
    (r"(\d+) (NaN|Inf) in the baseline", "基线中有 {0} 个 {1}"),
    (r"(\d+) (NaN|Inf) in the target", "目标中有 {0} 个 {1}"),
    (r"(\d+ (?:NaN|Inf) in the (?:baseline|target)), (.+)", "{0:zh}，{1:zh}"),
    (r"(.+) abs (\S+) > (\S+) and .+ rel (\S+) > (\S+)", "{0}：绝对误差 {1} > {2}，且相对误差 {3} > {4}"),
    # no partner
    (r"the target's graph has no such tensor", "目标图中没有该张量"),
    (r"fused into (\S+) node (.+)", "已融合进 {0} 节点 {1}"),
    (r"the baseline has no tensor of this name", "基线中没有同名张量"),
    (r"the target does (.+) by other operators", "目标用其他算子完成 {0}"),
    (r"the baseline does (.+) by other operators", "基线用其他算子完成 {0}"),
    (r"the baseline's tensor of this name stems from something else", "基线中的同名张量来源不同"),
    (r"the target's tensor of this name stems from something else", "目标中的同名张量来源不同"),
    (
        r"the baseline's tensor of this name is made by (\S+), this one by (\S+)",
        "基线中的同名张量由 {0} 产生，而它由 {1} 产生",
    ),
    (
        r"the target's tensor of this name is made by (\S+), this one by (\S+)",
        "目标中的同名张量由 {0} 产生，而它由 {1} 产生",
    ),
    (r"its baseline tensor is compared with (.+)", "对应的基线张量已与 {0} 比较"),
    (r"its baseline tensor was not kept", "未保留对应的基线张量"),
    (r"it has too few different values to tell it from others", "不同取值太少，无法与其他张量区分"),
    (r"equally good candidates: (.+)", "有同样匹配的多个候选：{0}"),
    # not seen
    (r"baseline: (.+)", "基线：{0:zh}"),
    (r"target: (.+)", "目标：{0:zh}"),
    (r"the run ended before this tensor", "运行在到达该张量之前结束"),
    (r"the run ended before it was compared", "运行在比较该张量之前结束"),
    (r"both graphs have it, but it was not seen on both sides", "两侧的图中都有，但并非两侧都观测到"),
    (r"the target's hook was not called for it", "目标没有为它调用 hook"),
    (r"it was not recorded", "没有录制该张量"),
    (r"not a tensor", "不是张量"),
    (r"returns no tensor", "不返回张量"),
    (r"a (\S+), not a tensor", "类型为 {0}，不是张量"),
    (r"a string tensor: only the model's outputs of this type are shown", "字符串张量：仅显示模型输出"),
    (r"a constant of the model in another form", "模型常量的另一种形式"),
    (r"the feed itself; it is compared after its rounding", "即输入本身；舍入之后再比较"),
    (r"in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内"),
    (r"inside a branch or loop it repeats (.+)", "在分支或循环内重复 {0}"),
    (r"holds the same numbers as (.+)", "与 {0} 数值相同"),
    (
        r"ONNX Runtime leaves it out when it loads the model: it changes nothing, or nothing reads it",
        "ONNX Runtime 加载模型时将其省去：它不改变数值，或没有算子读取它",
    ),
    (r"ONNX Runtime did not tell its type", "ONNX Runtime 未给出其类型"),
    (r"the optimiser changed its layout in a way that is not known", "优化器以未知方式改变了其布局"),
    (r"(.+) has no cast in ONNX Runtime", "ONNX Runtime 不能转换 {0}"),
    (r"in NCHWc blocks, and how many of its channels are real is not known", "为 NCHWc 分块布局，实际通道数未知"),
    (r"OpenVINO would compute it in another way if it were shown", "若显示它，OpenVINO 会以另一种方式计算"),
    (r"it lies inside (\S+) (.+), whose layers OpenVINO does not tell", "位于 {0} {1} 内部，OpenVINO 不说明其中的层"),
    (
        r"inside a loop or branch, where TensorRT lets no output be marked",
        "位于循环或分支内，TensorRT 不允许将其标记为输出",
    ),
    (
        r"TensorRT's parser left no tensor of this name \(a constant, or an operator that does nothing\)",
        "TensorRT 解析后没有该名称的张量（常量，或不起作用的算子）",
    ),
    (r"TensorRT built no engine with it as an output: (.+)", "将其作为输出时 TensorRT 无法构建引擎：{0}"),
    (r"TensorRT refuses it as an output: (.+)", "TensorRT 拒绝将其作为输出：{0}"),
    (r"TensorRT did not call its debug listener for it", "TensorRT 没有为它调用调试监听器"),
    (r"inside a built engine, which shows its outputs only", "位于已构建的引擎内部，引擎只显示其输出"),
    (r"made by a (.+) layer, at the entry of a loop or branch", "由循环或分支入口处的 {0} 层产生"),
    (r"made by a (.+) layer, which TensorRT does not run", "由 TensorRT 不执行的 {0} 层产生"),
    (r"a shape tensor: TensorRT computes it on the host", "形状张量：TensorRT 在主机上计算"),
    (r"no second opinion for this operator: (.+)", "该算子没有第二意见：{0:zh}"),
    (r"onnx\.reference does not have it", "onnx.reference 没有实现它"),
    (r"onnx\.reference fails in it", "onnx.reference 在其中失败"),
    (r"onnx\.reference's own is wrong in this case", "onnx.reference 在此情形下的实现有误"),
    (r"onnx\.reference ignores its (.+)", "onnx.reference 忽略了它的 {0}"),
    (r"its numbers are random", "其数值是随机的"),
    (r"its shape in onnx\.reference is not what onnx infers", "onnx.reference 给出的形状与 onnx 推断的不符"),
    (r"holds uninitialised memory", "内容是未初始化的内存"),
    (r"is the kernel's own bookkeeping", "内核自用的数据"),
    (r"compiled in pieces, because its Python asks for values \((.+)\)", "因其 Python 代码需要取值而分段编译（{0}）"),
    (
        r"a traced run has other operators \((\d+)\) than a plain one \((\d+)\)",
        "跟踪运行的算子（{0} 个）与普通运行（{1} 个）不同",
    ),
    (r"has no operator of its own in the compiled graph", "在编译后的图中没有对应的独立算子"),
    (r"it cannot be fetched without changing the fusion around it", "取出它会改变周围的融合"),
    (
        r"the passes changed the numbers around it, and it was fused away or cannot be fetched",
        "优化 pass 改变了其周围的数值，它已被融合或无法取出",
    ),
    (
        r"the search for marks ended before it \(raise --option mark_builds\)",
        "标记搜索在它之前结束（可增大 --option mark_builds）",
    ),
    (r"it lies inside a control-flow block, where it cannot be fetched", "位于控制流块内，无法取出"),
    (
        r"it lies inside a control-flow block, which Paddle's hook does not enter",
        "位于控制流块内，Paddle 的 hook 不进入",
    ),
    (
        r"a tensor's own method made it \(x \+ y\), which Paddle shows to nobody",
        "由张量自身的方法（x + y）生成，Paddle 不提供观测",
    ),
    (r"a later operator writes over it, so that it cannot be fetched", "后面的算子会覆盖它，无法取出"),
    (r"an operator that works in place wrote over it before it could be fetched", "取出之前已被原地算子覆盖"),
)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def explained(reason: str) -> Text:
    """A row's reason with its Chinese; the same in both where there is none."""
    return Text(reason, _chinese(reason))


def _chinese(reason: str) -> str:
    for pattern, chinese in _known():
        found = pattern.fullmatch(reason)
        if found is not None:
            return chinese.format(*map(_Part, found.groups()))
    return reason


@functools.cache
def _known() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern, re.DOTALL), chinese) for pattern, chinese in _SENTENCES)


class _Part(str):
    """A part of a reason; in the format "zh" it is a reason itself."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return _chinese(self) if spec == "zh" else str(self)
