// Logs of NCCL's inspector (ext-profiler/inspector, NCCL 2.28 and later): each line is a JSON
// object that describes one completed collective of a communicator.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "verify/traces/recorded_calls.hpp"

namespace mfsdp::traces {

/// A file's name, for errors, and its bytes.
struct InspectorFile {
  std::string where;
  std::string bytes;
};

/// Whether the last line is truncated: it has no newline and is no complete JSON object, because
/// the process was killed while it wrote. The lines before it are complete.
[[nodiscard]] bool ends_within_a_line(std::string_view bytes);

/// The calls by communicator; members are its ranks, numbered within it. At each dump the plugin's
/// thread writes the last collective that ended, so records have gaps. A truncated last line is
/// skipped if there are others. Errors name file and line: a line of another form, a communicator
/// with a different number of ranks, one of its ranks in two files, a collective's number that
/// appears twice with different contents.
[[nodiscard]] Result<std::vector<RecordedGroup>> read_inspector_logs(
    std::span<const InspectorFile> files);

}  // namespace mfsdp::traces
