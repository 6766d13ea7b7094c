"""Every bound of the machine and of its doors, each with the reason for its number.

A number that limits something stands here and nowhere else. Where an operator may move it, it is the
default of a setting (core/config.py) and this file says why the default is what it is.
"""
from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024
GIB: Final = 1024 * 1024 * 1024

# -- time, in milliseconds unless the name says otherwise ---------------------------------------------------

NEVER: Final = 1 << 62
"""A wake time that does not come: far beyond any clock, and still a 64-bit integer."""

SEQ_LEAP: Final = 1 << 24
"""Numbers of jobs that are passed over where the clock was set back between two lives of a node: at most so many has
the one before given out to jobs that were still being added when it ended, or whose records were lost with the power.
"""

DURATION_S_MAX: Final = 2**31 - 1
"""TTL, RETRY and DELAY in seconds: 68 years, and a job keeps each in 32 bits. More is refused, not wrapped."""

TIMEOUT_MS_MAX: Final = 2**53
"""A client's patience in milliseconds: whatever a number in any client language can hold exactly."""

TTL_S_DEFAULT: Final = 86400
"""One day, as in Disque; of a delayed job from the end of its delay."""

TTL_S_ENDLESS: Final = 50 * 365 * 86400
"""TTL none: fifty years, and the eighteen up to DURATION_S_MAX are room for a delay and for clocks that are set."""

RETRY_S_DEFAULT_MAX: Final = 300
"""RETRY defaults to a tenth of the TTL, but no more than five minutes, as in Disque."""

QUEUE_IDLE_MS: Final = 300_000
"""An unused, empty queue is forgotten after five minutes; sooner when memory is short."""

QUEUE_IDLE_MS_LEVEL1: Final = 10_000
"""The same above 75 % of maxmemory, as in Disque."""

QUEUE_IDLE_MS_LEVEL2: Final = 2_000
"""The same above 95 % of maxmemory, as in Disque."""

NODE_TIMEOUT_MS_MAX: Final = 86_400_000
"""A day: whoever waits longer until a node counts as gone does not want to know."""

# -- jobs ---------------------------------------------------------------------------------------------------

BODY_BYTES_DEFAULT: Final = MIB
"""Bodies above a mebibyte belong in a store, with their address in the job; `max-body-bytes` moves it."""

BODY_BYTES_MAX: Final = 48 * MIB
"""The most that `max-body-bytes` can be set to: a copy must fit into one frame between nodes."""

REPLICATE_MAX: Final = 65535
"""Disque's bound, and more nodes than a full mesh can have."""

REPLICATE_DEFAULT_MAX: Final = 3
"""Copies of a job that does not say how many, or fewer where fewer nodes can be reached."""

CORES_MAX: Final = 32
"""Nodes of one machine behind one port: half of what a mesh can have, so that two such machines can meet."""

TTL_MINUTES_MAX: Final = 65535
"""Four hex digits in the job id hold the TTL in minutes; a longer TTL shows as this."""

PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 5
"""In the middle, so that there is room for the urgent above and for the patient below."""

KEY_BYTES_MAX: Final = KIB
"""A tenant, domain, group, unique key or batch: a name for people and programs, kept with every job that has it."""

HEADERS_MAX: Final = 64
HEADERS_BYTES_MAX: Final = 8 * KIB
"""Headers of one job, names and values together: trace context and content types, not a second body."""

ERROR_BYTES_MAX: Final = KIB
"""Of the first line of what a worker says about a failure; the rest of the line is cut."""

TRACE_BYTES_MAX: Final = 4 * KIB
"""Of the lines after the first: the end of a traceback, where it was raised. Only the last failure of a job keeps
them, so a job that fails has at most so much more."""

BACKOFF_MOST_S: Final = 3600
"""The longest wait between two attempts where the job does not say: an outage of a night costs an hour, not a week."""

BATCH_MAX: Final = 1_000_000
"""Jobs in one batch: a bit each at the node that counts them, 125 KB at most."""

BATCHES_MAX: Final = 100_000
"""Batches that a node counts for: the bits of a hundred thousand small ones are some tens of megabytes."""

BATCH_BYTES: Final = 600
"""A batch: the object, its bits where they are few, its causes and its places in the tables."""

BATCH_IDLE_MS: Final = 7 * 86_400_000
"""A batch of which nothing is heard for a week is given up: whoever was to close it, or its jobs, are gone."""

BATCH_KEPT_MS: Final = 3_600_000
"""A complete batch can be asked about for an hour."""

TRIES_KEPT: Final = 10
"""Hand-outs of a job that did not end well, of which it is told how they ended; the latest."""

RESULT_BYTES_MAX: Final = 64 * KIB
"""Of a result kept for whoever waits for the job: an answer, not a file. More is refused, not cut."""

RESULT_BYTES: Final = 320
"""What a result costs beside its bytes: its id, the object, its places in two tables."""

RESULTS_PERCENT: Final = 10
"""Of maxmemory that results may take; past that the oldest go before their time, and are counted."""

WAIT_IDS_MAX: Final = 10_000
"""Jobs that one WAITJOB waits for."""

PROGRESS_BYTES_MAX: Final = 256
"""Of what a worker says about how far it is: a line for people."""

LEASES_AT_ONCE: Final = 10_000
"""Pairs in one KEEPALIVE or ACKJOBS: what one worker process can have in hand, and a few milliseconds of work."""

WORKERS_MAX: Final = 10_000
WORKERS_PER_USER: Final = 2_500
"""Of WORKERS_MAX, of one user that is not an admin of all queues."""
WORKER_FIELDS_MAX: Final = 32
WORKER_BYTES_MAX: Final = 4 * KIB
"""Workers that one node remembers, and what each may say of itself: enough for a list, not a store."""

WORKER_TTL_S_MAX: Final = 86_400
"""A worker that says nothing for a day is not there."""

DEAD_RETENTION_S: Final = 30 * 86_400
"""How long dead jobs are kept unless their queue says otherwise: a month, over holidays and into the next sprint."""

RESULT_TTL_S: Final = 3600
"""How long a result is kept: whoever wants it waits for it."""

ADD_MANY_MAX: Final = 100_000
"""Jobs in one ADDJOBS: about a tenth of a second of work, during which nobody else is served."""

COUNT_MAX: Final = 100_000
"""Jobs in one GETJOB or QPEEK reply, for the same reason."""

SCAN_COUNT_DEFAULT: Final = 100
SCAN_STEPS_PER_ITEM: Final = 10
"""A scan that filters looks at ten items for each one asked for, then answers with what it found, as Disque."""

SCAN_COUNT_MAX: Final = 100_000
"""Items in one scan reply; BUSYLOOP is for those who want everything at once and say so."""

SCAN_FULL_MAX: Final = 1_000
"""The same where each item is described (REPLY all): some milliseconds of work, and less than half a MiB."""

PAUSE_MS_MAX: Final = 600_000
"""The longest CLIENT PAUSE. One without an end would take a signal to end it."""

HISTORY_BODY_MAX: Final = 4096
"""Bytes of a body in history: enough to recognise a call, not a second place for bodies."""

HISTORY_COUNT_DEFAULT: Final = 1000
HISTORY_COUNT_MAX: Final = 100_000
"""Records in one HISTORY READ: about ten megabytes; a reply is cut at four."""

PAST_SECONDS: Final = 3600
PAST_MINUTES: Final = 1440
PAST_QUEUES: Final = 64
"""What a node remembers of its figures (past.py): an hour by seconds and a day by minutes, which is 200 KB for a queue;
with all queues together 13 MB at most."""

PAST_QUIET_S: Final = 60
"""A queue in which nothing happened for so long gives its rows to another that is busy, where there are too many."""

PAST_LOOKED_AT: Final = 2000
"""Queues that are looked at in a second; with more figures are taken more rarely, and shared among the seconds."""

PAST_SUMMED_MINUTES: Final = 60
"""Minutes that PAST SUMS adds up: for all queues a few milliseconds' work."""

PAST_SMEARED_S: Final = 3
"""Seconds that a look may come late without a gap: what was counted since is shared among them."""

RATE_MAX: Final = 1_000_000
"""Of a rate, per whatever unit: more than a node hands out in a second."""

RATE_BURST_NS_MAX: Final = 10**18
"""What a bucket takes to fill, in nanoseconds: 31 years, and sums of it and of a node's life fit 64 bits."""

BURST_MAX: Final = 1_000_000
CONCURRENCY_MAX: Final = 1_000_000
"""Jobs out at a time: more workers than anybody has."""

WEIGHT_MAX: Final = 1_000_000
"""Of a tenant: one hand-out to it still moves virtual time on by thousands."""

REGISTERS_MAX: Final = 200_000
"""Settings of a cluster, one field each. When two nodes meet that differ all are told: 20 MB at most."""

CRON_ENTRIES_MAX: Final = 10_000
CRON_BYTES_MAX: Final = 64 * KIB
"""Of one cron entry, its body and options together: it is kept at every node and told as a whole."""

CRON_CATCH_UP_MAX: Final = 100
"""Runs of an entry that are made up for at once after nobody was there to make them."""

CRON_NEXT_MAX: Final = 1000
"""Times that CRON NEXT tells at once."""

DOMAINS_TOLD_MAX: Final = 100
"""Domains with metrics of their own, those that held up most: a million domains must not become a million series, and
nobody reads a chart of more than a hundred."""

DOMAINS_SWEEP: Final = 1024
"""Domains known at which those are forgotten of which there is nothing to remember; then at twice what is left."""

# -- work per turn ------------------------------------------------------------------------------------------

ALARMS_PER_TICK: Final = 256
"""Alarms run in one tick. Each stands for at most a page of jobs, so a million jobs that expire together
take many short ticks with clients served in between, not one long one."""

EVICT_PER_COMMAND: Final = 10_000
"""Jobs evicted before a command that needs memory: a few milliseconds at most."""

SPENT_GONE_MAX: Final = 1024
"""Ended jobs among those that could be evicted; more are swept out, so that they do not stay in memory."""

QUEUES_HURRIED: Final = 10_000
"""Queues whose alarm is set earlier at once when memory gets short; the others learn it in their time."""

WAITING_PERCENT: Final = 5
"""Room beyond maxmemory for the queues that consumers wait on: whoever takes jobs away is let in."""

# -- memory -------------------------------------------------------------------------------------------------

MEMORY_DEFAULT: Final = GIB
"""`maxmemory` is mandatory and 1 GiB unless set, as in Disque."""

OVERFLOW_PERCENT: Final = 60
"""Where overflow begins: well below the first level, so that a node that can overflow does not send copies away."""

MEMORY_LEVEL1_PERCENT: Final = 75
MEMORY_LEVEL2_PERCENT: Final = 95
"""Above the first a node keeps new copies elsewhere if it can; above the second it evicts what is safe."""

JOB_BYTES: Final = 160
"""What a job costs beside its body: the object (128), its place in its page (8 + a share of the page, 10)
and in its queue (8 + slack of a block, 6). Measured: see bench/core.py, bytes per pending job."""

FOLDED_JOB_BYTES: Final = 12
"""What is left of a job in a run on disk: its place in its page (8 + a share of the page, 2), a share of the run."""

OVERFLOW_ROOM_PERCENT: Final = 2
"""Of maxmemory: so much is moved to disk at a time, so that there is something to choose from."""

OVERFLOW_STEP_BYTES: Final = 2 * MIB
"""Moved in one turn: about two milliseconds of writing to the memory of the system."""

OVERFLOW_STEPS_MAX: Final = 64
"""Turns' worth of it for one command that finds no memory at all."""

OVERFLOW_LOOKS: Final = 256
"""Blocks, queues or pages looked at in one turn for something to move: some ten microseconds when there is nothing."""

OVERFLOW_INLINE_MAX: Final = 1024
"""Longer bodies have a place of their own on disk. So a run is at most some 300 KB, and reading one takes no time."""

OVERFLOW_BODY_MIN: Final = 128
"""Of shorter bodies the place and the reading would cost more than the body."""

OVERFLOW_BARREN_MS: Final = 1000
"""After a walk over everything that found nothing to move: it looks at every job, some milliseconds for a million."""

OVERFLOW_RETRY_MS: Final = 1000
"""After a failed write or read of what has overflowed."""

MORE_BYTES: Final = 320
"""What keys, headers and rules of a job cost beside their texts: the object (208) and its list (56 and up)."""

TRY_BYTES: Final = 200
"""How one hand-out ended, beside what the worker said: the object (88), its token and its worker's name."""

GROUP_BYTES: Final = 200
"""A group that has jobs: the object, its name's header and its place among the groups of its queue."""

LINE_BYTES: Final = 700
"""The line of a group with more than one job: an empty deque is 624."""

TAKEN_BYTES: Final = 320
"""A unique key that is taken: the object, the id of its job once that is gone (81), and its place in the index."""

CLAIM_JOBS_MAX: Final = 100_000
"""Jobs of one claim: a batch of a pipeline, and a step of some hundred milliseconds when it is taken or committed."""

CLAIM_GROUPS_MAX: Final = 10_000
"""Pipelines a node remembers: one that was opened longer ago and holds nothing opens again."""

CLAIM_READ_BYTES: Final = 4 * MIB
"""Bodies in one reply to CLAIM READ."""

STAGES_MAX: Final = 10_000
"""Tasks of pipelines that write at one node at a time."""

STAGE_MS: Final = 3_600_000
"""How long what was put aside is kept for a driver that does not publish it: an hour, as long as a batch may take."""

STAGE_JOB_BYTES: Final = 16
"""What a job costs that is put aside, beside its body: a place in a list."""

CLAIM_JOB_BYTES: Final = 72
"""What a claim keeps of each of its jobs: three places in lists, and a body that may outlive the job."""

LEASE_BYTES: Final = 112
"""A hand-out of which more is known than when it ends."""

TOMB_BYTES: Final = 192
"""A tombstone: its id (96 as an object), its places in the table (72) and in the list of its second (8 and slack)."""

BODY_BYTES_EXTRA: Final = 48
"""A bytes object's header (33) rounded up to the allocator's 16, on average."""

REGISTER_BYTES: Final = 400
"""A setting: the object and its stamp, its names and a short value, its places in two dictionaries."""

KEY_BYTES: Final = 400
"""What a domain or a tenant costs beside its jobs: a throttle and a bin, or a line. There may be one for each job that
has one, so each is accounted for it."""

QUEUE_BYTES: Final = 2100
"""A queue, its name, its lane with one block, its waiting list, its histograms and its places in the indexes."""

SESSION_BYTES: Final = 2048
"""A connected client as the machine sees it, without what it has sent or is owed."""

# -- diagnostics --------------------------------------------------------------------------------------------

SLOWLOG_ARGS_MAX: Final = 32
SLOWLOG_ARG_BYTES_MAX: Final = 128
"""As in Redis: enough to recognise a command, not enough to keep its data alive."""

LATENCY_SAMPLES_MAX: Final = 160
"""Samples kept per event, as in Redis: fits one graph."""

MONITOR_ARG_BYTES_MAX: Final = 512
"""Longer arguments are cut in MONITOR's lines: a monitor should see commands, not move megabytes."""

CLIENT_NAME_BYTES_MAX: Final = 256
"""A name is for people who read CLIENT LIST, one line a client."""

QUEUE_NAME_BYTES_MAX: Final = 64 * KIB
"""A queue's name travels in every reply; nobody needs more, and SCAN's cursor carries it too."""

TOMBS_MAX: Final = 500_000
TOMBS_GIVEN_UP: Final = 50_000
"""Ended jobs of which only the end is remembered, about a hundred megabytes of them; past that so many of the oldest
are forgotten. In calm times they are kept for a minute or less, with a forgotten node for the life of its jobs."""
