# shellcheck shell=bash
# The sections of run_on_gpu.sh: their jobs, what each must show, and their time. Sourced by it; it provides check, deep, verdict_of and others.
# shellcheck disable=SC2034,SC2154

# The first three calls settle what all else rests on, in this order, in 25 minutes; the others follow as there is time.
calls=(first-1 first-2 first-3 later-1 later-2 later-3 later-4 later-5)
declare -A call_sections=(
    [first-1]="machine marks tenth utilisation"
    [first-2]="precision deep"
    [first-3]="habits memory"
    [later-1]="triage"
    [later-2]="input ranks load"
    [later-3]="faults-compute"
    [later-4]="faults-transfer"
    [later-5]="faults-launch cost"
)
sections=(machine marks tenth utilisation precision deep habits memory triage input ranks load faults-compute faults-transfer faults-launch cost)
# Planned for 25 s a job, of which 10 are starts and ends; not measured on a GPU.
declare -A planned_s=(
    [machine]=60 [marks]=80 [tenth]=30 [utilisation]=140 [precision]=130 [deep]=230 [habits]=270 [memory]=60
    [triage]=300 [input]=150 [ranks]=60 [load]=80 [faults-compute]=300 [faults-transfer]=330 [faults-launch]=240 [cost]=180
)
# The limits of a call's sections are no more than GPU_CALL_S together, so that none takes another one's time.
declare -A limit_s=(
    [machine]=120 [marks]=105 [tenth]=75 [utilisation]=200 [precision]=190 [deep]=310 [habits]=400 [memory]=100
    [triage]=500 [input]=220 [ranks]=130 [load]=150 [faults-compute]=500 [faults-transfer]=500 [faults-launch]=290 [cost]=210
)

# In steady training one epoch lasts for the whole job: ten steps are over in half a second.
train=("$python" samples/train.py --no-eval --print-every 20 --amp bf16)
synthetic=("${train[@]}" --synthetic --synthetic-images 65536 --steps 120)
loop=("$python" samples/faults/jobs/compute/gpu.py)
sound=("${loop[@]}" --channels-last --tuned)
# Not --standalone: it looks up the machine's name, which fails without a network.
torchrun=("$python" -m torch.distributed.run --nnodes=1 --master-addr=127.0.0.1 --master-port=29517)

machine_section() {
    verdict_of nvidia-smi nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max --format=csv,noheader
    verdict_of torch "$python" -c "import platform, torch, torchvision; print(platform.python_version(), torch.__version__, torchvision.__version__); torch.zeros(1).cuda()"
    verdict_of py-spy py-spy --version
    nvidia-smi topo -m >"$out/topology.txt" 2>&1
    verdict_of doctor "$python" -m rn50_advisor.advisor.cli doctor --python "$python"
    verdict_of nvml-idle "$python" tests/gpu/nvml_check.py "$out/nvml.json" 8
}

marks_section() {
    verdict_of mark-cost "$python" tests/gpu/mark_cost.py "$out/mark-cost.json"
    verdict_of events-at-5-ms "$python" tests/gpu/cost_check.py "$out/cost" --pairs 1
}

tenth_section() { # such a log line costs nothing that anybody could gain
    enough_shm item-each-tenth 128 1 || return
    check item-each-tenth "clean -CMP003 -CMP004" "${sound[@]}" --batch-size 128 --workers "$(workers_for 128 1)" --steps 300 --fault item --every 10
}

utilisation_section() {
    local batch runs=()
    enough_shm utilisation 64 1 || return
    for batch in 8 16 32 64; do # some ten seconds each, because NVML is read once a second
        options=(--deep)
        check "utilisation-$batch" any "${sound[@]}" --batch-size "$batch" --workers "$(workers_for 64 1)" --steps $((batch < 64 ? 800 : 400))
        options=()
        [ ! -s "$out/utilisation-$batch.json" ] || runs+=("$(run_of "utilisation-$batch")")
    done
    verdict_of utilisation "$python" tests/gpu/utilisation_check.py "$out/utilisation.json" "${runs[@]}"
}

# what jobs of this script do wrong, one each: the job that does nothing wrong must be clear of each
checked="-CMP001 -CMP002 -CMP003 -CMP004 -CMP009 -CMP010 -H2D001 -H2D002"

precision_section() {
    if enough_shm amp-channels-last 128 4; then
        check amp-channels-last "clean $checked" "${synthetic[@]}" --channels-last --batch-size 128 --workers "$(workers_for 128 4)"
        facts amp-channels-last conv.autocast=bfloat16 conv.weight_layout=channels_last copies.0.pinned=True copies.0.non_blocking=True
    fi
    enough_shm precision 64 1 || return
    local workers
    workers=(--workers "$(workers_for 64 1)")
    check fp32 +CMP001 "${loop[@]}" "${workers[@]}" --precision fp32
    check tf32 -CMP001 "${loop[@]}" "${workers[@]}" --precision tf32
    check amp +CMP002 "${loop[@]}" "${workers[@]}" --precision amp
    facts fp32 conv.autocast=None autocast.enabled=False cuda.tf32_cudnn=False cuda.tf32_matmul=False cuda.cudnn_benchmark=False
    facts tf32 cuda.tf32_cudnn=True cuda.tf32_matmul=True model.layers.Conv2d=53 model.parameters=25557032
    facts amp conv.autocast=bfloat16 conv.input_layout=channels_first conv.weight_layout=channels_first
}

deep_section() {
    local before after workers
    if enough_shm deep-amp 128 4; then
        deep deep-amp "device=cuda precision=bf16 tensor_core_share>0.8 classes.conv>0 classes.layout/step_s<0.02 flops~" \
            "${synthetic[@]}" --channels-last --batch-size 128 --workers "$(workers_for 128 4)"
        # a window must leave nothing behind: steps with and without one, side by side (pytorch#146604); `precision` made the one without
        before=$(run_of amp-channels-last) after=$(run_of deep-amp)
        [ -z "$before" ] || [ -z "$after" ] || verdict_of deep-after "$python" -m rn50_advisor.advisor.cli compare --max-regression 5 "$before" "$after"
    fi
    enough_shm deep 64 1 || return
    workers=(--workers "$(workers_for 64 1)")
    deep deep-fp32 "device=cuda precision=fp32 tensor_core_share<0.05 flops~" "${loop[@]}" "${workers[@]}" --precision fp32
    deep deep-tf32 "device=cuda precision=tf32 tensor_core_share>0.8" "${loop[@]}" "${workers[@]}" --precision tf32
    deep deep-channels-first "device=cuda classes.layout/step_s>0.02" "${loop[@]}" "${workers[@]}" --precision amp
    deep deep-item "device=cuda syncs>0.9 idle.sync/step_s>0.01" "${sound[@]}" "${workers[@]}" --batch-size 32 --fault item
    deep deep-pageable "device=cuda pageable_bytes>1000000" "${loop[@]}" "${workers[@]}" --fault pageable
    deep deep-batch-8 "device=cuda idle.launch/step_s>0.05" "${sound[@]}" "${workers[@]}" --batch-size 8 --steps 300
}

habits_section() {
    local batch workers
    enough_shm habits 64 4 || return
    workers=(--workers "$(workers_for 64 4)")
    # What reading the loss costs depends on how near host and GPU are to each other: about 1 % at batch 64, more where both take as long. So the
    # job without it says what it costs.
    for batch in 16 32; do
        check "item-$batch" any "${sound[@]}" "${workers[@]}" --batch-size "$batch" --steps 400 --fault item --took "$out/item-$batch.took"
        check "no-item-$batch" -CMP004 "${sound[@]}" "${workers[@]}" --batch-size "$batch" --steps 400 --took "$out/no-item-$batch.took"
        [ ! -s "$out/no-item-$batch.took" ] || verdict_of "item-$batch gain" "$python" tests/gpu/gain_check.py \
            "$out/item-$batch.json" CMP004 "$out/item-$batch.took" "$out/no-item-$batch.took"
    done
    facts item-32 syncs.sites.0.call=item syncs.sites.0.phase=gap
    # ResNet18 and floats: a copy of bytes takes no 2 % of a step, nor does one beside slow kernels
    check pageable-copies +H2D001 "${sound[@]}" "${workers[@]}" --model resnet18 --floats --steps 400 --fault pageable
    facts pageable-copies copies.0.pinned=False
    check blocking-copies +H2D002 "${sound[@]}" "${workers[@]}" --model resnet18 --floats --steps 400 --fault blocking
    facts blocking-copies copies.0.pinned=True copies.0.non_blocking=False
    check switches-off +CMP009 "${loop[@]}" "${workers[@]}" --channels-last --batch-size 128 --steps 150
    check blocking-launches +CMP010 env CUDA_LAUNCH_BLOCKING=1 "${loop[@]}" "${workers[@]}" --steps 200
    # a number that no GPU has hides them all, as a mistake would
    check on-the-cpu +CMP011 env CUDA_VISIBLE_DEVICES=99 "$python" samples/train.py --no-eval --synthetic --model resnet18 --image-size 64 \
        --synthetic-images 8192 --batch-size 32 --steps 100
}

memory_section() {
    enough_shm memory 64 1 || return
    check memory-creeps +GPU004 "${sound[@]}" --workers "$(workers_for 64 1)" --fault creep --steps 600
    check out-of-memory failed "${sound[@]}" --workers "$(workers_for 64 1)" --fault full --steps 400
    if [ -s "$out/out-of-memory.json" ]; then
        verdict_of out-of-memory-parts grep -c '"metric": "activations"' "$out/out-of-memory.json"
    fi
}

triage_section() {
    rm -f "$out/triage.tar.gz" "$out/triage.json"
    local code
    timed "${limit_s[triage]}" "$python" -m rn50_advisor.advisor.cli triage --full --python "$python" --format json -o "$out/triage.json" --bundle "$out/triage.tar.gz" 2>"$out/triage.log"
    code=$? # 0, 3 and 4 are verdicts
    if [ "$code" = 124 ]; then
        left_out triage "cut, see triage.log"
    elif [[ $code =~ ^[034]$ ]] && grep -q '"gpu.0.hbm_gb_per_s"' "$out/triage.json"; then
        good triage "ended with $code"
    else
        bad triage "ended with $code, see triage.log"
    fi
}

input_section() {
    enough_shm input 64 4 || return
    check batch-8 "+CMP003|+CMP005" "${synthetic[@]}" --batch-size 8 --workers "$(workers_for 8 4)" --steps 600
    if enough_shm batch-256 256 4; then
        check batch-256 clean "${synthetic[@]}" --channels-last --batch-size 256 --workers "$(workers_for 256 4)"
    fi
    # decoding, because what collating and pinning take hides behind a step of ResNet50
    verdict_of images "$python" samples/make_images.py "$out/images" --classes 10 --per-class 400 --val-per-class 1
    local jpegs=("${train[@]}" --data "$out/images" --model resnet18 --batch-size 64 --steps 60)
    check input-starved DAT003 "${jpegs[@]}" --workers 0
    check input-few-workers DAT004 "${jpegs[@]}" --workers 2
}

ranks_section() {
    enough_shm ranks 64 4 || return
    check two-gloo-ranks-one-gpu any env GLOO_SOCKET_IFNAME=lo "${torchrun[@]}" --nproc-per-node=2 "${loop[@]:1}" --batch-size 32 --workers 2
    # alone it sends nothing: NCCL launches no kernel for a single rank
    check one-nccl-rank any env NCCL_SOCKET_IFNAME=lo "${torchrun[@]}" --nproc-per-node=1 "${synthetic[@]:1}" --batch-size 64 --workers 4
}

load_section() { # links leave their first generation, and a stranger shares the GPU with the job that is watched
    enough_shm load 64 1 || return
    local load
    timeout "$(seconds_left "${limit_s[load]}")" "${sound[@]}" --workers 2 --steps 100000 >"$out/load.log" 2>&1 3>&- &
    load=$!
    running+=("$load")
    timed 30 sleep "${SETTLE_S:-20}"
    verdict_of nvml-under-load "$python" tests/gpu/nvml_check.py "$out/nvml-under-load.json"
    check a-stranger +GPU005 "${sound[@]}" --workers 2 --steps 400
    kill "$load" 2>/dev/null
    wait "$load" 2>/dev/null
    running=()
}

# Seeded faults, each beside the job without it: is the verdict right, and what does the advice bring.
seeded() { # section's name, scenarios...
    local name=$1 only=()
    shift
    for scenario in "$@"; do only+=(--only "$scenario"); done
    verdict_of "$name" "$python" -m samples.faults "${only[@]}" --folder "$out/faults" --continue --json "$out/$name.json" --markdown "$out/$name.md"
    # on a machine whose GPU cannot be seen they are all skipped, which is no success
    ! grep -qs "no NVIDIA GPU" "$out/$name.json" || bad "$name" "no GPU seen"
}

faults-compute_section() {
    seeded faults-compute healthy-gpu gpu-in-full-precision gpu-channels-first gpu-waits-for-each-loss gpu-waits-for-some-losses
}

faults-transfer_section() {
    seeded faults-transfer gpu-copies-from-pageable-memory gpu-copies-that-block 'gpu-pictures-as-floats*'
}

faults-launch_section() {
    seeded faults-launch gpu-in-small-batches gpu-launches-that-block 'gpu-memory-creeps*'
}

cost_section() {
    verdict_of events-at-5-ms-again "$python" tests/gpu/cost_check.py "$out/cost" --pairs 3
    verdict_of overhead "$python" tests/bench/overhead.py --only '5ms-1r-0w' --pairs 2 # on its cores
}
