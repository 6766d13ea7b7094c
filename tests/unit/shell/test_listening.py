"""What kind of address one is."""
from __future__ import annotations

import pytest

from holdfast.shell.listening import only_address


@pytest.mark.parametrize("bound, told", [
    ("127.0.0.2", "127.0.0.2"), ("10.0.0.1", "10.0.0.1"), ("[fd00::1]", "fd00::1"), ("n1.example", "n1.example"),
    ("0.0.0.0", ""), ("::", ""), ("127.0.0.1", ""), ("10.0.0.1 10.0.0.2", ""), ("fe80::1%eth0", ""), ("", ""),
])
def test_a_node_on_one_address_is_told_of_by_that_one(bound: str, told: str) -> None:
    assert only_address(bound.split()) == told
