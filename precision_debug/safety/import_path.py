"""Where modules are imported from: never from the folder that a command happens to be run in.

Python puts a folder in front of its own library: the current one for ``python -m``, the script's for a script, ""
for ``-c``. A user's queue.py there would break every framework, and a planted one would run. This module is imported
before any other of the package, so it imports nothing that is not built into the interpreter.
"""

import sys

__all__ = ["Neighbours", "is_running_as_module", "list_entries", "make_command", "remove_front_folder"]

_cleaned = False

_OWN = """import sys; sys.path[:] = {path}
import importlib.machinery, importlib.util
spec = importlib.machinery.PathFinder.find_spec("precision_debug", [{place}])
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
{code}
"""
"""The package comes from where it is now, on the path or not; of the path nothing is imported before it is set."""


def is_running_as_module() -> bool:
    """Return whether ``python -m precision_debug`` is starting: this package's __init__ then runs before its
    __main__."""
    interpreter = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    if sys.argv[:1] != ["-m"] or not interpreter:
        return False
    name = interpreter[-1].partition(".")[0]
    return name == "precision_debug" or (name.startswith("-") and name.endswith("mprecision_debug"))


def remove_front_folder() -> None:
    """Take the folder that Python put in front out of this process's path. For commands: a library leaves it alone."""
    global _cleaned  # noqa: PLW0603
    sys.path[:] = list_entries()
    _cleaned = True


def list_entries() -> list[str]:
    """This process's import path without the folder that Python put in front of it, and without "".

    A folder stays where PYTHONPATH names it or an installation added it. An empty entry of PYTHONPATH
    ("$PYTHONPATH:/more" where it was empty) means the current folder to Python, which nobody wants.
    """
    paths = [path for path in sys.path if path]
    if _cleaned:
        return paths
    front = _find_front()
    if front and front in paths:
        paths.remove(front)
    named = [] if sys.flags.ignore_environment else _read_flag("PYTHONPATH").split(":")
    here = _current_folder()
    if "" in named and any(named) and here in paths and here not in [_make_absolute(path) for path in named if path]:
        paths.remove(here)
    return paths


def make_command(code: str) -> list[str]:
    """Return a command line that runs Python code in another interpreter like this one, with ``list_entries`` for its
    path."""
    flags = ["-I"] if sys.flags.isolated else ["-E"] * sys.flags.ignore_environment + ["-s"] * sys.flags.no_user_site
    if sys.version_info >= (3, 11):
        flags.append("-P")
    import os

    paths = [_make_absolute(path) for path in list_entries()]
    place = os.path.dirname(os.path.dirname(os.path.dirname(_make_absolute(__file__))))
    return [sys.executable, *flags, "-c", _OWN.format(path=ascii(paths), place=ascii(place), code=code)]


class Neighbours:
    """A context in which a folder's modules can be imported, for a script of the user's that lies there.

    The folder comes last in the path: what is installed keeps its name, whatever the files there are called.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        sys.path.append(self._folder)

    def __exit__(self, *exc: object) -> None:
        for place in reversed(range(len(sys.path))):
            if sys.path[place] == self._folder:
                del sys.path[place]
                break


def _find_front() -> str:
    """Return what Python itself put first: "" where nothing."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return ""
    main = sys.modules.get("__main__")
    if sys.argv[:1] == ["-m"] or getattr(main, "__spec__", None) is not None:
        return _current_folder()
    file = getattr(main, "__file__", None)
    if not file:
        return ""
    import os  # site has loaded it

    return str(os.path.dirname(os.path.realpath(file)))


def _current_folder() -> str:
    import os

    try:
        return os.getcwd()
    except OSError:
        return ""


def _make_absolute(path: str) -> str:
    import os

    return os.path.join(_current_folder(), path)


def _read_flag(name: str) -> str:
    import os

    return os.environ.get(name, "")
