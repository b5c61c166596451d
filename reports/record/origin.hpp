// The origin of a run, which exports to other tools' formats contain, so that importing them gives
// a run of the same kind: a simulated one stays simulated.
//
//   {"schema":"mfsdp.origin/1","source":"simulated","tool":"mfsdp-sim","run_id":"3fa9...",...}
//
// TensorBoard's events carry it as a text of kOriginTag, memory snapshots under kOriginKey.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

constexpr std::string_view kOriginTag = "mfsdp/origin/text_summary";
constexpr std::string_view kOriginKey = "mfsdp_origin";

struct RunOrigin {
  std::string source;  ///< "simulated" or "measured"
  std::string tool;
  std::string run_id;
  std::string engine;
  std::string model;
  std::string gpu;
  std::optional<std::int64_t> gpus = {};  ///< none: not known
};

/// One line of JSON.
[[nodiscard]] std::string origin_text(const RunResult& run);

/// The error names `where`, and what is wrong in the text.
[[nodiscard]] Result<RunOrigin> parse_origin(std::string_view text, const std::string& where);

}  // namespace mfsdp
