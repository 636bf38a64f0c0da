"""The recorders that are copied beside somebody's program, in Python and C++, and runs of several ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import helper

import precision_debug
from precision_debug.products.dumps.dump import read_dump
from precision_debug.recording.recorder import Recorder

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

ROOT = Path(__file__).parents[1]
HOME = ROOT / "precision_debug" / "recording"


def network(folder: Path, w: Any, v: Any) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["dense"], name="dense"),
        helper.make_node("Relu", ["dense"], ["act"], name="act"),
        helper.make_node("MatMul", ["act", "v"], ["logits"], name="logits"),
    ]
    x, y = onnx_models.value("x", [4, w.shape[0]]), onnx_models.value("logits", [4, v.shape[1]])
    onnx.save(onnx_models.model(nodes, [x], [y], {"w": w, "v": v}), folder / "m.onnx")
    return folder / "m.onnx"


def weights() -> tuple[Any, Any, Any]:
    made = np.random.default_rng(0)
    shapes = ((4, 16), (16, 32), (32, 10))
    x, w, v = (made.normal(size=shape).astype(np.float32) for shape in shapes)
    return x, w, v


def test_it_is_one_file_that_needs_numpy_alone(tmp_path: Path) -> None:
    shutil.copy(HOME / "recorder.py", tmp_path)
    code = (
        "import sys, numpy as np\nfrom recorder import Recorder\n"
        "r = Recorder('d', rank=1, sample=2)\nr('Add', 'a b/\"ü\"', np.arange(6.).reshape(2, 3))\nr.step()\n"
        "r('Add', 'x', np.float32(3))\nprint([m for m in sys.modules if 'precision' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    line = json.loads((tmp_path / "d/step_0000/rank_1/sample_2/index.jsonl").read_text(encoding="utf-8"))
    assert line == {"name": 'a b/"ü"', "op_type": "Add", "dtype": "float64", "shape": [2, 3], "file": "000001.npy"}
    assert (tmp_path / "d/step_0001/rank_1/sample_2/000001.npy").exists()
    assert len((HOME / "recorder.py").read_text(encoding="utf-8").splitlines()) <= 110


def test_a_crash_loses_nothing(tmp_path: Path) -> None:
    """Killed in the middle of a write: what came before is there, and the torn rest does no harm."""
    code = (
        "import os, signal, sys, numpy as np\nfrom precision_debug.recording.recorder import Recorder\n"
        "r = Recorder(sys.argv[1])\n"
        "for i in range(5): r('Add', f't{i}', np.full(9, i, np.float32))\n"
        "open(r._place() / 'index.jsonl', 'a').write('{\"name\": \"torn'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d")], check=False, cwd=ROOT)
    assert done.returncode == -9
    dump = read_dump(str(tmp_path / "d"))
    assert [one.name for one in dump.tensors] == ["t0", "t1", "t2", "t3", "t4"]
    assert [float(one.value[0]) for one in dump.tensors] == [0, 1, 2, 3, 4]


def test_types_that_npy_does_not_know_come_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    record = Recorder(tmp_path / "d", names={"b", "f"}, most=100)
    value = torch.tensor([1.5, -3.25, 1e30], requires_grad=True).to(torch.bfloat16)
    record("Mul", "b", value)
    record("Mul", "left alone", value)
    record("Mul", "f", torch.zeros(101))
    (one,) = read_dump(str(tmp_path / "d")).tensors
    assert one.held == "bfloat16"
    np.testing.assert_array_equal(np.asarray(one.value, np.float32), value.float().detach().numpy())


def test_an_earlier_run_is_not_mixed_in(tmp_path: Path) -> None:
    Recorder(tmp_path)("Add", "x", np.zeros(3))
    with pytest.raises(FileExistsError):
        Recorder(tmp_path)("Add", "x", np.zeros(3))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("engine")
    source = ROOT / "examples" / "recorder" / "engine.cpp"
    strict = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([compiler, *strict, "-I", str(HOME), str(source), "-o", str(folder / "engine")], check=True)
    return folder / "engine"


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_a_cpp_engine_is_a_side(engine: Path, tmp_path: Path, wrong: bool) -> None:
    x, w, v = weights()
    x.tofile(tmp_path / "input.raw")
    np.concatenate([w.reshape(-1), v.reshape(-1)]).tofile(tmp_path / "weights.raw")
    subprocess.run([str(engine), *(["wrong"] if wrong else [])], cwd=tmp_path, check=True)
    report = precision_debug.compare(
        network(tmp_path, w, v), run_mode=str(tmp_path / "dump"), baseline="ort_fp32", inputs={"x": x}
    )  # fmt: skip
    assert sum(row.comparison is not None for row in report.rows) == 4
    if wrong:
        assert [one.name for one in report.explanation.culprits] == ["act"]
    else:
        assert str(report.verdict) == "as expected"


RANKS = """
import sys, numpy as np, torch, torch.distributed as dist
from precision_debug.recording.recorder import Recorder
rank, folder, wrong = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "wrong"
dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
x, w, v = (torch.from_numpy(np.load(f"{folder}/{name}.npy")) for name in "xwv")
record = Recorder(folder + "/dump", rank=rank)
half = w.shape[1] // 2
mine = slice(rank * half, (rank + 1) * half)
record("Input", "x", x)
dense = x @ w[:, mine]                     # columns of the weight: each rank holds a part along the last axis
record("ColumnParallelLinear", "dense", dense)
act = torch.relu(dense)
if wrong and rank == 1:
    act = act * 1.25
record("Relu", "act", act)
part = act @ v[mine]                       # rows: each rank holds a summand
record("RowParallelLinear", "logits", part)
dist.all_reduce(part)
record("AllReduce", "reduced", part)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_two_ranks_are_one_side(tmp_path: Path, wrong: bool) -> None:
    """A tensor-parallel run over gloo: joined along an axis, added up, or the same on both."""
    pytest.importorskip("torch", reason="needs torch")
    x, w, v = weights()
    for name, value in (("x", x), ("w", w), ("v", v)):
        np.save(tmp_path / f"{name}.npy", value)
    words = [str(tmp_path), "wrong" if wrong else "right"]
    ranks = [subprocess.Popen([sys.executable, "-c", RANKS, str(rank), *words], cwd=ROOT) for rank in (0, 1)]
    assert [one.wait(timeout=300) for one in ranks] == [0, 0]
    report = precision_debug.compare(
        network(tmp_path, w, v), run_mode=str(tmp_path / "dump"), baseline="ort_fp32", inputs={"x": x}
    )  # fmt: skip
    found = {row.name: row.extra["Found by"] for row in report.rows if row.comparison is not None}
    assert set(found) == {"x", "dense", "act", "logits"}
    assert "the same on 2 ranks" in found["x"]
    assert "2 ranks joined along axis 1" in found["dense"]
    assert "2 ranks joined along axis 1" in found["act"]
    assert "2 ranks added up" in found["logits"] or "the same on 2 ranks" in found["logits"]
    if wrong:
        assert [one.name for one in report.explanation.culprits] == ["act"]
    else:
        assert str(report.verdict) == "as expected"
