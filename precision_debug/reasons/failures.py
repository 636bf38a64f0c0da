"""What went wrong, as far as people meet it often: the parts of an error's one line, and the line made of them."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["FAILURES"]

FAILURES: Mapping[str, Wording] = {
    "error_where_hint": Wording("{where}: {what}; {hint}", "{where}：{what}。建议：{hint}"),
    "error_where": Wording("{where}: {what}", "位于 {where}：{what}"),
    "error_hint": Wording("{what}; {hint}", "{what}。建议：{hint}"),
    # the command
    "no_run_mode": Wording("--run_mode is missing", "缺少 --run_mode"),
    "name_the_target": Wording(
        "name the target, e.g. --run_mode ort_int8; `precision_debug doctor` lists the run modes",
        "写明目标，例如 --run_mode ort_int8；`precision_debug doctor` 列出全部模式",
    ),
    "no_model": Wording("no model given", "没有给出模型"),
    "name_a_model": Wording(
        "name one with --model_file FILE or --model_dir DIR", "用 --model_file 文件 或 --model_dir 文件夹 给出"
    ),
    "no_format": Wording("no report format '{ending}'", "没有 '{ending}' 这种报告格式"),
    "known": Wording("known: {known}", "可用：{known}"),
    "is_a_folder": Wording("is a folder", "是一个文件夹"),
    "name_a_report": Wording("name a file in it, e.g. output.xlsx", "写出其中的文件名，例如 output.xlsx"),
    "see_help": Wording("see `{program} --help`", "`{program} --help` 说明各选项"),
    "unknown_options": Wording("unrecognized arguments: {names}", "无法识别的选项：{names}"),
    "no_value_given": Wording("argument {option}: a value is missing", "选项 {option}：缺少值"),
    "value_empty": Wording("the value is empty", "值为空"),
    "write_or_leave_out": Wording("write one, or leave the option out", "请给出值，或去掉该选项"),
    "write_joined": Wording("write {option}", "请写 {option}"),
    "given_twice": Wording("given twice, with different values", "给了两次，且值不同"),
    "keep_one": Wording("keep one of them", "请只保留一个"),
    "no_whole_number": Wording(
        "argument {option}: '{value}' is not a whole number", "选项 {option}：'{value}' 不是整数"
    ),
    "no_number": Wording("argument {option}: '{value}' is not a number", "选项 {option}：'{value}' 不是数"),
    "no_such_choice": Wording(
        "argument {option}: '{value}' is not one of {known}", "选项 {option}：没有 '{value}'，可选：{known}"
    ),
    "missing_arguments": Wording("arguments are missing: {names}", "缺少参数：{names}"),
    # workers of --jobs
    "workers_lost_opening": Wording(
        "{count} workers died while opening the model ({why})", "{count} 个工作进程在打开模型时终止（{why}）"
    ),
    "workers_lost_in": Wording(
        "{count} workers died on samples {first} to {last} ({why})",
        "样本 {first} 至 {last} 先后使 {count} 个工作进程终止（{why}）",
    ),
    "workers_lost": Wording("{count} workers died one after another", "{count} 个工作进程相继终止"),
    "fewer_workers": Wording(
        "each worker holds both models: lower --jobs, or provide more memory",
        "每个进程都要装入两侧模型：请减小 --jobs，或增加内存",
    ),
    # the model and the run mode
    "no_such_file": Wording("no such file", "没有这个文件"),
    "check_model_file": Wording("check --model_file", "请检查 --model_file"),
    "no_such_model": Wording("no such model", "没有这个模型"),
    "check_the_path": Wording(
        "check the path (it is relative to the current folder)", "检查路径（相对于当前文件夹）"
    ),
    "unknown_mode": Wording("unknown run mode '{mode}'", "未知的运行模式 '{mode}'"),
    "model_folder": Wording("a model folder", "模型文件夹"),
    "no_model_to_pair": Wording(
        "holds another tool's tensors, but neither side runs the model that they belong to",
        "是其他工具的张量，而两侧都没有运行其所属的模型",
    ),
    "dumps_first": Wording(
        "first make a recording of each: precision_debug dumps DIR --model_file M --record OUT",
        "请先分别生成录制：precision_debug dumps DIR --model_file M --record OUT",
    ),
    "no_backend_reads": Wording("no backend reads {kind}", "没有后端能读取 {kind}"),
    "known_endings": Wording("known endings: {endings}", "可用的后缀：{endings}"),
    "weight_unreadable": Wording("its weight '{name}' cannot be read: {error}", "其权重 '{name}' 无法读取：{error}"),
    "weights_alone": Wording(
        "it holds weights but no model: write a factory FILE.py:FUNCTION that builds the module and loads them, or use"
        " --model_dir with a folder saved by transformers; {known}",
        "其中只有权重、没有模型：写一个工厂函数 FILE.py:FUNCTION 构建模块并加载它们，"
        "或用 --model_dir 指定 transformers 保存的目录；{known}",
    ),
    "export_it": Wording("export it to .onnx; {known}", "请先导出为 .onnx；{known}"),
    "beside_its_export": Wording(
        "to compare it with a file exported from it: --model_file EXPORTED{ending} --run_mode {mode} --baseline"
        " {baseline} --baseline_model {model}; {modes}",
        "与由它导出的文件对比：--model_file 导出的文件{ending} --run_mode {mode} --baseline {baseline} "
        "--baseline_model {model}；{modes}",
    ),
    "mode_does_not_read": Wording(
        "run mode {mode} does not read {kind} (it reads {wanted})",
        "运行模式 {mode} 不能读取 {kind}（它读取 {wanted}）",
    ),
    "modes_for": Wording("modes for {kind}: {modes}", "{kind} 可用的模式：{modes}"),
    "near_modes_for": Wording(
        "did you mean {near:or}? `precision_debug doctor` lists the modes for {kind}",
        "是否想写 {near:or}？`precision_debug doctor` 列出 {kind} 可用的模式",
    ),
    "download_it": Wording(
        "only files of this machine are read: download it first", "只读取本机的文件：请先下载"
    ),
    "several_modes": Wording(
        "'{mode}' is several run modes, and --run_mode takes one", "'{mode}' 是多个运行模式，而 --run_mode 只取一个"
    ),
    "sweep_them": Wording(
        "`precision_debug sweep … --run_modes {modes}` compares each",
        "`precision_debug sweep … --run_modes {modes}` 逐一比较",
    ),
    "model_as_mode": Wording("is a model file, not a run mode", "是模型文件，不是运行模式"),
    "model_by_its_option": Wording(
        "another model to compare with is --baseline_model {path}; --baseline and --run_mode take a run mode or a"
        " recording",
        "要比较的另一个模型请写 --baseline_model {path}；--baseline 与 --run_mode 取运行模式或录制",
    ),
    "neither_mode_nor_folder": Wording(
        "is neither a run mode nor a folder or file here", "既不是运行模式，也不是此处的文件夹或文件"
    ),
    "modes_or_folder": Wording(
        "`precision_debug doctor` lists the run modes; a recording or dump is named by its path",
        "`precision_debug doctor` 列出运行模式；录制或导出请写其路径",
    ),
    "no_such_mode": Wording("the {backend} backend has no run mode {mode}", "后端 {backend} 没有运行模式 {mode}"),
    "cannot_run_here": Wording("run mode {mode} cannot run here: {needs}", "运行模式 {mode} 无法在此运行：{needs}"),
    "doctor_lists": Wording("`precision_debug doctor` lists the modes that"
                            " can", "`precision_debug doctor` 列出可以运行的模式"),
    # the inputs
    "no_such_inputs": Wording("there is no such file or folder", "没有这个文件或文件夹"),
    "no_such_input": Wording("the model has no input '{name}'", "模型没有名为 '{name}' 的输入"),
    "its_inputs": Wording("the model's inputs: {names}", "模型的输入：{names}"),
    "no_value_for": Wording("no value for {names}", "没有给出 {names} 的值"),
    "it_has": Wording("it has {names}", "其中只有 {names}"),
    "input_shape": Wording(
        "input '{name}' has shape {shape}, but the model expects [{wanted}]",
        "输入 '{name}' 的形状为 {shape}，模型需要 [{wanted}]",
    ),
    "reshape_it": Wording("reshape it", "请改变它的形状"),
    # the process
    "interrupted": Wording("interrupted", "被中断"),
    "rows_in_report": Wording("the finished rows are in the report", "已完成的行在报告里"),
    "stages_told": Wording("the finished stages are above", "已结束的阶段见上"),
    "modes_in_report": Wording("the finished part is in the report", "已完成的部分在报告里"),
    "nothing_yet": Wording("nothing was compared yet", "尚未比较任何张量"),
    "killed": Wording(
        "the process was killed ({signal}), usually for using too much memory",
        "进程被终止（{signal}），通常因占用内存过多",
    ),
    "smaller": Wording(
        "use a smaller batch, mark fewer tensors, or set --memory_budget",
        "请减小 batch、减少标记的张量，或设置 --memory_budget",
    ),
    "crashed": Wording("the process crashed ({signal})", "进程崩溃（{signal}）"),
    "crashed_whose": Wording("{what}; {whose}", "{what}；{whose}"),
    "crashed_alone_too": Wording(
        "the engine of {mode} alone, without this tool, crashes on the same model and inputs ({signal}): the fault is"
        " the engine's",
        "{mode} 的引擎单独运行（不经本工具）时，同一模型与输入同样崩溃（{signal}）：是引擎的问题",
    ),
    "runs_alone": Wording(
        "alone, without this tool, the engine of {modes} runs the same model and inputs: what this tool shows tensors"
        " by takes part in it",
        "{modes} 的引擎单独运行（不经本工具）时，同一模型与输入可以运行：崩溃与本工具取得张量的方式有关",
    ),
    "runs_with": Wording("{option}: tried, it runs with it", "{option}：已试，这样可以运行"),
    "ended_with": Wording("the process ended with status {status}", "进程以状态 {status} 结束"),
    "last_words": Wording("{what} (last output: {words})", "{what}（最后的输出：{words}）"),
    "verbose_shows": Wording("--verbose shows everything it printed", "--verbose 显示它打印的全部内容"),
    "child_ended": Wording("the process that ran the engine ended ({how})", "运行引擎的进程已终止（{how}）"),
    "disk_full": Wording(
        "the disk is full or the file size is limited: the finished part could not be written",
        "磁盘已满，或文件大小受限：已完成的内容无法写入",
    ),
    "folder_gone": Wording(
        "the run's working folder was removed during the run", "运行所用的文件夹在运行期间被删除"
    ),
    "leave_it": Wording(
        "run it again without touching the folder of --output", "请重新运行，期间不要动 --output 所在的文件夹"
    ),
    "no_descriptors": Wording("too many open files", "同时打开的文件数已达上限"),
    "more_descriptors": Wording("raise the limit: ulimit -n 1024", "请放宽限制：ulimit -n 1024"),
    "no_processes": Wording("too many processes", "进程数已达上限"),
    "more_processes": Wording("raise the limit: ulimit -u", "请放宽限制：ulimit -u"),
    "out_of_memory": Wording("out of memory", "内存不足"),
    "another_place": Wording("name another --output", "请另写一个 --output"),
    "cannot_write": Wording("cannot write there: {error}", "无法写入：{error}"),
    "another_tmpdir": Wording("set TMPDIR to another disk", "请将 TMPDIR 设到另一个磁盘"),
    "stopped_by_pass": Wording(
        "what the engine cannot run was made by its own pass {passes}: {why}",
        "引擎自身的 pass {passes} 改写出了引擎无法运行的图：{why}",
    ),
    "runs_without": Wording(
        "without it the model runs: {option}; in a script of yours `{paste}`; report it to the engine's developers",
        "关闭后模型可以运行：{option}；在自己的脚本中：`{paste}`；请报告给引擎的开发者",
    ),
    "recording_taken": Wording("another run is recording into this folder", "另一个运行正在录制到该文件夹"),
    "report_taken": Wording("another run is writing this report", "另一个运行正在写这份报告"),
    "wait_for_it": Wording("wait for it to finish, or name another --output", "请等待它结束，或另写一个 --output"),
    "wait_or_record": Wording(
        "wait for it to finish, or record into another folder", "请等待它结束，或录制到另一个文件夹"
    ),
}  # fmt: skip
