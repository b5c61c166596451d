#!/usr/bin/env bash
# consumer.sh PREFIX CMAKE GENERATOR COMPILER PROJECT: a project finds the installed package, and its
# program prints the same as the installed tool.
set -euo pipefail
prefix=$1 cmake=$2 generator=$3 compiler=$4 project=$5
unset MFSDP_SCENARIOS

example=$(sed -n '/^```cpp$/,/^```$/{/^```/d;p}' "$prefix/share/doc/mfsdp/README.md")
[[ -n $example && $(<"$project/main.cpp") == *"$example"* ]] || { echo "README's lines of C++ are not in $project/main.cpp"; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Outside of the source tree: only the prefix has headers.
cp -r "$project" "$folder/project"
cd "$folder"
configure_and_build() {
  "$cmake" -S project -B build -G "$generator" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug &&
    "$cmake" --build build
}
configure_and_build >log 2>&1 || { cat log; exit 1; }
found=$(build/consumer)
expected=$("$prefix/bin/mfsdp-sim" --model llama3_8b --gpu h100 --gpus 8 --no-save --output json |
  sed -n '0,/"step_ns"/s/.*"step_ns": *\([0-9]*\).*/\1/p')
echo "a step takes $found ns"
[[ -n $expected && $found == "$expected" ]] || { echo "mfsdp-sim says $expected ns"; exit 1; }
