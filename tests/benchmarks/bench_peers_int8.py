"""Others that choose what is left out of INT8, side by side: ``python bench_peers_int8.py [MODEL.onnx …]``.

MODEL.onnx has its inputs beside it as MODEL.npz; two planted models are always run. Asked is half of the error with
nothing left out. On OpenVINO: NNCF's quantize_with_accuracy_control, whose metric is 1 - the relative L2 error. On ONNX
Runtime: onnxruntime.quantization.qdq_loss_debug, which ranks tensors and chooses nothing, so that the makers of its
worst 1, 2, 4, … are left out until it holds. Both beside ``precision_debug search``. What each gives is run as it is by
the stock engine; evaluations are counted where a tool runs the model to judge it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

SHARE = 0.5


def cpu_seconds() -> float:
    """Of this process and the children that it waited for: other work on the machine changes them little."""
    return sum(os.times()[:4])


def planted(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    from planted.onnx_faults import CASES

    found = []
    for name in ("mask_in_int8", "outlier_activation"):
        model, _, feeds = next(case for case in CASES if case.name == name).make(folder)
        found.append((Path(model), feeds))
    return found


def error(exact: Any, got: Any) -> float:
    """Relative L2 error of the worst output."""
    pairs = [(np.asarray(e, np.float64), np.asarray(g, np.float64)) for e, g in zip(exact, got, strict=True)]
    return max(float(np.linalg.norm(g - e) / max(np.linalg.norm(e), 1e-30)) for e, g in pairs)


def by_onnxruntime(model: Any, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def ours(path: Path, inputs: Path, mode: str, folder: Path) -> str:
    output, begun = folder / f"{path.stem}-{mode}.json", cpu_seconds()
    subprocess.run(
        [sys.executable, "-m", "precision_debug", "search", "--model_file", str(path), "--inputs", str(inputs),
         "--run_mode", mode, "--limit", f"{100 * SHARE:.0f}%", "--quiet", "--runs", "40", "--output", str(output)],
        check=False, capture_output=True,
    )  # fmt: skip
    if not output.exists():
        return "nothing made"
    fix = json.loads(output.read_text(encoding="utf-8"))["fix"]
    after = "-" if fix["after"] is None else f"{fix['after']:.3g}"
    count = f"{len(fix.get('kept', ()))}/{fix['units']}"
    return f"{fix['state']}, {count} | {after} | {fix['evaluations']} | {cpu_seconds() - begun:.0f}"


def by_nncf(path: Path, feeds: dict[str, Any], exact: list[Any], _folder: Path) -> str:
    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.ERROR)
    model, calls, begun = openvino.Core().read_model(path), [0], cpu_seconds()
    data = nncf.Dataset([feeds])

    def run(one: Any) -> list[Any]:
        found = one(feeds)
        return [found[index] for index in range(len(exact))]

    def judge(one: Any, _data: Any) -> tuple[float, None]:
        calls[0] += 1
        return 1.0 - error(exact, run(one)), None

    with contextlib.redirect_stdout(io.StringIO()), np.errstate(over="ignore"):
        plain = openvino.Core().compile_model(nncf.quantize(model, data, subset_size=1), "CPU")
        before = error(exact, run(plain))
        made = nncf.quantize_with_accuracy_control(
            openvino.Core().read_model(path), data, data, validation_fn=judge, max_drop=SHARE * before,
            drop_type=nncf.DropType.ABSOLUTE, subset_size=1,
        )  # fmt: skip

    def low(one: Any) -> int:
        return sum(op.get_type_name() == "FakeQuantize" for op in one.get_ops())

    whole = low(nncf.quantize(openvino.Core().read_model(path), data, subset_size=1))
    after = error(exact, run(openvino.Core().compile_model(made, "CPU")))
    said = f"{whole - low(made)} of {whole} FakeQuantize gone"
    return f"{said} | {after:.3g} (before {before:.3g}) | {calls[0]} | {cpu_seconds() - begun:.0f}"


def by_loss_debug(path: Path, feeds: dict[str, Any], exact: list[Any], folder: Path) -> str:
    from onnxruntime import quantization
    from onnxruntime.quantization import qdq_loss_debug as debug

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([feeds])

        def get_next(self) -> Any:
            return next(self.left, None)

    begun, made = cpu_seconds(), folder / f"{path.stem}.q.onnx"

    def quantised(excluded: list[str]) -> float:
        quantization.quantize_static(
            str(path), str(made), Feeds(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
            weight_type=quantization.QuantType.QInt8, nodes_to_exclude=excluded,
        )  # fmt: skip
        return error(exact, by_onnxruntime(str(made), feeds))

    before = quantised([])
    seen = []
    for source in (path, made):
        augmented = folder / f"{source.stem}.all.onnx"
        debug.modify_model_output_intermediate_tensors(str(source), str(augmented))
        seen.append(debug.collect_activations(str(augmented), Feeds()))
    errors = debug.compute_activation_error(debug.create_activation_matching(seen[1], seen[0]))
    ranked = sorted(errors, key=lambda name: float(np.min(errors[name]["xmodel_err"])))  # a ratio in dB: worst first
    import onnx

    graph = onnx.load(path).graph
    maker = {out: node.name for node in graph.node for out in node.output}
    ranked = [maker[name] for name in ranked if name in maker]
    count, after, runs = 1, before, 3
    while ranked and count <= 2 * len(ranked):
        after = quantised(ranked[:count])
        runs += 1
        if after <= SHARE * before:
            break
        count *= 2
    kept = min(count, len(ranked))
    return f"{kept}/{len(ranked)} | {after:.3g} (before {before:.3g}) | {runs} | {cpu_seconds() - begun:.0f}"


def main(models: list[str]) -> int:
    print("| model | engine | tool | left out | error | evaluations | CPU seconds |")
    print("|---|---|---|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        every = planted(folder)
        for one in models:
            with np.load(Path(one).with_suffix(".npz")) as file:
                every.append((Path(one), {name: file[name] for name in file.files}))
        peers: list[tuple[str, str, str, Callable[..., str]]] = [
            ("OpenVINO", "ov_int8", "NNCF quantize_with_accuracy_control", by_nncf),
            ("ONNX Runtime", "ort_int8", "qdq_loss_debug, worst first", by_loss_debug),
        ]
        for path, feeds in every:
            inputs = folder / f"{path.stem}.npz"
            np.savez(inputs, **feeds)
            exact = by_onnxruntime(str(path), feeds)
            for engine, mode, name, peer in peers:
                print(f"| {path.stem} | {engine} | precision_debug search | {ours(path, inputs, mode, folder)} |",
                      flush=True)  # fmt: skip
                try:
                    told = peer(path, feeds, exact, folder)
                except Exception as failed:
                    told = f"fails: {type(failed).__name__}: {str(failed)[:90]} | | |"
                print(f"| {path.stem} | {engine} | {name} | {told} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
