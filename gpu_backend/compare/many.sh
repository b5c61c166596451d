#!/usr/bin/env bash
# All GPUs of one host, 1, 2, 4 or 8: Llama-3-8B beside its prediction and beside PyTorch FSDP2, every strategy,
# ranks killed, experts, and whether recorded runs did what their plans say. In calls of less than ten minutes.
#
#   gpu_backend/compare/many.sh --build DIR [--out DIR] [--stage speed,classes,...] [--limit SECONDS]
#       [--rows s8192,...] [--ways fp32,...] [--gpus N] [--card h100|h200] [--steps N] [--search on|long] [--again]
#
# --build: a build with CUDA; nothing is built here. --out (default gpu_many): results of one number of GPUs.
# --limit (300): seconds of this call after which no further run begins. --gpus: of those there are (all; the
# next power of two below); --card: by which mfsdp-sim predicts (by the name that the driver gives).
# --steps (40): of a timed run, the first quarter of which is not counted. --search (on): mfsdp-exec's --gemm-search.
# --again: runs that failed are made again.
#
#   predict  the models that fit, and all predictions; needs no GPU, but --gpus and --card then
#   speed    each row in each way: mfsdp-exec, FSDP2 compiled, clocks and power beside both
#   classes  every strategy on all GPUs, --deterministic: one result in each class
#   checks   stages C, D and G of check.sh          kills   a rank killed in three phases, all GPUs
#   experts  a mixture of experts over all GPUs, where the build has its kernels
#   experts_speed  four layers of Qwen3-30B-A3B, experts gathered and dealt out: mfsdp-exec and speed_moe.py
#   verify   mfsdp-verify --run of every timed run
#
# rows: s8192 s4096 s2048 (sequences, one a GPU), b2 (two of 8192), m4 (four microbatches of 4096), full (8192, full
#       recomputation); of Llama-3.2-1B l1b (two of 8192); of Llama-3.2-3B l3b and l3b_m4 (4096, and four microbatches).
# ways: fp32 bf16 (the wire), and with faster transports fp32_copy fp32_symmetric copy symmetric (the last two bf16);
#       fp32_found found (bf16): what mfsdp-sim --find fastest says of this row, strategy and recomputation too;
#       fsdp2_fp32 fsdp2_bf16; fsdp2_kept_fp32 fsdp2_kept_bf16: weights stay gathered until backward (ZeRO-2).
#
# What is complete in --out is not made again. A model that is too large for the GPUs, of either engine, is
# cut to the most layers that fit, and its row says so. many_judge.py prints the table and which goals hold.
# Exit code 0: the stages are done and right; 1: one failed or is not done; 2: a wrong flag.
set -u

here=$(cd "$(dirname "$0")" && pwd)
text=$here/../../scenarios/texts/jargon.txt
build="" out=gpu_many stages=speed,classes,checks,kills,experts,experts_speed,verify
rows=s8192,s4096,s2048,b2,m4,full,l1b,l3b,l3b_m4
ways=fp32,fsdp2_fp32,bf16,fsdp2_bf16,copy,symmetric,fp32_copy,fp32_symmetric
limit=300 gpus="" card="" steps=40 search=on again=0
wrong_flag() { echo "many.sh: $1" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --again) again=1; shift; continue ;;
    --build | --out | --stage | --rows | --ways | --limit | --gpus | --card | --steps | --search)
      [ $# -ge 2 ] || wrong_flag "$1: expected a value" ;;
    *) wrong_flag "$1 is no flag: expected --build, --out, --stage, --rows, --ways, --limit, --gpus, --card, --steps, --search or --again" ;;
  esac
  case "$1" in
    --build) build=$2 ;; --out) out=$2 ;; --stage) stages=$2 ;; --rows) rows=$2 ;; --ways) ways=$2 ;;
    --limit) limit=$2 ;; --gpus) gpus=$2 ;; --card) card=$2 ;; --steps) steps=$2 ;;
    --search) search=$2 ;;
  esac
  shift 2
done
[[ $limit =~ ^[0-9]+$ ]] || wrong_flag "--limit: expected seconds, got \"$limit\""
[[ $steps =~ ^[0-9]+$ && $steps -ge 8 ]] || wrong_flag "--steps: expected 8 or more, got \"$steps\""
[[ $search =~ ^(on|long)$ ]] || wrong_flag "--search: expected on or long, got \"$search\""
[[ $gpus =~ ^[1248]?$ ]] || wrong_flag "--gpus: expected 1, 2, 4 or 8, got \"$gpus\""
for stage in ${stages//,/ }; do
  case "$stage" in predict | speed | classes | checks | kills | experts | experts_speed | verify) ;;
    *) wrong_flag "--stage: there is no stage $stage" ;; esac
done
for row in ${rows//,/ }; do
  case "$row" in s8192 | s4096 | s2048 | b2 | m4 | full | l1b | l3b | l3b_m4) ;; *) wrong_flag "--rows: there is no row $row" ;; esac
done
for way in ${ways//,/ }; do
  case "$way" in fp32 | bf16 | copy | symmetric | found | fp32_copy | fp32_symmetric | fp32_found) ;;
    fsdp2_fp32 | fsdp2_bf16 | fsdp2_kept_fp32 | fsdp2_kept_bf16) ;;
    *) wrong_flag "--ways: there is no way $way" ;; esac
done
exec_tool=$build/gpu_backend/mfsdp-exec
sim_tool=$build/sim/mfsdp-sim
verify_tool=$build/verify/mfsdp-verify
for tool in "$exec_tool" "$sim_tool" "$verify_tool"; do
  [ -x "$tool" ] || wrong_flag "--build: expected a folder with gpu_backend/mfsdp-exec, sim/mfsdp-sim and verify/mfsdp-verify, got \"$build\""
done
export TZ=UTC CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-EAGER} TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1

there=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ -z "$gpus" ]; then
  for gpus in 8 4 2 1; do [ "$there" -lt $gpus ] || break; done
fi
if [ -z "$card" ]; then
  case "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)" in
    *H200*) card=h200 ;; *H100*) card=h100 ;;
    *) wrong_flag "--card: expected h100 or h200, as the driver names neither" ;;
  esac
fi
if [ "$stages" != predict ] && [ "$there" -lt "$gpus" ]; then
  echo "many.sh: expected $gpus GPUs, there are $there" >&2
  exit 1
fi
mkdir -p "$out"
if [ -f "$out/machine" ]; then
  [ "$(cat "$out/machine")" = "$gpus $card" ] ||
    wrong_flag "--out: $out has results of $(cat "$out/machine"), expected another folder for $gpus $card"
else
  echo "$gpus $card" > "$out/machine"
fi
out=$(cd "$out" && pwd)
if [ "$there" -gt 0 ]; then
  nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader | head -"$gpus" > "$out/cards"
  cards=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -"$gpus" | tr '\n' ' ')
fi
call=$(date +%Y-%m-%dT%H:%M:%S)-$$
call_ends=590  # seconds; the call has ten minutes
has_torch=$(python3 -c 'import torch, transformers; print(1)' 2> /dev/null || echo 0)
# shellcheck source=gpu_backend/compare/many_parts.sh
. "$here/many_parts.sh"

declare -A results
failed=0
for stage in ${stages//,/ }; do
  echo "== stage $stage, $gpus $card"
  begin=$SECONDS
  "stage_$stage" 2>&1 | tee "$out/$stage.log"
  code=${PIPESTATUS[0]}
  case $code in
    0) results[$stage]="done, $((SECONDS - begin)) s of this call" ;;
    75) results[$stage]="NOT DONE: call again for the rest"; failed=1 ;;
    77) results[$stage]="skipped: $(tail -1 "$out/$stage.log")" ;;
    *) results[$stage]="FAILED: $out/$stage.log"; failed=1 ;;
  esac
done
echo
python3 "$here/many_judge.py" "$out"
echo
for stage in ${stages//,/ }; do echo "stage $stage  ${results[$stage]}"; done
exit $failed
