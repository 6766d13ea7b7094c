"""HOLDFAST_PURE: what means yes and what means no."""

from __future__ import annotations

import pytest

from holdfast import form


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", False), ("0", False), ("no", False), ("False", False), (" OFF ", False),
     ("1", True), ("yes", True), ("true", True), ("on", True), ("2", True)],
)
def test_words_for_yes_and_no(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("HOLDFAST_PURE", value)
    assert form.is_on("HOLDFAST_PURE") is expected
    monkeypatch.delenv("HOLDFAST_PURE")
    assert form.is_on("HOLDFAST_PURE") is False
