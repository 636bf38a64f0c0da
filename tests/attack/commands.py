"""Command lines, settings, files beside the report, planted modules and child processes that die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
from onnx_models import mlp

from precision_debug.cli.compare import build_parser
from precision_debug.settings.setting import parse_shapes, parse_val_range

from .case import CANARY, ROOT, Lost, command, files_of, own_error, patience, whole_command

__all__ = ["beside_the_report", "command_lines", "dying_children", "planted_modules", "settings", "values"]

FAKE = ROOT / "tests" / "fake"
_WORDS = (
    "ort_fp32", "ort_int8", "ort_opt", "ort_nothing", "trt_fp16", "torch_fp32", "m.onnx", "no.onnx", "m.pt2",
    "net.py:f", "net.py", "", "-", "--", "x", "0", "-1", "1e999", "nan", "inf", "[1,2]", "x:[1,3]", "x:1x3", "y:", ":",
    "=", "a=b", "=b", "a=", ".", "..", "/", "/dev/null", "output/", "o.xlsx", "o.json", "o.exe", "\x1b[2J.onnx",
    "\u202ex", "\udcff", "模型", "re:(", "re:.*", "*", "0,1", "1,0", "x:0,1", "4G", "-4G", "1e400", "9" * 400, "'", '"',
    "$(touch x)", "--help", "--version",
)  # fmt: skip


def _options() -> list[str]:
    names = [name for action in build_parser()._actions for name in action.option_strings]
    return [name for name in names if name.startswith("--") and name != "--verbose"]  # that one asks for tracebacks


def command_lines(random_: random.Random, folder: Path) -> None:
    """Options and words in any order."""
    options = _options()
    Path("m.onnx").write_bytes(mlp().SerializeToString())
    words: list[str] = []
    if random_.random() < 0.6:
        words += ["--model_file", random_.choice(("m.onnx", "no.onnx")), "--run_mode", random_.choice(_WORDS[:4])]
    if random_.random() < 0.2:
        words.insert(0, random_.choice(("doctor", "inspect", "report", "ladder", "compare")))
    for _ in range(random_.randrange(5)):
        words.append(random_.choice(options))
        if random_.random() < 0.2:
            words[-1] = words[-1][: random_.randrange(3, len(words[-1]) + 1)].replace("_", random_.choice("_-"))
        words += [random_.choice(_WORDS) for _ in range(random_.choice((0, 1, 1, 1, 2)))]
    if words[:1] in (["doctor"], ["marks"], ["ladder"]) and "--help" not in words:
        words.append("--help")  # those start frameworks
    before = files_of(folder)
    command(*words)
    if files_of(folder) != before:
        raise Lost(f"files were written or changed by {words}")


def values(random_: random.Random, folder: Path) -> None:
    """Text that is parsed: shapes and ranges."""
    signs = "x:[]1234567890,-.eE×x*nanif GKMT\x00\x1b\u202e=模"
    text = "".join(random_.choice(signs) for _ in range(random_.randrange(16)))
    own_error(lambda: parse_shapes([text]))
    own_error(lambda: parse_val_range([text, text]))


_SETTINGS = (
    "seed", "level", "device", "threads", "intra_op_num_threads", "nodes_to_exclude", "nodes_to_exlude", "per_channel",
    "bfloat16_ops", "memory_budget", "workspace", "use_tf32", "\x1b", "__class__", "side", "work_dir", "compare_on",
)  # fmt: skip


_VALUES = ("[" * 300, "(" * 5000, "{1:2}", "1j", "None", "...", "b'x'", "f()", "99999", "{[]}", "-" * 9999)


def settings(random_: random.Random, folder: Path) -> None:
    """--option KEY=VALUE with names and values of every kind, up to where a run would start."""
    Path("m.onnx").write_bytes(mlp().SerializeToString())
    words = ["--model_file", "m.onnx", "--run_mode", random_.choice(("ort_fp32", "ort_int8", "ort_opt", "ort_fp16"))]
    for _ in range(random_.randrange(1, 4)):
        value = random_.choice((*_WORDS, *_VALUES))
        words += ["--option", f"{random_.choice(_SETTINGS)}={value}"]
    command(*words)


def _run(mode: str, *more: str, layers: int = 8) -> list[str]:
    Path("m.fake").write_text(json.dumps({"layers": layers, "width": 4}), encoding="utf-8")
    return ["--model_file", "m.fake", "--run_mode", mode, *more]


_BESIDE = ("train.json.inputs.npz", "train.log", "train.inputs.npz", "train.inputs.json", "train.json.lock",
           ".train.json.lock", "train.html", "journal.jsonl", "log.txt", "inputs.npz", "train", "train.json.log",
           "train.json.part")  # fmt: skip


def beside_the_report(random_: random.Random, folder: Path) -> None:
    """A run changes, removes and follows nothing of the user's beside its report."""
    words = _run(random_.choice(("fake_fp32", "fake_off", "fake_raise", "fake_abort")), "--output", "train.json")
    Path("victim").write_text("precious", encoding="utf-8")
    for name in random_.sample(_BESIDE, 3):
        way = random_.randrange(3)
        if way == 0:
            Path(name).write_text("of the user", encoding="utf-8")
        elif way == 1:
            Path(name).symlink_to("victim")
        else:
            Path(name).mkdir()
            (Path(name) / "kept").write_text("of the user", encoding="utf-8")
    before = files_of(folder)
    said = whole_command(*words, paths=[FAKE])
    after = files_of(folder)
    lost = {name for name, content in before.items() if after.get(name) != content}
    if lost:
        raise Lost(f"of the user's files these were changed or removed: {sorted(lost)} (status {said.status})")


def planted_modules(random_: random.Random, folder: Path) -> None:
    """Modules and entry points in the folder that a command is run in, or beside the user's own script."""
    names = (
        "queue", "random", "json", "numpy", "onnx", "onnxruntime", "tempfile", "shutil", "secrets", "precision_debug_x",
        "xlsxwriter", "filelock", "rich", "logging", "subprocess", "hashlib", "ml_dtypes", "csv", "argparse",
    )  # fmt: skip
    onnx.save(mlp(), "m.onnx")
    for name in random_.sample(names, 6):
        code = f"open({str(folder / CANARY)!r}, 'a').write({name!r})\n"
        if random_.random() < 0.5:
            Path(f"{name}.py").write_text(code, encoding="utf-8")
        else:
            Path(name).mkdir()
            Path(name, "__init__.py").write_text(code, encoding="utf-8")
    info = Path("planted-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[precision_debug.backends]\nx = precision_debug_x:B\n", encoding="utf-8")
    more = []
    if random_.random() < 0.4:
        Path("feed.py").write_text(
            "import numpy as np\ndef load_data():\n    return {'x': np.ones((2, 8), np.float32)}\n", encoding="utf-8"
        )
        more = ["--inputs", "feed.py"]
    empty = [""] if random_.random() < 0.3 else []  # "." would be a folder that is named
    said = whole_command(
        "--model_file", "m.onnx", "--run_mode", "ort_opt", "--output", f"r{random_.choice(('.json', '.xlsx'))}", *more,
        paths=[ROOT, ROOT / "backends", *empty],
    )  # fmt: skip
    if said.status != 0:
        raise Lost(f"status {said.status}: {said.err}")


def dying_children(random_: random.Random, folder: Path) -> None:
    """A worker or its parent that is killed leaves a partial report, and no hidden files where the report is there."""
    if random_.random() < 0.6:
        mode = random_.choice(("fake_abort", "fake_kill", "fake_exit", "fake_raise", "fake_abort_open"))
        said = whole_command(*_run(mode, "--output", "out/r.json"), paths=[FAKE])
        if said.status != 3:
            raise Lost(f"{mode} ended with status {said.status}")
        if mode != "fake_abort_open" and not Path("out/r.json").is_file():
            raise Lost(f"{mode} left no report")
    else:
        _signalled(random_)
    left = [path.name for path in Path("out").iterdir() if path.name.startswith(".")]
    if left:
        raise Lost(f"left {left}")


def _signalled(random_: random.Random) -> None:
    own = os.pathsep.join(map(str, (FAKE, ROOT, ROOT / "backends")))
    child = subprocess.Popen(
        [sys.executable, "-m", "precision_debug", *_run("fake_hang", "--output", "out/r.json")],
        env={**os.environ, "PYTHONPATH": own}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + patience(55)
    while time.monotonic() < end and not any(
        '"row"' in path.read_text(encoding="utf-8", errors="replace") for path in Path(".").glob("out/.*/journal.jsonl")
    ):
        time.sleep(0.05)
    child.send_signal(random_.choice((signal.SIGINT, signal.SIGTERM)))
    try:
        _, err = child.communicate(timeout=patience(55))
    except subprocess.TimeoutExpired:
        child.terminate()
        child.wait(20)
        raise
    if child.returncode != 3 or "Traceback" in err:
        raise Lost(f"status {child.returncode}: {err[-300:]}")
    if not Path("out/r.json").is_file():
        raise Lost("a run that was interrupted left no report")
