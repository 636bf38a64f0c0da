"""Folders as the transformers library saves them."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from precision_debug_torch import TorchBackend
from precision_debug_torch.engine.saved_folder import load_folder

from precision_debug import cli, compare
from precision_debug.errors import ModelError
from precision_debug.records import ModelFiles, SessionSpec

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 99}

pytestmark = pytest.mark.engine("transformers")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**SIZES)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "bert"
    copied.mkdir()
    for file in saved.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    return copied


def test_a_folder_is_a_model(saved: Path, tmp_path: Path) -> None:
    report = compare(str(saved), run_mode="torch_bf16", explain="off")
    assert {info.name: info.dtype for info in report.inputs} == {"input_ids": "int64"}
    given = {info.name: info for info in report.inputs}["input_ids"]
    ids = np.zeros(given.shape, np.int64)
    ours = transformers.BertModel.from_pretrained(saved).eval()
    with torch.no_grad():
        wanted = ours(torch.from_numpy(ids)).last_hidden_state
    np.savez(tmp_path / "ids.npz", input_ids=ids)
    again = compare(str(saved), run_mode="torch_bf16", explain="off", inputs=str(tmp_path / "ids.npz"))
    last = next(row for row in again.rows if row.name == "output.last_hidden_state")
    assert last.comparison is not None
    assert last.comparison.base.max == pytest.approx(float(wanted.max()), rel=1e-5)


def test_commands_read_it(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inputs", str(saved)]) == 0
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert f"--model_file {saved} --run_mode torch_fp16 --input_shapes 'input_ids:[2,32]'" in said
    assert cli.main(["marks", "--model_dir", str(saved), "--names_only"]) == 0
    assert "output.last_hidden_state" in capsys.readouterr().out.splitlines()


def refused(folder: Path) -> str:
    """Why the backend does not open it: one line, which names the folder."""
    spec = SessionSpec(model=ModelFiles(model_dir=str(folder)), mode="torch_bf16", options={"device": "cpu"})
    with pytest.raises(ModelError) as caught:
        TorchBackend().open(spec, [])
    said = str(caught.value)
    assert "\n" not in said
    assert str(folder) in said
    return said


def refused_by_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["--model_dir", str(folder), "--run_mode", "torch_bf16", "--output", f"{folder}.json"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    return said[0]


@pytest.mark.parametrize("named", ["NoSuchModel", "AutoModel", "pipeline", "__class__", 7, None, {}])
def test_only_its_classes_are_built(folder: Path, named: object) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": [named], "model_type": "bert"}))
    assert "factory" in refused(folder)


def test_code_in_the_folder_is_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["Own"], "auto_map": {"AutoModel": "own.Own", "AutoConfig": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    assert "no model Own" in refused(folder)
    assert "no model Own" in refused_by_the_command(folder, capsys)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [({"_attn_implementation": "somebody/kernel"}, "kernel from elsewhere"),
     ({"attn_implementation": {"": "somebody/kernel@v1"}}, "kernel from elsewhere"),
     ({"text_config": {"experts_implementation": "somebody/kernel"}}, "kernel from elsewhere"),
     ({"quantization_config": {"quant_method": "mxfp4"}}, "quantised")],
)  # fmt: skip
def test_what_would_be_fetched_is_refused(folder: Path, more: dict[str, object], said: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))
    assert said in refused(folder)


def test_an_adapter_is_not_followed(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "somebody/model"}))
    assert "adapter" in refused(folder)


def test_the_process_is_left_as_it_was(saved: Path) -> None:
    before = dict(os.environ)
    load_folder(str(saved))
    assert dict(os.environ) == before


def test_pickles_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    assert "holds no safetensors" in refused(folder)


def test_damaged_and_special_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.safetensors").write_bytes(b"\0" * 9)
    assert holds_approved(refused(folder))
    (folder / "config.json").unlink()
    assert "no config.json" in refused(folder)
    os.mkfifo(folder / "config.json")
    assert "is a pipe" in refused_by_the_command(folder, capsys)


def test_the_wrapper_that_is_handed_over_builds_it(saved: Path, tmp_path: Path) -> None:
    spec = SessionSpec(model=ModelFiles(model_dir=str(saved)), mode="torch_bf16", options={})
    keep = TorchBackend().keep(spec)
    assert keep is not None
    *_, handed = keep.hand_over(["pooler"], (), tmp_path)
    module = runpy.run_path(handed.path)["model"]()
    assert module.pooler.dense.weight.dtype == torch.float32
    assert module.encoder.layer[0].output.dense.weight.dtype == torch.bfloat16
    with torch.no_grad():
        assert module(torch.zeros((1, 4), dtype=torch.int64)).pooler_output.isfinite().all()


@pytest.fixture(scope="module")
def rotary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its rotary embedding's frequencies are float32 in every type that it is loaded in."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, max_position_embeddings=2048)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("mode", "name"), [("torch_bf16", "bfloat16"), ("torch_fp16", "float16")])
def test_a_narrow_mode_loads_it_as_it_is_deployed(rotary: Path, tmp_path: Path, mode: str, name: str) -> None:
    ids = np.arange(512, dtype=np.int64)[None] % 99
    np.savez(tmp_path / "ids.npz", input_ids=ids)
    dtype = getattr(torch, name)
    exact = transformers.LlamaForCausalLM.from_pretrained(rotary, torch_dtype=torch.float32).eval()
    deployed = transformers.LlamaForCausalLM.from_pretrained(rotary, torch_dtype=dtype).eval()
    with torch.no_grad():
        wanted, plain = (model(torch.from_numpy(ids)).logits.float() for model in (exact, deployed))
        error = float((plain - wanted).norm() / wanted.norm())
        other = exact.to(dtype)(torch.from_numpy(ids)).logits.float()
    assert not torch.equal(plain, other), "the two ways differ, so that the one that runs can be told"
    report = compare(str(rotary), run_mode=mode, device="cpu", explain="off", inputs=str(tmp_path / "ids.npz"))
    row = next(row for row in report.rows if row.name == "output.logits")
    assert row.relative_l2 == pytest.approx(error, rel=1e-5)
    said = [str(note) for note in report.target.notes]
    assert any("loaded by from_pretrained" in note and "model.rotary_emb.inv_freq" in note for note in said)


def test_a_factory_is_narrowed_by_its_module_and_the_difference_is_told(rotary: Path) -> None:
    from precision_debug_torch.live import compare_module

    module = transformers.LlamaForCausalLM.from_pretrained(rotary, torch_dtype=torch.float32).eval()
    ids = torch.arange(64)[None] % 99
    report = compare_module(module, {"input_ids": ids}, run_mode="torch_bf16", device="cpu")
    said = [str(note) for note in report.target.notes]
    assert any("rounds" in note and "model.rotary_emb.inv_freq" in note for note in said)


def test_the_wrapper_of_such_a_folder_is_what_was_judged(rotary: Path, tmp_path: Path) -> None:
    from precision_debug_torch.backend import open_model

    spec = SessionSpec(model=ModelFiles(model_dir=str(rotary)), mode="torch_bf16", options={})
    backend = TorchBackend()
    keep = backend.keep(spec)
    assert keep is not None
    *_, handed = keep.hand_over(["lm_head"], (), tmp_path)
    module = runpy.run_path(handed.path)["model"]()
    assert module.model.rotary_emb.inv_freq.dtype == torch.float32
    assert module.lm_head.weight.dtype == torch.float32
    ids = np.arange(64, dtype=np.int64)[None] % 99
    with torch.no_grad():
        wanted = module(torch.from_numpy(ids)).logits.float().numpy()
    options = {"device": "cpu", "keep_modules": ("lm_head",)}
    session = open_model(backend._model(spec), "torch_bf16", options)
    assert np.array_equal(np.asarray(session.run({"input_ids": ids})["output.logits"], np.float32), wanted)
    session.close()
