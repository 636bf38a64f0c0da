"""What only this engine has: the program that runs in the Python that has it."""

__all__: list[str] = []  # its modules are started by path
