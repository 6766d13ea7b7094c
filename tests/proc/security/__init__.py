"""Attempts to break in, one file per door: each was a way in, or a way to stop a node or a gateway, before."""
