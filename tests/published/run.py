"""Runs the bench: python tests/published/run.py [NAME…] [--environments DIR]. By hand: an environment a release.

Each case is reproduced without this tool first, in the release's own environment; then the default command is run
there, its verdict, its first culprit and its pass are held against what is known, and the table is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).parent.parent.parent
OWN = ["ml_dtypes>=0.4", "msgspec>=0.18", "xlsxwriter>=3.2,<4", "rich>=13", "onnxruntime-extensions>=0.13",
       "numpy>=1.26"]  # fmt: skip

NEWEST = ["onnxruntime", "onnx", "openvino", "onnxslim", "onnxscript", "onnxsim", "onnxoptimizer"]

MAKE = """
import sys; sys.path.insert(0, {here!r})
import numpy as np, onnx, onnxruntime as ort
from cases import CASES
case = next(one for one in CASES if one.name == {name!r})
first, feeds = case.make()
onnx.save(first, "first.onnx"); np.savez("x.npz", **feeds)
second = first
if case.tool:
    known = {{"first": onnx.load("first.onnx")}}
    exec(case.tool, known)
    second = known["second"]
    onnx.save(second, "second.onnx")
levels = ort.GraphOptimizationLevel
def run(model, engine, level=levels.ORT_DISABLE_ALL):
    if engine.startswith("ov_"):
        import openvino
        core = openvino.Core()
        settings = {{"INFERENCE_PRECISION_HINT": "f32"}}
        return core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)(dict(feeds))[0]
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], dict(feeds))[0]
base = run(first, case.other or "ort").astype(float)
try:
    got = run(second, case.mode, levels.ORT_DISABLE_ALL if case.tool or case.other else levels.ORT_ENABLE_ALL)
except Exception as error:
    print("STOPS", str(error).strip().splitlines()[-1][-160:])
else:
    got = got.astype(float)
    print("ERROR", np.linalg.norm(got - base) / np.linalg.norm(base) if got.shape == base.shape else "inf")
"""


def environment(folder: Path, needs: list[str]) -> Path:
    """Python of an environment with these packages; made where there is none."""
    place = folder / ("_".join(one.replace("==", "-") for one in needs) or hashlib.sha256().hexdigest())
    python = place / "bin" / "python"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *OWN, *needs], check=True)
        (place / "made").touch()
    return python


def judged(
    name: str, folder: Path, environments: Path, *, alone_only: bool = False, newest: bool = False
) -> dict[str, Any]:
    """One line of the table; alone_only: as far as the reproduction without this tool. newest: in the newest releases,
    where a bug that was mended is a control.
    """
    from cases import CASES

    case = next(one for one in CASES if one.name == name)
    python = environment(environments, NEWEST if newest else list(case.needs))
    work = folder / name
    work.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "backends")])}
    alone = subprocess.run(
        [str(python), "-c", MAKE.format(here=str(Path(__file__).parent), name=name)], cwd=work, text=True,
        capture_output=True, env={key: one for key, one in env.items() if key != "PYTHONPATH"}, check=False,
    )  # fmt: skip
    told = dict(line.split(maxsplit=1) for line in alone.stdout.splitlines() if line.startswith(("ERROR", "STOPS")))
    error = told.get("ERROR", "")
    found: dict[str, Any] = {"name": name, "right": case.right, "published": case.published, "alone": error or "stops"}
    if newest and error and float(error) < 1e-3:
        case = dataclasses.replace(case, right=True, stops=False, passes=(), region=(), causes=())
        found["right"] = True
    shown = "STOPS" in told if case.stops else bool(error) and (float(error) > 1e-3) is not case.right
    if not shown:
        return {**found, "state": "not reproduced", "why": (alone.stderr or alone.stdout).strip()[-200:]}
    if alone_only:
        return {**found, "state": "reproduced", "why": told.get("STOPS", "")}
    words = ["--model_file", "first.onnx", "--run_mode", case.mode]
    if case.other:
        words += ["--baseline", case.other]
    if case.tool:
        words = ["--model_file", "second.onnx", "--baseline_model", "first.onnx", "--run_mode", "ort_fp32",
                 "--baseline", "ort_fp32"]  # fmt: skip
    command = [str(python), "-m", "precision_debug", *words, *case.options, "--inputs", "x.npz", "--output", "o.json"]
    (work / "o.json").unlink(missing_ok=True)
    done = subprocess.run([*command, "--lang", "en"], cwd=work, env=env, text=True, capture_output=True, check=False)
    report = json.loads((work / "o.json").read_text()) if (work / "o.json").exists() else {}
    told_as = " ".join(["python -m precision_debug", *words, *case.options, "--inputs x.npz"])
    return {**found, "state": "ran", "status": done.returncode, "command": told_as, **_answer(case, report, done)}


def _answer(case: Any, report: dict[str, Any], done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the command said, held against what is known: verdict, region, pass and cause; None where not asked."""
    said = [line for line in done.stdout.splitlines() if line.strip()][:1]
    proven = [line for line in done.stdout.splitlines() if line.startswith(("The file proves", "The files prove"))][:1]
    if case.stops:
        why = " ".join(done.stderr.split())
        named = re.search(r"disabled_optimizers=\[('[^]]*)\]", why)
        passes = re.findall(r"'([^']+)'", named.group(1)) if named else []
        return {
            "verdict": done.returncode == 3, "region": any(f"{kind}{one}{kind}" in why for one in case.region
                                                           for kind in ("`", "'")) or None,
            "pass": bool({*passes} & {*case.passes}) if case.passes else None, "cause": "does not run",
            "wrong_cause": bool(passes) and not {*passes} & {*case.passes}, "passes": passes, "said": [why[:600]],
            "proven": proven, "stderr": "",
        }  # fmt: skip
    culprits = (report.get("explanation") or {}).get("culprits", [])
    first = culprits[0] if culprits else {}
    passes = str(first.get("evidence", {}).get("passes", "")).split(" and ") if first else []
    cause = first.get("cause", "")
    return {
        "verdict": done.returncode == (0 if case.right else 1),
        "region": None if case.right else first.get("name", "") in case.region,
        "pass": None if not case.passes else bool({*passes} & {*case.passes}),
        "cause": cause, "wrong_cause": bool(cause) and bool(case.causes) and cause not in case.causes,
        "named": first.get("name", ""), "passes": [one for one in passes if one],
        "runs": first.get("evidence", {}).get("runs"), "said": said, "proven": proven,
        "stderr": done.stderr.strip()[-200:] if done.returncode not in (0, 1) else "",
    }  # fmt: skip


PAGE = {
    "gallery.md": (
        "# Real bugs of engines and tools",
        "Each of these is a published report about a released wheel. Each was first reproduced without this tool, in"
        " its own environment, and then found by the command below it, which is followed by the first sentence of its"
        " report, or its error. `python tests/published/run.py NAME` installs the old wheel and does"
        " both again.",
        "Release: `{needs}`. Published: {published}. Without this tool: {alone}.",
        ("relative L2 error {error:.3g}", "the outputs have another shape",
         "the session cannot be made or run, though it can with optimisation switched off"),
    ),
    "gallery.zh.md": (
        "# 引擎与工具真实有过的错误",
        "以下每一个都是针对某个已发布安装包的公开报告。每个都先在单独的环境中、不用本工具重现，再由其下方的命令找出；"
        "随后是其报告的第一句话，或其错误信息。`python tests/published/run.py NAME` 会安装旧版本并重做这两步。",
        "版本：`{needs}`。公开报告：{published}。不用本工具：{alone}。",
        ("相对 L2 误差 {error:.3g}", "输出的形状不同", "会话无法创建或运行，而关闭优化后可以"),
    ),
}


def write_pages(folder: Path, lines: list[dict[str, Any]]) -> None:
    """The gallery, in both languages, of the published bugs that were found."""
    from cases import CASES

    needs = {case.name: case.needs[0] for case in CASES}
    for name, (title, intro, about, (off, shape, stops)) in PAGE.items():
        parts = [title, textwrap.fill(intro, 116, break_on_hyphens=False) if intro.isascii() else intro]
        for one in lines:
            if one["right"] or not one["published"] or one["state"] != "ran":
                continue
            if not one["verdict"] or one["region"] is False or one["pass"] is False:
                continue
            alone = stops if one["alone"] == "stops" else shape if one["alone"] == "inf" else off.format(
                error=float(one["alone"])
            )  # fmt: skip
            said = about.format(needs=needs[one["name"]], published=_links(one["published"]), alone=alone)
            shown = "\n".join([f"$ {one['command']}", *one["said"], *one["proven"]])
            parts += [f"## {one['name']}", said, f"```text\n{shown}\n```"]
        (folder / name).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _links(published: str) -> str:
    """Each report as a link: "owner/repository#1, #2"."""
    repository = published.partition("#")[0]
    numbers = re.findall(r"#(\d+)", published)
    return ", ".join(f"[{repository}#{n}](https://github.com/{repository}/issues/{n})" for n in numbers)


def main() -> None:
    from cases import CASES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "precision_debug_published")
    parser.add_argument("--folder", type=Path, default=Path("output/published"))
    parser.add_argument("--alone", action="store_true", help="reproduce without this tool, and stop there")
    parser.add_argument("--newest", action="store_true", help="in the newest releases, where no mended bug may alarm")
    parser.add_argument("--page", type=Path, help="a folder that the gallery is written into")
    given = parser.parse_args()
    lines = []
    for case in CASES:
        if not given.names or case.name in given.names:
            lines.append(judged(
                case.name, given.folder.absolute(), given.environments, alone_only=given.alone, newest=given.newest,
            ))
            print(json.dumps(lines[-1]), flush=True)
    if given.page:
        write_pages(given.page, lines)
    print("\n| case | release | published | alone | verdict | region | pass | cause |")
    print("|---|---|---|---:|---|---|---|---|")
    needs = {case.name: case.needs[0] for case in CASES}
    marks = {True: "yes", False: "**no**", None: ""}
    for one in lines:
        verdict = marks[one["verdict"]] if one["state"] == "ran" else one["state"]
        release = "newest" if given.newest else needs[one["name"]]
        alone = one["alone"] if one["alone"] in ("stops", "inf") else f"{float(one['alone']):.3g}"
        cells = [one["name"], release, one["published"], alone, verdict,
                 marks[one.get("region")], marks[one.get("pass")], one.get("cause", "")]  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
