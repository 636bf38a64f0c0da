"""Folders of tensors that other tools leave behind, as a side of a comparison: every pair, and the wrong layer."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import numpy_helper

import precision_debug
from precision_debug import Report
from precision_debug.cli import main
from precision_debug.errors import InputError, RecordingError
from precision_debug.products.dumps.dump import is_dump, read_dump
from precision_debug.recording import is_recording, open_recording

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from precision_debug_onnxruntime import OnnxRuntimeBackend

from precision_debug.records import ModelFiles, SessionSpec

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
ONNX = DIGITS / "digits.onnx"
RKNN = Path(__file__).parent / "data" / "rknn"
IMAGES = np.load(DIGITS / "test_images.npz")["image"][:3]
Values = dict[str, Any]


def values_of(path: Path = ONNX, count: int = 3) -> Values:
    """Every tensor of the model, by a run of ONNX Runtime."""
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp32")
    seen: Values = {}
    OnnxRuntimeBackend().open(spec, []).run(
        {"image": IMAGES[:count]}, lambda op, name, value: seen.update({name: np.array(value)})
    )  # fmt: skip
    return seen


def wrong(folder: Path) -> Path:
    """The model with another bias in its second block."""
    model = onnx.load(ONNX)
    for one in model.graph.initializer:
        if one.name == "bn2_bias":
            value = numpy_helper.to_array(one).copy()
            value[5] += 1.5
            one.CopyFrom(numpy_helper.from_array(value, one.name))
    onnx.save(model, folder / "wrong.onnx")
    return folder / "wrong.onnx"


def last(value: Any) -> Any:
    """Channels last."""
    return np.ascontiguousarray(value.transpose(0, 2, 3, 1)) if value.ndim == 4 else value


def mangled(folder: Path, values: Values) -> dict[str, str]:
    """As a tool of its own way: a number and a prefix in front, signs for signs, channels last."""
    for number, (name, value) in enumerate(values.items()):
        np.save(folder / f"{number:03d}_net_{name.replace('_', '-')}.npy", last(value))
    return {f"{number:03d}_net_{name.replace('_', '-')}": name for number, name in enumerate(values)}


def nameless(folder: Path, values: Values) -> dict[str, str]:
    """Raw FP16-rounded bytes under shuffled numbers, without shapes, channels last."""
    names = list(values)
    random.Random(3).shuffle(names)
    for number, name in enumerate(names):
        last(values[name]).astype(np.float16).astype(np.float32).tofile(folder / f"t{number}.raw")
    return {f"t{number}": name for number, name in enumerate(names)}


def as_text(folder: Path, values: Values) -> dict[str, str]:
    """Lists of numbers, as MNN and RKNN write them, names with slashes as underscores."""
    for name, value in values.items():
        lines = "\n".join(f"{one:.7g}" for one in value.reshape(-1))
        (folder / f"model_{name}_0.txt").write_text(lines + "\n", encoding="utf-8")
    return {f"model_{name}_0": name for name in values}


def quantised(folder: Path, values: Values) -> dict[str, str]:
    """uint8 with scale and zero point in a side file, as an NPU's runtime holds them."""
    side = {}
    for name, value in values.items():
        low, high = min(0.0, float(value.min())), float(value.max())
        scale = (high - low) / 255 or 1.0
        zero = round(-low / scale)
        codes = np.clip(np.rint(last(value) / scale) + zero, 0, 255).astype(np.uint8)
        codes.tofile(folder / f"{name}.bin")
        side[name] = {"dtype": "uint8", "scale": scale, "zero_point": zero, "shape": list(codes.shape)}
    (folder / "tensors.json").write_text(json.dumps(side), encoding="utf-8")
    return {name: name for name in values}


def of_trtexec(folder: Path, values: Values) -> dict[str, str]:
    """trtexec --exportOutput; the published format."""
    told = [
        {"name": name, "dimensions": "x".join(map(str, value.shape)), "values": value.reshape(-1).tolist()}
        for name, value in values.items()
    ]  # fmt: skip
    (folder / "out.json").write_text(json.dumps(told), encoding="utf-8")
    return {name: name for name in values}


def of_trtexec_log(folder: Path, values: Values) -> dict[str, str]:
    """trtexec --dumpOutput; the published format."""
    lines = ["&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --dumpOutput", "Output Tensors:"]
    for name, value in values.items():
        lines += [f"{name}: ({'x'.join(map(str, value.shape))})", " ".join(f"{one:.6g}" for one in value.reshape(-1))]
    stamp = "[11/23/2026-10:00:00] [I] "
    lines += ["", "&&&& PASSED TensorRT.trtexec [TensorRT v8601]"]
    (folder / "out.log").write_text("".join(f"{stamp}{line}\n" for line in lines), encoding="utf-8")
    return {name: name for name in values}


def of_qnn(folder: Path, values: Values) -> dict[str, str]:
    """qnn-net-run --debug; the published layout."""
    (folder / "Result_0").mkdir()
    for name, value in values.items():
        last(value).tofile(folder / "Result_0" / f"_{name}.raw")
    return {f"_{name}": name for name in values}


def of_msprobe(folder: Path, values: Values) -> dict[str, str]:
    """msprobe's dump of PyTorch at level L0; the published layout."""
    place = folder / "step0" / "rank0"
    (place / "dump_tensor_data").mkdir(parents=True)
    data = {}
    for name, value in values.items():
        file = f"Module.{name}.Conv2d.forward.0.output.0.npy"
        np.save(place / "dump_tensor_data" / file, value)
        data[f"Module.{name}.Conv2d.forward.0"] = {"output": [{"data_name": file, "shape": list(value.shape)}]}
    (place / "dump.json").write_text(json.dumps({"task": "tensor", "level": "L0", "data": data}), encoding="utf-8")
    return {name: name for name in values}


def safe(folder: Path, values: Values) -> dict[str, str]:
    """One .safetensors file, written by hand after the format's page."""
    header, at, parts = {}, 0, []
    for name, value in values.items():
        raw = value.astype(np.float16).tobytes()
        header[name] = {"dtype": "F16", "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(header).encode()
    (folder / "all.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
    return {f"all/{name}": name for name in values}


KINDS: dict[str, Callable[[Path, Values], dict[str, str]]] = {
    one.__name__: one
    for one in (mangled, nameless, as_text, quantised, of_trtexec, of_trtexec_log, of_qnn, of_msprobe, safe)
}


def dumped(folder: Path, kind: str, values: Values) -> tuple[Path, dict[str, str]]:
    place = folder / kind
    place.mkdir()
    names = KINDS[kind](place, values)
    alone = {"of_trtexec": "out.json", "of_trtexec_log": "out.log"}.get(kind)
    return (place / alone if alone else place), names


def pairs_of(folder: Path, dump: Path) -> dict[str, str]:
    """What the verb says, read back from the recording that it makes; name in the dump to the model's."""
    np.savez(folder / "in.npz", image=IMAGES)
    command = ["dumps", str(dump), "--model_file", str(ONNX), "--inputs", str(folder / "in.npz")]
    assert main([*command, "--record", str(folder / "rec")]) == 0
    session = open_recording(str(folder / "rec"))
    files = {one.file: one.name for one in read_dump(str(dump)).tensors}
    single = len(files) < 2
    if single:
        return {}
    return {files[meta.extra["Dump"]]: meta.name for meta in session.tensors if "Dump" in meta.extra}


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("nameless", False), *((kind, True) for kind in KINDS if kind not in ("of_trtexec", "of_trtexec_log", "safe"))],
)
def test_no_pair_is_wrong(tmp_path: Path, kind: str, fault: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the list that the writer keeps; of the engine with the wrong layer too."""
    dump, names = dumped(tmp_path, kind, values_of(wrong(tmp_path) if fault else ONNX))
    found = pairs_of(tmp_path, dump)
    copies = {"gap_out", "flatten_out"}  # equal bit for bit: without names either is either
    different = {(names[name], base) for name, base in found.items() if names[name] != base}
    assert not different or (kind in ("nameless", "of_qnn") and all(set(one) <= copies for one in different))
    assert len(found) == 15
    assert holds_approved(capsys.readouterr().out)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dump_is_a_side_and_the_wrong_layer_is_named(tmp_path: Path, kind: str) -> None:
    dump, _ = dumped(tmp_path, kind, values_of(wrong(tmp_path)))
    report = precision_debug.compare(ONNX, run_mode=str(dump), baseline="ort_fp32", inputs={"image": IMAGES})
    assert str(report.verdict) == "out of tolerance"
    assert [one.name for one in report.explanation.culprits] == ["bn2_out"]
    assert report.target.mode == str(dump)
    assert sum(row.comparison is not None for row in report.rows) == 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_dump_passes_as_either_side(tmp_path: Path, kind: str) -> None:
    dump, _ = dumped(tmp_path, kind, values_of())
    fed = {"inputs": {"image": IMAGES}, "explain": "off"}
    report = precision_debug.compare(ONNX, run_mode=str(dump), baseline="ort_fp32", **fed)
    assert str(report.verdict) == "as expected"
    report = precision_debug.compare(ONNX, run_mode="ort_opt", baseline=str(dump), **fed)
    assert sum(row.comparison is not None for row in report.rows) >= 9
    assert str(report.verdict) in {"as expected", "out of tolerance"}
    assert (report.outputs[0].relative_l2 or 0) < 0.02


def test_a_batch_axis_may_be_missing(tmp_path: Path) -> None:
    for name, value in values_of(count=1).items():
        np.save(tmp_path / f"{name}.npy", last(value)[0])
    report = precision_debug.compare(ONNX, run_mode=str(tmp_path), baseline="ort_fp32", inputs={"image": IMAGES[:1]})
    assert str(report.verdict) == "as expected"
    assert sum(row.comparison is not None for row in report.rows) == 15


def test_the_dumps_own_input_is_fed(tmp_path: Path) -> None:
    place = tmp_path / "d"
    place.mkdir()
    mangled(place, values_of())
    report = precision_debug.compare(ONNX, run_mode=str(place), baseline="ort_fp32")
    assert str(report.verdict) == "as expected"
    for file in place.glob("*image*"):
        file.unlink()
    with pytest.raises(InputError, match="--inputs"):
        precision_debug.compare(ONNX, run_mode=str(place), baseline="ort_fp32")


def test_torch_archives_are_read_without_unpickling_anything_else(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    for name, value in values_of().items():
        tensor = torch.from_numpy(value)
        torch.save({"output": tensor.T.contiguous().T if tensor.ndim == 2 else tensor}, tmp_path / f"{name}.pt")
    report = precision_debug.compare(ONNX, run_mode=str(tmp_path), baseline="ort_fp32", inputs={"image": IMAGES})
    assert str(report.verdict) == "as expected"
    evil = tmp_path / "evil"
    evil.mkdir()
    torch.save(print, evil / "x.pt")
    with pytest.raises(RecordingError, match="only tensors are read"):
        read_dump(str(evil))


def test_tflite_run_by_litert_itself(tmp_path: Path) -> None:
    """A real tool's dump: every tensor of LiteRT's interpreter, in its layout and under its names."""
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    run = Interpreter(
        model_path=str(Path(__file__).parent / "data" / "litert" / "digits_float32.tflite"),
        experimental_preserve_all_tensors=True, experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )  # fmt: skip
    run.resize_tensor_input(0, [3, 8, 8, 1])
    run.allocate_tensors()
    run.set_tensor(0, last(IMAGES))
    run.invoke()
    for op in run._get_ops_details():
        for index in op["outputs"]:
            name = next(one["name"] for one in run.get_tensor_details() if one["index"] == index)
            np.save(tmp_path / f"{name}.npy", run.get_tensor(index))
    report = precision_debug.compare(ONNX, run_mode=str(tmp_path), baseline="ort_fp32", inputs={"image": IMAGES})
    found = {row.name for row in report.rows if row.comparison is not None}
    held = ["relu1_out", "relu2_out", "pool_out", "relu3_out", "gap_out", "flatten_out", "logits", "probabilities"]
    assert found == set(held)
    assert str(report.verdict) == "as expected"


def test_what_is_left_over_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "d"
    place.mkdir()
    mangled(place, values_of())
    np.save(place / "weights.npy", np.ones((16, 3), np.float32))
    (place / "notes.txt").write_text("run on the board", encoding="utf-8")
    next(place.glob("*pool*")).unlink()
    np.savez(tmp_path / "in.npz", image=IMAGES)
    assert main(["dumps", str(place), "--model_file", str(ONNX), "--inputs", str(tmp_path / "in.npz")]) == 0
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert "notes.txt: not read" in said
    assert holds_approved(said, 2)


def test_another_input_pairs_nothing_by_value(tmp_path: Path) -> None:
    place = tmp_path / "d"
    place.mkdir()
    nameless(place, values_of())
    with pytest.raises(RecordingError, match="none of its 15 tensors"):
        precision_debug.compare(ONNX, run_mode=str(place), baseline="ort_fp32", inputs={"image": IMAGES[::-1] * 0.3})


def test_two_recordings_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of dumps too: two made with the same model need no model any more."""
    np.savez(tmp_path / "in.npz", image=IMAGES)
    for name, source in (("a", ONNX), ("b", wrong(tmp_path))):
        place = tmp_path / name
        place.mkdir()
        mangled(place, values_of(source))
        command = ["dumps", str(place), "--model_file", str(ONNX), "--inputs", str(tmp_path / "in.npz")]
        assert main([*command, "--record", str(tmp_path / f"rec_{name}")]) == 0
    sides = ["--run_mode", str(tmp_path / "rec_b"), "--baseline", str(tmp_path / "rec_a")]
    assert main([*sides, "--atol", "1e-3", "--rtol", "1e-3", "--output", str(tmp_path / "o.json")]) == 1
    report = Report.load(tmp_path / "o.json")
    assert report.first_mismatch.name == "bn2_out"
    capsys.readouterr()
    assert main(["--run_mode", str(tmp_path / "b"), "--baseline", str(tmp_path / "a")]) == 2
    assert holds_approved(capsys.readouterr().err)


def test_a_partial_recording_and_an_empty_folder_are_no_dumps(tmp_path: Path) -> None:
    (tmp_path / "rec" / "tensors").mkdir(parents=True)
    np.save(tmp_path / "rec" / "tensors" / "000001.npy", np.zeros(3))
    (tmp_path / "empty").mkdir()
    assert not is_dump(str(tmp_path / "rec"))
    assert not is_dump(str(tmp_path / "empty"))
    assert not is_recording(tmp_path / "rec")


@pytest.mark.parametrize("broken", ["pt", "safetensors", "npz", "npy"])
def test_a_damaged_file_is_one_line(tmp_path: Path, broken: str) -> None:
    (tmp_path / f"x.{broken}").write_bytes(b"\x80\x02garbage" * 9)
    with pytest.raises(RecordingError) as caught:
        read_dump(str(tmp_path))
    assert "\n" not in str(caught.value)
    shutil.copy(DIGITS / "test_labels.npy", tmp_path / "labels.npy")
    assert set(read_dump(str(tmp_path)).skipped) == {f"x.{broken}"}


def test_rknns_simulator_of_a_healthy_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A real folder of rknn-toolkit2's accuracy_analysis: INT8 for RK3588, and taken for that."""
    np.savez(tmp_path / "in.npz", image=IMAGES[:1])
    command = ["dumps", str(RKNN / "healthy"), "--model_file", str(ONNX), "--inputs", str(tmp_path / "in.npz")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert holds_approved(said, 2)
    pairs = dict(line.split("  (")[0].split("  <-  ") for line in said.splitlines() if "<-" in line)
    same = ["image", "bn1_out", "relu1_out", "bn2_out", "relu2_out", "pool_out", "bn3_out", "relu3_out", "gap_out"]
    told = {**{name: name for name in same}, "logits": "logits_mm", "probabilities": "probabilities"}
    assert {name.strip(): other for name, other in pairs.items()} == told
    report = precision_debug.compare(ONNX, run_mode=str(RKNN / "healthy"), inputs={"image": IMAGES[:1]})
    assert str(report.verdict) == "as expected"


def test_rknns_simulator_of_an_outlier_channel(tmp_path: Path) -> None:
    """The channel is 200 x larger and the weight that reads it 200 x smaller there: that becomes 0 in 8 bits, as RKNN's
    own table has it, which blames the layer that reads the channel."""
    spec = importlib.util.spec_from_file_location("rknn_make", RKNN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    onnx.save(made.outlier(), tmp_path / "outlier.onnx")
    report = precision_debug.compare(
        tmp_path / "outlier.onnx", run_mode=str(RKNN / "outlier"), inputs={"image": IMAGES[:1]}
    )  # fmt: skip
    first = report.explanation.culprits[0]
    assert (first.name, first.cause, first.evidence["weight"]) == ("bn3_out", "constant_scale", "conv3_weight")
    assert first.evidence["left"] < 0.25


@pytest.mark.parametrize(("bits", "steps"), [(8, True), (0, False)])
def test_even_steps_are_int8s(bits: int, steps: bool) -> None:
    from precision_debug.products.dumps.dumped import are_on_steps

    value = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    assert are_on_steps(np.rint(value / 0.031) * np.float32(0.031) if bits else value) is steps


def test_what_was_fed_shows_nothing_of_how_the_tool_computes(tmp_path: Path) -> None:
    """An image lies on even steps, and an output of a few numbers tells no type: the bound stays float32's."""
    values = values_of()
    place = tmp_path / "board"
    place.mkdir()
    np.save(place / "image.npy", values["image"])
    off = values["probabilities"] * (1 + 2e-3 * np.random.default_rng(0).normal(size=values["probabilities"].shape))
    np.save(place / "probabilities.npy", off.astype(np.float32))
    report = precision_debug.compare(ONNX, run_mode=str(place), baseline="ort_fp32")
    assert str(report.verdict) == "out of tolerance"
    assert not report.target.precision
    for name, value in values.items():
        np.save(place / f"{name}.npy", value if name == "image" else np.full_like(value, np.nan))
    assert not precision_debug.compare(ONNX, run_mode=str(place), baseline="ort_fp32").target.precision


@pytest.mark.parametrize(
    ("made", "what"), [(True, "holds no tensors"), (False, "there is no such folder")], ids=["empty", "absent"]
)
def test_a_folder_without_tensors_is_told_as_that(
    made: bool, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "board"
    if made:
        place.mkdir()
    np.savez(tmp_path / "in.npz", image=IMAGES)
    fed = ["--model_file", str(ONNX), "--inputs", str(tmp_path / "in.npz")]
    for command in (
        ["dumps", str(place), *fed],
        [*fed, "--run_mode", "ort_opt", "--baseline", str(place)],
        [*fed, "--run_mode", str(place), "--baseline", "ort_fp32"],
    ):
        assert main(command) == 2
        assert f"{place}: {what}" in capsys.readouterr().err


def test_pairs_are_listed_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "board"
    place.mkdir()
    values = values_of()
    mangled(place, values)
    np.save(place / "bn2_out.npy", np.ones((5, 3), np.float32))
    np.save(place / "image.npy", values["image"])
    assert main(["dumps", str(place), "--model_file", str(ONNX), "--lang", "zh"]) == 0
    said = capsys.readouterr().out
    assert "名称与数值" in said
    assert "没有与其大小和数值相同的张量" in said or "其形状 [5, 3]" in said
    for english in ("paired", "left over", "relative distance", "name and value", "its name matches"):
        assert english not in said
