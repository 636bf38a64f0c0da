"""Every architecture in every CPU mode of PyTorch: status, share compared, outputs to the bit, pairs, and time.

    python tests/benchmarks/torch_matrix.py [--modes torch_bf16 pt2:torch_bf16 …] [--only bert …] [--seconds 900]
        [--explain off] [--output table.md]

The architectures are those of tests/torch_architectures.py, and tiny models of the transformers library from their
configurations, all with random weights. ``pt2:MODE`` compares what torch.export.save writes of a model. Each is
compared as the command does it, without a tolerance: a healthy model is "as expected". Of each pair of model and mode:

- error: Rel L2 of the worst output;
- compared: rows with a comparison, of all rows that have a partner or could have one;
- bits: whether the outputs of a watched run are those of the module that a user runs, to the bit: narrowed, under
  autocast, quantised by torchao, compiled, or loaded by torch.export.load;
- seen: rows whose target numbers (least, largest) are among those of an independent dispatch mode, which knows nothing
  of this project, of all rows that it can judge;
- times: seconds of the processor that the comparison takes over those of two bare forwards (the median of five), and
  milliseconds a row.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import torch_architectures
from precision_debug_torch.backend import open_model
from precision_debug_torch.engine.nested_tensors import iterate_leaves
from precision_debug_torch.model import Model, example_feeds, from_module, read_model
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from precision_debug import compare
from precision_debug.numbers.arrays import as_array
from precision_debug.records import ModelFiles

MODES = (
    "torch_fp64", "torch_fp16", "torch_bf16", "torch_autocast_fp16", "torch_autocast_bf16", "torch_int8",
    "torch_fp8_weights", "torch_int4_weights", "torch_compile", "pt2:torch_bf16", "pt2:torch_autocast_bf16",
    "pt2:torch_compile",
)  # fmt: skip
TYPES = {"torch_fp64": "float64", "torch_fp16": "float16", "torch_bf16": "bfloat16"}
CONFIGS = {"torch_int8": "Int8DynamicActivationInt8WeightConfig", "torch_fp8_weights": "Float8WeightOnlyConfig"}
SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "image_size": 32, "patch_size": 8, "head_dim": 8, "pad_token_id": 0, "rotary_dim": 8,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "Falcon": {"head_dim": None}, "SqueezeBert": {"embedding_size": 32}, "Yolos": {"image_size": [32, 32]},
    "Segformer": {"patch_sizes": [7, 3, 3, 3], "patch_size": None, "num_attention_heads": [1, 2, 4, 8]},
    "ConvNext": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 16], "patch_size": None}, "GPTJ": {"n_embd": 32},
    "CodeGen": {"n_embd": 32}, "XLNet": {"d_inner": 64, "n_head": 4, "n_layer": 2},
}  # fmt: skip
"""What a configuration asks for besides; None: what it has by itself."""
TEXT = [
    "Albert", "Roberta", "DistilBert", "Electra", "DebertaV2", "MPNet", "XLNet", "Bart", "Mistral", "Mixtral",
    "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi", "Phi3", "Falcon", "OPT", "Bloom", "GPTNeoX", "GPTNeo", "GPTJ",
    "CodeGen", "Olmo", "StableLm", "Starcoder2", "Granite", "Cohere", "Mamba", "FNet", "Nystromformer",
    "RoFormer", "Ernie", "MobileBert", "SqueezeBert", "XLM",
]  # fmt: skip
PICTURES = [
    "DeiT", "Beit", "ConvNext", "ResNet", "Dinov2", "Yolos", "MobileViT", "ViTMAE", "PoolFormer", "Segformer",
]  # fmt: skip
Build = Callable[[], tuple[Any, Any]]


def of_transformers(name: str) -> Build:
    """A tiny model from its configuration alone."""

    def build() -> tuple[Any, Any]:
        import transformers

        kind = getattr(transformers, f"{name}Model")
        config: Any = getattr(transformers, f"{name}Config")
        known = {key: value for key, value in SIZES.items() if hasattr(config(), key)}
        chosen = {key: value for key, value in (known | OWN.get(name, {})).items() if value is not None}
        torch.manual_seed(0)
        module = kind(config(**chosen)).eval()
        if name in PICTURES:
            size = 64 if name == "ConvNext" else 32
            return module, {"pixel_values": torch.randn(1, 3, size, size)}
        return module, {"input_ids": torch.arange(1, 17)[None]}

    return build


FACTORIES: dict[str, Build] = {
    **torch_architectures.FACTORIES, **{name: of_transformers(name) for name in (*TEXT, *PICTURES)}
}  # fmt: skip
globals().update(FACTORIES)  # this file is a model file: torch_matrix.py:Bart


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
    """What a user runs, without any of ours; None where there is no one way to."""
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
    if mode in CONFIGS:
        from torchao import quantization

        quantised = copy.deepcopy(module)
        quantization.quantize_(quantised, getattr(quantization, CONFIGS[mode])())
        return lambda: called(quantised, inputs)
    if mode == "torch_compile":
        torch._dynamo.reset()
        compiled = torch.compile(copy.deepcopy(module))
        return lambda: called(compiled, inputs)
    return None


def of_a_program(path: str, inputs: Any, mode: str) -> Callable[[], Any] | None:
    """The same of a .pt2 file; what narrows its types inside is this project's own work."""
    if mode in TYPES:
        return None
    module = torch.export.load(path).module()
    if mode == "torch_compile":
        torch._dynamo.reset()
        module = torch.compile(module)
    context = contextlib.nullcontext() if mode == "torch_compile" else torch.autocast("cpu", dtype=torch.bfloat16)

    def run() -> Any:
        with context:
            return called(module, inputs)

    return run


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    return [as_array(tensor) for _, tensor in iterate_leaves(result, "output")]


def exported(module: Any, inputs: Any, folder: str) -> str:
    path = str(Path(folder, "model.pt2"))
    if hasattr(getattr(module, "config", None), "use_cache"):
        module.config.use_cache = False  # torch.export takes no cache of the library's as an output
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    program = torch.export.export(module, args, inputs if isinstance(inputs, dict) else {})
    torch.export.save(program, path)
    return path


def seconds(call: Callable[[], Any], repeat: int = 5) -> float:
    """Of the processor: the median of a few, after one that does not count."""
    found = []
    for _ in range(repeat + 1):
        begun = time.process_time()
        call()
        found.append(time.process_time() - begun)
    return statistics.median(found[1:])


def same_bits(model: Model, mode: str, run: Callable[[], Any]) -> tuple[bool, bool]:
    """Whether a watched run's outputs, and those of one without a hook, are a plain run's."""
    with torch.no_grad():
        torch.manual_seed(0)
        wanted = [(one.dtype, one.tobytes()) for one in arrays(run())]
    feeds, same = example_feeds(model), []
    session = open_model(model, mode, {"device": "cpu"}, [feeds])
    for hook in (lambda *_: None, None):
        found = [np.asarray(one) for one in session.run(feeds, hook).values()]
        same.append([(one.dtype, one.tobytes()) for one in found] == wanted)
    session.close()
    return same[0], same[1]


@contextlib.contextmanager
def refusals() -> Iterator[types.SimpleNamespace]:
    """What torch itself raises, in a line."""
    said = types.SimpleNamespace(text="")
    try:
        yield said
    except Exception as error:
        said.text = f"{type(error).__name__}: {str(error)[:80]}"


def line(name: str, mode: str, build: Build, folder: str, explain: str) -> tuple[str, ...]:
    module, inputs = build()
    source, _, mode_of = mode.rpartition(":")
    path = f"{Path(__file__).resolve()}:{name}"
    with refusals() as refused, torch.no_grad():
        if source:
            path = exported(module, inputs, folder)
        model = read_model(ModelFiles(model_file=path)) if source else from_module(module, inputs)
        run = of_a_program(path, inputs, mode_of) if source else bare(module, inputs, mode_of)
        torch.manual_seed(0)
        if run is not None:
            run()
    if refused.text:
        return name, mode, f"torch refuses it: {refused.text}", *[""] * 6
    with torch.no_grad():
        plain = seconds(lambda: called(copy.deepcopy(module), inputs))
        plain += seconds(run) if run is not None else plain
    begun = time.process_time()
    try:
        report = compare(path, run_mode=mode_of, device="cpu", explain=explain)
    except Exception as error:
        return name, mode, f"{type(error).__name__}: {str(error)[:120]}", *[""] * 6
    spent = time.process_time() - begun
    rows = [row for row in report.rows if row.status.value != "unmatched"]
    compared = [row for row in rows if row.comparison is not None]
    errors = [row.relative_l2 for row in report.rows if row.is_output and row.relative_l2 is not None]
    bits, seen = "", ""
    if run is not None:
        watched, unwatched = same_bits(model, mode_of, run)
        notes = [note.code for note in report.target.notes]
        own = mode_of == "torch_fp64" or any(code.endswith(("drawn", "casts_kept")) for code in notes)
        bits = "yes" if watched and unwatched else "no (draws or casts of its own)" if own else "NO"
        if unwatched and not watched and mode_of == "torch_compile":
            bits = "yes (unwatched)"
        if mode_of != "torch_compile":
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
        name, mode, str(report.verdict), f"{max(errors):.2g}" if errors else "", f"{len(compared)}/{len(rows)}", bits,
        seen, f"{spent / plain:.0f}", f"{1e3 * spent / max(1, len(report.rows)):.2f}",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", default=MODES)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--explain", default="fast")
    parser.add_argument("--output", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begun = time.monotonic()
    columns = ["model", "mode", "verdict", "error", "compared", "bits", "seen", "times two forwards", "ms a row"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for mode in given.modes:
        for name, build in FACTORIES.items():
            if given.only and name not in given.only:
                continue
            rest = [""] * (len(columns) - 3)
            if time.monotonic() - begun > given.seconds:
                lines.append(f"| {' | '.join([name, mode, f'not run: {given.seconds:.0f} s were over', *rest])} |")
                continue
            try:
                with tempfile.TemporaryDirectory() as folder:
                    cells = line(name, mode, build, folder, given.explain)
            except Exception as error:
                cells = (name, mode, f"not built: {type(error).__name__}: {str(error)[:60]}", *rest)
            lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
            print(lines[-1], flush=True)
            if given.output:
                Path(given.output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
