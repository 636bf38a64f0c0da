"""A comparison of the user's own: FILE.py:function of both runs' outputs, in place of tolerances.

The function is given two mappings of output names to arrays, the baseline's and the target's, and returns true or
false, or a mapping of names to true or false; Polygraphy's scripts for --compare-func-script do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from ..feeds.script import load_function

__all__ = ["UserCompare"]


class UserCompare:
    """source: FILE.py:function. Raises InputError where there is none."""

    def __init__(self, source: str) -> None:
        self.name = source.rpartition(":")[2]
        self._source = source
        self._function = load_function(source)

    def judge(self, baseline: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, bool]:
        """Whether each output is good enough, by its name; {"": …} where the function says it of all at once.

        Raises InputError with what went wrong in the function.
        """
        sides = [{name: np.asarray(value) for name, value in side.items()} for side in (baseline, target)]
        try:
            found = self._function(*sides)
            outcomes = found if isinstance(found, Mapping) else {"": found}
            return {str(name): self._truth(one) for name, one in outcomes.items()}
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{type(error).__name__}: {error}", where=self._source) from error

    def _truth(self, value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        if value is None or isinstance(value, (int, float, str, list, tuple, np.ndarray, np.number)):
            raise InputError(
                f"it returned {type(value).__name__}", where=self._source,
                hint="return True or False, or a dict of output name to True or False",
            )  # fmt: skip
        return bool(value)  # Polygraphy's own results are true or false in this way
