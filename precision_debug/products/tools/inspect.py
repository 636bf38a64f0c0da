"""precision_debug inspect: what TensorRT's engine-inspector files say, or what a model or an engine contains.

One line per layer: its type, the precision that it really ran in and the source of that, and what it produces. FILES
may be globs; several files are read as one engine. `inspect model M` shows a model's inputs, outputs, operators and
weights (.onnx .ort .pdmodel .json .xml .pt2 .pt), or an engine's bindings, layers, real precision and tactics (.engine
.plan); --show layers attributes weights adds details of each. `inspect data FILE` shows what --inputs or --load_outputs
would read from a .npz, .npy or .json file: names, types, shapes and ranges of each sample. `inspect capability M
--run_mode MODE` asks TensorRT's parser, or OpenVINO's device, which operators it does not take, before anything is
built; for an rtx mode it shows which operators compute in what, and builds an engine for each chip that TensorRT for
RTX knows, which needs no GPU. `inspect tactics FILES` shows the tactic of every layer from files of --save_tactics or
Polygraphy's replays; with --diff BAD… those that only the bad builds used.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import registry
from ...cli.parser import choose_language, make_flag, make_verb_parser, parse
from ...codec import decode, encode
from ...errors import PrecisionDebugError, UsageError
from ...feeds.random import draw_feeds
from ...inspector import (
    EngineLayer,
    compare_engines,
    find_real_precision,
    find_suspects,
    read_inspector,
    read_tactics,
    split_fused_outputs,
)
from ...numbers import describe
from ...numbers.arrays import as_array
from ...protocols import Describer, Feeds, Survey
from ...reasons import Text, same
from ...records import InputMeta, ModelFiles, SessionSpec
from ...report.words import explain_reason, format_count
from ...run.child import Said, call_in_child
from ...safety.untrusted import make_visible
from .description import describe_parts
from .onnx_description import PARTS, describe_file

__all__ = ["run", "survey_in_child"]

SUMMARY = "show what a model, an engine, or TensorRT's engine-inspector files contain (layers, real precision, tactics)"
SUMMARY_ZH = "说明模型、引擎或 TensorRT engine inspector 文件的内容（层、真实精度、tactic）"

DESCRIPTION_ZH = """precision_debug inspect：TensorRT engine inspector 文件的内容，或模型、引擎的内容。

每层一行：类型、真实运行的精度及其依据、产生的张量。FILES 可用通配符；多个文件视为一个引擎。
`inspect model M` 列出模型的输入、输出、算子和权重（.onnx .ort .pdmodel .json .xml .pt2 .pt），
或引擎的绑定、层、真实精度和 tactic（.engine .plan）；--show layers attributes weights 逐一列出。
`inspect data FILE` 说明 --inputs 或 --load_outputs 会从 .npz、.npy 或 .json 中读到什么：每个样本的名字、
类型、形状和取值范围。`inspect capability M --run_mode MODE` 在构建之前询问 TensorRT 的解析器或 OpenVINO
的设备不支持哪些算子；
rtx 模式还会列出各算子以何种类型计算，并为每种芯片构建引擎，无需 GPU。
`inspect tactics FILES` 列出每层的 tactic（--save_tactics 与 Polygraphy 的 replay
文件）；加 --diff BAD… 时只列出仅有问题构建才采用的 tactic。
"""


def run(arguments: Sequence[str]) -> int:
    """Print the layers, the fused outputs or a difference; 1 where --diff finds another fusion, else 0."""
    args = parse(make_verb_parser("inspect", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    args.lang = choose_language(args.lang)
    if args.files[0] == "data" and len(args.files) > 1:
        for name in args.files[1:]:
            _print(_describe_data(name), args.lang)
        return 0
    if args.files[0] == "tactics" and len(args.files) > 1:
        return _print_tactics(args.files[1:], args.diff, args.lang)
    if args.files[0] == "capability" and len(args.files) > 1:
        return _print_capability(args.files[1:], args.run_mode, args.lang)
    if args.run_mode:
        raise UsageError("only applies to inspect capability", where="--run_mode", hint="leave it out")
    files = args.files[1:] if args.files[0] == "model" and len(args.files) > 1 else args.files
    models = [name for name in files if _is_model(name)]
    if models or files is not args.files:
        return _print_models(files, args)
    if args.show:
        raise UsageError("only applies to models and engines", where="--show", hint="leave it out")
    layers = read_inspector(*args.files)
    if args.diff:
        difference = compare_engines(layers, read_inspector(*args.diff))
        sys.stdout.write(make_visible(difference.summary, keep="\n") + "\n")
        return 0 if difference.fusion_kept else 1
    if args.fused_outputs:
        sys.stdout.writelines(f"{make_visible(name)}\n" for name in split_fused_outputs(layers)[0])
        return 0
    _print(_format_layers(layers), args.lang)
    return 0


def _print(lines: Iterable[Text], language: str) -> None:
    sys.stdout.writelines(f"{make_visible(line.of(language))}\n" for line in lines)


_FLAGS = (
    make_flag("files", "engine_info_*.json and the like", "engine_info_*.json 等文件", metavar="FILES", nargs="+"),
    make_flag("--fused_outputs", "only the fused layers' output names, one per line", "只列出融合层的输出名，每行一个",
         action="store_true"),
    make_flag("--diff", "another engine: was the fusion kept?", "另一个引擎：融合是否保持？", metavar="FILES",
    nargs="+",
         default=[]),
    make_flag("--show", "details of a model or an engine", "逐一列出模型或引擎的这些内容", nargs="+", choices=PARTS,
         default=[]),
    make_flag("--run_mode", "of inspect capability: trt_fp16, ov_fp32, …",
    "用于 inspect capability：trt_fp16、ov_fp32 等",
         metavar="MODE"),
)  # fmt: skip


def _print_tactics(files: Sequence[str], bad: Sequence[str], language: str) -> int:
    """Print every layer's tactic, or the layers that only bad builds gave a tactic to; return 1 where there are any."""
    found = [builds for name in files for builds in read_tactics(name).items()]
    lines: list[Text] = []
    if not bad:
        for name, layers in found:
            lines.append(Text(f"{name}: {format_count(len(layers), 'layer')}", f"{name}：{len(layers)} 层"))
            lines += [same(f"  {layer}: {tactic}") for layer, tactic in layers.items()]
        _print(lines, language)
        return 0
    others = [layers for name in bad for layers in read_tactics(name).values()]
    suspected = find_suspects([layers for _, layers in found], others)
    lines.append(Text(
        f"{len(found)} good and {len(others)} bad builds: {format_count(len(suspected), 'layer')} took a tactic in bad"
        " ones alone",
        f"{len(found)} 次正常构建，{len(others)} 次有问题的构建：{len(suspected)} 层采用了仅有问题构建才有的 tactic",
    ))  # fmt: skip
    for layer, only, usual in suspected:
        lines.append(same(f"  {layer}"))
        for word, tactics in ((Text("only bad", "仅有问题构建"), only), (Text("good", "正常构建"), usual)):
            lines += [Text(f"    {word.en}: {one}", f"    {word.zh}：{one}") for one in sorted(tactics)]
    _print(lines, language)
    return 1 if suspected else 0


def _print_capability(files: Sequence[str], mode: str, language: str) -> int:
    """Print what an engine takes of each model, and what it does not; return 1 where it refuses something."""
    status = 0
    for name in files:
        # an engine is asked where a crash of it, or a signal, costs nothing and leaves nothing
        asked = {"model": name, "mode": mode}
        survey = decode(Survey, call_in_child(f"{__name__}:survey_in_child", asked, where=name))
        taken, all_ = ", ".join(f"{n} {kind}" for kind, n in survey.taken.items()), sum(survey.taken.values())
        lines = [
            Text(f"{name}, {survey.engine}: takes {all_} operators: {taken or 'none'}",
                 f"{name}，{survey.engine}：支持 {all_} 个算子：{taken or '无'}"),
            Text(f"refuses {len(survey.refused)}", f"不支持 {len(survey.refused)} 个"),
        ]  # fmt: skip
        for one in survey.refused:
            why = " ".join(one.why.split())
            en, zh = (f": {why}", f"：{why}") if why else ("", "")
            lines.append(Text(f"  {one.op_type} {one.name}{en}", f"  {one.op_type} {one.name}{zh}"))
        _print([*lines, *map(explain_reason, (*survey.precisions, *survey.builds))], language)
        status = max(status, bool(survey.refused) or survey.failed)
    return status


def survey_in_child(job: Mapping[str, Any], folder: Path, _said: Said) -> Any:
    """In a child process: what an engine says of a model, as plain values."""
    name, mode = job["model"], job["mode"]
    model = ModelFiles(model_file=name)
    if mode:
        # whether the mode runs here is the surveyor's to say: TensorRT for RTX builds without a card
        surveyor = registry.find(model, mode)[0].capabilities.surveyor
        asked = SessionSpec(model=model, mode=mode, work_dir=str(folder))
    else:
        able = [(backend, one) for backend, one in registry.modes_for(model) if backend.capabilities.surveyor]
        found = next((pair for pair in able if pair[0].availability(pair[1].name).ok), None)
        if found is None:
            known = ", ".join(sorted({backend.name for backend, _ in able}))
            raise UsageError("no engine that supports capability checks is"
                             " installed", where=name, hint=f"one of: {known}")
        surveyor = found[0].capabilities.surveyor
        asked = SessionSpec(model=model, mode=found[1].name, work_dir=str(folder))
    if surveyor is None:
        raise UsageError(
            "this engine does not support capability checks", where=f"--run_mode {mode}", hint="run the model instead"
        )
    return encode(surveyor.survey(asked, _make_default_feeds(asked)))


def _make_default_feeds(spec: SessionSpec) -> Feeds:
    """Return what the model is fed where nothing is given; {} where that cannot be told."""
    try:
        inputs = registry.find(spec.model, spec.mode)[0].inputs(spec)
        return draw_feeds(inputs, {}, {}, 0)[0]
    except PrecisionDebugError:
        return {}


def _describe_data(name: str) -> Iterator[Text]:
    """One line an array. Raises InputError."""
    from ...feeds.load import load_sets
    from ...feeds.npz import load_npz
    from ...feeds.polygraphy_json import holds_results, read_results

    if name.lower().endswith(".json") and holds_results(Path(name)):
        for runner, iterations in read_results(Path(name)).items():
            for number, iteration in enumerate(iterations):
                yield Text(f"{runner}, iteration {number}:", f"{runner}，第 {number} 次迭代：")
                yield from map(_describe_array, iteration.outputs.items())
        return
    only = [InputMeta(name="(only input)", dtype="", shape=None)]
    sets = load_npz(Path(name)) if name.lower().endswith(".npz") else load_sets(name, only)
    for number, one in enumerate(sets):
        yield Text(f"sample {number}:", f"样本 {number}：")
        yield from map(_describe_array, one.items())


def _describe_array(item: tuple[str, Any]) -> Text:
    name, value = item
    if value is None or isinstance(value, (list, tuple, dict)):
        return same(f"  {name}  {type(value).__name__}")
    found = describe(as_array(value, name=name))
    en = zh = f"  {name}  {found.dtype} {list(found.shape)}"
    if found.min is not None:
        low, high, mean = (f"{one or 0.0:.6g}" for one in (found.min, found.max, found.mean))
        en, zh = f"{en}  {low} to {high}, mean {mean}", f"{zh}  {low} 至 {high}，均值 {mean}"
    for count, what in ((found.nan, "NaN"), (found.inf, "Inf")):
        if count:
            en, zh = f"{en}, {count} {what}", f"{zh}，{count} 个 {what}"
    return Text(en, zh)


def _print_models(files: Sequence[str], args: argparse.Namespace) -> int:
    for name in files:
        if not _is_model(name) and _find_describer(name) is None:
            known = " ".join(sorted({".onnx", *(end for one in _list_describers() for end in one.described)}))
            raise UsageError("is not a model or engine that can be read", where=name, hint=f"known: {known}")
    if args.diff or args.fused_outputs:
        raise UsageError("--diff and --fused_outputs read engine-inspector files", hint="leave them out")
    for name in files:
        describer = _find_describer(name)
        lines = (
            describe_file(name, args.show)
            if describer is None
            else describe_parts(name, describer.describe(name), args.show)
        )
        _print(lines, args.lang)
    return 0


def _is_model(name: str) -> bool:
    """By its ending; what may be an inspector's file too (.json) is a model where the user says so."""
    return name.lower().endswith(".onnx") or (_find_describer(name) is not None and not name.lower().endswith(".json"))


def _list_describers() -> list[Describer]:
    found = (backend.capabilities.describer for backend in registry.backends())
    return [one for one in found if one is not None]


def _find_describer(name: str) -> Describer | None:
    ending = Path(name).suffix.lower()
    return next((one for one in _list_describers() if ending in one.described), None)


def _format_layers(layers: Sequence[EngineLayer]) -> Iterator[Text]:
    precisions = [find_real_precision(layer) for layer in layers]
    counts = Counter(precision for precision, _ in precisions)
    en, zh = (
        ", ".join(f"{n} {name or unknown}" for name, n in counts.most_common()) for unknown in ("unknown", "未知")
    )
    yield Text(f"{len(layers)} layers; real precision: {en}", f"{len(layers)} 层；真实精度：{zh}")
    for layer, (precision, read_from) in zip(layers, precisions, strict=True):
        made = ", ".join(tensor.name for tensor in layer.outputs)
        begin, rest = f"{layer.layer_type:18s} {precision or '?':5s}", f"  {layer.name} -> {made}"
        source = (f" (from {read_from})", f"（依据 {read_from}）") if read_from else ("", "")
        yield Text(f"{begin}{source[0]}{rest}", f"{begin}{source[1]}{rest}")
        if layer.tactic_name:
            yield same(f"{'':24s} {layer.tactic_name}")
