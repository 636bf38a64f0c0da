"""vLLM's own engine against transformers: healthy models, and faults planted into the folder that it is given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import llama_folders
import numpy as np
import pytest
from precision_debug_vllm import VllmBackend

import precision_debug
from precision_debug.errors import BackendUnavailable, InputError, ModelError
from precision_debug.records import ModelFiles, SessionSpec

PYTHON = "PRECISION_DEBUG_VLLM_PYTHON"
FEEDS = {"input_ids": llama_folders.ids()}

needs_engine = pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} names no Python that has vLLM")
slow = pytest.mark.slow
"""Of those that need the engine, what CI leaves out: see .ci/steps.py."""


def opened(folder: Path, mode: str = "vllm_fp32") -> Any:
    return VllmBackend().open(SessionSpec(model=ModelFiles(model_dir=str(folder)), mode=mode), [FEEDS])


def compared(target: Path, base: Path, mode: str = "vllm_fp32", **more: Any) -> Any:
    pytest.importorskip("transformers", reason="transformers is not installed")
    return precision_debug.compare(
        str(target), run_mode=mode, baseline="torch_fp32", baseline_model=str(base), inputs=FEEDS, **more
    )


def test_a_mode_says_which_python_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PYTHON, str(tmp_path / "no_such_python"))
    found = VllmBackend().availability("vllm_bf16")
    assert not found.ok
    assert PYTHON in found.needs
    with pytest.raises(BackendUnavailable):
        opened(llama_folders.write(tmp_path / "llama"))


def test_a_python_without_the_engine_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its server starts there, and says what it cannot import."""
    monkeypatch.setenv(PYTHON, sys.executable)
    with pytest.raises(ModelError) as caught:
        opened(llama_folders.write(tmp_path / "llama"))
    assert "No module named" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_no_language_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["ResNet"]}', encoding="utf-8")
    with pytest.raises(ModelError):
        VllmBackend().inputs(SessionSpec(model=ModelFiles(model_dir=str(tmp_path)), mode="vllm_fp32"))


@needs_engine
@pytest.mark.parametrize(
    "kind", ["mistral", *(pytest.param(one, marks=slow) for one in ("llama", "qwen3", "mixtral"))]
)
def test_a_healthy_model_is_the_same_to_rounding(tmp_path: Path, kind: str) -> None:
    """Every module of vLLM's has its partner, projections apart and sums put together; all tokens are compared."""
    folder = llama_folders.write(tmp_path / kind, kind)
    report = compared(folder, folder)
    paired = {row.target_name for row in report.rows if row.comparison is not None}
    layer = {"self_attn.q_proj", "self_attn.v_proj", "self_attn.rotated_q", "self_attn.rotated_k",
             "self_attn.o_proj.input", "post_attention_layernorm.input"}  # fmt: skip
    routed = {"block_sparse_moe.gate", "block_sparse_moe.experts"}
    layer |= routed if kind == "mixtral" else {"mlp.up_proj", "mlp.down_proj.input"}
    assert {f"model.layers.1.{name}" for name in layer} | {"model.layers.0", "lm_head", "output.logits"} <= paired
    assert not [row.target_name for row in report.rows if row.status == "unmatched"]
    assert max(row.comparison.relative_l2 or 0 for row in report.rows if row.comparison is not None) < 1e-5
    assert report.tokens is not None
    assert report.tokens.sequences[0].mean_abs < 1e-5
    assert report.exit_status == 0


@needs_engine
def test_bfloat16_of_a_healthy_model_is_as_expected(tmp_path: Path) -> None:
    folder = llama_folders.write(tmp_path / "llama")
    report = compared(folder, folder, "vllm_bf16")
    assert report.exit_status == 0


def stale(config: dict[str, Any], weights: dict[str, Any]) -> None:
    weight = weights["model.layers.1.self_attn.o_proj.weight"]
    weight += 0.1 * weight.std() * np.random.default_rng(1).normal(size=weight.shape)


def exchanged(config: dict[str, Any], weights: dict[str, Any]) -> None:
    one, other = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up"))
    weights[one], weights[other] = weights[other], weights[one]


def theta(config: dict[str, Any], weights: dict[str, Any]) -> None:
    config["rope_theta"] = 500.0


def epsilon(config: dict[str, Any], weights: dict[str, Any]) -> None:
    config["rms_norm_eps"] = 0.1


def coarse_head(config: dict[str, Any], weights: dict[str, Any]) -> None:
    bits = weights["lm_head.weight"].astype(np.float32).view(np.uint32)
    weights["lm_head.weight"] = ((bits + 0x8000) & 0xFFFF0000).view(np.float32)


FAULTS = {
    "stale weight": (stale, "model.layers.1.self_attn.o_proj/", "model.layers.1.self_attn.o_proj.weight"),
    "gate and up exchanged": (exchanged, "model.layers.0.mlp.", "model.layers.0.mlp."),
    "rope theta": (theta, "model.layers.0.self_attn/", ""),
    "norm epsilon": (epsilon, "model.layers.0.input_layernorm/", ""),
    "head in bfloat16": (coarse_head, "lm_head/", ""),
}
"""What is done to the folder that vLLM is given; how the name of the first wrong operator begins; and how that of the
weight does that is told to be another one: with it exchanged the error is gone."""


@needs_engine
@pytest.mark.parametrize("fault", [pytest.param(one, marks=slow if one != "stale weight" else ()) for one in FAULTS])
def test_a_fault_of_the_served_model_is_named(tmp_path: Path, fault: str) -> None:
    change, label, weight = FAULTS[fault]
    base = llama_folders.write(tmp_path / "trainer")
    target = llama_folders.write(tmp_path / "rollout", change=change)
    report = compared(target, base)
    assert report.exit_status == 1
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.name.startswith(label)
    if weight:
        assert first.cause == "files_differ"
        assert str(first.evidence["name"]).startswith(weight)
        assert first.evidence["left"] < 1e-3


@needs_engine
def test_an_expert_of_another_checkpoint_is_named_by_its_exchange(tmp_path: Path) -> None:
    """The engine holds all experts in one piece, which it shows nobody."""
    weight = "model.layers.1.block_sparse_moe.experts.2.w2.weight"

    def foreign(config: dict[str, Any], weights: dict[str, Any]) -> None:
        weights[weight] = weights[weight][::-1]

    base = llama_folders.write(tmp_path / "trainer", "mixtral")
    report = compared(llama_folders.write(tmp_path / "rollout", "mixtral", foreign), base)
    assert report.exit_status == 1
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.name.startswith("model.layers.1.block_sparse_moe/")
    assert (first.cause, first.evidence["name"]) == ("files_differ", weight)
    assert first.evidence["left"] < 1e-3


@slow
@needs_engine
def test_a_head_in_float32_is_vllms_own_option(tmp_path: Path) -> None:
    folder = llama_folders.write(tmp_path / "llama")
    types = []
    for options in ({}, {"head_fp32": "on"}):
        report = compared(folder, folder, "vllm_bf16", explain="off", **options)
        [row] = [row for row in report.rows if row.target_name == "output.logits"]
        assert row.comparison is not None
        types.append(row.comparison.target.dtype)
    assert types == ["bfloat16", "float32"]


@slow
@needs_engine
def test_padding_is_refused(tmp_path: Path) -> None:
    session = opened(llama_folders.write(tmp_path / "llama"))
    mask = np.ones_like(FEEDS["input_ids"])
    assert session.run({**FEEDS, "attention_mask": mask})
    mask[0, 0] = 0
    with pytest.raises(InputError):
        session.run({**FEEDS, "attention_mask": mask})
    session.close()


@needs_engine
def test_what_is_put_in_place_is_what_the_next_module_is_given(tmp_path: Path) -> None:
    """Of a projection that is a part of a stacked one, of a sum, and of rotated keys."""
    session = opened(llama_folders.write(tmp_path / "llama"))
    plain = session.run(FEEDS)["output.logits"]
    for name in ("model.layers.0.self_attn.k_proj", "model.layers.0", "model.layers.1.self_attn.rotated_k",
                 "model.layers.1.mlp.up_proj", "lm_head"):  # fmt: skip
        seen: dict[str, Any] = {}

        def replace(op_type: str, one: str, value: Any, wanted: str = name, seen: dict[str, Any] = seen) -> Any:
            seen[one] = value
            return value * 0 if one == wanted else None

        moved = session.run_replacing(FEEDS, replace)["output.logits"]
        assert not np.array_equal(plain, moved), name
        if name == "lm_head":
            assert not moved.any()
    same = session.run_replacing(FEEDS, lambda op_type, one, value: value)["output.logits"]
    assert np.abs(same - plain).max() < 1e-4
    session.close()


@needs_engine
def test_a_model_whose_head_the_engine_has_no_place_for_is_one_line(tmp_path: Path) -> None:
    """Gemma's head is always its embedding."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from planted import configured

    folder = configured.build(tmp_path / "gemma2", "gemma2", 32)
    with pytest.raises(ModelError, match="has no lm_head") as caught:
        opened(folder)
    assert len(str(caught.value)) < 300


@slow
@needs_engine
def test_a_tied_head_beside_a_stored_one_is_told(tmp_path: Path) -> None:
    """vLLM takes no notice of the key there, which transformers obeys."""
    notes = []
    for tied in (False, True):
        folder = llama_folders.write(
            tmp_path / f"tied_{tied}", change=lambda config, _, tied=tied: config.update(tie_word_embeddings=tied)
        )
        session = opened(folder)
        notes.append([getattr(one, "code", "") for one in session.notes])
        session.close()
    assert "keeps_its_head" in notes[1][-1]
    assert "keeps_its_head" not in " ".join(notes[0])


@needs_engine
def test_the_engines_own_roads_are_rounding_and_rows_keep_their_places(tmp_path: Path) -> None:
    """Decoded, alone and in chunks, of rows of two lengths: what is a token's own is where the whole batch has it."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from precision_debug.cli import main

    folder = llama_folders.write(tmp_path / "llama")
    mask = np.ones_like(FEEDS["input_ids"])
    mask[1, 7:] = 0
    np.savez(tmp_path / "ids.npz", attention_mask=mask, **FEEDS)
    command = ["roads", "--model_dir", str(folder), "--run_mode", "vllm_fp32", "--inputs", str(tmp_path / "ids.npz")]
    status = main([*command, "--roads", "decode,alone,chunks", "--output", str(tmp_path / "roads.json")])
    found = json.loads((tmp_path / "roads.json").read_text(encoding="utf-8"))["roads"]
    assert status == 0
    assert [one["name"] for one in found] == ["decode", "alone", "chunks"]
    assert all(0 < one["error"] < 1e-5 for one in found)
    assert all(one["modules"] > 15 for one in found)
