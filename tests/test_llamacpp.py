"""llama.cpp: conversion faults planted into GGUF files, the engine's own rounding, weights kept in float32."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
from approval import holds_approved

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import BackendUnavailable, InputError, UsageError
from precision_debug.records import ModelFiles, SessionSpec

pytest.importorskip("xllamacpp", reason="needs xllamacpp")
gguf = pytest.importorskip("gguf", reason="needs gguf, which writes the models")

from precision_debug_llamacpp import LlamaCppBackend  # noqa: E402
from precision_debug_llamacpp.engine import library as libraries  # noqa: E402
from precision_debug_llamacpp.engine.file import read_file  # noqa: E402

WEIGHTS = gguf_files.weights()
OTHERS = gguf_files.weights(9)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf_files.write(tmp_path_factory.mktemp("gguf") / "F32.gguf")


def compare(path: Path, good: Path, mode: str = "gguf_cpu", **options: Any) -> Any:
    feeds = {"input_ids": gguf_files.ids()}
    return precision_debug.compare(path, run_mode=mode, baseline_model=good, inputs=feeds, **options)


def opened(path: Path, mode: str = "gguf_cpu", **options: Any) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options={"side": "target", **options})
    return LlamaCppBackend().open(spec, [])


def unpermuted() -> dict[str, Any]:
    """q and k as a converter leaves them that forgets to permute their rows, beside the right ones."""
    heads = {"attn_q": gguf_files.HEADS, "attn_k": gguf_files.KEYS}
    kinds = {name: next((count for kind, count in heads.items() if kind in name), 0) for name in WEIGHTS}
    return {name: gguf_files.permuted(one, kinds[name]) if kinds[name] else one for name, one in WEIGHTS.items()}


def swapped() -> dict[str, Any]:
    gate, up = "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"
    return {**WEIGHTS, gate: WEIGHTS[up], up: WEIGHTS[gate]}


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "rope theta": ({"theta": 1e6}, "(ROPE)", "llama.rope.freq_base"),
    "rope scaling": ({"scale": 2.0}, "(ROPE)", "llama.rope.scaling.factor"),
    "q and k not permuted": ({"values": unpermuted()}, "Qcur-0", "blk.0.attn_q.weight"),
    "v of another checkpoint": (
        {"values": {**WEIGHTS, "blk.1.attn_v.weight": OTHERS["blk.1.attn_v.weight"]}}, "Vcur-1", "blk.1.attn_v.weight",
    ),
    "norm of ones": (
        {"values": {**WEIGHTS, "blk.1.ffn_norm.weight": np.ones(gguf_files.HIDDEN, np.float32)}},
        "ffn_norm-1", "blk.1.ffn_norm.weight",
    ),
    "gate and up exchanged": ({"values": swapped()}, "ffn_gate-0", "blk.0.ffn_gate.weight"),
    "output tied": (
        {"values": {name: one for name, one in WEIGHTS.items() if name != "output.weight"}},
        "result_output", "output.weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *(("F32", fault) for fault in FAULTS),
        *(("Q8_0", fault) for fault in ("rope theta", "q and k not permuted", "norm of ones", "gate and up exchanged")),
        *(("Q4_0", fault) for fault in ("v of another checkpoint", "gate and up exchanged", "output tied")),
    ],
)
def test_a_conversion_fault_is_named_with_its_first_operator(
    kind: str, fault: str, tmp_path: Path, good: Path
) -> None:  # fmt: skip
    """Also where a quantised file's every weight is rounded: what is off by more than that is another weight."""
    planted, culprit, constant = FAULTS[fault]
    report = compare(gguf_files.write(tmp_path / "m.gguf", kind, **planted), good)
    found = {one.name: one for one in report.explanation.culprits if culprit in one.name}
    assert str(report.verdict) == "out of tolerance"
    assert found
    assert {one.cause for one in report.explanation.culprits} == {"files_differ"}
    assert {one.evidence["name"].partition(" ")[0] for one in found.values()} == {constant}
    if kind != "Q4_0":  # whose rounding is beyond what passes by default from the first product on
        assert report.first_mismatch is not None
        assert culprit in report.first_mismatch.name


def test_a_table_in_few_bits_is_named_by_its_exchange(tmp_path: Path, good: Path) -> None:
    """A lookup of whole numbers, which no product or arithmetic of floats reproduces."""
    path = gguf_files.write(tmp_path / "m.gguf", "Q4_0", keep=lambda name: name != "token_embd.weight")
    found = compare(path, good, kv_cache="f32", flash_attention="off").explanation.culprits
    assert [(one.name, one.cause, one.evidence["weight"]) for one in found] == [
        ("embd", "few_bits", "token_embd.weight")
    ]
    assert found[0].evidence["left"] < 1e-3


LOUD = {
    "blk.0.ffn_down.weight": ("blk.0.ffn_up.weight", "ffn_out-0"),
    "blk.1.ffn_down.weight": ("blk.1.ffn_up.weight", "ffn_out-1"),
    "output.weight": ("output_norm.weight", "result_output"),
}
"""A matrix, what makes some of its inputs next to nothing, and the operator that reads it."""


@pytest.mark.parametrize("name", LOUD)
def test_a_matrix_that_its_blocks_cannot_hold_is_named_in_four_bits(name: str, tmp_path: Path) -> None:
    """In each block one weight takes the range; the rest of the file loses what four bits lose."""
    before, operator = LOUD[name]
    values = {key: one.copy() for key, one in WEIGHTS.items()}
    values[name][:, ::32] *= 40
    values[before][::32] *= 1e-3
    good = gguf_files.write(tmp_path / "F32.gguf", values=values)
    found = compare(gguf_files.write(tmp_path / "m.gguf", "Q4_0", values=values), good).explanation.culprits
    assert [(one.name, one.cause, one.evidence["weight"]) for one in found[:1]] == [(operator, "few_bits", name)]
    assert found[0].repaired < 0.7 * found[0].with_all


def test_of_what_four_bits_lose_everywhere_those_are_named_that_make_half_together(tmp_path: Path, good: Path) -> None:
    """Of 44, where no answer passes: the table, the head and two more. Five bits pass, and nobody is looked for."""
    explanation = compare(gguf_files.write(tmp_path / "m.gguf", "Q4_0"), good).explanation
    (found,) = [one for one in explanation.culprits if one.without is not None]
    assert {*found.left_out} == {one.name for one in explanation.culprits}
    assert 2 * found.without <= found.with_all
    assert 5 * len(found.left_out) <= explanation.candidates
    passing = compare(gguf_files.write(tmp_path / "five.gguf", "Q5_1"), good)
    assert (passing.exit_status, passing.explanation.culprits) == (0, ())


def test_epsilon_is_named_where_the_arithmetic_is_float32(tmp_path: Path, good: Path) -> None:
    """As deployed, keys and values in F16 lose more than an epsilon of 1e-2 changes."""
    report = compare(gguf_files.write(tmp_path / "m.gguf", eps=1e-2), good, "gguf_fp32")
    assert report.explanation.culprits
    key = "llama.attention.layer_norm_rms_epsilon"
    assert {(one.cause, one.evidence["name"]) for one in report.explanation.culprits} == {("files_differ", key)}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_a_healthy_file_blames_nobody(kind: str, tmp_path: Path, good: Path) -> None:
    report = compare(gguf_files.write(tmp_path / "m.gguf", kind), good)
    assert str(report.verdict) == "as expected"
    assert not report.explanation.culprits


def test_an_activation_that_f16_cannot_hold_is_told_from_a_weight(tmp_path: Path) -> None:
    """Two channels of what ffn_down reads are over 65504, and llama.cpp rounds them to the type of its weight."""
    values = {name: one.copy() for name, one in WEIGHTS.items()}
    for channel in (3, 77):
        values["blk.0.ffn_gate.weight"][channel] *= 2.0**6
        values["blk.0.ffn_up.weight"][channel] *= 2.0**14
        values["blk.0.ffn_down.weight"][:, channel] /= 2.0**8
    assert all(np.isfinite(one.astype(np.float16)).all() for one in values.values())
    baseline = gguf_files.write(tmp_path / "F32.gguf", values=values)
    report = compare(gguf_files.write(tmp_path / "F16.gguf", "F16", values=values), baseline)
    first = report.explanation.culprits[0]
    assert first.name == "ffn_out-0"
    assert first.cause in {"overflow", "range_inside"}
    assert first.evidence["limit"] == 65504.0
    wide = compare(gguf_files.write(tmp_path / "BF16.gguf", "BF16", values=values), baseline)
    assert str(wide.verdict) == "as expected"


def test_parts_of_the_error_are_told_apart_by_the_modes(tmp_path: Path, good: Path) -> None:
    """The file in float32 beside the true one: the weights' part; beside itself as deployed: the engine's."""
    path = gguf_files.write(tmp_path / "m.gguf", "Q8_0")
    weights, engine, both = compare(path, good, "gguf_fp32"), compare(path, path), compare(path, good)
    off = [report.rows[-1].comparison.relative_l2 for report in (weights, engine, both)]
    assert max(off[:2]) < off[2] < 1.5 * np.hypot(off[0], off[1])


def test_every_row_says_its_weight_and_type_in_execution_order(tmp_path: Path) -> None:
    session = opened(gguf_files.write(tmp_path / "m.gguf", "Q8_0"), flash_attention="off")
    by_name = {meta.name: meta for meta in session.tensors}
    assert by_name["Qcur-0"].extra == {"Weight": "blk.0.attn_q.weight", "Weight Type": "Q8_0"}
    assert by_name["Qcur-0 (ROPE)"].inputs == ("Qcur-0",)
    assert by_name["norm-0#2"].inputs == ("ffn_inp-0",)
    assert by_name["kq-0"].inputs == ("cache_k_l0", "Qcur-0 (ROPE)")
    assert by_name["embd"].inputs == ("input_ids",)
    shown: dict[str, Any] = {}
    session.run({"input_ids": gguf_files.ids(9)}, lambda _op, name, value: shown.update({name: value}))
    assert shown["kq-0"].shape == (4, 9, 9)
    np.testing.assert_array_equal(shown["cache_v_l0"], shown["Vcur-0"].astype(np.float16))
    np.testing.assert_allclose(shown["kq_soft_max-0"].sum(-1), 1, rtol=1e-5)
    assert session.run({"input_ids": gguf_files.ids(9)})["result_output"].shape == (9, gguf_files.TOKENS)
    session.close()


def test_what_a_run_shows_does_not_depend_on_what_was_run_before(tmp_path: Path) -> None:
    session = opened(gguf_files.write(tmp_path / "m.gguf"))
    one = session.run({"input_ids": gguf_files.ids(7)})["result_output"]
    session.run({"input_ids": gguf_files.ids(40, seed=1)})
    np.testing.assert_array_equal(one, session.run({"input_ids": gguf_files.ids(7)})["result_output"])
    session.close()


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_weights_are_those_that_the_gguf_package_reads(kind: str, tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", kind)
    session = opened(path, "gguf_fp32")
    for tensor in gguf.GGUFReader(str(path)).tensors:
        if tensor.name == "blk.0.ffn_down.weight":
            wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(session.operator("ffn_out-0").parameters[tensor.name], wanted)
    session.close()


def test_a_float32_weight_is_the_files_own_pages(good: Path) -> None:
    """Which take no memory of their own: a vocabulary's table is a quarter of a small model."""
    session = opened(good, "gguf_fp32")
    (weight,) = session.operator("ffn_out-0").parameters.values()
    session.close()
    np.testing.assert_array_equal(weight, WEIGHTS["blk.0.ffn_down.weight"])
    assert not weight.flags.owndata
    assert not weight.flags.writeable
    below = weight
    while isinstance(below.base, np.ndarray):
        below = below.base
    assert isinstance(below, np.memmap) or isinstance(below.base, mmap.mmap)


def test_kept_weights_come_from_the_file_that_was_quantised(tmp_path: Path, good: Path) -> None:
    path, saved = gguf_files.write(tmp_path / "m.gguf", "Q4_0"), tmp_path / "kept.gguf"
    names = ("token_embd.weight", "output.weight")
    session = opened(path, keep_fp32=names, keep_from=str(good), save_gguf=str(saved))
    session.close()
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(str(saved)).tensors}
    assert {name for name, kind in kinds.items() if kind == "F32" and not re.search("norm", name)} == {*names}
    report = compare(path, good, keep_fp32=names, keep_from=str(good))
    assert report.rows[-1].comparison.relative_l2 < compare(path, good).rows[-1].comparison.relative_l2
    with pytest.raises(UsageError, match=r"blk.0.attn_q.weight"):
        opened(path, keep_fp32=("blk.0.attn_q",))


def test_a_model_in_several_files_is_one(tmp_path: Path) -> None:
    """Written by the gguf package's own splitting."""
    writer = gguf_files.write(tmp_path / "m.gguf")
    reader = gguf.GGUFReader(str(writer))
    parts = gguf.GGUFWriter(str(tmp_path / "s.gguf"), "llama", split_max_tensors=8)
    for key, one in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            parts.add_key_value(key, one.contents(), one.types[0])
    for tensor in reader.tensors:
        parts.add_tensor(tensor.name, tensor.data)
    parts.write_header_to_file()
    parts.write_kv_data_to_file()
    parts.write_tensors_to_file()
    parts.close()
    first = next(iter(sorted(tmp_path.glob("s-00001-of-*.gguf"))))
    assert read_file(str(first)).weights.keys() == read_file(str(writer)).weights.keys()
    feeds = {"input_ids": gguf_files.ids(5)}
    for mode in ("gguf_fp32", "gguf_cpu"):
        whole, split = opened(writer, mode), opened(first, mode)
        np.testing.assert_array_equal(whole.run(feeds)["result_output"], split.run(feeds)["result_output"])


@pytest.mark.parametrize("ids", [[[-1, 2]], [[1, gguf_files.TOKENS]]])
def test_tokens_that_the_model_does_not_know_are_refused(ids: Any, good: Path) -> None:
    with pytest.raises(InputError, match="token ids from 0 to 95"):
        opened(good).run({"input_ids": np.array(ids)})


def test_an_unknown_release_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    monkeypatch.setattr(libraries.metadata, "version", lambda _: "2031.1.1")
    libraries.load_library.cache_clear()
    try:
        for mode in ("gguf_fp32", "gguf_cpu"):
            found = LlamaCppBackend().availability(mode)
            assert "xllamacpp==" in found.needs
            assert "\n" not in found.needs
        with pytest.raises(BackendUnavailable, match="2031"):
            opened(good)
    finally:
        libraries.load_library.cache_clear()


@pytest.mark.parametrize("what", ["model_defaults", "context_defaults"])
def test_a_layout_that_is_another_is_refused_before_anything_is_written(what: str) -> None:
    """Whichever field has moved: another default than is expected stands in its place."""
    made = libraries.load_library()
    libraries.check_layout(made)
    for (offset, kind), value in getattr(made.layout, what).items():
        moved = libraries.Layout(**{what: {(offset, kind): value + 1}})
        with pytest.raises(ValueError, match=f"has {value} at byte {offset}, where {value + 1} is expected"):
            libraries.check_layout(_With(made, moved))  # type: ignore[arg-type]
    assert ctypes.sizeof(libraries.Tensor) == 336


class _With:
    """The library with another idea of its layout."""

    def __init__(self, made: Any, layout: Any) -> None:
        self._made, self.layout = made, layout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def test_a_report_of_a_real_file(tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line to a report, in both languages."""
    path = gguf_files.write(tmp_path / "m.gguf", "Q8_0")
    for words in ([], ["--lang", "zh"]):
        command = ["--model_file", str(path), "--run_mode", "gguf_cpu", "--baseline_model", str(good),
                   "--input_shapes", "input_ids:[1,16]", "--output", str(tmp_path / "r.json"), *words]  # fmt: skip
        assert main(command) == 0
    assert "符合预期" in capsys.readouterr().out
    assert holds_approved((tmp_path / "r.json").read_text(encoding="utf-8"))


def test_the_example_is_what_its_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """examples/gguf/README.md and docs/tutorials/gguf.md: which files pass, and what is named."""
    subprocess.run([sys.executable, str(gguf_files.MAKE), str(tmp_path)], check=True)
    for name, status in (("Q8_0", 0), ("wrong_theta", 1)):
        words = ["--model_file", f"{tmp_path}/{name}.gguf", "--baseline_model", f"{tmp_path}/F32.gguf", "--run_mode",
                 "gguf_cpu", "--inputs", f"{tmp_path}/ids.npz", "--output", f"{tmp_path}/{name}.json"]  # fmt: skip
        assert main(words) == status
    assert "freq_base" in capsys.readouterr().out


def test_what_a_search_leaves_is_held_against_the_same_tokens_with_nothing_kept(tmp_path: Path) -> None:
    """Tokens that an earlier set missed have joined those that choose."""
    subprocess.run([sys.executable, str(gguf_files.MAKE), str(tmp_path)], check=True)
    status = main([
        "search", "--model_file", f"{tmp_path}/Q8_0.gguf", "--baseline_model", f"{tmp_path}/F32.gguf", "--quiet",
        "--run_mode", "gguf_cpu", "--inputs", f"{tmp_path}/ids.npz", "--held_out", f"{tmp_path}/other_ids.npz",
        "--on", "kl", "--limit", "20%", "--option", f"keep_from={tmp_path}/F32.gguf", "--output", f"{tmp_path}/s.json",
    ])  # fmt: skip
    fix = precision_debug.Report.load(tmp_path / "s.json").fix
    assert fix is not None
    nothing = next(point for point in fix.trade if not point.kept)
    assert (status, fix.samples, fix.before) == (0, 2, nothing.error)


def test_a_search_halves_the_kl_on_tokens_that_did_not_choose(tmp_path: Path, good: Path) -> None:
    """The embedding is a lookup and no product; with it kept the KL is less than half, on other tokens too."""
    narrow = {"token_embd.weight", "blk.1.attn_k.weight"}
    path, mixed = gguf_files.write(tmp_path / "m.gguf", "Q4_0"), tmp_path / "mixed.gguf"
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(str(path)).tensors}
    wide = tuple(name for name, kind in kinds.items() if kind != "F32" and name not in narrow)
    opened(path, keep_fp32=wide, keep_from=str(good), save_gguf=str(mixed)).close()
    np.savez(tmp_path / "ids.npz", input_ids=gguf_files.ids(32))
    np.savez(tmp_path / "other.npz", input_ids=(gguf_files.ids(32) * 7 + 3) % 90)
    status = main([
        "search", "--model_file", str(mixed), "--baseline_model", str(good), "--run_mode", "gguf_cpu", "--quiet",
        "--inputs", str(tmp_path / "ids.npz"), "--held_out", str(tmp_path / "other.npz"),
        "--on", "kl", "--limit", "50%", "--option", f"keep_from={good}", "--output", str(tmp_path / "s.json"),
    ])  # fmt: skip
    fix = precision_debug.Report.load(tmp_path / "s.json").fix
    assert fix is not None
    assert [one.key for one in fix.kept] == ["token_embd.weight"]
    assert float(fix.after) <= 0.5 * float(fix.before)
    assert any("--tensor-type token_embd=f32" in one.text for one in fix.artefacts)
    assert status == 0
