"""Deterministic simulation of whole clusters: the real machine, everything around it simulated.

    cluster.py   Cluster: time, the heap, directed scenarios        host.py      one machine's shell
    network.py   paths and connections                              disk.py      what a crash leaves
    clock.py     skew, jumps, slow clocks                           clients.py   commands and replies
    faults.py    what goes wrong, as data                           nemesis.py   does it
    plan.py      a whole run as data                                workload.py  who adds and consumes
    watcher.py   looks inside at intervals                          machine.py   what a node must be able to do
    run.py       one seed, one verdict                              shrink.py    the smallest plan that still fails
    transcript.py  the story of one job                             mutants.py   the holes we must be able to find
    swarm.py     many seeds on many cores                           __main__.py  the command line
"""
