"""Runs every node and model test that ships inside the onnx package through the ONNX Runtime backend.

    python tests/benchmarks/sweep_onnx_node_tests.py [--only NAME] [--every N] [--modes MODE,MODE] [--json FILE]

Each model runs twice as the baseline (ort_fp32) and once as ONNX Runtime ships it (ort_opt). The two baseline runs are
compared bit for bit, tensor by tensor; ort_opt is compared within a tolerance with the tensors that it says it holds.
Other modes that are asked for only have to run or to be refused in one line: their rounding has no bound in general.
Prints how many ran, how many were compared, and why the others were refused. The tests run in child processes, so that
a crash of ONNX Runtime costs one test and is counted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402

from precision_debug.testing.backend_contract import have_same_bits  # noqa: E402

__all__ = ["Case", "Result", "cases", "run_case"]

MODES = ("ort_fp32", "ort_opt")
RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Dropout",
}
# ort_opt may differ from the baseline by so much of a tensor's largest value; float16 models by more
TOLERANCE, HALF_TOLERANCE = 1e-3, 1e-2


@dataclass(frozen=True, kw_only=True)
class Case:
    """A test of the onnx package: a model, and inputs in the order of the model's."""

    name: str
    kind: str
    model: Any
    inputs: tuple[Any, ...]


@dataclass(kw_only=True)
class Result:
    """outcome and reason by mode: "compared", "refused", "mismatch" or "crashed". seen, unseen: of ort_fp32."""

    name: str
    kind: str
    outcome: dict[str, str] = field(default_factory=dict)
    reason: dict[str, str] = field(default_factory=dict)
    seen: int = 0
    unseen: dict[str, int] = field(default_factory=dict)
    paired: int = 0


def cases() -> Iterator[Case]:
    """All tests whose data lie in the package, node tests first."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    for case in sorted(found, key=lambda case: case.name):
        inputs = case.data_sets[0][0] if case.data_sets else ()
        yield Case(name=case.name, kind="node", model=case.model, inputs=tuple(map(_array, inputs)))
    package = Path(onnx.__file__).parent.parent
    for kind in ("simple", "pytorch-operator", "pytorch-converted", "real"):
        for case in sorted(load_model_tests(kind=kind), key=lambda case: case.name):
            path = Path(case.model_dir, "model.onnx") if case.model_dir else package / str(case.url)
            model = onnx.load(path)
            stored = sorted(Path(case.model_dir, "test_data_set_0").glob("input_*.pb")) if case.model_dir else []
            inputs = [_stored(file, value) for file, value in zip(stored, model.graph.input, strict=False)]
            yield Case(name=case.name, kind=kind, model=model, inputs=tuple(inputs or _made(model)))


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(file: Path, value: Any) -> Any:
    kinds = {"sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list)}
    kinds["optional_type"] = (onnx.OptionalProto, onnx.numpy_helper.to_optional)
    message, decode = kinds.get(value.type.WhichOneof("value"), (onnx.TensorProto, onnx.numpy_helper.to_array))
    proto = message()
    proto.ParseFromString(file.read_bytes())
    return decode(proto)


def _made(model: Any) -> list[Any]:
    """Seeded inputs for the large models, which come without data."""
    constants = {item.name for item in model.graph.initializer}
    shapes = [
        [dim.dim_value or 1 for dim in item.type.tensor_type.shape.dim]
        for item in model.graph.input
        if item.name not in constants
    ]
    return [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]


def run_case(case: Case, folder: Path, modes: Sequence[str] = MODES) -> Result:
    """Run one test; ort_fp32 comes first among the modes."""
    from precision_debug_onnxruntime import OnnxRuntimeBackend

    from precision_debug.errors import PrecisionDebugError
    from precision_debug.records import ModelFiles, SessionSpec

    path = folder / "model.onnx"
    onnx.save(case.model, path)
    given = [item.name for item in case.model.graph.input]
    constants = {item.name for item in case.model.graph.initializer}
    names = given if len(case.inputs) == len(given) else [name for name in given if name not in constants]
    feeds = dict(zip(names, case.inputs, strict=False))
    result = Result(name=case.name, kind=case.kind)
    random = {node.op_type for node in case.model.graph.node} & RANDOM
    base: dict[str, Any] = {}
    for mode in modes:
        try:
            spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, work_dir=str(folder))
            first, metas = _run(OnnxRuntimeBackend().open(spec, [feeds]), feeds)
            if mode == "ort_fp32":
                base = first
                second, _ = _run(OnnxRuntimeBackend().open(spec, [feeds]), feeds)
                result.seen = len(first)
                for meta in metas:
                    if meta.unseen:
                        result.unseen[_group(meta.unseen)] = result.unseen.get(_group(meta.unseen), 0) + 1
                wrong = [name for name in first if not have_same_bits(first[name], second.get(name))]
            else:
                pairs = [(meta.origin or meta.name, meta.name) for meta in metas if meta.name in first]
                pairs = [(one, two) for one, two in pairs if one in base]
                result.paired = len(pairs)
                wrong = [
                    two
                    for one, two in pairs
                    if mode == "ort_opt" and not _close(base[one], first[two], _tolerance(case.model))
                ]
        except PrecisionDebugError as error:
            result.outcome[mode], result.reason[mode] = "refused", _group(error.what)
        else:
            result.outcome[mode] = "mismatch" if wrong else "compared"
            if wrong:
                why = f"random without a seed: {', '.join(sorted(random))}" if random else f"differs in {wrong[0]}"
                result.reason[mode] = why
    return result


def _run(session: Any, feeds: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    seen: dict[str, Any] = {}
    session.run(feeds, lambda op_type, name, tensor: seen.__setitem__(name, np.array(tensor)))
    metas = list(session.tensors)
    session.close()
    return seen, metas


def _close(first: Any, second: Any, tolerance: float) -> bool:
    if have_same_bits(first, second):
        return True
    if first.shape != second.shape or first.dtype.kind in "OUS":
        return False
    one, two = first.astype(np.float64), second.astype(np.float64)
    finite = np.abs(one[np.isfinite(one)])
    with np.errstate(all="ignore"):
        scale = float(finite.max()) if finite.size else 0.0
        return bool(np.allclose(two, one, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def _tolerance(model: Any) -> float:
    half = any(item.type.tensor_type.elem_type in (10, 16) for item in (*model.graph.input, *model.graph.output))
    return HALF_TOLERANCE if half else TOLERANCE


def _group(text: str) -> str:
    """A reason without the names that differ from test to test."""
    text = re.sub(r"holds the same values as .*", "holds the same values as another one", text)
    text = re.sub(r"it repeats .*", "it repeats a value from outside", text)
    kernel = re.search(r"no kernel here for (\w+) of opset (\d+)", text)
    if kernel:
        return "no CPU kernel for the operator with these types"
    text = re.sub(r"\(node [^)]*\)|'[^']*'|\([^)]*\)|[\w./:]*test_\w+|\b\d+\b", "…", text)
    return " ".join(text.split())[:110]


def _child(start: int, only: str, every: int, modes: Sequence[str]) -> int:
    """Run the tests from a place on; one JSON line before and one after each."""
    for place, case in enumerate(cases()):
        if place < start or place % every or only not in case.name:
            continue
        print(json.dumps({"begin": place, "name": case.name, "kind": case.kind}), flush=True)
        with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
            print(json.dumps({"end": place, "result": asdict(run_case(case, Path(folder), modes))}), flush=True)
    return 0


def _sweep(only: str, every: int, modes: Sequence[str]) -> tuple[list[Result], list[str]]:
    """All results, and what the child processes wrote to standard error."""
    results: list[Result] = []
    complaints: list[str] = []
    start = 0
    while True:
        command = [sys.executable, __file__, "--child", str(start), "--only", only, "--every", str(every)]
        command += ["--modes", ",".join(modes)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        results += [Result(**line["result"]) for line in lines if "end" in line]
        complaints += [line for line in child.stderr.splitlines() if line.strip()]
        if child.returncode == 0:
            return results, complaints
        begun = [line for line in lines if "begin" in line]
        if not begun or (lines and "end" in lines[-1]):
            raise SystemExit(f"the child process failed outside of a test:\n{child.stderr}")
        last = begun[-1]
        crashed = dict.fromkeys(modes, "crashed")
        reason = dict.fromkeys(modes, f"exit status {child.returncode}")
        results.append(Result(name=last["name"], kind=last["kind"], outcome=crashed, reason=reason))
        start = last["begin"] + 1


def _table(results: list[Result], complaints: list[str], modes: Sequence[str]) -> str:
    lines = []
    kinds = list(dict.fromkeys(result.kind for result in results))
    lines.append(
        f"{'':20}{'tests':>8}"
        + "".join(f"{mode + ' ' + what:>20}" for mode in modes for what in ("compared", "refused"))
    )
    for kind in [*kinds, "all"]:
        chosen = [result for result in results if kind in (result.kind, "all")]
        counts = [
            sum(r.outcome.get(mode) == what for r in chosen) for mode in modes for what in ("compared", "refused")
        ]
        lines.append(f"{kind:20}{len(chosen):>8}" + "".join(f"{count:>20}" for count in counts))
    lines.append(
        f"tensors compared: {sum(result.seen for result in results)} twice in ort_fp32, "
        f"{sum(result.paired for result in results)} in ort_opt"
    )
    for mode in modes:
        for what in ("refused", "mismatch", "crashed"):
            chosen = [result for result in results if result.outcome.get(mode) == what]
            if chosen:
                lines.append(f"{mode} {what}:")
            for reason, count in Counter(result.reason[mode] for result in chosen).most_common():
                example = next(result.name for result in chosen if result.reason[mode] == reason)
                lines.append(f"  {count:5}  {reason}   ({example})")
    unseen: Counter[str] = Counter()
    for result in results:
        unseen.update(result.unseen)
    lines.append("tensors of ort_fp32 that were not seen:")
    lines += [f"  {count:5}  {reason}" for reason, count in unseen.most_common()]
    lines.append(f"lines on standard error: {len(complaints)}")
    lines += [f"  {line[:160]}" for line in complaints[:10]]
    return "\n".join(lines)


def main() -> int:
    """Exit status 1 where a test crashed or differs for another reason than chance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a test's name")
    parser.add_argument("--every", type=int, default=1, help="run only every N-th test")
    parser.add_argument("--modes", default=",".join(MODES), help="run modes, ort_fp32 first")
    parser.add_argument("--json", default="", help="write all results to this file")
    parser.add_argument("--child", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    modes = options.modes.split(",")
    if options.child >= 0:
        return _child(options.child, options.only, options.every, modes)
    results, complaints = _sweep(options.only, options.every, modes)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(result) for result in results], indent=1))
    print(_table(results, complaints, modes))
    bad = [
        result for result in results for mode in modes
        if result.outcome.get(mode) == "crashed"
        or (result.outcome.get(mode) == "mismatch" and not result.reason[mode].startswith("random"))
    ]  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
