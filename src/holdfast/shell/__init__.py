"""The only place with sockets, clock, signals and files. Start reading at server.py."""
