"""Attacks on the tool by class, seeded, each with what must hold: ``python tests/attack/run.py --cases 2000``."""
