"""Roads of real language models made here: what differs by more than rounding is found, and what rounds is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug.cli import main

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def save(folder: Path, kind: str, config: Any) -> Path:
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6)
    model.save_pretrained(folder)
    np.savez(folder / "ids.npz", input_ids=np.random.default_rng(0).integers(0, 64, (2, 12)))
    return folder


def roads(folder: Path, *words: str, mode: str = "torch_fp32") -> tuple[int, dict[str, Any]]:
    command = ["roads", "--model_dir", str(folder), "--run_mode", mode, "--inputs", str(folder / "ids.npz")]
    status = main([*command, "--output", str(folder / "roads.json"), *words])
    found = json.loads((folder / "roads.json").read_text(encoding="utf-8"))["roads"]
    return status, {road["name"]: road for road in found}


@pytest.mark.parametrize("mode", ["torch_fp32", "torch_bf16"])
def test_every_road_of_a_healthy_model_is_rounding(tmp_path: Path, mode: str) -> None:
    folder = save(tmp_path, "LlamaForCausalLM", transformers.LlamaConfig(**SIZES))
    status, found = roads(folder, mode=mode)
    assert status == 0
    assert list(found) == ["decode", "chunks", "alone", "padded_left", "padded_right", "eager", "sdpa", "head_fp32"]
    assert all(0 < road["error"] < 4 * road["base_error"] for road in found.values())
    assert all(road["modules"] > 10 for road in found.values())


def test_the_softcap_that_an_attention_leaves_out_is_found_between_the_projections(tmp_path: Path) -> None:
    config = transformers.Gemma2Config(**SIZES, head_dim=8, attn_logit_softcapping=0.5, sliding_window=4)
    folder = save(tmp_path, "Gemma2ForCausalLM", config)
    status, found = roads(folder, "--roads", "eager,decode")
    assert status == 1
    assert not found["decode"]["differs"]
    assert found["eager"]["first"] == "model.layers.0.self_attn.o_proj (input)"


def test_positions_that_count_padding_are_found_where_they_are_embedded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save(tmp_path, "GPT2LMHeadModel", transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=64,
    ))  # fmt: skip
    status, found = roads(folder, "--roads", "padded_left,padded_right,alone", "--lang", "zh")
    assert status == 1
    assert {name for name, road in found.items() if road["differs"]} == {"padded_left"}
    assert found["padded_left"]["first"] == "transformer.wpe"
    assert "超出舍入" in capsys.readouterr().out


def test_another_type_is_a_road_and_rounds_as_it_does(tmp_path: Path) -> None:
    folder = save(tmp_path, "LlamaForCausalLM", transformers.LlamaConfig(**SIZES))
    status, found = roads(folder, "--roads", "torch_bf16")
    assert status == 0
    assert found["torch_bf16"]["error"] > 1e3 * found["torch_bf16"]["base_error"]


def test_rows_with_padding_are_held_at_their_own_tokens(tmp_path: Path) -> None:
    """Masked tokens are no tokens: alone, without them, a row says what it says in the batch."""
    folder = save(tmp_path, "LlamaForCausalLM", transformers.LlamaConfig(**SIZES))
    mask = np.ones((2, 12), np.int64)
    mask[1, 7:] = 0
    np.savez(folder / "ids.npz", attention_mask=mask, input_ids=np.load(folder / "ids.npz")["input_ids"])
    assert roads(folder, "--roads", "alone,padded_left,decode")[0] == 0


def test_what_is_no_road_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path, "LlamaForCausalLM", transformers.LlamaConfig(**SIZES))
    command = ["roads", "--model_dir", str(folder), "--run_mode", "torch_fp32", "--inputs", str(folder / "ids.npz")]
    assert main([*command, "--roads", "backwards"]) == 2
    assert "backwards" in capsys.readouterr().err


def test_roads_are_written_as_other_verbs_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Page, workbook and Markdown tell what the JSON does; another ending is refused before anything runs."""
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    folder = save(tmp_path, "GPT2LMHeadModel", transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=64,
    ))  # fmt: skip
    files = [tmp_path / f"roads.{ending}" for ending in ("html", "xlsx", "md")]
    words = [word for file in files for word in ("--output", str(file))]
    _, found = roads(folder, "--roads", "padded_left,alone", *words)
    page = files[0].read_text(encoding="utf-8")
    assert "<code>transformer.wpe</code>" in page
    assert 'class="chip bad"' in page
    book = openpyxl.load_workbook(files[1])
    lines = list(book["Roads"].iter_rows(min_row=2, values_only=True))
    assert [line[0] for line in lines] == ["padded_left", "alone"]
    assert lines[0][2] == pytest.approx(found["padded_left"]["mean_abs"])
    assert lines[1][7] is None
    assert book.active.title == "Summary"
    assert files[2].read_text(encoding="utf-8").count("\n| ") == 3
    command = ["roads", "--model_dir", str(folder), "--run_mode", "torch_fp32", "--inputs", str(folder / "ids.npz")]
    capsys.readouterr()
    assert main([*command, "--output", str(tmp_path / "roads.csv")]) == 2
    assert ".html" in capsys.readouterr().err
