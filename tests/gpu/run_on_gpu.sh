#!/usr/bin/env bash
# Every check that needs a GPU: runs real jobs on it under the advisor and keeps what they recorded, small enough to replay.
#
#   tests/gpu/run_on_gpu.sh [CALL|SECTION...]    all sections where none is named; `list` prints calls and sections with their minutes
#
# Needs torch with CUDA, torchvision and what this package needs (README.md: what to carry to a machine without a network). Nothing is
# written into the checkout, except where git ignores it:
#   GPU_RUNS      folder for all that the checks write, kept from call to call; default: gpu-runs in the folder for temporary files
#   GPU_RESULTS   the one file to take home; default: results.tar.gz in $OUT where that is set, else in GPU_RUNS
#   GPU_CALL_S    seconds for the whole call, default 500; GPU_SECTION_S and GPU_CHECK_S: for each section and check, instead of their own
#   GPU_SHM_KIB   free shared memory, instead of what /dev/shm has
#   PYTHON        the interpreter
# What does not fit the time is cut or left out, and the results until then are kept. Never changes a setting of the card. Exit code: 1 when
# a check failed, 3 when none failed but some were cut or not run; the table at the end says which.
# shellcheck disable=SC2317 # the functions are called by sections.sh
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
# shellcheck source=tests/gpu/sections.sh
source "$here/tests/gpu/sections.sh"

CHECK_S=90        # of a single job, which is planned for 25: one that hangs must not take its section's time
RECORDING_KIB=512 # a bundle: what is kept for replay is committed
FILE_KIB=2048     # any other file of the results
RESULTS_KIB=14336 # all of them, packed

in_minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

list() {
    local name
    for name in "${calls[@]}"; do
        printf '%-16s %s\n' "$name" "${call_sections[$name]}"
    done
    for name in "${sections[@]}"; do
        printf '%-16s %s min, cut after %s\n' "$name" "$(in_minutes "${planned_s[$name]}")" "$(in_minutes "${limit_s[$name]}")"
    done
}

: "${GPU_CALL_S:=500}"
chosen=()
for name in "${@:-${sections[@]}}"; do
    if [ "$name" = list ]; then
        list
        exit
    elif [ -n "${call_sections[$name]:-}" ]; then
        read -ra members <<<"${call_sections[$name]}"
        chosen+=("${members[@]}")
    elif [ -n "${limit_s[$name]:-}" ]; then
        chosen+=("$name")
    else
        echo "no call or section $name; there are ${calls[*]} ${sections[*]}" >&2
        exit 2
    fi
done

out=$(realpath -m "${GPU_RUNS:-${TMPDIR:-/tmp}/gpu-runs}")
results=$(realpath -m "${GPU_RESULTS:-${OUT:-$out}/results.tar.gz}")
for place in "$out" "$results"; do
    if [[ $place/ == "$here"/* ]] && ! git -C "$here" check-ignore -q "$place"; then
        echo "$place is inside the checkout and not ignored by git: name another place with GPU_RUNS or GPU_RESULTS" >&2
        exit 2
    fi
done
mkdir -p "$out/recordings" "$(dirname "$results")"
# What was carried as wheels has its commands (py-spy) in a folder beside its modules.
IFS=: read -ra carried <<<"${PYTHONPATH:-}"
for folder in "${carried[@]}"; do
    [ -z "$folder" ] || [ ! -d "$folder/bin" ] || PATH=$(realpath "$folder/bin"):$PATH
done
export PATH PYTHONPATH=$here/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 # the advisor need not be installed

SECONDS=0
section=
section_ends=0
failed=0
not_run=0
running=() # processes to end where the call is cut
options=() # of `run`, for the checks that follow
window=()  # conditions of deep_check.py that their profiler window must meet

exec 3>&1 # a signal may come while a command's output goes to its log
note() { printf '%-28s %s\n' "$1" "$2" | tee -a "$out/checks-$section.txt" >&3; }

good() { note "$1" "ok: $2"; }

bad() {
    note "$1" "FAILED: $2"
    failed=1
}

left_out() {
    note "$1" "NOT RUN: $2"
    not_run=1
}

# Packs what there is. After every check, because a call that is cut from outside may have no time left to.
collect() {
    (
        cd "$out" || exit
        local packed
        packed=$(basename "$results")
        find . -maxdepth 1 -type f ! -name "$packed" -size "+${FILE_KIB}k" -printf '%P\n' >left-out.txt
        tar -czf "$results.part" --exclude-from=left-out.txt --exclude="$packed*" ./*.* recordings
        if (($(du -k "$results.part" | cut -f1) > RESULTS_KIB)); then
            echo recordings >>left-out.txt
            tar -czf "$results.part" --exclude-from=left-out.txt --exclude="$packed*" ./*.*
        fi
    ) 2>/dev/null
    mv "$results.part" "$results"
}

table() {
    local name kib
    echo
    for name in "${chosen[@]}"; do
        [ ! -f "$out/checks-$name.txt" ] || cat "$out/checks-$name.txt"
    done
    kib=$(du -k "$results" | cut -f1)
    echo "in $SECONDS s; results in $results, $kib KiB"
    if [ -s "$out/left-out.txt" ]; then
        echo "FAILED: too large to take home: $(paste -sd ' ' "$out/left-out.txt")"
        failed=1
    fi
}

end_running() { # the advisor writes its report when it is ended: it gets five seconds
    [ ${#running[@]} != 0 ] && kill "${running[@]}" 2>/dev/null || return
    for _ in {1..50}; do
        kill -0 "${running[@]}" 2>/dev/null || break
        sleep 0.1
    done
}

finish() {
    trap - EXIT INT TERM
    end_running
    collect
    table >&3
    ((failed)) && exit 1
    exit $((not_run ? 3 : 0))
}

cut_short() {
    [ -z "$section" ] || left_out "$section" "the call was cut after $SECONDS s"
    finish
}
trap finish EXIT
trap cut_short INT TERM

seconds_left() { # for the next check, at most so many
    local seconds=${GPU_CHECK_S:-$1}
    ((section_ends - SECONDS >= seconds)) || seconds=$((section_ends - SECONDS))
    echo "$seconds"
}

# Runs a command for at most so many seconds, and those that are left, in the background: only then can a signal cut the call. 124: it was cut.
timed() {
    local seconds code began=$SECONDS
    seconds=$(seconds_left "$1")
    shift
    ((seconds > 0)) || return 124
    timeout --kill-after=10 "$seconds" "$@" 3>&- &
    running+=($!)
    wait $!
    code=$?
    unset 'running[-1]'
    ((code != 137 || SECONDS - began < seconds)) || code=124
    return "$code"
}

out_of_time() { # name: true where no time is left for it, which is then noted
    (($(seconds_left 1) <= 0)) || return 1
    left_out "$1" "no time is left"
}

verdict_of() { # the end of what a program said, for the table: "ok" or "FAILED" by its exit code; all of it is in NAME.txt
    local name=$1 code words said=$out/${1// /-}.txt
    shift
    ! out_of_time "$name" || return
    timed "${limit_s[$section]}" "$@" >"$said" 2>&1
    code=$?
    words=$(tail -n 5 "$said" | paste -sd ';')
    words=${words:0:700}
    case $code in
        0) good "$name" "$words" ;;
        124) left_out "$name" "cut; $words" ;;
        *) bad "$name" "$words" ;;
    esac
    collect
}

# name, what its report must say (words of report_check.py, or `failed`: the job must fail), job...
check() {
    local name=$1 expected=$2 code said
    shift 2
    ! out_of_time "$name" || return
    rm -f "$out/$name.json"
    timed "$CHECK_S" "$python" -m rn50_advisor.advisor.cli run --no-tui "${options[@]}" --run-dir "$out/runs" --name "$name" \
        --report "$out/$name.json" -- "$@" >"$out/$name.log" 2>&1
    code=$?
    if [ "$code" = 124 ]; then
        left_out "$name" "cut, see $name.log"
        # of a part of the job: for people, not for further checks, nor for replay
        [ ! -f "$out/$name.json" ] || mv "$out/$name.json" "$out/$name.cut.json"
        collect
        return
    elif [ "$expected" != failed ] && [ "$code" != 0 ]; then
        bad "$name" "the job ended with code $code, see $name.log"
    elif [ "$expected" = failed ] && [ "$code" = 0 ]; then
        bad "$name" "the job did not fail"
    elif [ ! -s "$out/$name.json" ]; then
        bad "$name" "no report, see $name.log"
    elif said=$("$python" tests/gpu/report_check.py "$expected" "$out/$name.json" 2>&1); then
        good "$name" "$said"
    else
        bad "$name" "said $said"
    fi
    record "$name" "$expected" "${window[*]}"
    collect
}

record() { # name, words of report_check.py, conditions of deep_check.py: keeps the run's bundle for replay, with what it must say
    local bundle=$out/recordings/$1.tar.gz kib
    "$python" -m rn50_advisor.advisor.cli bundle "$(run_of "$1")" -o "$bundle" --force >/dev/null 2>&1 || return
    kib=$(du -k "$bundle" | cut -f1)
    if ((kib > RECORDING_KIB)); then
        rm "$bundle"
        bad "$1 recording" "$kib KiB, more than $RECORDING_KIB: not kept"
        return
    fi
    touch "$out/recordings/expected.tsv"
    { grep -v "^$1"$'\t' "$out/recordings/expected.tsv"; printf '%s\t%s\t%s\n' "$1" "$2" "$3"; } >"$out/expected.part"
    mv "$out/expected.part" "$out/recordings/expected.tsv"
}

run_of() { # name: folder of its last run
    find "$out/runs" -maxdepth 1 -name "????????-??????-$1" | sort | tail -n 1
}

facts() { # name of a check, what its report's facts must hold...
    local name=$1
    shift
    [ ! -s "$out/$name.json" ] || verdict_of "$name facts" "$python" tests/gpu/facts_check.py "$out/$name.json" "$@"
}

deep() { # name, conditions of deep_check.py in one word, job...
    local name=$1
    read -ra window <<<"$2"
    shift 2
    options=(--deep)
    check "$name" any "$@"
    [ ! -s "$out/$name.json" ] || verdict_of "$name window" "$python" tests/gpu/deep_check.py "$out/$name.json" "${window[@]}"
    options=() window=()
}

# Loader workers whose batches /dev/shm holds, twice those in flight, as rule DAT012 wants it: samples in a batch, bytes of a number (images are
# 3 x 224 x 224 numbers). Two batches of each worker are in flight. At most 8, and one core stays free.
workers_for() {
    local batch_kib=$(($1 * 3 * 224 * 224 * $2 / 1024)) workers
    workers=$((shm_kib / (4 * batch_kib)))
    ((workers <= 8)) || workers=8
    ((workers < cores)) || workers=$((cores > 1 ? cores - 1 : 1))
    echo "$workers"
}

# The same for a job that must not wait for its loader: false, and noted, where /dev/shm holds no worker's batches.
enough_shm() { # name, samples in a batch, bytes of a number
    [ "$(workers_for "$2" "$3")" -gt 0 ] || {
        left_out "$1" "/dev/shm has $((shm_kib / 1024)) MiB free: no room for the batches of one worker"
        return 1
    }
}

shm_kib=${GPU_SHM_KIB:-$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)}
shm_kib=$((${shm_kib:-0}))
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # without them: of the machine, as jobs may use
cd "$here" || exit 1
echo "/dev/shm: $((shm_kib / 1024)) MiB free, $cores cores. Loader workers: $(workers_for 64 1) for batches of 64 as bytes," \
    "$(workers_for 64 4) as floats, $(workers_for 128 4) for batches of 128 as floats; 0 means: not enough shared memory, such jobs are left out" |
    tee "$out/shm.txt"
for section in "${chosen[@]}"; do
    rm -f "$out/checks-$section.txt"
    section_ends=$((SECONDS + ${GPU_SECTION_S:-${limit_s[$section]}}))
    ((section_ends <= GPU_CALL_S)) || section_ends=$GPU_CALL_S
    "${section}_section"
done
section=
finish
