"""The rows of the inflection experiments: the paper's table, further terms, rows beyond it, and learning curves.

Runs are called ``bi`` and ``uni`` (direct models that read the input both ways or one way), ``joint`` (one model for
all types), ``lm``, ``lm-better`` (with a better learning rate) and so on; see ``experiment``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noisychannel.experiments.design import Design, Plot
from noisychannel.experiments.inflection.cited import CITED, PUBLISHED
from noisychannel.experiments.rows import SystemRow

PAPER, STRICT = "paper", "strict"
"""The settings: unpaired lists as they are, or without any form of a dev or test lemma."""
UNPAIRED = (0, 1_000, 10_000)
PAIRS = (100, 500)
"""Of the learning curves. All of both is a row of the table."""


def _row(name: str, system: str, direct: str = "bi", lm: str = "lm", seeds: int | None = None) -> SystemRow:
    """A row in the paper's setting; it uses those of the models that its system has."""
    models = {"direct": direct, "seq2seq": direct, "attention": direct, "channel": "bi", "lm": lm}
    return SystemRow(name=name, setting=PAPER, system=system, models=models, seeds=seeds)


RULES = SystemRow(name="longest-suffix rules", setting=PAPER, baseline="rules")
DIRECT = _row("direct (bi)", "direct")
FULL = _row("direct + channel + LM + bias (bi)", "direct+channel+lm")
FULL_BETTER = _row(f"{FULL.name}, better LM", "direct+channel+lm", lm="lm-better")
FROM_THE_PAPER = (
    RULES,
    _row("seq2seq without attention", "seq2seq", "seq2seq", seeds=1),
    _row("seq2seq with attention", "attention", "attention", seeds=1),
    _row("direct (uni)", "direct", "uni", seeds=1),
    DIRECT,
    _row("channel + LM + bias (uni)", "channel+lm", "uni", seeds=1),
    _row("channel + LM + bias (bi)", "channel+lm", seeds=1),
    _row("direct + LM + bias (bi)", "direct+lm"),
    _row("direct + channel + LM + bias (uni)", "direct+channel+lm", "uni", seeds=1),
    FULL,
    replace(FULL, name=f"{FULL.name}, marginal search", seeds=1, search={"search": "marginal"}, weights_of=FULL.name),
)
"""Every row of the paper's table, its footnote as a row, and three baselines."""
BETTER_LM = (
    _row("direct + LM + bias (bi), better LM", "direct+lm", lm="lm-better"),
    FULL_BETTER,
    replace(
        FULL_BETTER, name=f"{FULL_BETTER.name}, ensemble of the seeds", choose="ensemble", weights_of=FULL_BETTER.name
    ),
)


def with_term(row: SystemRow, name: str, term: str, runs: str, **changes: object) -> SystemRow:
    """A row with a further term of the objective."""
    models = {**row.models, term: runs}
    return replace(row, name=name, system=f"{row.system}+{term}", models=models, **changes)  # type: ignore[arg-type]


WORD_LIST = with_term(FULL_BETTER, f"{FULL_BETTER.name}, and the word list", "word_list", "lm-better")
"""In the paper's setting only: in the strict one the list does not have the answers, by construction."""


def term_rows() -> tuple[SystemRow, ...]:
    """The full system with one further term of the objective each; the word list is a block of its own."""
    full = replace(FULL_BETTER, setting=STRICT, seeds=1)
    return (
        with_term(full, f"{full.name}, density ratio", "density_ratio", "lm-0"),
        with_term(full, f"{full.name}, and a second LM", "second_lm", "lm", term_kinds={"second_lm": "lm"}),
    )


def table_rows() -> tuple[SystemRow, ...]:
    """Every row in the paper's setting; in the strict setting, those with a language model whose direct model is bi."""
    with_lm = [row for row in FROM_THE_PAPER if "lm" in row.system.split("+") and "uni" not in row.models.values()]
    strict = [row for row in with_lm if not row.search]
    return (*FROM_THE_PAPER, *BETTER_LM, *(replace(row, setting=STRICT) for row in (*strict, *BETTER_LM)))


def further_rows() -> tuple[SystemRow, ...]:
    """Beyond the paper, in the strict setting and with the better language model."""
    full, direct = (replace(row, setting=STRICT, seeds=1) for row in (FULL_BETTER, DIRECT))
    joint = replace(full, models={**full.models, "direct": "joint", "channel": "joint"})
    return (
        replace(direct, name=f"{direct.name}, one model for all types", models={"direct": "joint"}),
        replace(joint, name=f"{full.name}, one direct model and channel for all types"),
        replace(
            joint, name=f"{full.name}, one model of each kind for all types", models={**joint.models, "lm": "joint-lm"}
        ),
        replace(full, name=f"{full.name}, chosen from all searches", choose="pool", weights_of=full.name),
        replace(direct, name=f"{direct.name}, back-translation", models={"direct": "bt"}),
        replace(full, name=f"{full.name}, back-translation", models={**full.models, "direct": "bt"}),
    )


def curve_rows(unpaired: Sequence[int], pairs: Sequence[int]) -> tuple[SystemRow, ...]:
    """Fewer unpaired forms, and fewer pairs, in the strict setting and with the better language model."""
    full, direct, rules = (replace(row, setting=STRICT, seeds=1) for row in (FULL_BETTER, DIRECT, RULES))
    rows = [full.restricted(unpaired=n, models={**full.models, "lm": f"lm-{n}"}) for n in unpaired]
    for n in pairs:
        rows.append(rules.restricted(pairs=n))
        rows.append(direct.restricted(pairs=n, models={"direct": f"bi-{n}"}))
        rows.append(full.restricted(pairs=n, models={**full.models, "direct": f"bi-{n}", "channel": f"bi-{n}"}))
    return tuple(rows)


def table_design(name: str, about: str) -> Design:
    """An experiment with the table and the further terms only, and one part."""
    return Design(
        name=name,
        about=about,
        blocks={"table": table_rows(), "list": (WORD_LIST,), "terms": term_rows()},
        quick_blocks=("table",),
        unit_noun="lemma",
        baselines={DIRECT.name: DIRECT.name, "rules": RULES.name},
        published=PUBLISHED.get(name, {}),
        cited=CITED.get(name, {}),
        examples=(DIRECT.label, replace(FULL_BETTER, setting=STRICT).label),
    )


def whole_design(name: str, about: str, unpaired: Sequence[int] = UNPAIRED, pairs: Sequence[int] = PAIRS) -> Design:
    """An experiment with a part for each inflection type, further rows and learning curves."""
    lines = {"full": FULL_BETTER.name, "rules": RULES.name, "direct": DIRECT.name}
    table = table_design(name, about)
    return replace(
        table,
        blocks={**table.blocks, "further": further_rows(), "curves": curve_rows(unpaired, pairs)},
        average="parts",
        part_noun="type",
        plots=(
            Plot("unpaired", "unpaired", "unpaired forms of each type", lines, STRICT, "symlog"),
            Plot("pairs", "pairs", "pairs of each type", lines, STRICT),
        ),
    )
