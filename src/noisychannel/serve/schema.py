"""The requests and answers of the JSON interface, as they are checked and documented."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _unicode(text: str) -> str:
    """JSON can write half of a surrogate pair, which no file and no answer can."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("must be Unicode text, but has half of a surrogate pair") from None
    return text


Text = Annotated[str, Field(strict=True), AfterValidator(_unicode)]
Number = Annotated[float, Field(strict=True)]
Features = Annotated[list[Text], Field(description="Tags of the input, in order, if the run was trained with them.")]
Points = Annotated[
    list[list[float]], Field(description="A row for each input symbol, a column for each output symbol, both with EOS.")
]


class Closed(BaseModel):
    """A request: keys that are not known are refused."""

    model_config = ConfigDict(extra="forbid", regex_engine="python-re")


class Input(Closed):
    """One input."""

    text: Text
    features: Features = []


class Request(Closed):
    """What all requests share."""

    run: Text | None = Field(None, description="The name of a run; the first one if it is not given.")
    system: Text | None = Field(None, description="A system of the run; its default one if it is not given.")
    weights: dict[Text, Number] = Field(
        {}, description="Weights in place of tuned ones, by term; terms that are not named keep the tuned weight."
    )


class DecodeRequest(Request):
    """One input (``input``, ``features``) or many (``inputs``)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"input": "Baum", "n_best": 2},
                {"inputs": [{"text": "Baum"}, {"text": "Frage"}], "weights": {"lm": 0.3}},
            ]
        }
    )
    input: Text | None = None
    features: Features = []
    inputs: list[Input] = []
    n_best: Annotated[int, Field(strict=True, ge=1)] = Field(1, description="How many outputs of each input.")

    @model_validator(mode="after")
    def _one_or_many(self) -> DecodeRequest:
        if (self.input is None) == (not self.inputs):
            raise ValueError("give either input or a list of inputs")
        if self.features and self.input is None:
            raise ValueError("features belong to input; in inputs each has its own")
        return self

    def all_inputs(self) -> list[Input]:
        return self.inputs if self.input is None else [Input(text=self.input, features=self.features)]


class Pair(Closed):
    """An input and an output that is given."""

    input: Text
    output: Text
    features: Features = []


class ScoreRequest(Request):
    """Pairs to score."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"pairs": [{"input": "Baum", "output": "Bäumen"}]}]})
    pairs: Annotated[list[Pair], Field(min_length=1)]


class Candidates(Closed):
    """An input and outputs to rank."""

    input: Text
    outputs: Annotated[list[Text], Field(min_length=1)]
    features: Features = []


class RerankRequest(Request):
    """Outputs to rank, of one or many inputs."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [{"input": "Baum", "outputs": ["Baumen", "Bäumen"]}]}]}
    )
    items: Annotated[list[Candidates], Field(min_length=1)]
    n_best: Annotated[int, Field(strict=True, ge=1)] | None = Field(None, description="All if it is not given.")


class Hypothesis(BaseModel):
    """One output. Numbers are natural logarithms; one that is not finite is null."""

    output: str
    confidence: float | None = Field(description="The calibrated probability that it is right, if the run has one.")
    score: float | None = Field(description="The objective: the sum of weight times term.")
    direct: float | None
    channel: float | None
    lm: float | None
    length: int = Field(description="Symbols, EOS included.")
    extra: dict[str, float | None] = Field(description="Further terms, by name.")
    factor: float = Field(
        description="What sums over the output's symbols are multiplied by: 1, unless per_symbol is on."
    )
    alignment: list[int] | None = Field(description="For each output symbol, the input position that emitted it.")
    channel_alignment: list[int] | None = Field(description="For each input symbol, the output position.")
    complete: bool = Field(description="False if the search found no end.")
    unknown: list[int] = Field(description="The positions of symbols that were scored as unknown.")
    direct_is: str
    channel_is: str | None


class Posteriors(BaseModel):
    """How probable each alignment point is. The channel's columns begin with the context."""

    direct: Points | None
    channel: Points | None


class ExplainedHypothesis(Hypothesis):
    """One output with every term of the run, and alignments as probabilities."""

    output_symbols: list[str]
    weighed: dict[str, float | None] = Field(
        description="The terms by name, as the objective weighs them: divided by lengths if the system does that."
    )
    posteriors: Posteriors | None


class Decoded(BaseModel):
    """One input and its outputs, best first."""

    input: str
    features: list[str]
    input_symbols: list[str] = Field(description="As the models see them, features first, without EOS.")
    unknown_symbols: list[str]
    unknown_features: list[str]
    hypotheses: list[Hypothesis]


class TreeNode(BaseModel):
    """A prefix that survived in the search, or a completed output."""

    parent: int | None = Field(description="The place of the prefix that it extends; null for the empty prefix.")
    symbol: str
    score: float | None = Field(description="Its best objective.")
    cells: list[int] = Field(description="The input positions at which it survived.")
    complete: bool


class Tree(BaseModel):
    """The prefixes of a search; parents come first."""

    nodes: list[TreeNode]
    left_out: int
    paths: list[int | None] = Field(description="The node of each complete hypothesis; null if it was not searched.")


class Explained(Decoded):
    """One input and its outputs, with everything behind them."""

    hypotheses: list[ExplainedHypothesis]  # type: ignore[assignment]
    context_symbols: list[str] = Field(description="What the channel reads before the output.")
    tree: Tree | None = None


class Answers(BaseModel):
    """Which system answered."""

    run: str
    system: str
    weights: dict[str, float]


class DecodeAnswer(Answers):
    """The outputs of each input, in the order of the request."""

    results: list[Decoded]


class ExplainAnswer(Answers):
    """The explained outputs of each input, in the order of the request."""

    results: list[Explained]


class SystemInfo(BaseModel):
    """A tuned system of a run."""

    name: str
    weights: dict[str, float]
    terms: list[str]
    proposer: str
    search: dict[str, Any]
    confidence: bool
    has_tree: bool


class Limit(BaseModel):
    """What a request may ask for."""

    max_symbols: int
    max_n_best: int
    max_inputs: int
    max_body: int


class RunInfo(BaseModel):
    """A run that is served."""

    name: str
    default_system: str
    systems: list[SystemInfo]
    needs_features: bool
    features: list[str]
    feature_separator: str
    input_units: str
    output_units: str
    examples: list[Input]


class Runs(BaseModel):
    """Every run that is served; the first is the default."""

    version: str
    limits: Limit
    runs: list[RunInfo]


class Problem(BaseModel):
    """Why a request was refused, in one line."""

    error: str
