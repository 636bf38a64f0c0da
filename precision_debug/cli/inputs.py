"""precision_debug inputs MODEL: what a model is fed, what it would be fed by default, and a command to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import registry
from ..codec import decode, encode
from ..errors import UsageError
from ..feeds import as_option, default_feeds
from ..records import InputMeta, ModelFiles, RunSpec
from ..run.called import Said, called
from ..run.plan import make_plan
from ..safety.visible import visible
from ..settings.words import parse_shapes
from .language import Help
from .parser import Parser, formatter, parse, program
from .reading import with_a_mode

__all__ = ["read", "run"]

SUMMARY = "list a model's inputs, what each is fed by default, and a command to copy"
SUMMARY_ZH = "列出模型的输入、各自的默认值，以及可复制的命令"

DESCRIPTION_ZH = """precision_debug inputs MODEL：模型需要哪些输入、默认值是什么，以及可复制的命令。"""


def run(arguments: Sequence[str]) -> int:
    """Print the inputs, what each would be fed without --inputs, and a command; 0, or an error."""
    given = parse(_parser(), arguments)
    if given.model and (given.model_file or given.model_dir):
        raise UsageError("two models were given", hint="name only one")
    model = ModelFiles(
        model_file=given.model or given.model_file, params_file=given.params_file, model_dir=given.model_dir
    )
    if not model.path:
        raise UsageError("no model was given", hint="precision_debug inputs MODEL")

    job = {"model": encode(model), "run_mode": given.run_mode}
    found = called("precision_debug.cli.inputs:read", job, where=model.path, verbose=given.verbose)
    asked, metas = found["mode"], [decode(InputMeta, plain) for plain in found["inputs"]]
    defaults = default_feeds(metas, shapes=parse_shapes(given.input_shapes))
    for meta in metas:
        print(visible(_line(meta)))
        print(visible(f"    {defaults[meta.name].words}"))
    target = given.run_mode or next(
        (mode.name for _, mode in registry.modes_for(model)
         if mode.baseline == asked and mode.name != asked and mode.precision != "float64"), "MODE"
    )
    wanted = [(meta.name, defaults[meta.name]) for meta in metas if not meta.optional]
    shapes = [
        f"{name}:[...]" if default.shape is None else as_option(name, default.shape).split()[1]
        for name, default in wanted if default.shape is not None or "--input_shapes" in default.words
    ]  # fmt: skip
    files = ["--model_dir", model.model_dir] if model.model_dir else ["--model_file", model.model_file]
    files += ["--params_file", model.params_file] if model.params_file else []
    words = [*files, "--run_mode", target, *(["--input_shapes", *shapes] if shapes else [])]
    print()
    print(visible(f"{program()} {shlex.join(words)}"))
    return 0


def _parser() -> Parser:
    """What the verb takes."""
    parser = Parser(prog=program("inputs"), formatter_class=formatter, description=Help(__doc__ or "", DESCRIPTION_ZH))
    parser.add_argument(
        "model",
        metavar="M",
        nargs="?",
        default="",
        help=Help("the model: .onnx, .pdmodel, .json, …", "模型：.onnx、.pdmodel、.json 等"),
    )
    parser.add_argument("--model_file", metavar="M", default="", help=Help("the same", "同上"))
    parser.add_argument(
        "--params_file",
        metavar="P",
        default="",
        help=Help("its parameters, where they are a file", "参数文件（若单独存放）"),
    )
    parser.add_argument(
        "--model_dir", metavar="D", default="", help=Help("a folder that holds the model", "模型所在的目录")
    )
    parser.add_argument(
        "--run_mode",
        metavar="MODE",
        default="",
        help=Help("as this mode reads it (default: the baseline)", "以此模式读取（默认为基线）"),
    )
    parser.add_argument(
        "--input_shapes", metavar="NAME:SHAPE", nargs="+", default=[], help=Help("shapes to try", "要尝试的形状")
    )
    parser.add_argument("--verbose", action="store_true", help=Help("tracebacks", "显示 traceback"))
    return parser


def read(job: Mapping[str, Any], folder: Path, _said: Said) -> dict[str, Any]:
    """In a child process: a model's inputs and the mode that reads them, as plain values."""
    model = decode(ModelFiles, job["model"])

    def of_mode(mode: str) -> dict[str, Any]:
        place = folder / mode
        place.mkdir(exist_ok=True)
        opening = make_plan(RunSpec(model=model, run_mode=mode, record="-"), work_dir=str(place)).target
        return {"mode": mode, "inputs": [encode(meta) for meta in opening.inputs()]}

    return with_a_mode(model, job["run_mode"], of_mode, verbose=True)  # its log is a file


def _line(meta: InputMeta) -> str:
    shape = "shape unknown" if meta.shape is None else f"[{', '.join(str(dim) for dim in meta.shape)}]"
    more = (", optional" if meta.optional else "") + (f", indices below {meta.limit}" if meta.limit else "")
    return f"{meta.name}  {meta.dtype or 'unknown type'} {shape}{more}"
