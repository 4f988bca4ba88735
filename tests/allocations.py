"""What a computation allocates, seen from inside PyTorch's dispatcher: exact, and the same on every machine."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """How many elements the largest tensor made under this mode has room for, and how many lived at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.peak = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                # A view has its base's storage, so an expanded tensor counts only with what was really allocated.
                storage = leaf.untyped_storage()
                elements = storage.nbytes() // leaf.element_size()
                self.largest = max(self.largest, elements)
                self._live[storage._cdata] = StorageWeakRef(storage), elements
        self._live = {key: (ref, elements) for key, (ref, elements) in self._live.items() if not ref.expired()}
        self.peak = max(self.peak, sum(elements for _, elements in self._live.values()))
        return result
