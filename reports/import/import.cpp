#include "reports/import/import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/byte_order_mark.hpp"
#include "core/base/read_file.hpp"
#include "core/formats/trace_source.hpp"
#include "reports/import/foreign_run.hpp"
#include "reports/import/log_text.hpp"
#include "reports/record/result_json.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFileBytes = std::size_t{2} << 30;
constexpr std::size_t kHeadBytes = std::size_t{1} << 20;  ///< unpacked, to detect the format

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

/// The first `most` bytes that gzip has packed, or all where there are fewer.
Result<std::string> unpacked(std::string_view bytes, const std::string& where, std::size_t most) {
  constexpr std::size_t block = std::size_t{1} << 16;
  const auto source = traces::TraceSource::of(bytes, where);
  std::string text;
  while (text.size() < most) {
    const std::size_t before = text.size();
    text.resize(before + std::min(block, most - before));
    const auto size = static_cast<std::streamsize>(text.size() - before);
    const std::streamsize count = source->sgetn(text.data() + before, size);
    source->mark();
    text.resize(before + static_cast<std::size_t>(count));
    if (source->error()) return tl::unexpected<Error>(*source->error());
    if (count < size) break;
  }
  return text;
}

bool is_events_file(const fs::path& path) {
  return path.filename().string().find("tfevents") != std::string::npos;
}

/// The events file in a folder, or in those below it; an error where there is none or several.
Result<fs::path> events_file_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    if (at->is_regular_file(error) && is_events_file(at->path())) found.push_back(at->path());
  std::ranges::sort(found);
  if (found.size() == 1) return found.front();
  if (found.empty())
    return fail(folder.string(), "holds no events.out.tfevents.* file of TensorBoard");
  return fail(folder.string(), fmt::format("holds {} event files: name one, such as {}",
                                           found.size(), found.front().string()));
}

/// Results of mfsdp: one object, a sweep's, or one object on each line. Events of a run that goes
/// on are skipped.
Result<std::vector<RunResult>> read_results(std::string_view text, const std::string& where) {
  std::vector<RunResult> runs;
  const auto whole = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (whole.is_object() && whole.contains("results") && whole["results"].is_array()) {
    for (std::size_t i = 0; i < whole["results"].size(); ++i) {
      MFSDP_LET(run, result_from_json(whole["results"][i].dump(),
                                      fmt::format("{}: results[{}]", where, i)));
      runs.push_back(std::move(run));
    }
    return runs;
  }
  if (whole.is_object()) {
    MFSDP_LET(run, result_from_json(text, where));
    runs.push_back(std::move(run));
    return runs;
  }
  Result<void> outcome;
  for_each_line(text, [&](std::string_view line, std::int64_t number) {
    if (!outcome || line.find_first_not_of(" \t") == std::string_view::npos) return;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("event")) return;
    auto run = result_from_json(line, fmt::format("{}:{}", where, number));
    if (run)
      runs.push_back(std::move(*run));
    else
      outcome = tl::unexpected<Error>(run.error());
  });
  MFSDP_TRY(outcome);
  if (runs.empty()) return fail(where, "holds no result of mfsdp");
  return runs;
}

Result<std::vector<RunResult>> read_store(const fs::path& path) {
  StoreOptions options;
  options.create = false;
  options.for_reading = true;
  MFSDP_LET(store, Store::open(path, options));
  MFSDP_LET(listed, store.list());
  std::vector<RunResult> runs;
  for (const StoredRun& each : listed) {
    MFSDP_LET(run, store.load(each.id));
    runs.push_back(std::move(run));
  }
  return runs;
}

Result<ForeignRun> read_foreign(ImportFormat format, std::string_view bytes,
                                const std::string& where) {
  switch (format) {
    case ImportFormat::tensorboard: return read_tensorboard(bytes, where);
    case ImportFormat::torchtitan: return read_torchtitan_log(bytes, where);
    case ImportFormat::megatron: return read_megatron_log(bytes, where);
    case ImportFormat::memory_snapshot: return read_memory_snapshot(bytes, where);
    case ImportFormat::kineto: return read_profile(bytes, where);
    case ImportFormat::steps: return read_step_lines(bytes, where);
    case ImportFormat::trainer_state: return read_trainer_state(bytes, where);
    default: break;
  }
  return fail(where, "is of no format that is imported");
}

Result<ImportFormat> format_of(std::string_view bytes, const std::string& where) {
  if (!is_gzip(bytes)) return detect_format(bytes, where);
  MFSDP_LET(head, unpacked(bytes, where, kHeadBytes));
  return detect_format(head, where);
}

}  // namespace

Result<std::vector<RunResult>> import_file(const fs::path& path, const ImportSettings& settings) {
  std::error_code ignored;
  fs::path file = path;
  ImportFormat format = settings.format;
  if (fs::is_directory(path, ignored)) {
    MFSDP_SET(file, events_file_in(path));
    if (format == ImportFormat::automatic) format = ImportFormat::tensorboard;
  }
  const std::string where = file.string();
  constexpr std::string_view expected = "a log, a trace, a snapshot, a result or a store";
  // Reading a pipe without a writer would never end.
  if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored))
    return fail(where, fmt::format("is not a regular file, expected {}", expected));
  MFSDP_LET(bytes, read_file(file, expected, kMostFileBytes));
  if (format == ImportFormat::automatic) MFSDP_SET(format, format_of(bytes, where));
  if (format == ImportFormat::store) return read_store(file);
  std::string content;  // of what is packed; a trace, which may be large, is unpacked as it is read
  if (is_gzip(bytes) && format != ImportFormat::kineto)
    MFSDP_SET(content, unpacked(bytes, where, kMostFileBytes));
  const std::string_view text = without_byte_order_mark(content.empty() ? bytes : content);
  if (format == ImportFormat::result) return read_results(text, where);
  MFSDP_LET(run, read_foreign(format, text, where));
  return std::vector<RunResult>{result_of(std::move(run), settings, bytes, file)};
}

}  // namespace mfsdp
