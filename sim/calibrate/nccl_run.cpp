#include "sim/calibrate/nccl_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/text.hpp"
#include "sim/cost/nccl.hpp"

namespace mfsdp {
namespace {

constexpr double kTolerance = 0.01;
constexpr double kRounding = 0.0051;  // GB/s: bandwidths have two decimals
constexpr std::int64_t kMostNcclRanks = 65536;

struct TypeSize {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<TypeSize, 12> kTypes{{{"int8", 1},
                                           {"uint8", 1},
                                           {"int32", 4},
                                           {"uint32", 4},
                                           {"int64", 8},
                                           {"uint64", 8},
                                           {"half", 2},
                                           {"float", 4},
                                           {"double", 8},
                                           {"bfloat16", 2},
                                           {"f8e4m3", 1},
                                           {"f8e5m2", 1}}};

/// The collective of a run without a name, identified by columns that only one benchmark prints.
Result<CollectiveKind> kind_by_counts(const NcclRun& run, std::int64_t type_bytes) {
  const NcclLine& line = run.lines.back();
  const bool whole = line.size == line.count * type_bytes;
  if (line.redop != "none" && whole) return CollectiveKind::all_reduce;
  if (line.redop != "none" && line.size == line.count * type_bytes * run.ranks)
    return CollectiveKind::reduce_scatter;
  return fail(run.place,
              "no line names the benchmark; all_gather and others print the same table (add the "
              "line \"# Collective test starting: all_gather_perf\" if that is what ran)");
}

Result<CollectiveKind> kind_of(const NcclRun& run, std::int64_t type_bytes) {
  if (run.benchmark.empty()) return kind_by_counts(run, type_bytes);
  if (const auto kind = measured_collective(run.benchmark)) return *kind;
  return fail(run.place, fmt::format("measures {}; expected {}", printable(run.benchmark),
                                     kMeasuredCollectives));
}

Result<void> check_timing(const NcclTiming& timing, const NcclLine& line, CollectiveKind kind,
                          std::int64_t ranks) {
  if (timing.wrong && *timing.wrong != 0)
    return fail(line.place, fmt::format("has {:g} wrong values; a run that computes wrong results "
                                        "measures nothing",
                                        *timing.wrong));
  if (!(timing.us > 0 && timing.us < 1e12))
    return fail(line.place, fmt::format("time is {:g}; expected microseconds above 0", timing.us));
  const auto check = [&](std::string_view name, double stated, double bytes) -> Result<void> {
    const double expected = bytes / (timing.us * 1e3);
    if (std::abs(stated - expected) <= kRounding + kTolerance * expected) return {};
    return fail(line.place,
                fmt::format("{} is {:g} GB/s, but {} bytes in {:g} us by {} of {} "
                            "ranks make {:.4g}",
                            name, stated, line.size, timing.us, to_string(kind), ranks, expected));
  };
  const auto size = static_cast<double>(line.size);
  MFSDP_TRY(check("algbw", timing.alg_bandwidth, size));
  return check("busbw", timing.bus_bandwidth, wire_bytes(kind, size, static_cast<double>(ranks)));
}

Result<void> check_line(const NcclLine& line, const NcclRun& run, CollectiveKind kind,
                        std::int64_t type_bytes) {
  const NcclLine& first = run.lines.front();
  if (line.type != first.type)
    return fail(line.place, fmt::format("mixes data types: {} after {}; give one run a type",
                                        printable(line.type), printable(first.type)));
  if (line.redop != first.redop)
    return fail(line.place, fmt::format("mixes reductions: {} after {}; give one run a reduction",
                                        printable(line.redop), printable(first.redop)));
  const std::int64_t parts = kind == CollectiveKind::all_reduce ? 1 : run.ranks;
  if (static_cast<double>(line.count) * static_cast<double>(type_bytes * parts) !=
      static_cast<double>(line.size))
    return fail(line.place,
                fmt::format("{} bytes are not {} elements of {} bytes{}", line.size, line.count,
                            type_bytes, parts == 1 ? "" : fmt::format(" on {} ranks", parts)));
  for (const auto& timing : {line.out_of_place, line.in_place})
    if (timing) MFSDP_TRY(check_timing(*timing, line, kind, run.ranks));
  return {};
}

/// Checks the average against the rows: it shows if rows were removed from a table.
Result<void> check_average(const NcclRun& run) {
  double sum = 0;
  double count = 0;
  for (const NcclLine& line : run.lines) {
    for (const auto& timing : {line.out_of_place, line.in_place}) {
      if (!timing) continue;
      sum += timing->bus_bandwidth;
      count += 1;
    }
  }
  if (!run.average || std::abs(*run.average - sum / count) <= kRounding + kTolerance * sum / count)
    return {};
  return fail(run.place, fmt::format("the rows' busbw is {:.6g} GB/s on average, the closing line "
                                     "has {:.6g}; rows are missing or changed",
                                     sum / count, *run.average));
}

}  // namespace

std::string benchmark_named_in(std::string_view text) {
  constexpr std::string_view kEnding = "_perf";
  const std::size_t end = text.rfind(kEnding);
  if (end == std::string_view::npos) return {};
  std::size_t begin = end;
  while (begin > 0 &&
         (std::isalpha(static_cast<unsigned char>(text[begin - 1])) != 0 || text[begin - 1] == '_'))
    --begin;
  return std::string(text.substr(begin, end - begin));
}

Result<std::vector<CollectiveSample>> samples_of(const NcclRun& run) {
  if (run.lines.empty()) return fail(run.place, "has a header, but no row follows");
  if (run.ranks < 2 || run.ranks > kMostNcclRanks)
    return fail(run.place,
                fmt::format("ran on {} ranks; expected 2 to {}", run.ranks, kMostNcclRanks));
  if (run.nodes < 1 || run.ranks % run.nodes != 0)
    return fail(run.place, fmt::format("ran {} ranks on {} hosts; expected as many on each",
                                       run.ranks, run.nodes));
  const auto type = std::ranges::find(kTypes, run.lines.front().type, &TypeSize::name);
  if (type == kTypes.end())
    return fail(run.lines.front().place,
                fmt::format("unknown data type {}", printable(run.lines.front().type)));
  MFSDP_LET(kind, kind_of(run, type->bytes));
  std::vector<CollectiveSample> samples;
  for (const NcclLine& line : run.lines) {
    if (line.size == 0) continue;
    MFSDP_TRY(check_line(line, run, kind, type->bytes));
    const auto& timing = line.out_of_place ? line.out_of_place : line.in_place;
    if (!timing) return fail(line.place, "has neither an out-of-place nor an in-place time");
    samples.push_back({.kind = kind,
                       .ranks = run.ranks,
                       .nodes = run.nodes,
                       .bytes = Bytes(line.size),
                       .ns = timing->us * 1e3,
                       .place = line.place});
  }
  MFSDP_TRY(check_average(run));
  if (samples.empty()) return fail(run.place, "has no row of more than 0 bytes");
  return samples;
}

}  // namespace mfsdp
