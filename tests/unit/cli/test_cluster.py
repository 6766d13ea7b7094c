"""holdfast cluster, with a node that is gone: it is shown as down, and forgotten by every node that is left."""
from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner
from tests.proc.harness import Node, until

from holdfast import doors
from holdfast.cli.main import main


def run(node: Node, *words: str) -> Any:
    return CliRunner().invoke(main, ["cluster", *words, "--connect", f"127.0.0.1:{node.port}"], prog_name="holdfast")


def states(node: Node) -> dict[str, str]:
    return {row["address"]: row["state"] for row in json.loads(run(node, "nodes", "--json").stdout)}


def test_a_node_that_is_gone_is_forgotten_at_all_nodes_and_not_by_mistake() -> None:
    with Node() as one, Node() as two, Node() as three:
        for other in (two, three):
            assert run(one, "meet", f"127.0.0.1:{other.port}").exit_code == 0
        until(lambda: all(list(states(node).values()) == ["up"] * 3 for node in (one, two, three)), 30)
        gone = f"127.0.0.1:{three.port}"
        refused = run(one, "forget", gone)
        assert refused.exit_code == 1 and "is up: stop it first" in refused.stderr
        three.stop()
        until(lambda: states(one)[gone] == states(two)[gone] == "down", 30)
        assert run(one, "forget", gone).exit_code == 0
        with doors.open(f"127.0.0.1:{two.port}") as queue:
            assert len(queue.nodes()) == 2, "the others have forgotten it as well"
        assert gone not in states(one)


def test_nobody_at_an_address_is_said() -> None:
    with Node() as one:
        answer = run(one, "meet", "127.0.0.1:1")
        assert answer.exit_code == 1 and "answers at 127.0.0.1:1 yet" in answer.stderr
