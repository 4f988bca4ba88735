#!/usr/bin/env bash
# Experiments on a GPU machine that is held for a short time, has PyTorch and no network, and sees nothing but copied files.
#
#   tools/gpu_lease.sh pack FOLDER summarisation translation     here: packages, these folders of the data, and the commit
#   tools/gpu_lease.sh start FOLDER WORK LANE…                   there: unpack them in WORK, and start the lanes (tools/lanes.sh)
#   tools/gpu_lease.sh wait WORK SECONDS OUT                     there: wait until all lanes have ended, at most so long;
#                                                                results and logs so far go to OUT, as two archives
#
# Start and wait in one command: the lanes run on after it. What a stopped block has measured is in the results, too; see it with
# noisychannel reproduce EXPERIMENT --merge --results RESULTS. `start` can be called again, with the data of other lanes.
# Environment: here NOISYCHANNEL_DATA (the data) and GPU_PYTHON (the version there; 3.12 if not given); there OPTIONS and PYTHON
# (see tools/lanes.sh).
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)

pack() {
  folder=$(realpath -m "${1:?usage: tools/gpu_lease.sh pack FOLDER NAME…}")
  shift
  data=${NOISYCHANNEL_DATA:-$repository/../shared/data}
  mkdir -p "$folder"
  packages=$(mktemp -d)
  "$repository/tools/offline_packages.sh" "$packages" "${GPU_PYTHON:-3.12}"
  tar cJf "$folder/packages.tar.xz" -C "$packages" .
  rm -rf "$packages"
  # Data files are compressed, most of them better than this does.
  tar cf "$folder/data.tar" -C "$data" "$@"
  git -C "$repository" describe --always --abbrev=40 --dirty=+ --exclude='*' >"$folder/commit"
  du -sh "$folder"
}

start() {
  folder=$(realpath "$1") work=$(realpath -m "$2")
  shift 2
  mkdir -p "$work/packages" "$work/data" "$work/log"
  [ -e "$work/packages/rich" ] || tar xJf "$folder/packages.tar.xz" -C "$work/packages"
  tar xf "$folder/data.tar" -C "$work/data" --no-same-permissions
  # A copy, because this one may be replaced while the lanes run.
  code=$work/code.$(date +%s)
  mkdir "$code"
  tar cf - -C "$repository" --exclude-vcs src tools pyproject.toml | tar xf - -C "$code"
  NOISYCHANNEL_DATA=$work/data NOISYCHANNEL_COMMIT=$(cat "$folder/commit") PYTHONPATH=$work/packages \
    setsid nohup "$code/tools/lanes.sh" "$work" "$@" >>"$work/log/lanes.out" 2>&1 </dev/null &
  echo $! >>"$work/started"
  if command -v nvidia-smi >/dev/null && [ ! -e "$work/log/gpu.csv" ]; then
    setsid nohup nvidia-smi --query-gpu=timestamp,utilization.gpu,memory.used --format=csv,noheader -l 10 \
      >"$work/log/gpu.csv" 2>&1 </dev/null &
  fi
}

wait_for() {
  work=$(realpath "$1") end=$((SECONDS + $2)) out=$(realpath -m "$3")
  while read -r lanes; do
    while [ $SECONDS -lt $end ] && kill -0 "$lanes" 2>/dev/null; do sleep 2; done
  done <"$work/started"
  mkdir -p "$out"
  # 1: a file changed while it was read. Blocks are written whole, and one that is being replaced is left out by --merge.
  for name in results log; do tar czf "$out/$name.tgz" -C "$work" "$name" || [ $? -eq 1 ]; done
  tail -n 4 "$work"/log/*.err "$work"/log/lanes* 2>/dev/null || true
}

case ${1:-} in
  pack | start) "$@" ;;
  wait) wait_for "${@:2}" ;;
  *) sed -n '2,/^set/{/^#/p}' "$0" && exit 2 ;;
esac
