#!/usr/bin/env bash
# Every check that needs a GPU, in one call: runs real jobs on it under the advisor and keeps what they recorded, small enough to replay.
#
#   tests/gpu/run_on_gpu.sh [OUT]     OUT defaults to gpu-runs; needs torch with CUDA, torchvision and this package installed
#
# Never changes a setting of the card. Exits 1 when any check failed; the table at the end says which.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-gpu-runs}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
failed=0

note() { printf '%-28s %s\n' "$1" "$2" | tee -a "$out/checks.txt"; }

check() { # name, expected verdict (a rule, healthy, or any), job...
    local name=$1 expected=$2
    shift 2
    if ! "$python" -m advisor.cli run --no-tui --run-dir "$out/runs" --name "$name" --report "$out/$name.json" -- "$@" >"$out/$name.log" 2>&1; then
        note "$name" "FAILED: the job ended badly, see $name.log"
        failed=1
        return
    fi
    local said
    said=$("$python" -c 'import json, sys; v = json.load(open(sys.argv[1]))["verdict"]; print(v["rule"] or v["state"])' "$out/$name.json")
    if [ "$expected" != any ] && [ "$said" != "$expected" ]; then
        note "$name" "FAILED: said $said, expected $expected"
        failed=1
    else
        note "$name" "ok: $said"
    fi
    "$python" -m advisor.cli bundle --run-dir "$out/runs" "$name" -o "$out/$name.tar.gz" >/dev/null 2>&1 || note "$name" "no bundle"
}

: >"$out/checks.txt"
cd "$here" || exit 1
nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max --format=csv,noheader | tee "$out/machine.txt"
"$python" -m advisor.cli doctor --json >"$out/doctor.json"

train=("$python" samples/train.py --synthetic --steps 120 --no-eval --print-every 20)
check amp-channels-last healthy "${train[@]}" --amp bf16 --channels-last --batch-size 128 --workers 8
check fp32 any "${train[@]}" --amp off --batch-size 64 --workers 8
check batch-8 any "${train[@]}" --amp bf16 --batch-size 8 --workers 4
check input-starved DAT003 "${train[@]}" --amp bf16 --batch-size 128 --workers 0
check one-nccl-rank any "$python" -m torch.distributed.run --standalone --nproc_per_node=1 "${train[@]:1}" --amp bf16 --batch-size 64 --workers 4
"$python" tests/bench/overhead.py --pairs 3 >"$out/overhead.txt" 2>&1 || note overhead "FAILED: see overhead.txt"
cat "$out/checks.txt"
exit "$failed"
