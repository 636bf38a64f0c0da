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
from ..reasons import say

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
        sides = [{name: np.array(value) for name, value in side.items()} for side in (baseline, target)]  # to keep ours
        try:
            found = self._function(*sides)
            outcomes = found if isinstance(found, Mapping) else {"": found}
            told = {str(name): self._truth(one) for name, one in outcomes.items()}
            if not told:
                raise InputError(say("judged_nothing"), where=self._source, hint=say("judge_form"))
            if strange := [name for name in told if name and name not in baseline and name not in target]:
                known = say("such_as", example=", ".join(map(repr, baseline)))
                raise InputError(say("judged_strange", names=strange), where=self._source, hint=known)
            return told
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{type(error).__name__}: {error}", where=self._source) from error

    def _truth(self, value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        number = isinstance(value, (int, float, np.ndarray, np.number))
        if number or not hasattr(type(value), "__bool__") or value is None:
            said = say("judged_with", kind=type(value).__name__)
            raise InputError(said, where=self._source, hint=say("judge_form"))
        return bool(value)  # Polygraphy's own results are true or false in this way
