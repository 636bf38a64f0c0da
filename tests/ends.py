"""The oldest and the newest dependencies that pyproject.toml allows: makes an environment of each and tries it.

python tests/ends.py oldest /tmp/ends          makes /tmp/ends/oldest, runs the digits in every mode, then the tests
python tests/ends.py newest /tmp/ends --tests tests/test_onnxruntime.py
python tests/ends.py engine /tmp/ends --pin onnxruntime==1.18.1 --pin 'numpy<2'       one engine, the rest as pip likes

oldest: each bound of pyproject.toml ("onnx>=1.16" becomes "onnx==1.16"). newest: no bound at all. PyTorch is the one
that --torch names (its old wheels bring gigabytes of CUDA); where it is not given, PyTorch is left out.
Prints a table in Markdown. An environment that is there already is used as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("onnx", "openvino", "paddle", "pandas", "yaml", "test")
TOLD = ("numpy", "ml_dtypes", "onnx", "onnxruntime", "openvino", "paddlepaddle", "torch", "transformers", "pandas")
TESTS = (
    "tests/test_onnxruntime.py", "tests/test_onnxruntime_taps.py", "tests/test_onnxruntime_converted.py",
    "tests/test_onnxruntime_graphs.py", "tests/test_onnxruntime_keep.py", "tests/test_metrics.py",
    "tests/test_recording.py", "tests/test_report_excel.py", "tests/test_openvino_contract.py",
    "tests/test_paddle_contract.py", "tests/test_paddle_dygraph.py",
)  # fmt: skip
DIGITS = ROOT / "examples" / "digits"


def requirements(end: str) -> list[str]:
    """What pip is asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["onnx"]]
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    found = []
    for line in dict.fromkeys(lines):
        if line.startswith("precision_debug"):
            continue
        name, bound, marker = re.fullmatch(r"([\w-]+)>=([\w.]+)[^;]*(;.*)?", line).groups()  # type: ignore[union-attr]
        found.append(f"{name}=={bound}{marker or ''}" if end == "oldest" else f"{name}{marker or ''}")
    return found


def environment(folder: Path, wanted: list[str]) -> Path:
    """Its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)
    return python


def versions(python: Path) -> dict[str, str]:
    words = [str(python), "-m", "pip", "list", "--format=json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = {one["name"].lower().replace("-", "_"): one["version"] for one in json.loads(done.stdout)}
    return {name: found[name] for name in TOLD if name in found}


def paths() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'backends'}"}


def digits(python: Path, mode: str, folder: Path) -> str:
    """What the digits in one mode end with."""
    report = folder / f"{mode}.json"
    done = subprocess.run(
        [str(python), "-m", "precision_debug", "--model_file", str(DIGITS / "digits.onnx"), "--run_mode", mode,
         "--inputs", str(DIGITS / "test_images.npz"), "--output", str(report), "--quiet"],
        env=paths(), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode > 1:
        return f"status {done.returncode}: {done.stderr.strip()[:160]}"
    rows = json.loads(report.read_text(encoding="utf-8"))["rows"]
    compared = sum(row.get("comparison") is not None for row in rows)
    return f"status {done.returncode}, {compared} of {len(rows)} rows compared"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("end", choices=("oldest", "newest", "engine"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pin", action="append", default=[], help="a requirement of one's own")
    parser.add_argument("--torch", default="", help="such as torch==2.13.0; with the newest transformers")
    parser.add_argument("--tests", nargs="*", default=list(TESTS))
    given = parser.parse_args()
    wanted = [one for one in requirements(given.end) if not any(_name(one) == _name(pin) for pin in given.pin)]
    if given.end == "engine":
        wanted = [one for one in wanted if _name(one) not in ("paddlepaddle", "openvino")]
    wanted += given.pin + ([given.torch, "transformers", "onnxscript"] if given.torch else [])
    name = "-".join([given.end, *(re.sub(r"\W+", "_", pin) for pin in given.pin)])
    python = environment(given.folder / name, wanted)
    print(f"\n**{name}**: " + ", ".join(f"{one} {version}" for one, version in versions(python).items()), flush=True)
    print("\n| digits in | |\n|---|---|", flush=True)
    listed = [str(python), "-m", "precision_debug", "doctor"]
    doctor = subprocess.run(listed, env=paths(), capture_output=True, text=True, check=False).stdout
    for mode, reads in re.findall(r"^(\w+) +(\.onnx\S*|\.onnx .*?) +yes ", doctor, re.MULTILINE):
        del reads
        print(f"| `{mode}` | {digits(python, mode, given.folder)} |", flush=True)
    print("\n| tests | |\n|---|---|", flush=True)
    for test in given.tests:
        done = subprocess.run(
            [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", test], cwd=ROOT, env=paths(),
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()[-1:] or [""]
        lost = [line[:150] for line in lines if line.startswith(("FAILED", "ERROR"))]
        print(f"| `{test}` | {lines[-1][:160]}{''.join(f'<br>{line}' for line in lost)} |", flush=True)
    return 0


def _name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower()


if __name__ == "__main__":
    sys.exit(main())
