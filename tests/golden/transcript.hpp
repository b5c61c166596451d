// Golden transcripts: a command line and exactly what it prints, as text (see tests/README.md).
//
//   # what this case shows
//   + write broken.json <<EOF          a file for the command to meet
//   { "vocab_size": }
//   EOF
//   + mkdir results                    any shell line
//   $ mfsdp-sim --model broken.json
//   expected stdout
//   ! expected stderr, [..] stands for any text inside one line
//   exit 2
//
// A Markdown file is a transcript too: of its fenced blocks those that begin with a command, and
// those whose fence names a file, "```json chats.jsonl", which is there from then on. Nothing is
// expected on stderr, and exit 0; a line "..." stands for any lines.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mfsdp::golden {

struct Remark {
  std::string line;  ///< blank, or starts with '#'
};

/// A file that exists before the next command runs.
struct WriteFile {
  std::string path;  ///< relative to the temporary folder
  std::string end;   ///< the word that closes the text
  std::vector<std::string> lines;
};

/// A shell line that must succeed before the next command runs.
struct Preparation {
  std::string line;
};

struct Output {
  std::vector<std::string> out;
  std::vector<std::string> err;
  int exit_code = 0;
};

struct Command {
  std::string line;
  Output expected;
  std::size_t at = 0;  ///< line number of the command in its file, from 1
};

using Entry = std::variant<Remark, WriteFile, Preparation, Command>;

struct Transcript {
  std::vector<Entry> entries;
  std::string error;  ///< what is wrong with the text; empty when it reads well
};

[[nodiscard]] Transcript parse(std::string_view text);

/// The commands and files of a Markdown file's fenced blocks; the rest of the file is left out.
[[nodiscard]] Transcript parse_markdown(std::string_view text);

/// The text again; reads back as the same transcript.
[[nodiscard]] std::string render(const Transcript& transcript);

/// A command's output as the lines that stand under it.
[[nodiscard]] std::vector<std::string> render(const Output& output);

/// Lines of what a program printed. A last line without its newline is marked "[no newline]".
[[nodiscard]] std::vector<std::string> split_output(std::string_view text);

/// Whether a printed line is what the transcript expects; `[..]` stands for any text.
[[nodiscard]] bool matches(std::string_view expected, std::string_view actual);

/// Unified difference with three lines of context; empty when every line matches.
[[nodiscard]] std::string unified_difference(const std::vector<std::string>& expected,
                                             const std::vector<std::string>& actual);

/// `expected`, but with the lines of `actual` that each "..." stands for: those before the first
/// that the next expected line matches, and all that are left where none follows.
[[nodiscard]] std::vector<std::string> fill_gaps(const std::vector<std::string>& expected,
                                                 const std::vector<std::string>& actual);

/// `actual`, but with the expected line wherever it matches, so that an update keeps its masks.
[[nodiscard]] std::vector<std::string> keep_masks(const std::vector<std::string>& expected,
                                                  const std::vector<std::string>& actual);

}  // namespace mfsdp::golden
