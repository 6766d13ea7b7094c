"""The commands as the model reads and answers them: every option, every refusal, every reply.

What a command does to jobs and queues is in model.py; here it is only parsed, in the order in which the
machine must parse it (the first mistake from the left is the one that is named), and answered.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import texts
from .model import IN, OUT, PAUSES, Job, Model, Queue
from .values import NIL, NIL_ARRAY, WAITS, Bad, Line, check_ids, check_name, number, patience, value_of

Asked = dict[bytes, Any]
Takes = Callable[[bytes], bool]

LONGEST = 2**31 - 1
# Option of ADDJOB: default, bounds, what is said of no number or one below them, and of one above.
ADD_OPTIONS = {
    b"REPLICATE": (1, 1, 65535, texts.REPLICATE, texts.REPLICATE),
    b"TTL": (86400, 1, LONGEST, texts.TTL, texts.TOO_LONG),
    b"RETRY": (-1, 0, LONGEST, texts.RETRY, texts.TOO_LONG),
    b"DELAY": (0, 0, LONGEST, texts.DELAY, texts.TOO_LONG),
    b"MAXLEN": (0, 1, 10**18, texts.MAXLEN, texts.MAXLEN),
    b"PRIORITY": (5, 0, 9, texts.PRIORITY, texts.PRIORITY),
}
ARITY = {  # of the command with its name; negative: at least
    "ADDJOB": -4, "ADDJOBS": -5, "GETJOB": -2, "ACKJOB": -1, "FASTACK": -1, "DELJOB": -1, "NACK": -1,
    "ENQUEUE": -1, "DEQUEUE": -1, "WORKING": 2, "SHOW": 2, "QLEN": 2, "QPEEK": 3, "QSTAT": 2, "PAUSE": -3,
    "QUEUE": -3, "QFLUSH": 2, "QSCAN": -1, "JSCAN": -1, "SCAN": -3, "ECHO": 2,
}

NOT_SET: dict[bytes, object] = {
    b"maxlen": 0, b"totalmaxlen": 0, b"paused": b"none", b"rate": b"none", b"burst": 0, b"concurrency": 0,
    b"attempts": 0, b"backoff": b"none", b"retention": 0, b"ttl": 0, b"onexpire": b"drop", b"journal": b"shared",
    b"fsync": b"default",
}
"""Settings of a queue, as they are answered where nothing is set. The model sets two of them."""


class Commands(Model):
    def do(self, who: int, argv: list[bytes]) -> Any:
        """The reply to a command; WAITS if there is none yet."""
        name = argv[0].upper().decode()
        try:
            if name not in ARITY:
                raise Bad(texts.UNKNOWN % argv[0])
            if len(argv) != ARITY[name] if ARITY[name] > 0 else len(argv) < -ARITY[name]:
                raise Bad(texts.ARITY % name.lower().encode())
            self.seen[name] += 1
            return getattr(self, name.lower())(who, argv[1:])
        except Bad as bad:
            self.seen[f"-{texts.kind(bad.text)}"] += 1
            return bad

    def echo(self, who: int, args: list[bytes]) -> Any:
        return args[0]

    # -- adding --------------------------------------------------------------------------------------------

    def addjob(self, who: int, args: list[bytes]) -> Any:
        options = self.add_options("ADDJOB", args[3:], args[2])
        return self.add_all(args[0], [args[1]], options)[0]

    def addjobs(self, who: int, args: list[bytes]) -> Any:
        count = number(args[2], texts.COUNT)
        if not 1 <= count <= 100_000:
            raise Bad(texts.COUNT_RANGE)
        if len(args) < 3 + count:
            raise Bad(texts.FEWER_BODIES)
        options = self.add_options("ADDJOBS", args[3 + count:], args[1])
        return self.add_all(args[0], args[3:3 + count], options)

    def add_options(self, command: str, words: list[bytes], timeout: bytes) -> dict[bytes, int]:
        options = {name: row[0] for name, row in ADD_OPTIONS.items()}
        says_ttl = False
        while words:
            word, words = words[0].upper(), words[1:]
            if word != b"ASYNC":
                if word not in ADD_OPTIONS:
                    raise Bad(texts.SYNTAX)
                options[word] = number(value_of(words), ADD_OPTIONS[word][3], *ADD_OPTIONS[word][1:3],
                                       ADD_OPTIONS[word][4])
                says_ttl = says_ttl or word == b"TTL"
            self.seen[f"{command} {word.decode()}"] += 1
        patience(timeout)
        if not says_ttl:
            options[b"TTL"] = min(LONGEST, options[b"TTL"] + options[b"DELAY"])
        if options[b"RETRY"] < 0:
            options[b"RETRY"] = min(300, max(1, options[b"TTL"] // 10))
        if options[b"REPLICATE"] > 1 and options[b"RETRY"] == 0:
            raise Bad(texts.RETRY_ZERO_COPIES)
        if options[b"DELAY"] and options[b"DELAY"] >= options[b"TTL"]:
            raise Bad(texts.DELAY_OVER_TTL)
        if options[b"REPLICATE"] > 1:
            raise Bad(texts.NO_REPL)
        return options

    def add_all(self, name: bytes, bodies: list[bytes], options: dict[bytes, int]) -> list[Line]:
        for body in bodies:
            if len(body) > self.body_bytes_max:
                raise Bad(texts.BODY_BYTES % (len(body), self.body_bytes_max))
        check_name(name)
        self.admit(name, bodies)
        maxlen = self.queues[name].maxlen if name in self.queues else 0
        if 0 < options[b"MAXLEN"] < len(self.queued(name)) + len(bodies):
            raise Bad(texts.QUEUE_FULL)
        if 0 < maxlen < self.held(name) + len(bodies):
            raise Bad(texts.QUEUE_FULL)
        if self.is_paused(name, IN):
            raise Bad(texts.PAUSED)
        self.make_queues([name])
        return [self.add(name, body, options) for body in bodies]

    # -- fetching ------------------------------------------------------------------------------------------

    def getjob(self, who: int, args: list[bytes]) -> Any:
        words, count, timeout, flags = list(args), 1, 0, set()
        while (word := value_of(words).upper()) != b"FROM":
            if word == b"COUNT":
                count = number(value_of(words), texts.COUNT, 1)
            elif word == b"TIMEOUT":
                timeout = patience(value_of(words))
            elif word in (b"NOHANG", b"WITHCOUNTERS"):
                flags.add(word)
            else:
                raise Bad(texts.SYNTAX)
            self.seen[f"GETJOB {word.decode()}"] += 1
        names = list(dict.fromkeys(words))
        if not names:
            raise Bad(texts.SYNTAX)
        self.seen["GETJOB queue twice"] += len(names) < len(words)
        self.seen["GETJOB several queues"] += len(names) > 1
        for name in names:
            if name in self.queues:
                self.queues[name].used = self.now
        taken: list[Any] = []
        sources = [name for name in names if not self.is_paused(name, OUT)]
        while len(taken) < count and any(self.queued(name) for name in sources):
            for name in sources:
                if len(taken) < count and (job := self.next_job(name)):
                    taken.append(self.hand_out(job, b"WITHCOUNTERS" in flags))
        if taken:
            return taken
        if b"NOHANG" in flags:
            return NIL_ARRAY
        for name in names:
            check_name(name)
        self.make_queues(names, to_wait=True)
        for name in names:
            self.queues[name].waiting.append(who)
        session = self.sessions[who]
        session.waits_on, session.with_counters = names, b"WITHCOUNTERS" in flags
        session.until = self.now + timeout if timeout else 0
        self.seen["GETJOB waits"] += 1
        return WAITS

    # -- what becomes of a job -----------------------------------------------------------------------------

    def ackjob(self, who: int, args: list[bytes]) -> Any:
        check_ids(args)
        for jid in dict.fromkeys(args):
            if jid in self.jobs:
                self.queues[self.jobs[jid].queue].acked += 1
        return self.deljob(who, args)

    fastack = ackjob

    def deljob(self, who: int, args: list[bytes]) -> Any:
        check_ids(args)
        return sum([self.jobs.pop(jid, None) is not None for jid in args])

    def nack(self, who: int, args: list[bytes]) -> Any:
        return self.requeue(args, is_nack=True)

    def enqueue(self, who: int, args: list[bytes]) -> Any:
        return self.requeue(args, is_nack=False)

    def requeue(self, args: list[bytes], is_nack: bool) -> int:
        check_ids(args)
        count = 0
        for jid in args:
            job = self.jobs.get(jid)
            if job and job.state == b"active" and (job.retry or not job.was_handed_out):
                job.nacks += is_nack
                self.queues[job.queue].nacked += is_nack
                job.deliveries += job.was_queued and not is_nack
                self.put_in_queue(job)
                count += 1
        return count

    def dequeue(self, who: int, args: list[bytes]) -> Any:
        check_ids(args)
        count = 0
        for jid in args:
            if jid in self.jobs and self.jobs[jid].state == b"queued":
                self.set_aside(self.jobs[jid])
                count += 1
        return count

    def working(self, who: int, args: list[bytes]) -> Any:
        check_ids(args)
        job = self.jobs.get(args[0])
        if job is None:
            raise Bad(texts.NO_JOB)
        born = job.ctime // 1_000_000
        if self.now - born > (job.expire - born) // 2:
            raise Bad(texts.TOO_LATE)
        if job.retry:
            self.seen["WORKING leaves a delay"] += job.when > self.now + job.retry * 1000
            job.when = max(job.when, self.now + job.retry * 1000)  # a delay that lasts longer stays
            job.state = b"active"
        return job.retry

    def show(self, who: int, args: list[bytes]) -> Any:
        check_ids(args)
        return self.describe(self.jobs[args[0]]) if args[0] in self.jobs else NIL

    def describe(self, job: Job) -> list[Any]:
        is_spent = job.was_handed_out and not job.retry
        is_leased = job.state == b"active" and job.was_handed_out and (job.when > self.now or not job.retry)
        self.seen["SHOW without a body"] += is_spent
        self.seen["SHOW leased"] += is_leased
        return [
            b"id", job.id, b"queue", job.queue, b"state", job.state, b"repl", 1,
            b"ttl", max(0, -((self.now - job.expire) // 1000)), b"ctime", job.ctime, b"delay", job.delay,
            b"retry", job.retry, b"nacks", job.nacks, b"additional-deliveries", job.deliveries,
            b"nodes-delivered", [self.node_id], b"nodes-confirmed", [],
            b"next-requeue-within", max(0, job.when - self.now) if job.when else NIL,
            b"next-awake-within", max(0, min(job.when or job.expire, job.expire) - self.now),
            b"body", NIL if is_spent else job.body,
            b"status", self.status_of(job, is_leased),
            *([] if job.priority == 5 else [b"priority", job.priority]),
            *([b"leased", 1] if is_leased else []),
        ]

    def status_of(self, job: Job, is_leased: bool) -> bytes:
        if job.state != b"active":
            return job.state
        is_delayed = not job.was_queued and job.ctime // 1_000_000 + job.delay * 1000 > self.now
        return b"leased" if is_leased else b"delayed" if job.delay and is_delayed else b"put-off"

    # -- queues --------------------------------------------------------------------------------------------

    def qlen(self, who: int, args: list[bytes]) -> Any:
        return len(self.queued(args[0]))

    def qpeek(self, who: int, args: list[bytes]) -> Any:
        count = number(args[1], texts.NOT_A_NUMBER)
        self.seen["QPEEK newest" if count < 0 else "QPEEK oldest"] += 1
        jobs = self.queued(args[0])
        jobs = jobs[::-1][:-count] if count < 0 else jobs[:count]
        return [[job.queue, job.id, job.body] for job in jobs]

    def qstat(self, who: int, args: list[bytes]) -> Any:
        queue = self.queues.get(args[0])
        if queue is None:
            return NIL_ARRAY
        self.count_states()
        return [
            b"name", args[0], b"len", len(self.queued(args[0])), b"age", (self.now - queue.created) // 1000,
            b"idle", (self.now - queue.used) // 1000, b"blocked", len(queue.waiting), b"import-from", [],
            b"import-rate", 0, b"jobs-in", queue.ins, b"jobs-out", queue.outs, b"pause", PAUSES[queue.paused],
            b"acked", queue.acked, b"nacked", queue.nacked, b"dead", 0, b"expired", queue.expired, b"lease-lost", 0,
            b"out", queue.seen_out, b"delayed", queue.seen_delayed, b"dead-kept", 0,
            b"added", queue.added, b"handed-out", queue.outs, b"retrying", 0,
            b"node-away", 0, b"accepting", 0, b"moving", 0, b"asking", 0,
            b"put-off", queue.seen_put_off, b"in-doubt", 0,
        ]

    def pause(self, who: int, args: list[bytes]) -> Any:
        state = -1
        for word in [each.lower() for each in args[1:]]:
            if word in PAUSES:
                state = PAUSES.index(word) | (0 if word == b"none" else max(state, 0))
            elif word not in (b"state", b"bcast"):
                raise Bad(texts.SYNTAX)
            self.seen[f"PAUSE {word.decode()}"] += 1
        if state > 0 and args[0] not in self.queues:
            check_name(args[0])
            self.make_queues([args[0]])
        is_for_all = state >= 0 and b"bcast" in [word.lower() for word in args[1:]]
        if is_for_all:
            self.set_for_all(args[0], b"paused", True)
        if args[0] not in self.queues:
            return Line(b"none")
        if is_for_all:
            self.queues[args[0]].pause_word = state
        if state >= 0:
            self.set_paused(args[0], state)
        return Line(PAUSES[self.queues[args[0]].paused])

    def queue(self, who: int, args: list[bytes]) -> Any:
        what, name, words = args[0].upper(), args[1], args[2:]
        if what == b"GET":
            names = [word.lower() for word in words] or list(NOT_SET)
            for each in names:
                if each not in NOT_SET:
                    raise Bad(texts.QUEUE_NO_SETTING % each)
                self.seen[f"QUEUE GET {each.decode()}"] += 1
            queue = self.queues.get(name, Queue(0, 0))
            journal = b"own" if (name, b"journal") in self.settings else b"shared"
            values = {**NOT_SET, b"maxlen": queue.maxlen, b"paused": PAUSES[queue.paused], b"journal": journal}
            return [item for each in names for item in (each, values[each])]
        if what != b"SET" or not words or len(words) % 2:
            raise Bad(texts.QUEUE_USE)
        wanted: dict[bytes, int] = {}
        for each, value in zip([word.lower() for word in words[::2]], words[1::2]):
            if each == b"journal":
                if value.lower() not in (b"own", b"shared"):
                    raise Bad(texts.QUEUE_JOURNAL)
                wanted[each] = value.lower() == b"own"
            elif each == b"maxlen":
                wanted[each] = number(value, texts.QUEUE_MAXLEN, 0)
            elif each != b"paused":
                raise Bad(texts.QUEUE_NO_SETTING % each)
            elif value.lower() not in PAUSES:
                raise Bad(texts.QUEUE_PAUSED)
            else:
                wanted[each] = PAUSES.index(value.lower())
            self.seen[f"QUEUE SET {each.decode()}"] += 1
        check_name(name)
        self.make_queues([name])
        for each in wanted:
            self.set_for_all(name, each, each == b"paused" or wanted[each] > 0)
        self.queues[name].maxlen = wanted.get(b"maxlen", self.queues[name].maxlen)
        if b"paused" in wanted:
            self.queues[name].pause_word = wanted[b"paused"]
            self.set_paused(name, wanted[b"paused"])
        return Line(b"OK")

    def qflush(self, who: int, args: list[bytes]) -> Any:
        gone = [job.id for job in self.jobs.values() if job.queue == args[0]]
        return sum([self.jobs.pop(jid) is not None for jid in gone])

    # -- scans ---------------------------------------------------------------------------------------------

    def qscan(self, who: int, args: list[bytes]) -> Any:
        return self.scan_queues("QSCAN", args)

    def jscan(self, who: int, args: list[bytes]) -> Any:
        return self.scan_jobs("JSCAN", args)

    def scan(self, who: int, args: list[bytes]) -> Any:
        if args[0].lower() not in (b"queue", b"job"):
            raise Bad(texts.SCAN_USE)
        self.seen[f"SCAN {args[0].lower().decode()}"] += 1
        return (self.scan_queues if args[0].lower() == b"queue" else self.scan_jobs)("SCAN", args[1:])

    def scan_queues(self, command: str, args: list[bytes]) -> Any:
        asked = self.scan_options(command, args, [b"MINLEN", b"MAXLEN", b"IMPORTRATE", b"MAXIDLE"])

        def takes(name: bytes) -> bool:
            length, idle = len(self.queued(name)), self.now - self.queues[name].used
            return (
                asked[b"MINLEN"] <= length and not 0 <= asked[b"MAXLEN"] < length
                and asked[b"IMPORTRATE"] <= 0 and not 0 <= asked[b"MAXIDLE"] * 1000 < idle
            )

        names = [name for name in sorted(self.queues) if asked[b"="] is None or name > asked[b"="]]
        last, found = self.page(names, takes, asked)
        return [b"0" if last is None or last == names[-1] else b"=" + last, found]

    def scan_jobs(self, command: str, args: list[bytes]) -> Any:
        asked = self.scan_options(command, args, [b"QUEUE", b"STATE", b"REPLY"])

        def takes(jid: bytes) -> bool:
            job = self.jobs[jid]
            return asked[b"QUEUE"] in (-1, job.queue) and (asked[b"STATE"] == -1 or job.state in asked[b"STATE"])

        after = asked[b"="] or b""
        ids = [jid for jid in sorted(self.jobs) if jid[:26] > after[:26]]  # up to the end of its sequence number
        last, found = self.page(ids, takes, asked)
        is_full = asked[b"REPLY"] == b"all"
        items = [self.describe(self.jobs[jid]) if is_full else Line(jid) for jid in found]
        return [b"0" if last is None else b"=" + last, items]

    def page(self, items: list[bytes], takes: Takes, asked: Asked) -> tuple[bytes | None, list[bytes]]:
        """What one call returns, and the item after which the next goes on; None if there are no more."""
        most = 10**9 if b"BUSYLOOP" in asked else asked[b"COUNT"]
        found: list[bytes] = []
        for steps, item in enumerate(items, 1):
            if takes(item):
                found.append(item)
            if len(found) == most or steps == 10 * most:
                return item, found
        return None, found

    def scan_options(self, command: str, args: list[bytes], filters: list[bytes]) -> Asked:
        asked: Asked = {b"COUNT": 100, **dict.fromkeys(filters, -1)}
        words = list(args)
        while words:
            word = words.pop(0)
            option = word.upper()
            if option == b"COUNT":
                asked[option] = number(value_of(words), texts.NOT_A_NUMBER, 1)
            elif option == b"BUSYLOOP":
                asked[option] = 1
            elif option == b"QUEUE" and option in filters:
                asked[option] = value_of(words)
            elif option == b"STATE" and option in filters:
                state = value_of(words).lower()
                if state not in (b"wait-repl", b"active", b"queued", b"acked"):
                    raise Bad(texts.STATE)
                asked[option] = [state] if asked[option] == -1 else [*asked[option], state]
            elif option == b"REPLY" and option in filters:
                asked[option] = value_of(words).lower()
                if asked[option] not in (b"id", b"all"):
                    raise Bad(texts.REPLY_TYPE)
            elif option in filters:
                low = 0 if option == b"MAXIDLE" else -(10**18)
                asked[option] = number(value_of(words), texts.NOT_A_NUMBER, low)
            elif b"=" in asked:
                raise Bad(texts.SYNTAX)
            elif word == b"0":
                asked[b"="] = None
            else:
                if word[:1] != b"=":
                    raise Bad(texts.CURSOR)
                if b"STATE" in filters:
                    try:
                        check_ids([word[1:]])
                    except Bad:
                        raise Bad(texts.CURSOR) from None
                asked[b"="] = word[1:]
                option = b"cursor"
            self.seen[f"{command} {option.decode()}"] += 1
        asked.setdefault(b"=", None)
        return asked
