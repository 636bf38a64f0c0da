"""A training step in place of a forward pass: its backward pass and its optimiser run, and are seen, as well."""
