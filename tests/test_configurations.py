"""Models that differ in their configurations: which key is why, by exchanging it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf_files
import llama_folders
import pytest

import precision_debug
from precision_debug.protocols import ABSENT, FolderConfigurations
from precision_debug.records import Culprit, ModelFiles, SessionSpec
from precision_debug.run.configurations import ConfigurationTrials, Differing, list_differing
from precision_debug.run.judging import Pasted


def test_groups_that_both_have_differ_value_by_value() -> None:
    base = {"theta": 1e4, "scaling": {"type": "llama3", "factor": 8}, "other": {"a": 1}, "same": None}
    target = {"theta": 1e6, "scaling": {"type": "llama3", "factor": 32}, "other": None, "same": None, "new": 2}
    found = {one.key: (one.base, one.target) for one in list_differing(base, target)}
    assert found == {
        "theta": (1e4, 1e6), "scaling.factor": (8, 32), "other": ({"a": 1}, None), "new": (ABSENT, 2),
    }  # fmt: skip


def test_a_group_that_one_has_is_exchanged_as_a_whole() -> None:
    """Half of a rope scaling is none."""
    runs: list[tuple[str, ...]] = []

    def exchanged(some: Sequence[Differing]) -> Pasted:
        runs.append(tuple(one.key for one in some))
        right = {"scaling", "theta"} <= set(runs[-1])
        return Pasted(errors={"rope": 0.0 if right else 0.5}, introduced={"rope": 0.0 if right else 0.5})

    apart = list_differing({"theta": 1.0, "idle": 1}, {"theta": 2.0, "idle": 2, "scaling": {"factor": 4}})
    culprit = Culprit(name="rope", node="rope", op_types=("Mul",), cause="other_arithmetic", introduced=0.5)
    trials = ConfigurationTrials(exchanged=exchanged)
    found = trials.cause_of(culprit, apart)
    assert found is not None
    assert (found["name"], found["base"], found["left"]) == ("theta, scaling", "1, missing", 0.0)
    assert len(runs) == len(set(runs))
    other = dataclasses.replace(culprit, name="gone")
    assert trials.cause_of(other, apart) is None


def test_a_folder_is_the_same_but_for_its_values(tmp_path: Path) -> None:
    """Null and absent are two things; weights are links, and the folder itself stays as it was."""
    folder = llama_folders.write(tmp_path / "llama")
    before = (folder / "config.json").read_text(encoding="utf-8")
    place = tmp_path / "other"
    place.mkdir()
    ours, spec = FolderConfigurations(), SessionSpec(model=ModelFiles(model_dir=str(folder)), mode="torch_fp32")
    changed = {("rope_theta",): ABSENT, ("rope_scaling",): None, ("hidden_act",): "gelu"}
    made = ours.exchange(spec, changed, place, spec)
    found = ours.read(dataclasses.replace(spec, model=made))
    assert "rope_theta" not in found
    assert found["rope_scaling"] is None
    assert found["hidden_act"] == "gelu"
    assert (place / "model.safetensors").resolve() == (folder / "model.safetensors").resolve()
    assert (folder / "config.json").read_text(encoding="utf-8") == before


def exchanged_experts(config: dict[str, Any], weights: dict[str, Any]) -> None:
    front = "model.layers.1.block_sparse_moe.experts."
    for name in ("w1", "w2", "w3"):
        one, other = (f"{front}{number}.{name}.weight" for number in (1, 2))
        weights[one], weights[other] = weights[other], weights[one]
    weights["model.layers.1.block_sparse_moe.gate.weight"][3, 5] += 1


def test_weights_that_two_folders_do_not_share_are_told_and_exchanged(tmp_path: Path) -> None:
    """Of one module, as the files hold them; which tensor of the other folder it is, where it is one whole."""
    base = llama_folders.write(tmp_path / "base", "mixtral")
    target = llama_folders.write(tmp_path / "target", "mixtral", exchanged_experts)
    first, second = (SessionSpec(model=ModelFiles(model_dir=str(one)), mode="torch_fp32") for one in (base, target))
    ours, block = FolderConfigurations().weights, "model.layers.1.block_sparse_moe."
    found = {one.name.removeprefix(block): one for one in ours.list_other(second, first, block)}
    assert set(found) == {"gate.weight", *(f"experts.{n}.{name}.weight" for n in (1, 2) for name in ("w1", "w2", "w3"))}
    gate = found["gate.weight"]
    assert (gate.at, gate.count, gate.elements, gate.same_as) == ((3, 5), 1, 256, "")
    assert gate.target - gate.base == pytest.approx(1)
    assert found["experts.1.w2.weight"].same_as == f"{block}experts.2.w2.weight"
    assert not ours.list_other(second, first, "model.layers.0.")
    place = tmp_path / "mended"
    place.mkdir()
    made = ours.exchange(second, [one.name for one in found.values() if one is not gate], place, first)
    left = ours.list_other(dataclasses.replace(second, model=made), first, "model.")
    assert [one.name for one in left] == [gate.name]
    assert len(ours.list_other(second, first, "model.")) == len(found), "the folder itself is as it was"


@pytest.mark.parametrize("text", ["[1]", "{", None])
def test_a_folder_without_a_configuration_has_nothing_to_exchange(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert FolderConfigurations().read(SessionSpec(model=ModelFiles(model_dir=str(tmp_path)), mode="")) == {}


GGUF: Mapping[str, tuple[Mapping[str, Any], str, str, Any, Any]] = {
    "theta": ({"theta": 1e6}, "cur-0 (ROPE)", "llama.rope.freq_base", 1e4, 1e6),
    "epsilon": ({"eps": 0.1}, "norm", "llama.attention.layer_norm_rms_epsilon", 1e-5, 0.1),
    "theta of a quantised one": ({"theta": 1e6, "kind": "Q8_0"}, "cur-0 (ROPE)", "llama.rope.freq_base", 1e4, 1e6),
}


@pytest.mark.parametrize("fault", GGUF)
def test_a_key_of_a_ggufs_head_is_named_with_both_values(tmp_path: Path, fault: str) -> None:
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed")
    how, who, key, base, target = GGUF[fault]
    one, other = gguf_files.write(tmp_path / "F32.gguf"), gguf_files.write(tmp_path / "other.gguf", **how)
    report = precision_debug.compare(
        str(other), run_mode="gguf_cpu", baseline="gguf_fp32", baseline_model=str(one),
        inputs={"input_ids": gguf_files.ids()}, kv_cache="f32", flash_attention="off",
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert who in first.name
    assert (first.cause, first.evidence["name"]) == ("files_differ", key)
    assert (float(first.evidence["base"]), float(first.evidence["target"])) == (base, target)
    assert first.evidence["left"] < 0.1
    assert report.exit_status == 1


def test_a_key_that_the_target_alone_has_is_taken_out_of_its_head(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="llama.cpp is not installed")
    from precision_debug_llamacpp.engine.head import HeadConfigurations

    ours = HeadConfigurations()
    files = [gguf_files.write(tmp_path / f"{scale}.gguf", scale=scale) for scale in (0.0, 4.0)]
    plain, scaled = (SessionSpec(model=ModelFiles(model_file=str(one)), mode="gguf_cpu") for one in files)
    apart = list_differing(ours.read(plain), ours.read(scaled))
    assert {one.base for one in apart} == {ABSENT}
    without = ours.exchange(scaled, {one.place: one.base for one in apart}, _folder(tmp_path / "without"), plain)
    made = dataclasses.replace(scaled, model=without)
    assert ours.read(made) == ours.read(plain)
    again = ours.exchange(made, {one.place: one.target for one in apart}, _folder(tmp_path / "with"), scaled)
    assert ours.read(dataclasses.replace(scaled, model=again)) == ours.read(scaled)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.engine("torch")
def test_a_key_of_a_folder_is_named_among_others_that_nobody_reads(tmp_path: Path) -> None:
    """Beside a weight of another checkpoint, which stays that weight's."""
    pytest.importorskip("transformers", reason="transformers is not installed")

    def change(config: dict[str, Any], weights: dict[str, Any]) -> None:
        config.update(rms_norm_eps=0.1, max_position_embeddings=512)
        weights["model.layers.1.mlp.down_proj.weight"][3] += 1.0

    base = llama_folders.write(tmp_path / "trainer")
    target = llama_folders.write(tmp_path / "served", change=change)
    report = precision_debug.compare(
        str(target), run_mode="torch_fp32", baseline="torch_fp32", baseline_model=str(base),
        inputs={"input_ids": llama_folders.ids()},
    )  # fmt: skip
    assert report.explanation is not None
    told = {str(one.evidence.get("name")): one for one in reversed(report.explanation.culprits)}
    key = told["rms_norm_eps"]
    assert "norm" in key.name
    assert (key.evidence["base"], key.evidence["target"]) == ("1e-06", "0.1")
    assert key.evidence["left"] < 1e-3
    assert not [name for name in told if "max_position" in name]
    assert told.keys() >= {"model.layers.1.mlp.down_proj.weight"}
