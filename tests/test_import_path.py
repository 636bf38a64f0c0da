"""A command runs nothing of the folder that it is called in, and a user's files there break nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx_models import mlp

from precision_debug.safety import import_path

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = [str(ROOT), str(ROOT / "backends")]

# what no start of Python itself needs: "python -m anything" imports runpy and what that imports from the current folder
PLANTED = ("queue", "random", "json", "onnx", "numpy", "tempfile", "shutil", "onnxruntime", "concurrent", "secrets")
COMPARE = ("--model_file", "m.onnx", "--run_mode", "ort_opt", "--output", "r.json", "--quiet")


def plant(folder: Path, names: tuple[str, ...] = PLANTED) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write({name!r}); raise SystemExit(9)")
    info = folder / "planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[precision_debug.backends]\nplanted = backend_of_nobody:Backend\n")
    (folder / "backend_of_nobody.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('entry point')")


def called(*command: str, cwd: Path, paths: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plant(tmp_path / "here")
    onnx.save(mlp(), tmp_path / "here" / "m.onnx")
    return tmp_path / "here"


WAYS = {
    "module": ["-m", "precision_debug"],
    "console script": ["-c", "import sys; sys.path.pop(0); sys.argv[0] = 'precision_debug';"
                             "from precision_debug.cli import main; sys.exit(main())"],
    "safe path": ["-P", "-m", "precision_debug"],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("more", [[], [""]], ids=["", "empty entry in PYTHONPATH"])
def test_files_of_the_current_folder_are_not_imported(way: str, more: list[str], folder: Path) -> None:
    if way == "safe path" and sys.version_info < (3, 11):
        pytest.skip("python -P is of 3.11")
    done = called(sys.executable, *WAYS[way], *COMPARE, cwd=folder, paths=[*INSTALLED, *more])
    assert not (folder / "ran").exists(), (folder / "ran").read_text()
    assert done.returncode == 0, done.stderr
    assert (folder / "r.json").is_file()


def test_isolated_python_starts_an_isolated_worker(folder: Path) -> None:
    code = f"import sys; sys.path += {INSTALLED}; from precision_debug.cli import main; sys.exit(main())"
    done = called(sys.executable, "-I", "-c", code, *COMPARE, cwd=folder, paths=[str(folder)])
    assert not (folder / "ran").exists(), (folder / "ran").read_text()
    assert done.returncode == 0, done.stderr


def test_a_checkout_works_from_its_root(folder: Path) -> None:
    root = folder.parent / "checkout"
    root.mkdir()
    (root / "precision_debug").symlink_to(ROOT / "precision_debug")
    (root / "backends").symlink_to(ROOT / "backends")
    plant(root)
    onnx.save(mlp(), root / "m.onnx")
    done = called(sys.executable, "-m", "precision_debug", *COMPARE, cwd=root, paths=[])
    assert not (root / "ran").exists(), (root / "ran").read_text()
    assert done.returncode == 0, done.stderr


def test_what_pythonpath_names_is_imported(root: Path, tmp_path: Path) -> None:
    (tmp_path / "m.fake").write_text('{"layers": 3, "width": 4}', encoding="utf-8")
    command = ["--model_file", "m.fake", "--run_mode", "fake_fp32", "--output", "r.json", "--quiet"]
    paths = [*INSTALLED, str(root / "tests" / "fake")]
    done = called(sys.executable, "-m", "precision_debug", *command, cwd=tmp_path, paths=paths)
    assert done.returncode == 0, done.stderr
    # and also where it is the current folder
    fake = root / "tests" / "fake"
    command = ["--model_file", f"{tmp_path}/m.fake", "--run_mode", "fake_fp32", "--output", f"{tmp_path}/s.json"]
    done = called(sys.executable, "-m", "precision_debug", *command, "--quiet", cwd=fake, paths=[*INSTALLED, str(fake)])
    assert done.returncode == 0, done.stderr


def test_a_script_of_the_user_finds_its_neighbours_and_shadows_nothing(tmp_path: Path) -> None:
    plant(tmp_path / "mine")
    onnx.save(mlp(), tmp_path / "m.onnx")
    (tmp_path / "mine" / "ours.py").write_text("VALUE = 2.0")
    (tmp_path / "mine" / "feed.py").write_text(
        "import json, ours, random, queue\nimport numpy as np\n"
        "def load_data():\n    return {'x': np.full((2, 8), ours.VALUE, np.float32)}\n"
    )
    done = called(
        sys.executable, "-m", "precision_debug", *COMPARE, "--inputs", "mine/feed.py", cwd=tmp_path, paths=INSTALLED
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mine" / "ran").exists()


def test_a_library_leaves_the_path_alone(tmp_path: Path) -> None:
    code = "import sys; before = list(sys.path); import precision_debug.cli; assert sys.path == before and '' in before"
    done = called(sys.executable, "-c", code, cwd=tmp_path, paths=INSTALLED)
    assert done.returncode == 0, done.stderr


def test_the_worker_gets_this_process_own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "added"), *INSTALLED, *sys.path])
    code = "print(sys.path, precision_debug.__file__)"
    done = subprocess.run(
        import_path.make_command(f"import precision_debug; {code}"), capture_output=True, text=True, check=True
    )
    assert str(tmp_path / "added") in done.stdout
    assert "''" not in done.stdout
    assert str(ROOT / "precision_debug" / "__init__.py") in done.stdout
