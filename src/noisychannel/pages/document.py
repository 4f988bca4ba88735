"""One self-contained HTML document: style, data and program are inside it, so that it opens without a network.

Texts come from users' files. :func:`escape` is for texts between tags and in attributes, :func:`embedded_json` for data
that a script of the page reads. Nothing else may carry such texts into a document.
"""

import html
import json
from importlib import resources

__all__ = ["asset", "document", "embedded_json", "escape"]


def escape(text: object) -> str:
    """``text`` as it may stand between tags, and in an attribute with quotes."""
    return html.escape(str(text), quote=True)


def embedded_json(name: str, data: object) -> str:
    """A script element with ``data``, for ``JSON.parse(document.getElementById(name).textContent)``.

    No text inside ``data`` can end the element: ``<`` and ``&`` are written as escapes of JSON.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def asset(package: str, name: str) -> str:
    """The text of file ``name`` of ``package``: a style sheet or a program that is part of this package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def document(title: str, body: str, *, styles: tuple[str, ...] = (), scripts: tuple[str, ...] = ()) -> str:
    """A whole HTML document with the common style, then ``styles``; ``scripts`` run when ``body`` is there."""
    style = "\n".join((asset("noisychannel.pages", "style.css"), *styles))
    programs = "\n".join(f"<script>\n{script}\n</script>" for script in scripts)
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}\n</style>\n</head>\n"
        f"<body>\n{body}\n{programs}\n</body>\n</html>\n"
    )
