"""precision_debug: which operator lost the precision, and what to do about it.

``compare`` runs two modes of a model and returns a Report; ``SaveBaseline`` and ``AssertClose`` are the hooks for
scripts of your own. Importing this package loads no framework, and numpy only when something is used.
"""

from .safety import import_path

if import_path.is_running_as_module():  # before anything that a file of the current folder may be named after
    import_path.remove_front_folder()

from typing import TYPE_CHECKING

from .__about__ import __version__ as __version__
from .safety.late import make_lazy_exports

__all__ = [
    "AssertClose",
    "ModelFiles",
    "PrecisionDebugError",
    "Report",
    "Row",
    "SaveBaseline",
    "Status",
    "Tolerance",
    "assign_mark_names",
    "compare",
    "get_mark_names_from_serialized_json",
    "training",
    "watch",
]

if TYPE_CHECKING:
    from .api import compare
    from .errors import PrecisionDebugError
    from .observe.hooks import SaveBaseline
    from .observe.watch import training, watch
    from .pairing.marks import assign_mark_names, get_mark_names_from_serialized_json
    from .records import ModelFiles, Row, Status, Tolerance
    from .report.model import Report
    from .run.script_hooks import AssertClose

__getattr__ = make_lazy_exports(
    __name__,
    {
        "api": "compare",
        "errors": "PrecisionDebugError",
        "observe.hooks": "SaveBaseline",
        "observe.watch": "training watch",
        "pairing.marks": "assign_mark_names get_mark_names_from_serialized_json",
        "records": "ModelFiles Row Status Tolerance",
        "report.model": "Report",
        "run.script_hooks": "AssertClose",
    },
)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
