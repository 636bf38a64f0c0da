"""What only this engine has: its graph, its layers, and the operators of ours in it."""

__all__: list[str] = []  # its modules are imported by name
