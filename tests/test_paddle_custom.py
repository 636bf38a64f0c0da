"""Custom operators and sequences (LoD) in Paddle.

tests/data/paddle/custom.json: a linear layer, an operator custom_twice, relu, a linear layer, as Paddle 3.3.1 saves it.
sequences.pdmodel: a linear layer, sequence_pool (sum), a linear layer, as 3.3.1 saves it with FLAGS_enable_pir_api=0.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved
from precision_debug_paddle.engine.framework import custom_operators
from precision_debug_paddle.engine.program import is_lod, lod_names, lod_of
from precision_debug_paddle.failures import our_errors

import precision_debug
from precision_debug import cli
from precision_debug.errors import InputError, ModelError

pytestmark = pytest.mark.engine("paddle")

DATA = Path(__file__).parent / "data" / "paddle"

SOURCE = """
#include "paddle/extension.h"
std::vector<paddle::Tensor> Twice(const paddle::Tensor& x) {
  auto out = paddle::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = 2 * x.data<float>()[i];
  return {out};
}
PD_BUILD_OP(custom_twice).Inputs({"X"}).Outputs({"Out"}).SetKernelFn(PD_KERNEL(Twice));
"""


def test_the_custom_operators_of_a_program_are_named(tmp_path: Path) -> None:
    assert custom_operators(str(DATA / "custom.json")) == ["custom_twice"]
    assert custom_operators(str(DATA / "sequences.pdmodel")) == []
    assert custom_operators(str(tmp_path / "none.json")) == []


@pytest.mark.parametrize(
    "text",
    [
        "op [] kernel output args (0) defs should equal op outputs (1)",
        "(NotFound) Operator (custom_twice) is not registered.",
    ],
)
def test_a_missing_library_is_told(text: str) -> None:
    path = str(DATA / "custom.json")
    with pytest.raises(ModelError, match=r"does not know: custom_twice.*custom_ops_library"), our_errors(path):
        raise RuntimeError(text)


def test_offsets() -> None:
    assert lod_names("x", 0) == []
    assert lod_names("x", 1) == ["x.lod"]
    assert lod_names("x", 2) == ["x.lod.0", "x.lod.1"]
    assert is_lod("x.lod", ["x"])
    assert is_lod("x.lod.3", ["x"])
    assert not is_lod("y.lod", ["x"])
    assert not is_lod("x", ["x"])
    assert not is_lod("x.lodge", ["x"])
    deep = {"x": np.zeros(5), "x.lod.1": [0, 2, 3, 5], "x.lod.0": [0, 1, 3]}
    assert lod_of("x", deep, 5, "m") == [[0, 1, 3], [0, 2, 3, 5]]
    assert lod_of("x", {"x": np.zeros(5)}, 5, "m") == []
    wrong = [([0, 2, 4], "ends at 4, and x has 5 rows"), ([1, 5], "begin with 0"), ([0, 3, 2, 5], "never")]
    for offsets, said in wrong:
        with pytest.raises(InputError, match=said):
            lod_of("x", {"x.lod": np.array(offsets)}, 5, "m")


def test_sequences_are_fed_with_their_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("paddle")
    rows = np.arange(20, dtype=np.float32).reshape(5, 4) / 10
    model = DATA / "sequences.pdmodel"

    def compared(offsets: list[int]) -> Any:
        return precision_debug.compare(model, run_mode="cpu_opt", inputs={"x": rows, "x.lod": np.array(offsets)})

    report = compared([0, 2, 5])
    assert str(report.verdict) == "as expected"
    pooled = {row.name: row.comparison for row in report.rows if row.comparison is not None}
    assert pooled["fc_1.tmp_1"].base.shape == (2, 3)
    assert {row.comparison.base.shape for row in compared([0, 1, 3, 5]).rows if row.is_output} == {(3, 3)}
    np.savez(tmp_path / "rows.npz", x=rows)
    status = cli.main(["--model_file", str(model), "--run_mode", "cpu_opt", "--inputs", str(tmp_path / "rows.npz"),
                       "--output", str(tmp_path / "o.json")])  # fmt: skip
    assert status == 2
    assert "NAME.lod" in capsys.readouterr().err


def test_a_library_of_custom_operators_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("paddle")
    command = ["--model_file", str(DATA / "custom.json"), "--run_mode", "cpu_opt", "--output", str(tmp_path / "o.json")]
    assert cli.main(command) == 2
    assert holds_approved(capsys.readouterr().err)
    assert cli.main([*command, "--option", "custom_ops_library=['nowhere.so']"]) == 2
    assert "no such library: nowhere.so" in capsys.readouterr().err


@pytest.mark.slow
def test_a_custom_operator_is_compared(tmp_path: Path) -> None:
    """Its library is compiled, which takes 10 s of a processor."""
    paddle = pytest.importorskip("paddle")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    there = Path(paddle.__file__).parent
    (tmp_path / "twice.cc").write_text(SOURCE)
    library = tmp_path / "libtwice.so"
    include = [f"-I{there}/include", f"-I{there}/include/third_party", f"-I{sysconfig.get_paths()['include']}"]
    where = [f"-L{there}/base", f"-L{there}/libs", "-l:libpaddle.so", f"-Wl,-rpath,{there}/base"]
    options = ["-O1", "-shared", "-fPIC", "-std=c++17", "-w", "-DPADDLE_WITH_CUSTOM_KERNEL"]
    subprocess.run([compiler, *options, str(tmp_path / "twice.cc"), "-o", str(library), *include, *where], check=True)
    for mode in ("cpu_opt", "onednn_bf16"):
        report = precision_debug.compare(DATA / "custom.json", run_mode=mode, custom_ops_library=[str(library)])
        row = next(row for row in report.rows if "twice" in row.op_type)
        assert row.comparison is not None, mode
