"""The contract suite over this backend's modes, levels and kinds of files."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch import TorchBackend

from precision_debug.records import ModelFiles, SessionSpec

MODELS = Path(__file__).with_name("torch_models.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The saved models, by name; each is made once."""
    folder = tmp_path_factory.mktemp("saved")
    return {name: saved(folder / name) for name in ("resnet.pt2", "resnet.pt")}


def saved(path: Path) -> str:
    """A ResNet as an exported program or as TorchScript, by the file's ending."""
    import torch
    import torch_models

    module, x = torch_models.resnet()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt2":
            torch.export.save(torch.export.export(module, (x,)), path)
        else:
            torch.jit.trace(module, (x,)).save(str(path))
    return str(path)


@pytest.fixture(
    params=[
        ("torch_fp32", "op", "resnet"),
        ("torch_fp64", "op", "encoder"),
        ("torch_bf16", "module", "decoder"),
        ("torch_fp16", "op", "repvgg"),
        ("torch_autocast_bf16", "op", "decoder"),
        ("torch_autocast_fp16", "module", "encoder"),
        ("torch_tf32", "op", "resnet"),
        ("torch_int8", "op", "encoder"),
        ("torch_fp32", "module", "resnet.pt2"),
        ("torch_autocast_bf16", "op", "resnet.pt"),
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path: Path, files: dict[str, str]) -> Subject:
    mode, level, factory = request.param
    backend = TorchBackend()
    options = {"level": level, "device": "cpu"}
    model = ModelFiles(model_file=f"{MODELS}:{factory.partition('.')[0]}")
    feeds = backend.examples(SessionSpec(model=model, mode="torch_fp32", options=options))
    if "." in factory:
        model = ModelFiles(model_file=files[factory])
    return Subject(
        backend=backend, mode=mode, model=model, feeds=[feeds], work_dir=str(tmp_path),
        import_name="precision_debug_torch", options=options,
    )  # fmt: skip
