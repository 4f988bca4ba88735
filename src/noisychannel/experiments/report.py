"""Results as Markdown: the table, what it was made with, and examples. A function of the results JSON alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from noisychannel.decode.objective import TERMS
from noisychannel.experiments.content import content_lines
from noisychannel.experiments.lengths import length_lines
from noisychannel.experiments.search_errors import search_error_lines
from noisychannel.provenance import short_commit

HEADINGS = {"lm": "LM"}
"""Names of terms that tables write differently."""


def markdown(results: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the report."""
    yield from _head(results)
    views = list(results["parts"]) if results["average"] == "separate" else [None]
    for part in views:
        yield ""
        if part is not None:
            number = results.get("references", {}).get(part, 1)
            of_each = f", up to {number} references for each" if number > 1 else ""
            yield f"**{part}** ({results['parts'][part]} items{of_each})"
            yield ""
        yield from _table(results, part)
    if results.get("part table"):
        yield from _part_table(results)
    yield from _about_speeds(results)
    yield ""
    yield (
        f"Intervals and p-values: bootstrap over {results['nouns']['unit']}s, all items of one drawn together; with "
        f"several {_seed(results)}s, of all their outputs together. A row is compared with the baseline trained on the "
        "same number of pairs."
    )
    if any(row.get("online") for row in results["rows"]):
        yield ""
        yield "\\* can put out the beginning of an output before its input has ended."
    yield from _claims(results)
    yield from search_error_lines(results)
    yield from length_lines(results)
    yield from content_lines(results)
    yield from _not_measured(results)
    yield ""
    yield from _blocks(results)
    yield from _examples(results)


def _seed(results: Mapping[str, Any]) -> str:
    """What a seed stands for."""
    return str(results["nouns"].get("seed", "seed"))


def _head(results: Mapping[str, Any]) -> Iterator[str]:
    noun, items = results["nouns"]["part"], sum(results["parts"].values())
    over = {
        "parts": f"mean over {len(results['parts'])} {noun}s ({items} items)",
        "items": f"over {items} items",
        "separate": f"for each {noun}",
    }[results["average"]]
    metrics = "; ".join(f"{name} {signature}" for name, signature in results["metrics"].items())
    shares = {block.get("settings", {}).get("share", 1) for block in results["blocks"].values()} - {1}
    amounts = f" Numbers of pairs in names of rows are multiplied by {shares.pop():g} in this data." if shares else ""
    yield (
        f"{results['experiment']}: test {', '.join(results['metrics'])}, {over}, ± the standard deviation over "
        f"{_seed(results)}s. Weights tuned {results['tuned']}. Metrics: {metrics}.{amounts}"
    )


def _table(results: Mapping[str, Any], part: str | None) -> Iterator[str]:
    metrics, rows = list(results["metrics"]), shown_rows(results)
    first = metrics[0]
    baselines = list(rows[0]["scores"][first]["p"])
    settings = any(row["setting"] for row in rows)
    published = [metric for metric in metrics if any(metric in row["published"] for row in rows)]
    extra = list(dict.fromkeys(name for row in rows for name in row.get("weights", {}) if name not in TERMS))
    apart = ["seen", "unseen"] if results.get("seen apart") else []
    titles = [*(["setting"] if settings else []), "system", *metrics, *apart, "95 % interval"]
    titles += [*(f"p against {title}" for title in baselines), "dev"]
    titles += [f"paper's {metric}" if len(metrics) > 1 else "paper" for metric in published]
    speeds = _has_speeds(results)
    titles += [f"{results['nouns']['unit']}s/s"] if speeds else []
    weights = "weights: " + ", ".join(HEADINGS.get(name, name) for name in (*TERMS, *extra))
    texts = 1 + settings
    yield _line([*titles, weights])
    yield _line(["---"] * texts + ["---:"] * (len(titles) - texts) + ["---"])
    for row in rows:
        if part is not None and part not in row["scores"][first]["parts"]:
            continue  # its block has fewer parts
        scores = {metric: _of_part(row["scores"][metric], part) for metric in metrics}
        yield _line(
            [
                *([row["setting"]] if settings else []),
                row["name"] + ("*" if row.get("online") else ""),
                *(_with_spread(scores[metric]) for metric in metrics),
                *(_with_spread(scores[first][name]) if scores[first][name] else "" for name in apart),
                f"{scores[first]['interval'][0]:.1f} to {scores[first]['interval'][1]:.1f}",
                *("" if p is None else f"{p:.4f}" for p in scores[first]["p"].values()),
                _dev(row),
                *(row["published"].get(metric, "") for metric in published),
                *([_speed(results, row)] if speeds else []),
                _weights(row.get("weights", {})),
            ]
        )
    cited = results["cited"] if part in (None, results.get("cited of", part)) else {}
    for name, figures in cited.items():
        cells = [*(["cited"] if settings else []), name if settings else f"cited: {name}"]
        cells += [figures.get(metric, "") for metric in metrics]
        yield _line(cells + [""] * (len(titles) + 1 - len(cells)))


def shown_rows(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Without the rows whose outputs are the references."""
    return [row for row in results["rows"] if row.get("choose") != "references"]


def _part_table(results: Mapping[str, Any]) -> Iterator[str]:
    """The first metric of each part; a row that was measured on some parts has a score of these alone."""
    metric, parts = next(iter(results["metrics"])), list(results["parts"])
    yield ""
    yield f"Test {metric} of each {results['nouns']['part']}; a mean is over those that were measured:"
    yield ""
    yield _line(["system", *parts, "mean"])
    yield _line(["---", *["---:"] * (len(parts) + 1)])
    for row in results["rows"]:
        scores, setting = row["scores"][metric], f"{row['setting']}: " if row["setting"] else ""
        found = [f"{scores['parts'][part]:.1f}" if part in scores["parts"] else "" for part in parts]
        yield _line([setting + row["name"], *found, f"{scores['score']:.1f}"])


def _of_part(scores: Mapping[str, Any], part: str | None) -> Mapping[str, Any]:
    own: Mapping[str, Any] = scores if part is None else scores["parts"][part]
    return own


def _with_spread(scores: Mapping[str, Any]) -> str:
    spread = "" if scores["deviation"] is None else f" ± {scores['deviation']:.2f}"
    return f"{scores['score']:.2f}{spread}"


def _dev(row: Mapping[str, Any]) -> str:
    score = row.get("dev", {}).get("score")
    return "" if score is None else f"{score:.2f}"


def _has_speeds(results: Mapping[str, Any]) -> bool:
    return bool(results.get("speeds")) and any(_speed(results, row) for row in shown_rows(results))


def _speed(results: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Items of all parts that the row has, for each second of decoding them with the first seed."""
    seconds = next(iter(row.get("seconds", {}).values()), 0.0)
    parts = next(iter(row["scores"].values()))["parts"]
    return f"{sum(results['data']['test'][part] for part in parts) / seconds:.1f}" if seconds else ""


def _about_speeds(results: Mapping[str, Any]) -> Iterator[str]:
    if _has_speeds(results):
        unit = results["nouns"]["unit"]
        yield ""
        yield (
            f"{unit.capitalize()}s/s: {unit}s of all {results['nouns']['part']}s that a row has, for each second of "
            f"decoding by one process, with the first {_seed(results)}. Several processes share the device: together "
            "they are faster, and speeds of different rows are only about comparable."
        )


def _weights(weights: Mapping[str, float]) -> str:
    """The four of equation (3) in their order, then further ones by name."""
    first = [f"{weights[name]:.3g}" for name in TERMS if name in weights]
    return ", ".join(first + [f"{name} {value:.3g}" for name, value in weights.items() if name not in TERMS])


def _claims(results: Mapping[str, Any]) -> Iterator[str]:
    """Each claim with a figure, and yes or no."""
    if not results.get("claims"):
        return
    part = f" on {next(iter(results['parts']))}" if results["average"] == "separate" else ""
    yield ""
    yield (
        f"Claims, in {next(iter(results['metrics']))}{part}. A claim holds if its figure reaches its bound. If the "
        "bound is at least 0 or more, the whole interval must also be above zero; if at most 0 or less, below zero."
    )
    yield ""
    yield _line(["claim", "holds if", "figure", "95 % interval", "holds"])
    yield _line(["---", "---", "---:", "---:", "---"])
    for claim in results["claims"]:
        bounds = (("at least", claim["least"]), ("at most", claim["most"]))
        wanted = ", ".join(f"{word} {value:g}" for word, value in bounds if value is not None)
        if claim["value"] is None:
            yield _line([claim["claim"], wanted, "", "", "not measured yet"])
            continue
        low, high = claim["interval"]
        holds = "yes" if claim["holds"] else "no"
        yield _line([claim["claim"], wanted, f"{claim['value']:+.2f}", f"{low:+.2f} to {high:+.2f}", holds])


def _not_measured(results: Mapping[str, Any]) -> Iterator[str]:
    if left_out := results["data"].get("left out"):
        yield ""
        yield f"Left out, because the data has not so many pairs or unpaired outputs: {'; '.join(left_out)}."
    for block, labels in results["not measured"].items():
        yield ""
        yield (
            f"Not measured, of the block {block} (`noisychannel reproduce {results['experiment']} --blocks {block}`): "
            f"{'; '.join(labels)}."
        )


def _blocks(results: Mapping[str, Any]) -> Iterator[str]:
    yield "| block | rows | models that may still improve | noisychannel | commit | torch | date | device | seconds |"
    yield "| --- | ---: | ---: | --- | --- | --- | --- | --- | --- |"
    for name, block in results["blocks"].items():
        rows = sum(row["block"] == name for row in results["rows"])
        seconds = ", ".join(f"{what} {value:.0f}" for what, value in block["seconds"].items())
        seconds = f"{seconds} ({block['note']})".lstrip() if "note" in block else seconds
        versions = (
            block["noisychannel"],
            short_commit(block["commit"]),
            block["torch"],
            block["date"][:10],
            block["device"],
        )
        ended = block["ended by their limit"]
        yield _line([name, str(rows), "not recorded" if ended is None else str(len(ended)), *versions, seconds])
    yield ""
    yield (
        "Models that may still improve: their limit of updates ended the training before dev stopped improving. Models "
        "whose learning rate falls to zero always train to their limit, and are not counted. Seconds are of the last "
        "command; what was finished before it was not repeated."
    )


def _examples(results: Mapping[str, Any]) -> Iterator[str]:
    noun = results["nouns"]["part"]
    for kind, items in results["examples"].items():
        if items:
            yield ""
            yield f"Where the second system {kind} (first {_seed(results)}, evenly spread):"
            yield ""
            yield _line([noun, "input", "reference", *results["example systems"]])
            yield _line(["---"] * 5)
            yield from map(_line, items)
    if results.get("shown"):
        yield ""
        yield _line([noun, "input", "reference", *results["example systems"]])
        yield _line(["---"] * 5)
        yield from map(_line, results["shown"])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
