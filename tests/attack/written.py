"""What is written besides reports: differences, sweeps, scripts, hand-overs, other viewers' files, a step's summary."""

from __future__ import annotations

import ast
import json
import random
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from precision_debug.errors import PrecisionDebugError
from precision_debug.products.search.sweep.result import Mode, Speed, Sweep
from precision_debug.products.search.sweep.run import report_file_name
from precision_debug.products.search.sweep.write import as_text
from precision_debug.products.search.sweep.write import write as write_sweep
from precision_debug.products.tools.script import make_script
from precision_debug.records import ModelFiles, RunSpec, SessionSpec, TensorMeta, Tolerance
from precision_debug.report import outputs, write
from precision_debug.report.formats import md
from precision_debug.safety.untrusted import make_visible

from .case import Lost, command
from .names import Tags, beside, hostile_name, live_markdown, report_of, workbook

__all__ = ["differences", "hand_overs", "scripts", "step_summaries", "sweeps", "viewers"]


def _strict(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise Lost(f"{word} in {path.name}, which is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def _markdown(text: str) -> None:
    problem = live_markdown(text)
    if problem:
        raise Lost(problem)
    if make_visible(text, keep="\n") != text:
        raise Lost("hidden characters were written")


def _page(path: Path, *, scripts: int) -> None:
    text = path.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    names = [tag for tag, _ in tags.found]
    if names.count("script") != scripts or {"img", "iframe", "object", "form"} & set(names):
        raise Lost(f"a name became a tag in {path.name}")
    if any(name.startswith("on") for _, attributes in tags.found for name in attributes):
        raise Lost(f"a name became a handler in {path.name}")
    for link in tags.links:
        if not beside(link):
            raise Lost(f"a link to elsewhere: {link[:80]!r}")
    if make_visible(text, keep="\n\t") != text:
        raise Lost(f"hidden characters in {path.name}")


def differences(random_: random.Random, folder: Path) -> None:
    """``diff`` of two reports from elsewhere, as text, JSON and Markdown."""
    later = report_of(random_)
    for name, report in (("a.json", report_of(random_)), ("b.json", later)):
        write(report, folder / name)
    ending = random_.choice((".json", ".md", ".html"))
    said = command("diff", "a.json", "b.json", "--output", f"d{ending}")
    if said.status not in ((3,) if later.failure else (0, 1)):
        raise Lost(f"status {said.status}, the later run ended early: {bool(later.failure)}: {said.err[:200]}")
    if ending == ".json":
        _strict(folder / "d.json")
    elif ending == ".md":
        _markdown((folder / "d.md").read_text(encoding="utf-8"))
    else:
        _page(folder / "d.html", scripts=1)


def _sweep(random_: random.Random) -> Sweep:
    def text() -> str:
        return hostile_name(random_)

    def number() -> float:
        return random_.choice((0.0, 0.5, 1e-9, 1e300, float("inf"), float("nan")))

    def mode() -> Mode:
        speed = Speed(batch=1, runs=3, median=random_.choice((1e-3, 2e-3)), p99=3e-3, build=0.5, size=9, file=text())
        return Mode(
            name=text(), model=text(), refused=random_.choice(("", text())), verdict=text(), samples=1,
            mean_rel=number(), share_over_1pct=0.5, rel_l2=number(), worst=text(), worst_rel_l2=0.5, culprit=text(),
            cause=text(), scores={text(): number()}, speeds=random_.choice(((), (speed,))), failed={"1": text()},
            report=f"s.modes/{report_file_name(text())}.json", against=text(),
        )  # fmt: skip

    modes = (mode(), mode(), mode())
    return Sweep(modes=modes, baseline=modes[0].name, command=text(), started=text(), machine={text(): text()})


def sweeps(random_: random.Random, folder: Path) -> None:
    """A sweep whose names are hostile, in every format and on the terminal."""
    sweep = _sweep(random_)
    for ending in (".json", ".md", ".html", ".xlsx"):
        write_sweep(sweep, folder / f"s{ending}")
    _strict(folder / "s.json")
    _markdown((folder / "s.md").read_text(encoding="utf-8"))
    workbook(folder / "s.xlsx")
    _page(folder / "s.html", scripts=1)
    if (folder / "s.svg").exists():
        _page(folder / "s.svg", scripts=0)
    for language in ("en", "zh"):
        as_text(sweep, language)


def scripts(random_: random.Random, folder: Path) -> None:
    """--gen_script: a module of literals that calls ``compare`` and gives each value back as it was."""

    def text() -> str:
        return random_.choice((hostile_name(random_), '"""', "'''", "\\", '"""\\', "\\\n", "__import__('os')", "}{"))

    spec = RunSpec(
        model=ModelFiles(model_file=text(), params_file=text()), run_mode=text(), baseline=text(), inputs=text(),
        input_shapes={text(): (1, 2)}, val_range={text(): (0.0, 1e300)}, marks=(text(), text()),
        marks_between=(text(), text()), renames={text(): text()}, labels=text(),
        tolerance=Tolerance(atol=1e-300, rtol=0.5, check_error_stat=text()),
        options={"sample": text(), f"baseline.{text()}": text(), "metric": [text()]}, command=text(),
    )  # fmt: skip
    tree = ast.parse(make_script(spec, [Path(f"{text()}.json".replace("\x00", ""))]))
    kinds = [type(node).__name__ for node in tree.body]
    if kinds != ["Expr", "Import", "Import", "FunctionDef", "If"]:
        raise Lost(f"a name became code: {kinds}")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {ast.unparse(node.func) for node in calls}
    if called - {"precision_debug.compare", "precision_debug.ModelFiles", "precision_debug.Tolerance", "print", "str",
                 "main", "sys.exit"}:  # fmt: skip
        raise Lost(f"a name became a call: {sorted(called)}")
    given: dict[str, Any] = {}
    compare = next(node for node in calls if ast.unparse(node.func) == "precision_debug.compare")
    for keyword in compare.keywords:
        if not isinstance(keyword.value, ast.Call):
            given |= {keyword.arg: ast.literal_eval(keyword.value)} if keyword.arg else ast.literal_eval(keyword.value)
    wanted = {"run_mode": spec.run_mode, "renames": spec.renames, "marks": spec.marks, **spec.options}
    if any(given[name] != value for name, value in wanted.items()):
        raise Lost("a value is not what it was")


def viewers(random_: random.Random, folder: Path) -> None:
    """What other viewers are given of a report from elsewhere: whole, or refused in one of our lines."""
    report = report_of(random_)
    names = ("explorer", "tensorboard", "netron") if find_spec("tensorboard") else ("explorer", "netron")
    name = random_.choice(names)
    path = folder / {"explorer": "o.json", "tensorboard": "o.tfevents", "netron": "o.onnx"}[name]
    try:
        outputs.write(report, name, path)
    except PrecisionDebugError as error:
        if path.exists() or (name != "netron" and any(row.comparison for row in report.rows)):
            raise Lost(f"{name}: {error}") from error
        return
    if name == "explorer" and not _strict(path)["results"]:
        raise Lost("no results")


def step_summaries(random_: random.Random, folder: Path) -> None:
    """GitHub's step summary: added to what is there, which stays."""
    place = folder / "summary.md"
    place.write_text("before\n", encoding="utf-8")
    md.append(report_of(random_), place, title=hostile_name(random_))
    text = place.read_text(encoding="utf-8")
    if not text.startswith("before\n"):
        raise Lost("what was there is gone")
    _markdown(text)


def hand_overs(random_: random.Random, folder: Path) -> None:
    """What a search gives to paste: words of a shell, or Python, that hold each name as it is and nothing else."""
    names = [name for name in (hostile_name(random_) for _ in range(3)) if name and "\udcff" not in name] or ["x"]
    for handed in _handed(random_, names, folder):
        text = str(handed.text)
        if handed.kind in ("setting", "command") and text.startswith(("--", "trtexec")):
            shlex.split(text)
            if re.search(r"[\n;&|$`<>]", re.sub(r"'[^']*'|\"'\"", "", text)):
                raise Lost(f"a name became words of the shell: {text[:200]!r}")
        elif text:
            _only_literals(text, names)


def _only_literals(text: str, names: list[str]) -> None:
    tree = ast.parse(text)
    held = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    strange = [call for call in calls if not re.fullmatch(r"[a-z_A-Z0-9.]+", call)]
    if strange or any("exec" in call or "import" in call for call in calls):
        raise Lost(f"a name became a call: {sorted(calls)}")
    if not held & {*names, "relu"}:
        raise Lost(f"no name is what it was: {text[:200]!r}")


def _handed(random_: random.Random, names: list[str], folder: Path) -> list[Any]:
    import precision_debug_paddle.keep as paddle
    import precision_debug_paddle.modes as paddle_modes
    import precision_debug_tensorrt.keep as tensorrt
    import precision_debug_tensorrt.modes as tensorrt_modes

    tensors: list[TensorMeta] = []
    engine = random_.choice(("paddle", "tensorrt"))
    if engine == "paddle":
        mode = random_.choice(("trt_fp16", "gpu_fp16", "onednn_bf16"))
        recipe = paddle_modes.recipe(mode)
        spec = SessionSpec(model=ModelFiles(model_file=f"{names[0]}.pdmodel"), mode=mode)
        keep: Any = paddle.PaddleKeep(spec=spec, recipe=recipe, types=dict.fromkeys([*names, "relu"], 1))
        return list(keep.hand_over(names, tensors, folder))
    spec = SessionSpec(model=ModelFiles(model_file=f"{names[0]}.onnx"), mode="trt_fp16")
    keep = tensorrt.TensorRTKeep(spec=spec, recipe=tensorrt_modes.recipe("trt_fp16"))
    with mock.patch.object(tensorrt.TensorRTKeep, "_typed", return_value=None):
        return [one for one in keep.hand_over(names, tensors, folder) if one is not None]
