"""The settings of a node: one table, from which come CONFIG, the command line, the file and the reference.

A setting has a name, a kind, a default and a sentence. Values are kept as the text CONFIG GET shows, and
numbers and switches beside it as what they mean. Where they come from (flag, variable, file) is the
shell's business; this file only says what is legal.
"""
from __future__ import annotations

from typing import Final

from holdfast.core import limits

# Kinds of settings.
NUMBER: Final = "number"
SIZE: Final = "size"  # bytes; also written 64kb, 100mb, 1gb
SWITCH: Final = "yes|no"
TEXT: Final = "text"
CHOICE: Final = "choice"
OUTPUT_LIMIT: Final = "output limit"  # `normal <hard> <soft> <seconds>`

UNITS: Final = {
    "b": 1, "k": 1000, "kb": limits.KIB, "m": 1000**2, "mb": limits.MIB, "g": 1000**3, "gb": limits.GIB,
}


class BadSetting(Exception):
    """A value that the setting does not take, or a name that is none; the message says which."""


class Setting:
    def __init__(
        self, name: str, kind: str, default: str, about: str,
        live: bool = True, low: int = 0, high: int = 2**53, choices: tuple[str, ...] = (),
    ) -> None:
        self.name: str = name
        self.kind: str = kind
        self.default: str = default
        self.about: str = about
        self.live: bool = live  # CONFIG SET may change it while the node runs
        self.low: int = low
        self.high: int = high
        self.choices: tuple[str, ...] = choices

    def read(self, text: str) -> tuple[str, int]:
        """The value as CONFIG GET shows it, and as a number (1 or 0 for yes or no). Raises BadSetting."""
        if self.kind == NUMBER:
            return self.read_number(text, parse_number(text))
        if self.kind == SIZE:
            return self.read_number(text, parse_size(text))
        if self.kind == SWITCH:
            word = text.lower()
            if word not in ("yes", "no"):
                raise BadSetting(f"'{text}' is not yes or no")
            return word, 1 if word == "yes" else 0
        if self.kind == CHOICE:
            word = text.lower()
            if word not in self.choices:
                raise BadSetting(f"'{text}' is none of {', '.join(self.choices)}")
            return word, 0
        if self.kind == OUTPUT_LIMIT:
            return read_output_limit(text), 0
        return text, 0

    def read_number(self, text: str, value: int | None) -> tuple[str, int]:
        if value is None:
            raise BadSetting(f"'{text}' is not a {self.kind}")
        if not self.low <= value <= self.high:
            raise BadSetting(f"'{text}' is not between {self.low} and {self.high}")
        return str(value), value


def parse_number(text: str) -> int | None:
    sign = text.startswith("-")
    digits = text[1:] if sign else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        return None
    return -int(digits) if sign else int(digits)


def parse_size(text: str) -> int | None:
    word = text.lower()
    digits = word.rstrip("bkmg")
    unit = UNITS.get(word[len(digits):] or "b")
    value = parse_number(digits)
    return None if unit is None or value is None else value * unit


def read_output_limit(text: str) -> str:
    words = text.split()
    if len(words) != 4 or words[0].lower() != "normal":
        raise BadSetting(f"'{text}' is not of the form: normal <hard> <soft> <seconds>")
    hard, soft, seconds = parse_size(words[1]), parse_size(words[2]), parse_number(words[3])
    if hard is None or soft is None or seconds is None or min(hard, soft, seconds) < 0:
        raise BadSetting(f"'{text}' has a limit that is not a size")
    return f"normal {hard} {soft} {seconds}"


SETTINGS: Final = [
    Setting("port", NUMBER, "7711", "TCP port for clients; 0 lets the system choose one.", live=False, high=65535),
    Setting("bind", TEXT, "127.0.0.1", "Address to listen on; several with spaces between.", live=False),
    Setting("unixsocket", TEXT, "", "Also listen on this Unix socket.", live=False),
    Setting("unixsocketperm", TEXT, "700", "Permissions of the Unix socket, octal.", live=False),
    Setting("tcp-backlog", NUMBER, "511", "Connections the system holds for us while we are busy.",
            live=False, low=1, high=65535),
    Setting("dir", TEXT, "", "Folder for what must outlive the process: jobs, node id, saved settings.", live=False),
    Setting("appendonly", SWITCH, "yes", "Keep a journal of all jobs in the dir, and come back with them."),
    Setting("appendfsync", CHOICE, "everysec",
            "When what was written must be on the disk: before each answer (always), before the answer to an add "
            "(adds), within about a second (everysec), or when the system likes (no). The hand-out of an at-most-once "
            "job always is before the answer.", choices=("always", "adds", "everysec", "no")),
    Setting("journal-buffer", SIZE, "0",
            "Let so many bytes of records gather before they are written, for a second at most; 0: write in each "
            "turn. Not for what must be on the disk before an answer.", high=64 * limits.MIB),
    Setting("journal-segment-bytes", SIZE, str(64 * limits.MIB),
            "A new file of the journal begins after so many bytes.", low=64 * limits.KIB, high=limits.GIB),
    Setting("journal-keep-bytes", SIZE, "0",
            "Keep so many bytes of what rewrites have replaced, in journal/old, the newest; each journal that a queue "
            "has for itself so many, too. 0: remove it at once."),
    Setting("journal-scrub-bytes", SIZE, str(limits.MIB),
            "Read so many bytes a second of what was written to the journal before, to see whether the disk still has "
            "it as it was; what has changed is written anew from memory. 0: none.", high=limits.GIB),
    Setting("journal-handouts", CHOICE, "all",
            "Which hand-outs are kept: of all jobs, so that a restart does not double what is out, or only of "
            "those that must not be handed out twice (at-most-once).", choices=("all", "at-most-once")),
    Setting("history", SWITCH, "no",
            "Write down what happens to every job, for HISTORY READ; it takes a dir."),
    Setting("history-max-bytes", SIZE, str(limits.GIB), "Of history at most so much is kept.", low=limits.MIB),
    Setting("history-body-bytes", NUMBER, "0",
            "Of the body of a job that ends, history keeps so many bytes, so that it is found by task and argument.",
            high=limits.HISTORY_BODY_MAX),
    Setting("history-days", NUMBER, "7", "And for so many days; 0: for ever.", high=36_500),
    Setting("requeue-on-load", SWITCH, "yes",
            "Queue at a start what was queued before; if not, it comes back after its retry time."),
    Setting("aof-enqueue-jobs-once", SWITCH, "no",
            "Load the journal at the next start and queue its jobs, whatever appendonly and requeue-on-load say; it "
            "turns itself off then."),
    Setting("auto-aof-rewrite-percentage", NUMBER, "100",
            "Rewrite the journal when it has grown by so many percent since the last time; 0: never by itself.",
            high=10_000),
    Setting("auto-aof-rewrite-min-size", SIZE, str(64 * limits.MIB), "But not before it is this long."),
    Setting("protected-mode", SWITCH, "yes",
            "Refuse to listen beyond this machine while no password is set."),
    Setting("requirepass", TEXT, "", "Password that clients must give by AUTH; empty: none."),
    Setting("users-file", TEXT, "",
            "File with the users who may connect, their roles and queues; made by `holdfast users`. SIGHUP reads it "
            "again.", live=False),
    Setting("tls-port", NUMBER, "0", "TCP port for clients that speak TLS; 0: none.", live=False, high=65535),
    Setting("tls-cert-file", TEXT, "", "Certificate of this node, PEM, with its chain.", live=False),
    Setting("tls-key-file", TEXT, "", "Its private key.", live=False),
    Setting("tls-ca-file", TEXT, "", "Who signs the certificates of clients and of other nodes.", live=False),
    Setting("tls-auth-clients", CHOICE, "no",
            "Whether a client must show a certificate (yes), may (optional), or is not asked (no). One whose common "
            "name is that of a user is logged in as that user.", live=False, choices=("no", "optional", "yes")),
    Setting("tls-cluster", SWITCH, "no",
            "Nodes talk to each other by TLS only, each with its certificate, signed by tls-ca-file.", live=False),
    Setting("tls-node-name", TEXT, "",
            "Patterns, one of which a node has as a DNS name or URI in its certificate; * is a part of it, {id} the "
            "node's id. Empty: the secret decides.", live=False),
    Setting("enable-debug", SWITCH, "no", "Allow the DEBUG command.", live=False),
    Setting("maxclients", NUMBER, "10000", "Connections at one time; more are told so and closed.", low=1),
    Setting("timeout", NUMBER, "0", "Close a client that has been idle this many seconds; 0: never."),
    Setting("tcp-keepalive", NUMBER, "300", "Seconds between TCP probes of a silent client; 0: none.",
            high=2**31 - 1),
    Setting("command-timeout-ms", NUMBER, "30000",
            "A client that has begun a command must finish sending it in this time.", low=100),
    Setting("max-body-bytes", SIZE, str(limits.BODY_BYTES_DEFAULT), "Longest body of a job.",
            low=1, high=limits.BODY_BYTES_MAX),
    Setting("max-command-bytes", SIZE, str(64 * limits.MIB), "Longest command, all arguments together.",
            low=64 * limits.KIB, high=limits.GIB),
    Setting("client-output-buffer-limit", OUTPUT_LIMIT, f"normal {256 * limits.MIB} {64 * limits.MIB} 60",
            "Close a client that does not read: at <hard> bytes, or above <soft> for <seconds>. 0: no limit."),
    Setting("maxmemory", SIZE, str(limits.MEMORY_DEFAULT), "Memory for jobs, queues and clients.",
            low=1),
    Setting("maxmemory-policy", CHOICE, "acks",
            "At 95 % of maxmemory evict what nobody will get again (acks), or nothing (noeviction).",
            choices=("acks", "noeviction")),
    Setting("overflow-from", NUMBER, str(limits.OVERFLOW_PERCENT),
            "With a journal: above so many percent of maxmemory, jobs that are not needed soon are on disk alone; "
            "0: never.", high=70),
    Setting("poison-after", NUMBER, "0",
            "A job whose worker was not heard of again so many times is dead, cause poison; 0: no such bound.",
            high=limits.DURATION_S_MAX),
    Setting("dead-retention", NUMBER, str(limits.DEAD_RETENTION_S), "Seconds for which dead jobs are kept.",
            low=1, high=limits.DURATION_S_MAX),
    Setting("result-ttl", NUMBER, str(limits.RESULT_TTL_S), "Seconds for which results of jobs are kept.",
            low=1, high=limits.DURATION_S_MAX),
    Setting("heal-after-ms", NUMBER, "60000",
            "A node away for longer than this gets no time any more: its copies are made anew elsewhere.", low=1000),
    Setting("metrics-port", NUMBER, "0",
            "TCP port for /metrics (Prometheus), /healthz and /readyz; 0: none. One of several cores has it at this "
            "port + its number.", live=False, high=65535),
    Setting("metrics-bind", TEXT, "127.0.0.1", "Address of that port. /metrics names queues to whoever reaches it: "
            "beside another address than this machine's own, set metrics-token-file.", live=False),
    Setting("metrics-token-file", TEXT, "", "File with a token that /metrics asks for: Authorization: Bearer token. "
            "/healthz and /readyz ask for none.", live=False),
    Setting("loglevel", CHOICE, "notice", "How much is logged.",
            choices=("debug", "verbose", "notice", "warning")),
    Setting("logfile", TEXT, "", "Where the log goes; empty: standard error.", live=False),
    Setting("log-format", CHOICE, "text", "Lines for people, or a JSON object per line for programs that collect logs.",
            live=False, choices=("text", "json")),
    Setting("slowlog-log-slower-than", NUMBER, "10000",
            "Commands that take at least so many microseconds go to SLOWLOG; -1: none.", low=-1),
    Setting("slowlog-max-len", NUMBER, "128", "Entries SLOWLOG keeps.", high=100_000),
    Setting("latency-monitor-threshold", NUMBER, "0",
            "Events that take at least so many milliseconds go to LATENCY; 0: none."),
    Setting("join", TEXT, "",
            "Nodes to join at start, host:port of their clients (host:port@busport where their bus is elsewhere); "
            "several with spaces between.", live=False),
    Setting("cluster-bus-port", NUMBER, "0", "TCP port for other nodes; 0: the clients' port + 10000.",
            live=False, high=65535),
    Setting("cluster-bus-unixsocket", TEXT, "", "Also listen for nodes of this machine on this Unix socket.",
            live=False),
    Setting("cluster-secret", TEXT, "",
            "What nodes prove to each other that they know; never shown. Without one only nodes of one user on one "
            "machine meet, and none where clients must say who they are.", live=False),
    Setting("cluster-secret-file", TEXT, "",
            "A file with the secret, in place of cluster-secret; of two lines both are valid, the newer first. Read "
            "again on SIGHUP.", live=False),
    Setting("cluster-node-timeout", NUMBER, "15000",
            "A node not heard for so many milliseconds is suspect. The same at all nodes, please.",
            low=200, high=limits.NODE_TIMEOUT_MS_MAX),
    Setting("cluster-send-buffer", SIZE, str(256 * limits.MIB),
            "A node that lets so many bytes wait for it has its link ended; what it missed is repaired at the next.",
            low=64 * limits.KIB),
    Setting("announce-ip", TEXT, "",
            "Address or name under which other nodes reach this one; empty: the address of bind, or what they see.",
            live=False),
    Setting("announce-port", NUMBER, "0", "Port that clients are told; 0: the one listened on.",
            live=False, high=65535),
    Setting("announce-bus-port", NUMBER, "0", "Bus port that nodes are told; 0: the one listened on.",
            live=False, high=65535),
    Setting("cores", NUMBER, "1",
            "Run so many nodes on this machine behind one port; node i also listens on port + i, its dir is dir/i.",
            live=False, low=1, high=limits.CORES_MAX),
    Setting("core", NUMBER, "0", "Which of these nodes this is, from 1. Set by the process that starts them.",
            live=False, high=limits.CORES_MAX),
    Setting("host-id", TEXT, "",
            "Which machine this is: copies go to other machines first. Empty: found out, the same for all nodes on it.",
            live=False),
    Setting("zone", TEXT, "", "Which room or data centre this is: copies go to other zones first.", live=False),
]

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


class Config:
    """The values of one node's settings."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.changed: set[str] = set()  # by CONFIG SET, since the last CONFIG REWRITE
        for setting in SETTINGS:
            self.texts[setting.name], self.numbers[setting.name] = setting.read(setting.default)

    def set(self, name: str, text: str) -> None:
        setting = BY_NAME.get(name)
        if setting is None:
            raise BadSetting(f"there is no setting '{name}'")
        self.texts[name], self.numbers[name] = setting.read(text)

    def text(self, name: str) -> str:
        return self.texts[name]

    def number(self, name: str) -> int:
        return self.numbers[name]

    def is_on(self, name: str) -> bool:
        return self.numbers[name] == 1
