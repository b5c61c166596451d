#include "gpu_backend/convert/tool/convert_actions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <tuple>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/progress.hpp"
#include "core/cli/table.hpp"
#include "core/formats/safetensors.hpp"
#include "core/model/hf_config.hpp"
#include "core/plan/config.hpp"
#include "gpu_backend/convert/diff_checkpoints.hpp"
#include "gpu_backend/convert/writers.hpp"
#include "gpu_backend/weights/hf_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostConfig = std::size_t{16} << 20;
constexpr std::int64_t kMegabyte = 1'000'000;

std::optional<fs::path> config_of(const ConvertOptions& options, const Checkpoint& checkpoint) {
  std::error_code ignored;
  if (options.config) {
    const fs::path path(*options.config);
    return fs::is_directory(path, ignored) ? path / kHfConfig : path;
  }
  const fs::path own = checkpoint.path / kHfConfig;
  return fs::exists(own, ignored) ? std::optional(own) : std::nullopt;
}

Result<std::optional<Model>> model_of_config(const std::optional<fs::path>& path) {
  if (!path) return std::nullopt;
  MFSDP_LET(text, read_file(*path, "a config.json", kMostConfig));
  MFSDP_LET(shape, parse_hf_config(text, path->string()));
  PlanConfig config;
  config.model = shape;
  return make_model(config);
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

// ---- inspect -----------------------------------------------------------------------------------

Json inspection_json(const Checkpoint& read) {
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : read.tensors) {
    Json boxes = Json::array();
    for (const StoredBox& one : tensor.boxes)
      boxes.push_back({{"offsets", one.box.offsets},
                       {"sizes", one.box.sizes},
                       {"file", read.files[one.file].path.filename().string()},
                       {"byte", one.offset}});
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.type->safetensors},
                       {"shape", tensor.shape},
                       {"boxes", std::move(boxes)}});
  }
  Json objects = Json::array();
  for (const CheckpointObject& object : read.objects) objects.push_back(object.name);
  Json problems = Json::array();
  for (const Error& problem : read.problems) problems.push_back(problem.message());
  Json json{{"schema", "mfsdp.checkpoint_content/1"},
            {"format", to_string(read.format)},
            {"path", read.path.string()},
            {"step", read.step ? Json(*read.step) : Json()},
            {"files", read.files.size()},
            {"bytes", read.bytes()},
            {"facts", Json::object()},
            {"tensors", std::move(tensors)},
            {"objects", std::move(objects)},
            {"problems", std::move(problems)}};
  for (const auto& [name, value] : read.facts) json["facts"][name] = value;
  return json;
}

/// The name with "*" for each number between dots, so that layers are one row.
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (at == 0 ? "" : ".") + (is_number ? std::string("*") : part);
    at = end + 1;
  }
  return pattern;
}

Table table_of_tensors(const Checkpoint& read) {
  struct Row {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
  };
  using Key = std::tuple<std::string, std::string_view, std::vector<std::int64_t>, std::size_t>;
  std::map<Key, Row> rows;
  for (const CheckpointTensor& tensor : read.tensors) {
    Row& row = rows[Key(pattern_of(tensor.name), tensor.type->safetensors, tensor.shape,
                        tensor.boxes.size())];
    ++row.count;
    row.bytes += tensor.bytes();
  }
  Table table{.columns = {{.title = "tensor"},
                          {.title = "number", .align = Align::right},
                          {.title = "dtype"},
                          {.title = "shape"},
                          {.title = "boxes", .align = Align::right},
                          {.title = "bytes", .align = Align::right}}};
  for (const auto& [key, row] : rows) {
    const auto& [pattern, dtype, shape, boxes] = key;
    table.rows.push_back({pattern, format_count(row.count), std::string(dtype), shown_shape(shape),
                          format_count(static_cast<std::int64_t>(boxes)),
                          format_bytes(Bytes(row.bytes))});
  }
  return table;
}

Result<ExitCode> inspect(const ConvertOptions& options, const ConvertStreams& streams) {
  MFSDP_LET(read, open_checkpoint(options.words[0]));
  if (options.output == ConvertOutput::json) {
    streams.out << dump(inspection_json(read));
    return ExitCode::good;
  }
  streams.out << fmt::format("{}: {}", printable(read.path.string()), to_string(read.format));
  if (read.step) streams.out << fmt::format(", step {}", format_count(*read.step));
  streams.out << fmt::format(", {} tensors, {}, {} files\n", format_count(std::ssize(read.tensors)),
                             format_bytes(Bytes(read.bytes())),
                             format_count(std::ssize(read.files)));
  constexpr std::size_t kMostFacts = 12;
  for (std::size_t i = 0; i < std::min(kMostFacts, read.facts.size()); ++i)
    streams.out << fmt::format("  {}: {}\n", printable(read.facts[i].first), read.facts[i].second);
  streams.out << render_table(table_of_tensors(read), streams.style);
  if (!read.objects.empty())
    streams.out << fmt::format("and {} values that are no tensors, such as {}\n",
                               format_count(std::ssize(read.objects)),
                               shown_name(read.objects.front().name));
  for (const Error& problem : read.problems)
    streams.out << coloured("problem", Colour::red, streams.style) << ": " << problem.message()
                << "\n";
  return ExitCode::good;
}

// ---- check -------------------------------------------------------------------------------------

Result<ExitCode> check(const ConvertOptions& options, const ConvertStreams& streams) {
  MFSDP_LET(read, open_checkpoint(options.words[0]));
  MFSDP_LET(model, model_of_config(config_of(options, read)));
  Progress progress(streams.err, "MB", read.bytes() / kMegabyte);
  MFSDP_LET(findings, check_checkpoint(read, model, !options.skip_elements,
                                       [&](std::int64_t done) { progress.at(done / kMegabyte); }));
  progress.end();
  if (options.output == ConvertOutput::json) {
    Json list = Json::array();
    for (const CheckpointFinding& finding : findings)
      list.push_back(
          {{"flaw", to_string(finding.flaw)}, {"place", finding.place}, {"what", finding.what}});
    streams.out << dump({{"schema", "mfsdp.checkpoint_check/1"},
                         {"path", read.path.string()},
                         {"format", to_string(read.format)},
                         {"tensors", read.tensors.size()},
                         {"findings", std::move(list)}});
  } else {
    for (const CheckpointFinding& finding : findings)
      streams.out << fmt::format("{}: {}: {}\n",
                                 coloured(to_string(finding.flaw), Colour::red, streams.style),
                                 shown_name(finding.place), finding.what);
    streams.out << fmt::format(
        "{}: {} tensors of {}, {}{}: {}\n", printable(read.path.string()),
        format_count(std::ssize(read.tensors)), to_string(read.format),
        options.skip_elements ? "elements not read" : "each element read",
        model ? ", compared with config.json" : "",
        findings.empty() ? "sound" : fmt::format("{} findings", findings.size()));
  }
  return findings.empty() ? ExitCode::good : ExitCode::negative;
}

// ---- diff --------------------------------------------------------------------------------------

Result<ExitCode> diff(const ConvertOptions& options, const ConvertStreams& streams) {
  MFSDP_LET(a, open_checkpoint(options.words[0]));
  MFSDP_LET(b, open_checkpoint(options.words[1]));
  std::optional<fs::path> config = config_of(options, a);
  if (!config) config = config_of(options, b);
  MFSDP_LET(model, model_of_config(config));
  Progress progress(streams.err, "MB", a.bytes() / kMegabyte);
  MFSDP_LET(difference, diff_checkpoints(a, b, model, [&](std::int64_t done) {
              progress.at(done / kMegabyte);
            }));
  progress.end();
  if (options.output == ConvertOutput::json) {
    Json list = Json::array();
    for (const TensorDifference& one : difference.tensors)
      list.push_back({{"tensor", one.name},
                      {"what", one.what},
                      {"elements", one.elements},
                      {"largest", one.largest},
                      {"first", one.first}});
    streams.out << dump({{"schema", "mfsdp.checkpoint_difference/1"},
                         {"compared", difference.compared},
                         {"differences", std::move(list)}});
  } else {
    for (const TensorDifference& one : difference.tensors) {
      streams.out << fmt::format("{}: {}", shown_name(one.name), one.what);
      if (one.elements > 0)
        streams.out << fmt::format(": {} elements, the first at {}, the largest difference {:.6g}",
                                   format_count(one.elements), shown_shape(one.first), one.largest);
      streams.out << "\n";
    }
    streams.out << fmt::format("{} tensors compared, {} differ\n",
                               format_count(difference.compared),
                               format_count(std::ssize(difference.tensors)));
  }
  return difference.tensors.empty() ? ExitCode::good : ExitCode::negative;
}

// ---- convert -----------------------------------------------------------------------------------

Result<ExitCode> convert(const ConvertOptions& options, const ConvertStreams& streams) {
  MFSDP_LET(read, open_checkpoint(options.words[0]));
  const auto config = config_of(options, read);
  MFSDP_LET(model, model_of_config(config));
  const fs::path out(options.words[1]);
  ConvertSettings settings{.to = *options.to,
                           .names = options.names,
                           .model = std::move(model),
                           .dtype = options.dtype,
                           .keeps_optimizer = options.optimizer == OptimizerFate::keep,
                           .ranks = options.ranks,
                           .memory = options.memory,
                           .is_dry = options.dry_run};
  if (config && settings.to == CheckpointFormat::hf)
    MFSDP_SET(settings.config_text, read_file(*config, "a config.json", kMostConfig));
  Progress progress(streams.err, "MB", read.bytes() / kMegabyte);
  MFSDP_LET(outcome, convert_checkpoint(read, out, settings,
                                        [&](std::int64_t done) { progress.at(done / kMegabyte); }));
  progress.end();
  if (options.output == ConvertOutput::json) {
    streams.out << dump({{"schema", "mfsdp.conversion/1"},
                         {"from", to_string(read.format)},
                         {"to", to_string(settings.to)},
                         {"path", out.string()},
                         {"tensors", outcome.tensors},
                         {"bytes", outcome.bytes},
                         {"files", outcome.files},
                         {"dropped", outcome.dropped}});
    return ExitCode::good;
  }
  streams.out << fmt::format("{}: {} to {}, {} tensors, {}{}\n", printable(out.string()),
                             to_string(read.format), to_string(settings.to),
                             format_count(outcome.tensors), format_bytes(Bytes(outcome.bytes)),
                             settings.is_dry ? ", nothing written" : "");
  for (const std::string& dropped : outcome.dropped)
    streams.out << fmt::format("not kept: {}\n", printable(dropped));
  return ExitCode::good;
}

}  // namespace

Result<ExitCode> run_convert(const ConvertOptions& options, const ConvertStreams& streams) {
  if (options.inspect) return inspect(options, streams);
  if (options.check) return check(options, streams);
  if (options.diff) return diff(options, streams);
  return convert(options, streams);
}

}  // namespace mfsdp
