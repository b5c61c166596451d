#!/usr/bin/env bash
# Stages of check.sh with each option of collectives alone, and with all of them together.
#
#   gpu_backend/options.sh --build DIR [--out DIR] [--stage C,D,G,I] [--limit SECONDS]
#
# --out (default gpu_options) has a folder for each option. What has passed there is not run again, and no stage, of
# eight minutes at most, is begun after --limit (480) seconds: call again until the table at the end is full. C, D and I
# run on pairs of GPUs, C and I three options at a time; G has all GPUs, an option at a time. Device memory is looked
# at behind all of D. A, B, E, F and H run where --stage names them, with all options together.
#
# Exit code 0: all passed; 1: some failed or are left; 2: a wrong flag.
set -u

build=""
out=gpu_options
stages=C,D,G,I
limit=480
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:-}; shift 2 || exit 2 ;;
    --out) out=${2:-}; shift 2 || exit 2 ;;
    --stage) stages=${2:-}; shift 2 || exit 2 ;;
    --limit) limit=${2:-}; shift 2 || exit 2 ;;
    *) echo "options.sh: $1 is no flag: expected --build DIR, --out DIR, --stage C,D,... or --limit SECONDS" >&2
       exit 2 ;;
  esac
done
if [ ! -x "$build/gpu_backend/mfsdp-exec" ]; then
  echo "options.sh: --build: expected a folder with gpu_backend/mfsdp-exec, got \"$build\"" >&2
  exit 2
fi
[[ $limit =~ ^[0-9]+$ ]] || { echo "options.sh: --limit: expected seconds, got \"$limit\"" >&2; exit 2; }
[[ $stages =~ ^[A-I](,[A-I])*$ ]] || { echo "options.sh: --stage: expected A to I, got \"$stages\"" >&2; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
alone=("--gather copy_engine" "--gather symmetric" "--reduce copy_engine" "--reduce symmetric"
       "--placement attention" "--placement gathers" "--placement after_attention" "--keep-gathered 1")
all="--gather copy_engine --reduce symmetric --placement attention --keep-gathered 1"
visible=${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | paste -sd,)}
IFS=, read -ra devices <<< "$visible"
mkdir -p "$out"

folder_of() { echo "$out/$(tr -d '-' <<< "$1" | tr ' ' '_')"; }

options_of() {  # STAGE
  case "$1" in
    C|D|G|I) printf '%s\n' "${alone[@]}" "$all" ;;
    *) echo "$all" ;;
  esac
}

# What is left of a stage, one after the other. Every worker takes what none has taken in this call.
work() {  # STAGE VISIBLE BUILD
  local option folder
  while IFS= read -r option; do
    folder=$(folder_of "$option")
    [ "$SECONDS" -lt "$limit" ] || break
    [ ! -e "$folder/$1.passed" ] || continue
    mkdir "$taken/$1 ${folder##*/}" 2> /dev/null || continue
    mkdir -p "$folder"
    CUDA_VISIBLE_DEVICES=$2 "$here/check.sh" --build "$3" --out "$folder" --stage "$1" --flags "$option" \
      --plain "$out" --shared > "$folder/$1.out" 2>&1
    echo "$option, $(tail -1 "$folder/$1.out")"
  done < <(options_of "$1")
}

# kills.py finds a run's processes by their program.
own_build() {  # NAME
  mkdir -p "$taken/$1/gpu_backend"
  cp "$build/gpu_backend/mfsdp-exec" "$taken/$1/gpu_backend"
  echo "$taken/$1"
}

work_on_pairs() {  # STAGE WORKERS
  local pair i
  for ((pair = 0; pair + 1 < ${#devices[@]}; pair += 2)); do
    for ((i = 0; i < $2; ++i)); do
      work "$1" "${devices[pair]},${devices[pair + 1]}" "$(own_build "$1$pair.$i")" < /dev/null &
    done
  done
  wait
}

# MiB in use on each GPU.
memory_in_use() {
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id="$visible" | paste -sd' '
}

# The driver frees memory a moment after a process has ended.
memory_is_free() {  # MEMORY_BEFORE
  local now
  for _ in {1..10}; do
    now=$(memory_in_use)
    awk -v a="$1" -v b="$now" 'BEGIN { n = split(a, x); split(b, y)
                                      for (i = 1; i <= n; ++i) if (y[i] > x[i] + 64) exit 1 }' && return
    sleep 1
  done
  echo "WRONG: $now MiB in use on the GPUs behind stage D, $1 before"
  return 1
}

taken=$(mktemp -d)
trap 'rm -rf "$taken"' EXIT
left=0
for stage in ${stages//,/ }; do
  case "$stage" in
    C|I) work_on_pairs "$stage" 3 ;;
    D) before=$(memory_in_use)
       work_on_pairs D 1  # while a run with windows ends the driver holds others up, beyond their deadline
       memory_is_free "$before" || left=1 ;;
    G) # what all options are held to
       CUDA_VISIBLE_DEVICES=$visible "$here/check.sh" --build "$build" --out "$out" --stage G > "$out/G.out" 2>&1
       echo "plain, $(tail -1 "$out/G.out")"
       work G "$visible" "$build" ;;  # four runs share the GPUs already
    *) work "$stage" "$visible" "$build" ;;
  esac
done

echo
for stage in ${stages//,/ }; do
  while IFS= read -r option; do
    folder=$(folder_of "$option")
    state="not run"
    [ ! -e "$folder/$stage.out" ] || state=$(tail -1 "$folder/$stage.out")
    [ ! -e "$folder/$stage.passed" ] || state="passed"
    [ "$state" = passed ] || left=1
    echo "$stage  $option: ${state#stage "$stage"  }"
  done < <(options_of "$stage")
done
exit $left
