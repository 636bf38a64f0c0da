"""What only this engine has: its library through ctypes, the GGUF file, and the graph that its callback shows."""

__all__: list[str] = []  # its modules are imported by name
