"""The table of commands: name, arity, flags, syntax and a sentence, each in one place.

COMMAND, HELP in the prompt, the reference in docs/, completion and the dispatch all come from it. The long
text of a command is the docstring of its function.

Arity counts the name; a negative one is a minimum. Flags, as in Disque:
    w  changes something          r  only looks            a  for administrators
    m  may need memory            l  works while loading   o  open to those who have not said who they are
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.core.commands import (
    batches,
    claims,
    clients,
    cluster,
    cron,
    diagnose,
    fates,
    history,
    info,
    jobs,
    leases,
    past,
    queues,
    scan,
    server,
    settings,
    show,
    stages,
)
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

JOBS: Final = "jobs"
QUEUES: Final = "queues"
NODE: Final = "node"
CLUSTER: Final = "cluster"
CLIENTS: Final = "connections"
DIAGNOSIS: Final = "diagnosis"


class Command:
    def __init__(
        self, name: str, arity: int, flags: str, group: str, syntax: str, summary: str,
        run: Callable[[Node, Session, list[bytes]], None],
    ) -> None:
        self.name: bytes = name.encode()
        self.arity: int = arity
        self.flags: str = flags
        self.group: str = group
        self.syntax: str = syntax
        self.summary: str = summary
        self.run: Callable[[Node, Session, list[bytes]], None] = run
        self.is_open: bool = "o" in flags
        self.is_write: bool = "w" in flags
        self.is_for_loading: bool = "l" in flags


ADD_OPTIONS: Final = (
    "[REPLICATE n|all] [SYNC n] [DELAY s | AT unix-s] [RETRY s] [TTL s] [MAXLEN n] [PRIORITY 0-9] [ASYNC] [SAYCOPIES] "
    "[TENANT name] [DOMAIN name] [GROUP name [ONFAIL hold|skip]] "
    "[UNIQUE key [UNTIL done|started] [WINDOW s] [ONDUP existing|replace|reject] [SAYDUP]] "
    "[ATTEMPTS n] [BACKOFF s[:most]] [BATCH name INDEX n] [PARENT id] [HEADERS n name value ...]"
)

COMMANDS: Final = [
    Command("ADDJOB", -4, "wm", JOBS, f"queue body ms-timeout {ADD_OPTIONS}", "Add a job.", jobs.addjob),
    Command("ADDJOBS", -5, "wm", JOBS, f"queue ms-timeout count body [body ...] {ADD_OPTIONS}",
            "Add many jobs at once: all or none.", jobs.addjobs),
    Command("GETJOB", -2, "w", JOBS,
            "[NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] [WITHMETA] [LEASEMS n] FROM queue [queue ...]",
            "Fetch jobs, waiting for them if there are none.", jobs.getjob),
    Command("ACKJOB", -1, "w", JOBS, "id [id ...] | id [TOKEN token] [RESULT bytes]",
            "Acknowledge jobs: their work is done.", jobs.ackjob),
    Command("ACKJOBS", -3, "w", JOBS, "id token [id token ...]", "Acknowledge many jobs, each under its token.",
            leases.ackjobs),
    Command("FASTACK", -1, "w", JOBS, "id [id ...]", "Acknowledge jobs with fewer messages.", jobs.fastack),
    Command("NACK", -1, "w", JOBS,
            "id [id ...] | id [TOKEN token] [DELAY s] [ERROR text] [RETRYAFTERMS n] [DEAD]",
            "Give jobs back that could not be done.", leases.nack),
    Command("RELEASE", -2, "w", JOBS, "id [id ...] | id TOKEN token [DELAY s]",
            "Give jobs back without blame.", leases.release),
    Command("KEEPALIVE", -4, "w", JOBS, "ms id token [id token ...]", "Make leases longer.", leases.keepalive),
    Command("PROGRESS", 5, "w", JOBS, "id token fraction text", "Say how far the work on a job is.", leases.progress),
    Command("CANCEL", 2, "w", JOBS, "id", "Call a job off.", leases.cancel_job),
    Command("WAITJOB", -2, "w", JOBS, "id [id ...] [TIMEOUT ms | NOHANG] [ANY | ALL]",
            "Wait until jobs have ended.", fates.waitjob),
    Command("EXPLAIN", 2, "r", JOBS, "id", "Say why a job is not handed out.", fates.explain_job),
    Command("DEAD", -2, "w", JOBS,
            "LIST [QUEUE queue] [CAUSE pattern] [ERROR pattern] [OLDER s] [COUNT n] [CURSOR c] | "
            "RETRY|DELETE id [id ...] | RETRY|DELETE filters of LIST", "Look at dead jobs, send back, delete.",
            fates.dead_jobs),
    Command("PRIORITY", 3, "w", JOBS, "id 0-9", "Give a job that waits another priority.", fates.priority),
    Command("MOVE", 3, "w", JOBS, "id queue", "Put a job that waits into another queue.", fates.move),
    Command("WORKER", -2, "w", JOBS, "BEAT name seconds [field value ...] | LIST", "Say who works, and ask.",
            fates.worker),
    Command("CLAIM", -3, "w", JOBS,
            "OPEN group | TAKE group epoch seq COUNT n LEASEMS ms FROM queue [queue ...] | READ group claim from to | "
            "RENEW group epoch ms | COMMIT group epoch claim [claim ...] | INFO group",
            "Batches of jobs for pipelines.", claims.claim),
    Command("STAGE", -3, "wm", JOBS,
            "ADD stage queue count body [body ...] [options of ADDJOB] | PUBLISH sink run batch [stage ...] | "
            "FILLED sink | DROP stage", "Jobs of pipelines, put aside and published once.", stages.stage),
    Command("WORKING", 2, "w", JOBS, "id", "Put off the next delivery of a job.", jobs.working),
    Command("ENQUEUE", -1, "w", JOBS, "id [id ...]", "Queue jobs that are not queued.", jobs.enqueue),
    Command("DEQUEUE", -1, "w", JOBS, "id [id ...]", "Take jobs out of their queue.", jobs.dequeue),
    Command("DELJOB", -1, "w", JOBS, "id [id ...]", "Delete jobs from this node.", jobs.deljob),
    Command("BATCH", -2, "w", JOBS, "CLOSE name count [THEN queue body [options of ADDJOB]] | GET name | LIST",
            "Jobs that belong together, and what is to be done when all are over.", batches.batch),
    Command("SHOW", 2, "r", JOBS, "id", "Describe a job.", show.show),
    Command("JSCAN", -1, "r", JOBS,
            "[cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state]... [TENANT name] [DOMAIN name] [GROUP name] "
            "[UNIQUE key] [BATCH name] [REPLY all|id]",
            "List jobs page by page.", scan.jscan),
    Command("SCAN", -3, "r", JOBS, "job|queue cursor [options of JSCAN or QSCAN] [MAXIDLE s]",
            "List jobs or queues page by page.", scan.scan_command),
    Command("QLEN", 2, "r", QUEUES, "queue", "Count the jobs queued.", queues.qlen),
    Command("QPEEK", 3, "r", QUEUES, "queue count", "Look at queued jobs without taking them.", queues.qpeek),
    Command("QSTAT", 2, "r", QUEUES, "queue", "Figures of a queue.", queues.qstat),
    Command("QSCAN", -1, "r", QUEUES, "[cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]",
            "List queues page by page.", scan.qscan),
    Command("PAUSE", -3, "w", QUEUES, "queue none|in|out|all|state|bcast ... [FOR s]", "Pause a queue.", queues.pause),
    Command("QUEUE", -3, "w", QUEUES, "SET queue name value [name value ...] | GET queue [name ...] [WITHSTAMP]",
            "Settings of a queue.", settings.queue),
    Command("DOMAIN", -2, "w", QUEUES,
            "SET name [RATE n/s|n/m|n/h|n/d|none] [BURST n] [CONCURRENCY n] [ADAPT yes|no] | GET name | "
            "LIST [CURSOR c] [COUNT n] | DEL name", "Limits of domains.", settings.domain),
    Command("TENANT", -3, "w", QUEUES, "SET queue tenant weight | LIST queue", "Shares of tenants in a queue.",
            settings.tenant),
    Command("QFLUSH", 2, "w", QUEUES, "queue", "Delete all jobs of a queue.", queues.qflush),
    Command("CRON", -2, "w", JOBS,
            "SET name schedule queue body [TZ zone] [MISSED skip|one|all] [options of ADDJOB] | GET name | LIST | "
            "DEL name | NEXT name [count]", "Add jobs on a schedule.", cron.cron),
    Command("HELLO", -1, "ro", CLUSTER, "[2|3 [AUTH user password] [SETNAME name]]",
            "Greet: the nodes of the cluster, or with a number the protocol to speak.", clients.hello),
    Command("CLUSTER", -2, "a", CLUSTER,
            "MEET host port [bus-port] | NODES | INFO | MYID | FORGET id | RESET [SOFT|HARD] | "
            "LEAVING [yes|no|status] | QSTAT queue|* | AWAY | SAVECONFIG",
            "Look at the cluster and change it.", cluster.cluster),
    Command("AUTH", -2, "rlo", CLIENTS, "[user] password", "Say who you are.", clients.auth),
    Command("PING", -1, "r", CLIENTS, "[message]", "Ask whether the node is there.", server.ping),
    Command("ECHO", 2, "r", CLIENTS, "message", "Answer with the message.", server.echo),
    Command("QUIT", -1, "rlo", CLIENTS, "", "Close the connection.", clients.quit),
    Command("CLIENT", -2, "a", CLIENTS,
            "LIST | KILL ... | SETNAME name | GETNAME | ID | INFO | SETINFO name value | PAUSE ms | UNPAUSE | "
            "REPLY on|off|skip", "Look at connections and change them.", clients.client),
    Command("MONITOR", 1, "a", CLIENTS, "", "See every command as it comes in.", clients.monitor),
    Command("INFO", -1, "rl", NODE, "[section]", "Everything the node knows of itself.", info.info),
    Command("TIME", 1, "r", NODE, "", "The node's clock: seconds and microseconds.", server.time),
    Command("COMMAND", 0, "rl", NODE, "[COUNT | INFO name ... | DOCS [name ...] | LIST]",
            "The commands this node knows.", server.command),
    Command("CONFIG", -2, "a", NODE, "GET pattern | SET name value | REWRITE | RESETSTAT",
            "Settings of the node.", server.config),
    Command("SHUTDOWN", -1, "al", NODE, "[REWRITE-AOF | NOSAVE]", "Stop the node.", server.shutdown),
    Command("BGREWRITEAOF", 1, "a", NODE, "", "Write the journal anew, in the background.", server.bgrewriteaof),
    Command("DISQUE", -2, "w", NODE, "HELLO | INFO [section] | FLUSHALL",
            "Commands of Disque's module form.", server.disque),
    Command("DEBUG", -2, "a", NODE,
            "SEGFAULT | RESTART | CRASH-AND-RECOVER | OOM | ASSERT | FLUSHALL | LOADAOF | SLEEP s | ERROR msg | "
            "STRUCTSIZE", "Things for tests; only with the setting enable-debug.", server.debug),
    Command("HISTORY", -2, "r", DIAGNOSIS,
            "READ cursor|first|last [COUNT n] [BLOCK ms] [UNTIL cursor] | SEEK cursor|first n | AT unix-ms | INFO",
            "What happened to jobs.", history.history),
    Command("PAST", -3, "r", DIAGNOSIS, "READ queue|* SECONDS|MINUTES count | SUMS minutes",
            "Figures of the last hour and the last day.", past.past_command),
    Command("SLOWLOG", -2, "r", DIAGNOSIS, "GET [count] | LEN | RESET", "Commands that were slow.",
            diagnose.slowlog),
    Command("LATENCY", -2, "al", DIAGNOSIS, "LATEST | HISTORY event | GRAPH event | DOCTOR | RESET [event ...]",
            "Events that were slow.", diagnose.latency),
]
