"""holdfast cluster, health: the nodes, who is away, and who leaves."""
from __future__ import annotations

import sys
import time

import click

from holdfast.cli.common import asking, connected, fail, plain, say, show, show_one
from holdfast.cli.groups import Group
from holdfast.cli.where import connect_option
from holdfast.client.errors import Error, NotAllowed
from holdfast.client.members import MYSELF, Member
from holdfast.client.pool import Pool
from holdfast.client.target import parse_address

LEFT = "cluster_leaving_"
OF_NODES = {name: name for name in ("id", "address", "state", "link", "flags")}
LOOK_S = 0.2
PREFIX_MIN = 4
"""Digits of an id, as few as a person will type; they must fit one node."""


@click.group(cls=Group, epilog="""\b
Examples:
  holdfast cluster nodes
  holdfast cluster forget 0f0c0cb7        a node that is gone for good
  holdfast cluster leave --wait 60        before a node is stopped for good
""")
def cluster() -> None:
    """List nodes; forget, meet and leave."""


@cluster.command(name="nodes", epilog="""\b
Examples:
  holdfast cluster nodes
  holdfast cluster nodes --connect 10.0.0.2:7711      as another node sees them
""")
@connected
def cluster_nodes(connect: str, as_json: bool) -> None:
    """List the nodes as the one that is asked sees them."""
    with asking(connect) as asked:
        members = asked.nodes()
        host = asked.channel.nodes.order()[0].host if isinstance(asked.channel, Pool) else ""
    show([row_of(each, host) for each in members], OF_NODES, as_json, "there is no node")


def row_of(each: Member, host: str) -> dict[str, str]:
    """`host`: how we came; a node that was never told how it is called from outside does not know."""
    return {"id": each.id, "address": f"{each.host or host}:{each.port}", "state": each.state,
            "flags": "" if each.flags == "noflags" else each.flags,
            "link": "connected" if each.is_linked else "disconnected"}


@cluster.command(name="info", epilog="""\b
Examples:
  holdfast cluster info
  holdfast cluster info --json
""")
@connected
def cluster_info(connect: str, as_json: bool) -> None:
    """What the node that is asked knows of the cluster."""
    with asking(connect) as asked:
        text = plain(asked.call("CLUSTER", "INFO"))
    show_one(dict(line.split(":", 1) for line in text.splitlines() if ":" in line), as_json)


@cluster.command(name="forget", epilog="""\b
Examples:
  holdfast cluster forget 0f0c0cb7        as many digits as tell it apart
  holdfast cluster forget 10.0.0.3:7711   by its address
  holdfast cluster forget 0f0c0cb7 --yes  although it answers
""")
@click.argument("node")
@click.option("--yes", is_flag=True, help="Forget it although it is up.")
@connected
def cluster_forget(node: str, yes: bool, connect: str, as_json: bool) -> None:
    """Drop a node that will not come back, at all nodes that can be reached.

    NODE is its address, or the beginning of its id. For a minute it is not let in again, except by `cluster meet`.
    """
    with asking(connect) as asked:
        members = asked.nodes()
        found = [each for each in members if fits(each, node)]
        if len(found) != 1:
            listed = ", ".join(f"{each.near} ({each.where}, {each.state})" for each in found or members)
            fail(f"{len(found) or 'no'} nodes fit '{node}'; there are {listed}")
        gone = found[0]
        if gone.has(MYSELF):
            fail("that is the node that was asked: --connect another one")
        if gone.state in ("up", "leaving") and not yes:
            fail(f"{gone.near} at {gone.where} is {gone.state}: stop it first (`holdfast cluster leave`), or say --yes")
        for each in members:
            if each.is_linked and each.id != gone.id:
                answered(asked.channel.call(["CLUSTER", "FORGET", gone.id], near=each.near))
    say(as_json, f"forgotten: {gone.near} at {gone.where}", forgotten=gone.id)


def fits(each: Member, said: str) -> bool:
    return said == each.where or (len(said) >= PREFIX_MIN and each.id.startswith(said))


def answered(reply: object) -> None:
    """A node that does not know it any more has forgotten it, too."""
    if isinstance(reply, Error) and "Unknown node" not in reply.text:
        raise reply


@cluster.command(name="meet", epilog="""\b
Examples:
  holdfast cluster meet 10.0.0.4:7711
  holdfast cluster meet node-4.example.org:7711 --connect 10.0.0.1:7711
""")
@click.argument("address", metavar="HOST:PORT")
@connected
def cluster_meet(address: str, connect: str, as_json: bool) -> None:
    """Join the cluster of the node that is asked with that of another one. Exit code 1 if it is not there."""
    with asking(connect) as asked:
        host, port = parse_address(address)
        before = {each.id for each in asked.nodes()}
        asked.call("CLUSTER", "MEET", host, str(port))
        deadline = time.monotonic() + 5
        while not (met := [each for each in asked.nodes() if each.is_linked and each.id not in before]):
            known = [each for each in asked.nodes() if each.where == f"{host}:{port}" and each.is_linked]
            if known:
                met = known
                break
            if time.monotonic() > deadline:
                fail(f"nobody of a cluster answers at {address} yet; the node goes on trying for a minute")
            time.sleep(LOOK_S)
    say(as_json, f"met {', '.join(f'{each.near} at {each.where}' for each in met)}", met=[each.id for each in met])


@cluster.command(name="leave", epilog="""\b
Examples:
  holdfast cluster leave --wait 60                            the node at --connect
  holdfast cluster leave --connect 10.0.0.3:7711 --wait 60    another one
""")
@click.option("--wait", default=0.0, type=click.FloatRange(0), help="Seconds to wait until it is safe to stop.")
@connected
def cluster_leave(wait: float, connect: str, as_json: bool) -> None:
    """Have a node give its jobs away; exit code 1 if it is not done in time."""
    deadline = time.monotonic() + wait
    with asking(connect) as asked:
        asked.call("CLUSTER", "LEAVING", "yes")
        while True:
            status = plain(asked.call("CLUSTER", "LEAVING", "status"))
            if status == "safe":
                say(as_json, "safe to stop", status=status)
                return
            if time.monotonic() >= deadline:
                fail(f"not done yet: {status}{what_is_left(str(plain(asked.call('CLUSTER', 'INFO'))))}")
            time.sleep(LOOK_S)


def what_is_left(info: str) -> str:
    """What keeps a node from being stopped, as words behind `draining`."""
    facts = [line.removeprefix(LEFT).partition(":") for line in info.splitlines() if line.startswith(LEFT)]
    found = [f"{count} {name.replace('_', ' ')}" for name, _, count in facts if count.strip() != "0"]
    return f" ({', '.join(found)})" if found else ""


@click.command(epilog="""\b
Examples:
  holdfast health && echo it is there
  holdfast health --connect 10.0.0.1:7711
""")
@connect_option()
def health(connect: str) -> None:
    """Exit with 0 if a node answers, 1 if not. A node that asks who we are is there, too."""
    from holdfast import doors

    try:
        with doors.open(connect, connect_timeout=2, answer_timeout=2):
            pass
    except NotAllowed:
        pass
    except Error as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(1)
