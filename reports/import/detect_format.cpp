// Detects the format of a file by its magic bytes, the keys of its JSON or the lines of its log.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/byte_order_mark.hpp"
#include "core/base/text.hpp"
#include "reports/import/foreign_run.hpp"
#include "reports/import/log_text.hpp"
#include "reports/import/other_formats.hpp"
#include "reports/import/python_json.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kHead = std::size_t{1} << 20;  ///< bytes in which keys of JSON are looked for

/// The formats without "auto", which is no format of a file.
std::string readable_formats() {
  std::string list;
  for (const std::string_view name : Names<ImportFormat>::values)
    if (name != to_string(ImportFormat::automatic)) list += fmt::format(", {}", name);
  return list.substr(2);
}

/// "unknown format: its first line is "hello"; expected one of ...".
tl::unexpected<Error> unknown_format(std::string_view text, const std::string& where) {
  constexpr std::size_t most = 60;
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  std::string_view line = text.substr(begin);
  line = line.substr(0, line.find_first_of("\r\n"));
  const bool is_binary = line.find('\0') != std::string_view::npos;
  const std::string shown =
      is_binary ? std::string("it is no text")
                : fmt::format("its first line is \"{}{}\"", printable(line.substr(0, most)),
                              line.size() > most ? "..." : "");
  return fail(where, fmt::format("unknown format: {}; expected one of {} (--format)", shown,
                                 readable_formats()));
}

tl::unexpected<Error> refused(const std::string& where, const std::string& what) {
  return fail(where, "is " + what);
}

/// A TensorBoard event file begins with its first record's length, which is below 256: of its eight
/// bytes the upper seven are zero.
bool is_events(std::string_view bytes) {
  return bytes.size() >= 12 && bytes.substr(1, 7) == std::string_view("\0\0\0\0\0\0\0", 7);
}

bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

/// "step: 10  loss: 7.07  grad_norm: 46.5  memory: 66.91GiB(37.51%)  tps: 10,007": a step and a
/// loss alone are no sign of torchtitan.
bool is_of_torchtitan(std::string_view line) {
  if (!number_after(line, "step:") || !number_after(line, "loss:")) return false;
  return number_after(line, "memory:") || number_after(line, "tps:") ||
         number_after(line, "grad_norm:");
}

/// "iteration 43/ 100 | ... | elapsed time per iteration (ms): 5444.9 | ...".
bool is_of_megatron(std::string_view line) {
  return line.find("iteration ") != std::string_view::npos &&
         number_after(line, "elapsed time per iteration (ms):");
}

/// An object with these keys: the state of Hugging Face's Trainer (trainer_state.json).
bool is_trainer_state(std::string_view head) {
  return has_json_key(head, "log_history") && has_json_key(head, "global_step");
}

/// By the first line that a reader knows; an error where none is, but one of another tool's. A text
/// without either is `automatic`.
Result<ImportFormat> log_format(std::string_view text, const std::string& where) {
  std::optional<ImportFormat> found;
  OtherFormat other;
  std::string without;
  while (!text.empty() && !found) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find('\x1b') != std::string_view::npos) line = without = without_colours(line);
    if (is_of_megatron(line)) found = ImportFormat::megatron;
    if (is_of_torchtitan(line)) found = ImportFormat::torchtitan;
    if (!other) other = other_log(line);
  }
  if (found) return *found;
  if (other) return refused(where, *other);
  return ImportFormat::automatic;
}

/// A text that begins with "{": a document that is known, lines of JSON, or a log that begins with
/// a configuration.
Result<ImportFormat> json_format(std::string_view text, const std::string& where) {
  const std::string_view head = text.substr(0, kHead);
  const std::string_view first = head.substr(0, head.find('\n'));
  // A run writes its events first, a line each, and its result last.
  const std::string_view may_have_result = has_json_key(first, "event") ? text : head;
  if (may_have_result.find("\"mfsdp.result/1\"") != std::string_view::npos)
    return ImportFormat::result;
  if (has_json_key(head, "traceEvents")) return ImportFormat::kineto;
  if (is_trainer_state(head)) return ImportFormat::trainer_state;
  if (const OtherFormat other = other_json(head)) return refused(where, *other);
  if (parse_python_json(first).is_object()) return ImportFormat::steps;
  const auto whole = text.size() <= kHead ? parse_python_json(text)
                                          : nlohmann::json(nlohmann::json::value_t::discarded);
  if (!whole.is_object()) {
    MFSDP_LET(format, log_format(text, where));
    return format == ImportFormat::automatic ? ImportFormat::steps : format;
  }
  std::string keys;
  for (const auto& [key, value] : whole.items())
    if (keys.size() < 80) keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ", printable(key));
  return fail(where, fmt::format("unknown format: one object of JSON with the keys {}; expected "
                                 "an object a line, {{\"step\": 1, \"loss\": 2.5, ...}}",
                                 keys));
}

}  // namespace

Result<ImportFormat> detect_format(std::string_view bytes, const std::string& where) {
  if (bytes.empty()) return fail(where, "is empty");
  if (bytes.starts_with("SQLite format 3")) return ImportFormat::store;
  if (is_pickle(bytes)) return ImportFormat::memory_snapshot;
  if (is_events(bytes)) return ImportFormat::tensorboard;
  if (const OtherFormat other = other_binary(bytes)) return refused(where, *other);
  std::string_view text = without_byte_order_mark(bytes);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const bool is_python = text.starts_with("{'");  // prints of a dict are logs
  // A log may begin with "[": its first characters are no value of JSON then.
  const std::size_t next = text.find_first_not_of(" \t\r\n", 1);
  const bool is_list = text.starts_with('[') && next != std::string_view::npos && text[next] == '{';
  if ((text.starts_with('{') && !is_python) || is_list) return json_format(text, where);
  MFSDP_LET(format, log_format(text, where));
  if (format != ImportFormat::automatic) return format;
  if (const OtherFormat other = other_table(text)) return refused(where, *other);
  return unknown_format(text, where);
}

}  // namespace mfsdp
