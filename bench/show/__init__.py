"""Every promise of a release, run and judged: `make show PART=node`, and the other lists.

A list is a sequence of lines: what is promised, the goal in words, and a function that finds out. At the end there
is one table:

    pass           the goal is met
    falls short    it is not
    void           the run gave no answer: skipped, broken, or a program is missing

Void counts as falling short: a promise nobody checked is not kept. The exit code is 0 only if every line passes. Long
output of the commands goes to build/bench/show/<key>.log, the table also to bench/results/show-<list>.json.

Each list is a file here; lines.py holds the ways to find out. To add a list, write its lines() and enter it in
__main__.LISTS.
"""
