"""A mutational fuzzer of everything a client can send: bytes in, a real node behind them, both twins.

    python -m tests.fuzz.fuzz_resp --seconds 60 --seed 7
    python -m tests.fuzz.fuzz_resp --replay fuzz-failure.json

A *world* is a node with its sockets, compiled or plain, where time is a number and random bytes come from
the seed; so the twins' worlds are equal, and stay equal as long as the same things happen in them. An
*input* is two connections and what they send, in pieces, with time passing in between. Conversations are
spoilt on two levels: arguments are exchanged for others that are as well-formed and less sensible, which
reaches the commands; then bytes are changed, which reaches the parser.

After every piece a third connection asks PING. After every input both connections are gone, and:
no fault, no exception, every byte of the replies is RESP, both twins have said the same, nobody is left
blocked or listening, memory is what jobs and queues explain, and nothing once those are deleted.

Inputs are kept for as long as their world lives. On failure they are written to a file, to be replayed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import form
from holdfast.core import effects, users
from holdfast.core.commands.clients import logged_in
from holdfast.core.config import Config
from holdfast.core.direct import Direct
from holdfast.core.flush import flush_all
from holdfast.core.job import special_cost
from holdfast.core.limits import BODY_BYTES_EXTRA, JOB_BYTES, QUEUE_BYTES, REGISTER_BYTES, SESSION_BYTES
from holdfast.core.meter import NO_METER
from holdfast.core.node import Node
from holdfast.core.session import Session
from holdfast.shell import plain

START_MS = 1_700_000_000_000
INPUTS_PER_WORLD = 40
PONG = b"+PONG\r\n"
COUNTS = re.compile(rb"\$\d+\r\n(?=# |id=)|cmdstat_[^\r]*\r\n| cmd=[a-z]+")
JOB_ID = re.compile(rb"DI[0-9a-f]{44}SQ")

TWINS: dict[str, Any] = {"plain": plain}
if not form.PURE:
    with contextlib.suppress(ImportError):
        from holdfast.shell import native

        if not str(native.__file__).endswith(".py"):
            TWINS["native"] = native


class Wrong(AssertionError):
    """What the fuzzer is looking for."""


# -- worlds -------------------------------------------------------------------------------------------------


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def hold(self, is_full: bool) -> None:
        self.is_full = is_full

    def write(self, data: bytes) -> None:
        if self.is_closed:
            raise Wrong("written to a transport that was closed")
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def take(self) -> bytes:
        data = b"".join(self.written)
        self.written.clear()
        return data


class Timeless:
    """The node as sockets see it, except that time is the world's and that no command takes any."""

    def __init__(self, node: Node, world: World) -> None:
        self.world = world
        self.node = node
        self.execute, self.take_output = node.execute, node.take_output
        self.connect, self.disconnect = node.connect, node.disconnect
        self.tick, self.next_wake = node.tick, node.next_wake
        self.out, self.wakeups, self.requests = node.out, node.wakeups, node.requests
        self.peers, self.frames = node.peers, node.frames
        self.flush, self.frame, self.link_up, self.link_down = node.flush, node.frame, node.link_up, node.link_down

    def set_time(self, now: int, wall: int) -> None:
        self.node.set_time(self.world.now, self.world.now)

    def took(self, usec: int) -> None:
        self.node.took(0)


class Calls:
    """A meter of one thing: commands that ran by their direct handlers, which the sockets count."""

    def __init__(self, sockets: Any) -> None:
        self.sockets, self.reset = sockets, sockets.reset
        self.process, self.connection = NO_METER.process, NO_METER.connection
        self.are_siblings_safe, self.why_alone = NO_METER.are_siblings_safe, NO_METER.why_alone

    def direct(self) -> list[tuple[bytes, int, int]]:
        return [(name, calls, 0) for name, calls, _ in self.sockets.direct()]


class World:
    """A node and its sockets."""

    def __init__(self, twin: str, seed: int, password: str) -> None:
        self.now = START_MS
        config = Config()
        config.set("requirepass", password)
        config.set("enable-debug", "yes")
        config.set("maxmemory", "64mb")
        choose = random.Random(seed)
        self.node = Node(config, b"0123456789abcdef" * 2 + b"01234567", choose.randbytes, START_MS)
        self.sockets = TWINS[twin].Sockets(Timeless(self.node, self), Direct(self.node).handlers(), 0)
        self.sockets.on_requests = self.carry_out
        self.node.meter = Calls(self.sockets)
        self.configure()
        self.is_over = False
        self.probe, self.probe_transport = self.enter()

    def configure(self) -> None:
        number = self.node.config.number
        self.sockets.configure(
            10_000, 0, 0, 30_000, number("max-body-bytes"), number("max-command-bytes"), 0, 0, 0
        )

    def enter(self) -> tuple[Any, Transport]:
        """The connection that asks PING, known to the node."""
        transport = Transport()
        connection = self.sockets.attach(transport, "probe")
        password = self.node.config.text("requirepass").encode("utf-8", "surrogateescape")
        if password:
            self.sockets.feed(connection, b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\n" % (len(password), password))
            if transport.take() != b"+OK\r\n":
                raise Wrong("the password does not open")
        return connection, transport

    def carry_out(self) -> None:
        """What shell/server.py does, without a process."""
        requests = self.node.requests[:]
        self.node.requests.clear()
        for request in requests:
            session = request.session
            if request.kind in (effects.CLOSE, effects.KILL) and session is not None:
                self.sockets.close_session(session, request.kind == effects.KILL)
            elif request.kind == effects.APPLY_SETTINGS:
                self.configure()
            elif request.kind == effects.CRASH:
                pass
            elif request.kind == effects.VERIFY and session is not None:
                self.verify(session, request.argument)
            elif session is not None:
                self.node.answer(session, b"+OK\r\n")

    def verify(self, session: Session, argument: bytes) -> None:
        """A login, which takes no time here."""
        name, _, secret = argument.partition(b"\0")
        password = self.node.config.text("requirepass").encode("utf-8", "surrogateescape")
        verdict = users.RIGHT if password and name == users.DEFAULT and secret == password else users.WRONG
        if verdict == users.RIGHT:
            self.sockets.strangers.leave(session.number)
        logged_in(self.node, session, name, verdict)

    def ping(self, may_be_killed: bool) -> None:
        """The node is there for others. CLIENT PAUSE is waited for; whom CLIENT KILL has hit comes back."""
        for _ in range(4):
            if self.probe_transport.is_closed:
                if not may_be_killed:
                    raise Wrong("another connection was closed")
                self.wait_out_pause()
                self.probe, self.probe_transport = self.enter()
            self.sockets.feed(self.probe, b"*1\r\n$4\r\nPING\r\n")
            self.wait_out_pause()
            got = self.probe_transport.take()
            if got == PONG:
                return
            if not self.probe_transport.is_closed:
                break
        raise Wrong(f"another connection got {got!r} for PING")

    def wait_out_pause(self) -> None:
        while self.node.paused_until:
            self.advance(max(0, self.node.paused_until - self.now))
            self.sockets.feed(self.probe, b"")  # a turn: what has waited goes on

    def advance(self, ms: int) -> None:
        self.now += ms
        self.node.set_time(self.now, self.now)
        for _ in range(10_000):
            self.node.tick()
            if self.node.next_wake() > self.now:
                return
        raise Wrong("there is always something due")

    def check_nobody_is_left(self) -> None:
        node = self.node
        if node.faults:
            raise Wrong("a fault in the machine:\n" + node.faults[0])
        if len(node.sessions) != 1 or node.blocked or node.monitors:
            raise Wrong(f"{len(node.sessions)} sessions, {node.blocked} blocked, {len(node.monitors)} monitors")
        if any(queue.waiting for queue in node.queues.values()):
            raise Wrong("somebody who is gone waits for a job")
        if self.sockets.figures()["client_biggest_input_buf"]:
            raise Wrong("input is kept for nobody")

    def check_memory(self) -> None:
        """Every byte accounted belongs to something that is there."""
        node = self.node
        jobs = [job for origin in node.origins.values() for page in origin.pages.values() for job in page.slots if job]
        explained = SESSION_BYTES * len(node.sessions)
        explained += sum(JOB_BYTES + BODY_BYTES_EXTRA + len(job.body) for job in jobs)
        explained += sum(special_cost(job) for job in jobs)
        explained += sum(QUEUE_BYTES + 3 * len(name) for name in node.queues)
        explained += REGISTER_BYTES * node.registers.count
        if node.used != explained or node.jobs != len(jobs):
            raise Wrong(f"{node.used} bytes and {node.jobs} jobs accounted; {explained} and {len(jobs)} are there")
        held = node.nowhere.held + sum(queue.held for queue in node.queues.values())  # nowhere: acks of unknown jobs
        if held != len(jobs):
            raise Wrong("a queue counts jobs it does not have")

    def end(self) -> None:
        """Everything due for a year, then everything deleted: back to the base."""
        self.advance(366 * 86_400_000)
        self.sockets.feed(self.probe, b"")
        self.check_memory()
        flush_all(self.node)
        self.sockets.feed(self.probe, b"")
        kept = SESSION_BYTES + REGISTER_BYTES * self.node.registers.count  # settings outlive jobs
        if self.node.used != kept or self.node.queues or self.node.jobs or self.node.faults:
            raise Wrong(f"{self.node.used} bytes are left of an empty node. {self.node.faults}")
        self.sockets.shut()


# -- replies ------------------------------------------------------------------------------------------------


def check_replies(data: bytes) -> int:
    """Every byte is part of a whole reply, RESP2 or 3; how many there are."""
    at = 0
    count = 0
    while at < len(data):
        at = skip_reply(data, at, 0)
        count += 1
    return count


def skip_reply(data: bytes, at: int, depth: int) -> int:
    end = data.find(b"\r\n", at)
    if end < 0 or depth > 8:
        raise Wrong(f"not a reply: {data[at:at + 60]!r}")
    kind, text = data[at:at + 1], data[at + 1:end]
    after = end + 2
    if kind in b"+-" and b"\n" not in text and b"\r" not in text:
        return after
    if (kind == b":" and re.fullmatch(rb"-?\d+", text)) or (kind == b"_" and not text):
        return after
    if kind in b"$*" and text == b"-1":
        return after
    if re.fullmatch(rb"\d+", text):
        size = int(text)
        if kind == b"$" and data[after + size:after + size + 2] == b"\r\n":
            return after + size + 2
        if kind in b"*%":
            for _ in range(size * (2 if kind == b"%" else 1)):
                after = skip_reply(data, after, depth + 1)
            return after
    raise Wrong(f"not a reply: {data[at:at + 60]!r}")


# -- inputs -------------------------------------------------------------------------------------------------


@dataclass
class Input:
    """What two connections send: (which of them, bytes), or (-1, time that passes as decimal ms)."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def may_kill(self) -> bool:
        return any(b"KILL" in data.upper() or b"kil" in data.lower() for _, data in self.pieces)

    def to_json(self) -> list[list[Any]]:
        return [[who, data.hex()] for who, data in self.pieces]

    @staticmethod
    def from_json(rows: list[list[Any]]) -> Input:
        return Input([(who, bytes.fromhex(data)) for who, data in rows])


def talk(*lines: str) -> list[list[bytes]]:
    return [line.encode().split() for line in lines]


CORPUS = [
    talk("PING", "PING hello", "TIME", "COMMAND COUNT", "COMMAND", "COMMAND DOCS GETJOB", "COMMAND INFO addjob x"),
    talk("ADDJOB q body 0", "GETJOB FROM q", "ACKJOB ID", "QLEN q"),
    talk("ADDJOB q body 0", "ADDJOB q body2 0 RETRY 0", "GETJOB NOHANG FROM q", "GETJOB NOHANG FROM q", "FASTACK ID"),
    talk("ADDJOB q body 0 DELAY 5 TTL 60 RETRY 1 PRIORITY 9", "SHOW ID", "ENQUEUE ID", "WORKING ID", "DEQUEUE ID"),
    talk("ADDJOBS q 0 3 a b c RETRY 1 MAXLEN 100", "GETJOB COUNT 3 WITHCOUNTERS FROM q", "NACK ID ID", "DELJOB ID"),
    talk("GETJOB TIMEOUT 1000 FROM a b c", "PING", "PING"),
    talk("GETJOB FROM a", "ADDJOB a x 0", "PING"),
    talk("ADDJOB a x 0", "ADDJOB b y 0 REPLICATE 1 ASYNC", "GETJOB NOHANG COUNT 10 FROM a b"),
    talk("QPEEK q 10", "QPEEK q -3", "QSTAT q", "QSCAN", "QSCAN 0 COUNT 2 MINLEN 0 MAXLEN 9", "JSCAN REPLY all"),
    talk("JSCAN 0 COUNT 1 QUEUE q STATE queued STATE active REPLY id", "SCAN queue 0 MAXIDLE 5", "SCAN job 0 BUSYLOOP"),
    talk("PAUSE q in", "ADDJOB q x 0", "PAUSE q out", "GETJOB NOHANG FROM q", "PAUSE q none", "PAUSE q state bcast"),
    talk("QUEUE SET q maxlen 2", "QUEUE GET q", "QUEUE GET q maxlen", "ADDJOB q 1 0", "ADDJOB q 2 0", "QFLUSH q"),
    talk("HELLO", "HELLO 3", "SHOW ID", "GETJOB NOHANG FROM none", "HELLO 2 SETNAME me", "CLIENT GETNAME"),
    talk("AUTH secret", "HELLO 3 AUTH default secret SETNAME me", "AUTH default secret", "INFO", "INFO commandstats"),
    talk("CLIENT LIST", "CLIENT ID", "CLIENT INFO", "CLIENT SETNAME x", "CLIENT SETINFO lib-name y"),
    talk("CLIENT NO-EVICT on", "CLIENT NO-TOUCH off", "CLIENT SETINFO lib-ver 1", "CLIENT GETNAME"),
    talk("CLIENT REPLY SKIP", "PING", "CLIENT REPLY OFF", "PING", "CLIENT REPLY ON", "PING"),
    talk("CLIENT PAUSE 50", "PING", "CLIENT UNPAUSE"),
    talk("CLIENT KILL TYPE normal SKIPME yes", "CLIENT KILL ID 2", "CLIENT KILL ADDR probe", "CLIENT KILL probe"),
    talk("MONITOR", "ADDJOB q x 0", "PING"),
    talk("CONFIG GET *", "CONFIG SET slowlog-max-len 5", "CONFIG GET max*", "CONFIG RESETSTAT", "CONFIG REWRITE"),
    talk("CONFIG SET max-body-bytes 100", "ADDJOB q xxxxxxxxxx 0", "CONFIG SET requirepass secret", "PING"),
    talk("SLOWLOG GET", "SLOWLOG LEN", "SLOWLOG RESET", "LATENCY LATEST", "LATENCY DOCTOR", "LATENCY HISTORY command"),
    talk("LATENCY GRAPH command", "LATENCY RESET", "DEBUG SLEEP 0", "DEBUG ERROR oops", "DEBUG STRUCTSIZE"),
    talk("CLUSTER NODES", "CLUSTER INFO", "CLUSTER MYID", "CLUSTER LEAVING yes", "GETJOB FROM q", "CLUSTER LEAVING no"),
    talk("CLUSTER MEET 127.0.0.1 7712", "CLUSTER FORGET x", "CLUSTER RESET", "CLUSTER SAVECONFIG"),
    talk("DISQUE INFO", "DISQUE HELLO", "DISQUE FLUSHALL", "DEBUG FLUSHALL", "DEBUG RESTART", "SHUTDOWN"),
    talk("ADDJOB q x 0", "QUIT", "PING"),
    talk("LOADJOB x", "BGREWRITEAOF", "FOO bar", "select 0"),
]
NUMBERS = [
    b"0", b"1", b"-1", b"2", b"9", b"10", b"255", b"65535", b"65536", b"100000", b"100001", b"2147483647",
    b"2147483648",
    b"4294967296", b"9007199254740992", b"9007199254740993", b"999999999999999999", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"1e3", b"0x10", b"1.5", b"nan", b"inf", b" 1", b"01", b"+1", b"",
]
WORDS = [
    *sorted({word for lines in CORPUS for argv in lines for word in argv}),
    b"\x00", b"\xff\xfe", b"a\r\nb", b"'", b'"', b"x" * 300, "ü€😀".encode(), b"=q", b"=ID", b"*", b"[", b"%s",
    b"\\x41",
]
TIMES = [b"1", b"50", b"1000", b"1001", b"60000", b"400000", b"86400000"]
BYTES = b"\r\n*$-+:0123456789\"'\\ \x00\xff\x7f"


class Mutator:
    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.ids = [b"DI" + b"0" * 44 + b"SQ"]  # and those that worlds have answered with

    def input(self) -> Input:
        choose = self.choose
        streams = [self.stream() for _ in range(choose.choice([1, 1, 2]))]
        made = Input()
        while any(streams):
            who = choose.randrange(len(streams))
            size = choose.choice([1, 5, 20, 100, 1000, 100_000])
            if streams[who]:
                made.pieces.append((who, streams[who][:size]))
                streams[who] = streams[who][size:]
            if choose.random() < 0.03:
                made.pieces.append((-1, choose.choice(TIMES)))
        return made

    def stream(self) -> bytes:
        choose = self.choose
        commands = [argv[:] for _ in range(choose.choice([1, 1, 2, 3])) for argv in choose.choice(CORPUS)]
        for _ in range(choose.choice([0, 0, 1, 2, 4, 8])):
            self.spoil_words(commands)
        data = bytearray(b"".join(self.encode(argv) for argv in commands))
        for _ in range(choose.choice([0, 0, 0, 1, 2, 4])):
            self.spoil_bytes(data)
        return bytes(data)

    def encode(self, argv: list[bytes]) -> bytes:
        words = [self.choose.choice(self.ids) if word == b"ID" else word.replace(b"=ID", b"=" + self.ids[-1])
                 for word in argv]
        if self.choose.random() < 0.1:
            return b" ".join(words) + self.choose.choice([b"\r\n", b"\n"])
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def spoil_words(self, commands: list[list[bytes]]) -> None:
        choose = self.choose
        i = choose.randrange(len(commands))
        argv = commands[i]
        what = choose.randrange(8)
        at = choose.randrange(len(argv)) if argv else 0
        if what == 0 and argv:
            argv[at] = choose.choice(WORDS)
        elif what == 1 and argv:
            argv[at] = choose.choice(NUMBERS)
        elif what == 2:
            argv.insert(at + 1, choose.choice(WORDS + NUMBERS))
        elif what == 3 and argv:
            del argv[at]
        elif what == 4 and argv:
            argv[at] = choose.choice([argv[at].lower(), argv[at] * 2, argv[at][:-1], argv[at][::-1]])
        elif what == 5:
            commands.insert(i, argv[:])
        elif what == 6:
            argv.extend(choose.choice(choose.choice(CORPUS))[1:])
        else:
            choose.shuffle(commands)

    def spoil_bytes(self, data: bytearray) -> None:
        choose = self.choose
        if not data:
            return
        at = choose.randrange(len(data))
        what = choose.randrange(7)
        if what == 0:
            data[at] ^= 1 << choose.randrange(8)
        elif what == 1:
            data[at] = choose.choice(BYTES)
        elif what == 2:
            del data[at:at + choose.choice([1, 2, 10])]
        elif what == 3:
            data[at:at] = bytes(choose.choice(BYTES) for _ in range(choose.choice([1, 2, 5])))
        elif what == 4:
            data[at:at] = data[at:at + choose.choice([4, 20, 200])]
        elif what == 5:
            number = list(re.finditer(rb"-?\d+", data))
            if number:
                place = choose.choice(number)
                data[place.start():place.end()] = choose.choice(NUMBERS)
        else:
            data[at:at] = choose.choice([
                b"*0\r\n", b"*-1\r\n", b"\r\n", b"*1\r\n$", b"*2\r\n$3\r\n", b"$-1\r\n",
                b"x" * choose.choice([10, 5000, 70_000]),
            ])

    def learn(self, replies: bytes) -> None:
        self.ids.extend(JOB_ID.findall(replies)[:4])
        del self.ids[1:-16]


# -- running ------------------------------------------------------------------------------------------------


def run_input(world: World, given: Input) -> tuple[bytes, bytes]:
    """Let an input happen in a world. What its two connections were answered."""
    transports = [Transport(), Transport()]
    connections = [world.sockets.attach(transport, f"test:{i}") for i, transport in enumerate(transports)]
    may_kill = given.may_kill()
    for who, data in given.pieces:
        if who < 0:
            world.advance(int(data))
        else:
            world.sockets.feed(connections[who], data)
        world.ping(may_kill)
    for connection in connections:
        world.sockets.detach(connection)
    world.ping(may_kill)
    answers = tuple(transport.take() for transport in transports)
    for answer in answers:
        check_replies(answer)
    world.check_nobody_is_left()
    world.check_memory()
    return answers[0], answers[1]


class Run:
    """Inputs in worlds that live for some inputs, one world per twin."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.mutator = Mutator(seed)
        self.worlds: dict[str, World] = {}
        self.history: list[Input] = []
        self.world_seed = 0
        self.password = ""
        self.inputs = self.bytes_in = self.bytes_out = self.world_count = 0

    def open_worlds(self, seed: int, password: str) -> None:
        self.world_seed, self.password = seed, password
        self.history = []
        self.worlds = {twin: World(twin, seed, password) for twin in TWINS}
        self.world_count += 1

    def close_worlds(self) -> None:
        for world in self.worlds.values():
            world.end()
        self.worlds = {}

    def step(self) -> None:
        if not self.worlds:
            self.open_worlds(self.seed + self.world_count, "secret" if self.world_count % 4 == 3 else "")
        self.one(self.mutator.input())
        is_changed = any(world.node.config.changed for world in self.worlds.values())
        if len(self.history) >= INPUTS_PER_WORLD or is_changed:
            self.close_worlds()

    def one(self, given: Input) -> None:
        self.history.append(given)
        answers = {twin: run_input(world, given) for twin, world in self.worlds.items()}
        first = next(iter(answers.values()))
        for twin, answer in answers.items():
            if comparable(answer) != comparable(first):
                raise Wrong(f"the twins differ: {twin} {differing(answer, first)}")
        self.mutator.learn(first[0])
        self.inputs += 1
        self.bytes_in += sum(len(data) for _, data in given.pieces)
        self.bytes_out += sum(map(len, first))

    def write_failure(self, path: Path) -> None:
        rows = {"seed": self.world_seed, "password": self.password, "inputs": [each.to_json() for each in self.history]}
        path.write_text(json.dumps(rows), "utf-8")

    def replay(self, path: Path) -> None:
        rows = json.loads(path.read_text("utf-8"))
        self.open_worlds(rows["seed"], rows["password"])
        for each in rows["inputs"]:
            self.one(Input.from_json(each))
        self.close_worlds()


def comparable(answer: tuple[bytes, bytes]) -> list[bytes]:
    """Without times and names of calls: a line typed by hand takes the direct way in one twin, not in the other."""
    return [COUNTS.sub(b"", data) for data in answer]


def differing(answer: tuple[bytes, bytes], first: tuple[bytes, bytes]) -> str:
    for ours, theirs in zip(comparable(answer), comparable(first)):
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            start = max(0, at - 60)
            return f"says {ours[start:at + 60]!r}, {next(iter(TWINS))} says {theirs[start:at + 60]!r}"
    return "says the same"


def fuzz(seconds: float, seed: int, failure: Path) -> Run:
    """Run for so long. On failure the inputs are written to a file, and the exception goes on."""
    run = Run(seed)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            run.step()
        run.close_worlds()
    except BaseException:
        run.write_failure(failure)
        print(f"seed {seed}; inputs of this world are in {failure}: --replay {failure}", file=sys.stderr, flush=True)
        raise
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz a node, in this process, through both forms of its sockets.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", type=Path, help="run the inputs of a failure again")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failure.json"), help="where to write a failure")
    options = parser.parse_args()
    if options.replay:
        Run(0).replay(options.replay)
        print("replayed: nothing is wrong")
        return 0
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, twins: {', '.join(TWINS)}", flush=True)
    began = time.monotonic()
    try:
        run = fuzz(options.seconds, seed, options.out)
    except Exception:
        traceback.print_exc()
        return 1
    took = time.monotonic() - began
    print(
        f"{run.inputs} inputs in {took:.1f} s ({run.inputs / took:.0f}/s in each twin), {run.world_count} worlds, "
        f"{run.bytes_in:,} bytes in, {run.bytes_out:,} bytes out, nothing wrong"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
