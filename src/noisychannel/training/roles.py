"""Which model plays which role, and on which of the two vocabularies."""

from __future__ import annotations

from typing import Any

from noisychannel.training.config import ModelConfig, Role


def describe_model(
    role: Role, config: ModelConfig, input_size: int, output_size: int, lm_reads_features: bool
) -> tuple[str, dict[str, Any]]:
    """The class name and constructor arguments of a role's model. The channel reads outputs and writes inputs."""
    arguments: dict[str, Any] = {
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
        "embedding_size": config.embedding_size,
        "dropout": config.dropout,
    }
    match role:
        case "lm":
            return "LanguageModel", {"vocab_size": output_size, **arguments, "reads_features": lm_reads_features}
        case "channel":
            return "SSNT", {"input_vocab_size": output_size, "output_vocab_size": input_size, **arguments}
    arguments |= {
        "input_vocab_size": input_size,
        "output_vocab_size": output_size,
        "bidirectional": config.bidirectional,
    }
    match role:
        case "direct":
            return "SSNT", arguments
        case "seq2seq" | "attention":
            return "Seq2Seq", {**arguments, "attention": role == "attention"}
