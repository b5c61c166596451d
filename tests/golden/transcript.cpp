#include "tests/golden/transcript.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>

namespace mfsdp::golden {
namespace {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

/// stdout lines that would read as something else carry a backslash in front.
bool needs_escape(std::string_view line) {
  return line.starts_with('!') || line.starts_with('\\') || line.starts_with("exit ");
}

std::optional<int> exit_code_of(std::string_view line) {
  constexpr std::string_view prefix = "exit ";
  if (!line.starts_with(prefix)) return std::nullopt;
  line.remove_prefix(prefix.size());
  int code = 0;
  const auto [end, fault] = std::from_chars(line.data(), line.data() + line.size(), code);
  if (fault != std::errc{} || end != line.data() + line.size()) return std::nullopt;
  return code;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lines_(split_lines(text)) {}

  Transcript parse() {
    while (next_ < lines_.size() && transcript_.error.empty()) entry(lines_[next_++]);
    const auto is_command = [](const Entry& e) { return std::holds_alternative<Command>(e); };
    if (transcript_.error.empty() && std::ranges::none_of(transcript_.entries, is_command))
      transcript_.error = "holds no command ('$ ...')";
    return std::move(transcript_);
  }

 private:
  void entry(const std::string& line) {
    if (line.empty() || line.starts_with('#')) {
      transcript_.entries.emplace_back(Remark{line});
    } else if (line.starts_with("+ write ")) {
      write_file(line.substr(8));
    } else if (line.starts_with("+ ")) {
      transcript_.entries.emplace_back(Preparation{line.substr(2)});
    } else if (line.starts_with("$ ")) {
      command(line.substr(2));
    } else {
      fail("expected '# remark', '+ setup' or '$ command'");
    }
  }

  void write_file(const std::string& rest) {
    const std::size_t mark = rest.find(" <<");
    if (mark == std::string::npos || mark == 0 || mark + 3 == rest.size())
      return fail("expected '+ write FILE <<END'");
    WriteFile file{.path = rest.substr(0, mark), .end = rest.substr(mark + 3), .lines = {}};
    for (; next_ < lines_.size(); ++next_) {
      if (lines_[next_] == file.end) {
        ++next_;
        transcript_.entries.emplace_back(std::move(file));
        return;
      }
      file.lines.push_back(lines_[next_]);
    }
    fail("the text of " + file.path + " is not closed by " + file.end);
  }

  void command(std::string line) {
    Command command{.line = std::move(line), .expected = {}, .at = next_};
    while (next_ < lines_.size()) {
      std::string text = lines_[next_++];
      if (const auto code = exit_code_of(text)) {
        command.expected.exit_code = *code;
        transcript_.entries.emplace_back(std::move(command));
        return;
      }
      if (text == "!") {
        command.expected.err.emplace_back();
      } else if (text.starts_with("! ")) {
        command.expected.err.push_back(text.substr(2));
      } else {
        command.expected.out.push_back(text.starts_with('\\') ? text.substr(1) : text);
      }
    }
    fail("'$ " + command.line + "' has no 'exit N' under it");
  }

  void fail(const std::string& what) {
    transcript_.error = "line " + std::to_string(next_) + ": " + what;
  }

  std::vector<std::string> lines_;
  std::size_t next_ = 0;
  Transcript transcript_;
};

struct Renderer {
  std::string& text;

  void operator()(const Remark& remark) const { text += remark.line + "\n"; }
  void operator()(const WriteFile& file) const {
    text += "+ write " + file.path + " <<" + file.end + "\n";
    for (const auto& line : file.lines) text += line + "\n";
    text += file.end + "\n";
  }
  void operator()(const Preparation& setup) const { text += "+ " + setup.line + "\n"; }
  void operator()(const Command& command) const {
    text += "$ " + command.line + "\n";
    for (const auto& line : render(command.expected)) text += line + "\n";
  }
};

/// One line of a difference: ' ' both sides, '-' expected only, '+' actual only.
struct Edit {
  char sign = ' ';
  std::size_t expected = 0;
  std::size_t actual = 0;
};

/// Longest common subsequence, the plain quadratic way: outputs are a screen long.
std::vector<Edit> edits(const std::vector<std::string>& expected,
                        const std::vector<std::string>& actual) {
  const std::size_t rows = expected.size();
  const std::size_t columns = actual.size();
  std::vector<std::vector<std::size_t>> common(rows + 1, std::vector<std::size_t>(columns + 1, 0));
  for (std::size_t i = rows; i-- > 0;)
    for (std::size_t j = columns; j-- > 0;)
      common[i][j] = matches(expected[i], actual[j]) ? common[i + 1][j + 1] + 1
                                                     : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<Edit> list;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && matches(expected[i], actual[j])) {
      list.push_back({' ', i++, j++});
    } else if (j == columns || (i < rows && common[i + 1][j] >= common[i][j + 1])) {
      list.push_back({'-', i++, j});
    } else {
      list.push_back({'+', i, j++});
    }
  }
  return list;
}

}  // namespace

Transcript parse(std::string_view text) { return Parser(text).parse(); }

namespace {

/// Of a fence "```json chats.jsonl" the file's name; empty where it names none.
std::string file_of(const std::string& fence) {
  const std::size_t space = fence.find(' ');
  return space == std::string::npos ? "" : fence.substr(space + 1);
}

}  // namespace

Transcript parse_markdown(std::string_view text) {
  Transcript transcript;
  const std::vector<std::string> lines = split_lines(text);
  bool in_block = false;
  bool shows = false;   // this block's first line is a command
  bool writes = false;  // this block is a file
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with("```")) {
      in_block = !in_block;
      writes = in_block && !file_of(line).empty();
      if (writes) transcript.entries.emplace_back(WriteFile{file_of(line), {}, {}});
      shows = in_block && !writes && i + 1 < lines.size() && lines[i + 1].starts_with("$ ");
    } else if (writes) {
      std::get<WriteFile>(transcript.entries.back()).lines.push_back(line);
    } else if (shows && line.starts_with("$ ")) {
      transcript.entries.emplace_back(Command{.line = line.substr(2), .expected = {}, .at = i + 1});
    } else if (shows) {
      std::get<Command>(transcript.entries.back()).expected.out.push_back(line);
    }
  }
  if (in_block) transcript.error = "a block is not closed by ```";
  const auto is_command = [](const Entry& e) { return std::holds_alternative<Command>(e); };
  if (transcript.error.empty() && std::ranges::none_of(transcript.entries, is_command))
    transcript.error = "holds no block with a command ('$ ...')";
  return transcript;
}

std::string render(const Transcript& transcript) {
  std::string text;
  for (const Entry& entry : transcript.entries) std::visit(Renderer{text}, entry);
  return text;
}

std::vector<std::string> render(const Output& output) {
  std::vector<std::string> lines;
  for (const auto& line : output.out) lines.push_back(needs_escape(line) ? "\\" + line : line);
  for (const auto& line : output.err) lines.push_back(line.empty() ? "!" : "! " + line);
  lines.push_back("exit " + std::to_string(output.exit_code));
  return lines;
}

std::vector<std::string> split_output(std::string_view text) {
  std::vector<std::string> lines = split_lines(text);
  if (!text.empty() && !text.ends_with('\n')) lines.back() += "[no newline]";
  return lines;
}

bool matches(std::string_view expected, std::string_view actual) {
  constexpr std::string_view mask = "[..]";
  const std::size_t first = expected.find(mask);
  if (first == std::string_view::npos) return expected == actual;
  if (!actual.starts_with(expected.substr(0, first))) return false;
  actual.remove_prefix(first);
  expected.remove_prefix(first + mask.size());
  // Each part up to the next mask may stand at its first place; only the last part is bound to the
  // end of the line.
  for (;;) {
    const std::size_t next = expected.find(mask);
    if (next == std::string_view::npos) return actual.ends_with(expected);
    const std::size_t found = actual.find(expected.substr(0, next));
    if (found == std::string_view::npos) return false;
    actual.remove_prefix(found + next);
    expected.remove_prefix(next + mask.size());
  }
}

std::string unified_difference(const std::vector<std::string>& expected,
                               const std::vector<std::string>& actual) {
  constexpr std::size_t context = 3;
  const std::vector<Edit> list = edits(expected, actual);
  std::vector<bool> shown(list.size(), false);
  for (std::size_t k = 0; k < list.size(); ++k) {
    if (list[k].sign == ' ') continue;
    const std::size_t from = k < context ? 0 : k - context;
    for (std::size_t near = from; near < std::min(list.size(), k + context + 1); ++near)
      shown[near] = true;
  }
  std::string text;
  for (std::size_t k = 0; k < list.size(); ++k) {
    if (!shown[k]) continue;
    if (k == 0 || !shown[k - 1])
      text += "@@ expected line " + std::to_string(list[k].expected + 1) + ", printed line " +
              std::to_string(list[k].actual + 1) + " @@\n";
    const Edit& edit = list[k];
    text += edit.sign;
    text += edit.sign == '+' ? actual[edit.actual] : expected[edit.expected];
    text += '\n';
  }
  return text;
}

std::vector<std::string> fill_gaps(const std::vector<std::string>& expected,
                                   const std::vector<std::string>& actual) {
  std::vector<std::string> filled;
  auto next = actual.begin();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != "...") {
      filled.push_back(expected[i]);
      if (next != actual.end()) ++next;
      continue;
    }
    const bool last = i + 1 == expected.size();
    const auto end = last ? actual.end() : std::find_if(next, actual.end(), [&](const auto& line) {
      return matches(expected[i + 1], line);
    });
    filled.insert(filled.end(), next, end);
    next = end;
  }
  return filled;
}

std::vector<std::string> keep_masks(const std::vector<std::string>& expected,
                                    const std::vector<std::string>& actual) {
  std::vector<std::string> lines;
  for (const Edit& edit : edits(expected, actual)) {
    if (edit.sign == ' ') lines.push_back(expected[edit.expected]);
    if (edit.sign == '+') lines.push_back(actual[edit.actual]);
  }
  return lines;
}

}  // namespace mfsdp::golden
