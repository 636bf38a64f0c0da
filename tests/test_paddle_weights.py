"""Weights that are not those of the program: the file that is at fault is named, and it is the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from approval import raises_approved

pytest.importorskip("paddle", reason="needs paddlepaddle")

from paddle_models import legacy
from precision_debug_paddle import PaddleBackend

from precision_debug.errors import ModelError
from precision_debug.records import ModelFiles, SessionSpec


@pytest.mark.parametrize("kind", ["cut", "random", "empty", "longer", "another model's"])
def test_the_wrong_weights_are_named(tmp_path: Path, kind: str) -> None:
    program = legacy("mlp", tmp_path)
    whole = program.with_suffix(".pdiparams").read_bytes()
    wrong = tmp_path / "wrong.pdiparams"
    contents = {
        "cut": whole[: len(whole) // 2], "random": bytes(range(7, 207)) * 5, "empty": b"", "longer": whole + b"more",
    }  # fmt: skip
    wrong.write_bytes(contents[kind] if kind in contents else _other(tmp_path))
    spec = SessionSpec(
        model=ModelFiles(model_file=str(program), params_file=str(wrong)), mode="cpu_fp32", work_dir=str(tmp_path)
    )
    with raises_approved(ModelError):
        PaddleBackend().open(spec, [])


def _other(tmp_path: Path) -> bytes:
    (tmp_path / "other").mkdir()
    return legacy("cnn", tmp_path / "other").with_suffix(".pdiparams").read_bytes()
