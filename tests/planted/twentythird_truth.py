"""What is true of the twenty-third batch's files, without the tool: ``python tests/planted/twentythird_truth.py
[WORD …]``, as the twenty-first's does."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted import twentythird_onnx
from planted.fourteenth_truth import _each
from planted.twelfth.case import Thread
from planted.twelfth.measure import stock
from planted.twentyfirst_truth import measure, rel


def one_file(one: Thread, folder: Path) -> list[str]:
    """A file in an engine as deployed, beside ONNX Runtime without optimisation."""
    import onnxruntime as ort

    path, _, feeds = one.make(folder)
    path, feeds = Path(path), feeds or {}
    want = stock(path, feeds)
    if one.mode == "ort_opt":
        run = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return [f"off by {rel(run.run(None, dict(feeds)), want):.4g}"]
    if one.mode == "ort_fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half = convert_float_to_float16(onnx.load(path), keep_io_types=True).SerializeToString()
        return [f"off by {rel(stock(half, feeds), want):.4g}"]
    import openvino as ov

    model = ov.Core().read_model(str(path))
    for op in model.get_ops():  # every tensor is told
        if op.get_type_name() not in ("Result", "Parameter", "Constant") and one.who:
            for name in {*op.output(0).get_names()} & {node.output[0] for node in onnx.load(path).graph.node}:
                if name not in {n for o in model.outputs for n in o.get_names()}:
                    model.add_outputs(name)
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found, told = compiled(dict(feeds)), [f"off by {rel([found[0] for found in [compiled(dict(feeds))]], want):.4g}"]
    known = _each(path, feeds)
    for n, output in enumerate(compiled.outputs):
        name = next(iter(output.get_names()))
        if name in known:
            told.append(f"{name} {rel([found[n]], [known[name]]):.3g}")
    return told


def main() -> int:
    words = sys.argv[1:]
    for one in twentythird_onnx.CASES:
        if not words or any(word in one.name for word in words):
            with tempfile.TemporaryDirectory() as name:
                alone = one.mode in ("ort_opt", "ort_fp16", "ov_opt_fp32")
                try:
                    if one.kind == "dump":
                        one.make(Path(name))
                        shutil.copy(Path(name) / "other.onnx", Path(name) / "board.onnx")
                    told = (one_file if alone else measure)(one, Path(name))
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"[:400]]
            print(f"{one.name} ({one.mode}) who {' '.join(one.who) or '-'}", *told, sep="\n    ", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
