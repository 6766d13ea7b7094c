"""Disque's own thirteen test stories, and a few more, on seven real nodes."""
