"""The device that a configuration or an option asks for, and the memory that is free on it."""

from __future__ import annotations

from pathlib import Path

import torch

from noisychannel.errors import BadInputError, cut


def choose_device(name: str) -> torch.device:
    """The device of that name; auto takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        # Only of these are the reasons short, and about this machine.
        reason = f" ({str(error).splitlines()[0]})" if name.startswith("cuda") else ""
        raise BadInputError(f"device: {cut(name)} cannot be used here{reason}; use auto or cpu") from error
    return device


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device, swap included; None if the system does not tell."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    known = [bytes_ for bytes_ in (_free_in_system(), *_free_in_groups()) if bytes_ is not None]
    return min(known, default=None)


def _free_in_system() -> int | None:
    sizes = _numbers(Path("/proc/meminfo"))
    return 1024 * (sizes["MemAvailable:"] + sizes.get("SwapFree:", 0)) if "MemAvailable:" in sizes else None


def _free_in_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """What each control group of this process, such as a container, leaves of its limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    free = []
    for number, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if number == "0":  # version 2
            top, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = top / path.strip("/")
        for place in [group, *group.parents]:
            limit, used = (_numbers(place / name).get("") for name in names[:2])
            if limit is not None and used is not None:
                # The kernel drops cached files before it refuses memory.
                free.append(max(0, limit - used + _numbers(place / "memory.stat").get(names[2], 0)))
            if place == top:
                break
    return free


def _numbers(file: Path) -> dict[str, int]:
    """The number after each name, in a file of the kernel; that of a file with only a number has an empty name."""
    try:
        words = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    named = (["", *line] if len(line) == 1 else line for line in words if line)
    return {name: int(number) for name, number, *_ in named if number.isdigit()}
