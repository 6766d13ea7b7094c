"""Transcripts: what a client says to a node and, to the letter, what it hears. See transcript.py."""
