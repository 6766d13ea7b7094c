"""Measuring Holdfast: the load generator, the numbers we publish, and the table that judges them.

    loadgen.c    makes the load, checks every reply, reads the server's CPU clock
    common.py    servers as processes: start, pin, measure, stop
    core.py      one node beside redis-server: CPU per command, memory per job, longest pause
    report.py    what core.py found, as a table and as a plot
    show/        `make show PART=…`: lists of promises, each run and judged

Why CPU time and not the clock on the wall: on a shared machine the wall rate of one and the same server
varies by ten, its CPU time per command by some percent. And why ratios from alternating runs: what is left
of the noise (clock speed, cache, neighbours) changes slowly, so it hits both servers of a pair alike.
"""
