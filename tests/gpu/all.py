"""Every check on a card, each in a process of its own with a limit of its own, and a table of what ran.

    OUT=/some/empty/folder PYTHON=python3.11 python3 tests/gpu/all.py [NAME …] [--at_once N] [--budget SECONDS]

What a check needs and this environment lacks (TensorRT, torch with CUDA, ONNX Runtime's CUDA provider, Paddle with
TensorRT) is said in its line: the environments exclude each other, so a card sees this script once in each. A check
is green where its status is 0 and no line of it begins with FAIL. $OUT/all.json has the table, $OUT/NAME/log.txt what
each printed. Beside each other (--at_once) seconds are upper bounds: builds time kernels, so the card is what they wait
for (six at once keep it at 98 %), and with more than three limits are twice as long. One that needs much of its memory
waits until there is room. The exit status is 1 where one that ran is not green.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "tests" / "gpu"
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu_all")).resolve()
PYTHON = os.environ.get("PYTHON", sys.executable)

NEEDS = {
    "tensorrt": "import tensorrt",
    "polygraphy": "import tensorrt, polygraphy",
    "torch": "import torch; assert torch.cuda.is_available()",
    "torchao": "import torch, torchao; assert torch.cuda.is_available()",
    "two cards": "import torch; assert torch.cuda.device_count() > 1",
    "ort_cuda": "import onnxruntime as o; assert 'CUDAExecutionProvider' in o.get_available_providers()",
    "onnxruntime": "import onnxruntime",
    "paddle's published models": "import os, pathlib, paddle; assert any(paddle.inference.get_trt_compile_version()); "
    "assert pathlib.Path(os.environ['PRECISION_DEBUG_WILD']).is_dir()",
    "paddle": "import paddle; assert any(paddle.inference.get_trt_compile_version())",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """needs: a key of NEEDS. seconds: its limit, alone on the card. gigabytes: of the card's memory, at most. smaller:
    variables that make its models smaller than by default, so that all checks fit into half an hour."""

    words: tuple[str, ...]
    needs: str
    seconds: float = 240
    gigabytes: int = 6
    smaller: Mapping[str, str] = field(default_factory=dict)


CHECKS = {
    "paddle_export_tensorrt": Check(words=("paddle_export_tensorrt.py",), needs="tensorrt", seconds=400),
    "explain_tensorrt": Check(words=("explain_tensorrt.py",), needs="tensorrt", seconds=400, smaller={"LAYERS": "3"}),
    **{
        f"tensorrt_issue_{part}": Check(words=("tensorrt_issue.py", "--part", part), needs="tensorrt", seconds=640)
        for part in (
            "models",
            "constraints",
            "fused",
            "fused_resnet",
            "tests",
            "contract",
            "regions",
            "commands",
        )
    },
    **{
        f"tensorrt_builds_{name}": Check(
            words=("tensorrt_builds.py", *cases),
            needs="tensorrt",
            seconds=500,
            smaller={"LAYERS": "6", "IMAGE": "112"},
        )
        for name, cases in {
            "decoder": ("decoder fp16",),
            "pre_norm": ("pre-LN encoder fp16",),
            "post_norm": ("post-LN encoder with padding fp16",),
            "decomposed": ("encoder of 4 fp16",),
            "resnet50": ("resnet50 fp16",),
            "resnet18": ("resnet18 fp16", "resnet18 dynamic batch fp16"),
            "resnet18_int8": ("resnet18 int8", "resnet18 fp32"),
        }.items()
    },
    "tensorrt_polygraphy": Check(
        words=("tensorrt_polygraphy.py", "encoder of 4 fp16", "resnet18 fp16"),
        needs="polygraphy",
        seconds=900,
        smaller={"IMAGE": "112"},
    ),
    "tensorrt_marked": Check(words=("tensorrt_marked.py",), needs="tensorrt", seconds=500),
    "tensorrt_compare": Check(words=("tensorrt_compare.py",), needs="tensorrt", seconds=400),
    "migration": Check(words=("migration.py",), needs="tensorrt", seconds=640),
    **{
        f"search_tensorrt_{part[-1]}": Check(
            words=("search_tensorrt.py", *part), needs="tensorrt", seconds=640, smaller={"LAYERS": "3"}
        )
        for part in (
            ("encoder", "needed_first"),
            ("encoder", "needed_rest"),
            ("int8",),
            ("constraints",),
            ("constraints_int8",),
        )
    },
    **{
        f"paddle_trt_{step}": Check(words=("paddle_trt.py", step), needs="paddle", seconds=580)
        for step in (
            "encoder_fp16",
            "encoder_collected",
            "encoder_fused",
            "encoder_int8",
            "kept_overflow",
            "mobilenet_fp16_unmarked",
            "mobilenet_fp16",
            "mobilenet_fp16_fused",
            "resnet_fp16_fused",
            "resnet_fp16",
            "resnet_fp32",
            "resnet_fault",
            "section",
            "resnet_tf32",
            "ladder",
            "example",
            "fault",
            "calibration",
            "disabled_ops",
            "dynamic",
            "cached",
            "gpu_fp32",
            "unmarked",
            "calibration_outside",
            "calibration_refused",
            "bf16_refused",
            "machine",
            "fatbin",
            "inspector",
        )
    },
    "paddle_keep": Check(words=("paddle_keep.py",), needs="paddle", seconds=400),
    **{
        f"paddle_published_{model}_{precision}": Check(
            words=("paddle_published.py", f"{model}:trt_{precision}:none"),
            needs="paddle's published models",
            seconds=900,
        )
        for model in ("cls", "det", "rec")
        for precision in ("fp32", "fp16")
    },
    "ort_cuda": Check(words=("ort_cuda.py",), needs="ort_cuda"),
    "ort_device": Check(words=("ort_device.py",), needs="ort_cuda"),
    "ort_providers": Check(words=("ort_providers.py",), needs="ort_cuda"),
    "search_ort_cuda": Check(words=("search_ort_cuda.py",), needs="ort_cuda"),
    "explain_torch": Check(words=("explain_torch.py",), needs="torch", seconds=400, gigabytes=30),
    "many_samples": Check(words=("many_samples.py",), needs="torch"),
    "torch_command": Check(words=("torch_command.py",), needs="torch", seconds=400, gigabytes=24),
    "torch_quantised": Check(words=("torch_quantised.py",), needs="torchao"),
    "torch_two_cards": Check(words=("torch_two_cards.py",), needs="two cards", seconds=400),
    "torch_cuda": Check(words=("torch_cuda.py",), needs="torch"),
    "torch_llama": Check(words=("torch_llama.py",), needs="torch", gigabytes=70),
    "torch_training": Check(words=("torch_training.py",), needs="torch", seconds=400, gigabytes=60),
    "torch_llama_small": Check(words=("torch_llama.py", "--layers", "2", "--tokens", "256"), needs="torch"),
}
"""Scripts that are not named need torch: see ``checks``."""
_PARTS = frozenset({"all.py", "shown_at_once.py", "tensorrt_cases.py", "torch_record.py", "phases.py", "checkout.py"})
"""No checks by themselves: this one, what others import, and what needs two environments."""


def checks() -> dict[str, Check]:
    """All of them, those too that nobody entered here yet."""
    named = {check.words[0] for check in CHECKS.values()} | _PARTS
    rest = sorted(path.name for path in GPU.glob("*.py") if path.name not in named)
    return {**CHECKS, **{name.removesuffix(".py"): Check(words=(name,), needs="torch") for name in rest}}


class Room:
    """The card's memory, as the checks share it."""

    def __init__(self, gigabytes: int) -> None:
        self._free = gigabytes
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, gigabytes: int) -> Iterator[None]:
        """Wait until there is so much; what asks for more than all of it runs alone."""
        with self._changed:
            asked = min(gigabytes, _CARD)
            self._changed.wait_for(lambda: self._free >= asked)
            self._free -= asked
        try:
            yield
        finally:
            with self._changed:
                self._free += asked
                self._changed.notify_all()


_CARD = int(os.environ.get("GIGABYTES", "76"))
"""Of the card's memory, what all checks together may take; other work may stand beside them."""
_ROOM = Room(_CARD)


@functools.cache
def missing(needs: str) -> str:
    """Why checks of this kind cannot run here; "" where they can."""
    done = subprocess.run([PYTHON, "-c", NEEDS[needs]], capture_output=True, text=True, check=False, timeout=120)
    return "" if done.returncode == 0 else f"needs {needs}"


def run(name: str, check: Check, seconds: float, beside: bool = False) -> dict[str, object]:
    """One line of the table. beside: others run at the same time, so its limit is twice as long."""
    if reason := missing(check.needs):
        return {"name": name, "seconds": 0.0, "result": "not here", "why": reason}
    if seconds < 5:
        return {"name": name, "seconds": 0.0, "result": "not run", "why": "the budget was used up"}
    with _ROOM.of(check.gigabytes):
        return _ran(name, check, min(check.seconds * (1 + beside), seconds))


def _ran(name: str, check: Check, limit: float) -> dict[str, object]:
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    # what a check's own command may take: it ends first, and says where it was
    environment = {**check.smaller, **os.environ, "OUT": str(folder), "COMMAND_LIMIT": str(max(limit - 20, 5)),
                   "ENGINES": str(OUT / "engines")}  # fmt: skip
    begun = time.monotonic()
    with (folder / "log.txt").open("w") as log:
        child = subprocess.Popen(
            [PYTHON, str(GPU / check.words[0]), *check.words[1:]], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
            env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            status: int | None = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            status = None
    text = (folder / "log.txt").read_text(errors="replace")
    bad = re.findall(r"^FAIL\b.*", text, re.MULTILINE)
    good = len(re.findall(r"^PASS\b", text, re.MULTILINE))
    result = "over its limit" if status is None else "green" if status == 0 and not bad else "RED"
    why = f"over {limit:.0f} s" if status is None else f"{good} pass, {len(bad)} fail, status {status}"
    if result == "RED":
        why += ": " + (bad[0] if bad else text.strip().splitlines()[-1] if text.strip() else "nothing said")[:300]
    return {"name": name, "seconds": round(time.monotonic() - begun, 1), "result": result, "why": why}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--at_once", type=int, default=1)
    parser.add_argument("--budget", type=float, default=1e9)
    given = parser.parse_args()
    known = checks()
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"no check is called {unknown[0]}: {' '.join(known)}")
    OUT.mkdir(parents=True, exist_ok=True)
    begun, table = time.monotonic(), []
    with ThreadPoolExecutor(given.at_once) as pool:
        # the longest first, so that none is left alone at the end
        chosen = given.names or sorted(known, key=lambda name: -known[name].seconds)
        waiting = [
            pool.submit(
                lambda name: run(name, known[name], begun + given.budget - time.monotonic(), given.at_once > 3), name
            )
            for name in chosen
        ]
        for ended in as_completed(waiting):
            line = ended.result()
            table.append(line)
            (OUT / "all.json").write_text(json.dumps(table, indent=1))
            print(f"{line['name']:28} {line['seconds']:7} s  {line['result']}  {line['why']}", flush=True)
    return int(any(line["result"] in {"RED", "over its limit"} for line in table))


if __name__ == "__main__":
    sys.exit(main())
