"""precision_debug dumps DIR --model_file M: which tensors of the model are the ones in another tool's dump?

DIR is any folder of tensors: .npy, .npz, .safetensors, .pt, raw bytes (.raw, .bin) or numbers as text (.txt), with any
names and layouts; or a folder or file of trtexec, qnn-net-run, RKNN, ExecuTorch, msprobe or precision_debug's recorder.
The model runs on the same input, and each file is paired with one of its tensors: by name, by value, or by position and
value together. --record OUT saves them as a recording, for --baseline OUT or --run_mode OUT; both also take DIR itself.
A side file DIR/tensors.json adds what the files do not say: {"NAME": {"shape": [1, 3, 4, 4], "dtype": "uint8", "scale":
0.02, "zero_point": 128}}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import recording, registry
from ...cli.parser import choose_language, make_flag, make_verb_parser, parse
from ...cli.reading import with_a_mode
from ...codec import decode, encode
from ...errors import RecordingError, UsageError
from ...feeds import make_feeds
from ...reasons import Text, same, say
from ...reasons.ways import explain_way, way
from ...records import ModelFiles, RunSpec
from ...report.words import explain_reason
from ...run.child import Said, call_in_child
from ...run.plan import make_plan
from ...safety.untrusted import make_visible
from ...settings.setting import parse_shapes
from .dumped import RecordedDump, is_dump, read_dumped_inputs, record_dump
from .match_tensors import TensorMatch

__all__ = ["pair_in_child", "run"]

_STRANGE = Text("no tensor of the model has its size and values", "模型中没有与其大小和数值相同的张量")

SUMMARY = "pair a folder of another tool's tensors with a model's, and make a recording from it"
SUMMARY_ZH = "将其他工具导出的张量目录与模型的张量配对，并生成录制"

DESCRIPTION_ZH = """precision_debug dumps DIR --model_file M：其他工具留下的张量分别是模型的哪个张量？

DIR 是任意张量目录：.npy、.npz、.safetensors、.pt、原始字节（.raw、.bin）或文本数字（.txt），名称与布局不限；
也可以是 trtexec、qnn-net-run、RKNN、ExecuTorch、msprobe 或 precision_debug 记录器的目录或文件。模型在同一输入上运行，
每个文件与其一个张量配对：按名称、按数值，或按位置与数值一起。--record OUT 保存为录制，
可用 --baseline OUT 与 --run_mode OUT 对比；这两个选项也直接接受 DIR。文件本身没有说明的信息写在 DIR/tensors.json：
{"名称": {"shape": [1, 3, 4, 4], "dtype": "uint8", "scale": 0.02, "zero_point": 128}}。
"""


def run(arguments: Sequence[str]) -> int:
    """Print the pairs and what is left; 0, or an error."""
    args = parse(make_verb_parser("dumps", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    model = ModelFiles(model_file=args.model_file, params_file=args.params_file, model_dir=args.model_dir)
    if not model.path:
        raise UsageError(say("no_model"), hint="precision_debug dumps DIR --model_file M")
    if not is_dump(args.dump):
        what = say("no_tensors") if Path(args.dump).exists() else say("no_such_folder")
        what = say("recording_already") if recording.is_recording(args.dump) else what
        raise RecordingError(what, where=args.dump, hint=say("use_tensor_folder"))
    job = {
        "dump": args.dump, "model": encode(model), "run_mode": args.run_mode, "inputs": args.inputs,
        "shapes": {name: list(shape) for name, shape in parse_shapes(args.input_shapes).items()},
        "record": args.record, "dtype": args.dtype, "language": choose_language(args.lang),
    }  # fmt: skip
    paired = call_in_child(f"{__name__}:pair_in_child", job, where=args.dump, verbose=args.verbose)
    for line in paired["lines"]:
        print(make_visible(line))
    if args.record:
        print(make_visible(Text(f"recording: {args.record}", f"录制：{args.record}").of(choose_language(args.lang))))
    return 0


_FLAGS = (
    make_flag("dump", "the folder, or a file of several tensors", "目录，或含多个张量的文件", metavar="DIR"),
    make_flag("--model_file", "the model that it was made from", "导出所用的模型", metavar="M"),
    make_flag("--params_file", "its parameters", "其参数文件", metavar="P"),
    make_flag("--model_dir", "the model's folder", "模型所在的目录", metavar="D"),
    make_flag("--run_mode", "as this mode reads it (default: the baseline)", "以此模式读取（默认为基线）",
    metavar="MODE"),
    make_flag("--inputs", "the inputs that the dump was made from (default: those in it)",
         "生成该导出所用的输入（默认取其中的输入）", metavar="FILE"),
    make_flag("--input_shapes", "shapes of inputs", "输入的形状", metavar="NAME:SHAPE", nargs="+", default=[]),
    make_flag("--record", "save a recording there", "将录制保存到此目录", metavar="OUT"),
    make_flag("--dtype", "type of raw bytes (default: float32)", "原始字节的类型（默认 float32）", metavar="TYPE",
         default="float32"),
)  # fmt: skip


def pair_in_child(job: Mapping[str, Any], folder: Path, _said: Said) -> dict[str, Any]:
    """In a child process: the lines to print."""
    model = decode(ModelFiles, job["model"])
    shapes = {name: tuple(shape) for name, shape in job["shapes"].items()}

    def of_mode(mode: str) -> RecordedDump:
        place = folder / mode
        place.mkdir(exist_ok=True)
        spec = RunSpec(model=model, run_mode=mode, record="-")
        live = make_plan(spec, work_dir=str(place)).target
        metas = live.inputs()
        feeds = {} if job["inputs"] else read_dumped_inputs(job["dump"], metas)
        if not feeds and not job["inputs"]:
            raise RecordingError(
                "holds no inputs of the model", where=job["dump"],
                hint="provide the ones it was made from: --inputs FILE",
            )  # fmt: skip
        fed = feeds or make_feeds(metas, source=job["inputs"], shapes=shapes).feeds[0]
        record = Path(job["record"]) if job["record"] else None
        return record_dump(job["dump"], live, fed, record, dtype=job["dtype"])

    if job["run_mode"] and job["run_mode"] not in {mode.name for _, mode in registry.modes_for(model)}:
        registry.find(model, job["run_mode"])
    found = with_a_mode(model, job["run_mode"], of_mode, verbose=True)
    return {"lines": [line.of(job["language"]) for line in _format_matches(found)]}


def _format_matches(found: RecordedDump) -> list[Text]:
    dump, matches = found.dump, found.matches
    many, layout = len(dump.tensors), dump.layout
    lines = [
        Text(
            f"{dump.path}: {many} tensors{f', as {layout} writes them' if layout else ''}",
            f"{dump.path}：{many} 个张量{f'，由 {layout} 写入' if layout else ''}",
        )
    ]
    if found.precision:
        lines.append(Text(f"its values are those of {found.precision}", f"其数值是 {found.precision} 的取值"))
    order = {meta.name: place for place, meta in enumerate(found.tensors)}
    files = {one.name: one.file for one in dump.tensors}
    for name, match in sorted(matches.found.items(), key=lambda item: order[item[1].base]):
        of, how = files[matches.tensors[name].of or name], _describe_match(match)
        lines.append(
            Text(f"  {match.base}  <-  {name}  ({of}): {how.en}", f"  {match.base}  <-  {name}（{of}）：{how.zh}")
        )
    left = [name for name in matches.tensors if name not in matches.found]
    paired, all_ = len(matches.found), len(matches.tensors)
    lines.append(
        Text(
            f"{paired} of {all_} paired; left over in the dump: {len(left)}",
            f"{all_} 个中有 {paired} 个已配对；导出中剩余：{len(left)}",
        )
    )
    for name in left:
        why = explain_reason(matches.refused[name]) if name in matches.refused else _STRANGE
        lines.append(Text(f"  {name}: {why.en}", f"  {name}：{why.zh}"))
    for file, said in dump.skipped.items():
        lines.append(Text(f"  {file}: not read: {said}", f"  {file}：未读取：{explain_reason(said).zh}"))
    lines.append(Text(f"left over in the model: {len(matches.missing)}", f"模型中剩余：{len(matches.missing)}"))
    return [*lines, *(same(f"  {name}") for name in matches.missing)]


def _describe_match(match: TensorMatch) -> Text:
    how = match.how
    if axes := match.arrangement.axes:
        how = way("{how}, axes turned by {shape}", how=how, shape=list(axes))
    if match.distance is not None:
        how = way("{how}, relative distance {number}", how=how, number=f"{match.distance:.2g}")
    return explain_way(how)
