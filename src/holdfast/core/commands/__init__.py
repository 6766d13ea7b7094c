"""The commands, by what they are about. table.py lists them; each function's docstring is its manual page."""
