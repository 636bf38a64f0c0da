"""The smallest set of operators to keep in higher precision: what can be kept, in which order to try, how to minimise.

Nothing here runs a model: ``run.trials`` asks a backend to, and tells what came of each set.
"""

__all__ = []  # its modules are imported by name
