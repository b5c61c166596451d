#!/usr/bin/env bash
# tools.sh PREFIX SOURCE: installed tools need nothing of the source tree, and may be moved.
set -euo pipefail
prefix=$1 source=$2
unset MFSDP_SCENARIOS

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
moved=$folder/moved
cp -r "$prefix/bin" "$prefix/share" "$folder"
mkdir "$moved" "$folder/empty"
mv "$folder/bin" "$folder/share" "$moved"
cd "$folder/empty"

# A model and a GPU that only these scenarios have.
cp -r "$moved/share/mfsdp/scenarios/models/llama3_8b" "$moved/share/mfsdp/scenarios/models/only_here"
cp "$moved/share/mfsdp/scenarios/gpus/h100.toml" "$moved/share/mfsdp/scenarios/gpus/gpu_of_here.toml"
run=("$moved/bin/mfsdp-sim" --model only_here --gpu gpu_of_here --gpus 8 --output json)
"${run[@]}" >seen.json
grep -q '"time"' seen.json
[[ -s mfsdp.sqlite ]]
"$moved/bin/mfsdp-verify" --model only_here --gpus 8 >/dev/null
"$moved/bin/mfsdp-exec" --model only_here --gpus 8 --gpu gpu_of_here --dry-run --no-save >/dev/null
"$moved/bin/mfsdp-report" show @latest | grep only_here >/dev/null

# The same without the source tree, where the system lets us hide it: in its place an empty folder.
hidden() { unshare --mount --map-root-user bash -c 'mount -t tmpfs none "$0" && exec "$@"' "$source" "$@"; }
if ! hidden true 2>/dev/null; then
  echo "not hidden: $source; this system lets nobody mount"
  exit 0
fi
if hidden ls "$source/core" 2>/dev/null; then
  echo "$source is still there"
  exit 1
fi
hidden "${run[@]}" --no-save >hidden.json
same() { grep -v -e '"created_unix_ns"' -e '"run_id"' "$1"; }
diff <(same seen.json) <(same hidden.json)
