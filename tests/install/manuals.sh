#!/usr/bin/env bash
# manuals.sh PREFIX: groff has no warnings for the manual pages, and they have their sections.
# tests/tools/manual_test.cpp tests that each page has every flag.
set -euo pipefail
prefix=$1

if ! command -v groff >/dev/null; then
  echo "no groff: the pages are not formatted"
  exit 77
fi
text=$(mktemp)
trap 'rm -f "$text"' EXIT
for page in "$prefix"/share/man/man1/*.1; do
  warnings=$(groff -man -Tutf8 -ww -rLL=80n -P-cbou "$page" 2>&1 >"$text" || true)
  [[ -z $warnings ]] || { echo "$warnings"; exit 1; }
  for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' ENVIRONMENT FILES EXAMPLES 'SEE ALSO'; do
    grep -qx "$section" "$text" || { echo "$page: no section $section"; exit 1; }
  done
done
