#!/usr/bin/env bash
# Compares mfsdp-exec on GPUs with PyTorch and transformers, in stages of less than eight minutes.
#
#   gpu_backend/compare/run.sh --build DIR [--out DIR] [--stage gradients,tiny,1b,speed] [--steps N]
#
# --build: a build with CUDA; nothing is built here. --out (default gpu_compare): logs and losses.
# Needs python3 with torch, transformers and safetensors.
#
#   gradients  one step of a model of two layers and of llama3_1b, against fp64
#   tiny       300 steps (--steps) of llama_tiny against FSDP2 in four reduction orders
#   1b         300 steps of llama3_1b likewise
#   speed      Llama-3-8B (llama3_1b on one GPU) and FSDP2, compiled and not, on the same GPUs
#
# A run that is complete in --out is not run again, so that a stage which ran out of time goes on
# when it is called again. Exit code 0: all stages passed; 1: one failed or is not done; 2: a wrong
# flag.
set -u

here=$(cd "$(dirname "$0")" && pwd)
text=$here/../../scenarios/texts/jargon.txt
build=""
out=gpu_compare
stages=gradients,tiny,1b,speed
steps=300
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:-}; shift 2 || exit 2 ;;
    --out) out=${2:-}; shift 2 || exit 2 ;;
    --stage) stages=${2:-}; shift 2 || exit 2 ;;
    --steps) steps=${2:-}; shift 2 || exit 2 ;;
    *) echo "run.sh: $1 is no flag: expected --build DIR, --out DIR, --stage gradients,tiny,1b,speed or --steps N" >&2
       exit 2 ;;
  esac
done
exec_tool=$build/gpu_backend/mfsdp-exec
if [ ! -x "$exec_tool" ]; then
  echo "run.sh: --build: expected a folder with gpu_backend/mfsdp-exec, got \"$build\"" >&2
  exit 2
fi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -ge 1 ] || { echo "run.sh: expected a GPU" >&2; exit 1; }
all_gpus=$gpus
[ "$gpus" -le 2 ] || gpus=2  # what the batches below divide by
mkdir -p "$out"
work=$(mktemp -d)  # exports and saves: gigabytes that nobody needs afterwards
trap 'rm -rf "$work"' EXIT
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-EAGER} TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
longest=240  # seconds of one run
latest=230   # seconds of a stage after which no further run begins

train() {  # RANKS ARGUMENTS...
  local ranks=$1
  shift
  timeout $longest "$exec_tool" --backend cuda --nproc "$ranks" --no-save "$@"
}

keep_weights="--steps 1 --lr 0 --min-lr 0 --warmup 0"

# One step whose gradient stays in the first moment, then both sides' errors.
compare_gradients() {  # MODEL VOCABULARY SEQUENCE
  local at=$work/gradients
  rm -rf "$at"
  mkdir -p "$at"
  echo "-- gradients of $1, $3 tokens"
  python3 "$here/gradients.py" --make-tokens "$at/tokens.bin" --vocab "$2" --sequence "$3" || return
  # shellcheck disable=SC2086
  train 1 --model "$1" --seq-len "$3" --logits-chunk "$3" --data "$at/tokens.bin" $keep_weights \
    --beta1 0 --clip 0 --eval-data "$at/tokens.bin" --eval-every 1 --eval-batches 1 \
    --logits "$at/logits.safetensors" --export "$at/export" --save "$at/saves" > "$at/log" 2>&1 ||
    { cat "$at/log"; return 1; }
  grep -h '^step:' "$at/log"
  timeout $longest python3 "$here/gradients.py" --device cuda --export "$at/export" \
    --state "$at/saves/latest" --logits "$at/logits.safetensors" --tokens "$at/tokens.bin"
}

stage_gradients() {
  local code=0
  compare_gradients "$here/two_layers.json" 1024 512 || code=1
  compare_gradients llama3_1b 128256 1024 || code=1
  return $code
}

is_complete() {  # FILE
  [ -f "$1" ] && [ "$(grep -c '"event": *"step"' "$1")" -eq $steps ]
}

# Same weights, samples and settings on both sides; what is not named here has mfsdp-exec's default.
compare_training() {  # MODEL SEQUENCE GLOBAL_BATCH MICRO_BATCH LEARNING_RATE WARMUP
  local begin=$SECONDS ours=$out/$1.ours.jsonl weights=$work/$1 references=() variant file
  echo "-- $steps steps of $1, $3 x $2 tokens each, on $gpus GPUs"
  # shellcheck disable=SC2086
  train 1 --model "$1" --seq-len "$2" --data "$text" $keep_weights --export "$weights" \
    > "$work/log" 2>&1 || { cat "$work/log"; return 1; }
  if ! is_complete "$ours"; then
    train "$gpus" --model "$1" --seq-len "$2" --global-batch "$3" --micro-batch "$4" --data "$text" \
      --lr "$5" --warmup "$6" --steps $steps --init-from "$weights" --output jsonl > "$ours" || return
    echo "mfsdp-exec: done after $((SECONDS - begin)) s"
  fi
  for variant in 0 1 2 3; do
    file=$out/$1.variant$variant.jsonl
    references+=("$file")
    if is_complete "$file"; then continue; fi
    [ $((SECONDS - begin)) -le $latest ] || { echo "not done: call again for the rest"; return 1; }
    timeout $longest python3 -m torch.distributed.run --nproc-per-node "$gpus" \
      --master-addr 127.0.0.1 --master-port $((29500 + variant)) \
      "$here/train_fsdp2.py" --init-from "$weights" --data "$text" --sequence "$2" \
      --global-batch "$3" --micro-batch "$4" --lr "$5" --warmup "$6" --steps $steps \
      --variant $variant > "$file" || return
    echo "variant $variant: done after $((SECONDS - begin)) s"
  done
  python3 "$here/bands.py" "$ours" "${references[@]}"
}

stage_tiny() { compare_training llama_tiny 512 8 4 3e-4 30; }
# A fresh model of this size jumps in its first steps, and FSDP2's own reduction orders part: a norm by
# 8 % at 3e-4 behind 30 steps of warm-up, by 4 % at 3e-5. So it warms up all the way.
stage_1b() { compare_training llama3_1b 1024 4 2 3e-5 300; }

# One after the other, as each wants the whole power of the GPUs.
stage_speed() {
  local model=llama3_8b run=("$here/speed_fsdp2.py" --sequence 8192) code=0 how
  [ "$all_gpus" -ge 2 ] || model=llama3_1b
  echo "-- $model, one sequence of 8192 a GPU, $all_gpus GPUs"
  train "$all_gpus" --model $model --gpu h200 --seq-len 8192 --data synthetic --steps 25 --gemm-search on \
    --output jsonl > "$out/speed.ours.jsonl" || return
  python3 - "$out/speed.ours.jsonl" <<'PYTHON'
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
rates = [s["tokens_per_second_per_gpu"] for s in steps if s.get("event") == "step"][-20:]
rate = statistics.median(rates)
print(json.dumps({"mfsdp": True, "step_ms": round(8192e3 / rate, 2), "tokens_per_s_per_gpu": round(rate, 1)}))
PYTHON
  for how in "--compile" "--compile --reduce bfloat16" ""; do
    # shellcheck disable=SC2086
    timeout $longest python3 -m torch.distributed.run --standalone --nproc-per-node "$all_gpus" \
      "${run[@]}" --model "$here/../../scenarios/models/$model/config.json" $how 2> "$out/speed.log" |
      grep '^{' || { echo "FSDP2 $how failed: $out/speed.log"; code=1; }
  done
  return $code
}

declare -A results
failed=0
for stage in ${stages//,/ }; do
  case "$stage" in gradients | tiny | 1b | speed) ;; *) echo "run.sh: there is no stage $stage" >&2; exit 2 ;; esac
  echo "== stage $stage"
  begin=$SECONDS
  "stage_$stage" 2>&1 | tee "$out/$stage.log"
  if [ "${PIPESTATUS[0]}" -eq 0 ]; then
    results[$stage]="passed in $((SECONDS - begin)) s"
  else
    results[$stage]="FAILED after $((SECONDS - begin)) s: $out/$stage.log"
    failed=1
  fi
done

echo
echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)"
for stage in ${stages//,/ }; do echo "stage $stage  ${results[$stage]}"; done
exit $failed
