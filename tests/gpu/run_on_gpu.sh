#!/usr/bin/env bash
# Every check that needs a GPU: runs real jobs on it under the advisor and keeps what they recorded, small enough to replay.
#
#   tests/gpu/run_on_gpu.sh [SECTION...]    all of them where none is named; `list` prints their names
#
# Needs torch with CUDA, torchvision and what this package needs (README.md: what to carry to a machine without a network). GPU_RUNS is
# where everything goes (gpu-runs, kept from call to call), GPU_RESULTS the one file to take home (results.tar.gz in it), PYTHON the
# interpreter. Never changes a setting of the card. Exits 1 when any check failed; the table at the end says which.
set -u
sections=(machine triage precision input habits deep memory ranks load faults cost)
if [ "${1:-}" = list ]; then
    printf '%s\n' "${sections[@]}"
    exit
fi
for section in "$@"; do
    if [[ " ${sections[*]} " != *" $section "* ]]; then
        echo "no section $section; there are ${sections[*]}" >&2
        exit 2
    fi
done
here=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH=$here/src${PYTHONPATH:+:$PYTHONPATH} # the advisor need not be installed
python=${PYTHON:-python3}
mkdir -p "${GPU_RUNS:=gpu-runs}"
out=$(cd "$GPU_RUNS" && pwd)
results=$(realpath -m "${GPU_RESULTS:-$out/results.tar.gz}")
failed=0
section=
options= # of `run`, for the checks that follow

note() { printf '%-28s %s\n' "$1" "$2" | tee -a "$out/checks-$section.txt"; }

newest() { find "$out/runs" -maxdepth 1 -name "*-$1" | sort | tail -n 1; } # folder of the last run of this name

# Also where a call is cut short: what was found until then is in it.
collect() {
    local left
    left=$(jobs -p)
    [ -z "$left" ] || kill $left 2>/dev/null
    tar -czf "$results" --exclude=./runs --exclude=./cost --exclude="./$(basename "$results")" -C "$out" .
}
trap collect EXIT
trap 'exit 1' INT TERM

verdict_of() { # what a program said, for the table: "ok" or "FAILED" by its exit code
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then note "$name" "ok: ${output//$'\n'/; }"; else
        note "$name" "FAILED: ${output//$'\n'/; }"
        failed=1
    fi
}

# name, what its report must say, job... What it must say is words that all hold: a rule or a state as the verdict, +RULE among the
# findings, -RULE checked and not found, clean (healthy, and nothing to mend: notes of severity info are none), any; A|B is one of both.
check() {
    local name=$1 expected=$2
    shift 2
    "$python" -m rn50_advisor.advisor.cli run --no-tui $options --run-dir "$out/runs" --name "$name" --report "$out/$name.json" -- "$@" >"$out/$name.log" 2>&1
    local code=$?
    if [ "$code" != 0 ] && [ "$expected" != failed ]; then
        note "$name" "FAILED: the job ended with code $code, see $name.log"
        failed=1
        return
    fi
    local output
    if output=$("$python" - "$expected" "$out/$name.json" <<'PYTHON'
import json, sys
expected, report = sys.argv[1], json.load(open(sys.argv[2]))
verdict, findings = report["verdict"], report["findings"]
fired = [finding["rule"] for finding in findings]
clear = [row["rule"] for row in report["outcomes"] if row["state"] == "clear"]
met = {"any", verdict["rule"], verdict["state"], *(f"+{rule}" for rule in fired), *(f"-{rule}" for rule in clear)}
if verdict["state"] == "healthy" and all(finding["severity"] == "info" for finding in findings):
    met.add("clean")
missing = [words for words in expected.split() if met.isdisjoint(words.split("|"))]
shown = [verdict["rule"] or verdict["state"], *(f"+{rule}" for rule in fired if rule != verdict["rule"])]
print(*shown, end=f", expected {' '.join(missing)}" if missing else "")
sys.exit(bool(missing))
PYTHON
    ); then note "$name" "ok: $output"; else
        note "$name" "FAILED: said $output"
        failed=1
    fi
    "$python" -m rn50_advisor.advisor.cli bundle --run-dir "$out/runs" "$name" -o "$out/$name.tar.gz" --force >/dev/null 2>&1 || note "$name" "no bundle"
}

deep() { # name, conditions of tests/gpu/deep_check.py in one word, job...
    local name=$1 conditions=$2
    shift 2
    options=--deep
    check "$name" any "$@"
    options=
    # shellcheck disable=SC2086 - several conditions
    verdict_of "$name window" "$python" tests/gpu/deep_check.py "$out/$name.json" $conditions
}

facts() { # name of a check, what its report's facts must hold...
    local name=$1
    shift
    verdict_of "$name facts" "$python" tests/gpu/facts_check.py "$out/$name.json" "$@"
}

# one epoch, as everywhere: ten steps of it are over in half a second
train=("$python" samples/train.py --synthetic --synthetic-images 32768 --steps 120 --no-eval --print-every 20)
loop=("$python" samples/faults/jobs/compute/gpu.py)
two=("$python" -m torch.distributed.run --standalone --nproc_per_node=2 "${loop[@]:1}")
one=("$python" -m torch.distributed.run --standalone --nproc_per_node=1 "${train[@]:1}" --amp bf16 --batch-size 64 --workers 4)

machine_section() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max --format=csv,noheader | tee "$out/machine.txt"
    nvidia-smi topo -m >"$out/topology.txt" 2>&1
    "$python" -m rn50_advisor.advisor.cli doctor --json >"$out/doctor.json"
    verdict_of nvml-idle "$python" tests/gpu/nvml_check.py "$out/nvml.json"
}

triage_section() {
    rm -f "$out/triage.tar.gz"
    "$python" -m rn50_advisor.advisor.cli triage --full --python "$python" --format json -o "$out/triage.json" --bundle "$out/triage.tar.gz" 2>"$out/triage.log"
    local code=$? # 0, 3 and 4 are verdicts
    if [[ $code =~ ^[034]$ ]] && grep -q '"gpu.0.hbm_gb_per_s"' "$out/triage.json"; then note triage "ok: ended with $code"; else
        note triage "FAILED: ended with $code, see triage.log"
        failed=1
    fi
}

# what jobs of this script do wrong, one each: the job that does nothing wrong must be clear of each
checked="-CMP001 -CMP002 -CMP003 -CMP004 -CMP009 -CMP010 -H2D001 -H2D002"

precision_section() {
    check amp-channels-last "clean $checked" "${train[@]}" --amp bf16 --channels-last --batch-size 128 --workers 8
    check fp32 +CMP001 "${loop[@]}" --precision fp32
    check tf32 -CMP001 "${loop[@]}" --precision tf32
    check amp +CMP002 "${loop[@]}" --precision amp
    facts amp-channels-last conv.autocast=bfloat16 conv.weight_layout=channels_last copies.0.pinned=True copies.0.non_blocking=True
    facts fp32 conv.autocast=None autocast.enabled=False cuda.tf32_cudnn=False cuda.tf32_matmul=False cuda.cudnn_benchmark=False
    facts tf32 cuda.tf32_cudnn=True cuda.tf32_matmul=True model.layers.Conv2d=53 model.parameters=25557032
    facts amp conv.autocast=bfloat16 conv.input_layout=channels_first conv.weight_layout=channels_first
}

input_section() {
    check batch-8 "+CMP003|+CMP005" "${train[@]}" --amp bf16 --batch-size 8 --workers 4
    check batch-256 clean "${train[@]}" --amp bf16 --channels-last --batch-size 256 --workers 8
    check input-starved DAT003 "${train[@]}" --amp bf16 --batch-size 128 --workers 0
}

habits_section() {
    check item-each-step +CMP004 "${loop[@]}" --fault item
    # as floats and in channels-last: a copy of bytes takes no 2 % of a step, nor does one beside slow kernels
    check pageable-copies +H2D001 "${loop[@]}" --channels-last --floats --fault pageable
    check blocking-copies +H2D002 "${loop[@]}" --channels-last --floats --fault blocking
    check switches-off +CMP009 "${loop[@]}" --steps 200
    check blocking-launches +CMP010 env CUDA_LAUNCH_BLOCKING=1 "${loop[@]}" --steps 200
    # a number that no GPU has hides them all, as a mistake would
    check on-the-cpu +CMP011 env CUDA_VISIBLE_DEVICES=99 "${train[@]}" --image-size 64 --batch-size 32 --steps 40
    facts item-each-step syncs.sites.0.call=item syncs.sites.0.phase=gap
    facts pageable-copies copies.0.pinned=False
    facts blocking-copies copies.0.pinned=True copies.0.non_blocking=False
}

deep_section() {
    deep deep-amp "device=cuda precision=bf16 tensor_core_share>0.8 classes.conv>0 classes.layout/step_s<0.02 flops~" "${train[@]}" --amp bf16 --channels-last --batch-size 128 --workers 8
    deep deep-fp32 "device=cuda precision=fp32 tensor_core_share<0.05 flops~" "${loop[@]}" --precision fp32
    deep deep-tf32 "device=cuda precision=tf32 tensor_core_share>0.8" "${loop[@]}" --precision tf32
    deep deep-channels-first "device=cuda classes.layout/step_s>0.02" "${loop[@]}" --precision amp
    deep deep-item "device=cuda syncs>0.9 idle.sync/step_s>0.01" "${loop[@]}" --fault item
    deep deep-pageable "device=cuda pageable_bytes>1000000" "${loop[@]}" --fault pageable
    deep deep-batch-8 "device=cuda idle.launch/step_s>0.05" "${train[@]}" --amp bf16 --batch-size 8 --workers 4
    deep deep-one-nccl-rank "device=cuda nccl_s>0" "${one[@]}"
    # a window must leave nothing behind: steps with and without one, side by side (pytorch#146604); `precision` made the one without
    "$python" -m rn50_advisor.advisor.cli compare "$(newest amp-channels-last)" "$(newest deep-amp)" >"$out/deep-after.txt" 2>&1 || note deep-after "look at deep-after.txt"
}

memory_section() {
    check memory-creeps +GPU004 "${loop[@]}" --fault creep --steps 400
    check out-of-memory failed "${loop[@]}" --fault full --steps 400
    if grep -q '"metric": "activations"' "$out/out-of-memory.json"; then note out-of-memory-parts ok; else
        note out-of-memory-parts "FAILED: what held the memory is not reported"
        failed=1
    fi
}

ranks_section() {
    check two-gloo-ranks-one-gpu any "${two[@]}" --batch-size 32
    check one-nccl-rank any "${one[@]}"
}

load_section() { # links leave their first generation, and a stranger shares the GPU with the job that is watched
    "${loop[@]}" --steps 4000 >"$out/load.log" 2>&1 &
    local load=$!
    sleep "${SETTLE_S:-20}"
    verdict_of nvml-under-load "$python" tests/gpu/nvml_check.py "$out/nvml-under-load.json"
    check a-stranger +GPU005 "${loop[@]}" --steps 400
    kill "$load" 2>/dev/null
    wait "$load" 2>/dev/null
}

faults_section() { # seeded faults, each beside the job without it: is the verdict right, and what does the advice bring
    "$python" -m samples.faults --only '*gpu*' --json "$out/faults.json" --markdown "$out/faults.md" >"$out/faults.txt" 2>&1
    local code=$?
    if [ "$code" = 0 ] && ! grep -q "no NVIDIA GPU" "$out/faults.txt"; then note faults ok; else
        note faults "FAILED: see faults.txt"
        failed=1
    fi
}

cost_section() {
    verdict_of events-at-5-ms "$python" tests/gpu/cost_check.py "$out/cost"
    "$python" tests/bench/overhead.py --pairs 3 >"$out/overhead.txt" 2>&1 && note overhead ok && return
    note overhead "FAILED: see overhead.txt"
    failed=1
}

cd "$here" || exit 1
for section in "${@:-${sections[@]}}"; do
    rm -f "$out/checks-$section.txt"
    "${section}_section"
done
cat "$out"/checks-*.txt
exit "$failed"
