"""What the values and weights of an exported file say of it, beside the model that it was made from."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["EXPORTS"]

_EXPORT = "Export the model again, or compare with the checkpoint that it was exported from."
_FIRST = "Start with the operator named first: later ones may only be its consequences."
_NAMES = "Pair tensors with --rename where values cannot tell them apart."

EXPORTS: Mapping[str, Wording] = {
    # how much is paired
    "paired_by_value": Wording(
        "Paired by value and graph in {mode} against {other}: {count} of the {all} {all:tensor|tensors} of"
        " {path} ({kinds});"
        " {refused} left unpaired because values cannot tell them apart; {partners} of the model's {own}"
        " {own:tensor|tensors} {partners:has|have}"
        " a partner.",
        "以 {mode} 对 {other} 按数值和图配对：{path} 的 {all} 个张量中配对 {count} 个（{kinds}）；{refused} 个因"
        "数值无法"
        "区分而未配对；模型的 {own} 个张量中有 {partners} 个有对应。", _NAMES,
    ),
    "paired_by_value_none": Wording(
        "Paired by value and graph in {mode} against {other}: {count} of the {all} {all:tensor|tensors} of"
        " {path}; {refused} left"
        " unpaired because values cannot tell them apart; {partners} of the model's {own} {own:tensor|tensors}"
        " {partners:has|have} a partner.",
        "以 {mode} 对 {other} 按数值和图配对：{path} 的 {all} 个张量中配对 {count} 个；{refused} 个因数值无法区"
        "分而未配对；"
        "模型的 {own} 个张量中有 {partners} 个有对应。", _NAMES,
    ),
    "paired_converted": Wording(
        "Paired by name and value in float32: {count} of the {all} {all:tensor|tensors} of {path}, {turned} of"
        " them in another"
        " layout, which is turned back; {missing} of the model's tensors have no partner.",
        "在 float32 下按名称和数值配对：{path} 的 {all} 个张量中配对 {count} 个，其中 {turned} 个布局不同，已转换回来；"
        "模型有 {missing} 个张量没有对应。", _NAMES,
    ),
    "by_value": Wording("{count} by value", "按数值 {count} 个"),
    "by_neighbours": Wording("{count} by graph neighbours", "按图中相邻关系 {count} 个"),
    "by_output": Wording("{count} by output", "按输出 {count} 个"),
    # what is wrong
    "wrong_at": Wording("{file} departs from the model at {place}.", "{file} 在 {place} 处与模型不一致。", _FIRST),
    "wrong_at_because": Wording(
        "{file} is wrong at {place}. Cause: {cause}.", "{file} 在 {place} 处有误。原因：{cause}。", _EXPORT
    ),
    "wrong_at_more": Wording(
        "{file} departs from the model at {count} more {count:operator|operators}: {names}.",
        "{file} 另有 {count} 个算子与模型不一致：{names}。", _FIRST
    ),
    "output_apart": Wording(
        "The output {name} of {file} differs from the model's {base} (relative distance {distance:.3g}), but no wrong"
        " operator could be found: the tensors in between were not paired.",
        "{file} 的输出 {name} 与模型的 {base} 不同（相对距离 {distance:.3g}），但未能找到有误的算子：其间的张量"
        "没有配对。",
        _NAMES,
    ),
    "inputs_agree": Wording(
        "{name} ({operator}): its inputs agree, the output {output} does not (relative distance {distance:.3g})",
        "{name}（{operator}）：输入一致，输出 {output} 却不一致（相对距离 {distance:.3g}）", _FIRST,
    ),
    "inputs_agree_shape": Wording(
        "{name} ({operator}): its inputs agree, the output {output} does not (another shape)",
        "{name}（{operator}）：输入一致，输出 {output} 却不一致（形状不同）", _FIRST,
    ),
    "its_input": Wording("its input", "其输入"),
    "exchanged": Wording(
        "{file} is wrong at its inputs. Cause: they are swapped: {pairs}; with the inputs swapped back, its outputs"
        " agree.",
        "{file} 的输入有误。原因：输入被互换：{pairs}；换回之后输出一致。", "Swap the inputs.",
    ),
    "used_as": Wording("{name} is used as {other}", "{name} 被当作 {other}"),
    "attribute_differs": Wording(
        "{attribute} of {operator} in {file} is {has}, but {wanted} in the model ({of}): the attributes differ, even"
        " though the values agree for this input.",
        "{file} 中 {operator} 的 {attribute} 为 {has}，模型（{of}）中为 {wanted}：即使此输入下数值一致，属性也不同。",
        _EXPORT,
    ),
    "attributes_differ_more": Wording(
        "{count} more attributes in {file} differ: {names}.", "{file} 中另有 {count} 个属性不同：{names}。", _EXPORT
    ),
    "attribute_of": Wording("{attribute} of {of}", "{of} 的 {attribute}"),
    # causes, which were tried
    "bias_missing": Wording(
        "{name} is missing: the difference is this {role}", "缺少 {name}：差值正是该 {role}", _EXPORT
    ),
    "bias_twice": Wording("{name} is added twice", "{name} 被加了两次", _EXPORT),
    "attribute_is": Wording(
        "{name} of {operator} is {has}, but the layer's is"
        " {wanted}", "{operator} 的 {name} 为 {has}，该层应为 {wanted}",
        _EXPORT,
    ),
    "number_is": Wording("{name} is {has}, but the layer's is {wanted}", "{name} 为 {has}，该层应为 {wanted}", _EXPORT),
    "weight_transposed": Wording("the weight {name} is transposed", "权重 {name} 被转置", _EXPORT),
    "operand_transposed": Wording(
        "{name} of Gemm is {value}: the operand is transposed", "Gemm 的 {name} 为 {value}：操作数被转置", _EXPORT
    ),
    "together": Wording("{causes:;}", "{causes:;}", _EXPORT),
    "input_exchanged": Wording(
        "it reads the input {read} where it should read {other}: the model's inputs are swapped",
        "应读输入 {other} 之处读了 {read}：模型的输入被互换", _EXPORT,
    ),
    "reads_order": Wording(
        "{operator} reads {reads} but should read {order}", "{operator} 读取 {reads}，应读取 {order}", _EXPORT
    ),
    "output_scaled": Wording(
        "its output is {factor:.4g} times the model's", "其输出是模型的 {factor:.4g} 倍", _EXPORT
    ),
    "is_transposed": Wording("{name} is transposed", "{name} 被转置", _EXPORT),
    "swapped": Wording(
        "{name} holds the values of {other}: two layers are swapped", "{name} 的值是 {other} 的：两层被互换", _EXPORT
    ),
    "elements_changed": Wording(
        "{count} of {all} {count:element differs|elements differ} in {name}, the first at {place}: {has:.6g} instead"
        " of {wanted:.6g}",
        "{name} 的 {all} 个元素中有 {count} 个不同，首个位于 {place}：为 {has:.6g}，应为 {wanted:.6g}", _EXPORT,
    ),
    "is_scaled": Wording("{name} is scaled by {factor:.4g}", "{name} 被缩放 {factor:.4g} 倍", _EXPORT),
    "all_zero": Wording("{name} is missing (all zero in the file)", "缺少 {name}（文件中全为 0）", _EXPORT),
    "other_checkpoint": Wording(
        "{name} differs (relative distance {distance:.3g}): is this an old export, or another checkpoint?",
        "{name} 不同（相对距离 {distance:.3g}）：是旧的导出，还是另一个检查点？", _EXPORT,
    ),
    "differs_by": Wording(
        "{name} differs (relative distance {distance:.3g})", "{name} 不同（相对距离 {distance:.3g}）", _EXPORT
    ),
    "folded_with": Wording(
        "folded with epsilon {epsilon:.3g}, but the layer's is {wanted:g}",
        "折叠时所用 epsilon 为 {epsilon:.3g}，该层应为 {wanted:g}", _EXPORT,
    ),
    "with_norm": Wording("{name} (with its batch norm folded in)", "{name}（已折叠其 batch norm）"),
    # weights
    "weights_unchecked": Wording(
        "The exported weights were not checked: the baseline does not contain the model's weights.",
        "未检查导出的权重：基线没有模型的权重。", "Compare with the model itself as the baseline.",
    ),
    "weights_unreadable": Wording(
        "The exported weights were not checked: those of {path} cannot be read here.",
        "未检查导出的权重：此处无法读取 {path} 的权重。",
    ),
    "weights": Wording("{parts:;}.", "{parts:;}。"),
    "weights_same": Wording(
        "{count} of {all} {all:weight|weights} of the module are in {file} unchanged",
        "模块的 {all} 个权重中有 {count} 个"
        "原样在 {file} 中"
    ),
    "weights_rounded": Wording("{count} rounded to a lower precision", "{count} 个舍入到较低精度"),
    "weights_joined": Wording("{count} merged with others", "{count} 个与其他权重合并"),
    "weights_folded": Wording(
        "{count} scaled by a folded batch norm, or folded with it", "{count} 个被折叠的 batch norm 缩放或与之折叠"
    ),
    "weights_absent": Wording(
        "{count} missing (folded into others, or not exported)", "{count} 个不在其中（已折叠进别的权重，或未导出）"
    ),
    "weights_differ_all_the_same": Wording(
        "{count} {count:weight|weights} in {file} {count:differs|differ} from the module's ({which}), yet the outputs"
        " agree.",
        "{file} 中有 {count} 个权重与模块的值不同（{which}），但输出仍然一致。", _EXPORT,
    ),
    "weights_differ": Wording(
        "{count} {count:weight|weights} in {file} {count:differs|differ} from the module's, most of all {worst}: {why}",
        "{file} 中有 {count} 个权重与模块的值不同，差别最大的是 {worst}：{why}", _EXPORT,
    ),
    "weights_differ_ask": Wording(
        "{count} {count:weight|weights} in {file} {count:differs|differ} from the module's, most of all {worst}:"
        " {why}; is this an old export, or another checkpoint?",
        "{file} 中有 {count} 个权重与模块的值不同，差别最大的是 {worst}：{why}；是旧的导出，还是另一个检查点？"
        "", _EXPORT,
    ),
    "named": Wording("{name}: {why}", "{name}：{why}"),
}  # fmt: skip
