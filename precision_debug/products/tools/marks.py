"""precision_debug marks: a model's tensor names in execution order, to mark some of them.

The list can be edited and passed to --marks FILE.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...cli.parser import MODEL_FLAGS, make_flag, make_verb_parser, parse
from ...cli.reading import make_opening, read_model_options, with_a_mode
from ...codec import decode, encode
from ...feeds import make_feeds
from ...pairing.marks import get_mark_names_from_serialized_json, select
from ...records import ModelFiles, TensorMeta
from ...report.atomic_file import replace_atomically
from ...run.child import Said, call_in_child
from ...run.companion_files import refuse_overwriting
from ...safety.untrusted import make_visible
from ...settings.setting import parse_shapes

__all__ = ["list_in_child", "run"]

SUMMARY = "list a model's tensor names in execution order, to mark some of them"
SUMMARY_ZH = "按执行顺序列出模型的张量名，以便标记其中一些"

DESCRIPTION_ZH = """precision_debug marks：按执行顺序列出模型的张量名，以便标记其中一些。

列表可编辑后用 --marks FILE 交回。
"""

_TAB = "\t"


def run(arguments: Sequence[str]) -> int:
    """Print or write the names; 0, or an error."""
    args = parse(make_verb_parser("marks", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    model = read_model_options(args)
    if args.output:
        refuse_overwriting([args.output], model.model_file, model.params_file, model.model_dir, args.from_inspector)
    between = tuple(args.marks_between) if args.marks_between else None
    if args.from_inspector:
        names = get_mark_names_from_serialized_json(args.from_inspector)
        chosen = select(args.mark, between, names) if args.mark or between else names
        texts = list(chosen)
    else:
        texts = _mark_model(model, args, between)
    text = "\n".join(texts) + "\n"
    if args.output:
        with replace_atomically(Path(args.output)) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    else:
        sys.stdout.writelines(f"{make_visible(line, keep=_TAB)}\n" for line in texts)
    return 0


_FLAGS = (
    *MODEL_FLAGS,
    make_flag("--run_mode", "the graph of this mode (default: the baseline's)", "该模式的图（默认为基线的图）",
         metavar="MODE"),
    make_flag("--input_shapes", "shapes to try", "要尝试的形状", metavar="NAME:SHAPE", nargs="+", default=[]),
    make_flag("--mark", "only what these match", "只列出与之匹配的", metavar="NAME", nargs="+", action="extend",
    default=[]),
    make_flag("--marks_between", "", "", metavar=("START", "END"), nargs=2, default=None),
    make_flag("--from_inspector", "engine-inspector files instead of a model", "代替模型：engine inspector 文件",
         metavar="GLOB"),
    make_flag("--names_only", "without operator type and shape", "不带算子类型和形状", action="store_true"),
    make_flag("--output", "write to this file instead of printing", "写入文件而不打印", metavar="FILE"),
)  # fmt: skip


def _mark_model(model: ModelFiles, args: argparse.Namespace, between: tuple[str, str] | None) -> list[str]:
    job = {"model": encode(model), "run_mode": args.run_mode, "input_shapes": args.input_shapes}
    found = call_in_child(f"{__name__}:list_in_child", job, where=model.path, verbose=args.verbose)
    metas = [decode(TensorMeta, plain) for plain in found]
    chosen = set(select(args.mark, between, [m.name for m in metas])) if args.mark or between else None
    kept = [meta for meta in metas if chosen is None or meta.name in chosen]
    if args.names_only or args.output:
        return [meta.name for meta in kept]
    return [
        f"{meta.name}\t# {meta.op_type} {meta.dtype} {list(meta.shape) if meta.shape is not None else ''}".rstrip()
        for meta in kept
    ]


def list_in_child(job: Mapping[str, Any], folder: Path, _said: Said) -> list[Any]:
    """In a child process: a model's tensors in execution order, as plain values."""
    model, shapes = decode(ModelFiles, job["model"]), parse_shapes(job["input_shapes"])

    def of_mode(mode: str) -> list[Any]:
        opening = make_opening(model, mode, folder)
        feeds = make_feeds(opening.inputs(), shapes=shapes)
        session = opening.open(feeds.feeds)
        try:
            return [encode(meta) for meta in session.tensors]
        finally:
            session.close()

    return with_a_mode(model, job["run_mode"], of_mode, verbose=True)  # its log is a file
