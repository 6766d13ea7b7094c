"""The machine: a job queue node with no clock, no socket and no file. Start reading at node.py."""
