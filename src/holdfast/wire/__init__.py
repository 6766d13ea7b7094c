"""Bytes to values and back: incremental, without any I/O, each format in one file."""
