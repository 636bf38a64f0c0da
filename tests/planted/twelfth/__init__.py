"""A twelfth batch: public threads of people whose converted model was off, each rebuilt small with real components.

Written and labelled before the tool was run on any of it; ``measure.py`` shows what is true without the tool. A case
cites its thread: ``thread="owner/repository#number"``.
"""
