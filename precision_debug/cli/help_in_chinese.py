"""What --help says, in Chinese: each English text of a parser to its counterpart.

A description stands under its first line. Settings bring their own Chinese (``Setting.zh``), and so does what is put
together of other texts: ``Both``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

from ..report.widths import wrapped
from .language import Both

__all__ = ["HELP", "in_chinese", "translate"]


_NAMED = re.compile(r"^(  \w+ +|)(.+)$")
"""A line of a list: a name and what it is; or a line alone."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Breaks lines between Chinese characters, which take two places each."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)


def in_chinese(text: str | None) -> str | None:
    """A text's counterpart; itself where there is none."""
    if text is None or isinstance(text, Both):
        return None if text is None else text.zh
    whole = HELP.get(text) or HELP.get(text.strip().partition("\n")[0])
    return whole or "\n".join(_NAMED.sub(lambda found: f"{found[1]}{HELP.get(found[2], found[2])}", line) for line in
                             text.split("\n"))  # fmt: skip


def translate(parser: argparse.ArgumentParser) -> None:
    """Everything that a parser's help shows, in place: who asks for help gets that and nothing else."""
    parser.description, parser.epilog = in_chinese(parser.description), in_chinese(parser.epilog)
    for group in parser._action_groups:
        group.title, group.description = in_chinese(group.title), in_chinese(group.description)
    for action in parser._actions:
        action.help = in_chinese(action.help)
    parser.formatter_class = lambda prog: _Formatter(prog, max_help_position=34)


HELP: Mapping[str, str] = {
    # verbs
    "compare two run modes of a model (the default)": "比较一个模型的两种运行模式（默认）",
    "put files of inputs or outputs together: merge by name, or concat the samples":
        "合并输入或输出文件：按名字合并，或拼接样本",
    "what changed between two reports: tensors that got better or worse, culprits that came or went":
        "两份报告之间的变化：哪些张量变好或变差，哪些元凶出现或消失",
    "which run modes run here, and what the others need": "哪些运行模式可在本机运行，其余缺少什么",
    "list a model's inputs, what each is fed by default, and a command to copy":
        "列出模型的输入、各自的默认值，以及可复制的命令",
    "tell what a model, an engine, or TensorRT's engine-inspector files hold (layers, real precision, tactics)":
        "说明模型、引擎或 TensorRT engine inspector 文件的内容（层、真实精度、tactic）",
    "what an .onnx file proves to be wrong by itself, or two files of each other, without a run":
        ".onnx 文件自身能证明的错误，或两个文件互相证明的不同，无需运行",
    "climb an engine's optimisation stages one at a time, and bisect the one that brings the mismatch":
        "逐级开启引擎的优化，并对引入不一致的一级二分查找",
    "list a model's tensor names in execution order, to mark some of them":
        "按执行顺序列出模型的张量名，以便标记其中一些",
    "the smallest part of an ONNX model that still shows the fault, saved with its inputs":
        "仍能重现问题的最小 ONNX 子模型，连同其输入一起保存",
    "write a report again in another format, or rescue one from an interrupted run":
        "以其他格式重写报告，或从中断的运行中恢复报告",
    "find the smallest set of operators to keep in higher precision, verify it and hand it over":
        "找出应保留为高精度的最小算子集合，加以验证并交付",
    "several run modes in one table: error, culprit, accuracy, latency, size; and the plot of it":
        "多种运行模式列于一表：误差、元凶、准确率、延迟、大小，并附图",
    "show a report in the browser, served on this machine only": "在浏览器中显示报告，仅在本机提供",
    # descriptions
    "Which operator lost the precision? Runs a model in two modes on the same input, compares every intermediate"
    " tensor,":
        "哪个算子损失了精度？以同一输入在两种模式下运行模型，比较每一个中间张量，",
    "and writes a table.": "并写成表格。",
    "verbs:": "动词：",
    "precision_debug data: put files of inputs or outputs together, as one file of Polygraphy's JSON.":
        "precision_debug data：将输入或输出文件合并为一个 Polygraphy JSON 文件。\n\n"
        "`data merge A B … --output C.json` 把各文件中名字不同的数组合成一个样本：例如把一次运行的输出与输入\n"
        "放在一起，作为下一个模型的输入；同名者取最后一个文件的。`data concat A B … --output C.json` 把后一个\n"
        "文件的样本接在前一个之后。可读取 Polygraphy 的输入与输出、.npz、.npy、其目录，以及脚本的函数。\n",
    "precision_debug diff: what changed between two reports, before and after a fix, a release or another card.":
        "precision_debug diff：两份报告之间的变化，例如修复、升级或更换显卡前后。\n\n"
        "BEFORE 与 AFTER 是 .json 报告。张量按名字对应，变差的排在前面。没有变差时退出码为 0，否则为 1。\n",
    "precision_debug doctor: which run modes run here, and what the others need.":
        "precision_debug doctor：哪些运行模式可在本机运行，其余缺少什么。",
    "precision_debug inputs MODEL: what a model is fed, what it would be fed by default, and a command to copy.":
        "precision_debug inputs MODEL：模型需要哪些输入、默认值是什么，以及可复制的命令。",
    "precision_debug inspect: what TensorRT's engine-inspector files say, or what a model or an engine holds.":
        "precision_debug inspect：TensorRT engine inspector 文件的内容，或模型、引擎的内容。\n\n"
        "每层一行：类型、真实运行的精度及其依据、产生的张量。FILES 可用通配符；多个文件视为一个引擎。\n"
        "`inspect model M` 列出模型的输入、输出、算子和权重（.onnx .ort .pdmodel .json .xml .pt2 .pt），\n"
        "或引擎的绑定、层、真实精度和 tactic（.engine .plan）；--show layers attributes weights 逐一列出。\n"
        "`inspect data FILE` 说明 --inputs 或 --load_outputs 会从 .npz、.npy 或 .json 中读到什么：每个样本的名字、\n"
        "类型、形状和取值范围。`inspect capability M --run_mode MODE` 在构建之前询问 TensorRT 的解析器或 OpenVINO\n"
        "的设备不支持哪些算子。`inspect tactics FILES` 列出每层的 tactic（--save_tactics 与 Polygraphy 的 replay\n"
        "文件）；加 --diff BAD… 时只列出仅有问题构建才采用的 tactic。\n",
    "precision_debug check M [M2]: what the file itself proves to be wrong, or two files of each other, without a run.":
        "precision_debug check M [M2]：文件自身能证明的错误，或两个文件互相证明的不同，无需运行。\n\n"
        "为 NaN 的常量、不可能正确的 scale 与零点、被截断或 scale 不等于 scale_x×scale_w 的 int32 偏置、\n"
        "超出其量化范围的权重、超出目标类型的常量；对两个文件：不同的属性与常量，以及折叠错误的 batch norm。\n"
        "有发现时退出码为 1。\n",
    "precision_debug ladder: which stage of the target brings the mismatch, and what to switch off.":
        "precision_debug ladder：目标的哪一级引入不一致，应关闭什么。\n\n"
        "选项与对比相同。从全部关闭逐级升到 --run_mode；对首个不通过的一级，二分查找必须关闭的最小 pass 与算子集合。\n",
    "precision_debug marks: a model's tensor names in execution order, to mark some of them.":
        "precision_debug marks：按执行顺序列出模型的张量名，以便标记其中一些。\n\n"
        "列表可编辑后用 --marks FILE 交回。\n",
    "precision_debug reduce: the smallest part of an ONNX model that still shows the fault, with its inputs.":
        "precision_debug reduce：仍能重现问题的最小 ONNX 子模型及其输入。\n\n"
        "选项与对比相同。子模型止于首个超差的张量，或 --tensor 指定的张量；其输入取基线在该处的值。\n"
        "写出一个 .onnx 文件，旁边是其输入的 .npz。找到时退出码为 0；没有超差，或没有子模型能单独重现时为 1。\n",
    "precision_debug report: write a report again in another format, or rescue one from an interrupted run.":
        "precision_debug report：以其他格式重写报告，或从中断的运行中恢复报告。\n\n"
        "SOURCE 是 .json 报告，或进程全部被终止的运行所留下的 journal.jsonl。\n",
    "precision_debug search: the smallest set of operators to keep in higher precision, verified and handed over.":
        "precision_debug search：应保留为高精度的最小算子集合，经验证后交付。\n\n"
        "选项与对比相同。每运行一个集合，报告旁的日志就多一行：再次运行同一命令会从被终止处继续。\n",
    "precision_debug sweep: several run modes in one table, with error, culprit, answers, latency, size and build"
    " time.":
        "precision_debug sweep：多种运行模式列于一表：误差、元凶、结果、延迟、大小和构建时间。\n\n"
        "选项与对比相同，以 --run_modes 代替 --run_mode。每种模式在单独的进程中对比并计时；\n"
        "不能在本机运行的列出原因。\n",
    "precision_debug view: show a report in the browser of this machine, and nobody else.":
        "precision_debug view：在本机浏览器中显示报告，不对外提供。\n\n"
        "SOURCE 是报告：.html 原样显示；.json 或中断运行的 journal.jsonl 则生成页面。页面在 127.0.0.1 上提供，\n"
        "直到按 Ctrl-C；经 SSH 使用时转发打印出的端口（ssh -L PORT:127.0.0.1:PORT HOST）。\n",
    # of argparse, and of every verb
    "positional arguments": "位置参数",
    "options": "选项",
    "show this help message and exit": "显示此帮助并退出",
    "show program's version number and exit": "显示版本号并退出",
    "language of what is printed, and of a page as it opens (default: the terminal's, the browser's)":
        "输出文字的语言，以及页面打开时的语言（默认随终端、随浏览器）",
    "tracebacks": "显示 traceback",
    # data, diff, doctor
    "see above": "见上文",
    ".json .npz .npy, folders, SCRIPT.py:f": ".json .npz .npy、目录、SCRIPT.py:f",
    "what --inputs reads": "--inputs 可读取的文件",
    "the earlier report, .json": "较早的报告，.json",
    "the later one": "较晚的报告",
    "an error must change by more than this factor (default 2)": "误差变化超过此倍数才算（默认 2）",
    "relative L2 errors below this do not count (default 1e-6)": "低于此值的相对 L2 误差不计（默认 1e-6）",
    "write it as .xlsx, .html, .md or .json too; repeatable": "另存为 .xlsx、.html、.md 或 .json；可重复",
    "the backends' settings instead": "改为列出各后端的设置",
    "write them there, as docs/settings.md": "将设置写入该文件，格式同 docs/settings.md",
    "write what reports say, as docs/reasons.md": "写出报告中的各种说明，格式同 docs/reasons.md",
    "the table's columns, as docs/columns.md": "写出表格各列的说明，格式同 docs/columns.md",
    # inputs, inspect, marks
    "the model: .onnx, .pdmodel, .json, …": "模型：.onnx、.pdmodel、.json 等",
    "the same": "同上",
    "its parameters, where they are a file": "参数文件（若单独存放）",
    "a folder that holds the model": "模型所在的目录",
    "as this mode reads it (default: the baseline)": "以此模式读取（默认为基线）",
    "shapes to try": "要尝试的形状",
    "engine_info_*.json and the like": "engine_info_*.json 等文件",
    "only the fused layers' output names, one a line": "只列出融合层的输出名，每行一个",
    "another engine: was the fusion kept?": "另一个引擎：融合是否保持？",
    "of a model or an engine, each of these": "逐一列出模型或引擎的这些内容",
    "of inspect capability: trt_fp16, ov_fp32, …": "用于 inspect capability：trt_fp16、ov_fp32 等",
    "the graph of this mode (default: the baseline's)": "该模式的图（默认为基线的图）",
    "only what these match": "只列出与之匹配的",
    "in place of a model: engine-inspector files": "代替模型：engine inspector 文件",
    "without operator type and shape": "不带算子类型和形状",
    "write here in place of printing": "写入文件而不打印",
    # which model, which two runs
    "which model?": "哪个模型？",
    "the model: .onnx, .pdmodel, .json, .engine, …": "模型：.onnx、.pdmodel、.json、.engine 等",
    "its parameters, where they are a file of their own": "参数文件（若单独存放）",
    "the baseline's model, where it is another file": "基线的模型（若是另一个文件）",
    "the parameters of --baseline_model": "--baseline_model 的参数文件",
    "which two runs?": "哪两次运行？",
    "the target: ort_int8, trt_fp16, … (see `doctor`)": "目标：ort_int8、trt_fp16 等（见 `doctor`）",
    "what it is compared with: a run mode, a recorded run, or none, with --validate (default: the unfused FP32 mode)":
        "与何者比较：运行模式、已录制的运行，或 none（配合 --validate）；默认为不融合的 FP32 模式",
    "the baseline is what Polygraphy saved with --save-outputs; give its inputs with --inputs":
        "基线为 Polygraphy 用 --save-outputs 保存的输出；其输入用 --inputs 给出",
    "keep the target's tensors, to be a --baseline elsewhere; without --baseline nothing is compared":
        "保存目标的张量，供别处作 --baseline；不给 --baseline 时不做比较",
    "a backend's own setting, see below; baseline.KEY or target.KEY for one side; may be repeated":
        "后端自己的设置，见下文；baseline.KEY 或 target.KEY 只用于一侧；可重复",
    "build for a range of shapes": "为一个形状范围构建",
    "the min of that range": "该范围的最小形状",
    "the opt of that range": "该范围的调优形状",
    "the max of that range": "该范围的最大形状",
    # on which input
    "on which input?": "用什么输入？",
    ".npz, .npy, a folder of them, Polygraphy's JSON, a dataset folder, or a script's function; of many samples each"
    " row is one tensor over all of them (default: seeded random)":
        ".npz、.npy、其目录、Polygraphy 的 JSON、数据集目录，或脚本的函数；多个样本时每行是一个张量在全部样本上的结果"
        "（默认：带种子的随机数）",
    "the arrays of --inputs hold many samples along this axis": "--inputs 的数组沿此轴存放多个样本",
    "only this sample, from 0, or these": "只用这个样本（从 0 起）或这一段",
    "e.g. x:[1,3,224,224], for dynamic dimensions": "例如 x:[1,3,224,224]，用于动态维度",
    "range of random values (default 0,1)": "随机数的范围（默认 0,1）",
    "seed of random values (default 0)": "随机数的种子（默认 0）",
    "keep what was fed, as Polygraphy's --load-inputs reads": "保存输入，格式同 Polygraphy 的 --load-inputs",
    "class index of each sample (.npy): the report then shows both runs' accuracy":
        "每个样本的类别编号（.npy）：报告将给出两侧的准确率",
    "a number of your own, from a sample's outputs and labels (any .npy), for both runs":
        "您自己的指标，由样本的输出与标签（任意 .npy）计算，两侧各一次",
    "in how many samples both runs have the same first class, without labels too":
        "两侧首位类别相同的样本比例，无标签亦可",
    "the same of the first N classes, in any order; with --labels, too":
        "前 N 个类别（不计次序）的同样比例；也可配合 --labels",
    # how close is close
    "how close is close?": "多近才算一致？",
    "without any of these a tensor passes where its error is what the target must lose":
        "以下均不给出时，误差不超过目标必然损失的张量即通过",
    "absolute tolerance (1e-4 where only --rtol is given)": "绝对容差（只给 --rtol 时为 1e-4）",
    "relative tolerance (1e-4 where only --atol is given)": "相对容差（只给 --atol 时为 1e-4）",
    "isclose: |t-b| <= atol + rtol*|b|; either: |t-b| <= atol or <= rtol*|b| (default isclose)":
        "isclose：|t-b| <= atol + rtol*|b|；either：|t-b| <= atol 或 <= rtol*|b|（默认 isclose）",
    "what must be within tolerance: every element, or a statistic of the error (default elemwise)":
        "什么须在容差内：每个元素，或误差的统计量（默认 elemwise）",
    "for --check_error_stat quantile (default 0.99)": "用于 --check_error_stat quantile（默认 0.99）",
    "NaN in the same place on both sides is equal": "两侧同一位置的 NaN 视为相等",
    "NaN and Inf are out of tolerance, also where both sides have them": "NaN 与 Inf 均算超差，两侧都有时也算",
    "a function of your own that decides in their place, from both runs' outputs: true or false, or a dict of them by"
    " output name":
        "由您自己的函数代替容差判定：输入两侧的输出，返回真假，或按输出名返回真假的字典",
    "stop at the first tensor, or sample, that fails": "遇到首个未通过的张量或样本即停止",
    # how many at once
    "how many at once, of many samples?": "多个样本时同时运行几个？",
    "child processes, each with both sides open": "子进程数，每个都打开两侧",
    "ray: actors of a Ray cluster, in their place": "ray：改用 Ray 集群的 actor",
    "of a Ray cluster (default: one is started here)": "Ray 集群的地址（默认在本机启动一个）",
    "GPUs of each actor, 0.5 shares one": "每个 actor 的 GPU 数，0.5 表示两个共用一块",
    "keeps what is finished, for the same command to go on from": "保存已完成的部分，同一命令可由此继续",
    # who did it, which tensors
    "who did it?": "由哪个算子造成？",
    "run each operator alone and name the culprits: fast takes about as long as the run, full measures the effect of"
    " every operator (default fast)":
        "单独运行每个算子并指认元凶：fast 耗时与运行相当，full 测量每个算子的影响（默认 fast）",
    "build and run the target N times: how far its builds are apart, and where that begins":
        "将目标构建并运行 N 次：各次相差多少，从何处开始",
    "which tensors?": "哪些张量？",
    "only these: a name, a glob, or re:REGEX (default: all)": "只比较这些：名字、通配符或 re:正则（默认全部）",
    "names from a file, one a line or a JSON list": "从文件读取名字，每行一个或 JSON 列表",
    "all between two names, in execution order": "两个名字之间的全部（按执行顺序）",
    "the fused layers' outputs in engine-inspector JSON files": "engine inspector JSON 文件中融合层的输出",
    "only the outputs of the target's fused layers": "只比较目标融合层的输出",
    "pair tensors whose names differ": "将名字不同的张量配对",
    # what comes out
    "what comes out?": "输出什么？",
    "report; format by suffix, may be repeated (default output/output.xlsx); explorer:FILE.json, netron:FILE.onnx,"
    " tensorboard:FILE.tfevents: for those viewers; github: adds to a step's summary":
        "报告；格式由后缀决定，可重复（默认 output/output.xlsx）；explorer:FILE.json、netron:FILE.onnx、"
        "tensorboard:FILE.tfevents 供相应查看器使用；github 追加到步骤摘要",
    "keep both runs' outputs, as --load_outputs reads": "保存两侧的输出，供 --load_outputs 读取",
    "keep the N worst tensors of both sides as .npz beside the report, which links it":
        "将误差最大的 N 个张量（两侧）以 .npz 保存在报告旁，报告中有链接",
    "e.g. 4G: baseline tensors beyond it wait on disk, 0: all": "例如 4G：超出部分的基线张量存放在磁盘上；0：全部",
    "both runs advance together and meet at each tensor, so that none waits (default: where both can)":
        "两侧同步推进，在每个张量处相遇，无需保存（默认：两侧都能时）",
    "write this command as a script on the API, in place of it": "不运行，而是将此命令写成调用 API 的脚本",
    "draw the N worst tensors in the terminal: values, errors, and errors against magnitudes (1 without N)":
        "在终端绘制误差最大的 N 个张量：数值、误差、误差与数值大小（不给 N 为 1）",
    "draw the N worst tensors in the terminal": "在终端绘制误差最大的 N 个张量",
    "show what the frameworks print, and tracebacks": "显示各框架的输出和 traceback",
    "no summary; the exit status and the report tell": "不打印摘要；由退出码和报告说明",
    # ladder, reduce, report
    "how far does the ladder go?": "逐级到何处为止？",
    "what must be within tolerance: the model's outputs, or every compared tensor (default outputs)":
        "什么须在容差内：模型的输出，或每个比较的张量（默认 outputs）",
    "runs for each bisection": "每次二分的运行次数",
    "what is left, and where does it go?": "剩下什么，写到何处？",
    "that must fail (default: the first that does)": "必须超差的张量（默认为首个超差者）",
    "the part (default: MODEL.part.onnx)": "子模型（默认 MODEL.part.onnx）",
    "output.json or journal.jsonl": "output.json 或 journal.jsonl",
    "may be repeated; format by suffix, or NAME:FILE": "可重复；格式由后缀或 NAME:FILE 决定",
    # check
    "an .onnx file": "一个 .onnx 文件",
    "another one, made from it": "由它生成的另一个文件",
    "the type that the target holds floats in": "目标保存浮点数所用的类型",
    "the target holds whole numbers in 32 bits (TensorRT)": "目标以 32 位保存整数（TensorRT）",
    # search
    "what has to hold, and for how long is it searched?": "须满足什么，搜索多久？",
    "what is judged: the outputs, every tensor, or a metric(baseline, target) of your own (default outputs)":
        "判定对象：输出、每个张量，或您自己的 metric(baseline, target)（默认 outputs）",
    "largest relative L2 error, or share of the error with nothing kept (default: the tolerance)":
        "最大相对 L2 误差，或占未保留时误差的比例（默认按容差）",
    'a command of your own decides, by its exit status, of each saved model: "python check.py {model}"':
        '由您自己的命令以退出码判定每个保存的模型："python check.py {model}"',
    "inputs that only check the answer": "只用于检验结果的输入",
    "at most so many sets (default 200)": "最多运行的集合数（默认 200）",
    "no new set after so long": "超过此秒数后不再运行新集合",
    "folder of what is handed over (default: beside the report)": "交付文件的目录（默认在报告旁）",
    # sweep, view
    "which modes, and how are they timed?": "哪些模式，如何计时？",
    "the modes; MODE+KEY=VALUE gives one a setting of its own, and may be named beside the mode without it":
        "各模式；MODE+KEY=VALUE 为其单独给出设置，可与不带设置的同一模式并列",
    "further files of the same model: a mode runs the first one that it reads":
        "同一模型的其他文件：每种模式运行其能读取的第一个",
    "samples a run to time (default: as they are)": "计时时每次运行的样本数（默认原样）",
    "of timed runs each (default 3)": "每种模式计时的秒数（默认 3）",
    "report.html, report.json or journal.jsonl": "report.html、report.json 或 journal.jsonl",
    "default: any that is free": "默认为任意空闲端口",
    "open the browser too": "同时打开浏览器",
}  # fmt: skip
