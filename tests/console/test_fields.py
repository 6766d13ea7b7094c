"""The settings of a queue as its form asks for them: no setting without a field that fits what the node takes."""
from __future__ import annotations

import re

import pytest

from holdfast.console import fields
from holdfast.core import settings
from holdfast.core.errors import BadRequest

NAMES = [name.decode() for name in settings.NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_field_of_its_own_kind(name: str) -> None:
    found = fields.field(name)
    assert found.hint, "what it is for"
    assert [found.most is not None, bool(found.words), bool(found.pattern)].count(True) == 1
    assert found.most is None or found.unit


@pytest.mark.parametrize("name", NAMES)
def test_what_a_field_takes_the_node_takes(name: str) -> None:
    found = fields.field(name)
    for value in (*found.words, *([] if found.most is None else ["0", "1", str(found.most)])):
        settings.check(name.encode(), value.encode())
    if found.most is not None:
        with pytest.raises(BadRequest):
            settings.check(name.encode(), b"%d" % (found.most + 1))


@pytest.mark.parametrize(("name", "value", "fits"), [
    ("rate", "10/s", True), ("rate", "5/h", True), ("rate", "none", True), ("rate", "10", False),
    ("rate", "10/y", False),
    ("backoff", "2", True), ("backoff", "2:600", True), ("backoff", "none", True), ("backoff", "2-600", False),
])
def test_a_pattern_is_that_of_the_node(name: str, value: str, fits: bool) -> None:
    assert bool(re.fullmatch(fields.field(name).pattern, value)) == fits
    if value != "none":
        try:
            settings.check(name.encode(), value.encode())
        except BadRequest:
            assert not fits
        else:
            assert fits
