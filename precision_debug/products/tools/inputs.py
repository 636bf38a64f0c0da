"""precision_debug inputs MODEL: a model's inputs, their default values, and a command to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import registry
from ...cli.parser import MODEL_FLAGS, choose_language, make_flag, make_verb_parser, parse, program_name
from ...cli.reading import make_opening, read_model_options, with_a_mode
from ...codec import decode, encode
from ...errors import UsageError
from ...feeds import as_option, choose_default_feeds
from ...reasons import Text, say
from ...records import InputMeta, ModelFiles
from ...report.words import explain_reason
from ...run.child import Said, call_in_child
from ...safety.untrusted import make_visible
from ...settings.setting import parse_shapes
from .description import format_type

__all__ = ["read", "run"]

SUMMARY = "list a model's inputs, their default values, and a command to copy"
SUMMARY_ZH = "列出模型的输入、各自的默认值，以及可复制的命令"

DESCRIPTION_ZH = """precision_debug inputs MODEL：模型需要哪些输入、默认值是什么，以及可复制的命令。"""


def run(arguments: Sequence[str]) -> int:
    """Print the inputs, what each would be fed without --inputs, and a command; 0, or an error."""
    args = parse(make_verb_parser("inputs", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    model, language = read_model_options(args), choose_language(args.lang)
    if not model.path:
        raise UsageError(say("no_model"), hint="precision_debug inputs MODEL")

    job = {"model": encode(model), "run_mode": args.run_mode}
    found = call_in_child(f"{__name__}:read", job, where=model.path, verbose=args.verbose)
    asked, metas = found["mode"], [decode(InputMeta, plain) for plain in found["inputs"]]
    defaults = choose_default_feeds(metas, shapes=parse_shapes(args.input_shapes))
    for meta in metas:
        print(make_visible(_format_input(meta).of(language)))
        print(make_visible(f"    {explain_reason(defaults[meta.name].words).of(language)}"))
    target = args.run_mode or next(
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
    print(make_visible(f"{program_name()} {shlex.join(words)}"))
    return 0


_FLAGS = (
    *MODEL_FLAGS,
    make_flag(
        "--run_mode", "as this mode reads it (default: the baseline)", "以此模式读取（默认为基线）", metavar="MODE"
    ),
    make_flag("--input_shapes", "shapes to try", "要尝试的形状", metavar="NAME:SHAPE", nargs="+", default=[]),
)


def read(job: Mapping[str, Any], folder: Path, _said: Said) -> dict[str, Any]:
    """In a child process: a model's inputs and the mode that reads them, as plain values."""
    model = decode(ModelFiles, job["model"])

    def of_mode(mode: str) -> dict[str, Any]:
        return {"mode": mode, "inputs": [encode(meta) for meta in make_opening(model, mode, folder).inputs()]}

    return with_a_mode(model, job["run_mode"], of_mode, verbose=True)  # its log is a file


def _format_input(meta: InputMeta) -> Text:
    kind = format_type(meta)
    en, zh = f"{meta.name}  {kind.en}", f"{meta.name}  {kind.zh}"
    if meta.optional:
        en, zh = f"{en}, optional", f"{zh}，可省略"
    if meta.limit:
        en, zh = f"{en}, indices below {meta.limit}", f"{zh}，索引小于 {meta.limit}"
    return Text(en, zh)
