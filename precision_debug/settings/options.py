"""The options of a comparison: one table.

An option is a field of one of these records. Its name, type and default are the field's; the heading that it stands
under, its help in English and Chinese, and how it is written stand beside them, in ``option(…)``. The command line,
its help, ``compare()``, --gen_script and the page of settings are made from here: a new option is a field and its
reader.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..errors import UsageError
from ..reasons import say
from .setting import Kind, Setting

__all__ = [
    "CONFIG",
    "DEFAULT_OUTPUT",
    "GROUPS",
    "LANG",
    "LANGUAGES",
    "MEMORY_BUDGET",
    "OPTIONS",
    "TERMINAL",
    "ModelFiles",
    "Number",
    "RunSpec",
    "Shape",
    "Tolerance",
    "Workers",
    "check_tolerance",
    "iterate_differing",
    "list_options",
    "make_option",
    "parse_allowed_drop",
    "spec_of",
]  # fmt: skip

Shape = tuple[int, ...]
Number = int | float  # whole ones stay whole when they are read back: uint64 does not fit a double

DEFAULT_OUTPUT = "output/output.xlsx"

GROUPS: Mapping[str, tuple[str, str]] = {
    "model": ("which model?", "哪个模型？"),
    "runs": ("which two runs?", "哪两次运行？"),
    "input": ("on which input?", "用什么输入？"),
    "close": (
        "how close is close?\nwithout any of these, a tensor passes if its error is within what the target's"
        " arithmetic costs",
        "多近才算一致？\n以下均不给出时，误差不超过目标必然损失的张量即通过",
    ),
    "workers": ("how many samples in parallel?", "同时运行多少个样本？"),
    "who": ("which operator causes the error?", "由哪个算子造成？"),
    "tensors": ("which tensors?", "哪些张量？"),
    "out": ("what is written?", "输出什么？"),
}
"""The headings of --help in English and Chinese, in their order; a second line stands below one."""

_KINDS: Mapping[str, Kind] = {
    "bool": "flag", "bool | None": "flag", "int": "whole", "int | None": "whole", "float": "number",
    "float | None": "number", "Number": "number", "str": "word", "tuple[str, ...]": "words",
    "tuple[str, str] | None": "words", "Mapping[str, Shape]": "shapes", "Mapping[str, str]": "renames",
    "Mapping[str, tuple[Number, Number]]": "ranges",
}  # fmt: skip
"""What a field's type is read as, where ``make_option`` does not say it."""


def make_option(group: str, help: str, zh: str, **more: Any) -> Mapping[str, Any]:
    """Return the metadata of a field that is an option. group: of GROUPS. help, zh, more: see Setting."""
    return MappingProxyType({"option": {"group": group, "help": help, "zh": zh, "flag": True, **more}})


@functools.cache
def list_options(record: type) -> tuple[Setting, ...]:
    """Return every option that a record and its parts keep, in their order."""
    return tuple(_iterate_options(record, ""))


def _iterate_options(record: Any, before: str) -> Iterator[Setting]:
    for one in dataclasses.fields(record):
        if "option" in one.metadata:
            said = dict(one.metadata["option"])
            made = one.default_factory
            default = made() if made is not dataclasses.MISSING else one.default
            said.setdefault("name", one.name)
            said.setdefault("kind", "choice" if "choices" in said else _KINDS.get(str(one.type)))
            yield Setting(field=before + one.name, default=None if default is dataclasses.MISSING else default, **said)
        elif one.name in _PARTS:
            yield from _iterate_options(_PARTS[one.name], f"{before}{one.name}.")


def _parse_lockstep(typed: Any) -> bool | None:
    """Read "auto", "on", "off", or what they mean (None, True, False)."""
    if typed is None or isinstance(typed, bool):
        return typed
    if typed not in ("auto", "on", "off"):
        raise ValueError(f"{typed!r} is not one of auto, on, off")
    return {"auto": None, "on": True, "off": False}[typed]


def _parse_sample(typed: Any) -> str:
    if isinstance(typed, (str, int)) and not isinstance(typed, bool):
        return str(typed)
    raise ValueError(f"{typed!r} is neither a number nor FROM:TO")


def parse_variants(text: str) -> tuple[str, ...]:
    """Return what a sample is compared with when it is alone: "batch", "padded". Raises ValueError."""
    found = tuple(one.strip() for one in text.split(",") if one.strip())
    if not found or not {*found} <= {"alone", "batch", "padded"} or {*found} == {"alone"}:
        raise ValueError(f"{text!r} is not made of alone, batch and padded")
    return tuple(dict.fromkeys(one for one in found if one != "alone"))


def _check_variants(typed: Any) -> str:
    text = typed if isinstance(typed, str) else ",".join(map(str, typed))
    return ",".join(("alone", *parse_variants(text))) if text else ""


def parse_allowed_drop(text: str) -> tuple[float, bool]:
    """Return how far a metric may get worse, and whether that is a share of the baseline's. Raises ValueError."""
    number = float(text.removesuffix("%"))
    if not 0 <= number < math.inf:
        raise ValueError(f"{text!r} is below 0, or no number")
    return (number / 100, True) if text.endswith("%") else (number, False)


def _drop(typed: Any) -> str:
    text = str(typed) if isinstance(typed, (str, int, float)) and not isinstance(typed, bool) else "nothing"
    try:
        parse_allowed_drop(text)
    except ValueError as error:
        raise UsageError(say("no_limit", value=typed), where="--metric_drop", hint=say("drop_form")) from error
    return text


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Where a model lies on disk. ``model_dir`` stands alone; ``params_file`` goes with ``model_file``."""

    model_file: str = field(default="", metadata=make_option(
        "model", "the model: .onnx, .pdmodel, .json, .engine, …", "模型：.onnx、.pdmodel、.json、.engine 等",
        metavar="M",
        file="read",
    ))  # fmt: skip
    params_file: str = field(default="", metadata=make_option(
        "model", "its parameters, if they are in a separate file", "参数文件（若单独存放）", metavar="P",
        file="read",
    ))  # fmt: skip
    model_dir: str = field(default="", metadata=make_option(
        "model", "the model's folder", "模型所在的目录", metavar="D", file="read",
    ))  # fmt: skip

    @property
    def path(self) -> str:
        """The path that names the model in messages."""
        return self.model_file or self.model_dir


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """When a tensor passes.

    rule "isclose": |t - b| <= atol + rtol * |b| (numpy.isclose and Paddle's demo; b is the baseline).
    rule "either":  |t - b| <= atol  or  |t - b| <= rtol * |b| (Polygraphy's).
    check_error_stat: "elemwise" wants it of every element; "max", "mean", "median" and "quantile" want it of that
    statistic of the absolute error or of the relative error (either is enough, as in Polygraphy).
    quantile: which one, 0 to 1, where check_error_stat is "quantile".
    equal_nan: NaN in the same place on both sides counts as equal.
    given: the user asked for it. Otherwise mismatched elements are counted by it all the same, but a tensor passes
    where its relative L2 error is what the target's arithmetic must lose.
    """

    atol: Number = field(default=1e-4, metadata=make_option(
        "close", "absolute tolerance (1e-4 if only --rtol is given)", "绝对容差（只给 --rtol 时为 1e-4）",
        metavar="X",
        low=0,
    ))  # fmt: skip
    rtol: Number = field(default=1e-4, metadata=make_option(
        "close", "relative tolerance (1e-4 if only --atol is given)", "相对容差（只给 --atol 时为 1e-4）",
        metavar="X",
        low=0,
    ))  # fmt: skip
    rule: str = field(default="isclose", metadata=make_option(
        "close", "isclose: |t-b| <= atol + rtol*|b|; either: |t-b| <= atol or <= rtol*|b| (default isclose)",
        "isclose：|t-b| <= atol + rtol*|b|；either：|t-b| <= atol 或 <= rtol*|b|（默认 isclose）",
        name="tolerance_rule", choices=("isclose", "either"),
    ))  # fmt: skip
    check_error_stat: str = field(default="elemwise", metadata=make_option(
        "close", "what must be within tolerance: every element, or a statistic of the error (default elemwise)",
        "什么须在容差内：每个元素，或误差的统计量（默认 elemwise）",
        choices=("elemwise", "max", "mean", "median", "quantile"),
    ))  # fmt: skip
    quantile: Number = field(default=0.99, metadata=make_option(
        "close", "for --check_error_stat quantile (default 0.99)", "用于 --check_error_stat quantile（默认 0.99）",
        name="error_quantile", metavar="Q", low=0, high=1,
    ))  # fmt: skip
    equal_nan: bool = field(default=False, metadata=make_option(
        "close", "treat NaN in the same place on both sides as equal", "两侧同一位置的 NaN 视为相等",
    ))  # fmt: skip
    given: bool = True


_PARTS: Mapping[str, type] = {"model": ModelFiles, "tolerance": Tolerance}
"""Fields of RunSpec that are records of options themselves."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A whole command: everything that decides the result, as plain values that survive JSON.

    baseline: a run mode, or the folder of a recorded run; "": the default of the target's backend. baseline_model: the
    baseline's model where it is another file. judged_alike: of several modes, what calibrates one judges none.
    inputs: path of a feeds file, folder or script; "" means seeded random. input_shapes: input name to shape, for
    dynamic dimensions. val_range: input name ("" for all) to (low, high).
    sample: "3", or "0:10"; "": all of them. memory_budget: bytes; None: all baseline tensors wait in memory.
    marks: patterns of tensor names; empty means all. marks_between: (first, last) in execution order.
    renames: target name to baseline name, the user's own rename map. lockstep: both runs advance together and meet at
    each tensor; None: where both sides can.
    options: backends' settings as given: KEY for each side that reads it, or "target.KEY". options_from: a file's.
    """

    model: ModelFiles
    run_mode: str = field(metadata=make_option(
        "runs", "the target: ort_int8, trt_fp16, … (see `doctor`)", "目标：ort_int8、trt_fp16 等（见 `doctor`）",
        metavar="MODE",
    ))  # fmt: skip
    baseline: str = field(default="", metadata=make_option(
        "runs", "what it is compared with: a run mode, a recorded run, or none with --validate (default: the unfused"
                " FP32 mode)",
        "与何者比较：运行模式、已录制的运行，或 none（配合 --validate）；默认为不融合的 FP32 模式",
        metavar="MODE|DIR", file="read",
    ))  # fmt: skip
    baseline_model: ModelFiles | None = None
    record: str = field(default="", metadata=make_option(
        "runs", "save the target's tensors, for use as a --baseline later; without --baseline nothing is compared",
        "保存目标的张量，供别处作 --baseline；不给 --baseline 时不做比较", metavar="DIR", file="read",
        not_with=("script",),
    ))  # fmt: skip
    inputs: str = field(default="", metadata=make_option(
        "input", ".npz, .npy, a folder of them, Polygraphy's JSON, a dataset folder, or a script's function; with many"
                 " samples, each row covers one tensor over all of them (default: seeded random)",
        ".npz、.npy、其目录、Polygraphy 的 JSON、数据集目录，或脚本的函数；多个样本时每行是一个张量在全部样本上的结果"
        "（默认：带种子的随机数）",
        metavar="FILE|DIR|SCRIPT.py[:f]", file="read",
    ))  # fmt: skip
    samples_axis: int | None = field(default=None, metadata=make_option(
        "input", "the arrays of --inputs hold many samples along this axis", "--inputs 的数组沿此轴存放多个样本",
        metavar="N",
    ))  # fmt: skip
    sample: str = field(default="", metadata=make_option(
        "input", "only this sample (from 0) or this range", "只用这个样本（从 0 起）或这一段", metavar="N|FROM:TO",
        reader=_parse_sample,
    ))  # fmt: skip
    calibration_samples: int | None = field(default=None, metadata=make_option(
        "input", "samples, from the first one, that calibrate a mode that needs it; the rest judges (default: half, or"
                 " those that --sample leaves out)",
        "用于校准的样本数（从第一个起），其余用于判断（默认：一半，或 --sample 未选的样本）", metavar="N", low=1,
    ))  # fmt: skip
    input_variants: str = field(default="", metadata=make_option(
        "input", "one sample against itself, in one mode: alone, inside a batch, or followed by padding",
        "同一样本在同一模式下与自身对比：单独、位于批次中（batch）或其后有填充（padded）",
        metavar="alone,batch,padded", reader=_check_variants,
    ))  # fmt: skip
    input_shapes: Mapping[str, Shape] = field(default_factory=dict, metadata=make_option(
        "input", "e.g. x:[1,3,224,224], for dynamic dimensions", "例如 x:[1,3,224,224]，用于动态维度",
        metavar="NAME:SHAPE", nargs="+", repeated=True,
    ))  # fmt: skip
    val_range: Mapping[str, tuple[Number, Number]] = field(default_factory=dict, metadata=make_option(
        "input", "range of random values (default 0,1)", "随机数的范围（默认 0,1）", metavar="[NAME:]LOW,HIGH",
        nargs="+",
        repeated=True,
    ))  # fmt: skip
    seed: int = field(default=0, metadata=make_option(
        "input", "seed of random values (default 0)", "随机数的种子（默认 0）", metavar="N",
    ))  # fmt: skip
    save_inputs: str = field(default="", metadata=make_option(
        "input", "save the inputs in the format of Polygraphy's --load-inputs",
        "保存输入，格式同 Polygraphy 的 --load-inputs",
        metavar="FILE.json", file="written", not_with=("workers",),
    ))  # fmt: skip
    labels: str = field(default="", metadata=make_option(
        "input", "class index of each sample (.npy); adds both runs' accuracy to the report",
        "每个样本的类别编号（.npy）：报告将给出两侧的准确率", metavar="FILE", file="read", not_with=("recording",),
    ))  # fmt: skip
    metric: str = field(default="", metadata=make_option(
        "input", "your own metric, computed from a sample's outputs and labels (any .npy), for both runs",
        "您自己的指标，由样本的输出与标签（任意 .npy）计算，两侧各一次", metavar="FILE.py:f", file="read",
        not_with=("recording",),
    ))  # fmt: skip
    metric_drop: str = field(default="", metadata=make_option(
        "input", "how far the metric may get worse, by itself (0.01) or of the baseline's (1%); it then decides"
                 " (default: what resampling the samples explains)",
        "指标允许变差多少：绝对值（0.01）或相对基线（1%）；给出后由它判定（默认：以样本重采样可解释的范围为限）",
        metavar="X|P%", reader=_drop, not_with=("recording",),
    ))  # fmt: skip
    top1: bool = field(default=False, metadata=make_option(
        "input", "share of samples in which both runs have the same top class; needs no labels",
        "两侧首位类别相同的样本比例，无标签亦可", not_with=("recording",),
    ))  # fmt: skip
    top_k: int | None = field(default=None, metadata=make_option(
        "input", "the same for the top N classes in any order; also with --labels",
        "前 N 个类别（不计次序）的同样比例；也可配合 --labels", metavar="N", low=1, not_with=("recording",),
    ))  # fmt: skip
    tolerance: Tolerance = field(default_factory=Tolerance)
    validate: bool = field(default=False, metadata=make_option(
        "close", "treat NaN and Inf as out of tolerance, even if both sides have them",
        "NaN 与 Inf 均算超差，两侧都有时也算",
        not_with=("recording",),
    ))  # fmt: skip
    allow_non_finite: bool = field(default=False, metadata=make_option(
        "close", "an output may hold NaN and Inf, where both sides have them (default: such a pair proves nothing)",
        "允许输出在两侧都含有 NaN 与 Inf（默认：这样的一对不证明任何内容）",
    ))  # fmt: skip
    compare: str = field(default="", metadata=make_option(
        "close", "your own function that decides instead, from both runs' outputs: true or false, or a dict of them by"
                 " output name",
        "由您自己的函数代替容差判定：输入两侧的输出，返回真假，或按输出名返回真假的字典", metavar="FILE.py:f",
        file="read",
        not_with=("recording",),
    ))  # fmt: skip
    fail_fast: bool = field(default=False, metadata=make_option(
        "close", "stop at the first tensor, or sample, that fails", "遇到首个未通过的张量或样本即停止",
        not_with=("workers", "recording"),
    ))  # fmt: skip
    explain: str = field(default="fast", metadata=make_option(
        "who", "run each operator alone and name the culprits: fast takes about as long as the run, full measures the"
        " effect of every operator (default fast)",
        "单独运行每个算子并指认元凶：fast 耗时与运行相当，full 测量每个算子的影响（默认 fast）",
        choices=("off", "fast", "full"),
    ))  # fmt: skip
    find_pass: bool | None = field(default=None, metadata=make_option(
        "who", "find the engine pass that causes the error, by bisection; false: never (default: if it is cheap and"
               " the target computes something different from the baseline)",
        "二分找出引入误差的引擎 pass；false：从不（默认：代价低且目标的计算与基线不同时）", nargs="?", const=True,
        metavar="true|false",
    ))  # fmt: skip
    second_opinion: bool = field(default=False, metadata=make_option(
        "who", "also run each kind of operator in onnx.reference and the other installed engines: an error that the"
               " engine makes on both sides shows only there",
        "每种算子再用 onnx.reference 与已安装的其他引擎各算一次：同一引擎两侧同样算错之处只有这样才能看出",
        not_with=("recording",),
    ))  # fmt: skip
    repeat: int | None = field(default=None, metadata=make_option(
        "who", "build and run the target N times: how far the builds differ, and where that begins",
        "将目标构建并运行 N 次：各次相差多少，从何处开始", metavar="N", low=2, not_with=("workers", "recording"),
    ))  # fmt: skip
    run_once: bool = field(default=False, metadata=make_option(
        "who", "do not run each side a second time, which shows whether it gives the same once more",
        "不再运行各侧第二次（用以查看再次运行的结果是否相同）", not_with=("recording",),
    ))  # fmt: skip
    marks: tuple[str, ...] = field(default=(), metadata=make_option(
        "tensors", "only these, beside the final outputs: a name, a glob, or re:REGEX (default: all)",
        "除最终输出外只比较这些：名字、通配符或 re:正则（默认全部）",
        spelled="mark", metavar="NAME", nargs="+", repeated=True,
    ))  # fmt: skip
    marks_between: tuple[str, str] | None = field(default=None, metadata=make_option(
        "tensors", "all tensors between two names, in execution order, beside the final outputs",
        "最终输出，以及两个名字之间的全部（按执行顺序）",
        metavar="START END", nargs="2",
    ))  # fmt: skip
    marks_from_inspector: str = field(default="", metadata=make_option(
        "tensors", "the fused layers' outputs in engine-inspector JSON files",
        "engine inspector JSON 文件中融合层的输出", metavar="GLOB", file="read",
    ))  # fmt: skip
    fused_only: bool = field(default=False, metadata=make_option(
        "tensors", "only the outputs of the target's fused layers", "只比较目标融合层的输出",
    ))  # fmt: skip
    without_outputs: bool = field(default=False, metadata=make_option(
        "tensors", "leave out the final outputs that no mark names; no output is then judged",
        "不比较标记之外的最终输出；此时不判定任何输出",
    ))  # fmt: skip
    renames: Mapping[str, str] = field(default_factory=dict, metadata=make_option(
        "tensors", "pair tensors whose names differ", "将名字不同的张量配对", spelled="rename",
        metavar="TARGET=BASELINE", nargs="+", repeated=True,
    ))  # fmt: skip
    every_iteration: bool = field(default=False, metadata=make_option(
        "tensors", "a row for each iteration of a loop (default: of more than 16, one row of all of them, and one of"
        " the worst)",
        "循环的每次迭代各占一行（默认：超过 16 次时，全部迭代合为一行，另有最差的一次单独一行）",
    ))  # fmt: skip
    save_outputs: str = field(default="", metadata=make_option(
        "out", "save both runs' outputs in the format of --load_outputs", "保存两侧的输出，供 --load_outputs 读取",
        metavar="FILE.json", file="written", not_with=("workers", "recording"),
    ))  # fmt: skip
    save_tensors: int | None = field(default=None, metadata=make_option(
        "out", "save the N worst tensors of both sides as .npz beside the report, which links to it",
        "将误差最大的 N 个张量（两侧）以 .npz 保存在报告旁，报告中有链接", metavar="N", low=1, not_with=("workers",),
    ))  # fmt: skip
    demo_sheet: bool = field(default=False, metadata=make_option(
        "out", "add a sheet to .xlsx like Paddle-Inference-Demo's: Sheet1, with its index column",
        ".xlsx 中另有一张与 Paddle-Inference-Demo 相同的工作表：Sheet1，带索引列",
    ))  # fmt: skip
    memory_budget: int | None = field(default=None, metadata=make_option(
        "out", "e.g. 4G: baseline tensors beyond it wait on disk; 0: all of them",
        "例如 4G：超出部分的基线张量存放在磁盘上；0：全部",
        kind="size", metavar="SIZE", low=0,
    ))  # fmt: skip
    lockstep: bool | None = field(default=None, metadata=make_option(
        "out", "both runs advance together and meet at each tensor, so that none has to be stored (default: if both"
               " can)",
        "两侧同步推进，在每个张量处相遇，无需保存（默认：两侧都能时）", choices=("auto", "on", "off"), nargs="?",
        const="on", reader=_parse_lockstep,
    ))  # fmt: skip
    options: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    judged_alike: bool = False
    options_from: str = ""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """What the user asks of several workers, beside the comparison.

    jobs: workers; 0: as many as the cluster has room for. engine: "" for child processes, or "ray".

    address: of a Ray cluster, "" starts one here. gpus: of each worker. checkpoint: a file of finished parts, which a
    later command goes on from.
    """

    jobs: int = field(default=0, metadata=make_option(
        "workers", "number of child processes, each with both sides"
                   " open", "子进程数，每个都打开两侧", metavar="N", low=0,
    ))  # fmt: skip
    engine: str = field(default="", metadata=make_option(
        "workers", "ray: use actors of a Ray cluster instead", "ray：改用 Ray 集群的 actor", choices=("", "ray"),
    ))  # fmt: skip
    address: str = field(default="", metadata=make_option(
        "workers", "address of the Ray cluster (default: start one here)", "Ray 集群的地址（默认在本机启动一个）",
        metavar="A",
    ))  # fmt: skip
    gpus: float = field(default=0.0, metadata=make_option(
        "workers", "GPUs per actor; 0.5 shares one", "每个 actor 的 GPU 数，0.5 表示两个共用一块", metavar="X",
        low=0,
    ))  # fmt: skip
    checkpoint: str = field(default="", metadata=make_option(
        "workers", "save finished parts, so that the same command can continue", "保存已完成的部分，同一命令可由此继续",
        metavar="FILE",
    ))  # fmt: skip


MEMORY_BUDGET = next(one for one in list_options(RunSpec) if one.name == "memory_budget")
"""An engine that lets tensors wait has it in its table, too."""


def spec_of(values: Mapping[str, Any], **rest: Any) -> RunSpec:
    """Make a RunSpec of typed values by option name; one that is not there has its default.

    rest: its fields that are no options, and whole records in place of their options.
    """
    whole: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {name: {} for name in _PARTS}
    for one in list_options(RunSpec):
        if one.name in values:
            part, _, name = one.field.rpartition(".")
            (parts[part] if part else whole)[name] = values[one.name]
    tolerance = Tolerance(**parts["tolerance"])
    decides = "atol" in values or "rtol" in values
    decides |= (tolerance.rule, tolerance.check_error_stat) != (Tolerance.rule, Tolerance.check_error_stat)
    made = {"model": ModelFiles(**parts["model"]), "tolerance": dataclasses.replace(tolerance, given=decides)}
    return RunSpec(**{**made, **whole, **rest})


def check_tolerance(given: Any) -> Tolerance:
    """Check a Tolerance that a caller passes, and return it.

    Each of its values has to be one that the command line would take: NaN, or a number below 0, would fail everything
    or nothing. Raises UsageError."""
    if not isinstance(given, Tolerance):
        raise UsageError(say("no_tolerance", kind=type(given).__name__), where="tolerance", hint=say("write_tolerance"))
    for one in list_options(Tolerance):
        one.read(getattr(given, one.field), one.name)
    return given


def iterate_differing(spec: RunSpec) -> Iterator[tuple[Setting, Any]]:
    """Yield the options that a spec has another value of than the default, and that value."""
    for one in list_options(RunSpec):
        found: Any = spec
        for name in one.field.split("."):
            found = getattr(found, name)
        if found != one.default:
            yield one, found


LANGUAGES = ("en", "zh")

LANG = Setting(
    name="lang", kind="choice", flag=True, group="out", default="", choices=LANGUAGES,
    help="language of the output and of the page (default: the terminal's, the browser's)",
    zh="输出文字的语言，以及页面打开时的语言（默认随终端、随浏览器）",
)  # fmt: skip

CONFIG = Setting(
    name="config", kind="word", flag=True, group="out", default="", metavar="FILE.toml", file="read",
    help="a file of options; typed ones win (default: [tool.precision_debug] of ./pyproject.toml)",
    zh="写有选项的文件；命令行给出的优先（默认为 ./pyproject.toml 的 [tool.precision_debug]）",
)  # fmt: skip

TERMINAL = (
    Setting(
        name="baseline_model", kind="word", flag=True, group="model", default="", metavar="M2", file="read",
        help="the baseline's model, if it is a different file", zh="基线的模型（若是另一个文件）",
    ),
    Setting(
        name="baseline_params", kind="word", flag=True, group="model", default="", metavar="P2", file="read",
        help="the parameters of --baseline_model", zh="--baseline_model 的参数文件",
    ),
    Setting(
        name="load_outputs", kind="word", flag=True, group="runs", default="", metavar="FILE.json", file="read",
        help="use outputs saved by Polygraphy's --save-outputs as the baseline; pass their inputs with --inputs",
        zh="基线为 Polygraphy 用 --save-outputs 保存的输出；其输入用 --inputs 给出",
    ),
    Setting(
        name="option", kind="words", flag=True, group="runs", default=(), metavar="KEY=VALUE", repeated=True,
        help="a backend's own setting, see below; baseline.KEY or target.KEY for one side; repeatable",
        zh="后端自己的设置，见下文；baseline.KEY 或 target.KEY 只用于一侧；可重复",
    ),
    Setting(
        name="marks", kind="word", flag=True, group="tensors", default="", metavar="FILE", file="read",
        help="names from a file, one a line or a JSON list", zh="从文件读取名字，每行一个或 JSON 列表",
    ),
    Setting(
        name="output", kind="words", flag=True, group="out", default=(), metavar="FILE", repeated=True, file="written",
        help=f"report; format by suffix, may be repeated (default {DEFAULT_OUTPUT}); explorer:FILE.json,"
             " netron:FILE.onnx, tensorboard:FILE.tfevents: for those viewers; github: adds to the step's summary",
        zh=f"报告；格式由后缀决定，可重复（默认 {DEFAULT_OUTPUT}）；explorer:FILE.json、netron:FILE.onnx、"
        "tensorboard:FILE.tfevents 供相应查看器使用；github 追加到步骤摘要",
    ),
    Setting(
        name="gen_script", kind="word", flag=True, group="out", default="", metavar="FILE.py", file="written",
        help="write this command as a Python script instead of running"
             " it", zh="不运行，而是将此命令写成调用 API 的脚本",
    ),
    Setting(
        name="plots", kind="whole", flag=True, group="out", default=0, metavar="N", nargs="?", const=1,
        help="draw the N worst tensors in the terminal: values, errors, and errors against magnitudes (1 without N)",
        zh="在终端绘制误差最大的 N 个张量：数值、误差、误差与数值大小（不给 N 为 1）",
    ),
    CONFIG,
    LANG,
    Setting(
        name="verbose", kind="flag", flag=True, group="out", default=False,
        help="show the frameworks' output, and tracebacks", zh="显示各框架的输出和 traceback",
    ),
    Setting(
        name="quiet", kind="flag", flag=True, group="out", default=False,
        help="no summary, only the exit status and the report", zh="不打印摘要；由退出码和报告说明",
    ),
)  # fmt: skip
"""What the command line alone has: other ways to say an option of RunSpec, and what becomes of the result."""

OPTIONS = (*list_options(RunSpec), *list_options(Workers), *TERMINAL)
"""All of them."""
