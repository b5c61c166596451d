# shellcheck shell=bash
# The stages of many.sh, which sources this. They return 0: right; 1: wrong; 75: not done; 77: nothing could run,
# and the last line says why. A run's folder has `done` or `failed` at its end, so that the next call knows.
# shellcheck disable=SC2154

may_begin() {  # SECONDS that it may take
  [ $SECONDS -le "$limit" ] && [ $((SECONDS + $1)) -le "$call_ends" ]
}
left() { echo $((call_ends - SECONDS)); }

# 0: to be made now; 1: it stands; 2: it failed and is not made again. FOLDER
is_open() {
  [ ! -f "$1/done" ] || return 1
  if [ -f "$1/failed" ]; then
    [ "$again" -eq 1 ] || return 2
  fi
  rm -f "$1/failed"
  mkdir -p "$1"
}

# ---- speed --------------------------------------------------------------------------------------

row_shape() {  # ROW: sequence, micro-batch, microbatches
  case "$1" in
    s8192) echo 8192 1 1 ;; s4096) echo 4096 1 1 ;; s2048) echo 2048 1 1 ;;
    b2 | l1b) echo 8192 2 1 ;; m4 | l3b_m4) echo 4096 1 4 ;;
    full) echo 8192 1 1 ;; l3b) echo 4096 1 1 ;;
  esac
}
row_model() {  # ROW, or moe: that of experts_speed
  case "$1" in l1b) echo llama3_1b ;; l3b*) echo llama3_3b ;; moe) echo qwen3_30b_a3b ;; *) echo llama3_8b ;; esac
}
row_flags() {  # ROW: of mfsdp-exec and mfsdp-sim alike
  [ "$1" != full ] || echo "--recompute full"
}

narrow="--reduce-dtype bf16 --grad-dtype bf16 --logits-chunk 8192"
by_copy="--gather copy_engine --reduce copy_engine --placement attention --prefetch 2"
by_symmetric="--gather copy_engine --reduce symmetric --placement attention --prefetch 2"
way_flags() {  # WAY: of mfsdp-exec and mfsdp-sim alike; those of FSDP2 of mfsdp-sim alone
  case "$1" in
    fp32 | fp32_found) ;; bf16 | found) echo "$narrow" ;;
    copy) echo "$narrow $by_copy" ;; symmetric) echo "$narrow $by_symmetric" ;;
    fp32_copy) echo "$by_copy" ;; fp32_symmetric) echo "$by_symmetric" ;;
    fsdp2_fp32) echo "--engine fsdp2-compile-loss" ;;
    fsdp2_bf16) echo "--engine fsdp2-compile-loss --reduce-dtype bf16" ;;
    fsdp2_kept_fp32) echo "--engine fsdp2-compile-loss --strategy optim_grads" ;;
    fsdp2_kept_bf16) echo "--engine fsdp2-compile-loss --strategy optim_grads --reduce-dtype bf16" ;;
  esac
}
is_found() { [[ $1 == *found ]]; }
needs_ranks() { [[ $1 == *copy || $1 == *symmetric ]] && [ "$gpus" -eq 1 ]; }

predict() {  # ROW WAY MODEL FLAGS...
  local sequence micro microbatches node=$gpus
  [ "$gpus" -ge 2 ] || node=8  # one GPU sends nothing, and a domain of one has no bandwidth to price by
  read -r sequence micro microbatches < <(row_shape "$1")
  # shellcheck disable=SC2046
  "$sim_tool" --model "$3" --seq-len "$sequence" --micro-batch "$micro" \
    --global-batch $((gpus * micro * microbatches)) --gpus "$gpus" --gpus-per-node "$node" --gpu "$card" \
    $(way_flags "$2") $(row_flags "$1") --no-save --output json "${@:4}"
}

whole_model() {  # ROW
  echo "$here/../../scenarios/models/$(row_model "$1")/config.json"
}

layers_of() {  # PATH of a model
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["num_hidden_layers"])' "$1"
}

cut_model() {  # ROW LAYERS: the path of the row's model with so many
  local folder
  folder=$out/models/$(row_model "$1")_$2_layers
  mkdir -p "$folder"
  python3 - "$(whole_model "$1")" "$2" "$folder/config.json" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
config["num_hidden_layers"] = int(sys.argv[2])
json.dump(config, open(sys.argv[3], "w"), indent=2)
PYTHON
  echo "$folder/config.json"
}

# Of a prediction: whether 2 GiB stay free, and PyTorch's allocator need not give memory back to go on.
fits_well() {  # FILE
  python3 - "$1" <<'PYTHON'
import json, sys
memory = json.load(open(sys.argv[1]))["memory"]
taken = max(memory["allocated_bytes"], memory.get("device_bytes", 0))
sys.exit(0 if taken + (2 << 30) <= memory["capacity_bytes"] and not memory.get("alloc_retries") else 1)
PYTHON
}

# In every way of mfsdp-exec, and in FSDP2 with what its allocator keeps: one model for all ways of a row.
fits() {  # ROW LAYERS
  local model way
  model=$(cut_model "$1" "$2")
  for way in fsdp2_fp32 fsdp2_bf16 fp32 bf16 copy symmetric fp32_copy fp32_symmetric; do
    if needs_ranks "$way"; then continue; fi
    predict "$1" "$way" "$model" > "$out/fits.json" || return 2
    fits_well "$out/fits.json" || return 1
  done
}

# row.json: what the row is of. The most layers that fit.
choose_model() {  # ROW
  local folder=$out/speed/$1 low=0 high middle whole sequence micro microbatches
  [ ! -f "$folder/row.json" ] || return 0
  mkdir -p "$folder"
  whole=$(layers_of "$(whole_model "$1")")
  middle=$whole high=$((whole + 1))
  while [ $((high - low)) -gt 1 ]; do
    fits "$1" "$middle"
    case $? in 0) low=$middle ;; 1) high=$middle ;; *) return 1 ;; esac
    middle=$(((low + high) / 2))
  done
  [ $low -ge 1 ] || { echo "$1: no layer of $(row_model "$1") fits $gpus $card"; return 1; }
  read -r sequence micro microbatches < <(row_shape "$1")
  printf '{"layers": %d, "of": %d, "sequence": %d, "micro_batch": %d, "microbatches": %d}\n' \
    $low "$whole" "$sequence" "$micro" "$microbatches" > "$folder/row.json"
  echo "$1: $low of $whole layers"
}

model_of() {  # ROW
  local layers
  layers=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["layers"])' "$out/speed/$1/row.json")
  cut_model "$1" "$layers"
}

# Made once: what is predicted before a run stays what it was. tuned.toml: what was found.
predict_way() {  # ROW WAY
  local folder=$out/speed/$1/$2
  [ ! -s "$folder/predicted.json" ] || return 0
  mkdir -p "$folder"
  if is_found "$2"; then
    predict "$1" "$2" "$(model_of "$1")" --find fastest --memory-reserve 2GiB --tune-out "$folder/tuned.toml" > "$folder/found.json" &&
      python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))["winner"]))' "$folder/found.json" > "$folder/predicted.part"
  else
    predict "$1" "$2" "$(model_of "$1")" > "$folder/predicted.part"
  fi && mv "$folder/predicted.part" "$folder/predicted.json"
}

stage_predict() {
  local row way code=0
  for row in ${rows//,/ }; do
    choose_model "$row" || { code=1; continue; }
    for way in ${ways//,/ }; do
      if needs_ranks "$way"; then continue; fi
      predict_way "$row" "$way" || { echo "$row $way: no prediction"; code=1; }
    done
  done
  return $code
}

# Each line with the second since 1970 at which it came, so that clocks and power of timed steps are known.
stamp() { while IFS= read -r line; do printf '%s %s\n' "$EPOCHREALTIME" "$line"; done; }

run_ours() {  # ROW WAY FOLDER
  local sequence micro microbatches tuned=()
  read -r sequence micro microbatches < <(row_shape "$1")
  if is_found "$2"; then tuned=(--options "$3/tuned.toml"); fi
  rm -f "$3"/db.sqlite*
  # shellcheck disable=SC2046
  timeout "$(left)" "$exec_tool" --backend cuda --nproc "$gpus" --gpu "$card" --model "$(model_of "$1")" \
    --seq-len "$sequence" --micro-batch "$micro" --global-batch $((gpus * micro * microbatches)) \
    $(way_flags "$2") $(row_flags "$1") "${tuned[@]}" --data synthetic --steps "$steps" --gemm-search "$search" --deadline 60 --db "$3/db.sqlite" \
    --name "$1.$2" --output jsonl 2> "$3/log" | stamp > "$3/steps"
  return "${PIPESTATUS[0]}"
}

run_fsdp2() {  # ROW WAY FOLDER
  local sequence micro microbatches reduce=float32 more=()
  read -r sequence micro microbatches < <(row_shape "$1")
  [[ $2 == *fp32 ]] || reduce=bfloat16
  [[ $2 != *kept* ]] || more+=(--keep-gathered)
  [ -z "$(row_flags "$1")" ] || more+=(--recompute)
  timeout "$(left)" python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" \
    "$here/speed_fsdp2.py" --model "$(model_of "$1")" --sequence "$sequence" --micro-batch "$micro" \
    --microbatches "$microbatches" --compile "${more[@]}" --reduce $reduce --steps "$steps" --timed $((steps - steps / 4)) \
    > "$3/said" 2> "$3/log" || return
  grep '^{' "$3/said" > "$3/result.json"
}

run_way() {  # ROW WAY FOLDER
  local how=run_ours code begin=$SECONDS sampler
  rm -f "$3/result.json" "$3/steps" "$3/verified"
  [[ $2 == fsdp2* ]] && how=run_fsdp2
  printf '{"call": "%s", "cards": "%s", "gpus": %d, "steps": %d, "skip": %d}\n' \
    "$call" "$cards" "$gpus" "$steps" $((steps / 4)) > "$3/run.json"
  nvidia-smi --query-gpu=timestamp,index,clocks.sm,power.draw,power.limit,temperature.gpu \
    --format=csv,noheader,nounits -lms 200 > "$3/power.csv" 2> /dev/null &
  sampler=$!
  $how "$1" "$2" "$3"
  code=$?
  kill $sampler 2> /dev/null
  wait $sampler 2> /dev/null
  if [ $code -eq 0 ]; then
    touch "$3/done"
  elif [ $code -eq 124 ] && [ $begin -gt 120 ]; then
    echo "$1 $2: the call ended before it, to be made again"
    return 75
  else
    echo "exit code $code: $(grep -v '^ *$' "$3/log" | tail -1 | cut -c1-200)" > "$3/failed"
  fi
  echo "$1 $2: $(cat "$3/failed" 2> /dev/null || echo "done") after $((SECONDS - begin)) s"
  return $code
}

# One after the other, as each wants the whole power of the GPUs; both engines of a row in turn.
stage_speed() {
  local row way folder code=0
  for row in ${rows//,/ }; do
    choose_model "$row" || { code=1; continue; }
    for way in ${ways//,/ }; do
      folder=$out/speed/$row/$way
      if needs_ranks "$way"; then continue; fi
      if [[ $way == fsdp2* ]] && [ "$has_torch" -eq 0 ]; then
        echo "$row $way: left out, no PyTorch with transformers"
        continue
      fi
      if ! predict_way "$row" "$way"; then echo "$row $way: no prediction"; code=1; fi
      is_open "$folder"
      case $? in 1) continue ;; 2) echo "$row $way: $(cat "$folder/failed")"; code=1; continue ;; esac
      may_begin 150 || return 75
      run_way "$row" "$way" "$folder"
      case $? in 0) ;; 75) return 75 ;; *) code=1 ;; esac
    done
  done
  return $code
}

stage_verify() {
  local folder code=0 any=0
  for folder in "$out"/speed/*/*; do
    if [ ! -f "$folder/done" ] || [ ! -f "$folder/db.sqlite" ]; then continue; fi
    any=1
    [ ! -f "$folder/verified" ] || continue
    [ "$(left)" -ge 30 ] || return 75  # takes seconds, and a store may not outlive its machine
    if timeout "$(left)" "$verify_tool" --run "$folder/db.sqlite:latest" > "$folder/verify.log" 2>&1; then
      mv "$folder/verify.log" "$folder/verified"
    else
      echo "$folder: $(tail -1 "$folder/verify.log")"
      code=1
    fi
  done
  [ $any -eq 1 ] || { echo "no recorded run in $out/speed"; return 77; }
  return $code
}

# ---- classes, experts ---------------------------------------------------------------------------

# NAME|FLAGS: layouts of one name have the same bits. Batches divide by ranks, and by three for --micro-batch 3.
class_runs() {
  local one=$gpus three=$((3 * gpus)) outer
  if [ "$gpus" -eq 1 ]; then
    printf 'one rank|--strategy %s --global-batch 1\n' 0 1 2 3 "3 --recompute full" "3 --placement attention"
    printf 'one rank, 3 microbatches|--strategy %s --global-batch 3\n' 2 3 "3 --recompute none --prefetch 0"
    printf 'exact sums|--exact-sums --strategy %s --global-batch 12\n' 0 3 "3 --micro-batch 3"
    return
  fi
  printf "flat, all-reduce|--strategy 0 --global-batch $one %s\n" "" "--recompute full --allocator trace_pool"
  printf "flat, reduce-scatter|--strategy %s --global-batch $one\n" 1 2 3 "3 --recompute full --prefetch 2 --grad-slots 3" \
    "3 --keep-gathered 1" "3 --placement attention" "3 --gather copy_engine" "3 --gather symmetric"
  printf "flat, 3 microbatches|--strategy %s --global-batch $three\n" 2 3 "3 --recompute none --prefetch 0" "3 --placement attention"
  printf "rank order|--reduce copy_engine --strategy %s --global-batch $one\n" 2 3 "3 --gather copy_engine --placement attention"
  printf "rank order, 3 microbatches|--reduce copy_engine --strategy %s --global-batch $three\n" 2 "3 --gather copy_engine"
  printf "symmetric|--reduce symmetric --strategy %s --global-batch $one\n" 2 3 "3 --gather copy_engine --placement attention"
  for outer in 2 4; do
    [ $outer -le 2 ] || [ $outer -lt "$gpus" ] || continue
    printf "HSDP, $outer groups|--outer-dp $outer --strategy %s --global-batch $one\n" 2 "3 --allocator temporary"
    printf "HSDP, $outer groups, 3 microbatches|--outer-dp $outer --strategy %s --global-batch $three\n" 2 "3 --recompute full"
    printf "HFSDP, $outer groups|--outer-dp $outer --outer-strategy optim --strategy 3 --global-batch $one %s\n" \
      "" "--prefetch 0 --grad-slots 3"
    printf "exact sums|--exact-sums --outer-dp $outer --strategy 3 --global-batch $three %s\n" "" "--outer-strategy optim"
  done
  printf "exact sums|--exact-sums --strategy %s --global-batch $three\n" 0 "1 --micro-batch 3" 2 "3 --micro-batch 3" \
    "3 --layout megatron_fsdp" "3 --gather copy_engine --reduce copy_engine" "3 --gather copy_engine --reduce symmetric"
}

expert_runs() {
  printf "experts|--strategy %s --global-batch $gpus\n" 2 3 "3 --recompute full"
  printf "experts, exact sums|--exact-sums --strategy %s --global-batch $((2 * gpus))\n" 0 3 "3 --micro-batch 2"
  [ "$gpus" -ge 2 ] && "$exec_tool" --help | grep -q '^ *--ep ' &&
    printf "experts, exact sums|--exact-sums --strategy 3 --ep %s --global-batch $((2 * gpus))\n" 2 "$gpus" | sort -u
  return 0
}

train_small() {  # FOLDER MODEL FLAGS...
  local folder=$1 code
  timeout 100 "$exec_tool" --backend cuda --nproc "$gpus" --no-save --deterministic --deadline 30 --model "$2" --data "$text" \
    --steps 6 --output jsonl "${@:3}" > "$folder/steps.jsonl" 2> "$folder/log"
  code=$?
  if [ $code -eq 0 ]; then
    touch "$folder/done"
  else
    echo "exit code $code: $(grep -v '^ *$' "$folder/log" | tail -1 | cut -c1-200)" > "$folder/failed"
  fi
}

# Four at a time, but alone those whose collectives go by windows: they take turns on no GPU.
train_classes() {  # FOLDER MODEL < RUNS
  local top=$1 model=$2 number=-1 running=0 name flags folder
  while IFS='|' read -r name flags; do
    number=$((number + 1))
    folder=$top/$number
    [ "$(cat "$folder/run" 2> /dev/null)" = "$name|$flags" ] || rm -rf "$folder"
    is_open "$folder" || continue
    if ! may_begin 110; then wait; return 75; fi
    echo "$name|$flags" > "$folder/run"
    if [[ $flags == *copy_engine* || $flags == *symmetric* ]]; then
      wait
      # shellcheck disable=SC2086
      train_small "$folder" "$model" $flags < /dev/null
      running=0
      continue
    fi
    # shellcheck disable=SC2086
    train_small "$folder" "$model" $flags < /dev/null &
    running=$((running + 1))
    [ $((running % 4)) -ne 0 ] || wait
  done
  wait
}

stage_classes() {
  class_runs > "$out/class_runs"
  train_classes "$out/classes" llama_tiny < "$out/class_runs" || return
  python3 "$here/many_judge.py" --classes "$out/classes"
}

stage_experts() {
  local probe=$out/experts/probe
  if is_open "$probe"; then
    may_begin 60 || return 75
    train_small "$probe" moe_nano --strategy 3 --global-batch "$gpus"
  fi
  if grep -q 'has no CUDA kernel' "$probe/log" "$probe/steps.jsonl"; then
    echo "this build has no CUDA kernels of experts" | tee "$out/experts/skipped"
    return 77
  fi
  rm -f "$out/experts/skipped"
  "$exec_tool" --help | grep -q '^ *--ep ' || echo "mfsdp-exec has no --ep: experts are sharded as all parameters are"
  expert_runs > "$out/expert_runs"
  train_classes "$out/experts" moe_nano < "$out/expert_runs" || return
  python3 "$here/many_judge.py" --classes "$out/experts"
}

# On a text, as random tokens have no preferences; rooms for twice an equal share.
moe_ours() {  # EP MODEL FOLDER
  local dealt="" code
  [ "$1" -eq 1 ] || dealt="--ep $1 --capacity-factor 2"
  # shellcheck disable=SC2086
  timeout "$(left)" "$exec_tool" --backend cuda --nproc "$gpus" --gpu "$card" --no-save --model "$2" --seq-len 4096 \
    --micro-batch 1 --global-batch "$gpus" $dealt --data "$text" --steps "$steps" --gemm-search on --deadline 60 \
    --output jsonl > "$3/steps.jsonl" 2> "$3/log"
  code=$?
  [ $code -eq 0 ] || return $code
  python3 - "$3/steps.jsonl" $((steps / 4)) "$gpus" > "$3/result.json" <<'PYTHON'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
times = [line["step_ns"] / 1e6 for line in lines if line.get("event") == "step"][int(sys.argv[2]):]
step = statistics.median(times)
memory = [line for line in lines if line.get("schema", "").startswith("mfsdp.result")][-1]["memory"]
print(json.dumps({"step_ms": round(step, 2), "tokens_per_s": round(4096 * int(sys.argv[3]) / step * 1000, 1),
                  "allocated_gib": round(memory["allocated_bytes"] / 2**30, 2)}))
PYTHON
}

moe_torch() {  # EP MODEL FOLDER
  timeout "$(left)" python3 "$here/speed_moe.py" --model "$2" --layers 4 --seq 4096 --ep "$1" --gpus "$gpus" \
    --steps "$steps" --timed $((steps - steps / 4)) --data "$text" --output json > "$3/result.json" 2> "$3/log"
}

stage_experts_speed() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  local ep engine folder model code=0 run_code
  model=$(cut_model moe 4)
  for ep in 1 "$gpus"; do
    for engine in ours torch; do
      [ $engine = ours ] || [ "$has_torch" -eq 1 ] || continue
      folder=$out/experts_speed/${engine}_ep$ep
      is_open "$folder"
      case $? in 1) ;; 2) echo "$engine, ep $ep: $(cat "$folder/failed")"; code=1; continue ;; 0)
        may_begin 150 || return 75
        "moe_$engine" "$ep" "$model" "$folder"
        run_code=$?
        if [ $run_code -ne 0 ]; then
          echo "exit code $run_code: $(grep -v '^ *$' "$folder/log" | tail -1 | cut -c1-200)" > "$folder/failed"
          echo "$engine, ep $ep: $(cat "$folder/failed")"
          code=1
          continue
        fi
        touch "$folder/done" ;;
      esac
      echo "$engine, ep $ep: $(cat "$folder/result.json")"
    done
  done
  return $code
}

# ---- checks, kills ------------------------------------------------------------------------------

# check.sh keeps what has passed. Seconds: what each took on two H200, and half as much again.
stage_checks() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  local stage takes code=0
  for stage in C:360 D:280 G:110; do
    takes=${stage#*:} stage=${stage%:*}
    [ ! -f "$out/check/$stage.passed" ] || { echo "stage $stage passed before"; continue; }
    if [ -f "$out/check/$stage.failed" ] && [ "$again" -eq 0 ]; then echo "stage $stage failed before"; code=1; continue; fi
    may_begin "$takes" || return 75
    rm -f "$out/check/$stage.failed"
    mkdir -p "$out/check"
    if ! timeout "$(left)" "$here/../check.sh" --build "$build" --out "$out/check" --stage "$stage"; then
      touch "$out/check/$stage.failed"
    fi
    [ -f "$out/check/$stage.passed" ] || code=1  # skipped, as a program is not built, is not passed either
  done
  return $code
}

# The same with windows: what waits on memory of a stream cannot be aborted as a kernel can.
stage_kills() {
  [ "$gpus" -ge 2 ] || { echo "needs two GPUs"; return 77; }
  local name code=0 flags
  for name in plain windows; do
    flags=""
    [ $name = plain ] || flags=$by_symmetric
    is_open "$out/kills/$name"
    case $? in 1) continue ;; 2) echo "kills, $name: failed before"; code=1; continue ;; esac
    may_begin 150 || return 75
    echo "-- $gpus ranks $flags"
    # shellcheck disable=SC2086
    if timeout "$(left)" "$here/../kills.py" phases --only "forward,a reduce-scatter,optimizer" --out "$out/kills/$name" \
      -- "$exec_tool" --backend cuda --nproc "$gpus" --no-save --deadline 5 --model llama_tiny --data "$text" $flags \
      > "$out/kills/$name/said" 2>&1; then
      touch "$out/kills/$name/done"
    else
      touch "$out/kills/$name/failed"
      code=1
    fi
    cat "$out/kills/$name/said"
  done
  return $code
}
