"""Two made-up systems, their page, and ratings that say that they are artificial."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

from noisychannel.prefer.key import Key, System
from noisychannel.prefer.outputs import OutputReader, PlainText
from noisychannel.prefer.page import PageRecord, make_page, write_page
from noisychannel.prefer.pairing import Comparison, compare
from noisychannel.prefer.ratings import Choice, Rating
from noisychannel.prefer.tally import Label

HOSTILE = (
    "</script><script>window.attacked = 1</script>",
    '<img src=x onerror="window.attacked = 1">',
    "${window.attacked = 1} `x` \\u003c",
    "&lt;b&gt; &amp; \u2028 ' \" \\",
    "]]> <!-- -->",
)
_clock = count()


def write_lines(directory: Path, **files: list[str]) -> dict[str, str]:
    """Files of lines, by name; returns their paths."""
    for name, lines in files.items():
        (directory / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: str(directory / f"{name}.txt") for name in files}


def toy_comparison(directory: Path, items: int = 12, hostile: bool = False) -> Comparison:
    """System ``one.txt`` against ``other.txt``: every third output is the same."""
    inputs = [f"input {n}" for n in range(items + items // 2)]
    one = [f"short {n}" for n in range(len(inputs))]
    other = [one[n] if n % 3 == 2 else f"a much longer output {n}" for n in range(len(inputs))]
    if hostile:
        inputs[: len(HOSTILE)], one[: len(HOSTILE)] = HOSTILE, [text + " one" for text in HOSTILE]
        other[: len(HOSTILE)] = ["", *HOSTILE[1:]]
    files = write_lines(directory, inputs=inputs, one=one, other=other)
    reader = OutputReader(PlainText(files["inputs"]))
    most = items + len(HOSTILE) if hostile else items
    return compare(reader.read(files["one"]), reader.read(files["other"]), most, seed=1)


def toy_page(directory: Path, items: int = 12, hostile: bool = False) -> tuple[Path, PageRecord, Key]:
    page, key = make_page(toy_comparison(directory, items, hostile))
    write_page(directory / "page.html", page, key)
    return directory / "page.html", page, key


def artificial(key: Key, item: str, rater: str, label: Label, left: str = "first") -> Rating:
    """A rating, later than all before, that says this label."""
    known = {one.id: one for one in key.items}
    choice: Choice
    if label in ("both good", "both bad"):
        choice = label  # type: ignore[assignment]
    else:
        system: System = "A" if label == "A better" else "B"
        choice = "first" if known[item].first == system else "second"
    seconds = next(_clock)
    at = f"2020-01-01T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
    return Rating(
        format=1, page=key.page, item=item, rater=rater, choice=choice, left=left, at=at, artificial=True  # type: ignore[arg-type]
    )  # fmt: skip


def write_ratings(file: Path, ratings: list[Rating]) -> str:
    file.write_text("".join(rating.json() + "\n" for rating in ratings), encoding="utf-8")
    return str(file)


def taken_back(rating: Rating) -> Rating:
    return replace(rating, choice=None, at=rating.at.replace("Z", ".5Z"))
