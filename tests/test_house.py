"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import typing
from pathlib import Path

import house_numbers
import pytest

from precision_debug import protocols, registry
from precision_debug.protocols import Capabilities

pytestmark = pytest.mark.quick

# Each stage may import the ones before it: at the top, in functions and for type checkers alike.
STAGES = (
    ("__about__", "callsite"),
    ("safety",),
    ("errors", "reasons"),
    ("settings",),
    ("records",),
    ("codec",),
    ("ownership",),
    ("onnx",),
    ("numbers", "inspector"),
    ("protocols",),
    ("feeds",),
    ("registry",),
    ("pairing",),
    ("recording",),
    ("observe",),
    ("explain",),
    ("search",),
    ("events",),
    ("claims",),
    ("report",),
    ("run",),
    ("api",),
    ("testing",),
    ("cli",),
    ("products",),
    ("__main__",),
)
FRAMEWORKS = {
    "onnx", "onnxruntime", "torch", "paddle", "tensorrt", "openvino", "pandas", "onnxruntime_extensions",
    "ai_edge_litert", "xllamacpp", "gguf", "vllm",
}  # fmt: skip


def stage_of(module: str) -> int:
    for number, names in enumerate(STAGES):
        if module in names:
            return number
    raise AssertionError(f"precision_debug/{module} has no stage: add it to STAGES in tests/test_house.py")


@pytest.fixture(scope="module")
def edges(root: Path) -> dict[str, set[str]]:
    """Every module of the house, and what it imports."""
    return house_numbers.graph(root)


def test_a_module_imports_only_earlier_stages(edges: dict[str, set[str]]) -> None:
    wrong = []
    for module, others in edges.items():
        package, _, own = house_numbers.room_of(module).partition(".")
        for other in others if package == "precision_debug" and own else ():
            theirs = house_numbers.room_of(other).partition(".")[2]
            if theirs != own and (not theirs or stage_of(theirs) >= stage_of(own)):
                wrong.append(f"{module} imports {other}")
    assert not wrong


def test_nothing_imports_in_circles(edges: dict[str, set[str]]) -> None:
    """Neither modules nor rooms, whether an import stands at the top, in a function or under TYPE_CHECKING."""
    assert house_numbers.circles(edges) == []
    assert house_numbers.circles(house_numbers.room_graph(edges)) == []


def test_a_circle_would_be_found() -> None:
    assert house_numbers.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]


def test_no_framework_is_imported_by_the_core(root: Path) -> None:
    """But for the product that compares torch's tensors, which nothing imports before there are some on a device."""
    kernels = root / "precision_debug" / "products" / "device"
    for path in sorted((root / "precision_debug").rglob("*.py")):
        if path.parent == kernels:
            continue
        for node in house_numbers.parse(path).body:
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                whole = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
                assert "cuda" not in whole, f"{path} imports the CUDA driver at its top"
                names = {(node.module or "").split(".")[0]} if node.level == 0 else set()
            else:
                continue
            assert not names & (FRAMEWORKS | {"triton"}), path


def test_the_core_asks_no_engine(root: Path) -> None:
    """Not in functions either: what an engine knows, its backend tells."""
    engines = FRAMEWORKS - {"onnx", "onnxruntime_extensions", "torch", "pandas"}
    for path in sorted((root / "precision_debug").rglob("*.py")):
        nodes = list(ast.walk(house_numbers.parse(path)))
        names = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {(node.module or "").split(".")[0] for node in nodes
                  if isinstance(node, ast.ImportFrom) and node.level == 0}  # fmt: skip
        assert not names & engines, path


@pytest.mark.parametrize(
    "code",
    [
        "import precision_debug",
        "import precision_debug.registry as r; [b.run_modes for b in r.backends()]",
        "import sys; sys.argv[1:] = ['--help']; import runpy\n"
        "try: runpy.run_module('precision_debug', run_name='__main__')\nexcept SystemExit: pass",
    ],
)
def test_start_up_loads_no_framework(code: str) -> None:
    code += "\nimport sys; print('LOADED', sorted(m for m in sys.modules if '.' not in m))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(ast.literal_eval(printed.rpartition("LOADED ")[2]))
    assert not loaded & (FRAMEWORKS | {"numpy", "rich", "xlsxwriter"})


def test_a_command_starts_its_worker_before_it_needs_numpy(root: Path, tmp_path: Path) -> None:
    """What the worker does meanwhile is waited for anyway; what comes before it is not."""
    words = ["--model_file", str(root / "examples/digits/digits.onnx"), "--run_mode", "ort_opt"]
    words += ["--output", str(tmp_path / "o.xlsx")]
    code = f"""
import sys
from precision_debug.run import supervisor
def _start(*given):
    print('LOADED', sorted(m for m in sys.modules if '.' not in m))
    raise SystemExit
supervisor._start = _start
from precision_debug.cli import main
main({words})
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(ast.literal_eval(printed.rpartition("LOADED ")[2]))
    assert not loaded & (FRAMEWORKS | {"numpy", "rich", "xlsxwriter"})


def test_a_file_is_one_subject(root: Path) -> None:
    long = {
        str(path.relative_to(root)): count
        for folder in ("precision_debug", "backends")
        for path in (root / folder).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 800
    }
    assert not long
    assert not list((root / "precision_debug").rglob("utils.py"))


# Classes that were longer than 200 lines when the rule came, and what each may have. Entries shrink, and go.
LONG_CLASSES = {
    "precision_debug.explain.subject.Subject": 420,
    "precision_debug.observe.hooks.CheckTarget": 240,
    "precision_debug.products.dumps.pairing.walk._Walk": 280,
    "precision_debug.run.fix_finder.FixFinder": 300,
    "precision_debug.products.dumps.match_tensors._Work": 340,
    "precision_debug.products.search.search_run._Search": 400,
    "precision_debug_onnxruntime.engine.reference._ReferenceSession": 220,
    "precision_debug_openvino.session.OpenVinoSession": 300,
    "precision_debug_paddle.engine.dynamic_watch.Watch": 320,
    "precision_debug_paddle.engine.fetched_session.FetchSession": 440,
    "precision_debug_paddle.engine.tensorrt.Builder": 240,
    "precision_debug_paddle.engine.training.backward.Backward": 240,
    "precision_debug_paddle.session.HookSession": 220,
    "precision_debug_torch.backend.TorchBackend": 240,
    "precision_debug_torch.engine.compiled_session.CompiledSession": 320,
    "precision_debug_torch.engine.dispatch.Trace": 360,
    "precision_debug_torch.session.TorchSession": 320,
}


def test_a_class_has_at_most_200_lines(root: Path) -> None:
    found = {
        f"{module}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module, path in house_numbers.sources(root).items()
        for node in house_numbers.nodes(path)
        if isinstance(node, ast.ClassDef)
    }
    assert {name: size for name, size in found.items() if size > LONG_CLASSES.get(name, 200)} == {}
    gone = [name for name in LONG_CLASSES if found.get(name, 0) <= 200]
    assert not gone, f"not long any more, take them off LONG_CLASSES: {gone}"


def test_built_in_backends_are_the_declared_entry_points_and_are_shipped(root: Path) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = re.search(r'\[project\.entry-points\."precision_debug\.backends"\]\n(.*?)\n\n', text, re.DOTALL)
    assert section is not None
    assert dict(re.findall(r'^(\w+) = "([^"]+)"', section[1], re.MULTILINE)) == registry.BUILT_IN
    packages = re.search(r"^packages = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    assert packages is not None
    shipped = set(re.findall(r'"([^"]+)"', packages[1]))
    built_in = {f"backends/{target.partition(':')[0]}" for target in registry.BUILT_IN.values()}
    assert shipped == {"precision_debug"} | built_in


def test_every_package_says_that_it_is_typed(root: Path) -> None:
    packages = [root / "precision_debug", *sorted((root / "backends").glob("precision_debug_*"))]
    assert [package.name for package in packages if not (package / "py.typed").is_file()] == []


def test_backends_have_the_same_file_names(root: Path) -> None:
    """Roles that all have, and roles that some have; what only one engine has lies in its engine/."""
    all_have = {
        "__init__", "backend", "modes", "tried", "settings", "model", "make", "session", "naming", "keep", "reasons",
    }  # fmt: skip
    some_have = {"opening", "failures", "isolate", "on_device", "workbench", "live"}
    for target in registry.BUILT_IN.values():
        folder = root / "backends" / target.partition(":")[0]
        found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        assert all_have | {"engine"} <= found, folder
        assert found <= all_have | some_have | {"engine"}, folder


def test_every_module_lists_what_it_exports(root: Path) -> None:
    for path in sorted((root / "precision_debug").rglob("*.py")):
        if path.name != "__main__.py":
            assert re.search(r"^__all__(: list\[str\])? = ", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_a_backend_declares_what_it_has_the_methods_for() -> None:
    """Capabilities are asked for by name; one that is there and not declared would never be used."""
    asked = typing.get_type_hints(Capabilities, localns={name: getattr(protocols, name) for name in protocols.__all__})
    for backend in registry.backends():
        for name, hint in asked.items():
            (protocol,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
            methods = [method for method in vars(protocol) if not method.startswith("_")]
            able = all(hasattr(type(backend), method) for method in methods)
            assert able == (getattr(backend.capabilities, name) is not None), (backend.name, name)


def test_no_plugin_imports_another(root: Path, edges: dict[str, set[str]]) -> None:
    """What two of them need is the core's; a module that a text names is looked for too."""
    names = [path.name for path in house_numbers.plugins(root)]
    for module, others in edges.items():
        own = module.split(".")[0]
        assert not [other for other in others if other.split(".")[0] not in ("precision_debug", own)], module
    for module, path in house_numbers.sources(root).items():
        own = module.split(".")[0]
        if own == "precision_debug":
            continue  # the registry names them all
        for node in house_numbers.nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not [name for name in names if name != own and name in node.value], f"{module}: {node.value}"


def test_the_core_has_few_rooms(root: Path) -> None:
    rooms = [name for name in house_numbers.rooms(root) if not name.startswith("__") and name != "products"]
    assert len(rooms) <= 26, rooms


def test_what_the_guide_names_is_there(root: Path) -> None:
    """CONTRIBUTING's walk of a tensor, and its table of where a new thing goes."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = re.findall(r"^    ([a-z]\w*/[\w./]*) ", text[: text.index("## Where does")], re.MULTILINE)
    named = re.findall(r"`(precision_debug/[a-z_/]+(?:\.\w+)?)`", text)
    assert len(walk) >= 10
    assert len(named) >= 8
    for path in [*(f"precision_debug/{name}" for name in walk if "backends" not in name), *named]:
        assert (root / path).exists(), path


def test_options_of_a_session_hold_nothing_alive(root: Path) -> None:
    """What is alive has an argument of its own (``open_for``): options promise plain values, see test_plan too."""
    for module, path in house_numbers.sources(root).items():
        for node in house_numbers.nodes(path):
            given = node.value if isinstance(node, ast.keyword) and node.arg == "options" else None
            if isinstance(node, ast.Assign) and any(ast.unparse(name) == "options" for name in node.targets):
                given = node.value
            if isinstance(given, ast.Dict):
                keys = {key.value for key in given.keys if isinstance(key, ast.Constant)}
                assert not keys & {"comparer", "hook", "session", "store"}, f"{module} line {node.lineno}"
