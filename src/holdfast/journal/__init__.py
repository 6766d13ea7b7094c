"""The journal: what a node must know after a restart, in append-only files."""
