// One run of an nccl-tests benchmark, from text or JSON alike, and whether it can be believed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// What one line says of one way to run: out of place or in place.
struct NcclTiming {
  double us = 0;
  double alg_bandwidth = 0;     ///< GB/s
  double bus_bandwidth = 0;     ///< GB/s
  std::optional<double> wrong;  ///< elements with a wrong value; none: not checked
};

struct NcclLine {
  std::int64_t size = 0;   ///< bytes of the full buffer
  std::int64_t count = 0;  ///< elements that a rank passes to NCCL
  std::string type;
  std::string redop;  ///< "none" where the collective reduces nothing
  std::optional<NcclTiming> out_of_place;
  std::optional<NcclTiming> in_place;
  std::string place;  ///< "file:line"
};

struct NcclRun {
  std::string benchmark;  ///< "all_gather"; empty where no line names it
  std::int64_t ranks = 0;
  std::int64_t nodes = 0;
  std::string device;
  std::vector<NcclLine> lines;
  std::optional<double> average;  ///< GB/s, of all bus bandwidths, as the run's closing line says
  std::string place;              ///< where its table starts
};

/// The benchmark that a line of text names as a program ("/opt/all_gather_perf -b 8"), or "".
[[nodiscard]] std::string benchmark_named_in(std::string_view text);

/// The run's out-of-place times, in-place where there is no other; lines of no bytes are left out.
/// Refused, by line: benchmarks other than the three collectives, wrong values, several data types
/// or reductions in one table, times that are not positive, sizes that are not counts times the
/// type's size (times the ranks, but for all-reduce), and bandwidths that do not follow from the
/// time, nor their average from them, by more than 1 % and the rounding of two decimals.
[[nodiscard]] Result<std::vector<CollectiveSample>> samples_of(const NcclRun& run);

}  // namespace mfsdp
