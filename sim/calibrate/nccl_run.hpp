// One run of an nccl-tests benchmark, from text or JSON, with consistency checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// Times of one line, out of place or in place.
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
  std::optional<NcclTiming> out_of_place = {};
  std::optional<NcclTiming> in_place = {};
  std::string place;  ///< "file:line"
};

struct NcclRun {
  std::string benchmark;  ///< "all_gather"; empty where no line names it
  std::int64_t ranks = 0;
  std::int64_t nodes = 0;
  std::string device;
  std::vector<NcclLine> lines = {};
  std::optional<double> average = {};  ///< GB/s of all bus bandwidths, from the run's last line
  std::string place;                   ///< where its table starts
};

/// The benchmark that a line of text runs as a program ("/opt/all_gather_perf -b 8"), or "".
[[nodiscard]] std::string benchmark_named_in(std::string_view text);

/// The run's out-of-place times, or in-place times if there are no others. Lines with 0 bytes are
/// skipped. Errors name the line: benchmarks other than the three collectives; wrong values;
/// several data types or reductions in one table; times that are not positive; sizes that are not
/// count times size of the type (times the ranks, except for all-reduce); bandwidths that disagree
/// with the time, or an average that disagrees with the bandwidths, by more than 1 % and the
/// rounding of two decimals.
[[nodiscard]] Result<std::vector<CollectiveSample>> samples_of(const NcclRun& run);

/// The file's run. Errors name file and field; for invalid JSON, line and column.
[[nodiscard]] Result<NcclRun> read_nccl_json(std::string_view text, const std::string& where);

/// Whether the text contains a table header of nccl-tests, with or without a launcher's label.
[[nodiscard]] bool is_nccl_text(std::string_view text);

/// All runs of a text, in order. Other output between and inside them is skipped. Labels that a
/// launcher puts before each line are removed; the text before a table's header shows their form.
/// Errors name file and line: a table without its device list, its units or its closing lines;
/// truncated rows; units other than B, us and GB/s; CPU times; split communicators.
[[nodiscard]] Result<std::vector<NcclRun>> read_nccl_text(std::string_view text,
                                                          const std::string& where);

}  // namespace mfsdp
