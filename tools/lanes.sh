#!/usr/bin/env bash
# Several experiments side by side on one GPU. Each argument is a lane: blocks that run one after the other.
#
#   tools/lanes.sh WORK 'normalisation-bohoric:open,strict inflection-sigmorphon2017-medium:opponent' 'g2p-cmudict-spelling:table,few'
#
# The files of the blocks go to WORK/results, logs to WORK/log, models to WORK/runs; WORK/log/lanes has a line for each command
# that has ended. WORK/results.tgz and WORK/log.tgz are packed again after each. Environment: NOISYCHANNEL_DATA (the data),
# NOISYCHANNEL_COMMIT (if this copy is no repository), OPTIONS (for every reproduce, such as --quick), PYTHON.
#
# A lane has at most eight processes, and all lanes together 40: MPS serves 48 and refuses the next one, which ends its lane.
# About four lanes keep a GPU busy; more of them only take turns. Lanes of one experiment share its models: what one trains, others
# wait for. Do not kill single processes: MPS may end the others with an illegal memory access.
set -uo pipefail
cd "$(dirname "$0")/.."
work=${1:?usage: tools/lanes.sh WORK LANE…}
shift
mkdir -p "$work/results" "$work/log" "$work/runs"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
# Without MPS, a GPU gives its processes turns; with it, they share it.
command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d 2>/dev/null

jobs=$((40 / $# - 1))
[ $jobs -gt 8 ] && jobs=8

lane() {
  for item in $1; do
    name=${item%%:*} blocks=${item#*:}
    begin=$SECONDS
    "${PYTHON:-python3}" -m noisychannel reproduce "$name" --blocks "$blocks" --work "$work/runs/$name" \
      --results "$work/results" --jobs $jobs ${OPTIONS:-} >"$work/log/$name.$blocks.out" 2>"$work/log/$name.$blocks.err"
    echo "$name:$blocks exit $? after $((SECONDS - begin)) s" >>"$work/log/lanes"
    (
      flock 9
      tar czf "$work/results.tmp" -C "$work" results && mv "$work/results.tmp" "$work/results.tgz"
      tar czf "$work/log.tmp" -C "$work" log && mv "$work/log.tmp" "$work/log.tgz"
    ) 9>"$work/pack.lock"
  done
}

for items in "$@"; do
  lane "$items" &
done
wait
echo "all lanes have ended" >>"$work/log/lanes"
