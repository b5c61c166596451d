#!/usr/bin/env bash
# All tests and measurements that need GPUs, in stages of less than eight minutes each.
#
#   gpu_backend/check.sh --build DIR [--out DIR] [--stage A,B,...] [--flags "--gather copy_engine ..."] [--plain DIR]
#                        [--shared]
#
# --build: a build with CUDA (cmake --workflow --preset gpu); nothing is built here. --out (default
# gpu_check): logs and results. A stage that has passed is not run again; a table of all stages stands
# at the end. Stages that need more GPUs than there are, or programs that are not built, are skipped.
# --flags: of the plan, for the trainings of stages C, D, F, G and I (give them an --out of their own). C and G
# also hold their results to those of the plan without, and leave out what refuses them. --plain (default --out): where
# G has, or puts, its runs without. --shared: other programs run on the GPUs; D does not look at device memory.
#
#   A  kernels, products and attention against fp64        B  the backend on one GPU
#   C  two GPUs: strategies, delays, poison, bits          D  ranks killed and stopped in every phase
#   E  states between meshes and backends, killed saves    F  Llama-3-8B: speed, memory, allocations
#   G  four ranks on two hosts, which two GPUs can play   H  torchrun and Open MPI as launchers
#   I  two GPUs: a training under compute-sanitizer
#
# Exit code 0: all stages that could run passed; 1: one failed; 2: a wrong flag.
set -u

build=""
out=gpu_check
stages=A,B,C,D,E,F,G,H,I
more=()
plain=""
shared=()
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:-}; shift 2 || exit 2 ;;
    --out) out=${2:-}; shift 2 || exit 2 ;;
    --stage) stages=${2:-}; shift 2 || exit 2 ;;
    --flags) read -r -a more <<< "${2:-}"; shift 2 || exit 2 ;;
    --plain) plain=${2:-}; shift 2 || exit 2 ;;
    --shared) shared=(--shared); shift ;;
    *) echo "check.sh: $1 is no flag: expected --build DIR, --out DIR, --stage A,B,..., --flags FLAGS, --plain DIR or" \
            "--shared" >&2
       exit 2 ;;
  esac
done
if [ ! -x "$build/gpu_backend/mfsdp-exec" ]; then
  echo "check.sh: --build: expected a folder with gpu_backend/mfsdp-exec, got \"$build\"" >&2
  exit 2
fi
exec_tool=$build/gpu_backend/mfsdp-exec
verify_tool=$build/verify/mfsdp-verify
tests=$build/tests
here=$(cd "$(dirname "$0")" && pwd)
text=$here/../scenarios/texts/jargon.txt
limit=470
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
mkdir -p "$out"
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-EAGER}

# Stage functions say what is wrong on stdout and return non-zero; 77 means that nothing could run.

device_tests() {  # FILTER
  local program=$tests/gpu_backend_cuda_device_tests
  [ -x "$program" ] || { echo "$program is not built"; return 77; }
  timeout $limit "$program" --gtest_filter="$1"
}

train() {  # RANKS ARGUMENTS...
  local ranks=$1
  shift
  timeout 200 "$exec_tool" --backend cuda --nproc "$ranks" --no-save --deadline 20 "$@"
}

stage_A() { device_tests '-CudaBackendTest.*:CudaEquality.*'; }

stage_B() {
  device_tests 'CudaBackendTest.*-*TwoGpus*' || return
  train 1 --model llama_tiny --data "$text" --steps 50 --output jsonl > "$out/cuda.jsonl" || return
  timeout 200 "$exec_tool" --backend cpu --world-size 1 --no-save --model llama_tiny --data "$text" \
    --steps 50 --output jsonl > "$out/cpu.jsonl" || return
  compare_losses "$out/cuda.jsonl" "$out/cpu.jsonl"
}

# Steps 1 to 10 within 0.01, the others within 0.05.
compare_losses() {
  python3 - "$1" "$2" <<'PYTHON'
import json, sys
def losses(path):
    lines = [json.loads(line) for line in open(path) if line.startswith("{")]
    return [line["loss"] for line in lines if line.get("event") == "step"]
a, b = losses(sys.argv[1]), losses(sys.argv[2])
worst = max((abs(x - y) for x, y in zip(a, b)), default=float("nan"))
wrong = [i + 1 for i, (x, y) in enumerate(zip(a, b)) if not abs(x - y) <= (0.01 if i < 10 else 0.05)]
print(f"{len(a)} and {len(b)} losses, at most {worst:.5f} apart; too far at steps {wrong}")
sys.exit(1 if wrong or len(a) != len(b) or not a else 0)
PYTHON
}

# All combinations of the equality tests, and with each strategy a delay before every op in turn.
stage_C() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  if [ ${#more[@]} -eq 0 ]; then
    device_tests 'CudaBackendTest.*' || return
    MFSDP_EQUALITY=full device_tests 'CudaEquality.*' || return
  fi
  local strategy ops
  for strategy in 0 1 2 3; do
    local bare=(2 --model llama_nano --data synthetic --strategy $strategy --deterministic --output jsonl)
    local run=("${bare[@]}" "${more[@]}")
    if ! ops=$(ops_of_a_step --strategy $strategy "${more[@]}"); then
      echo "strategy $strategy: $(tail -1 "$out/plan.log")"
      [ ${#more[@]} -gt 0 ] && [ $strategy -lt 3 ] && continue
      return 1
    fi
    echo "strategy $strategy: $ops ops in a step"
    train "${run[@]}" --steps "$ops" > "$out/plain$strategy.jsonl" || return
    train "${run[@]}" --steps "$ops" --delay-op each --poison > "$out/delayed$strategy.jsonl" || return
    same_steps "$out/delayed$strategy.jsonl" "$out/plain$strategy.jsonl" || return
    train "${run[@]}" --steps "$ops" --chaos 1 --poison > "$out/chaos$strategy.jsonl" || return
    same_steps "$out/chaos$strategy.jsonl" "$out/plain$strategy.jsonl" || return
    [ ${#more[@]} -gt 0 ] || continue
    train "${bare[@]}" --steps "$ops" > "$out/bare$strategy.jsonl" || return
    same_steps "$out/plain$strategy.jsonl" "$out/bare$strategy.jsonl" || return
  done
}

ops_of_a_step() {
  "$exec_tool" --model llama_nano --data synthetic --world-size 2 --deterministic --no-save --dry-run \
    --plan-out "$out/plan.json" "$@" > "$out/plan.log" 2>&1 && python3 -c '
import json, sys
for plan in json.load(open(sys.argv[1]))["plans"]:
    if plan["name"] == "train":
        print(sum(len(segment["ops"]) for segment in plan["segments"]))' "$out/plan.json"
}

same_steps() {
  python3 - "$1" "$2" <<'PYTHON'
import json, sys
def steps(path):
    lines = [json.loads(line) for line in open(path) if line.startswith("{")]
    return [(l["loss"], l["grad_norm"]) for l in lines if l.get("event") == "step"]
a, b = steps(sys.argv[1]), steps(sys.argv[2])
wrong = [i + 1 for i, (x, y) in enumerate(zip(a, b)) if x != y]
print(f"{sys.argv[1]}, {sys.argv[2]}: {len(a)} steps, different at {wrong}")
sys.exit(1 if wrong or len(a) != len(b) or not a else 0)
PYTHON
}

# No rank's end in any phase may keep the others, a process or device memory for 30 seconds.
stage_D() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  timeout $limit "$here/kills.py" phases --out "$out/kills" "${shared[@]}" -- "$exec_tool" --backend cuda --nproc 2 \
    --no-save --deadline 5 --model llama_tiny --data "$text" "${more[@]}"
}

stage_E() {
  local ranks=$((gpus >= 2 ? 2 : 1))
  states_move || return
  timeout 380 "$here/kills.py" saves --out "$out/kills" --kills 20 -- "$exec_tool" --backend cuda \
    --nproc $ranks --no-save --deterministic --deadline 20 --model llama_tiny --data "$text" --steps 2000
}

# Every way of holding a state has the same one: no step is done between a save and the next.
states_move() {
  local dir=$out/states most=$((gpus >= 4 ? 4 : gpus)) ranks
  rm -rf "$dir"
  states cuda $most 3 --save "$dir/cuda" || return
  states cpu 2 3 --save "$dir/cpu" || return
  for ranks in 4 2 1; do
    [ $ranks -gt $most ] || moved "$dir/cuda" cuda $ranks 3 "$dir/cuda_$ranks" || return
  done
  moved "$dir/cuda_1" cuda $most 3 "$dir/cuda_1_$most" || return
  moved "$dir/cuda" cuda $most 1 "$dir/cuda_zero1" || return
  moved "$dir/cuda_zero1" cuda $most 3 "$dir/cuda_zero1_zero3" || return
  moved "$dir/cuda" cpu 1 3 "$dir/cuda_cpu" || return
  moved "$dir/cuda" cpu 4 1 "$dir/cuda_cpu_zero1" || return
  moved "$dir/cpu" cuda $most 3 "$dir/cpu_cuda" || return
  moved "$dir/cpu_cuda" cpu 2 3 "$dir/cpu_cuda_cpu" || return
  [ $most -ge 2 ] || return 0
  states hosts 4 3 --save "$dir/hosts" || return
  moved "$dir/hosts" cuda 2 3 "$dir/hosts_2" || return
  moved "$dir/hosts" cuda 1 1 "$dir/hosts_1" || return
  moved "$dir/hosts_1" hosts 4 3 "$dir/hosts_1_hosts"
}

# hosts: four ranks, of which GPUs have two each if there are no more.
states() {  # cuda|cpu|hosts RANKS STRATEGY ARGUMENTS...
  local backend=$1 ranks=$2 place=--nproc
  local run=(--strategy "$3" --seq-len 128 --global-batch 4 --steps 3 "${@:4}")
  if [ "$backend" = hosts ]; then
    on_two_hosts "$out/states/log" "${run[@]}"
    [ "$(cat "$out/states/log/code")" = "0 0" ] && return
  else
    [ "$backend" = cuda ] || place=--world-size
    timeout 100 "$exec_tool" --backend "$backend" $place "$ranks" --no-save --model llama_tiny --data "$text" \
      "${run[@]}" > "$out/states.log" && return
  fi
  echo "states: $* failed"
  return 1
}

moved() {  # FROM BACKEND RANKS STRATEGY TO
  states "$2" "$3" "$4" --resume "$1" --save "$5" && "$here/compare/states.py" "$1" "$5"
}

# What --gpu says is the prediction; clipping is on by default.
stage_F() {
  local counter=$tests/libmfsdp_count_allocations.so db=$out/speed.sqlite
  local model=llama3_8b
  [ "$gpus" -ge 2 ] || model=llama3_1b
  rm -f "$out/allocations.txt" "$db"
  [ -f "$counter" ] || { echo "$counter is not built"; return 1; }
  MFSDP_ALLOCATIONS=$out/allocations.txt MFSDP_STEP_END=report.d2h LD_PRELOAD=$counter \
    NVTX_INJECTION64_PATH=$counter timeout 440 "$exec_tool" --backend cuda --nproc "$gpus" --gpu h200 \
    --model $model --seq-len 8192 --micro-batch 1 --recompute selective --data "$text" --steps 25 \
    --gemm-search on --db "$db" "${more[@]}" > "$out/speed.txt"
  local code=$?
  cat "$out/speed.txt"
  [ $code -eq 0 ] || return $code
  local wrong=0
  judge_speed "$out/speed.txt" || wrong=1
  judge_allocations "$out/allocations.txt" || wrong=1
  "$verify_tool" --run "$db:latest" || { echo "WRONG: mfsdp-verify --run"; wrong=1; }
  return $wrong
}

# The goal of speed is one for four H200 at least.
judge_speed() {
  python3 - "$1" "$gpus" "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)" <<'PYTHON'
import re, statistics, sys
text, gpus, name = open(sys.argv[1]).read(), int(sys.argv[2]), sys.argv[3]
number = lambda s: float(s.replace(",", ""))
steps = [(int(a), float(b), number(c)) for a, b, c in
         re.findall(r"^step:\s+(\d+)\s+loss:\s+(\S+).*?tflops:\s+([\d.,]+)", text, re.M)]
rows = {a.strip(): (int(number(b)), int(number(c))) for a, b, c in
        re.findall(r"^([a-z0-9_ ]+?)\s{2,}([\d,]+)\s+([\d,]+)\s+-?[\d,]+\s*$", text, re.M)}
wrong = []
def judge(right, line):
    print(line)
    if not right: wrong.append(line)
losses = [loss for _, loss, _ in steps]
judge([n for n, _, _ in steps] == list(range(1, 26)), f"{len(steps)} steps, expected 25")
if len(steps) >= 20:
    rate = statistics.median(t for _, _, t in steps[-20:])
    judge(rate >= 480 or gpus < 4 or "H200" not in name,
          f"{rate:.1f} TFLOP/s per GPU, median of 20 steps, {gpus} {name} (goal: 480 on 4 H200)")
    judge(statistics.mean(losses[-5:]) < losses[0], f"loss {losses[0]}, at last {losses[-5:]}")
predicted, measured = rows.get("runtime", (0, 0))
share = measured / predicted - 1 if predicted else float("nan")
judge(abs(share) <= 0.1 and measured <= 3 << 30,
      f"runtime: {predicted / 2**30:.3f} GiB predicted, {measured / 2**30:.3f} measured, {share:+.1%}")
other = {row: pair for row, pair in rows.items() if row != "runtime" and pair[0] != pair[1]}
judge(any(row.startswith("pool ") for row in rows) and not other,
      f"{len(rows)} rows of memory, different from the plan beside runtime: {other}")
for line in wrong: print("WRONG:", line)
sys.exit(1 if wrong else 0)
PYTHON
}

# Each line: process, steps issued, function, bytes. A rank's second step begins where one is issued.
judge_allocations() {
  python3 - "$1" "$gpus" <<'PYTHON'
import collections, sys
lines = [line.split() for line in open(sys.argv[1])]
steps = collections.Counter(line[0] for line in lines if line[2] == "step_end")
calls = [line for line in lines if line[2] != "step_end"]
late = [line for line in calls if line[1] != "0"]
print(f"device memory was asked for {len(calls)} times by {len(steps)} ranks, {len(late)} times from step 2 on")
for line in late[:10]: print(f"process {line[0]}, step {int(line[1]) + 1}: {line[2]} of {line[3]} bytes")
whole = len(steps) == int(sys.argv[2]) and set(steps.values()) == {25} and calls
if not whole: print(f"WRONG: expected calls, and 25 steps of each of {sys.argv[2]} ranks, got {dict(steps)}")
sys.exit(1 if late or not whole else 0)
PYTHON
}

# Two hosts of two ranks: what has another NCCL_HOSTID is reached by the network. Four GPUs are two
# pairs; of two each is in both hosts, where two processes take turns on it. Layouts of one class have
# the same bits, with --exact-sums all of a batch.
hosts_runs() {
  cat <<'RUNS'
flat, all-reduce|--strategy 0 --global-batch 4
flat, all-reduce|--strategy 0 --global-batch 4 --recompute full --allocator trace_pool
flat, reduce-scatter|--strategy 1 --global-batch 4
flat, reduce-scatter|--strategy 2 --global-batch 4
flat, reduce-scatter|--strategy 3 --global-batch 4
flat, reduce-scatter|--strategy 3 --global-batch 4 --recompute full --prefetch 2 --grad-slots 3 --allocator trace_pool
flat, 3 microbatches|--strategy 2 --global-batch 12
flat, 3 microbatches|--strategy 3 --global-batch 12 --recompute none --prefetch 0 --allocator double_buffer
HSDP|--outer-dp 2 --strategy 2 --global-batch 4
HSDP|--outer-dp 2 --strategy 3 --global-batch 4 --allocator temporary
HSDP, 3 microbatches|--outer-dp 2 --strategy 2 --global-batch 12
HSDP, 3 microbatches|--outer-dp 2 --strategy 3 --global-batch 12 --recompute full
HFSDP|--outer-dp 2 --outer-strategy optim --strategy 3 --global-batch 4
HFSDP|--outer-dp 2 --outer-strategy optim --strategy 3 --global-batch 4 --prefetch 0 --grad-slots 3
exact sums|--exact-sums --strategy 0 --global-batch 12
exact sums|--exact-sums --strategy 1 --global-batch 12 --micro-batch 3
exact sums|--exact-sums --strategy 2 --global-batch 12
exact sums|--exact-sums --strategy 3 --global-batch 12 --micro-batch 3
exact sums|--exact-sums --strategy 3 --global-batch 12 --layout megatron_fsdp
exact sums|--exact-sums --outer-dp 2 --strategy 3 --global-batch 12
exact sums|--exact-sums --outer-dp 2 --outer-strategy optim --strategy 3 --global-batch 12 --micro-batch 3
RUNS
}

on_two_hosts() {  # FOLDER ARGUMENTS...
  local dir=$1 port=$((21000 + RANDOM % 8000)) second=0,1
  shift
  [ "$gpus" -ge 4 ] && second=2,3
  local MFSDP_SECRET  # of both hosts
  MFSDP_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
  export MFSDP_SECRET
  local run=(timeout 120 "$exec_tool" --backend cuda --nproc 2 --nnodes 2 --master "127.0.0.1:$port" --no-save
    --deterministic --deadline 60 --model llama_tiny --data "$text" --output jsonl "$@")
  mkdir -p "$dir"
  NCCL_HOSTID=b CUDA_VISIBLE_DEVICES=$second "${run[@]}" --node-rank 1 > "$dir/second" 2>&1 &
  NCCL_HOSTID=a CUDA_VISIBLE_DEVICES=0,1 NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$dir/nccl.%p" \
    "${run[@]}" --node-rank 0 > "$dir/steps.jsonl" 2> "$dir/errors"
  local code=$?
  wait $!
  echo "$code $?" > "$dir/code"
}

# Every layout as it is and, with --flags, once more with these: a run's folder, its class and flags, what is added.
hosts_trainings() {
  local name flags number=0
  hosts_runs | while IFS='|' read -r name flags; do
    echo "${plain:-$out}/hosts/plain$number|$name|$flags|"
    [ ${#more[@]} -eq 0 ] || echo "$out/hosts/flags$number|$name|$flags|${more[*]}"
    number=$((number + 1))
  done
}

# Those that ended well are not run again.
stage_G() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  local folder name flags added
  hosts_trainings > "$out/hosts_trainings"
  while IFS='|' read -r folder name flags added; do
    [ "$(cat "$folder/code" 2> /dev/null)" != "0 0" ] || continue
    rm -rf "$folder"
    mkdir -p "$folder"
    while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
    # shellcheck disable=SC2086
    on_two_hosts "$folder" --steps 6 $flags $added < /dev/null &
  done < "$out/hosts_trainings"
  wait
  python3 - "$out/hosts_trainings" <<'PYTHON'
import glob, json, sys
classes, wrong, refused, with_flags = {}, [], [], 0
for training in open(sys.argv[1]):
    at, name, flags, added = training.rstrip("\n").split("|")
    lines = [json.loads(line) for line in open(f"{at}/steps.jsonl") if line.startswith("{")]
    steps = tuple((l["grad_norm"],) if name == "exact sums" else (l["loss"], l["grad_norm"])
                  for l in lines if l.get("event") == "step")
    logs = "".join(open(log, errors="replace").read() for log in glob.glob(f"{at}/nccl.*"))
    first, second = open(f"{at}/code").read().split()
    errors = [line for line in open(f"{at}/errors") if "mfsdp-exec: " in line]
    windows = [line for line in errors
               if "reaches the GPUs of one host" in line or "NCCL would not go by" in line]
    if added and not steps and errors and (first == second == "2" or windows):
        refused.append(f"left out: {name}, {flags}: {(windows or errors)[0].strip()}")
    elif (first, second) != ("0", "0") or len(steps) != 6:
        wrong.append(f"{name} {flags} failed: {at}/errors")
    elif "via NET" not in logs:
        wrong.append(f"{name} {flags}: {at}: NCCL did not speak of the network between the hosts")
    else:
        classes.setdefault(name, []).append(steps)
        with_flags += bool(added)
if refused:
    print("\n".join(refused))
    print(f"{with_flags} layouts with the flags")
    if not with_flags: wrong.append("no layout takes the flags")
for name, runs in classes.items():
    print(f"{name:22} {len(runs)} layouts, {len(set(runs))} results")
    if len(set(runs)) != 1:
        wrong.append(f"{name}: results differ")
print("\n".join(wrong) if wrong else "one result in each class")
sys.exit(1 if wrong else 0)
PYTHON
}

# Each says which source of ranks has won.
stage_H() {
  local ranks=$((gpus >= 2 ? 2 : 1)) ran=0 wrong=0
  local run=("$exec_tool" --backend cuda --no-save --model llama_tiny --data "$text" --steps 5)
  if python3 -c 'import torch.distributed.run' 2> /dev/null; then
    ran=1
    timeout 100 python3 -m torch.distributed.run --standalone --nproc-per-node $ranks --no-python \
      "${run[@]}" > "$out/torchrun.log" 2>&1 && grep 'started by' "$out/torchrun.log" || wrong=1
  fi
  if command -v mpirun > /dev/null; then
    ran=1
    timeout 100 mpirun --allow-run-as-root --oversubscribe -np $ranks "${run[@]}" > "$out/mpirun.log" 2>&1 &&
      grep 'started by' "$out/mpirun.log" || wrong=1
  fi
  [ $ran -eq 1 ] || { echo "neither torchrun nor mpirun is here"; return 77; }
  return $wrong
}

# NCCL asks CUDA for kernels that it has no code for, and goes by what it is told: no errors of ours.
stage_I() {
  local tool
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -1)
  [ -n "$tool" ] || { echo "needs compute-sanitizer"; return 77; }
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  timeout $limit "$tool" --tool memcheck --target-processes all --report-api-errors no --error-exitcode 1 \
    "$exec_tool" --backend cuda --nproc 2 --no-save --deadline 140 --gemm-search off \
    --model "$here/compare/small_llama.json" --data synthetic --seq-len 256 --micro-batch 1 --global-batch 2 \
    --steps 2 "${more[@]}"
}

declare -A results
for stage in ${stages//,/ }; do
  case "$stage" in [A-I]) ;; *) echo "check.sh: there is no stage $stage" >&2; exit 2 ;; esac
  log=$out/$stage.log
  if [ -f "$out/$stage.passed" ]; then
    results[$stage]="passed before"
    continue
  fi
  echo "== stage $stage"
  begin=$(date +%s)
  "stage_$stage" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  took=$(($(date +%s) - begin))
  case $code in
    0) results[$stage]="passed in $took s"; touch "$out/$stage.passed" ;;
    77) results[$stage]="skipped: $(tail -1 "$log")" ;;
    *) results[$stage]="FAILED ($code) after $took s: $log" ;;
  esac
done

echo
echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)"
failed=0
for stage in ${stages//,/ }; do
  echo "stage $stage  ${results[$stage]}"
  [[ ${results[$stage]} == FAILED* ]] && failed=1
done
exit $failed
