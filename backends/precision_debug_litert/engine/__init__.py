"""What only this engine has: its flatbuffer, its graph, and how a file is rewritten."""

__all__: list[str] = []  # its modules are imported by name
