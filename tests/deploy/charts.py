"""Renders a Helm chart as `helm template` would, as far as ours goes: no helm is to be had from PyPI, npm or Debian.

The language is that of Go's text/template: text with actions in double braces, a dash inside which eats the space
beside it; pipelines whose last value is the last argument of the next function. Only what the chart uses is here, and
anything else is an error: an action, a function or a value nobody knows must not pass for an empty text (Go itself
would put `<no value>` there).
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"\{\{(-?)(.*?)(-?)\}\}", re.DOTALL)
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[()|]|:=|,|[^\s()|,"]+')


class ChartError(Exception):
    """The template does something that the language, or this reading of it, does not have."""


@dataclass
class Block:
    """`if`, `with`, `range`, `define`: what it says, what is in it, and what after its `else`."""

    words: list[str]
    inside: list[Any] = field(default_factory=list)
    otherwise: list[Any] = field(default_factory=list)
    is_otherwise: bool = False

    def add(self, item: Any) -> None:
        (self.otherwise if self.is_otherwise else self.inside).append(item)


def parse(text: str) -> list[Any]:
    """Texts, actions (lists of words) and blocks."""
    open_blocks = [Block([])]
    at = 0
    eats = False
    for found in ACTION.finditer(text):
        before = text[at:found.start()]
        before = before.lstrip() if eats else before
        open_blocks[-1].add(before.rstrip() if found[1] else before)
        at, eats = found.end(), bool(found[3])
        words = WORD.findall(found[2])
        if words[0] in ("if", "with", "range", "define"):
            open_blocks.append(Block(words))
        elif words == ["else"]:
            open_blocks[-1].is_otherwise = True
        elif words == ["end"]:
            done = open_blocks.pop()
            if not open_blocks:
                raise ChartError("an end too many")
            open_blocks[-1].add(done)
        else:
            open_blocks[-1].add(words)
    if len(open_blocks) != 1:
        raise ChartError(f"no end of {' '.join(open_blocks[-1].words)}")
    open_blocks[0].add(text[at:].lstrip() if eats else text[at:])
    return open_blocks[0].inside


class Template:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.defined: dict[str, list[Any]] = {}
        self.functions: dict[str, Callable[..., Any]] = {
            "include": lambda name, dot: self.render(self.defined[name], dot, {"$": dot}),
            "nindent": lambda count, text: "\n" + "\n".join(" " * count + line for line in str(text).split("\n")),
            "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
            "quote": lambda value: '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"',
            "default": lambda other, value: value or other,
            "trunc": lambda count, text: text[:count],
            "trimSuffix": lambda end, text: text.removesuffix(end),
            "printf": lambda form, *values: form.replace("%v", "%s") % tuple(map(shown, values)),
            "until": lambda count: list(range(count)),
            "int": int,
        }

    def render(self, items: list[Any], dot: Any, variables: dict[str, Any]) -> str:
        return "".join(self.pieces(items, dot, variables))

    def pieces(self, items: list[Any], dot: Any, variables: dict[str, Any]) -> Iterator[str]:
        for item in items:
            if isinstance(item, str):
                yield item
            elif isinstance(item, Block):
                yield from self.block(item, dot, variables)
            elif len(item) > 2 and item[1] == ":=":
                variables[item[0]] = self.value(item[2:], dot, variables)
            else:
                yield shown(self.value(item, dot, variables))

    def block(self, block: Block, dot: Any, variables: dict[str, Any]) -> Iterator[str]:
        kind, *words = block.words
        if kind == "define":
            self.defined[words[0].strip('"')] = block.inside
            return
        names: list[str] = []
        if ":=" in words:
            names = [word for word in words[:words.index(":=")] if word != ","]
            words = words[words.index(":=") + 1:]
        value = self.value(words, dot, variables)
        if not value:
            yield from self.pieces(block.otherwise, dot, {**variables})
        elif kind == "range":
            pairs = sorted(value.items()) if isinstance(value, dict) else list(enumerate(value))
            for key, each in pairs:
                found = (key, each) if len(names) == 2 else (each,) if names else ()
                yield from self.pieces(block.inside, each, {**variables, **dict(zip(names, found, strict=True))})
        else:
            yield from self.pieces(block.inside, value if kind == "with" else dot, {**variables})

    def value(self, words: list[str], dot: Any, variables: dict[str, Any]) -> Any:
        """Of a pipeline."""
        parts: list[list[Any]] = [[]]
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "|":
                parts.append([])
            elif word == "(":
                depth, inner = 1, []
                while depth:
                    word = rest.pop(0)
                    depth += {"(": 1, ")": -1}.get(word, 0)
                    inner.append(word)
                parts[-1].append([self.value(inner[:-1], dot, variables)])
            else:
                parts[-1].append(word)
        found = self.call(parts[0], dot, variables)
        for part in parts[1:]:
            found = self.call([*part, [found]], dot, variables)
        return found

    def call(self, part: list[Any], dot: Any, variables: dict[str, Any]) -> Any:
        first, *more = part
        arguments = [self.operand(each, dot, variables) for each in more]
        if isinstance(first, str) and first in self.functions:
            return self.functions[first](*arguments)
        if arguments:
            raise ChartError(f"no function {first}")
        return self.operand(first, dot, variables)

    def operand(self, word: Any, dot: Any, variables: dict[str, Any]) -> Any:
        """A value is in a list of one already."""
        if isinstance(word, list):
            return word[0]
        if word.startswith('"'):
            return word[1:-1]
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        name, *path = word.split(".")
        if name and name not in variables:
            raise ChartError(f"nobody knows {word}")
        found = variables[name] if name else dot
        for step in filter(None, path):
            if not isinstance(found, dict) or step not in found:
                raise ChartError(f"there is no {word}")
            found = found[step]
        return found


def shown(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def rendered(chart: Path, release: str, values: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The resources that each file makes."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    root = {
        "Values": values, "Release": {"Name": release, "Namespace": "default"},
        "Chart": {"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
    }
    template = Template(root)
    for path in sorted((chart / "templates").glob("*.tpl")):
        template.render(parse(path.read_text()), root, {"$": root})
    made = {
        path.name: template.render(parse(path.read_text()), root, {"$": root})
        for path in sorted((chart / "templates").glob("*.yaml"))
    }
    return {name: [each for each in yaml.safe_load_all(text) if each] for name, text in made.items()}
