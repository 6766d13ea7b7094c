"""The doors for those who do not speak RESP: HTTP and gRPC, in a process of their own, before any number of nodes."""
