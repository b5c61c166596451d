#!/usr/bin/env bash
# manuals.sh PREFIX: every flag of --help stands in the manual page, and groff finds nothing to warn of.
set -euo pipefail
prefix=$1

# flags_of TOOL [COMMAND]: those that begin a line of --help
flags_of() { "$prefix/bin/$1" "${@:2}" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'; }

for tool in mfsdp-sim mfsdp-verify mfsdp-exec mfsdp-report; do
  page=$prefix/share/man/man1/$tool.1
  # Those of mfsdp-report stand at the command that has them.
  commands=$("$prefix/bin/$tool" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p')
  flags=$(flags_of "$tool"; for command in $commands; do flags_of "$tool" "$command"; done)
  [[ $(wc -w <<<"$flags") -ge 30 ]] || { echo "$tool: --help shows hardly a flag"; exit 1; }
  for flag in $flags; do
    grep -qF -- "\\fB${flag//-/\\-}\\fR" "$page" || { echo "$tool: no $flag in its page"; exit 1; }
  done
done

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
