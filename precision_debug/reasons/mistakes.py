"""What was typed or handed over wrong, as far as people meet it often: what is wrong, and what to write."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["MISTAKES"]

MISTAKES: Mapping[str, Wording] = {
    "did_you_mean": Wording("did you mean {names:or}?", "是否想写 {names:or}？"),
    "such_as": Wording("e.g. {example}", "例如 {example}"),
    "exclusive": Wording("{one} and {other} are mutually exclusive", "{one} 与 {other} 不能同时使用"),
    # labels and marks
    "no_labels": Wording("no labels can be read ({error})", "读不到标签（{error}）"),
    "labels_form": Wording("expects a .npy with one class index per sample", "请给出每个样本一个类别编号的 .npy"),
    "labels_with_numpy": Wording("write them with numpy.save", "请用 numpy.save 保存"),
    "labels_in_one": Wording("it holds {count} arrays, not the labels alone", "其中有 {count} 个数组，而不只是标签"),
    "labels_of_samples": Wording(
        "{count} labels for {count:input|inputs} of {samples} {samples:sample|samples}",
        "标签有 {count} 个，输入却有 {samples} 个样本"
    ),
    "no_marks": Wording("the marks cannot be read: {error}", "无法读取标记：{error}"),
    "no_such_tensor": Wording("no tensor is called {names}", "没有名为 {names} 的张量"),
    "no_tensor_matches": Wording("no tensor matches {names}", "没有张量匹配 {names}"),
    "of_tensors": Wording("{count} {count:tensor|tensors}", "{count} 个张量"),
    "glob_matches": Wording("'{glob}' matches {count}", "'{glob}' 匹配 {count} 个"),
    "near_and_glob": Wording("{near} {found}", "{near}{found}"),
    "no_regex": Wording("'{word}' is not a regular expression: {error}", "'{word}' 不是正则表达式：{error}"),
    "see_re": Wording("see Python's re module", "参见 Python 的 re 模块"),
    "runs_after": Wording("'{first}' runs after '{last}'", "'{first}' 在 '{last}' 之后运行"),
    "swap_marks": Wording(
        "they are the other way round: --marks_between {last} {first}", "顺序反了，请写 --marks_between {last} {first}"
    ),
    "no_inspector": Wording("no engine inspector file matches", "没有匹配的引擎 inspector 文件"),
    "check_pattern": Wording("check the path, and quote the pattern", "请检查路径，并给通配符加上引号"),
    "marks_lists": Wording("`precision_debug marks` lists the names", "`precision_debug marks` 列出名字"),
    # a caller's arguments
    "no_tolerance": Wording("expects a Tolerance, got {kind}", "应为 Tolerance，却是 {kind}"),
    "write_tolerance": Wording(
        "write Tolerance(atol=…, rtol=…), or atol and rtol", "请写 Tolerance(atol=…, rtol=…)，或 atol 与 rtol"
    ),
    "no_saved_baseline": Wording("expects a SaveBaseline, got {kind}", "应为 SaveBaseline，却是 {kind}"),
    "pass_the_hook": Wording("pass the hook that the baseline was run with", "请传入运行基线时所用的钩子"),
    "no_path": Wording("expects a path, got {kind}", "应为路径，却是 {kind}"),
    "name_a_file": Wording("name a file", "请写文件名"),
    "no_arrays": Wording(
        "expects a path, or arrays by input name, got {kind}", "应为路径或按输入名给出的数组，却是 {kind}"
    ),
    "judged_nothing": Wording("it returned an empty dict", "它返回了空字典"),
    "judged_strange": Wording("it judged {names}, and no output is called so", "它判定了 {names}，而没有这样的输出"),
    "judged_with": Wording("it returned {kind}", "它返回了 {kind}"),
    "judge_form": Wording(
        "return True or False, or a dict of output name to True or False",
        "请返回 True 或 False，或按输出名给出真假的字典",
    ),
    # a file of options
    "no_option_file": Wording("the options cannot be read: {error}", "无法读取选项：{error}"),
    "option_file_table": Wording("expects a table", "应为表（table）"),
    "option_file_unknown": Wording("no option is called so", "没有这样的选项"),
    "no_of_kind": Wording("{value} is of another type", "{value} 的类型不符"),
    "option_file_code": Wording(
        "it names code that would run, and nobody typed this file's name",
        "它指定了将要运行的代码，而命令行并未指定此文件",
    ),
    "name_option_file": Wording(
        "add --config {file}, or type the option", "请加上 --config {file}，或在命令行给出该选项"
    ),
    # settings and numbers
    "no_pair": Wording("expects KEY=VALUE, got '{value}'", "请写 KEY=VALUE，而不是 '{value}'"),
    "others_setting": Wording(
        "it is a setting of the {count:backend|backends} {names}", "它是 {count} 个后端的设置：{names}"
    ),
    "one_side_only": Wording("it is for the {side} only", "它只用于{side}"),
    "needs_workers": Wording("{option} requires --engine ray or --jobs", "{option} 须与 --engine ray 或 --jobs 同用"),
    "needs_option": Wording("has no effect without {option}", "没有 {option} 时无效"),
    "add_or_leave_out": Wording("add that, or leave it out", "请加上它，或去掉该选项"),
    "has_no_params": Wording("'{ending}' files have no file of parameters", "'{ending}' 文件没有单独的参数文件"),
    "add_one": Wording("add one of them", "请加上其中之一"),
    "no_ray": Wording("Ray is not installed", "没有安装 Ray"),
    "compares_nothing": Wording("compares against nothing", "没有可对比的一侧"),
    "add_validate": Wording("add --validate", "请加上 --validate"),
    "no_default_baseline": Wording(
        "the default baseline of {mode}, {baseline}, does not read this file",
        "{mode} 的默认基线 {baseline} 不能读取此文件",
    ),
    "add_baseline_model": Wording(
        "add --baseline_model FILE (the .onnx it was made from), or name another with --baseline MODE",
        "请加上 --baseline_model 文件（生成它的 .onnx），或用 --baseline 模式 另选一个",
    ),
    "no_input_named": Wording("no input is named in '{value}'", "'{value}' 中没有输入的名字"),
    "low_above_high": Wording("'{value}' has its low end above its high end", "'{value}' 的下限大于上限"),
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
    "write_pairs": Wording("write KEY=VALUE,KEY=VALUE", "请写 KEY=VALUE,KEY=VALUE"),
    "write_layers": Wording("write NAME:TYPE", "请写 NAME:TYPE"),
    "write_shapes": Wording("write {{'x':[1,3,8,8]}}", "请写 {{'x':[1,3,8,8]}}"),
    "variants_of_one": Wording(
        "both sides are one model in one run mode, fed otherwise", "两侧须为同一模型、同一运行模式，只是输入不同"
    ),
    "variants_of_one_hint": Wording(
        "leave --baseline and --baseline_model out, or name another mode of the same framework",
        "请去掉 --baseline 与 --baseline_model，或选同一框架的其他模式",
    ),
    "variants_calibrate": Wording(
        "this mode calibrates on what it is fed, and would do so otherwise on each side",
        "该模式用所给输入校准，两侧的校准会不同",
    ),
    "variants_calibrate_hint": Wording(
        "save the quantised model (--save_model) and compare that in ort_opt",
        "请保存量化后的模型（--save_model）并用 ort_opt 对比",
    ),
    "variant_not_taken": Wording("the model does not take it ({detail})", "该模型不接受这样的输入（{detail}）"),
    "variant_not_taken_hint": Wording(
        "export it with open axes, or name only the variant that it takes", "请以可变的轴导出，或只写它能接受的方式"
    ),
    "variant_no_neighbours": Wording("there is no other sample to stand beside this one", "没有其他样本可与之相邻"),
    "variant_samples": Wording(
        "give a batch, or several samples, with --inputs", "请用 --inputs 给出一个批次或多个样本"
    ),
    "variant_no_axis": Wording("no input has an axis to pad", "没有输入具有可填充的轴"),
    "variant_no_axis_hint": Wording("name batch alone", "请只写 batch"),
    "records_over_its_baseline": Wording(
        "is also this command's baseline", "正是此命令与之比较的录制"
    ),
    "another_folder": Wording("name another folder", "请指定另一个文件夹"),
    "no_verb": Wording("there is no verb '{name}'", "没有子命令 '{name}'"),
    "a_model_needs_its_option": Wording(
        "expects the model as an option", "模型须用选项指定"
    ),
    "polygraphy_here": Wording(
        "this is Polygraphy's; here: {command}", "这是 Polygraphy 的写法；此处：{command}",
    ),
    "polygraphy_without": Wording(
        "this is Polygraphy's; here: {command} (without {odd}, which nothing here does)",
        "这是 Polygraphy 的写法；此处：{command}（{odd} 在此没有对应）",
    ),
    "polygraphy_elsewhere": Wording(
        "`{verb}` is Polygraphy's, and this tool does not do it; docs/from_polygraphy.md lists what it does",
        "`{verb}` 是 Polygraphy 的命令，本工具不做此事；docs/from_polygraphy.zh.md 列出能做的",
    ),
    "write_model_file_alone": Wording("write --model_file {name}", "请写 --model_file {name}"),
    "write_model_file": Wording(
        "write --model_file {name} --run_mode MODE", "请写 --model_file {name} --run_mode MODE"
    ),
    "verb_without_use": Wording("has no effect in `{verb}`", "在 `{verb}` 中无效"),
    "leave_one_out": Wording("leave one of them out", "请去掉其中之一"),
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
    "renamed_twice": Wording("two names for '{name}'", "'{name}' 有两个名字"),
    "rename_form": Wording("write TARGET_NAME=BASELINE_NAME", "请写 目标中的名字=基线中的名字"),
    "needs_a_comparison": Wording(
        "needs a comparison, and --record without --baseline does not"
        " compare", "需要对比，而没有 --baseline 的 --record 不作对比"
    ),
    "add_a_baseline": Wording("add --baseline MODE, or leave it out", "请加上 --baseline 模式，或去掉该选项"),
    # files
    "file_empty": Wording("the file is empty", "文件是空的"),
    "cannot_read": Wording("cannot be read: {error}", "无法读取：{error}"),
    "check_option": Wording("check {option}", "请检查 {option}"),
    "no_such_folder": Wording("there is no such folder", "没有这个文件夹"),
    "no_recording": Wording("is not a recording: it has no {file}", "不是录制：其中没有 {file}"),
    "record_one": Wording("record a run with --record DIR", "请用 --record 目录 录制一次运行"),
    "file_no_folder": Wording("is a file, and no folder, as its last slash says", "是文件，而末尾的斜杠表示文件夹"),
    "is_a_file": Wording("is a file", "是一个文件"),
    "name_a_folder": Wording("name a folder", "请指定文件夹"),
    "name_model_file": Wording("name one with --model_file", "请用 --model_file 指定"),
    "recording_already": Wording("is already a recording", "已是录制"),
    "no_fused_outputs": Wording(
        "its layers name no tensor that could be marked", "其中的层没有给出可标记的张量"
    ),
    "all_empty": Wording(
        "every tensor that decides is empty on both sides, so no set can be judged",
        "起决定作用的张量在两侧都是空的，因此无法判断任何集合",
    ),
    "use_not_empty": Wording("use an input for which it is not", "请使用不会得到空张量的输入"),
    "no_tensors": Wording("holds no tensors", "其中没有张量"),
    "use_tensor_folder": Wording(
        "use a folder of .npy, .raw, .txt, … files", "请用含 .npy、.raw、.txt 等文件的文件夹"
    ),
    "no_json": Wording("is not readable JSON: {error}", "不是可读的 JSON：{error}"),
    "python_objects": Wording("holds Python objects, which are not read", "含有 Python 对象，不予读取"),
    "array_twice": Wording("holds {names} twice", "其中 {names} 有两个"),
    "more_than_an_array": Wording("holds more than one array", "其中不止一个数组"),
    "output_twice": Wording("is given as --output twice", "在 --output 中给了两次"),
    "written_twice": Wording(
        "is also written by {other}", "{other} 也写入此文件"
    ),
    "not_ending": Wording("is not a {ending} file", "不是 {ending} 文件"),
    "write_savez": Wording(
        "write it with numpy.savez(FILE, NAME=ARRAY)", "请用 numpy.savez(文件, 名字=数组) 写出"
    ),
    "write_save": Wording("write it with numpy.save", "请用 numpy.save 写出"),
    "no_data_files": Wording(
        "the folder has no .npz, .npy or input_N.pb files", "文件夹中没有 .npz、.npy 或 input_N.pb 文件"
    ),
    "input_type": Wording(
        "input '{name}' is {have}, the model expects {dtype}, and {why}",
        "输入 '{name}' 的类型为 {have}，模型需要 {dtype}，{why}",
    ),
    "values_would_change": Wording("its values would change", "转换会改变数值"),
    "values_or_bits": Wording("are these values or bits?", "无从得知这些是数值还是位模式"),
    "convert_it": Wording("convert it to {dtype} yourself", "请自行转换为 {dtype}"),
    "no_factory": Wording("names no factory", "没有指明工厂函数"),
    "write_factory": Wording("write {source}:FUNCTION; {returns}", "请写 {source}:函数；{returns}"),
    "not_importable": Wording("cannot be imported: {error}", "无法导入：{error}"),
    "factory_failed": Wording("the factory failed: {error}", "工厂函数出错：{error}"),
    "no_function": Wording("the script has no function '{name}'", "脚本中没有函数 '{name}'"),
    "it_defines": Wording("it defines {names}", "其中定义了 {names}"),
    "define_it": Wording("define {name}() returning a dict of arrays", "请定义返回数组字典的 {name}()"),
    "fix_script": Wording("fix the script and run it again", "请修正脚本后重新运行"),
    "script_function_form": Wording("expects FILE.py:function, got '{value}'", "请写 FILE.py:函数，而不是 '{value}'"),
    "outputs_alone": Wording(
        "holds outputs, and not the inputs that they were made from", "其中只有输出，没有产生它们的输入"
    ),
    "add_inputs": Wording("add the inputs with --inputs FILE", "请用 --inputs 文件 给出输入"),
    "add_polygraphy_inputs": Wording(
        "add the inputs with --inputs FILE (polygraphy run --save-inputs FILE)",
        "请用 --inputs 文件 给出输入（polygraphy run --save-inputs 文件）",
    ),
    "no_statistics": Wording("holds no statistics of a training run", "其中没有训练过程的统计量"),
    "name_training_folder": Wording(
        "name the folder that was passed to training(record=…)", "请指定传给 training(record=…) 的文件夹"
    ),
    "no_whole_json": Wording("not a whole JSON file ({error})", "不是完整的 JSON 文件（{error}）"),
    "write_report_again": Wording(
        "write the report again with --output NAME.json", "请用 --output NAME.json 重新写出报告"
    ),
    # files to write
    "read_too": Wording("is {path}, which this command reads", "即此命令要读取的 {path}"),
    "read_recording": Wording(
        "is inside the recording {path}, which this command reads", "位于此命令要读取的录制 {path} 中"
    ),
    "read_folder": Wording(
        "is a file of the folder {path}, which this command reads", "是此命令要读取的文件夹 {path} 中的文件"
    ),
    "another_file": Wording("name another file to write", "请写到另一个文件"),
    "no_product": Wording("this installation does not include it", "此安装不包含它"),
    "install_whole": Wording("install all of precision_debug", "请安装完整的 precision_debug"),
    "no_viewer": Wording("unknown viewer '{name}'", "没有名为 '{name}' 的查看器"),
    "viewers_are": Wording(
        "known: {names}; a file whose name has a colon: ./{path}", "可用：{names}；文件名含冒号时请写 ./{path}"
    ),
    "expects_ending": Wording("expects a {ending} file", "须为 {ending} 文件"),
    "not_python": Wording("is not a .py file", "不是 .py 文件"),
    "full_disk": Wording("the disk is full", "磁盘已满"),
    "unread_pipe": Wording("nothing reads this pipe", "没有程序读取此管道"),
    "free_or_choose": Wording(
        "free some space, or choose another place with --output", "请释放空间，或用 --output 另选位置"
    ),
    "close_or_choose": Wording(
        "close it in other programs, or choose another place with --output",
        "请在其他程序中关闭它，或用 --output 另选位置",
    ),
    "choose_place": Wording("choose another place with --output", "请用 --output 另选位置"),
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
        "its weight '{name}' has {bytes:,} {bytes:byte|bytes}, which does not match its shape {shape}",
        "其权重 '{name}'（形状 {shape}）有 {bytes:,} 字节，与形状不符",
    ),
    "too_many_nodes": Wording(
        "its functions expand to {count:,} {count:operator|operators}, more than a model can have",
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
    "no_place_for_model": Wording(
        "the command has no {place}, where the saved model's path goes", "命令中没有代表模型路径的 {place}"
    ),
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
    "move_or_name": Wording(
        "move it away, or name another place: only what this tool wrote, and nobody changed since, is replaced",
        "请将其移走或另选位置：只替换由本工具写出且之后未被改动的文件",
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
    "no_metric": Wording("there is no metric that it could be about", "没有它所针对的指标"),
    "add_metric": Wording("add --metric FILE.py:function", "请加上 --metric FILE.py:function"),
    "metric_of_all": Wording(
        "a function of all samples at once cannot judge the sets of a search",
        "针对全部样本的函数无法判定搜索中的各集合",
    ),
    "metric_of_one": Wording("give one that returns a number for each sample", "请给出对每个样本返回数值的函数"),
    "metric_alone": Wording(
        "the metric decides, with its bound or its lowest value", "由指标判定：给出其允许变差的范围或最低值之一"
    ),
    "leave_out": Wording("leave {option} out", "去掉 {option}"),
    "no_limit": Wording("'{value}' is not a limit", "'{value}' 不是限值"),
    "limit_of_anything": Wording(
        "a relative error of {value} is met by outputs of nothing but 0, or with nothing kept",
        "相对误差 {value} 时，全为 0 的输出或不保留任何算子也能满足",
    ),
    "limit_form": Wording("write an error (0.02) or a percentage of it (50%)", "请写误差（0.02）或其比例（50%）"),
    "drop_form": Wording(
        "write how much worse it may get (0.01), or a percentage of the baseline's (1%)",
        "请写允许变差多少（0.01），或相对基线的比例（1%）",
    ),
    "no_difference_format": Wording("the difference can be written as {known}", "前后对比可写成 {known}"),
    "end_the_name": Wording("use one of these as the suffix", "请以其中之一作为后缀"),
}  # fmt: skip
