"""Tests of the prompt and the load generator."""
