"""What else is read: thresholds, outputs of Polygraphy, checkpoints, a search's journal, models and engines
that are looked at, functions and commands of the user's."""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings it
    import tomli as tomllib
from onnx_models import if_model, mlp

from precision_debug.events import ShardDone
from precision_debug.feeds.polygraphy_json import write_iteration_text
from precision_debug.observe.shard import Shard
from precision_debug.products.search.search_run import EVALUATIONS, search
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.answers import UserCompare
from precision_debug.run.criterion import CheckCommand
from precision_debug.run.journal import Journal, read_events
from precision_debug.run.parallel_run import Checkpoint, execute
from precision_debug.safety.untrusted import make_visible
from precision_debug.search.fix import SearchRequest
from precision_debug.settings.options import Workers
from precision_debug.testing.thresholds import Thresholds, add_test_claims, describe_complaint

from .case import CANARY, Lost, command, own_error, spoiled, spoiled_text
from .names import report_of

__all__ = ["checkpoints", "looked_at", "readers", "results", "search_journals", "thresholds", "users_own"]

_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{chr(ord(name) - 1)}'] * 9)}]\n" for name in "bcdefghij"
)
"""Ten lists of nine of the one before: 9 ** 10 words where somebody writes them out."""

_YAML = (
    f"{_BOMB}outputs: *j\n", f"{_BOMB}thresholds: {{outputs: *j}}\n", "1: 2\nx: 3\n", "tensors: {1: 0.5, null: 1}\n",
    "outputs: 1" + "0" * 400,
    "outputs: .nan", "outputs: -.inf", "outputs: 2001-99-99", "outputs: &a [*a]", "? [1]\n: 3\n", "thresholds: 5\n",
    f"!!python/object/apply:os.system ['touch {CANARY}']", f"outputs: !!python/object/new:open ['{CANARY}', 'w']",
    "[" * 100_000, "\x00", "tensors: {a: true}", "outputs: 0x10", "outputs: '1e-3'", "<<: 5\n", "operators: {[a]: 1}",
    "",
    "- 1\n", "outputs: 1_0\n", "tensors: {'[': 1, '*': 0.5, '[!a': 1}\n",
)  # fmt: skip
_TOML = ("tool = 5", "[tool]\nprecision_debug = 5", "[tool]\nprecision_debug = [1]",
         "[tool.precision_debug]\nthresholds = 5",
         "[tool.precision_debug.thresholds]\noutputs = nan", "[tool.precision_debug.thresholds]\noutputs = 1e999",
         "[tool.precision_debug.thresholds.tensors]\n'' = 1", "[tool", "[tool.precision_debug.thresholds]\nx = 1",
         "[[tool.precision_debug.thresholds]]\noutputs = 1")  # fmt: skip


def thresholds(random_: random.Random, folder: Path) -> None:
    """Files of thresholds: a line of ours, or thresholds that a report can be held against."""
    ending = random_.choice((".yaml", ".yml", ".toml", "project"))
    path = folder / ("pyproject.toml" if ending == "project" else f"t{ending}")
    good = {"outputs": 0.01, "times": 2.0, "tensors": {"*": 0.5}, "operators": {"Conv": 1e-3}}
    if ending in (".yaml", ".yml"):
        text = random_.choice(_YAML) if random_.random() < 0.7 else spoiled_text(random_, good)
    else:
        text = random_.choice(_TOML)
    data = text.encode("utf-8", "surrogatepass")
    path.write_bytes(spoiled(random_, data) if random_.random() < 0.2 else data)
    found: list[Thresholds] = []
    said = own_error(
        lambda: found.append(Thresholds.of_project(folder) if ending == "project" else Thresholds.of_file(path))
    )
    if len(said) > 2000:
        raise Lost(f"a line of {len(said)} characters")
    if found:
        said = describe_complaint(add_test_claims(report_of(random_), found[0], must_match=True))
        if make_visible(said, keep="\n") != said or said.count("\n") > 20:
            raise Lost(f"what a test fails with steers the terminal: {said[:200]!r}")
        if ending == "project":
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
            if table not in ({}, {"precision_debug": {}}) and not found[0].given:
                raise Lost(f"thresholds were passed over: {text!r}")


def results(random_: random.Random, folder: Path) -> None:
    """Outputs that Polygraphy saved, or something like them: told, put together, or refused in one line."""
    text = write_iteration_text("r", {"y": np.ones((2, 3), np.float32)}, 0.5)
    good = {"lst": [["r", [json.loads(text)] * 2]], "polygraphy_class": "RunResults"}
    path = folder / "o.json"
    path.write_text(spoiled_text(random_, good), encoding="utf-8", errors="surrogatepass")
    if random_.random() < 0.2:
        buffer = io.BytesIO()
        np.save(buffer, np.array([_Runs()]), allow_pickle=True)
        good["lst"][0][1][0]["outputs"]["y"]["values"]["array"] = base64.b64encode(buffer.getvalue()).decode()
        path.write_text(json.dumps(good), encoding="utf-8")
    words = random_.choice((["inspect", "data", "o.json"], ["data", "merge", "o.json", "o.json"],
                            ["data", "concat", "o.json", "o.json"]))  # fmt: skip
    made = folder / "new" / "c.json"
    said = command(*words, *(["--output", str(made)] if words[0] == "data" else []))
    if said.status not in (0, 2):
        raise Lost(f"status {said.status}: {said.err}")
    if said.status == 2 and "o.json" not in said.err and "c.json" not in said.err:
        raise Lost(f"the error names no file: {said.err}")
    if made.exists() != (said.status == 0 and words[0] == "data"):
        raise Lost("a file that is there in spite of the error, or is not")
    if made.exists():
        json.loads(made.read_text(encoding="utf-8"), parse_constant=_refused)


def _refused(word: str) -> None:
    raise Lost(f"{word} was written, which is not JSON")


class _Runs:
    """Unpickling it makes the canary."""

    def __reduce__(self) -> Any:
        return exec, (f"open({CANARY!r}, 'w').close()",)


def _spec(folder: Path, mode: str) -> RunSpec:
    (folder / "m.onnx").write_bytes(mlp().SerializeToString())
    feeds = np.random.default_rng(0).normal(size=(6, 2, 8)).astype(np.float32)
    np.savez(folder / "in.npz", x=feeds[0])
    (folder / "many").mkdir()
    for number, one in enumerate(feeds):
        np.savez(folder / "many" / f"{number}.npz", **{onnx.load(folder / "m.onnx").graph.input[0].name: one})
    return RunSpec(model=ModelFiles(model_file=str(folder / "m.onnx")), run_mode=mode, inputs=str(folder / "many"),
                   explain="off")  # fmt: skip


@functools.cache
def _finished() -> tuple[RunSpec, str]:
    """A command, and the checkpoint of its parts."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    spec = _spec(folder, "ort_fp16_sim")
    with Journal(folder / "journal.jsonl") as told:
        execute(spec, Workers(jobs=1), told, folder=folder)
    kept = Checkpoint(str(folder / "kept"), spec)
    for event in read_events(folder / "journal.jsonl", ShardDone):
        assert isinstance(event, ShardDone)
        kept.add(event.text)
    return spec, (folder / "kept").read_text(encoding="utf-8")


def _whole(texts: Iterable[str]) -> str:
    whole = Shard()
    for text in texts:
        whole.merge(Shard.from_text(text))
    whole.seconds = 0.0
    return whole.to_text()


def checkpoints(random_: random.Random, folder: Path) -> None:
    """A checkpoint that was cut off, spoiled or written twice: refused, or gone on from to the very same numbers."""
    spec, text = _finished()
    lines = text.splitlines(keepends=True)
    way, place = random_.randrange(4), random_.randrange(1, len(lines))
    spoilt = list(lines)
    if way == 0:  # as a run that was killed leaves it
        spoilt[place:] = [lines[place][: random_.randrange(len(lines[place]))]]
    elif way == 1:
        place = random_.randrange(len(lines))
        digest, _, text = lines[place].partition("{")
        spoilt[place] = f"{digest}{spoiled_text(random_, json.loads('{' + text))}\n"
    elif way == 2:
        place = random_.randrange(len(lines))
        spoilt[place] = spoiled(random_, lines[place].encode()).decode("utf-8", "surrogateescape")
    else:
        spoilt.insert(random_.randrange(1, len(lines) + 1), lines[place])
    path = folder / "kept"
    path.write_text("".join(spoilt), encoding="utf-8", errors="surrogateescape" if way == 2 else "surrogatepass")

    def go_on() -> None:
        kept = Checkpoint(str(path), spec)
        known = {sample for part in kept.shards for sample in Shard.from_text(part).samples}
        parts = [line.partition(" ")[2].strip() for line in lines[1:]]
        for part in parts:
            if not Shard.from_text(part).samples & known:
                kept.add(part)
        again = Checkpoint(str(path), spec).shards
        if way in (0, 3) and _whole(again) != _whole(parts):
            raise Lost("other numbers than without a checkpoint")

    said = own_error(go_on)
    if said and way in (0, 3):
        raise Lost(said)


@functools.cache
def _searched() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    _search(folder, _spec(folder, "ort_fp16_sim"))
    return folder


def _search(folder: Path, spec: RunSpec) -> None:
    work = folder / f"work{len(list(folder.glob('work*')))}"
    work.mkdir()
    asked = SearchRequest(limit="1e-5", folder=str(folder / "kept.search"), artefacts=str(folder / "fix"), runs=20)
    with Journal(work / "journal.jsonl") as journal:
        search(spec, asked, journal, work)


def search_journals(random_: random.Random, folder: Path) -> None:
    """What an earlier search has left, spoiled: refused in one line, or gone on from."""
    source = _searched()
    again = folder / "again"
    shutil.copytree(source, again, ignore=shutil.ignore_patterns("work*"))
    path = random_.choice(sorted((again / "kept.search").glob("*.jsonl")))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    chosen = [
        n for n, line in enumerate(lines) if path.name != EVALUATIONS or '"told"' in line or '"evaluated"' in line
    ]
    place = random_.choice(chosen)
    if random_.random() < 0.2:
        lines = [*lines[:place], lines[place][: random_.randrange(len(lines[place]))]]
    else:
        lines[place] = spoiled_text(random_, json.loads(lines[place])) + "\n"
    path.write_text("".join(lines), encoding="utf-8", errors="surrogatepass")
    spec = RunSpec(model=ModelFiles(model_file=str(source / "m.onnx")), run_mode="ort_fp16_sim",
                   inputs=str(source / "many"), explain="off")  # fmt: skip
    own_error(lambda: _search(again, spec))


@functools.cache
def _models() -> dict[str, bytes]:
    """Files of what ``inspect model`` reads, by their endings."""
    import onnxruntime

    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "m.ort")
    onnxruntime.InferenceSession(if_model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = {".ort": (folder / "m.ort").read_bytes(), ".onnx": mlp().SerializeToString()}
    with contextlib.suppress(ImportError):
        import openvino

        onnx.save(mlp(), folder / "m.onnx")
        openvino.save_model(openvino.convert_model(folder / "m.onnx"), folder / "m.xml", compress_to_fp16=False)
        found |= {".xml": (folder / "m.xml").read_bytes(), ".bin": (folder / "m.bin").read_bytes()}
    return found


_XML = (
    '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a SYSTEM "file:///etc/passwd">]><net name="&a;" version="11"/>',
    '<?xml version="1.0"?><!DOCTYPE n [<!ENTITY a "xxxxxxxxxx">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + ']><net name="&j;" version="11"/>',
    "<net>" * 20_000,
)  # fmt: skip


def looked_at(random_: random.Random, folder: Path) -> None:
    """Models and engines that ``inspect`` is pointed at, spoiled or of another kind: told, or refused in one line."""
    good = _models()
    ending = random_.choice([*good, ".plan", ".engine", ".pt2", ".pdmodel"])
    if ending == ".bin":
        ending = ".xml"
        (folder / "m.bin").write_bytes(spoiled(random_, good[".bin"]))
        (folder / "m.xml").write_bytes(good[".xml"])
    else:
        (folder / "m.bin").write_bytes(good.get(".bin", b""))
        data = good.get(ending) or random_.choice(
            (b"", b"ftrt" + random_.randbytes(200), b"PK\x03\x04", random_.randbytes(99))
        )
        if ending == ".xml" and random_.random() < 0.3:
            (folder / "m.xml").write_text(random_.choice(_XML), encoding="utf-8")
        else:
            (folder / f"m{ending}").write_bytes(spoiled(random_, data))
    said = command(
        "inspect", "model", f"m{ending}", *random_.choice(([], ["--show", "layers", "attributes", "weights"]))
    )
    if said.status not in (0, 2):
        raise Lost(f"status {said.status}: {said.err[:300]}")
    if "root:" in said.out:
        raise Lost("another file was read")


_READERS = (
    "report p.json", "report p.jsonl", "diff p.json p.json", "view p.html", "view p.json", "inspect p.json",
    "inspect model p.onnx", "inspect model p.ort", "inspect model p.xml", "inspect model p.pdmodel",
    "inspect model p.engine", "inspect data p.json", "inspect data p.npz", "inspect tactics p.json",
    "data merge p.json --output o.json", "data concat p.npz --output o.json",
    "--model_file m.onnx --run_mode ort_opt --marks p.txt", "--model_file m.onnx --run_mode ort_opt --labels p.npy",
    "--model_file m.onnx --run_mode ort_opt --load_outputs p.json", "--model_file p.onnx --run_mode ort_opt",
)  # fmt: skip


def readers(random_: random.Random, folder: Path) -> None:
    """Whatever a verb reads is a pipe, a device, a folder or a link to itself: nothing waits, and the line names it."""
    onnx.save(mlp(), "m.onnx")
    words = random_.choice((*_READERS, "function", "thresholds", "checkpoint")).split()
    name = next((word for word in words if word.startswith("p.")), {"function": "p.py", "thresholds": "p.yaml"}.get(
        words[0], "p.txt"))  # fmt: skip
    path, way = folder / name, random_.randrange(4)
    if way == 0:
        os.mkfifo(path)
    elif way == 1:
        path.symlink_to(random_.choice(("/dev/zero", "/dev/full")))
    elif way == 2:
        path.mkdir()
    else:
        path.symlink_to(path.name)
    calls: dict[str, Callable[[], Any]] = {
        "function": lambda: UserCompare(f"{name}:f"), "thresholds": lambda: Thresholds.of_file(path),
        "checkpoint": lambda: Checkpoint(str(path), _finished()[0]),
    }  # fmt: skip
    if words[0] in calls:
        line = own_error(calls[words[0]])
    else:
        said = command(*words)
        line = said.err if said.status == 2 else ""
    asks_later = "--load_outputs" in words or "--labels" in words or "p.onnx" in words  # the child opens them
    if not line and not asks_later:
        raise Lost(f"no error of {words}")
    if line and name not in line and not asks_later:
        raise Lost(f"the error does not name {name}: {line}")


_FUNCTIONS = (
    "return True", "return None", "return 1.0", "return [True]", "return {}", "return {'y': None}", "return {1: True}",
    "raise SystemExit(0)", "raise KeyError('x')", "import numpy as np; return np.zeros(3)", "return object()",
    "return {'\\x1b[2J': True}", "return Odd()", "return {'y': Odd()}", "yield 1",
    "return {'y': float('nan')}", "raise UnicodeDecodeError('utf-8', b'x', 0, 1, '\\x1b')", "return ''",
)  # fmt: skip
_COMMANDS = ("", " ", "'", '"', "{model}", "no-such-program {model}", "/ {model}", "true", "true {model",
             "true {model}",
             "false {model}", "sh -c 'kill -9 $$' {model}", "sh -c 'exit 127' {model}", "/etc/passwd {model}",
             "a\x00b {model}",
             "true\x00 {model}", "true {model}\x00", ". {model}", "~ {model}", "\udcff {model}",
             "true '{model}'; touch "
             + CANARY, "true {model} $(touch " + CANARY + ")", "true {model} | touch " + CANARY)  # fmt: skip


def users_own(random_: random.Random, folder: Path) -> None:
    """--compare FILE.py:f and --check COMMAND of every kind: a verdict, or our own line; no shell reads a command."""
    if random_.random() < 0.5:
        model = folder / random_.choice(("m.onnx", "-m.onnx", "$(x).onnx", "a b.onnx", "x;touch canary-ran.onnx"))
        model.write_bytes(b"")
        own_error(lambda: CheckCommand.of(random_.choice(_COMMANDS)).passes(model))
        return
    body = random_.choice(_FUNCTIONS)
    odd = "class Odd:\n    def __bool__(self):\n        raise ValueError('no')\n\n\n"
    Path("f.py").write_text(f"{odd}def f(*_):\n    {body}\n", encoding="utf-8")
    name = random_.choice(
        ("f.py:f", "f.py:f", "f.py:f", "f.py:g", "f.py", "no.py:f", ":f", "f.py:", "f.py:f:f", "f.py:Odd")
    )

    def judge() -> None:
        told = UserCompare(name).judge({"y": np.ones(2)}, {"y": np.ones(2)})
        if not all(isinstance(one, bool) for one in told.values()):
            raise Lost(f"no verdict: {told}")

    own_error(judge)
