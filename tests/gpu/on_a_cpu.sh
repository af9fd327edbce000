#!/usr/bin/env bash
# Stands in for Python in run_on_gpu.sh, to try it without a GPU: the same commands, but jobs are small enough for a CPU.
#
#   PYTHON=tests/gpu/on_a_cpu.sh tests/gpu/run_on_gpu.sh first-3      REAL_PYTHON: the interpreter, default python
set -u
small=()
while [ $# -gt 0 ]; do
    case $1 in
        --batch-size) small+=("$1" 2) && shift ;;
        --steps) small+=("$1" 24) && shift ;;
        --per-class) small+=("$1" 24) && shift ;;
        --python) small+=("$1" "${REAL_PYTHON:-python}") && shift ;;
        *on_a_cpu.sh) small+=("${REAL_PYTHON:-python}") ;;
        samples/train.py | samples/faults/jobs/compute/gpu.py) small+=("$1" --image-size 32 --model shufflenet_v2_x0_5) ;;
        */cost_check.py) small+=("$1" --steps=24 --batch-size=2 --image-size=32 --model=shufflenet_v2_x0_5) ;;
        *) small+=("$1") ;;
    esac
    shift
done
exec "${REAL_PYTHON:-python}" "${small[@]}"
