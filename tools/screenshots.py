"""Make the pictures of the page in docs/images.

    python tools/screenshots.py [--chromium PROGRAM] [--into docs/images]

Starts ``noisychannel serve`` with the run of the package, and photographs the page in a browser: light, dark, and as
wide as a phone. Needs the extras serve and dev, and a Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb",
]  # fmt: skip
VIEW = "#input=Land&weights=direct:1,channel:0.453167,lm:0.1,length:-0.1"
PICTURES = {
    "serve-light": {"color_scheme": "light", "viewport": {"width": 1160, "height": 1460}},
    "serve-dark": {"color_scheme": "dark", "viewport": {"width": 1160, "height": 1460}},
    "serve-phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 1290}},
}


@contextmanager
def served() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    command = [sys.executable, "-m", "noisychannel", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SystemExit(f"the server did not start: {line}")
            yield found[0]
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    parser.add_argument("--view", default=VIEW)
    options = parser.parse_args()
    if options.chromium is None:
        raise SystemExit("no chromium is installed; name one with --chromium")
    options.into.mkdir(parents=True, exist_ok=True)
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=ARGUMENTS)
        for name, settings in PICTURES.items():
            page = browser.new_page(reduced_motion="reduce", **settings)
            page.goto(address + options.view)
            page.wait_for_selector("#tree svg")
            page.screenshot(path=options.into / f"{name}.png")
            print(f"{name}: {(options.into / f'{name}.png').stat().st_size / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
