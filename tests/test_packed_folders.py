"""Folders that a quantiser packed, held against the one that they were made of: what is read, named and kept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llama_folders
import numpy as np
import pytest

import precision_debug
from precision_debug import events
from precision_debug.cli import main
from precision_debug.errors import ModelError
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.run.journal import read_events

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.engine("transformers")

GROUP = 32
_LEAST = np.float32(1e-6)
"""Of a group of nothing but 0."""
LINEAR = tuple(
    f"model.layers.{layer}.{name}_proj" for layer in range(llama_folders.LAYERS)
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")
)  # fmt: skip
Parts = dict[str, Any]


def grid(weight: Any, bits: int, *, zeroed: bool) -> tuple[Any, Any, Any, Any]:
    """Integers from 0 on, scales and zero points by group, and the weight that they stand for, float64."""
    rows, columns = weight.shape
    by_group = weight.reshape(rows, columns // GROUP, GROUP)
    top = (1 << bits) - 1
    if zeroed:
        low, high = np.minimum(by_group.min(-1), 0), np.maximum(by_group.max(-1), 0)
        scale = np.maximum(np.float32((high - low) / top), _LEAST)
        zero = np.clip(np.rint(-low / scale), 1, top)
    else:
        scale = np.maximum(np.float32(np.abs(by_group).max(-1) / (top // 2)), _LEAST)
        zero = np.full_like(scale, 1 << (bits - 1))
    numbers = np.clip(np.rint(by_group / scale[..., None]) + zero[..., None], 0, top)
    stands = (numbers - zero[..., None]) * scale.astype(np.float64)[..., None]
    return numbers.reshape(rows, columns).astype(np.int64), scale, zero.astype(np.int64), stands.reshape(rows, columns)


def words(numbers: Any, bits: int, order: Any = None) -> Any:
    """The last axis in int32, lowest bits first; order: which number comes at each place."""
    each = 32 // bits
    apart = numbers.reshape(*numbers.shape[:-1], -1, each)[..., order if order is not None else range(each)]
    packed = (apart.astype(np.uint64) << (np.arange(each, dtype=np.uint64) * np.uint64(bits))).sum(-1, dtype=np.uint64)
    return torch.from_numpy(packed.astype(np.uint32).view(np.int32).copy())


def compressed(weight: Any, bits: int, *, zeroed: bool) -> tuple[Parts, Any]:
    numbers, scale, zero, stands = grid(weight, bits, zeroed=zeroed)
    parts = {"weight_packed": words(numbers, bits), "weight_scale": torch.from_numpy(scale),
             "weight_shape": torch.tensor(weight.shape)}  # fmt: skip
    if zeroed:
        parts["weight_zero_point"] = words(np.ascontiguousarray(zero.T), bits).t().contiguous()
    return parts, stands


def gptq(weight: Any) -> tuple[Parts, Any]:
    numbers, scale, zero, stands = grid(weight, 4, zeroed=True)
    return {
        "qweight": words(numbers, 4).t().contiguous(), "qzeros": words(np.ascontiguousarray(zero.T) - 1, 4),
        "scales": torch.from_numpy(scale.T.copy()), "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
    }, stands  # fmt: skip


def awq(weight: Any) -> tuple[Parts, Any]:
    numbers, scale, zero, stands = grid(weight, 4, zeroed=True)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {
        "qweight": words(np.ascontiguousarray(numbers.T), 4, order),
        "qzeros": words(np.ascontiguousarray(zero.T), 4, order), "scales": torch.from_numpy(scale.T.copy()),
    }, stands  # fmt: skip


def float8(weight: Any) -> tuple[Parts, Any]:
    """In blocks of 48 rows and 32 columns, the last of which are cut off."""
    rows, columns = weight.shape
    high, wide = -(-rows // 48), -(-columns // 32)
    scale = np.zeros((high, wide), np.float32)
    spread = np.zeros(weight.shape)
    for y in range(high):
        for x in range(wide):
            block = np.s_[y * 48 : y * 48 + 48, x * 32 : x * 32 + 32]
            scale[y, x] = np.abs(weight[block]).max() / 448
            spread[block] = scale[y, x]
    held = torch.from_numpy((weight / spread).astype(np.float32)).to(torch.float8_e4m3fn)
    return {"weight": held, "weight_scale_inv": torch.from_numpy(scale)}, held.double().numpy() * spread


def torchao(weight: Any, bits: int) -> tuple[Parts, Any]:
    """As transformers 5 writes torchao's Int8Tensor, or its IntxUnpackedToInt8Tensor of four bits."""
    numbers, scale, zero, stands = grid(weight, bits, zeroed=bits == 4)
    middle = 1 << (bits - 1)
    kind = "Int8Tensor" if bits == 8 else "IntxUnpackedToInt8Tensor"
    return {
        "_weight_qdata": torch.from_numpy((numbers - middle).astype(np.int8)), "_weight_scale": torch.from_numpy(scale),
        "_weight_zero_point": torch.from_numpy((zero - middle).astype(np.int8)), "class": kind,
    }, stands  # fmt: skip


def torchao_float8(weight: Any) -> tuple[Parts, Any]:
    scale = np.float32(np.abs(weight).max(-1, keepdims=True) / 448)
    held = torch.from_numpy((weight / scale).astype(np.float32)).to(torch.float8_e4m3fn)
    parts = {"_weight_qdata": held, "_weight_scale": torch.from_numpy(scale), "class": "Float8Tensor"}
    return parts, held.double().numpy() * scale


def torchao_int4(weight: Any) -> tuple[Parts, Any]:
    """As its kernels on a card want it: two numbers a byte, groups first, a zero point that is a number of its own."""
    rows, columns = weight.shape
    by_group = weight.reshape(rows, columns // GROUP, GROUP)
    scale = np.float32((by_group.max(-1) - by_group.min(-1)) / 15)
    zero = np.float32(by_group.min(-1) + 8 * scale)
    numbers = np.clip(np.rint((by_group - zero[..., None]) / scale[..., None]), -8, 7)
    stands = numbers * scale.astype(np.float64)[..., None] + zero[..., None]
    whole = numbers.reshape(rows, columns).astype(np.int8)
    return {
        "_weight_qdata": torch.from_numpy((whole[:, 1::2] << 4) | (whole[:, ::2] & 15)), "class": "Int4Tensor",
        "_weight_scale": torch.from_numpy(scale.T.copy()), "_weight_zero_point": torch.from_numpy(zero.T.copy()),
    }, stands.reshape(rows, columns)  # fmt: skip


_TORCHAO = {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}}

FORMATS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "compressed int4": (lambda one: compressed(one, 4, zeroed=False), {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": GROUP}}},
    }),
    "compressed int8 with zero points": (lambda one: compressed(one, 8, zeroed=True), {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "group_size": GROUP}}},
    }),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "fp8": (float8, {"quant_method": "fp8", "weight_block_size": [48, 32]}),
    "torchao int8": (lambda one: torchao(one, 8), _TORCHAO),
    "torchao int4 in bytes": (lambda one: torchao(one, 4), _TORCHAO),
    "torchao int4": (torchao_int4, _TORCHAO),
    "torchao float8": (torchao_float8, _TORCHAO),
    "torchao int4 in tiles": (
        lambda one: (torchao_int4(one)[0] | {"class": "Int4TilePackedTo4dTensor"}, one), _TORCHAO,
    ),
}  # fmt: skip


def packed(
    folder: Path, base: Path, method: str, worse: str = "", without: frozenset[str] = frozenset(), **more: Any
) -> dict[str, Any]:
    """Write a folder whose linear layers are packed, and return what they stand for. worse: one of two bits. without:
    layers that stay as they are. more: what the quantiser says of itself."""
    from safetensors.torch import load_file, save_file

    pack, said = FORMATS[method]
    state, stands, head = dict(load_file(base / "model.safetensors")), {}, {"format": "pt"}
    for name in [one for one in LINEAR if one not in without]:
        weight = state.pop(f"{name}.weight").double().numpy()
        if name == worse:
            step = np.abs(weight).max()
            weight = np.rint(weight / step) * step
        parts, stands[f"{name}.weight"] = pack(weight)
        if kind := parts.pop("class", ""):
            head[f"{name}.weight"] = json.dumps({"_type": kind})
        state |= {f"{name}.{part}": one.contiguous() for part, one in parts.items()}
    folder.mkdir()
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": said | more}), encoding="utf-8")
    save_file(state, folder / "model.safetensors", metadata=head)
    return stands


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if "tiles" not in kind])
def test_a_packed_weight_is_the_numbers_that_it_stands_for(tmp_path: Path, kind: str) -> None:
    from precision_debug_torch.engine.saved_folder import load_folder, packed_folder

    base = llama_folders.write(tmp_path / "base")
    stands = packed(tmp_path / "packed", base, kind)
    module = load_folder(str(tmp_path / "packed"))
    found = dict(module.named_parameters())
    for name, weight in stands.items():
        assert np.abs(found[name].detach().double().numpy() - weight).max() <= 1e-6 * np.abs(weight).max(), name
    told = packed_folder(str(tmp_path / "packed"))
    assert told is not None
    assert told.modules == frozenset(LINEAR)


def test_an_unknown_quantiser_is_refused(tmp_path: Path) -> None:
    from precision_debug_torch.engine.saved_folder import load_folder

    base = llama_folders.write(
        tmp_path / "base", change=lambda config, _: config.update(quantization_config={"quant_method": "hqq"})
    )
    with pytest.raises(ModelError):
        load_folder(str(base))


@pytest.mark.parametrize("form", ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig", "IntxWeightOnlyConfig"])
def test_what_torchao_itself_wrote_is_read_as_torchao_reads_it(tmp_path: Path, form: str) -> None:
    """In safetensors or as pytorch_model.bin, whichever this transformers writes."""
    pytest.importorskip("torchao", reason="torchao is not installed")
    import transformers
    from precision_debug_torch.engine.saved_folder import load_folder, packed_folder
    from torchao import quantization
    from torchao.quantization.granularity import PerGroup  # type: ignore[import-untyped, import-not-found, unused-ignore]

    base = llama_folders.write(tmp_path / "base")
    more = {"weight_dtype": torch.int4, "granularity": PerGroup(GROUP)} if form.startswith("Intx") else {}
    config = transformers.TorchAoConfig(getattr(quantization, form)(**more))
    model = transformers.AutoModelForCausalLM.from_pretrained(str(base), torch_dtype=torch.float32,
                                                              quantization_config=config)  # fmt: skip
    try:
        model.save_pretrained(tmp_path / "packed")
    except ValueError:  # transformers 4 has safetensors of float8 alone
        model.save_pretrained(tmp_path / "packed", safe_serialization=False)
    told = packed_folder(str(tmp_path / "packed"))
    assert told is not None
    assert told.modules == frozenset(LINEAR)
    found = dict(load_folder(str(tmp_path / "packed")).named_parameters())
    for name in LINEAR:
        own = model.get_submodule(name).weight.dequantize()
        assert torch.allclose(found[f"{name}.weight"], own.float(), rtol=1e-6, atol=1e-7), name


def test_a_weight_of_torchao_that_one_kind_of_card_lays_out_is_refused(tmp_path: Path) -> None:
    from precision_debug_torch.engine.saved_folder import load_folder

    base = llama_folders.write(tmp_path / "base")
    packed(tmp_path / "packed", base, "torchao int4 in tiles")
    with pytest.raises(ModelError, match="Int4TilePackedTo4dTensor"):
        load_folder(str(tmp_path / "packed"))


def test_a_search_finds_the_module_that_halves_the_kl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One layer is far coarser than the others: with its original weight KL is halved, on other tokens too."""
    base, worse = llama_folders.write(tmp_path / "base"), "model.layers.1.mlp.down_proj"
    packed(tmp_path / "packed", base, "gptq", worse)
    np.savez(tmp_path / "ids.npz", input_ids=llama_folders.ids())
    np.savez(tmp_path / "others.npz", input_ids=llama_folders.ids(seed=9))
    status = main([
        "search", "--model_dir", str(tmp_path / "packed"), "--baseline_model", str(base), "--run_mode", "torch_fp32",
        "--baseline", "torch_fp32", "--inputs", str(tmp_path / "ids.npz"), "--held_out", str(tmp_path / "others.npz"),
        "--on", "kl", "--limit", "50%", "--option", f"keep_from={base}", "--output", str(tmp_path / "s.json"),
        "--runs", "12",
    ])  # fmt: skip
    said = capsys.readouterr().out
    assert status == 0
    assert f'ignore=["{worse}", "lm_head"]' in said
    assert f'modules_to_not_convert=["{worse}", "lm_head"]' in said
    told = [
        [*read_events(path, events.Explained, events.TokenEffectsFound)]
        for path in (tmp_path / "s.search").glob("comparison-*.jsonl")
    ]
    assert len(told) > 1
    # who moves a token is measured for the comparison that is shown; sets are ranked by operators
    assert sorted(len(one) for one in told) == [1] * (len(told) - 1) + [2]


def test_a_set_that_just_misses_the_half_on_other_tokens_is_made_larger(tmp_path: Path) -> None:
    """All layers are as coarse as each other. Three halve KL on the first tokens and leave 51 % on the others; four
    halve it on both, which is an answer and no end."""

    def change(config: dict[str, Any], weights: dict[str, Any]) -> None:
        dice = np.random.default_rng(2)
        for value in weights.values():
            if value.ndim == 2:
                value[...] = dice.permutation(value.ravel()).reshape(value.shape)
        weights["lm_head.weight"] *= 1.6

    base = llama_folders.write(tmp_path / "base", change=change)
    packed(tmp_path / "packed", base, "gptq")
    np.savez(tmp_path / "ids.npz", input_ids=llama_folders.ids(tokens=24, seed=2))
    np.savez(tmp_path / "others.npz", input_ids=llama_folders.ids(tokens=24, seed=100))
    status = main([
        "search", "--model_dir", str(tmp_path / "packed"), "--baseline_model", str(base), "--run_mode", "torch_fp32",
        "--baseline", "torch_fp32", "--inputs", str(tmp_path / "ids.npz"), "--held_out", str(tmp_path / "others.npz"),
        "--on", "kl", "--limit", "50%", "--option", f"keep_from={base}", "--output", str(tmp_path / "s.json"),
        "--runs", "30", "--quiet",
    ])  # fmt: skip
    fix = precision_debug.Report.load(tmp_path / "s.json").fix
    assert fix is not None
    assert (status, fix.state, fix.samples) == (0, "found", 2)
    assert 3 < len(fix.kept) <= 5
    assert fix.after is not None
    assert fix.before is not None
    assert fix.after <= 0.5 * fix.before


@pytest.mark.parametrize("kind", ["gptq", "awq", "compressed int4", "torchao int8"])
def test_a_quantiser_that_is_given_the_list_packs_what_it_packed_before_but_for_the_kept(
    tmp_path: Path, kind: str
) -> None:
    """With a list of one's own, transformers leaves out the head no longer: the list has to name it."""
    import transformers
    from precision_debug_torch.keep import packed_keep
    from transformers.quantizers.base import HfQuantizer

    base, kept = llama_folders.write(tmp_path / "base"), "model.layers.1.mlp.up_proj"
    left = frozenset({"model.layers.0.self_attn.o_proj", "model.layers.1.mlp.down_proj"})
    asked = {r"-:.*0\.self_attn\.o_proj$": {}, r"+:.*q_proj$": {"bits": 8}}
    packed(tmp_path / "packed", base, kind, without=left, **({"dynamic": asked} if kind == "gptq" else {}))
    files = ModelFiles(model_dir=str(tmp_path / "packed"))
    keep = packed_keep(SessionSpec(model=files, mode="torch_fp32", options={"keep_from": str(base)}))
    assert keep is not None
    handed = dict(one.text.split("=", 1) for one in keep.hand_over([kept], (), tmp_path) if one.kind == "config")
    model = transformers.AutoModelForCausalLM.from_pretrained(str(base))
    names = {name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}
    listed = json.loads(handed["modules_to_not_convert"])
    assert names - set(HfQuantizer.get_modules_to_not_convert(model, listed)) == set(LINEAR) - left - {kept}
    assert json.loads(handed["ignore"]) == listed
    dynamic = json.loads(handed["dynamic"])
    skipped = [pattern.removeprefix("-:") for pattern in dynamic if pattern.startswith("-:")]
    assert {name for name in names if not any(re.match(one, name) for one in skipped)} == set(LINEAR) - left - {kept}
    assert kind != "gptq" or asked.items() <= dynamic.items()


@pytest.mark.parametrize("method", ["gptq", "torchao int8"])
def test_a_layer_of_very_few_bits_is_told_by_its_weight(tmp_path: Path, method: str) -> None:
    """With the original's weight in its place the operator's error goes; every culprit is told so, the coarsest
    first, and how the folder is packed is no setting that could be exchanged."""
    base, worse = llama_folders.write(tmp_path / "base"), "model.layers.1.mlp.down_proj"
    packed(tmp_path / "packed", base, method, worse)
    report = precision_debug.compare(
        str(tmp_path / "packed"), run_mode="torch_fp32", baseline="torch_fp32", baseline_model=str(base),
        inputs={"input_ids": llama_folders.ids()},
    )  # fmt: skip
    assert report.exit_status == 1
    assert report.explanation is not None
    assert {one.cause for one in report.explanation.culprits} == {"few_bits"}
    first = report.explanation.culprits[0]
    assert first.evidence["weight"] == f"{worse}.weight"
    assert first.evidence["off"] > 0.3
    assert first.evidence["left"] < 1e-3


def test_a_folder_that_lacks_a_weight_is_refused(tmp_path: Path) -> None:
    """transformers would draw it at random, and whatever the comparison said would be of that."""
    from precision_debug_torch.engine.saved_folder import load_folder

    base = llama_folders.write(
        tmp_path / "base", change=lambda _, weights: weights.pop("model.layers.1.mlp.up_proj.weight") is None
    )
    with pytest.raises(ModelError, match="up_proj"):
        load_folder(str(base))


def test_what_a_quantiser_does_everywhere_blames_no_weight(tmp_path: Path) -> None:
    """Every constant differs from the original folder's: that is what it was made for, and no fault."""
    base = llama_folders.write(tmp_path / "base")
    packed(tmp_path / "packed", base, "compressed int8 with zero points")
    report = precision_debug.compare(
        str(tmp_path / "packed"), run_mode="torch_fp32", baseline="torch_fp32", baseline_model=str(base),
        inputs={"input_ids": llama_folders.ids()},
    )  # fmt: skip
    assert report.explanation is not None
    assert not [one for one in report.explanation.culprits if one.cause == "files_differ"]
    kinds = {row.target_op_type for row in report.rows if row.name.endswith("down_proj/mm")}
    assert kinds - {""} == {"aten.mm quantised"}
