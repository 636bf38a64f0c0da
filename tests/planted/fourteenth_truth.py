"""What is true of the fourteenth to twentieth batch's cases, without the tool: ``python
tests/planted/fourteenth_truth.py [fifteenth | ... | twentieth] [WORD …]``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted import (
    eighteenth_onnx,
    fifteenth_onnx,
    fourteenth_onnx,
    nineteenth_onnx,
    seventeenth_onnx,
    sixteenth_onnx,
    twentieth_onnx,
)
from planted.onnx_faults import Array
from planted.twelfth.case import Thread


def _each(path: Path, feeds: Mapping[str, Array]) -> Mapping[str, Any]:
    """Every tensor of a file, in stock ONNX Runtime without fusion."""
    import onnx
    from onnx import helper

    from planted.twelfth.measure import stock

    model = onnx.load(path)
    names = [one for node in model.graph.node for one in node.output if one]
    outputs = {one.name for one in model.graph.output}
    model.graph.output.extend(helper.make_empty_tensor_value_info(one) for one in names if one not in outputs)
    order = [one.name for one in model.graph.output]
    return dict(zip(order, stock(model.SerializeToString(), feeds), strict=True))


def _apart(got: Any, want: Any) -> str:
    if np.shape(got) != np.shape(want):
        return f"shapes {np.shape(got)} {np.shape(want)}"
    g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.isfinite(g).all():
        return f"{int((~np.isfinite(g)).sum())} of {g.size} not finite"
    return f"{np.linalg.norm(g - w) / max(np.linalg.norm(w), 1e-30):.3g}"


def _quantised(one: Thread, path: Path, feeds: Mapping[str, Array], without: Sequence[str], exact: bool) -> Any:
    """ONNX Runtime's quantiser as the runner asks for it; exact: with sums that do not saturate."""
    import onnxruntime as ort
    from onnxruntime import quantization as by
    from onnxruntime.quantization import matmul_nbits_quantizer

    class Given(by.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [dict(feeds)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    out, names = path.with_suffix(".q.onnx"), [f"node_{name}" for name in without]
    seven = "reduce_range=true" in one.options
    if one.mode == "ort_int4":
        import onnx

        made = matmul_nbits_quantizer.MatMulNBitsQuantizer(onnx.load(path), block_size=128, is_symmetric=True,
                                                           nodes_to_exclude=names)  # fmt: skip
        made.process()
        made.model.save_model_to_file(str(out))
    elif one.mode == "ort_int8_dynamic":
        by.quantize_dynamic(str(path), str(out), nodes_to_exclude=names, reduce_range=seven,
                            weight_type=by.QuantType.QInt8)  # fmt: skip
    else:
        how = by.CalibrationMethod.Entropy if "calibration=entropy" in one.options else by.CalibrationMethod.MinMax
        by.quantize_static(str(path), str(out), Given(), nodes_to_exclude=names, reduce_range=seven,
                        per_channel="per_channel=false" not in one.options, weight_type=by.QuantType.QInt8,
                        activation_type=by.QuantType.QUInt8 if "activation_type=uint8" in one.options else
                        by.QuantType.QInt8, calibrate_method=how)  # fmt: skip
    told = ort.SessionOptions()
    told.log_severity_level = 4
    if exact:
        told.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(str(out), told, providers=["CPUExecutionProvider"]).run(None, dict(feeds))


def _lite(path: Path, feeds: Mapping[str, Array], reference: bool = False) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    run = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF if reference else
                      OpResolverType.AUTO)  # fmt: skip
    run.allocate_tensors()
    given, value = run.get_input_details()[0], next(iter(feeds.values()))
    scale, zero = given["quantization"]
    value = np.clip(np.rint(value / scale) + zero, -(2**15), 2**15 - 1).astype(given["dtype"]) if scale else value
    run.set_tensor(given["index"], value)
    run.invoke()
    found = [(run.get_tensor(one["index"]), one["quantization"]) for one in run.get_output_details()]
    return [(value - np.float64(zero)) * (scale or 1) for value, (scale, zero) in found]


def _by_nncf(path: Path, feeds: Mapping[str, Array]) -> Any:
    import nncf
    import openvino as ov

    made = nncf.quantize(ov.Core().read_model(str(path)), nncf.Dataset([dict(feeds)]))
    compiled = ov.Core().compile_model(made, "CPU")
    found = compiled(dict(feeds))
    return [found[n] for n in range(len(compiled.outputs))]


def _metric(one: Thread, path: Path) -> str:
    """The share of rows whose largest is the label's, over the samples; int8 calibrates on the sample itself."""
    import ml_dtypes

    from planted.twelfth.measure import in_half

    labels, hits = np.load(path.parent / "labels.npy"), []
    for file, label in zip(sorted((path.parent / "in").iterdir()), labels, strict=True):
        feeds = dict(np.load(file))
        got = _quantised(one, path, feeds, (), True) if "int8" in one.mode else in_half(path, feeds, (),
                                                                                      ml_dtypes.bfloat16)  # fmt: skip
        hits.append(np.mean(np.argmax(got[0], -1) == label))
    return f"{np.mean(hits):.4f} of the labels"


def measure(one: Thread, folder: Path) -> str:
    import ml_dtypes

    from planted.twelfth.measure import in_half, openvino

    path, base, feeds = one.make(folder)
    if "--metric" in one.options:
        return _metric(one, Path(path))
    path, feeds = Path(path), feeds or {}
    if one.mode.startswith("tflite"):
        floats = base or fourteenth_onnx.DATA / "digits_float32.tflite"
        kernels = f"; reference kernels {_apart(_lite(path, feeds, True)[0], _lite(path, feeds)[0])}"
        return _apart(_lite(path, feeds)[0], _lite(Path(str(floats)), feeds)[0]) + kernels
    want = _each(Path(str(base)) if base else path, feeds)
    if path.suffix == ".xml":
        return _apart(openvino(path, feeds)[0], next(iter(want.values())))
    true = list(want.values())

    def off(outputs: Any) -> str:
        return ", ".join(_apart(g, w) for g, w in zip(outputs, true, strict=False))

    if base is not None:
        got = _each(path, feeds)
        told = "; ".join(f"{name} {_apart(value, want[name])}" for name, value in got.items() if name in want)
        return told + (f"; OpenVINO {off(openvino(path, feeds))}" if one.mode.startswith("ov") else "")
    who = [*one.who, *one.also]
    if one.mode in {"ort_fp16_sim", "ort_bf16_sim"}:
        kind = np.float16 if one.mode == "ort_fp16_sim" else ml_dtypes.bfloat16
        sets = [*([name] for name in who), [*who, *one.extra]] if who else []
        kept = "; ".join(f"{names} kept {off(in_half(path, feeds, names, kind))}" for names in sets)
        return f"{off(in_half(path, feeds, (), kind))}; {kept}"
    if one.mode == "onnx_ref":
        from onnx.reference import ReferenceEvaluator

        return off(ReferenceEvaluator(str(path)).run(None, dict(feeds)))
    if one.mode in {"ov_opt", "ov_fp32"}:
        return off(openvino(path, feeds))
    if one.mode == "ov_int8":
        return off(_by_nncf(path, feeds))
    if one.mode in {"ort_int8", "ort_int8_dynamic", "ort_int4"}:
        here, exact, left = (_quantised(one, path, feeds, *how) for how in (((), False), ((), True), (who, True)))
        return f"{off(here)}; with exact sums {off(exact)}; without {who} {off(left)}"
    return off(in_half(path, feeds)) + " in half"


def main() -> int:
    import tempfile

    words = sys.argv[1:]
    batches = {"fifteenth": fifteenth_onnx, "sixteenth": sixteenth_onnx, "seventeenth": seventeenth_onnx,
               "eighteenth": eighteenth_onnx, "nineteenth": nineteenth_onnx, "twentieth": twentieth_onnx}  # fmt: skip
    batch = batches[words.pop(0)] if words and words[0] in batches else fourteenth_onnx
    for one in batch.CASES:
        if not words or any(word in one.name for word in words):
            with tempfile.TemporaryDirectory() as name:
                print(f"{one.name} ({one.mode}): {measure(one, Path(name))}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
