#!/usr/bin/env bash
# All tests and measurements that need GPUs, in stages of less than eight minutes each.
#
#   gpu_backend/check.sh --build DIR [--out DIR] [--stage A,B,...]
#
# --build: a build with CUDA (cmake --workflow --preset gpu); nothing is built here. --out (default
# gpu_check): logs and results. A stage that has passed is not run again; a table of all stages stands
# at the end. Stages that need more GPUs than there are, or programs that are not built, are skipped.
#
#   A  kernels, products and attention against fp64        B  the backend on one GPU
#   C  two GPUs: strategies, delays, poison, bits          D  ranks killed and stopped in every phase
#   E  save and resume                                     F  Llama-3-8B: speed, memory, allocations
#
# Exit code 0: all stages that could run passed; 1: one failed; 2: a wrong flag.
set -u

build=""
out=gpu_check
stages=A,B,C,D,E,F
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:-}; shift 2 || exit 2 ;;
    --out) out=${2:-}; shift 2 || exit 2 ;;
    --stage) stages=${2:-}; shift 2 || exit 2 ;;
    *) echo "check.sh: $1 is no flag: expected --build DIR, --out DIR or --stage A,B,..." >&2; exit 2 ;;
  esac
done
if [ ! -x "$build/gpu_backend/mfsdp-exec" ]; then
  echo "check.sh: --build: expected a folder with gpu_backend/mfsdp-exec, got \"$build\"" >&2
  exit 2
fi
exec_tool=$build/gpu_backend/mfsdp-exec
verify_tool=$build/verify/mfsdp-verify
tests=$build/tests
text=$(dirname "$0")/../scenarios/texts/jargon.txt
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

stage_A() { device_tests '-CudaBackendTest.*'; }

stage_B() {
  device_tests 'CudaBackendTest.*-*TwoGpus*:*OfAClass*' || return
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

stage_C() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  device_tests 'CudaBackendTest.*' || return
  for strategy in 0 1 2 3; do
    train 2 --model llama_tiny --data "$text" --steps 20 --strategy $strategy --deterministic \
      --poison --chaos $((strategy + 1)) --output jsonl > "$out/chaos$strategy.jsonl" || return
    train 2 --model llama_tiny --data "$text" --steps 20 --strategy $strategy --deterministic \
      --output jsonl > "$out/plain$strategy.jsonl" || return
    same_steps "$out/chaos$strategy.jsonl" "$out/plain$strategy.jsonl" || return
  done
  same_steps "$out/plain2.jsonl" "$out/plain3.jsonl" && same_steps "$out/plain0.jsonl" "$out/plain1.jsonl"
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

# Each must end with exit code 3, within 30 seconds of the fault, and leave no process behind.
stage_D() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  local wrong=0 fault begin code took
  for fault in kill:1:layers.0.qkv:3 kill:0:layers.0.qkv:3 kill:1:layers.1.adamw:2 \
    kill:1:embedding.all_gather:2 fail:1:layers.1.qkv:3 stop:1:layers.0.qkv:3; do
    begin=$(date +%s)
    timeout 90 "$exec_tool" --backend cuda --nproc 2 --no-save --deadline 10 --model llama_tiny \
      --data "$text" --steps 2000 --fault "$fault" > "$out/fault.log" 2>&1
    code=$?
    took=$(($(date +%s) - begin))
    echo "$fault: exit $code after ${took} s, start included: $(tail -1 "$out/fault.log")"
    [ $code -eq 3 ] && [ $took -le 60 ] || wrong=1
  done
  sleep 1
  if pgrep -x mfsdp-exec > /dev/null; then echo "processes are left"; wrong=1; fi
  return $wrong
}

stage_E() {
  "$exec_tool" --help | grep -q -- --resume || { echo "this build has no --resume"; return 77; }
  local dir=$out/saved ranks=$((gpus >= 2 ? 2 : 1))
  rm -rf "$dir"
  train $ranks --model llama_tiny --data "$text" --steps 20 --deterministic --output jsonl \
    > "$out/whole.jsonl" || return
  train $ranks --model llama_tiny --data "$text" --steps 20 --deterministic --save "$dir" --save-every 10 \
    --output jsonl > "$out/saving.jsonl" || return
  same_steps "$out/whole.jsonl" "$out/saving.jsonl" || return
  train $ranks --model llama_tiny --data "$text" --steps 20 --deterministic --resume "$dir" \
    --output jsonl > "$out/resumed.jsonl"
}

stage_F() {
  local counter=$tests/libmfsdp_count_allocations.so db=$out/speed.sqlite
  local model=llama3_8b
  [ "$gpus" -ge 4 ] || model=llama3_1b
  rm -f "$out/allocations.txt" "$db"
  [ -f "$counter" ] || counter=""
  MFSDP_ALLOCATIONS=$out/allocations.txt LD_PRELOAD=$counter timeout $limit "$exec_tool" \
    --backend cuda --nproc "$gpus" --gpu h200 --model $model --seq-len 8192 --data synthetic --steps 25 \
    --gemm-search on --db "$db" || return
  if [ -f "$out/allocations.txt" ]; then
    echo "device memory was asked for $(wc -l < "$out/allocations.txt") times, by all ranks"
  fi
  [ -x "$verify_tool" ] && "$verify_tool" --run "$db:latest"
}

declare -A results
for stage in ${stages//,/ }; do
  case "$stage" in [A-F]) ;; *) echo "check.sh: there is no stage $stage" >&2; exit 2 ;; esac
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
