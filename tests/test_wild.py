"""Real models: every number of a row is recomputed in float64 from sessions that have nothing of ours in them.

The folder that PRECISION_DEBUG_WILD names holds them (list.txt: tag, model, inputs); without it this is skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

import precision_debug
from precision_debug.records import Row

WILD = os.environ.get("PRECISION_DEBUG_WILD", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WILD, reason="PRECISION_DEBUG_WILD does not name a folder of real models"),
]
ATOL = RTOL = 1e-4
checked: dict[str, int] = {}


def listed() -> list[tuple[str, str, str]]:
    lines = (Path(WILD) / "list.txt").read_text().splitlines() if WILD else []
    found = [line.split() for line in lines]
    return [(tag, str(Path(WILD, model)), str(Path(WILD, inputs))) for tag, model, inputs in found]


class Reader(CalibrationDataReader):
    def __init__(self, feeds: dict[str, Any]) -> None:
        self.left = [feeds]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def every_value(path: Path, feeds: dict[str, Any], folder: Path, *, optimised: bool = False) -> dict[str, np.ndarray]:
    """All values of the main graph, marked as outputs, in a plain session of one thread."""

    def options(level: Any) -> Any:
        found = ort.SessionOptions()
        found.log_severity_level, found.graph_optimization_level, found.intra_op_num_threads = 4, level, 1
        return found

    levels = ort.GraphOptimizationLevel
    if optimised:
        dumping = options(levels.ORT_ENABLE_ALL)
        dumping.optimized_model_filepath = str(folder / "optimised.onnx")
        ort.InferenceSession(str(path), dumping, providers=["CPUExecutionProvider"])
        path = folder / "optimised.onnx"
    model = onnx.load(path)
    there = {item.name for item in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in there:
                model.graph.output.add().name = name
                there.add(name)
    marked = folder / "marked.onnx"
    onnx.save(model, marked)
    session = ort.InferenceSession(str(marked), options(levels.ORT_DISABLE_ALL), providers=["CPUExecutionProvider"])
    found = dict(zip([item.name for item in session.get_outputs()], session.run(None, feeds), strict=True))
    return {**feeds, **{name: value for name, value in found.items() if isinstance(value, np.ndarray)}}


def wrong(row: Row, base: np.ndarray, target: np.ndarray) -> str:
    """What a row says otherwise than float64 does; "" where nothing."""
    numbers = row.comparison
    assert numbers is not None
    if base.shape != target.shape:
        return "" if not numbers.shapes_match else f"shapes {base.shape} {target.shape}"
    if base.dtype.kind not in "fiub" or not base.size:
        return ""
    one, two = base.astype(np.float64), target.astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        return ""
    error = np.abs(two - one)
    mismatched = int(np.count_nonzero(error > ATOL + RTOL * np.abs(one)))
    told = (numbers.max_abs, numbers.base.min, numbers.base.max, numbers.target.min, numbers.target.max)
    expected = (error.max(), one.min(), one.max(), two.min(), two.max())
    if mismatched != numbers.mismatched:
        return f"{numbers.mismatched} mismatched, not {mismatched}"
    same = np.allclose(np.float64(told), np.float64(expected), rtol=1e-9, atol=0)  # type: ignore[arg-type]
    return "" if same else f"{told}, not {expected}"


def check(report: Any, base: dict[str, np.ndarray], target: dict[str, np.ndarray]) -> tuple[int, list[str]]:
    count, disagreements = 0, []
    for row in report.rows:
        name = row.target_name
        if row.comparison is None or row.view or name not in target or row.name not in base:
            continue
        count += 1
        text = wrong(row, base[row.name], target[name])
        if text:
            disagreements.append(f"{row.name} with {name}: {text}")
    return count, disagreements


def made(kind: str, path: str, feeds: dict[str, Any], folder: Path) -> Path:
    """The file that is the target: the model itself, or what the stock quantiser makes of it.

    None in float16: on the CPU a mark on such a value rounds what is float32 without it.
    """
    to = folder / f"{kind}.onnx"
    if kind == "dynamic":
        quantize_dynamic(path, str(to))
    elif kind == "int8":
        quantize_static(path, str(to), Reader(feeds))
    else:
        return Path(path)
    return to


@pytest.mark.parametrize("kind", ["optimised", "int8", "dynamic"])
@pytest.mark.parametrize(("tag", "path", "inputs"), listed(), ids=[tag for tag, _, _ in listed()])
def test_rows_are_those_of_an_independent_session(tag: str, path: str, inputs: str, kind: str, tmp_path: Path) -> None:
    feeds = dict(np.load(inputs))
    try:
        target = made(kind, path, feeds, tmp_path)
        theirs = every_value(target, feeds, tmp_path, optimised=kind == "optimised")
    except Exception as error:
        pytest.skip(f"the stock quantiser or a plain session refuses it: {str(error)[:200]}")
    report = precision_debug.compare(
        target, run_mode="ort_opt" if kind == "optimised" else "ort_fp32", baseline="ort_fp32", baseline_model=path,
        inputs=feeds, atol=ATOL, rtol=RTOL, explain="off", intra_op_num_threads=1,
    )  # fmt: skip
    count, disagreements = check(report, every_value(Path(path), feeds, tmp_path), theirs)
    checked[f"{tag} {kind}"] = count
    print(tag, kind, count)
    assert not disagreements, disagreements[:5]


def programs() -> list[str]:
    """Models as Paddle publishes them, beside their ONNX files."""
    return [tag for tag, _, _ in listed() if Path(WILD, "paddle", tag).is_dir()]


def every_hooked(tag: str, feeds: dict[str, Any], *, optimised: bool, onednn: bool) -> dict[str, list[np.ndarray]]:
    """What a plain predictor's own hook shows, by Paddle's names; more than one where a variable is written again."""
    inference = pytest.importorskip("paddle.inference", reason="paddlepaddle is not installed")
    folder = Path(WILD, "paddle", tag)
    config = inference.Config(str(folder / "inference.pdmodel"), str(folder / "inference.pdiparams"))
    config.disable_glog_info()
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(1)
    (config.enable_onednn if onednn else config.disable_onednn)()
    config.switch_ir_optim(optimised)
    config.enable_memory_optim(False)
    predictor = inference.create_predictor(config)
    found: dict[str, list[np.ndarray]] = {}
    predictor.register_output_hook(lambda kind, name, tensor: found.setdefault(name, []).append(np.array(tensor)))
    for name in predictor.get_input_names():
        handle = predictor.get_input_handle(name)
        handle.reshape(list(feeds[name].shape))
        handle.copy_from_cpu(np.ascontiguousarray(feeds[name]))
    predictor.run()
    return found


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32"])
@pytest.mark.parametrize("tag", programs())
def test_rows_of_a_paddle_model_are_those_of_plain_predictors(tag: str, mode: str) -> None:
    """Under oneDNN the hook shows blocked layouts, so what does not depend on the order is checked there."""
    inputs = next(path for name, _, path in listed() if name == tag)
    feeds, onednn = dict(np.load(inputs)), mode == "onednn_fp32"
    base = every_hooked(tag, feeds, optimised=False, onednn=False)
    target = every_hooked(tag, feeds, optimised=True, onednn=onednn)
    report = precision_debug.compare(
        Path(WILD, "paddle", tag), run_mode=mode, baseline="cpu_fp32", inputs=feeds, atol=ATOL, rtol=RTOL,
        explain="off", threads=1,
    )  # fmt: skip
    count, disagreements = 0, []
    for row in report.rows:
        ours, theirs = base.get(row.name, []), target.get(row.target_name, [])
        numbers = row.comparison
        if numbers is None or len(ours) != 1 or len(theirs) != 1 or ours[0].dtype.kind != "f" or not ours[0].size:
            continue
        count += 1
        if not onednn:
            text = wrong(row, ours[0], theirs[0])
        else:
            told = [numbers.base.min, numbers.base.max, numbers.target.min, numbers.target.max]
            expected = [side(array) for array in (ours[0], theirs[0]) for side in (np.min, np.max)]
            text = "" if np.allclose(told, expected, rtol=1e-9, atol=0) else f"{told}, not {expected}"  # type: ignore[arg-type]
        if text:
            disagreements.append(f"{row.name}: {text}")
    print(tag, mode, count, len(report.compared))
    assert not disagreements, (len(disagreements), disagreements[:5])
    assert count >= 0.9 * len(report.compared)


def test_it_was_done_for_many_rows() -> None:
    if len(checked) < 3 * len(listed()) - 6:
        pytest.skip("only some of the models were asked for")
    assert sum(checked.values()) >= 3000, checked
