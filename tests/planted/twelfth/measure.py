"""What is true of each case, without the tool: ``python tests/planted/twelfth/measure.py [WORD …]``.

Printed are the relative error (L2) of the target's worst output, and the same where the case's fault is mended: in the
stock engine, or in float16 by rounding what each node gives, node by node.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from planted.onnx_faults import Array
from planted.twelfth import files, others, torch_cases
from planted.twelfth.case import Thread

Outputs = Sequence[Array]


def off(target: Outputs, base: Outputs) -> float:
    """The worst output's relative L2; inf where it is not finite or has another shape."""
    worst = 0.0
    for got, want in zip(target, base, strict=True):
        if np.shape(got) != np.shape(want) or not np.isfinite(got).all():
            return float("inf")
        g, w = np.asarray(got, np.float64), np.asarray(want, np.float64)
        worst = max(worst, float(np.linalg.norm(g - w) / np.linalg.norm(w)))
    return worst


def stock(path: Path | bytes, feeds: Mapping[str, Array], level: int = 0, without: Sequence[str] = ()) -> Outputs:
    """ONNX Runtime as it is; level 0: no optimisation, 99: all."""
    told = ort.SessionOptions()
    told.graph_optimization_level = ort.GraphOptimizationLevel(level)
    told.log_severity_level = 4
    data = path if isinstance(path, bytes) else path.read_bytes()
    session = ort.InferenceSession(data, told, providers=["CPUExecutionProvider"], disabled_optimizers=[*without])
    return session.run(None, dict(feeds))  # type: ignore[no-any-return]


def in_half(path: Path, feeds: Mapping[str, Array], kept: Collection[str] = (), kind: Any = np.float16) -> Outputs:
    """Each node's result rounded to float16, or another type, but for ``kept``."""
    model = onnx.load(path)
    half = lambda value: value.astype(kind).astype(np.float32) if value.dtype == np.float32 else value  # noqa: E731
    reads = {name for node in model.graph.node if {*node.output} & {*kept} for name in node.input}
    known = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    known = {name: value if name in reads else half(value) for name, value in {**known, **feeds}.items()}
    with np.errstate(over="ignore", invalid="ignore"):
        for node in model.graph.node:
            info = [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(known[name].dtype),
                                              known[name].shape) for name in dict.fromkeys(node.input) if name
            ]  # fmt: skip
            made = [helper.make_empty_tensor_value_info(name) for name in node.output]
            one = helper.make_model(helper.make_graph([node], "one", info, made), opset_imports=model.opset_import,
                                    ir_version=8)  # fmt: skip
            given = {name: known[name] for name in node.input if name}
            for name, value in zip(node.output, stock(one.SerializeToString(), given), strict=True):
                known[name] = value if name in kept else half(value)
    return [known[one.name] for one in model.graph.output]


def in_int8(path: Path, feeds: Mapping[str, Array], dynamic: bool = False, left_out: Sequence[str] = ()) -> Outputs:
    """ONNX Runtime's quantiser with what it does by default, calibrated on the feeds."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

    class Given(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [dict(feeds)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    out = path.with_suffix(".int8.onnx")
    names = [f"node_{name}" for name in left_out]
    if dynamic:
        quantize_dynamic(str(path), str(out), nodes_to_exclude=names)
    else:
        quantize_static(str(path), str(out), Given(), weight_type=QuantType.QInt8, nodes_to_exclude=names)
    return stock(out, feeds, 99)


def openvino(path: Path, feeds: Mapping[str, Array]) -> Outputs:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(core.read_model(str(path)), "CPU")
    found = compiled(dict(feeds))
    return [found[n] for n in range(len(compiled.outputs))]


def tensors(out: Any) -> Outputs:
    import torch

    return [
        one.detach().double().numpy()
        for one in (out if isinstance(out, tuple) else (out,))
        if isinstance(one, torch.Tensor)
    ]


def module(name: str) -> tuple[Any, Any]:
    """A factory's module in evaluation, and its inputs, seeded alike."""
    import torch

    torch.manual_seed(0)
    made, inputs = getattr(torch_cases, name)()
    return made.eval(), inputs if isinstance(inputs, tuple) else (inputs,)


def narrow(name: str, how: str) -> tuple[float, None]:
    """A PyTorch module in a type, under autocast or compiled, against itself in float32."""
    import torch

    (net, given), (other, same) = module(name), module(name)
    with torch.no_grad():
        want = tensors(net(*given))
        if how == "compile":
            return off(tensors(torch.compile(other)(*same)), want), None
        if how == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                return off(tensors(other(*same)), want), None
        kind = getattr(torch, how)
        return off(tensors(other.to(kind)(*(one.to(kind) for one in same))), want), None


def mended(name: str) -> float:
    """The same PyTorch case with its fault mended by hand, against float32."""
    import torch
    import torch.nn.functional as F

    net, given = module(name)
    with torch.no_grad():
        want = tensors(net(*given))
        x = given[0]
        if name == "norm_of_a_black_border":
            net, x = net.half(), x.half()
            unit = F.normalize(x.float(), dim=1).half()
            return off(tensors(net.last(F.silu(unit * 16**0.5 * net.gamma))), want)
        if name == "mean_of_many_losses":
            net, x = net.half(), x.half()
            loss = net.b(torch.relu(net.a(x))).square().sum(-1).clamp(max=60)
            return off(tensors((loss.float().sum() / loss.numel(), torch.tanh(loss * 0.1))), want)
        if name == "snake_of_a_steep_vocoder":
            net.b, y, steep = net.b.bfloat16(), net.a(x), net.log_alpha.exp()
            y = y + (1 / (steep + 1e-9)) * torch.sin(y * steep).pow(2) * 60
            return off(tensors(net.b(y.bfloat16())), want)
        if name == "places_of_an_image_behind_65536":
            angle = torch.matmul(net.inverse.expand(2, 8, 1), (65536 + torch.arange(16.0)).expand(2, 1, 16))
            angle = angle.transpose(1, 2)
            with torch.autocast("cpu", torch.bfloat16):
                y = net.a(x)
                both = [y[..., :8] * angle.cos() - y[..., 8:] * angle.sin(), y[..., 8:] * angle.cos()]
                return off(tensors(net.b(torch.cat(both, -1))), want)
        if name == "key_of_a_counted_place":
            net.prime = torch.tensor([1_000_000_007])
            compiled = torch.compile(lambda x: torch.arange(0, x.shape[1], dtype=torch.int64) * net.prime)
            return off(tensors((compiled(x),)), want[1:])
    raise KeyError(name)


def exported(case: Thread, folder: Path) -> float:
    """An ONNX file against the module that it came from, or should have."""
    import torch

    path, _, feeds = case.make(folder)
    net, _ = module(case.name)
    with torch.no_grad():
        want = tensors(net(*(torch.from_numpy(one) for one in (feeds or {}).values())))
    return off(stock(Path(path), feeds or {}), want)


def paddle_run(path: Path, feeds: Mapping[str, Array], how: str = "") -> Outputs:
    import paddle.inference as paddle

    told = paddle.Config(str(path), str(path.with_suffix(".pdiparams")))
    told.disable_glog_info()
    if how:
        told.enable_mkldnn()
        if how == "bfloat16":
            told.enable_mkldnn_bfloat16()
    else:
        told.disable_mkldnn()
        told.switch_ir_optim(False)
    predictor = paddle.create_predictor(told)
    for name, value in feeds.items():
        predictor.get_input_handle(name).copy_from_cpu(value)
    predictor.run()
    return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]


HALF = {"norm_of_a_loud_band": ("energy", "root", "unit"), "lowest_number_under_low_scores": ("masked", "share")}
INT8 = {
    "mask_of_ten_thousand_in_int8": ("masked", "far", "share"), "depthwise_filters_in_dynamic_int8": ("dw",),
    "upscaled_image_with_its_residual": (), "expectation_over_sixteen_bins": (),
}  # fmt: skip


def measure(case: Thread, folder: Path) -> tuple[float | str, float | str | None]:
    """As it is, and mended; None: nothing to mend, or its remedy is not a number."""
    if case.mode.startswith("torch_"):
        how = {"torch_fp16": "float16", "torch_bf16": "bfloat16", "torch_compile": "compile"}.get(case.mode, "autocast")
        return narrow(case.name, how)[0], mended(case.name) if case.who else None
    path, base, feeds = case.make(folder)
    path, feeds = Path(path), feeds or {}
    if case.baseline == "torch_fp32":
        return exported(case, folder), None
    if case.name in HALF:
        want = stock(path, feeds)
        return off(in_half(path, feeds), want), off(in_half(path, feeds, HALF[case.name]), want)
    if case.name in INT8:
        want, dynamic = stock(path, feeds), case.mode.endswith("dynamic")
        left = INT8[case.name]
        return off(in_int8(path, feeds, dynamic), want), off(
            in_int8(path, feeds, dynamic, left), want
        ) if left else None
    if case.mode == "ov_opt":
        return off(openvino(path, feeds), stock(path, feeds)), None
    if case.mode.startswith("onednn"):
        return off(paddle_run(path, feeds, case.mode.removeprefix("onednn_").replace("bf16", "bfloat16")),
                   paddle_run(path, feeds)), None  # fmt: skip
    if case.name == "mask_whose_corners_are_not_aligned":
        want = paddle_run(Path(str(base)), feeds)
        model = onnx.load(path)
        resize = next(one for one in model.graph.node if one.op_type == "Resize")
        next(one for one in resize.attribute if one.name.startswith("coordinate")).s = b"align_corners"
        return off(stock(path, feeds), want), off(stock(model.SerializeToString(), feeds), want)
    if case.name == "one_over_one_behind_an_identity":
        try:
            stock(path, feeds, 99)
        except Exception as error:
            told = str(error).splitlines()[0][:90]
            return told, off(stock(path, feeds, 99, ["DivMulFusion"]), stock(path, feeds))
        return "runs", None
    if case.name == "calibrated_on_raw_pixels":
        want = stock(Path(str(base)), feeds)
        return off(stock(path, feeds, 99), want), off(in_int8(Path(str(base)), feeds), want)
    if base is not None:
        return off(stock(path, feeds), stock(Path(str(base)), feeds)), None
    return "see tests/data/litert/make.py", None


def all_cases() -> list[Thread]:
    return [*files.CASES, *torch_cases.CASES, *others.CASES]


def main() -> int:
    warnings.simplefilter("ignore")
    call: Callable[[Thread, Path], Any] = measure
    for case in all_cases():
        if len(sys.argv) > 1 and not any(word in case.name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as name:
            try:
                found = call(case, Path(name))
            except Exception as error:
                found = (f"{type(error).__name__}: {error}"[:200], None)
        told = (f"{one:.3g}" if isinstance(one, float) else str(one) for one in found if one is not None)
        print(f"{case.name} ({case.mode}, {case.thread}): {', mended '.join(told)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
