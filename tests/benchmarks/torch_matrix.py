"""Every architecture in every CPU mode of PyTorch: status, share compared, outputs to the bit, pairs, and time.

    python tests/benchmarks/torch_matrix.py [--modes torch_bf16 …] [--only bert …] [--seconds 900] [--output table.md]

The architectures are those of tests/torch_architectures.py, and tiny models of the transformers library from their
configurations. Of each pair of model and mode:

- compared: rows with a comparison, of all rows that have a partner or could have one;
- bits: whether the outputs of a watched run are those of the module that a user runs, to the bit (not for
  torch_compile, whose outputs come from torch.compile itself, and the quantised modes, which only torchao can build);
- seen: rows whose target numbers (least, largest) are among those of an independent dispatch mode, which knows nothing
  of this project, of all rows that it can judge;
- times: seconds of the comparison over those of two bare forwards, warm, and milliseconds a row.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import torch_architectures
from precision_debug_torch.backend import open_model
from precision_debug_torch.live import compare_module
from precision_debug_torch.model import example_feeds, from_module
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from precision_debug.numbers.arrays import as_array

MODES = (
    "torch_fp64", "torch_fp16", "torch_bf16", "torch_autocast_fp16", "torch_autocast_bf16", "torch_int8",
    "torch_fp8_weights", "torch_int4_weights", "torch_compile",
)  # fmt: skip
TYPES = {"torch_fp64": "float64", "torch_fp16": "float16", "torch_bf16": "bfloat16"}
SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "image_size": 32, "patch_size": 8, "head_dim": 8, "pad_token_id": 0,
}  # fmt: skip
TEXT = [
    "Albert", "Roberta", "DistilBert", "Electra", "DebertaV2", "MPNet", "XLNet", "Bart", "Mistral", "Mixtral",
    "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi", "Phi3", "Falcon", "OPT", "Bloom", "GPTNeoX", "GPTNeo", "GPTJ",
    "CodeGen", "Olmo", "StableLm", "Starcoder2", "Granite", "Cohere", "Mamba", "FNet", "Nystromformer",
    "RoFormer", "Ernie", "MobileBert", "SqueezeBert", "XLM",
]  # fmt: skip
PICTURES = [
    "DeiT", "Beit", "ConvNext", "ResNet", "Dinov2", "Yolos", "MobileViT", "ViTMAE", "PoolFormer", "Segformer",
]  # fmt: skip


def of_transformers(name: str) -> Callable[[], tuple[Any, Any]]:
    """A tiny model from its configuration alone."""

    def build() -> tuple[Any, Any]:
        import transformers

        kind = getattr(transformers, f"{name}Model")
        config: Any = getattr(transformers, f"{name}Config")
        known = {key: value for key, value in SIZES.items() if hasattr(config(), key)}
        torch.manual_seed(0)
        module = kind(config(**known)).eval()
        if name in PICTURES:
            return module, {"pixel_values": torch.randn(1, 3, 32, 32)}
        return module, {"input_ids": torch.arange(1, 17)[None]}

    return build


def factories() -> dict[str, Callable[[], tuple[Any, Any]]]:
    return {**torch_architectures.FACTORIES, **{name: of_transformers(name) for name in (*TEXT, *PICTURES)}}


class Recorder(TorchDispatchMode):  # type: ignore[misc, no-untyped-call]
    """(least, largest) of every tensor that an operator gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ends: set[tuple[float, float]] = set()

    def note(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.numel() and not value.is_nested:
            array = as_array(value).astype(np.float64) if not value.is_complex() else np.zeros(1)
            array = array[np.isfinite(array)]
            if array.size:
                self.ends.add((float(array.min()), float(array.max())))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves(result):
            self.note(value)
        return result


def called(module: Any, inputs: Any, dtype: Any = None) -> Any:
    def cast(value: Any) -> Any:
        narrows = isinstance(value, torch.Tensor) and value.is_floating_point() and dtype is not None
        return value.to(dtype) if narrows else value

    given = pytree.tree_map(cast, inputs)
    args = given if isinstance(given, tuple) else () if isinstance(given, dict) else (given,)
    return module(*args, **(given if isinstance(given, dict) else {}))


def bare(module: Any, inputs: Any, mode: str) -> Callable[[], Any] | None:
    """What a user runs, without any of ours; None where only the backend builds it."""
    if mode in TYPES:
        dtype = getattr(torch, TYPES[mode])
        own = copy.deepcopy(module).to(dtype)
        return lambda: called(copy.deepcopy(own), inputs, dtype)
    if mode.startswith("torch_autocast"):
        dtype = torch.float16 if mode.endswith("fp16") else torch.bfloat16

        def cast() -> Any:
            with torch.autocast("cpu", dtype=dtype):
                return called(copy.deepcopy(module), inputs)

        return cast
    return None


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    from precision_debug_torch.engine.nested_tensors import leaves

    return [as_array(tensor) for _, tensor in leaves(result, "output")]


def line(name: str, mode: str, build: Callable[[], tuple[Any, Any]]) -> tuple[str, ...]:
    module, inputs = build()
    run = bare(module, inputs, mode)
    with torch.no_grad():
        wanted = None
        if run is not None:
            try:
                torch.manual_seed(0)
                wanted = arrays(run())
            except Exception as error:
                return name, mode, f"torch refuses it: {str(error)[:60]}", "", "", "", "", ""
        called(copy.deepcopy(module), inputs)
        begun = time.perf_counter()
        called(copy.deepcopy(module), inputs)
        (run or (lambda: called(copy.deepcopy(module), inputs)))()
        plain = time.perf_counter() - begun
    begun = time.perf_counter()
    try:
        report = compare_module(module, inputs, run_mode=mode, device="cpu")
    except Exception as error:
        return name, mode, f"{type(error).__name__}: {str(error)[:90]}", "", "", "", "", ""
    spent = time.perf_counter() - begun
    rows = [row for row in report.rows if row.status.value != "unmatched"]
    compared = [row for row in rows if row.comparison is not None]
    bits, seen = "", ""
    if run is not None and wanted is not None:
        model = from_module(module, inputs)
        session = open_model(model, mode, {"device": "cpu"}, [example_feeds(model)])
        found = [np.asarray(one) for one in session.run(example_feeds(model), lambda *_: None).values()]
        session.close()
        drawn = mode == "torch_fp64" or any(note.code.endswith("drawn") for note in report.target.notes)
        same = [(one.dtype, one.tobytes()) for one in found] == [(one.dtype, one.tobytes()) for one in wanted]
        bits = "yes" if same else "no (draws or casts of its own)" if drawn else "NO"
        recorder = Recorder()
        with torch.no_grad(), recorder:
            torch.manual_seed(0)
            run()
        for value in pytree.tree_leaves(inputs):
            narrows = mode in TYPES and isinstance(value, torch.Tensor) and value.is_floating_point()
            recorder.note(value.to(getattr(torch, TYPES[mode])) if narrows else value)
        ends = [(row.comparison.target.min, row.comparison.target.max) for row in compared
                if row.comparison is not None and row.comparison.target.min is not None]  # fmt: skip
        seen = f"{sum(one in recorder.ends for one in ends)}/{len(ends)}"
    return (
        name, mode, str(report.verdict), f"{len(compared)}/{len(rows)}", bits, seen, f"{spent / plain:.0f}",
        f"{1e3 * spent / max(1, len(report.rows)):.2f}",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", default=MODES)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--output", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begun = time.monotonic()
    lines = ["| model | mode | verdict | compared | bits | seen | times two forwards | ms a row |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for mode in given.modes:
        for name, build in factories().items():
            if given.only and name not in given.only:
                continue
            if time.monotonic() - begun > given.seconds:
                lines.append(f"| {name} | {mode} | not run: {given.seconds:.0f} s were over | | | | | |")
                continue
            try:
                cells = line(name, mode, build)
            except Exception as error:
                cells = (name, mode, f"not built: {type(error).__name__}: {str(error)[:60]}", "", "", "", "", "")
            lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
            print(lines[-1], flush=True)
    if given.output:
        Path(given.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
