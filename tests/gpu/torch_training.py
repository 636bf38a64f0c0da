"""Training steps on a card: a Llama-style decoder of about 1.1 B parameters, and two models of timm, random weights.

Start from the repository's root on the GPU machine (about 4 minutes)::

    OUT=output python tests/gpu/torch_training.py [--budget 300] [--profile] [--only PATTERN]

Each case is a line of JSON as soon as it is finished, and $OUT/training.json holds all that are; a case is only begun
while the budget lasts, and one that outlasts it by --grace seconds is ended, with every thread's stack on stderr. The
order is that of value: a small decoder first, so that something comes out, then the large one in bf16, fp16 and fp8,
then timm. A line has the rows that were compared, the culprit, seconds of the comparison beside those of two bare
steps (one in float32, one in the mode), and the most memory that was taken. --profile: where the seconds go, of all
threads, to $OUT/profile_CASE.txt, and how often the host waited for the card, by line, to $OUT/waits.txt.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import fnmatch
import importlib.util
import json
import os
import statistics
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # the large case fills most of a card
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # two bare runs give the same bits

import checkout  # noqa: F401
import torch

OUT = Path(os.environ.get("OUT", "output"))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HERE = Path(__file__).resolve()
HALF = {"torch_autocast_bf16": torch.bfloat16, "torch_autocast_fp16": torch.float16}
BEGUN = time.perf_counter()


def decoder() -> Any:
    """(module, inputs, loss, optimiser) as the command line takes it; $LAYERS, $WIDTH, $WORDS and $TOKENS say how
    large."""
    from transformers import LlamaConfig, LlamaForCausalLM

    layers, width, words, tokens = (int(os.environ[name]) for name in ("LAYERS", "WIDTH", "WORDS", "TOKENS"))
    config = LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=16, num_key_value_heads=8, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config)
        ids = torch.randint(0, words, (1, tokens))
    inputs = {"input_ids": ids, "labels": ids.clone()}
    return model, inputs, None, lambda parameters: torch.optim.AdamW(parameters, lr=1e-4)


def of_timm() -> Any:
    """Likewise: timm's $ARCHITECTURE on $IMAGES images of $SIDE points; SGD with momentum where it convolves."""
    import timm

    name, images, side = os.environ["ARCHITECTURE"], int(os.environ["IMAGES"]), int(os.environ["SIDE"])
    torch.manual_seed(0)
    sized = {"img_size": side} if name.startswith("vit") else {}
    model = timm.create_model(name, pretrained=False, num_classes=100, **sized).to(DEVICE).train()
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(images, 3, side, side, generator=drawn).to(DEVICE)
    labels = torch.randint(0, 100, (images,), generator=drawn).to(DEVICE)
    criterion = torch.nn.CrossEntropyLoss()

    def optimiser(parameters: Any) -> Any:
        if name.startswith("resnet"):
            return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
        return torch.optim.AdamW(parameters, lr=1e-4)

    return model, (x,), lambda returned: criterion(returned, labels), optimiser


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison. bits: whether a run with hooks gives the bits of one without is looked at, too."""

    name: str
    factory: str
    mode: str
    explain: str
    step: str
    sizes: dict[str, Any] = field(default_factory=dict)
    bits: bool = False


def cases(given: argparse.Namespace) -> list[Case]:
    """In the order of their value."""
    small = {
        "LAYERS": 2, "WIDTH": min(256, given.width), "WORDS": min(2000, given.words), "TOKENS": min(64, given.tokens)
    }  # fmt: skip
    large = {"LAYERS": given.layers, "WIDTH": given.width, "WORDS": given.words, "TOKENS": given.tokens}
    order = (("autocast_bf16", "off"), ("autocast_bf16", "fast"), ("autocast_fp16", "fast"), ("autocast_fp16", "off"))
    float8 = (("fp8", "fast"),) if importlib.util.find_spec("torchao") else ()  # without it the mode is refused
    found = []
    for size, sizes, wanted in (("small", small, order[1:3]), ("large", large, order)):
        for mode, explain in (*wanted, *float8):
            # what float8 changes is over with the backward pass, and the optimiser's states take most of the memory
            step = "backward" if mode == "fp8" else given.step
            found.append(
                Case(
                    name=f"{size}_{mode}_{explain}", factory="decoder", mode=f"torch_{mode}", explain=explain,
                    step=step, sizes=sizes, bits=size == "small",
                )
            )  # fmt: skip
    for name in ("resnet50", "vit_small_patch16_224"):
        for mode in ("autocast_bf16", "autocast_fp16", "bf16"):
            sizes = {"ARCHITECTURE": name, "IMAGES": given.images, "SIDE": given.side}
            # parameters in bfloat16 do lose updates, so a healthy step is one without them there
            step = "backward" if mode == "bf16" else given.step
            found.append(
                Case(
                    name=f"{name}_{mode}", factory="of_timm", mode=f"torch_{mode}", explain="fast", step=step,
                    sizes=sizes, bits=True,
                )
            )  # fmt: skip
    return found


def waited() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def told(*words: object) -> None:
    print(f"[{time.perf_counter() - BEGUN:7.1f} s]", *words, flush=True)


def bare(case: Case, mode: str) -> float | None:
    """Seconds of a bare step, the median of five; None of a mode that is no plain loop."""
    if mode not in ("torch_fp32", "torch_bf16", *HALF):
        return None
    module, inputs, loss, make = globals()[case.factory]()
    if mode == "torch_bf16":
        module, inputs = module.bfloat16(), tuple(one.bfloat16() for one in inputs)
    half = HALF.get(mode)
    scaler = torch.amp.GradScaler(DEVICE, enabled=half is torch.float16)
    optimiser = make(module.parameters()) if case.step == "optimiser" else None
    found = []
    for _ in range(6):
        waited()
        begun = time.perf_counter()
        with torch.autocast(DEVICE, dtype=half or torch.bfloat16, enabled=half is not None):
            returned = module(**inputs) if isinstance(inputs, dict) else module(*inputs)
            value = returned.loss if loss is None else loss(returned)
        scaler.scale(value).backward()
        if optimiser is not None:
            scaler.step(optimiser)
            scaler.update()
        module.zero_grad()
        waited()
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:])


def same_bits(case: Case) -> dict[str, Any]:
    """How many gradients differ between two runs without hooks, and between one without and one with them."""
    from precision_debug_torch.backend import open_model
    from precision_debug_torch.model import example_feeds, read_model

    from precision_debug.records import ModelFiles

    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        model = read_model(ModelFiles(model_file=f"{HERE}:{case.factory}"), seed=0)
        feeds = example_feeds(model)
        runs = []
        for hook in (None, None, lambda *_: None):
            session = open_model(model, case.mode, {"step": "backward", "device": DEVICE}, [feeds])
            outputs = session.run(feeds, hook)
            runs.append({name: outputs[name].tobytes() for name in outputs if name.startswith("gradient/")})
            session.close()
    finally:
        torch.backends.cudnn.deterministic = before
    plain, again, watched = runs
    return {
        "gradients": len(plain),
        "differ without hooks": sum(plain[name] != again[name] for name in plain),
        "differ with hooks": sum(plain[name] != watched.get(name) for name in plain),
    }


class Sampler:
    """Where the threads of this process are, looked at every few milliseconds: by the innermost line of our own code
    with the innermost of all, and by every function on the stack. cProfile sees one thread; a comparison has two."""

    def __init__(self, every: float = 0.005) -> None:
        self.every, self.looks = every, 0
        self.own, self.cumulative = collections.Counter[str](), collections.Counter[str]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="sampler")

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(self.every):
            self._look_once()

    def _look_once(self) -> None:
        """Keeps no frame: one that outlives its call holds its tensors, and autograd copies a gradient that is held."""
        self.looks += 1
        names = {one.ident: one.name for one in threading.enumerate()}
        for ident, top in sys._current_frames().items():
            name = names.get(ident, "?")  # "?": of torch's own
            if name not in ("sampler", "end"):
                self._count("target" if name == "MainThread" else name.partition("-")[0], top)

    def _count(self, side: str, frame: Any) -> None:
        seen, ours, leaf = set(), "", ""
        while frame is not None:
            code = frame.f_code
            name = f"{Path(code.co_filename).name}:{code.co_name}"
            leaf = leaf or f"{name}:{frame.f_lineno}"
            if not ours and "precision_debug" in code.co_filename:
                ours = f"{name}:{frame.f_lineno}"
            seen.add(name)
            frame = frame.f_back
        self.own[f"{side}: {ours} <- {leaf}" if ours != leaf else f"{side}: {ours}"] += 1
        self.cumulative.update(f"{side}: {name}" for name in seen)

    def written(self, seconds: float, limit: int = 25) -> str:
        """The top lines, in seconds."""
        each = seconds / max(1, self.looks)
        lines = [f"{seconds:.1f} s, {self.looks} looks"]
        for title, counts in (("by own time", self.own), ("cumulative", self.cumulative)):
            lines += ["", title, *(f"{many * each:8.2f} s  {what}" for what, many in counts.most_common(limit))]
        return "\n".join(lines) + "\n"


@contextmanager
def waits() -> Iterator[collections.Counter[str]]:
    """Counts how often an operator of torch's made the host wait for the card, by the lines of ours that called it."""
    found = collections.Counter[str]()
    plain = warnings.showwarning

    def counted(message: Any, *rest: Any, **more: Any) -> None:
        if "synchronizing" not in str(message):
            plain(message, *rest, **more)
            return
        frame, lines = sys._getframe(1), list[str]()
        while frame is not None and len(lines) < 3:
            if "precision_debug" in frame.f_code.co_filename:
                lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back  # type: ignore[assignment]
        found[" < ".join(lines)] += 1

    warnings.showwarning = counted
    warnings.simplefilter("always")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        yield found
    finally:
        torch.cuda.set_sync_debug_mode("default")
        warnings.showwarning = plain
        warnings.resetwarnings()


def compared(case: Case) -> tuple[Any, float]:
    import precision_debug

    waited()
    begun = time.perf_counter()
    report = precision_debug.compare(
        f"{HERE}:{case.factory}", run_mode=case.mode, explain=case.explain, step=case.step, device=DEVICE,
    )  # fmt: skip
    waited()
    return report, time.perf_counter() - begun


def line_of(case: Case, profile: bool) -> dict[str, Any]:
    from phases import phases

    line: dict[str, Any] = {"case": case.name, "mode": case.mode, "step": case.step, **case.sizes}
    if case.bits:
        line |= same_bits(case)
        told(case.name, "gradients' bits:", {key: line[key] for key in line if key.startswith("differ")})
    clean()
    steps = [bare(case, "torch_fp32"), bare(case, case.mode)]
    clean()
    told(case.name, "bare steps", [None if one is None else round(one, 4) for one in steps])
    sampler = Sampler() if profile else None
    with phases() as timed, sampler or nullcontext():
        report, seconds = compared(case)
    explanation = report.explanation
    culprits = explanation.culprits if explanation is not None else ()
    both = None if None in steps else sum(one for one in steps if one is not None)
    line |= {
        "explain": case.explain, "verdict": str(report.verdict), "exit status": report.exit_status,
        "rows": len(report.rows), "compared": len(report.compared), "seconds": round(seconds, 2),
        "of both runs": [round(report.baseline.seconds, 2), round(report.target.seconds, 2)],
        "explaining": None if explanation is None else round(explanation.seconds, 2),
        "state": "" if explanation is None else f"{explanation.state} {explanation.reason}",
        "bare steps": None if both is None else round(both, 4),
        "times": None if both is None else round(seconds / both, 1),
        "culprits": [[one.name, one.cause] for one in culprits[:3]],
        "worst gradient": max(
            (row.relative_l2 or 0.0 for row in report.outputs if row.comparison is not None), default=None
        ),
        "notes": [str(one) for one in (*report.notes, *report.target.notes)],
    }  # fmt: skip
    if DEVICE == "cuda":
        line["peak GB"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
        line["reserved GB"] = round(torch.cuda.max_memory_reserved() / 1e9, 1)
    told(case.name, "phases", json.dumps(dict(list(timed.items())[:14])))
    line["phases"] = timed
    if sampler is not None:
        (OUT / f"profile_{case.name}.txt").write_text(sampler.written(seconds), encoding="utf-8")
        told(case.name, "own time", sampler.own.most_common(5))
    return line


def clean() -> None:
    if DEVICE == "cuda":
        import gc

        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def written(table: list[dict[str, Any]]) -> None:
    (OUT / "training.json").write_text(json.dumps(table, indent=1, default=str), encoding="utf-8")


def ended_at(limit: float, table: list[dict[str, Any]], now: dict[str, str]) -> None:
    """When the time is over all the same: what every thread does, and what is finished, and the end."""

    def watch() -> None:
        time.sleep(max(0.0, limit - (time.perf_counter() - BEGUN)))
        told("the budget is spent, in", now["case"])
        faulthandler.dump_traceback(all_threads=True)
        written([*table, {"case": now["case"], "error": "was not finished within the budget"}])
        sys.stdout.flush()
        os._exit(3)

    threading.Thread(target=watch, daemon=True, name="end").start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--step", default="optimiser", choices=("backward", "optimiser"))
    parser.add_argument("--budget", type=float, default=300.0, help="seconds after which no case is begun")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds by which a case may outlast the budget")
    parser.add_argument("--only", nargs="*", default=["*"], help="cases, or patterns of them: small* resnet*")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, Any]] = []
    now = {"case": "start"}
    ended_at(given.budget + given.grace, table, now)
    chosen = [case for case in cases(given) if any(fnmatch.fnmatch(case.name, one) for one in given.only)]
    card = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    told(f"torch {torch.__version__}, {card}, {len(chosen)} cases")
    for case in chosen:
        if time.perf_counter() - BEGUN > given.budget:
            told(case.name, "is not begun: the budget is spent")
            table.append({"case": case.name, "error": "not begun"})
            continue
        now["case"] = case.name
        os.environ |= {name: str(value) for name, value in case.sizes.items()}
        clean()
        table.append(attempted(lambda case=case: line_of(case, given.profile), case.name))
        shown = {key: value for key, value in table[-1].items() if key != "phases"}
        print(json.dumps(shown, default=str), flush=True)
        written(table)
    if given.profile and DEVICE == "cuda" and chosen and time.perf_counter() - BEGUN < given.budget:
        now["case"] = "waits"
        small = chosen[0]
        os.environ |= {name: str(value) for name, value in small.sizes.items()}
        with waits() as found:
            compared(small)
        lines = [f"{many:6} {where}" for where, many in found.most_common(60)]
        (OUT / "waits.txt").write_text(f"{small.name}\n" + "\n".join(lines) + "\n", encoding="utf-8")
        told("waits for the card", found.total(), "of", small.name, found.most_common(5))
    return 1 if any("error" in line for line in table) else 0


def attempted(work: Callable[[], dict[str, Any]], name: str) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:
        traceback.print_exc()
        return {"case": name, "error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
