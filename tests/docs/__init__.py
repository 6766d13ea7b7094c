"""The documentation does what it says."""
