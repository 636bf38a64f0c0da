"""`inspect model FILE` of every engine's own files: what is told is what the engine itself says that the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import begins_approved, holds_approved, is_approved
from onnx import helper

from precision_debug.cli import main

WHOLE = ["--show", "layers", "attributes", "weights"]


def told(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["inspect", "model", str(path), *more]) == 0
    return capsys.readouterr().out


def ort_file(proto: Any, path: Path) -> Path:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return path


def test_ort_files_hold_what_their_onnx_model_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 2, 1, 2], auto_pad="NOTSET"),
        helper.make_node("LeakyRelu", ["c"], ["y"], name="leaky", alpha=0.125),
    ]
    weight = {"w": np.ones((1, 1, 3, 3), np.float32)}
    ends = [onnx_models.value("x", ["n", 1, 4, 4]), onnx_models.value("y", ["n", 1, 4, 6])]
    path = ort_file(onnx_models.model(nodes, ends[:1], ends[1:], weight), tmp_path / "m.ort")
    text = told(path, capsys, *WHOLE)
    for line in (
        "input   x  float32 [n, 1, 4, 4]", "output  y  float32 [n, 1, 4, 6]", "2 operators: 1 Conv, 1 LeakyRelu",
        "conv: x, w -> c", "pads = [1, 2, 1, 2]", "auto_pad = NOTSET", "alpha = 0.125", "\nw  float32 [1, 1, 3, 3]",
    ):  # fmt: skip
        assert line in text, line
    assert "ai.onnx 17" in text


@pytest.mark.parametrize("build", ["mlp", "if_model"])
def test_ort_files_of_other_models(build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every operator and weight that is in the ONNX file is told, also in bodies."""
    proto = getattr(onnx_models, build)()
    text = told(ort_file(proto, tmp_path / "m.ort"), capsys, *WHOLE)
    graphs = [proto.graph, *(a.g for node in proto.graph.node for a in node.attribute if a.HasField("g"))]
    for graph in graphs:
        assert all(f"-> {', '.join(node.output)}" in text for node in graph.node)


@pytest.mark.parametrize("damage", ["cut", "wrong", "absent"])
def test_a_damaged_ort_file_is_one_line(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ort_file(onnx_models.mlp(), tmp_path / "m.ort")
    data = path.read_bytes()
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 3] if damage == "cut" else b"\0" * 100)
    assert main(["inspect", "model", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_is_garbled_is_told_as_it_is_or_refused_in_one_line(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes changed anywhere in a file: 0, or 2 with one line, and never anything else."""
    program = next(path for path in sorted(root.rglob("*.pdmodel")) if ".git" not in path.parts)
    (tmp_path / "t.json").write_text('{"format": "precision_debug tactics 1", "layers": {"a": {"tactic": 1}}}')
    random = np.random.default_rng(0)
    for source in (ort_file(onnx_models.if_model(), tmp_path / "m.ort"), program, tmp_path / "t.json"):
        data = np.frombuffer(source.read_bytes(), np.uint8)
        for number in range(40):
            changed = data.copy()
            changed[random.integers(0, data.size, 1 + number % 8)] = random.integers(0, 256, 1 + number % 8)
            path = tmp_path / f"x{source.suffix}"
            path.write_bytes(changed.tobytes() if number % 5 else data.tobytes()[: int(random.integers(data.size))])
            words = ["tactics", str(path)] if source.suffix == ".json" else ["model", str(path), *WHOLE]
            status = main(["inspect", *words])
            said = capsys.readouterr().err.strip().splitlines()
            assert (status, len(said)) in ((0, 0), (2, 1)), (source.name, number, said)


def test_a_paddle_program_is_told_without_paddle_running(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sorted((root / "tests" / "data").rglob("*.pdmodel")) + sorted((root / "examples").rglob("*.pdmodel"))
    found += [path for path in sorted((root / "examples").rglob("*.json")) if path.with_suffix(".pdiparams").exists()]
    assert found
    for path in found:
        text = told(path, capsys, *WHOLE)
        assert "Paddle" in text.splitlines()[0]
        assert "input   " in text
        assert "output  " in text
        assert " weights: " in text


@pytest.mark.slow
def test_paddle_programs_of_both_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paddle = pytest.importorskip("paddle", reason="needs paddle")
    from paddle_models import export

    path = export("conv_norm", tmp_path)
    text = told(path, capsys, *WHOLE)
    held = paddle.jit.load(str(path.with_suffix("")))
    assert text.count("float32 [") >= len(held.state_dict())
    assert "conv2d" in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_an_exported_program_and_torchscript(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return torch.softmax(self.one(x), dim=-1)

    net, x = Net().eval(), torch.ones(2, 8)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "m.pt2")
    torch.jit.trace(net, x).save(str(tmp_path / "m.pt"))
    exported = told(tmp_path / "m.pt2", capsys, *WHOLE)
    assert "input   x  float32 [2, 8]" in exported
    assert "aten.softmax.int" in exported
    assert "dim = -1" in exported
    weight = net.one.weight.detach()
    assert f"one.weight  float32 [4, 8]  {weight.min():.6g} to {weight.max():.6g}" in exported
    script = told(tmp_path / "m.pt", capsys, *WHOLE)
    assert "aten::softmax" in script
    assert f"one.weight  float32 [4, 8]  {weight.min():.6g} to {weight.max():.6g}" in script
    data = (tmp_path / "m.pt").read_bytes()
    at = data.rindex(b"PK\x01\x02")  # the archive's directory
    for name, broken in (("b.pt2", b"PK nothing"), ("b.pt", data[:at] + b"PX" + data[at + 2 :]), ("c.pt", data[:900])):
        (tmp_path / name).write_bytes(broken)
        capsys.readouterr()
        assert main(["inspect", "model", str(tmp_path / name)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_an_openvino_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openvino = pytest.importorskip("openvino", reason="needs openvino")
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    openvino.save_model(
        openvino.convert_model(str(tmp_path / "m.onnx")), str(tmp_path / "m.xml"), compress_to_fp16=False
    )
    text = told(tmp_path / "m.xml", capsys, *WHOLE)
    assert "input   x  float32" in text
    assert "MatMul" in text
    assert "transpose_a = False" in text or "transpose_a = false" in text
    (tmp_path / "m.xml").write_text("<net>")
    assert main(["inspect", "model", str(tmp_path / "m.xml")]) == 2


def test_an_engine_by_the_stand_in_for_tensorrt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked of TensorRT and how it is told; a real engine is inspected in tests/gpu/migration.py."""
    import tensorrt_models
    from precision_debug_tensorrt import TensorRTBackend, opening
    from precision_debug_tensorrt.engine import device_memory, timing_cache, versions
    from tensorrt_fake import HostGpu, fake_tensorrt

    from precision_debug.records import ModelFiles, SessionSpec

    api = versions.Api(fake_tensorrt("10.3.0"))
    memory = device_memory.Device(HostGpu(limit=10**9, free=10**9))
    for place in (versions, opening):
        monkeypatch.setattr(place, "load_api", lambda *_: api)
    for place in (device_memory, opening):
        monkeypatch.setattr(place, "find_device", lambda: memory)
    monkeypatch.setattr(timing_cache, "_of_this_process", [])
    onnx.save(tensorrt_models.residual(), tmp_path / "m.onnx")
    feeds = {"image": np.ones((2, 3, 32, 32), np.float32)}
    options = {"save_engine": str(tmp_path / "m.engine")}
    files = ModelFiles(model_file=str(tmp_path / "m.onnx"))
    spec = SessionSpec(model=files, mode="trt_fp16", options=options, work_dir=str(tmp_path))
    TensorRTBackend().open(spec, [feeds]).close()
    text = told(tmp_path / "m.engine", capsys, "--show", "layers")
    first, size, memory_line, *rest = text.splitlines()
    assert holds_approved(first, 3)
    assert "layers, 1 profiles" in size
    assert is_approved(memory_line)
    assert "input   image  float32 [2, 3, 32, 32]" in rest
    assert begins_approved(list(rest), 2)
    assert any(line.startswith("real precision: ") and "FP16" in line for line in rest)
    assert any("tactic sm80_xmma_f16f16_f16f16_f16 0x1" in line for line in rest)
    assert any("conv1 + " in line and "FP16" in line for line in rest)


def test_without_tensorrt_an_engine_is_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tensorrt", None)
    (tmp_path / "m.engine").write_bytes(b"ftrt" + bytes(64))
    assert main(["inspect", str(tmp_path / "m.engine")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be read here" in line
    assert "--exportLayerInfo" in line


def test_what_nobody_reads_is_refused_with_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.h5").write_bytes(b"x")
    assert main(["inspect", "model", str(tmp_path / "m.h5")]) == 2
    said = capsys.readouterr().err
    assert all(ending in said for ending in (".onnx", ".ort", ".engine", ".pt2", ".xml", ".pdmodel"))
