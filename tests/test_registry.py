"""Roles: each has its model, its vocabularies and its corpus, and nothing else needs to know them."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import noisychannel
from noisychannel.data.corpus import Corpus, SequenceName, Sequences
from noisychannel.errors import BadInputError
from noisychannel.models import SSNT, LanguageModel, Seq2Seq
from noisychannel.models.registry import MODEL_CLASSES, ROLES, CorpusKind, ModelDescription, Role
from noisychannel.training.config import ModelConfig, RunConfig

SIZES = ModelConfig(hidden_size=4, num_layers=2, embedding_size=3, bidirectional=True, dropout=0.1)
VOCABULARIES: dict = {"input": 7, "output": 9}


@pytest.mark.parametrize(
    ("role", "kind", "read", "written"),
    [
        ("direct", SSNT, 7, 9),
        ("channel", SSNT, 9, 7),
        ("lm", LanguageModel, None, 9),
        ("seq2seq", Seq2Seq, 7, 9),
        ("attention", Seq2Seq, 7, 9),
    ],
)
def test_models_have_the_vocabularies_of_their_role(role: Role, kind: type, read: int | None, written: int) -> None:
    model = ROLES[role].describe(SIZES, VOCABULARIES).build()
    assert type(model) is kind
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    if read is not None:
        assert shapes["encoder.embedding.weight"] == (read, 3)
    written_by = {SSNT: "output_word.weight", LanguageModel: "word.weight", Seq2Seq: "word.weight"}[kind]
    assert shapes[written_by][0] == written


def test_only_the_encoders_that_may_are_bidirectional() -> None:
    built = {role: ROLES[role].describe(SIZES, VOCABULARIES).build() for role in ROLES if role != "lm"}
    assert {role: model.bidirectional for role, model in built.items()} == {
        "direct": True,
        "channel": False,
        "seq2seq": True,
        "attention": True,
        "transformer": True,
    }
    assert built["seq2seq"].attention is None
    assert built["attention"].attention is not None


def test_features_are_for_the_language_model() -> None:
    for reads in (False, True):
        assert ROLES["lm"].describe(SIZES, VOCABULARIES, reads).build().reads_features is reads
        assert "reads_features" not in ROLES["direct"].describe(SIZES, VOCABULARIES, reads).arguments


def test_a_description_is_enough_to_build_a_model_again() -> None:
    for entry in ROLES.values():
        description = entry.describe(SIZES, VOCABULARIES)
        again = ModelDescription(description.class_name, dict(description.arguments)).build()
        shapes = [{name: p.shape for name, p in model.named_parameters()} for model in (description.build(), again)]
        assert shapes[0] == shapes[1]
        assert MODEL_CLASSES[description.class_name] is type(again)


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("pairs", "tagged_inputs", "outputs"),
        ("swapped pairs", "tagged_outputs", "tagged_inputs"),
        ("outputs", None, "all_outputs"),
    ],
)
def test_a_corpus_of_each_kind(kind: CorpusKind, inputs: str | None, outputs: str) -> None:
    made: dict[str, Sequences] = {}

    def get(name: SequenceName) -> Sequences:
        return made.setdefault(name, Sequences.of([[len(made)]]))

    corpus = Corpus.of(kind, get)
    assert corpus.inputs is (None if inputs is None else made[inputs])
    assert corpus.outputs is made[outputs]
    assert kind in {entry.trained_on for entry in ROLES.values()}


@pytest.mark.parametrize("role", ROLES)
def test_a_key_that_a_role_refuses_is_refused_by_the_configuration(role: Role) -> None:
    config = RunConfig()
    config.check()
    for key, reason in ROLES[role].refuses.items():
        value, remedy = (8, "leave it out") if key in ("embedding_size", "paced_updates") else (True, "set it to false")
        changed = replace(config, **{role: replace(config.model(role), **{key: value})})
        with pytest.raises(BadInputError, match=rf"^{role}\.{key}: .*; {remedy}$") as caught:
            changed.check()
        assert reason in str(caught.value)
    assert ("word_list" in ROLES[role].refuses) == (role != "lm")


def test_every_role_is_a_section_of_the_configuration() -> None:
    assert all(isinstance(RunConfig().model(role), ModelConfig) for role in ROLES)


def imported_by(file: Path) -> set[str]:
    """The modules of this package that a file imports at its top level."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("noisychannel"):
            found.add(node.module)
    return found


@pytest.mark.parametrize(
    ("where", "refused"),
    [
        ("models", ("data", "training", "runs", "decode", "arguments")),
        ("data", ("training", "runs", "decode")),
        ("runs.py", ("training", "decode")),
        ("run_files.py", ("training", "decode", "data")),
        ("arguments", ("models", "data", "training", "runs", "decode", "cli")),
    ],
)
def test_layers(where: str, refused: tuple[str, ...]) -> None:
    root = Path(noisychannel.__file__).parent
    files = [root / where] if where.endswith(".py") else sorted((root / where).glob("*.py"))
    assert files
    for file in files:
        rooms = {module.removeprefix("noisychannel.").partition(".")[0] for module in imported_by(file)}
        assert not rooms & set(refused), file
