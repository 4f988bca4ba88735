"""The roles that models play, and nothing about them anywhere else.

    role         model                         reads    writes   trained on
    direct       SSNT, q(y | x)                input    output   pairs
    channel      SSNT, p(x | y)                output   input    swapped pairs
    lm           LanguageModel, p(y)           –        output   outputs (of the pairs, and unpaired ones)
    seq2seq      Seq2Seq without attention     input    output   pairs
    attention    Seq2Seq with attention        input    output   pairs
    transformer  Transformer                   input    output   pairs

Direct model, channel and language model are those of the paper's equation (3); the others are baselines, seq2seq and
attention those of the paper. A new role is a new entry of ``ROLES`` here and a section of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args

from torch import nn

from noisychannel.models.lm import LanguageModel
from noisychannel.models.seq2seq import Seq2Seq
from noisychannel.models.ssnt import SSNT
from noisychannel.models.transformer import Transformer

Role = Literal["direct", "channel", "lm", "seq2seq", "attention", "transformer"]
Vocabulary = Literal["input", "output"]
CorpusKind = Literal["pairs", "swapped pairs", "outputs"]
"""What a model is trained on; ``data`` knows which sequences that means."""

MODEL_CLASSES: dict[str, type[nn.Module]] = {
    "SSNT": SSNT,
    "LanguageModel": LanguageModel,
    "Seq2Seq": Seq2Seq,
    "Transformer": Transformer,
}
"""By the name that config.json keeps."""


class ModelSizes(Protocol):
    """The part of a configuration that a model is built from."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def embedding_size(self) -> int | None: ...
    @property
    def bidirectional(self) -> bool: ...
    @property
    def dropout(self) -> float: ...
    @property
    def copy(self) -> bool: ...
    @property
    def copy_start(self) -> float: ...


class ModelDescription(NamedTuple):
    """What config.json keeps of a model: enough to build it again."""

    class_name: str
    arguments: Mapping[str, Any]

    def build(self) -> nn.Module:
        """The model with new weights. KeyError or TypeError if this version has no such model."""
        return MODEL_CLASSES[self.class_name](**self.arguments)

    @property
    def parameters(self) -> int:
        """The number of weights, without building the model."""
        return _PARAMETERS[self.class_name](**self.arguments)


@dataclass(frozen=True)
class RoleEntry:
    """What there is to know about one role."""

    name: Role
    class_name: str
    reads: Vocabulary | None
    """The vocabulary of what it is given; None if it is given nothing."""
    writes: Vocabulary
    trained_on: CorpusKind
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments that belong to the role."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Keys of its configuration that must stay off, with the reason."""
    own_keys: tuple[str, ...] = ()
    """Keys that only the configuration of this role has."""

    @property
    def in_objective(self) -> bool:
        """Whether it is a term of equation (3), so that tuned weights depend on it."""
        return self.name in ("direct", "channel", "lm")

    def describe(
        self,
        sizes: ModelSizes,
        vocabulary_sizes: Mapping[Vocabulary, int],
        reads_features: bool = False,
        copies: Sequence[int] = (),
    ) -> ModelDescription:
        """The model of this role. ``reads_features``: whether features stand before the outputs of a language model.

        ``copies``: if the model copies, the written symbol of each symbol that it reads (see ``SSNT``).
        """
        arguments: dict[str, Any] = {
            "hidden_size": sizes.hidden_size,
            "num_layers": sizes.num_layers,
            "embedding_size": sizes.embedding_size,
            "dropout": sizes.dropout,
        }
        arguments |= {key: getattr(sizes, key) for key in self.own_keys if hasattr(sizes, key)}
        if "embedding_size" in self.refuses:
            del arguments["embedding_size"]
        if self.reads is None:
            own = {"vocab_size": vocabulary_sizes[self.writes]}
            return ModelDescription(self.class_name, {**own, **arguments, "reads_features": reads_features})
        own = {
            "input_vocab_size": vocabulary_sizes[self.reads],
            "output_vocab_size": vocabulary_sizes[self.writes],
        }
        if "bidirectional" not in self.refuses:
            arguments["bidirectional"] = sizes.bidirectional
        if sizes.copy:
            arguments |= {"copies": list(copies), "copy_start": sizes.copy_start}
        return ModelDescription(self.class_name, {**own, **arguments, **self.fixed})


def _of_lstm(inputs: int, hidden: int, layers: int, directions: int = 1) -> int:
    """Four gates, each with a matrix for the inputs, one for the state, and two biases."""
    first, others = (4 * hidden * (size + hidden + 2) for size in (inputs, directions * hidden))
    return directions * (first + (layers - 1) * others)


def _of_ssnt(
    input_vocab_size: int,
    output_vocab_size: int,
    hidden_size: int,
    num_layers: int = 1,
    embedding_size: int | None = None,
    bidirectional: bool = False,
    copies: Sequence[int] | None = None,
    **others: object,
) -> int:
    H, E, directions = hidden_size, embedding_size or hidden_size, 1 + bidirectional
    encoder = input_vocab_size * E + _of_lstm(E, H, num_layers, directions)
    decoder = output_vocab_size * E + _of_lstm(E, H, num_layers)
    copying = 0 if copies is None else directions * H + 1
    word = output_vocab_size * (directions * H + H + 1)
    gate = H * (directions * H + H + 1) + H + 1
    return encoder + decoder + word + gate + copying


def _of_language_model(
    vocab_size: int, hidden_size: int, num_layers: int = 2, embedding_size: int | None = None, **others: object
) -> int:
    E = embedding_size or hidden_size
    return vocab_size * E + _of_lstm(E, hidden_size, num_layers) + vocab_size * (hidden_size + 1)


def _of_seq2seq(
    input_vocab_size: int,
    output_vocab_size: int,
    hidden_size: int,
    num_layers: int = 1,
    embedding_size: int | None = None,
    bidirectional: bool = False,
    attention: bool = False,
    **others: object,
) -> int:
    H, E, directions = hidden_size, embedding_size or hidden_size, 1 + bidirectional
    state = directions * H
    context = state if attention else 0
    encoder = input_vocab_size * E + _of_lstm(E, H, num_layers, directions)
    bridge = (state + 1) * 2 * num_layers * H
    energy = H * (H + 1) + state * H + H if attention else 0
    decoder = output_vocab_size * E + _of_lstm(E + context, H, num_layers)
    return encoder + bridge + energy + decoder + output_vocab_size * (H + context + 1)


def _of_transformer(
    input_vocab_size: int,
    output_vocab_size: int,
    hidden_size: int,
    num_layers: int = 3,
    feedforward_size: int | None = None,
    **others: object,
) -> int:
    D, inner = hidden_size, feedforward_size or 4 * hidden_size
    norm, attention = 2 * D, 4 * D * (D + 1)
    feed_forward = inner * (D + 1) + D * (inner + 1)
    layers = (attention + feed_forward + 2 * norm) + (2 * attention + feed_forward + 3 * norm)
    return input_vocab_size * D + output_vocab_size * (D + 1) + num_layers * layers + 2 * norm


_PARAMETERS: dict[str, Callable[..., int]] = {
    "SSNT": _of_ssnt,
    "LanguageModel": _of_language_model,
    "Seq2Seq": _of_seq2seq,
    "Transformer": _of_transformer,
}

NO_WORD_LIST = {"word_list": "is for the language model (lm)"}
OF_SSNTS = "is for the direct model and the channel"
NO_ALIGNMENT = {"copy": OF_SSNTS, "paced_updates": OF_SSNTS}

_ALL = (
    RoleEntry("direct", "SSNT", "input", "output", "pairs", refuses=NO_WORD_LIST),
    RoleEntry(
        "channel",
        "SSNT",
        "output",
        "input",
        "swapped pairs",
        refuses=NO_WORD_LIST
        | {
            "bidirectional": "the channel reads the output while the search builds it from left to right, "
            "so its encoder must be unidirectional"
        },
    ),
    RoleEntry(
        "lm",
        "LanguageModel",
        None,
        "output",
        "outputs",
        refuses=NO_ALIGNMENT | {"bidirectional": "a language model reads from left to right"},
    ),
    RoleEntry("seq2seq", "Seq2Seq", "input", "output", "pairs", {"attention": False}, NO_WORD_LIST | NO_ALIGNMENT),
    RoleEntry("attention", "Seq2Seq", "input", "output", "pairs", {"attention": True}, NO_WORD_LIST | NO_ALIGNMENT),
    RoleEntry(
        "transformer",
        "Transformer",
        "input",
        "output",
        "pairs",
        refuses=NO_WORD_LIST
        | NO_ALIGNMENT
        | {
            "bidirectional": "a transformer always reads the input in both directions",
            "embedding_size": "the embeddings of a transformer have its hidden_size",
        },
        own_keys=("num_heads", "feedforward_size", "label_smoothing"),
    ),
)
ROLES: dict[Role, RoleEntry] = {role.name: role for role in _ALL}
"""In the order in which they are listed."""

assert tuple(ROLES) == get_args(Role)
