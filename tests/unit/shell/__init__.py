"""Tests of the shell's parts that need no process of their own."""
