"""The JSON interface for reading, made from its OpenAPI schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from noisychannel.pages import escape

Schema = Mapping[str, Any]


def reference_body(schema: Schema, address: str) -> str:
    """Every path with what it takes and answers, with commands for the server at this address."""
    if not re.fullmatch(r"https?://[\w.:\[\]-]+", address, re.ASCII):
        address = "http://127.0.0.1:8000"  # a client names its host as it likes; commands are pasted into shells
    parts = [
        f"<h1>noisychannel {escape(schema['info']['version'])}: JSON interface</h1>",
        f"<p>{escape(schema['info']['description'])} Requests and answers are JSON. A refused request has the key "
        '<code>error</code>: one line. The schema itself is at <a href="/openapi.json">/openapi.json</a>, the page at '
        '<a href="/">/</a>.</p>',
    ]
    used: dict[str, None] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts += _operation(schema, address, path, method, operation, used)
    parts.append("<h2>Objects</h2>")
    described = list(used)
    for name in described:  # grows while objects name others
        definition = schema["components"]["schemas"][name]
        parts.append(f'<section class="card" id="{escape(name)}"><h3>{escape(name)}</h3>')
        parts += [f"<p>{_text(definition.get('description', ''))}</p>", *_fields(definition, used)]
        parts.append("</section>")
        described += [other for other in used if other not in described]
    return "\n".join(parts)


def _operation(
    schema: Schema, address: str, path: str, method: str, operation: Schema, used: dict[str, None]
) -> Iterator[str]:
    yield f'<section class="card"><h2><code>{escape(method.upper())} {escape(path)}</code></h2>'
    yield f"<p>{_text(operation.get('description', ''))}</p>"
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"<p>Takes {_kind(body, used)}. For example:</p>"
        for example in _definition(schema, body).get("examples", []):
            given = json.dumps(example, ensure_ascii=False)
            command = f"curl {address}{path} -H 'Content-Type: application/json' \\\n  -d '{given}'"
            yield f'<pre class="scroll"><code>{escape(command)}</code></pre>'
    yield '<div class="scroll"><table><thead><tr><th>status</th><th>answer</th></tr></thead><tbody>'
    for status, answer in operation["responses"].items():
        content = answer.get("content", {}).get("application/json", {}).get("schema")
        meaning = _kind(content, used) if content and status == "200" else _text(answer.get("description", ""))
        yield f"<tr><td>{escape(status)}</td><td>{meaning}</td></tr>"
    yield "</tbody></table></div></section>"


def _fields(definition: Schema, used: dict[str, None]) -> Iterator[str]:
    needed = definition.get("required", []) if definition.get("additionalProperties") is False else []  # of requests
    yield '<div class="scroll"><table><thead><tr><th>key</th><th>type</th><th>meaning</th></tr></thead><tbody>'
    for name, one in definition.get("properties", {}).items():
        default = f" Default: {json.dumps(one['default'], ensure_ascii=False)}." if "default" in one else ""
        must = " Needed." if name in needed else ""
        meaning = _text(one.get("description", "")) + escape(default + must)
        yield f"<tr><td><code>{escape(name)}</code></td><td>{_kind(one, used)}</td><td>{meaning}</td></tr>"
    yield "</tbody></table></div>"


def _kind(one: Schema, used: dict[str, None]) -> str:
    """A type in words, with links to objects."""
    if "$ref" in one:
        name = one["$ref"].rpartition("/")[2]
        used.setdefault(name)
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    if "anyOf" in one:
        return " or ".join(_kind(other, used) for other in one["anyOf"])
    if one.get("type") == "array":
        return f"list of {_kind(one.get('items', {}), used)}"
    if one.get("type") == "object" and isinstance(one.get("additionalProperties"), dict):
        return f"object of {_kind(one['additionalProperties'], used)}"
    return escape(one.get("type", "any"))


def _definition(schema: Schema, one: Schema) -> Schema:
    found: Schema = schema["components"]["schemas"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
    return found


def _text(text: str) -> str:
    """A docstring as HTML: names between double backquotes are code."""
    parts = escape(" ".join(text.split())).split("``")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
