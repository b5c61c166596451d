#!/usr/bin/env bash
# completion.sh PREFIX: the shells read their files, and bash completes with them.
set -euo pipefail
prefix=$1

for file in "$prefix"/share/bash-completion/completions/*; do
  bash -n "$file"
  # shellcheck source=/dev/null
  source "$file"
done
if command -v zsh >/dev/null; then zsh -n "$prefix"/share/zsh/site-functions/_mfsdp-*; fi
if command -v fish >/dev/null; then
  for file in "$prefix"/share/fish/vendor_completions.d/*; do fish --no-execute "$file"; done
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir plans
touch plan.json 'with blank.json'

# expect ANSWER WORD...: what bash offers for the last word, sorted, with "|" between.
expect() {
  local wanted=$1 function
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  function=$(complete -p "$1" | sed 's/.*-F \([^ ]*\).*/\1/')
  COMPREPLY=()
  # compopt fails outside of a completion.
  "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" || true
  local found
  found=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd '|')
  [[ $found == "$wanted" ]] || { echo "$*: expected $wanted, found $found"; exit 1; }
}
expect '--strategy' mfsdp-sim --strat
expect 'optim|optim_grads|optim_grads_params' mfsdp-sim --strategy op
expect 'qwen3_0.6b|qwen3_235b_a22b|qwen3_30b_a3b|qwen3_32b|qwen3_8b' mfsdp-verify --model = qwen3_
expect 'dgx_h100' mfsdp-exec --cluster dgx_h1
expect '' mfsdp-sim --gpus ''
expect '--gpu|--gpus|--gpus-per-node' mfsdp-sim --model llama3_8b --gpu
expect 'plan.json|plans' mfsdp-verify --plan pl
expect 'with blank.json' mfsdp-verify --kineto plan.json with
expect 'plans' mfsdp-exec --save pl
expect 'auto|plans' mfsdp-exec --resume ''
expect 'export' mfsdp-report ex
expect '--kind' mfsdp-report list --ki
expect 'measured' mfsdp-report list --kind m
expect 'set|show' mfsdp-report baseline s
expect 'plan.json|plans' mfsdp-report import pl
