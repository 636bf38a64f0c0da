"""precision_debug marks: a model's tensor names in execution order, to mark some of them.

The list can be edited and given back with --marks FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import OutputError, UsageError
from ..feeds import make_feeds
from ..feeds.parse import parse_shapes
from ..pairing.marks import get_mark_names_from_serialized_json, select
from ..records import ModelFiles, RunSpec, TensorMeta
from ..report.atomic_file import replacing
from ..run.overwriting import refuse_overwriting
from ..run.plan import make_plan
from ..safety.visible import visible
from .parser import Parser, formatter, parse, program
from .reading import with_a_mode

__all__ = ["run"]

SUMMARY = "list a model's tensor names in execution order, to mark some of them"

_TAB = "\t"


def run(arguments: Sequence[str]) -> int:
    """Print or write the names; 0, or an error."""
    parser = Parser(prog=program("marks"), formatter_class=formatter, description=__doc__)
    parser.add_argument("model", metavar="M", nargs="?", default="", help="the model: .onnx, .pdmodel, .json, …")
    parser.add_argument("--model_file", metavar="M", default="", help="the same")
    parser.add_argument("--params_file", metavar="P", default="", help="its parameters, where they are a file")
    parser.add_argument("--model_dir", metavar="D", default="", help="a folder that holds the model")
    parser.add_argument(
        "--run_mode", metavar="MODE", default="", help="the graph of this mode (default: the baseline's)"
    )
    parser.add_argument("--input_shapes", metavar="NAME:SHAPE", nargs="+", default=[], help="shapes to try")
    parser.add_argument("--mark", metavar="NAME", nargs="+", action="extend", default=[], help="only what these match")
    parser.add_argument("--marks_between", metavar=("START", "END"), nargs=2, default=None)
    parser.add_argument(
        "--from_inspector", metavar="GLOB", default="", help="in place of a model: engine-inspector files"
    )
    parser.add_argument("--names_only", action="store_true", help="without operator type and shape")
    parser.add_argument("--output", metavar="FILE", default="", help="write here in place of printing")
    parser.add_argument("--verbose", action="store_true", help="tracebacks")
    given = parse(parser, arguments)
    if given.model and (given.model_file or given.model_dir):
        raise UsageError("two models", hint="name one")
    given.model_file = given.model or given.model_file
    if given.output:
        refuse_overwriting([given.output], given.model_file, given.params_file, given.model_dir, given.from_inspector)
    between = tuple(given.marks_between) if given.marks_between else None
    if given.from_inspector:
        names = get_mark_names_from_serialized_json(given.from_inspector)
        chosen = select(given.mark, between, names) if given.mark or between else names
        texts = list(chosen)
    else:
        texts = _of_model(given, between)
    text = "\n".join(texts) + "\n"
    if given.output:
        with replacing(Path(given.output), what="the list") as temporary:
            temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    else:
        sys.stdout.writelines(f"{visible(line, keep=_TAB)}\n" for line in texts)
    return 0


def _of_model(given: argparse.Namespace, between: tuple[str, str] | None) -> list[str]:
    model = ModelFiles(model_file=given.model_file, params_file=given.params_file, model_dir=given.model_dir)

    def listed(mode: str) -> list[TensorMeta]:
        with _scratch() as folder:
            opening = make_plan(RunSpec(model=model, run_mode=mode, record="-"), work_dir=folder).target
            feeds = make_feeds(opening.inputs(), shapes=parse_shapes(given.input_shapes))
            session = opening.open(feeds.feeds)
            try:
                return list(session.tensors)
            finally:
                session.close()

    metas = with_a_mode(model, given.run_mode, listed)
    chosen = set(select(given.mark, between, [m.name for m in metas])) if given.mark or between else None
    kept = [meta for meta in metas if chosen is None or meta.name in chosen]
    if given.names_only or given.output:
        return [meta.name for meta in kept]
    return [
        f"{meta.name}\t# {meta.op_type} {meta.dtype} {list(meta.shape) if meta.shape is not None else ''}".rstrip()
        for meta in kept
    ]


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """A folder for what a backend writes while it opens the model."""
    try:
        folder = tempfile.mkdtemp(prefix="precision_debug-")
    except OSError as error:
        raise OutputError(
            f"cannot write there: {error.strerror or error}", where="TMPDIR", hint="set TMPDIR to another disk"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
