#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/parse_json.hpp"
#include "core/formats/json_fields.hpp"
#include "sim/calibrate/nccl_run.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

/// Range of counts; doubles represent them exactly.
constexpr IntegerRange kCounts{.least = 0, .most = 1'000'000'000'000'000};

Result<std::optional<NcclTiming>> timing(const Json& line, const char* key,
                                         const std::string& where) {
  const Json* cells = find_field(line, key);
  if (cells == nullptr || cells->is_null()) return std::nullopt;
  const std::string place = where + "." + key;
  if (find_field(*cells, "cpu_time") != nullptr)
    return fail(place, "has CPU times (-C); expected the times of the collectives");
  NcclTiming timing;
  MFSDP_SET(timing.us, number_field(*cells, "time", place));
  MFSDP_SET(timing.alg_bandwidth, number_field(*cells, "alg_bw", place));
  MFSDP_SET(timing.bus_bandwidth, number_field(*cells, "bus_bw", place));
  if (const Json* wrong = find_field(*cells, "nwrong"); wrong != nullptr && !wrong->is_null())
    MFSDP_SET(timing.wrong, number_field(*cells, "nwrong", place));
  return timing;
}

Result<NcclLine> read_line(const Json& object, const std::string& where) {
  NcclLine line;
  line.place = where;
  MFSDP_SET(line.size, integer_field(object, "size", where, kCounts));
  MFSDP_SET(line.count, integer_field(object, "count", where, kCounts));
  MFSDP_SET(line.type, text_field(object, "type", where));
  MFSDP_SET(line.redop, text_field(object, "redop", where));
  MFSDP_SET(line.out_of_place, timing(object, "out_of_place", where));
  MFSDP_SET(line.in_place, timing(object, "in_place", where));
  return line;
}

/// `devices` lists one rank of each process, for any number of threads and GPUs per process.
Result<void> read_devices(const Json& config, const std::string& where, NcclRun& run) {
  MFSDP_LET(devices, list_field(config, "devices", where));
  MFSDP_LET(threads, integer_field(config, "nthreads", where, kCounts));
  MFSDP_LET(gpus, integer_field(config, "ngpus", where, kCounts));
  std::set<std::string> hosts;
  for (const Json& device : *devices) {
    MFSDP_LET(host, text_field(device, "hostname", where + ".devices"));
    MFSDP_LET(group, integer_field(device, "group", where + ".devices", kCounts));
    if (group != 0)
      return fail(where, "the ranks are split into groups; expected one communicator");
    if (run.device.empty()) run.device = text_field(device, "device_info", where).value_or("");
    hosts.insert(host);
  }
  constexpr std::int64_t kMost = 65536;
  if (threads > kMost || gpus > kMost)
    return fail(where, fmt::format("nthreads and ngpus: expected at most {} each, got {} and {}",
                                   kMost, threads, gpus));
  run.ranks = static_cast<std::int64_t>(devices->size()) * threads * gpus;
  run.nodes = static_cast<std::int64_t>(hosts.size());
  return {};
}

Result<void> read_outcome(const Json& document, const std::string& where, NcclRun& run) {
  const Json* bounds = find_field(document, "out_of_bounds");
  const Json* average = find_field(document, "average_bus_bandwidth");
  if (bounds == nullptr || average == nullptr)
    return fail(where, "out_of_bounds or average_bus_bandwidth is missing; the run was cut short");
  MFSDP_LET(count, integer_field(*bounds, "count", where + ": out_of_bounds", kCounts));
  if (count != 0) return fail(where, "the run found values out of bounds; its data are corrupt");
  MFSDP_SET(run.average, number_field(*average, "bandwidth", where + ": average_bus_bandwidth"));
  return {};
}

}  // namespace

Result<NcclRun> read_nccl_json(std::string_view content, const std::string& where) {
  MFSDP_LET(document, parse_json(content, where));
  const Json* config = find_field(document, "config");
  const Json* args = find_field(document, "args");
  if (config == nullptr || find_field(document, "results") == nullptr)
    return fail(where,
                "unknown format: JSON without \"config\" and \"results\"; expected what "
                "nccl-tests -J writes, or a trace of PyTorch's profiler");
  NcclRun run;
  run.place = where;
  MFSDP_TRY(read_devices(*config, where + ": config", run));
  if (args != nullptr && args->is_array() && !args->empty() && args->front().is_string())
    run.benchmark = benchmark_named_in(args->front().get<std::string>());
  MFSDP_LET(results, list_field(document, "results", where));
  for (std::size_t i = 0; i < results->size(); ++i) {
    MFSDP_LET(line, read_line((*results)[i], fmt::format("{}: results[{}]", where, i)));
    run.lines.push_back(std::move(line));
  }
  MFSDP_TRY(read_outcome(document, where, run));
  return run;
}

}  // namespace mfsdp
