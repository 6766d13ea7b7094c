"""Tests of the client. A package, so that its modules can share `stub_node`."""
