"""What every test shares: a clean environment, and models built once a session."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import approval
import forks
import outcomes
import pytest
from forks import pytest_runtestloop, pytest_terminal_summary
from hypothesis import HealthCheck, settings
from outcomes import pytest_runtest_setup
from warm import EveryWarm, fixed, serving, shared

__all__ = ["pytest_runtest_setup", "pytest_runtestloop", "pytest_terminal_summary"]

ROOT = Path(__file__).resolve().parent.parent
_SHARED = pytest.StashKey[str]()

# what is checked are numbers, and how long that takes depends on what else the machine does
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")

# a shell starts what runs in the background so, and nohup; the children that tests interrupt would inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# torch.compile reads from the processor what it can do; it would compile and load a program of each width, too, and
# anew in each checkout: 7 CPU seconds of a run. The kernels that tests compile for that width say as much.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Files that take longest begin, so that no core waits for the last of them: a worker runs a file at a time. By CPU
# seconds; those with frameworks are among them, since in the alphabet most of these stand at the end.
LONGEST = (
    "test_unseen", "test_packed_folders", "test_configurations", "test_torch_replacing", "test_search_planted",
    "test_paddle", "test_tokens_transformers", "test_torch_gradients", "test_ranks", "test_torch_compiled_transformers",
    "test_to_keep", "test_torch_training_threads", "test_attack", "test_supervisor", "test_readme",
    "test_torch_training", "test_claims", "test_explain", "test_search", "test_cli_statuses", "test_port",
    "test_torch_folder", "test_torch", "test_torch_on_device", "test_torch_contract", "test_training_ranks",
    "test_openvino", "test_torch_architectures", "test_products", "test_paddle_step", "test_torch_onnx",
    "test_torch_signature", "test_export_faults", "test_handed_over", "test_torch_keep", "test_iterations",
    "test_ownership", "test_pytest_plugin", "test_failures_in_chinese", "test_metrics_kernel",
    "test_explain_edges", "test_tensorrt_keep", "test_causes_of_constants", "test_examples", "test_paddle_contract",
    "test_torch_whole_module", "test_onnxruntime_taps", "test_stopping", "test_without_frameworks", "test_sweep",
    "test_import_path", "test_cli", "test_faulty_pass", "test_paddle_bodies",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    outcomes.pytest_addoption(parser)
    forks.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False
    if getattr(config.option, "timeout", 0) is None:  # read after this; on a busy machine all takes longer
        from attack.case import patience

        config.option.timeout = patience(float(config.getini("timeout")))
    named = config.args_source is pytest.Config.ArgsSource.ARGS and not hasattr(config, "workerinput")
    if named:  # of files that are named, the long ones too; xdist's workers leave them out all the same
        config.option.markexpr = config.option.markexpr.removesuffix(" and not long")
    outcomes.pytest_configure(config)
    _BEGUN_WITH.update(fixed(os.environ))
    approval.configure(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers use the warm processes that one of them has started."""
    config = node.config
    if _SHARED not in config.stash:
        ends = contextlib.ExitStack()
        config.stash[_SHARED] = ends.enter_context(shared())
        config.add_cleanup(ends.close)
    node.workerinput["warm"] = config.stash[_SHARED]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the quick tests alone, no module is imported that has none; nor one of which all has passed already."""
    if outcomes.passed_whole(config, collection_path):
        return True
    if config.option.markexpr == "quick" and collection_path.suffix == ".py":
        return "mark.quick" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Without the garbage collector: what is made meanwhile stays, and to walk all of it took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Each worker begins with other files: what one has rewritten and compiled, the others find in the cache."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Dir):
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        begin = len(report.result) * (number % count) // count
        report.result = [*report.result[begin:], *report.result[:begin]]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    outcomes.mark_long(items)
    outcomes.without_passed(config, items)
    place = {name: number for number, name in enumerate(LONGEST)}
    if hasattr(config, "workerinput"):  # in the order that all workers share
        items.sort(key=lambda item: item.path)
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


# Libraries write into the environment when they are imported, or used: onnxruntime_extensions, Paddle. What children
# start with would be another than at the session's begin, and no command of any later test could be a fork any more.
_BEGUN_WITH: dict[str, str] = {}


def _clean_environment() -> None:
    now = fixed(os.environ)
    for name in now.keys() - _BEGUN_WITH.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in _BEGUN_WITH.items() if now.get(name) != value})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """After all that a test has set is undone: what it, or a library that it used, has left in the environment."""
    yield
    _clean_environment()


@pytest.fixture(autouse=True)
def _no_leaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reports land in the test's own folder, and child processes find this checkout."""
    monkeypatch.chdir(tmp_path)
    paths = [str(ROOT), str(ROOT / "backends"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)  # where a failed comparison writes one line more
    monkeypatch.setenv("PRECISION_DEBUG_PROGRESS", "off")  # on a busy machine a short run is a long one


@pytest.fixture(scope="session", autouse=True)
def warm(request: pytest.FixtureRequest) -> Iterator[EveryWarm]:
    """What forks commands; each starts when it is first asked."""
    _clean_environment()  # collecting has imported libraries
    with serving(getattr(request.config, "workerinput", {}).get("warm", "")) as every:
        yield every


@pytest.fixture(autouse=True)
def _children_are_forks(
    request: pytest.FixtureRequest, warm: EveryWarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, and the engines of those called in this process, run in forks of a warm process (tests/warm.py), a
    quarter of the cost: of one that has imported the engine that they name, or that the mark ``engine`` does. Not where
    the mark ``fresh`` says that a test is about the process itself."""
    mark = request.node.get_closest_marker("engine")
    fresh = request.node.get_closest_marker("fresh")
    chosen = None if fresh else warm[mark.args[0]] if mark else warm
    monkeypatch.setattr("warm.here", chosen)
    if chosen is not None:
        monkeypatch.setattr("precision_debug.run.child.start", chosen.start)
        monkeypatch.setattr("precision_debug.safety.own_process.run_code", chosen.run_code)


@pytest.fixture(autouse=True, scope="module")
def _old_objects_are_left_alone() -> None:
    """What was imported for the modules before is millions of objects: each collection of garbage would walk them, and
    closing a PyTorch session is one. What the tests of a module make is collected as ever."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def python() -> str:
    """This interpreter."""
    return sys.executable


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The path of a model of the fake backend (tests/fake), which is installed as somebody else's wheel would be."""
    from precision_debug import registry

    monkeypatch.syspath_prepend(str(ROOT / "tests" / "fake"))
    registry.plugins.cache_clear()
    path = tmp_path / "m.fake"
    path.write_text('{"layers": 8, "width": 4}')
    yield str(path)
    registry.plugins.cache_clear()
