"""A backend out of tree, of another kind than the guide's: contract and whole commands; no file of ours changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import precision_debug
from precision_debug import registry
from precision_debug.cli import main
from precision_debug.records import ModelFiles, Status
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

OUTSIDE = Path(__file__).with_name("outside")
sys.path.append(str(OUTSIDE))

from precision_debug_lstm import LstmBackend  # noqa: E402

WIDTH = 6


def model(folder: Path) -> str:
    random = np.random.default_rng(0)
    path = folder / "model.lstm"
    with path.open("wb") as file:
        np.savez(
            file, wx=random.normal(size=(5, 4 * WIDTH)), wh=random.normal(size=(WIDTH, 4 * WIDTH)),
            b=random.normal(size=4 * WIDTH),
        )  # fmt: skip
    return str(path)


X = {"x": np.random.default_rng(1).normal(size=(4, 3, 5)).astype(np.float32)}


@pytest.fixture(params=["lstm_fp32", "lstm_fp16", "lstm_half", "lstm_int8"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    return Subject(
        backend=LstmBackend(), mode=request.param, model=ModelFiles(model_file=model(tmp_path)), feeds=[X],
        work_dir=str(tmp_path), import_name="precision_debug_lstm",
    )  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """As pip would install it: the metadata of a wheel beside the module."""
    info = tmp_path / "site" / "precision_debug_lstm-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: precision-debug-lstm\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nlstm = precision_debug_lstm:LstmBackend\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    registry.plugins.cache_clear()
    yield model(tmp_path)
    registry.plugins.cache_clear()


@pytest.mark.parametrize("lockstep", [True, False])
def test_each_iteration_is_a_row(installed: str, lockstep: bool) -> None:
    report = precision_debug.compare(installed, run_mode="lstm_fp16", inputs=X, lockstep=lockstep, explain="off")
    names = ["x", *(f"{name}@{step}" for step in range(4) for name in ("gates", "cell", "hidden")), "last"]
    assert sorted(row.name for row in report.rows) == sorted(names)
    assert all(row.comparison is not None for row in report.rows)
    assert report.verdict == "as expected"


def test_what_it_tells_is_in_the_report(installed: str) -> None:
    report = precision_debug.compare(installed, run_mode="lstm_int8", inputs=X, bits=3, output="o.xlsx", atol=1e-4)
    assert {row.extra.get("Weights") for row in report.rows} == {None, "INT3"}
    assert [layer.name for layer in report.layers] == ["lstm"]
    assert any(row.status is Status.FAIL for row in report.rows)
    assert Path("o.xlsx").stat().st_size > 1000


@pytest.mark.parametrize("options", [{"fail_fast": True}, {"explain": "off"}, {}])
def test_what_a_mode_is_called_decides_nothing(installed: str, options: dict[str, object]) -> None:
    """lstm_half is lstm_fp16 under a name whose letters say no precision: the bounds go by RunMode.precision."""
    first, second = (precision_debug.compare(installed, run_mode=mode, inputs=X, **options)  # type: ignore[arg-type]
                     for mode in ("lstm_fp16", "lstm_half"))  # fmt: skip
    assert first.verdict == second.verdict == "as expected"
    assert [row.status for row in first.rows] == [row.status for row in second.rows]
    assert first.target.precision == second.target.precision == "float16"
    assert [doubt.code for doubt in first.doubts] == [doubt.code for doubt in second.doubts]


def test_a_recording_keeps_the_precision_of_its_run(installed: str, tmp_path: Path) -> None:
    """Its folder is called as the user likes."""
    kept = tmp_path / "of_fp32"
    np.savez(tmp_path / "x.npz", **X)
    given = ["--model_file", installed, "--inputs", str(tmp_path / "x.npz"), "--record", str(kept)]
    assert main(["--run_mode", "lstm_half", *given]) == 0
    report = precision_debug.compare(installed, run_mode="lstm_fp32", baseline=str(kept), explain="off")
    assert report.baseline.precision == "float16"
    assert not [doubt for doubt in report.doubts if doubt.code == "not_fp32"]
