"""For tests of Holdfast, and of what is built on it: shipped, because users need it as much as we do.

    kit, chaos, pytest_plugin   for tests of your tasks: a queue in memory, a clock that stands, trouble from a seed
    history     what clients saw and what was done to the cluster, as a list of operations
    checkers    the promises as pure functions of a history; the same ones for simulated and real clusters
    sim         whole clusters in one thread, in virtual time, from one seed: real nodes, simulated world
"""
