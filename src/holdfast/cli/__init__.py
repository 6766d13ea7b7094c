"""One file per subcommand; main.py puts them together."""
