// Logs of NCCL's inspector (ext-profiler/inspector, NCCL 2.28 and later): a line of JSON for a
// completed collective of a communicator.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "verify/traces/recorded_calls.hpp"

namespace mfsdp::traces {

/// A file's name, for errors, and its bytes.
struct InspectorFile {
  std::string where;
  std::string bytes;
};

/// Whether the last line is no whole object of JSON and does not end: its process was killed while
/// it wrote. Other lines before it are whole.
[[nodiscard]] bool ends_within_a_line(std::string_view bytes);

/// By communicator: members are its ranks, as it counts them. A line for each dump of the plugin's
/// thread holds the last collective that had ended, so that records have gaps. A last line that is
/// cut off after others is left out. Errors name file and line: what is no such line, a
/// communicator whose number of ranks differs, a rank of it in two files, a collective's number
/// twice with different contents.
[[nodiscard]] Result<std::vector<RecordedGroup>> read_inspector_logs(
    std::span<const InspectorFile> files);

}  // namespace mfsdp::traces
