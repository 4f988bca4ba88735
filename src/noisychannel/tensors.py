"""Tensors in safetensors files, which are complete or absent. No pickle is ever loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from noisychannel.atomic import write_bytes
from noisychannel.errors import NoisyChannelError


def save_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file. Equal tensors and metadata give equal bytes."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = memoryview(save(contiguous, dict(metadata)))
    # The length of the header in eight bytes, the header in JSON with the metadata in arbitrary order, the tensors.
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8:end]))
    header["__metadata__"] = dict(sorted(metadata.items()))
    ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    ordered += b" " * (-len(ordered) % 8)
    write_bytes(file, len(ordered).to_bytes(8, "little"), ordered, content[end:])


def tensors_checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and content, in hexadecimal; the order does not matter."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_tensors(file: Path, again: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; a truncated one is refused. ``again``: the remedy."""
    with _opened(file, again) as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata() or {}  # noqa: SIM118


def load_metadata(file: Path, again: str | None = None) -> dict[str, str]:
    """The metadata alone, which is quick for a file of any size."""
    with _opened(file, again) as opened:
        return opened.metadata() or {}


def load_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor, without its content."""
    with _opened(file) as opened:
        return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118


@contextmanager
def _opened(file: Path, again: str | None = None) -> Iterator[Any]:
    try:
        if file.exists() and not file.is_file():
            raise OSError("not a regular file")
        with safe_open(str(file), framework="pt") as opened:
            yield opened
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        again = again or f"remove {file.parent} and train again"
        raise NoisyChannelError(
            f"{file}: damaged or truncated ({reason}); restore it from a copy, or {again}"
        ) from error
