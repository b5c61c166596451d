// All measurements of the files of --calibrate, checked.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "sim/calibrate/trace_run.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// A copy on the device; bytes read and bytes written both count.
struct CopySample {
  double bytes = 0;
  double ns = 0;
  std::string place;  ///< "file:line"
};

struct Measurements {
  std::vector<GemmRow> gemm;
  std::vector<AttentionRow> attention;
  std::vector<std::string> gemm_places;  ///< "file:line" of each row
  std::vector<std::string> attention_places;
  std::vector<CollectiveSample> collectives;  ///< inside domains and between them
  std::vector<CopySample> copies;
  std::vector<TraceRun> traces;
  std::vector<std::string> gemm_files;  ///< names without folders, for the source of a value
  std::vector<std::string> attention_files;
  std::vector<std::string> collective_files;
  std::vector<std::string> copy_files;
  std::vector<std::string> trace_files;
  std::vector<std::string> devices;  ///< as the files call them, each once
};

/// Columns bytes_moved, ms and, where present, TB_per_s, which must agree.
[[nodiscard]] Result<std::vector<CopySample>> parse_copy_table(std::string_view text,
                                                               const std::string& where);

/// Reads any number of files. The content determines the format: nccl-tests' text or JSON, a trace
/// of PyTorch's profiler (gzip or plain), or a CSV with a header from README.md. Each error is one
/// line that names the file, the line or field, and what was expected: binary, empty, truncated or
/// contradicting data.
[[nodiscard]] Result<Measurements> read_measurements(std::span<const std::filesystem::path> files);

}  // namespace mfsdp
