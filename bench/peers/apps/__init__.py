"""One module per task library: its app, a no-op task, how its worker is started."""
