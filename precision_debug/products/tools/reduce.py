"""precision_debug reduce: the smallest part of an ONNX model that still shows the fault, with its inputs.

Takes the options of a comparison. The part ends at the first tensor that fails, or at --tensor; its inputs are the
baseline's values there. It is written as an .onnx file with an .npz of its inputs beside it; if the fault is the
engine's own, also with the expected outputs and a short script that shows the fault with the engine alone, without this
tool. Exit status 0 if a part was found, 1 if nothing fails or no part shows it alone.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import recording
from ...api import compare as compared
from ...cli import compare
from ...cli.option_file import with_file
from ...cli.parser import Help, make_flag, parse, program_name
from ...codec import decode, encode
from ...errors import ModelError, PrecisionDebugError, UsageError
from ...feeds import save_feeds
from ...numbers.arrays import as_array
from ...onnx.model import load_model
from ...onnx.submodel import Part, Parts
from ...ownership import refuse_foreign
from ...protocols import AloneFiles
from ...reasons import say
from ...records import Row, RunSpec, Status
from ...report.atomic_file import replace_atomically
from ...report.model import Report
from ...run import pipeline
from ...run.child import Said, call_in_child, watch_signals
from ...run.companion_files import refuse_overwriting
from ...run.journal import Journal
from ...run.locked_folder import JOURNAL, make_scratch_folder
from ...run.plan import make_plan
from ...safety.untrusted import make_visible
from ...settings.options import iterate_differing

__all__ = ["reduce_in_child", "run"]

SUMMARY = "the smallest part of an ONNX model that still shows the fault, saved with its inputs"
SUMMARY_ZH = "仍能重现问题的最小 ONNX 子模型，连同其输入一起保存"

DESCRIPTION_ZH = """precision_debug reduce：仍能重现问题的最小 ONNX 子模型及其输入。

选项与对比相同。子模型止于首个超差的张量，或 --tensor 指定的张量；其输入取基线在该处的值。
写出一个 .onnx 文件，旁边是其输入的 .npz；若问题出自引擎自身，还写出期望值，以及不用本工具、只用引擎即可重现的短脚本。
找到时退出码为 0；没有超差，或没有子模型能单独重现时为 1。
"""

_LARGEST = 2**31 - 2**20
"""Bytes that one .onnx file can hold."""


_UNUSED = (
    "output", "gen_script", "plots", "save_inputs", "save_outputs", "save_tensors", "repeat", "jobs", "engine",
    "address", "gpus", "checkpoint",
)  # fmt: skip
_OF_A_PART = ("run_mode", "baseline", "seed", "validate", "memory_budget")
_OF_THE_WHOLE = ("input_shapes", "val_range", "sample", "samples_axis", "marks", "marks_between")
"""Options that decide whether a tensor fails: of whatever is run, and of the whole model's inputs and names."""


def run(arguments: Sequence[str]) -> int:
    """0 where a part was written, 1 where there is none; 2 or 3 as ever."""
    parser = compare.make_comparison_parser("reduce", __doc__, DESCRIPTION_ZH, _HEADING, _FLAGS)
    arguments = with_file(parser, "reduce", arguments, without=_UNUSED)
    args = parse(parser, arguments)
    compare.refuse_unused(args, "reduce", *_UNUSED, hint=say("use_part"))
    spec = compare.make_spec(args, command=f"{program_name('reduce')} {shlex.join(arguments)}")
    model = spec.model.model_file
    if Path(model).suffix.lower() != ".onnx":
        raise UsageError("only .onnx models can be reduced", where=spec.model.path)
    if spec.record or spec.baseline_model is not None or recording.is_outputs(spec.baseline):
        raise UsageError("reduce compares two run modes of one model", hint="leave --record and recorded baselines out")
    part_file = Path(args.part or Path(model).with_suffix(".part.onnx").name)
    if part_file.suffix.lower() != ".onnx":
        raise UsageError("the reduced model is an .onnx file", where=str(part_file), hint="end its name in .onnx")
    beside = [part_file.with_suffix(ending) for ending in (".npz", ".expected.npz", ".py")]
    for path in (part_file, *beside):
        refuse_foreign(path, hint=say("name_another", option="--part"))
    refuse_overwriting([part_file, *beside], spec, args.marks)
    compare.check_before(spec, [])
    with watch_signals() as stopping, make_scratch_folder() as (folder, _):
        job = {"spec": encode(spec), "tensor": args.tensor, "file": str(folder / part_file.name)}

        def tell(news: Mapping[str, Any]) -> None:
            if not args.quiet:
                print(f"  {news['operators']} operators: {news['came']}", file=sys.stderr, flush=True)

        found = call_in_child(f"{__name__}:reduce_in_child", job, where=model, verbose=args.verbose, on_said=tell)
        if "nothing" in found:
            print(make_visible(found["nothing"]), file=sys.stderr)
            return 1
        with stopping.finishing("the part is being written"):
            _move_part(folder, part_file)
    names = [f"{kind} {name}" for kind, name in found["operators"]]
    operators = ", ".join(names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    inputs = part_file.with_suffix(".npz")
    lines = (
        f"{len(names)} of {found['of']} operators still fail at {found['tensor']}: {operators}{more}",
        f"{part_file}, inputs {inputs}; to see it:",
        f"{program_name()} --model_file {shlex.quote(str(part_file))} --run_mode {spec.run_mode}"
        f" --baseline {found['baseline']} --inputs {shlex.quote(str(inputs))}{_tolerance_options(spec)}",
    )
    sys.stdout.writelines(make_visible(line) + "\n" for line in (*lines, *_describe_script(part_file, found["alone"])))
    return 0


_TRIED = 4
"""Failing tensors, in execution order, in which a part may end; the model's outputs after them."""

_HEADING = Help("what is left, and where does it go?", "剩下什么，写到何处？")
_FLAGS = (
    make_flag("--tensor", "that must fail (default: the first that does)", "必须超差的张量（默认为首个超差者）",
         metavar="NAME"),
    make_flag("--part", "the part (default: MODEL.part.onnx)", "子模型（默认 MODEL.part.onnx）", metavar="FILE.onnx"),
)  # fmt: skip


def reduce_in_child(job: Mapping[str, Any], folder: Path, said: Said) -> dict[str, Any]:
    """In a child process: what is left of a model, saved as the job's file; or why nothing is."""
    tempfile.tempdir = str(folder)  # every run of a part works in here, and goes with it
    spec, part_file = decode(RunSpec, job["spec"]), Path(job["file"])
    model = spec.model.model_file
    whole = _compare_part(spec, model, spec.inputs)
    wanted, proto = job["tensor"], _with_weights(model)
    made = {name for node in proto.graph.node for name in node.output}
    # an input differs where the target holds it in another type: no operator did that
    rows = [row for row in _list_failing(whole) if (row.name == wanted if wanted else row.name in made)]
    if not rows:
        what = f"'{wanted}' does not fail" if wanted else "nothing fails that an operator makes"
        return {"nothing": f"{what}: there is nothing to reduce"}
    values = _run_baseline(spec, whole)
    # what an engine fuses up to a later tensor does not fail where the part ends before it
    for row in (*rows[:_TRIED], *(row for row in rows[_TRIED:] if row.is_output)):
        name = row.name
        found = Parts(proto, values, name).smallest(functools.partial(_does_part_fail, spec, name=name, said=said))
        if found is not None:
            break
    else:
        return {"nothing": f"no part of the model shows alone how {rows[0].name} fails"}
    _save(part_file, found)
    save_feeds(part_file.with_suffix(".npz"), found.feeds)
    return {
        "tensor": name, "baseline": whole.baseline.mode, "of": len(proto.graph.node),
        "alone": _write_engine_script(spec, part_file, found, name, values),
        "operators": [(node.op_type, node.output[0]) for node in found.proto.graph.node],
    }  # fmt: skip


def _write_engine_script(
    spec: RunSpec, part_file: Path, found: Part, name: str, values: Mapping[str, Any]
) -> list[str] | None:
    """Write a script that needs the engine alone, where the fault is the engine's; the passes that bring it."""
    scripter = make_plan(spec, check_machine=False).target.capabilities.alone_scripter
    if scripter is None:
        return None
    expected, file = part_file.with_suffix(".expected.npz"), part_file.with_suffix(".py")
    report = _compare_part(spec, str(part_file), dict(found.feeds), find_pass=True, explain="fast")
    named = report.explanation.culprits if report.explanation is not None else ()
    passes = next((str(one.evidence["passes"]).split(" and ") for one in named if "passes" in one.evidence), [])
    inputs = part_file.with_suffix(".npz")
    text = scripter.alone_script(
        spec.run_mode,
        AloneFiles(model=part_file.name, feeds=inputs.name, expected=expected.name, output=name, passes=tuple(passes)),
    )
    if not text:
        return None
    save_feeds(expected, {name: values[name]})
    file.write_text(text, encoding="utf-8")
    return passes


def _describe_script(part_file: Path, passes: Sequence[str] | None) -> list[str]:
    """Return what to print of the script; passes: None where there is none."""
    if passes is None:
        return []
    brings = f", which {' and '.join(passes)} {'brings' if len(passes) == 1 else 'bring'}" if passes else ""
    return [f"python {shlex.quote(str(part_file.with_suffix('.py')))}: the same with the engine alone{brings}"]


def _move_part(folder: Path, part_file: Path) -> None:
    """The part, its inputs and, where it has some, its external weights, from a folder to where they are wanted."""
    for path in sorted(folder.glob(f"{glob.escape(part_file.stem)}.*"), reverse=True):  # the .onnx last of its two
        with replace_atomically(part_file.with_name(path.name)) as temporary:
            shutil.copyfile(path, temporary)


def _compare_part(spec: RunSpec, model: str, inputs: Any, **how: Any) -> Report:
    """Return the whole model's report; or a part's, on the arrays that it reads."""
    names = (*_OF_A_PART, *(_OF_THE_WHOLE if inputs is spec.inputs else ()))
    settings = {one.name: value for one, value in iterate_differing(spec) if one.name in names}
    options = {name: one for name, one in spec.options.items() if not name.startswith("save_")}
    settings |= {**options, "inputs": inputs, "explain": "off", **how}
    return compared(model, tolerance=spec.tolerance, **settings)


def _list_failing(report: Report) -> list[Row]:
    return [row for row in report.rows if row.status is Status.FAIL]


def _does_part_fail(spec: RunSpec, part: Part, *, name: str, said: Said) -> bool:
    """Return whether a part alone fails there; one that the engine refuses does not."""
    with tempfile.TemporaryDirectory(prefix="part-") as folder:
        file = Path(folder, "part.onnx")
        _save(file, part)
        try:
            fails = any(row.name == name for row in _list_failing(_compare_part(spec, str(file), dict(part.feeds))))
        except PrecisionDebugError:
            fails = False
    said({"operators": part.nodes, "came": "fails" if fails else "passes"})
    return fails


def _run_baseline(spec: RunSpec, whole: Report) -> Mapping[str, Any]:
    """Return every array that the baseline's run showed, its inputs among them."""
    with tempfile.TemporaryDirectory(prefix="part-") as folder:
        kept, work = str(Path(folder, "baseline")), Path(folder, "work")
        work.mkdir()
        of_base = {
            name.removeprefix("baseline."): one for name, one in spec.options.items()
            if not name.startswith(("target.", "save_"))
        }  # fmt: skip
        again = dataclasses.replace(
            spec, run_mode=whole.baseline.mode, baseline="", record=kept, marks=(), marks_between=None, validate=False,
            labels="", top1=False, top_k=None, metric="", metric_drop="",
            compare="", repeat=None, fail_fast=False, fused_only=False,
            save_inputs="", save_outputs="", save_tensors=None, options=of_base,
        )  # fmt: skip
        with Journal(work / JOURNAL) as journal:
            pipeline.execute(again, journal, folder=work)
        session = recording.open_recording(kept)
        values = {name: np.array(as_array(one)) for name, one in session.feeds.items() if _is_array(one)}

        def keep(_op_type: str, name: str, tensor: Any, /) -> None:
            values.setdefault(name, np.array(as_array(tensor)))

        outputs = session.run(session.feeds, keep)
        values |= {name: np.array(one) for name, one in outputs.items() if _is_array(one) and name not in values}
        session.close()
        return values


def _is_array(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, tuple, dict))


def _with_weights(model: str) -> Any:
    import onnx

    proto = load_model(model)
    try:
        onnx.load_external_data_for_model(proto, str(Path(model).absolute().parent))
    except Exception as error:
        raise ModelError(f"its external weights cannot be read: {error}", where=model) from error
    return proto


def _save(path: Path, part: Part) -> None:
    import onnx

    large = part.proto.ByteSize() >= _LARGEST
    onnx.save_model(part.proto, str(path), save_as_external_data=large, location=f"{path.name}.data" if large else None)


def _tolerance_options(spec: RunSpec) -> str:
    return f" --atol {spec.tolerance.atol:g} --rtol {spec.tolerance.rtol:g}" if spec.tolerance.given else ""
