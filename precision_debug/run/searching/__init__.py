"""A search from its command to its report: sets are run and remembered; ``precision_debug.search`` chooses them."""

__all__: list[str] = []  # its modules are imported by name
