"""What was typed or handed over wrong, as far as people meet it often: what is wrong, and what to write."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["MISTAKES"]

MISTAKES: Mapping[str, Wording] = {
    "did_you_mean": Wording("did you mean {names}?", "是否想写 {names}？"),
    # labels and marks
    "no_labels": Wording("no labels can be read ({error})", "读不到标签（{error}）"),
    "labels_form": Wording("expects a .npy with one class index per sample", "请给出每个样本一个类别编号的 .npy"),
    "labels_with_numpy": Wording("write them with numpy.save", "请用 numpy.save 保存"),
    "labels_of_samples": Wording(
        "{count} labels for inputs of {samples} samples", "标签有 {count} 个，输入却有 {samples} 个样本"
    ),
    "no_marks": Wording("the marks cannot be read: {error}", "无法读取标记：{error}"),
    "no_such_tensor": Wording("no tensor is called {names}", "没有名为 {names} 的张量"),
    "no_tensor_matches": Wording("no tensor matches {names}", "没有张量匹配 {names}"),
    "of_tensors": Wording("{count} tensors", "{count} 个张量"),
    "marks_lists": Wording("`precision_debug marks` lists the names", "`precision_debug marks` 列出名字"),
    # settings and numbers
    "nobody_takes_it": Wording("neither {first} nor {second} takes this setting", "{first} 与 {second} 均无此设置"),
    "does_not_take_it": Wording("{side} does not take this setting", "{side} 无此设置"),
    "the_side": Wording("the {side} {mode}", "{side}模式 {mode}"),
    "it_matters_in": Wording("it applies to {modes}", "它用于 {modes}"),
    "settings_lists": Wording(
        "`precision_debug doctor --settings` lists the settings of each mode",
        "`precision_debug doctor --settings` 列出各模式的设置",
    ),
    "no_size": Wording("'{value}' is not a size", "'{value}' 不是大小"),
    "no_whole": Wording("{value} is not a whole number", "{value} 不是整数"),
    "no_real": Wording("{value} is not a number", "{value} 不是数"),
    "not_in_span": Wording("{value} is not {span}", "{value} 不在范围内：{span}"),
    "from_to": Wording("from {low} to {high}", "{low} 到 {high}"),
    "from_up": Wording("from {low} up", "不小于 {low}"),
    "up_to": Wording("up to {high}", "不大于 {high}"),
    "write_in_span": Wording("{what} {span}", "{what}（{span}）"),
    "write_one_of": Wording("write one of {known}", "请写其中之一：{known}"),
    "write_flag": Wording("write true or false", "请写 true 或 false"),
    "write_whole": Wording("write a whole number", "请写整数"),
    "write_number": Wording("write a number", "请写数"),
    "write_size": Wording("write 512M or 4G", "请写 512M 或 4G"),
    "write_text": Wording("write text", "请写文本"),
    "write_names": Wording("write a,b or ['a','b']", "请写 a,b 或 ['a','b']"),
    "write_layers": Wording("write NAME:TYPE", "请写 NAME:TYPE"),
    "write_shapes": Wording("write {{'x':[1,3,8,8]}}", "请写 {{'x':[1,3,8,8]}}"),
    "records_over_its_baseline": Wording(
        "is also this command's baseline", "正是此命令与之比较的录制"
    ),
    "another_folder": Wording("name another folder", "请指定另一个文件夹"),
    "no_verb": Wording("there is no verb '{name}'", "没有子命令 '{name}'"),
    "a_model_needs_its_option": Wording(
        "expects the model as an option", "模型须用选项指定"
    ),
    "write_model_file": Wording(
        "write --model_file {name} --run_mode MODE", "请写 --model_file {name} --run_mode MODE"
    ),
    "verb_without_use": Wording("has no effect in `{verb}`", "在 `{verb}` 中无效"),
    "leave_it_out": Wording("leave it out", "请去掉它"),
    "use_part": Wording("name what is written with --part FILE.onnx", "请用 --part FILE.onnx 指定输出"),
    "no_shape": Wording("'{value}' is not a shape", "'{value}' 不是形状"),
    "shape_form": Wording(
        "write NAME:[1,3,224,224] or NAME:1x3x224x224", "请写 名字:[1,3,224,224] 或 名字:1x3x224x224"
    ),
    "no_range": Wording("'{value}' is not a range of two finite numbers", "'{value}' 不是由两个有限数构成的范围"),
    "range_form": Wording(
        "write LOW,HIGH for all inputs or NAME:LOW,HIGH for one", "全部输入请写 下限,上限，单个输入请写 名字:下限,上限"
    ),
    "no_rename": Wording("'{value}' is not a rename", "'{value}' 不是改名"),
    "rename_form": Wording("write TARGET_NAME=BASELINE_NAME", "请写 目标中的名字=基线中的名字"),
    "needs_a_comparison": Wording(
        "needs a comparison, and --record without --baseline does not"
        " compare", "需要对比，而没有 --baseline 的 --record 不作对比"
    ),
    "add_a_baseline": Wording("add --baseline MODE, or leave it out", "请加上 --baseline 模式，或去掉该选项"),
    # files
    "checkpoint_stale": Wording(
        "these have changed since it was created: {names}", "建立检查点之后，下列内容已改变：{names}"
    ),
    "checkpoint_anew": Wording(
        "remove it to start over, or name another --checkpoint", "请删除它以重新开始，或另指定 --checkpoint"
    ),
    "no_onnx": Wording("is not an ONNX model, or is truncated", "不是 ONNX 模型，或文件不完整"),
    "no_room": Wording("not enough disk space for the framework's files", "磁盘空间不足，无法写入框架所需的文件"),
    "free_space": Wording("free some space, or name another --output", "请释放空间，或指定另一个 --output"),
    "not_utf8": Wording(
        "its path is not UTF-8, so the frameworks cannot open it", "其路径不是 UTF-8 编码，各框架无法打开"
    ),
    "move_it": Wording("move or rename it, or its folder", "请移动它，或为它或其所在文件夹改名"),
    "damaged_weight": Wording(
        "its weight '{name}' has {bytes:,} bytes, which does not match its shape {shape}",
        "其权重 '{name}'（形状 {shape}）有 {bytes:,} 字节，与形状不符",
    ),
    "too_many_nodes": Wording(
        "its functions expand to {count:,} operators, more than a model can have",
        "其函数展开后有 {count:,} 个算子，超出模型可能的规模",
    ),
    "export_again": Wording("export or copy the model again", "请重新导出或复制模型"),
    "no_feeds": Wording("'{ending}' files cannot be read as inputs", "不能从 '{ending}' 文件读取输入"),
    "feeds_form": Wording(
        "give a .npz, .npy or Polygraphy .json file, a folder of .npy or .npz files or an ONNX test data set, or "
        "SCRIPT.py[:function]",
        "请给出 .npz、.npy 或 Polygraphy 的 .json 文件，.npy 或 .npz 的文件夹，ONNX 测试数据集，或 脚本.py[:函数]",
    ),
    "no_script": Wording("the script cannot be read: {error}", "无法读取脚本：{error}"),
    "no_sample": Wording("there is no sample {value}", "没有样本 {value}"),
    "samples_are": Wording("0 to {last}, or FROM:TO up to {count}", "可用 0 到 {last}，或 起:止（至多 {count}）"),
    "no_axis": Wording(
        "input '{name}' has {count} axes, and no axis {axis}", "输入 '{name}' 有 {count} 维，没有第 {axis} 维"
    ),
    "see_samples_axis": Wording("see --samples_axis", "参见 --samples_axis"),
    "no_report": Wording("the report cannot be read ({error})", "无法读取报告（{error}）"),
    "foreign_report": Wording("not a precision_debug report", "不是 precision_debug 的报告"),
    "give_a_report": Wording("give the .json file that --output wrote", "请给出由 --output 写出的 .json 文件"),
    # sweeps and searches
    "sweep_takes_modes": Wording("a sweep takes --run_modes", "扫描请用 --run_modes"),
    "no_modes": Wording("no run mode given", "没有给出运行模式"),
    "modes_form": Wording("e.g. ort_opt,ort_int8; see `doctor`", "例如 ort_opt,ort_int8；参见 `doctor`"),
    "no_mode": Wording("'{name}' is not a run mode", "'{name}' 不是运行模式"),
    "mode_form": Wording("write MODE or MODE+KEY=VALUE", "请写 模式 或 模式+键=值"),
    "named_twice": Wording("{name} is named twice", "{name} 出现了两次"),
    "name_it_once": Wording("name it once", "请只写一次"),
    "no_sweep_format": Wording("no sweep format '{ending}'", "没有 '{ending}' 这种扫描报告格式"),
    "nothing_to_keep": Wording(
        "run mode {mode} has nothing that could be kept in higher precision",
        "运行模式 {mode} 没有可保留为更高精度的部分",
    ),
    "not_ours": Wording(
        "already exists, and was not written by this tool", "已存在，且不是本工具写出的"
    ),
    "name_another": Wording("move it away, or name another place with {option}", "请将其移走，或用 {option} 另选位置"),
    "search_saves_no": Wording(
        "a search in {mode} does not produce this file", "在 {mode} 中的搜索不产生这种文件"
    ),
    "search_saves": Wording("it takes {names}", "可用 {names}"),
    "search_artefacts": Wording(
        "leave it out: the results are written to --artefacts DIR", "请去掉该选项：交付的文件写入 --artefacts 目录"
    ),
    "lower_mode": Wording(
        "name a mode of lower precision: ort_fp16, ort_int8, trt_fp16, torch_bf16, …",
        "请给出精度更低的模式：ort_fp16、ort_int8、trt_fp16、torch_bf16 等",
    ),
    "no_limit": Wording("'{value}' is not a limit", "'{value}' 不是限值"),
    "limit_form": Wording("write an error (0.02) or a percentage of it (50%)", "请写误差（0.02）或其比例（50%）"),
    "no_difference_format": Wording("the difference can be written as {known}", "前后对比可写成 {known}"),
    "end_the_name": Wording("use one of these as the suffix", "请以其中之一作为后缀"),
}  # fmt: skip
