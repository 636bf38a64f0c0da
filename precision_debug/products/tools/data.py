"""precision_debug data: combine files of inputs or outputs into one file of Polygraphy's JSON.

`data merge A B … --output C.json` merges the arrays of each sample by name, for example inputs with the outputs of a
run that are inputs of the next model; if a name is in several files, the last one is kept. `data concat A B … --output
C.json` appends the samples of one file to those of the other. Reads Polygraphy's inputs and outputs, .npz, .npy,
folders of them, and a script's function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...cli.parser import choose_language, make_flag, make_verb_parser, parse
from ...errors import OutputError, UsageError
from ...feeds.load import load_sets
from ...feeds.npz import load_npz
from ...feeds.polygraphy_json import Iteration, holds_results, read_results
from ...reasons import Text
from ...records import InputMeta
from ...run.companion_files import refuse_overwriting
from ...run.saved import SavedOutputs, save_inputs
from ...safety.untrusted import make_visible

__all__ = ["run"]

SUMMARY = "combine files of inputs or outputs: merge by name, or concat samples"
SUMMARY_ZH = "合并输入或输出文件：按名字合并，或拼接样本"

DESCRIPTION_ZH = """precision_debug data：将输入或输出文件合并为一个 Polygraphy JSON 文件。

`data merge A B … --output C.json` 把各文件中名字不同的数组合成一个样本：例如把一次运行的输出与输入
放在一起，作为下一个模型的输入；同名者取最后一个文件的。`data concat A B … --output C.json` 把后一个
文件的样本接在前一个之后。可读取 Polygraphy 的输入与输出、.npz、.npy、其目录，以及脚本的函数。
"""


def run(arguments: Sequence[str]) -> int:
    """Write the file; 0, or an error."""
    args = parse(make_verb_parser("data", __doc__, DESCRIPTION_ZH, _FLAGS), arguments)
    if not args.output.lower().endswith(".json"):
        raise UsageError("is not a .json file", where=f"--output {args.output}")
    refuse_overwriting([args.output], args.files)
    results = [_is_results(name) for name in args.files]
    if args.what == "concat" and any(results):
        if not all(results):
            raise UsageError("inputs and outputs cannot be concatenated", hint="concat files of one kind, or use merge")
        count = _concat_results(args.files, Path(args.output))
    elif args.what == "concat":
        sets = [one for name in args.files for one in _iterate_sets(name)]
        save_inputs(args.output, sets)
        count = len(sets)
    else:
        merged = _merge_files(args.files)
        save_inputs(args.output, merged)
        count = len(merged)
    said = Text(f"{args.output}: {count} samples", f"{args.output}：{count} 个样本")
    print(make_visible(said.of(choose_language(args.lang))))
    return 0


_FLAGS = (
    make_flag("what", "see above", "见上文", metavar="merge|concat", choices=("merge", "concat")),
    make_flag("files", ".json .npz .npy, folders, SCRIPT.py:f", ".json .npz .npy、目录、SCRIPT.py:f", metavar="FILES",
         nargs="+"),
    make_flag("--output -o", "what --inputs reads", "--inputs 可读取的文件", metavar="FILE.json", required=True),
)  # fmt: skip


def _is_results(name: str) -> bool:
    return name.lower().endswith(".json") and Path(name).is_file() and holds_results(Path(name))


def _iterate_sets(name: str) -> Iterator[Mapping[str, Any]]:
    """Samples of inputs, or what each runner gave, one runner after the other. Raises InputError."""
    if _is_results(name):
        for iterations in read_results(Path(name)).values():
            yield from (one.outputs for one in iterations)
    elif name.lower().endswith(".npz"):
        yield from load_npz(Path(name))
    else:
        yield from load_sets(name, [InputMeta(name="input", dtype="", shape=None)])


def _merge_files(files: Sequence[str]) -> list[dict[str, Any]]:
    """By their numbers; of several runners the last one's outputs are kept, as Polygraphy does."""
    merged: list[dict[str, Any]] = []
    for name in files:
        runs = (
            [[one.outputs for one in found] for found in read_results(Path(name)).values()]
            if _is_results(name) else [list(_iterate_sets(name))]
        )  # fmt: skip
        for sets in runs:
            merged += [{} for _ in range(len(sets) - len(merged))]
            for sample, one in zip(merged, sets, strict=False):
                sample.update(one)
    return merged


def _concat_results(files: Sequence[str], output: Path) -> int:
    whole: dict[str, list[Iteration]] = {}
    for name in files:
        for runner, iterations in read_results(Path(name)).items():
            whole.setdefault(runner, []).extend(iterations)
    counts = {len(iterations) for iterations in whole.values()}
    if len(counts) > 1:
        raise UsageError(
            "the files' runners differ, so their samples do not belong together", where=", ".join(whole),
            hint="concat files of the same runners",
        )  # fmt: skip
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made: {error.strerror}", where=str(output.parent)) from error
    saved = SavedOutputs(str(output), list(whole), output.parent)
    for found in zip(*whole.values(), strict=True):
        saved.add([one.outputs for one in found], [one.seconds for one in found])
    saved.finish()
    return counts.pop()
