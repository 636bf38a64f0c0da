"""precision_debug inputs MODEL: what a model is fed, what it would be fed by default, and a command to copy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .. import registry
from ..errors import UsageError
from ..feeds import as_option, default_feeds, parse_shapes
from ..records import InputMeta, ModelFiles, RunSpec
from ..run.plan import make_plan
from ..safety.visible import visible
from .parser import Parser, formatter, parse, program
from .reading import with_a_mode

__all__ = ["run"]

SUMMARY = "list a model's inputs, what each is fed by default, and a command to copy"


def run(arguments: Sequence[str]) -> int:
    """Print the inputs, what each would be fed without --inputs, and a command; 0, or an error."""
    parser = Parser(prog=program("inputs"), formatter_class=formatter, description=__doc__)
    parser.add_argument("model", metavar="M", nargs="?", default="", help="the model: .onnx, .pdmodel, .json, …")
    parser.add_argument("--model_file", metavar="M", default="", help="the same")
    parser.add_argument("--params_file", metavar="P", default="", help="its parameters, where they are a file")
    parser.add_argument("--model_dir", metavar="D", default="", help="a folder that holds the model")
    parser.add_argument("--run_mode", metavar="MODE", default="", help="as this mode reads it (default: the baseline)")
    parser.add_argument("--input_shapes", metavar="NAME:SHAPE", nargs="+", default=[], help="shapes to try")
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    given = parse(parser, arguments)
    if given.model and (given.model_file or given.model_dir):
        raise UsageError("two models", hint="name one")
    model = ModelFiles(
        model_file=given.model or given.model_file, params_file=given.params_file, model_dir=given.model_dir
    )
    if not model.path:
        raise UsageError("no model was given", hint="precision_debug inputs MODEL")

    def read(mode: str) -> tuple[str, Sequence[InputMeta]]:
        return mode, make_plan(RunSpec(model=model, run_mode=mode, record="-")).target.inputs()

    asked, metas = with_a_mode(model, given.run_mode, read)
    defaults = default_feeds(metas, shapes=parse_shapes(given.input_shapes))
    for meta in metas:
        print(visible(_line(meta)))
        print(visible(f"    {defaults[meta.name].words}"))
    target = given.run_mode or next(
        (mode.name for _, mode in registry.modes_for(model) if mode.baseline == asked and mode.name != asked), "MODE"
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


def _line(meta: InputMeta) -> str:
    shape = "shape unknown" if meta.shape is None else f"[{', '.join(str(dim) for dim in meta.shape)}]"
    more = (", optional" if meta.optional else "") + (f", indices below {meta.limit}" if meta.limit else "")
    return f"{meta.name}  {meta.dtype or 'unknown type'} {shape}{more}"
