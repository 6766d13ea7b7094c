"""Writes docs/reference/http-api.md from the OpenAPI description that a gateway gives at /openapi.json.

The description is made from the types in gateway/ (models.py: what goes in, answers.py: what comes out), so page and
gateway cannot say different things.
"""
from __future__ import annotations

import re
from typing import Any

TITLES = {
    "simple": "One queue, three paths", "jobs": "Jobs", "queues": "Queues, settings, workers, nodes",
    "health": "Health", "": "Commands as they are",
}
"""By the tag of a path."""
MUCH = 10**7
"""A bound from here on is one of bytes in memory, and tells a reader nothing."""
Schema = dict[str, Any]


def described() -> Schema:
    from holdfast.client.queue import AsyncQueue
    from holdfast.gateway.app import make_app
    from holdfast.gateway.who import Door

    return make_app(AsyncQueue(None), Door(None), has_console=False).openapi()  # type: ignore[arg-type]  # never asked


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def kind(schema: Schema) -> str:
    """A type in a word or two, with a link where it has a table of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(name)})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(kind(each) for each in schema.get("anyOf") or schema["oneOf"]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" if each != "" else "empty" for each in schema["enum"])
    found = schema.get("type", "any JSON")
    if found == "array":
        return f"list of {kind(schema['items'])}" if "items" in schema else "list"
    if found == "object":
        more = schema.get("additionalProperties")
        return f"object, of {kind(more)}" if isinstance(more, dict) else "object"
    return str(found)


def bounds(schema: Schema) -> str:
    """What a value must keep to; of a choice that of the one that has any."""
    for each in (schema, *schema.get("anyOf", ())):
        found = []
        low, high = each.get("minimum"), each.get("maximum")
        if high is not None and high >= MUCH:
            high = None
        if "exclusiveMinimum" in each:
            found.append(f"more than {each['exclusiveMinimum']:g}")
        if low is not None and high is not None:
            found.append(f"{low:g} to {high:g}")
        elif low is not None or high is not None:
            found.append(f"at least {low:g}" if low is not None else f"at most {high:g}")
        if each.get("maxLength") and each["maxLength"] < MUCH:
            found.append(f"at most {each['maxLength']} characters")
        if each.get("maxItems"):
            found.append(f"at most {each['maxItems']}")
        if found:
            return ", ".join(found)
    return ""


def about(schema: Schema, text: str = "") -> str:
    words = [text or schema.get("description", ""), bounds(schema)]
    default = schema.get("default")
    if default not in (None, "", [], {}, False):
        words.append(f"{default} if it is not said")
    return cell("; ".join(each for each in words if each))


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def fields(schema: Schema) -> str:
    needed = schema.get("required", [])
    rows = [[f"`{name}`" + (" \\*" if name in needed else ""), kind(each), about(each)]
            for name, each in schema.get("properties", {}).items()]
    return table(["field", "type", "what it is"], rows) if rows else "Nothing is in it."


def operation(method: str, path: str, made: Schema, schemas: Schema) -> str:
    parts = [f"### {method.upper()} {path}", cell(made.get("description") or made.get("summary", ""))]
    asked = [[f"`{each['name']}`" + (" \\*" if each.get("required") else ""), each["in"],
              kind(each["schema"]), about(each["schema"], each.get("description", ""))]
             for each in made.get("parameters", [])]
    if asked:
        parts.append(table(["parameter", "in", "type", "what it is"], asked))
    for media, found in made.get("requestBody", {}).get("content", {}).items():
        parts.append(f"Takes `{media}`" + (f": {kind(found['schema'])}." if media == "application/json" else "."))
    for status, answer in made["responses"].items():
        if not status.startswith("2"):
            continue
        for media, found in (answer.get("content") or {"": {}}).items():
            what = kind(found["schema"]) if "json" in media and "schema" in found else cell(answer["description"])
            words = f" `{media}`" if media and media != "application/json" else ""
            parts.append(f"Answers {status}{words}: {what.rstrip('.')}.")
    return "\n\n".join(parts)


def used(made: Any, schemas: Schema, found: list[str]) -> None:
    """Names of schemas that are in it, each once, with those that are in them."""
    if isinstance(made, dict):
        name = str(made.get("$ref", "")).rpartition("/")[2]
        if name and name not in found:
            found.append(name)
            used(schemas[name], schemas, found)
        for each in made.values():
            used(each, schemas, found)
    elif isinstance(made, list):
        for each in made:
            used(each, schemas, found)


def parts() -> list[str]:
    made = described()
    schemas = made["components"]["schemas"]
    by_tag: dict[str, list[str]] = {tag: [] for tag in TITLES}
    for path, methods in made["paths"].items():
        for method, each in methods.items():
            tag = next(iter(each.get("tags", [""])))
            by_tag[tag if tag in TITLES else ""].append(operation(method, path, each, schemas))
    names: list[str] = []
    used(made["paths"], schemas, names)
    names = [name for name in [*sorted(set(names) - {"Problem"}), "Problem"] if name in schemas]
    shapes = []
    for name in names:
        words = cell(schemas[name].get("description", ""))
        shapes.append("\n\n".join(each for each in (f"### {name}", words, fields(schemas[name])) if each))
    return [
        "A [gateway](../how-to/use-http-and-grpc.md) serves this, and describes it for programs at `/openapi.json`. "
        "Times are seconds unless a name ends in `_ms`. A field with \\* must be there, or always is. Whoever must say "
        "who he is sends `Authorization: Bearer <user>.<secret>` or Basic.",
        *[f"## {TITLES[tag]}\n\n" + "\n\n".join(found) for tag, found in by_tag.items() if found],
        "## Objects\n\n" + "\n\n".join(shapes),
    ]
