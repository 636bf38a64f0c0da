"""`inspect tactics` and `inspect capability`: files of ours and of Polygraphy's, and engines that can be asked."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_models
import pytest
from approval import holds_approved
from onnx import helper

from precision_debug.cli import main
from precision_debug.inspector import find_suspects, read_tactics


def ours(path: Path, **layers: int) -> Path:
    told = {name: {"implementation": 2, "tactic": tactic} for name, tactic in layers.items()}
    path.write_text(json.dumps({"format": "precision_debug tactics 1", "tensorrt": "8.6.1", "layers": told}))
    return path


def test_only_what_bad_builds_alone_took_is_suspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, tactics in (("good0", (1, 5)), ("good1", (2, 5)), ("bad0", (3, 5)), ("bad1", (1, 5))):
        ours(tmp_path / f"{name}.json", conv=tactics[0], fc=tactics[1])
    good, bad = str(tmp_path / "good*.json"), str(tmp_path / "bad*.json")
    assert main(["inspect", "tactics", good, "--diff", bad]) == 1
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert "only bad: implementation 2, tactic 3" in said
    assert "fc" not in said
    assert main(["inspect", "tactics", good, "--diff", good]) == 0
    assert main(["inspect", "tactics", str(tmp_path / "good0.json")]) == 0
    assert "conv: implementation 2, tactic 1" in capsys.readouterr().out


def test_a_layer_that_no_good_build_has_is_no_suspect() -> None:
    assert find_suspects([{"a": "1"}], [{"b": "2", "a": "1"}]) == []
    assert find_suspects([{"a": "1"}], [{"a": "2"}]) == [("a", frozenset({"2"}), frozenset({"1"}))]


def test_polygraphys_own_files_are_read(tmp_path: Path) -> None:
    pytest.importorskip("polygraphy", reason="needs polygraphy")
    from polygraphy.backend.trt.algorithm_selector import Algorithm, TacticReplayData

    data = TacticReplayData()
    data.add("conv", Algorithm(implementation=3, tactic=-42, inputs=[], outputs=[]))
    data.save(str(tmp_path / "r.json"))
    (found,) = read_tactics(str(tmp_path / "r.json")).values()
    assert list(found) == ["conv"]
    assert "implementation 3, tactic -42" in found["conv"]


@pytest.mark.parametrize("text", ["{", "{}", '{"lst": [1]}', '["a"]'])
def test_what_is_no_tactic_file_is_one_line(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text(text)
    assert main(["inspect", "tactics", str(tmp_path / "x.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_openvino_is_asked_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openvino", reason="needs openvino")
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    assert main(["inspect", "capability", str(tmp_path / "m.onnx"), "--run_mode", "ov_fp32"]) == 0
    said = capsys.readouterr().out
    assert "on CPU: takes" in said
    assert "refuses 0" in said


def test_tensorrts_parser_is_asked_in_both_of_its_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the stand-in, so in this process; tests/gpu/migration.py asks the real one."""
    from precision_debug_tensorrt.engine import device_memory, versions
    from tensorrt_fake import HostGpu, fake_tensorrt

    from precision_debug.products.tools import inspect

    nodes = [helper.make_node("Relu", ["x"], ["a"], name="one"), helper.make_node("Nowhere", ["a"], ["y"], name="two")]
    ends = [onnx_models.value(name, [2]) for name in "xy"]
    onnx.save(onnx_models.model(nodes, ends[:1], ends[1:], {}), tmp_path / "m.onnx")
    monkeypatch.setattr(inspect, "call_in_child", lambda _name, job, **_: inspect.survey_in_child(job, tmp_path, print))
    for version in ("8.6.1", "10.3.0"):
        trt = fake_tensorrt(version, untaken=("Nowhere",))
        memory = device_memory.Device(HostGpu(limit=10**9, free=10**9))
        monkeypatch.setattr(versions, "load_api", lambda *_, trt=trt: versions.Api(trt))
        monkeypatch.setattr(device_memory, "find_device", lambda memory=memory: memory)
        assert main(["inspect", "capability", str(tmp_path / "m.onnx"), "--run_mode", "trt_fp16"]) == 1
        said = capsys.readouterr().out
        assert f"TensorRT {version} on GPU: takes" in said
        assert "refuses 1\n  Nowhere two" in said


def test_an_engine_that_cannot_be_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    assert main(["inspect", "capability", str(tmp_path / "m.onnx"), "--run_mode", "ort_opt"]) == 2
    assert holds_approved(capsys.readouterr().err)
    assert main(["inspect", str(tmp_path / "m.onnx"), "--run_mode", "ort_opt"]) == 2
