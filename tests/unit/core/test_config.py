"""The table of settings: what is legal, and how it is shown."""
from __future__ import annotations

import pytest

from holdfast.core.config import BY_NAME, SETTINGS, BadSetting, Config


def test_every_default_is_legal_and_shown_as_it_is_read() -> None:
    config = Config()
    for setting in SETTINGS:
        shown, value = setting.read(setting.default)
        assert (config.text(setting.name), config.number(setting.name)) == (shown, value)
        assert setting.read(shown) == (shown, value)
        assert setting.about.endswith(".") and "\n" not in setting.about
    assert len(BY_NAME) == len(SETTINGS)
    assert not config.changed


@pytest.mark.parametrize("name, text, shown, value", [
    ("maxmemory", "1gb", "1073741824", 2**30),
    ("maxmemory", "1GB", "1073741824", 2**30),
    ("maxmemory", "1g", "1000000000", 10**9),
    ("maxmemory", "2048kb", "2097152", 2**21),
    ("maxmemory", "1048576", "1048576", 2**20),
    ("maxmemory", "1048576b", "1048576", 2**20),
    ("maxmemory", "1", "1", 1),
    ("maxclients", "007", "7", 7),
    ("slowlog-log-slower-than", "-1", "-1", -1),
    ("protected-mode", "NO", "no", 0),
    ("enable-debug", "Yes", "yes", 1),
    ("maxmemory-policy", "NoEviction", "noeviction", 0),
    ("requirepass", " päss ", " päss ", 0),
    ("client-output-buffer-limit", "normal 1mb 64kb 60", "normal 1048576 65536 60", 0),
    ("client-output-buffer-limit", "NORMAL 0 0 0", "normal 0 0 0", 0),
])
def test_legal(name: str, text: str, shown: str, value: int) -> None:
    config = Config()
    config.set(name, text)
    assert (config.text(name), config.number(name)) == (shown, value)


@pytest.mark.parametrize("name, text", [
    ("maxmemory", ""), ("maxmemory", "gb"), ("maxmemory", "1tb"), ("maxmemory", "1 gb"), ("maxmemory", "1bg"),
    ("maxmemory", "1gbgb"), ("maxmemory", "0"), ("maxmemory", "-1gb"),
    ("maxmemory", "99999999999gb"), ("maxmemory", "٣gb"), ("maxclients", "0"), ("maxclients", "1.5"),
    ("maxclients", "+1"), ("maxclients", "--1"), ("maxclients", "²"), ("maxclients", "9" * 30),
    ("slowlog-log-slower-than", "-2"), ("port", "65536"), ("protected-mode", "1"), ("loglevel", "loud"),
    ("client-output-buffer-limit", ""), ("client-output-buffer-limit", "normal 1 1"),
    ("client-output-buffer-limit", "slave 1 1 1"), ("client-output-buffer-limit", "normal 1 -1 1"),
    ("client-output-buffer-limit", "normal 1 1 1mb"), ("no-such-setting", "1"), ("", "1"),
])
def test_refused(name: str, text: str) -> None:
    config = Config()
    before = dict(config.texts), dict(config.numbers)
    with pytest.raises(BadSetting) as raised:
        config.set(name, text)
    assert str(raised.value)
    assert (config.texts, config.numbers) == before


def test_switches() -> None:
    config = Config()
    assert config.is_on("protected-mode") and not config.is_on("enable-debug")
