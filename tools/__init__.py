"""Helpers of the Makefile, the documentation and the tests; nothing here is installed."""
