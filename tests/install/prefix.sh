#!/usr/bin/env bash
# Installs a build: prefix.sh PREFIX CMAKE BUILD. Everything that is promised lies where it is looked for.
set -euo pipefail
prefix=$1 cmake=$2 build=$3

rm -rf "$prefix"
"$cmake" --install "$build" --prefix "$prefix" --strip >/dev/null

missing=0
expect() {
  [[ -s $prefix/$1 ]] && return
  echo "not installed: $1"
  missing=1
}
for tool in mfsdp-sim mfsdp-verify mfsdp-exec mfsdp-report mfsdp-convert; do
  expect "bin/$tool"
  expect "share/man/man1/$tool.1"
  expect "share/bash-completion/completions/$tool"
  expect "share/zsh/site-functions/_$tool"
  expect "share/fish/vendor_completions.d/$tool.fish"
done
for file in share/mfsdp/scenarios/models/llama3_8b/config.json share/mfsdp/scenarios/gpus/h100.toml \
  share/mfsdp/scenarios/clusters/dgx_h100.toml share/mfsdp/scenarios/gpus/tables/h200_nccl.csv \
  share/doc/mfsdp/LICENSE share/doc/mfsdp/README.md share/doc/mfsdp/docs/guide/install.md \
  include/mfsdp/core/plan/plan.hpp include/mfsdp/sim/predict/predict.hpp \
  include/mfsdp/verify/proof/prove.hpp; do
  expect "$file"
done
# Installed headers include only installed headers.
included=$(grep -rhoP '^#include "\K[^"]+' "$prefix/include/mfsdp" | sort -u)
[[ $(wc -l <<<"$included") -ge 100 ]] || { echo "hardly a header is installed"; missing=1; }
for header in $included; do expect "include/mfsdp/$header"; done
exit $missing
