#include "tests/arrows/source_text.hpp"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace mfsdp::arrows {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex pattern(R"(^\s*#\s*include\s*(["<])([^">]+)[">])");
  std::vector<Include> list;
  std::size_t number = 0;
  for (const std::string& line : split_lines(text)) {
    ++number;
    if (line.find("include") == std::string::npos) continue;  // most lines; a regex is slow
    std::smatch match;
    if (std::regex_search(line, match, pattern))
      list.push_back({.line = number, .path = match[2], .quoted = match[1] == "\""});
  }
  return list;
}

std::vector<CMakeCall> cmake_calls(const std::string& text) {
  std::string code = text;
  bool comment = false;
  for (char& c : code) {
    if (c == '\n') comment = false;
    if (c == '#') comment = true;
    if (comment) c = ' ';
  }
  static const std::regex pattern(R"((\w+)\s*\(([^()]*)\))");
  std::vector<CMakeCall> calls;
  for (auto at = std::sregex_iterator(code.begin(), code.end(), pattern);
       at != std::sregex_iterator(); ++at) {
    CMakeCall call{.name = (*at)[1], .arguments = {}, .line = 1};
    call.line +=
        static_cast<std::size_t>(std::count(code.begin(), code.begin() + at->position(), '\n'));
    std::istringstream words((*at)[2].str());
    for (std::string word; words >> word;) call.arguments.push_back(word);
    calls.push_back(std::move(call));
  }
  return calls;
}

std::string code_of(std::string_view text) {
  enum class In { code, line_comment, block_comment, string, character };
  std::string code(text);
  In in = In::code;
  std::string raw_end;  // of a raw string that is open: )delimiter"
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (!raw_end.empty()) {
      if (text.substr(i).starts_with(raw_end)) {
        i += raw_end.size() - 1;
        raw_end.clear();
      } else if (c != '\n') {
        code[i] = ' ';
      }
      continue;
    }
    switch (in) {
      case In::code:
        if (c == '/' && next == '/') in = In::line_comment;
        if (c == '/' && next == '*') in = In::block_comment;
        if (c == 'R' && next == '"') {
          const std::size_t open = text.find('(', i);
          if (open == std::string_view::npos) break;
          raw_end = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
          i = open;
        } else if (c == '"') {
          in = In::string;
        } else if (c == '\'' &&
                   (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
          in = In::character;  // after a digit it separates digits: 1'000
        }
        if (in == In::line_comment || in == In::block_comment) code[i] = ' ';
        break;
      case In::line_comment:
        if (c == '\n') {
          in = In::code;
        } else {
          code[i] = ' ';
        }
        break;
      case In::block_comment:
        if (c != '\n') code[i] = ' ';
        if (c == '*' && next == '/') {
          code[++i] = ' ';
          in = In::code;
        }
        break;
      case In::string:
      case In::character:
        if (c == '\\' && next != '\0') {
          code[i] = ' ';
          if (next != '\n') code[i + 1] = ' ';
          ++i;
        } else if (c == (in == In::string ? '"' : '\'')) {
          in = In::code;
        } else if (c != '\n') {
          code[i] = ' ';
        }
        break;
    }
  }
  return code;
}

}  // namespace mfsdp::arrows
