"""What a node with peers does without being asked: the beat, and once a second everything that can wait so long."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core import (
    batches,
    census,
    doubt,
    fate,
    federate,
    heal,
    membership,
    orphans,
    registers,
    remote,
    replicate,
    requeue,
    salvage,
    settings,
    standstill,
    takeover,
    tombs,
)
from holdfast.core.limits import NEVER

if TYPE_CHECKING:
    from holdfast.core.node import Node

CHORES_MS: Final = 1000


def beat(node: Node) -> None:
    membership.beat(node)
    if node.now < node.chores_at:
        return
    node.chores_at = node.now + CHORES_MS
    registers.beat(node)
    salvage.beat(node)
    requeue.beat(node)
    federate.beat(node)
    census.take_rates(node)
    replicate.fill(node)
    fate.beat(node)
    heal.beat(node)
    takeover.beat(node)
    standstill.beat(node)
    batches.beat(node)
    remote.beat(node)
    orphans.beat(node)
    if is_clock_in_doubt(node):
        settle_clocks(node)
    else:
        tombs.forget_old(node)


def is_clock_in_doubt(node: Node) -> bool:
    return node.loaded_by != NEVER and (len(node.doubted) > 0 or not node.broken("doubt-of-jobs-only"))


def settle_clocks(node: Node) -> None:
    """If others have said what time it is, it is known how old everything is that was loaded."""
    if is_clock_in_doubt(node) and doubt.settle(node):
        settings.clocks_known(node)
