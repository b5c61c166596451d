// The text that nccl-tests prints. README.md describes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "sim/calibrate/nccl_run.hpp"

namespace mfsdp {

/// Whether the text contains a table header of nccl-tests, with or without a launcher's label.
[[nodiscard]] bool is_nccl_text(std::string_view text);

/// All runs of a text, in order. Other output between and inside them is skipped. Labels that a
/// launcher puts before each line are removed; the text before a table's header shows their form.
/// Errors name file and line: a table without its device list, its units or its closing lines;
/// truncated rows; units other than B, us and GB/s; CPU times; split communicators.
[[nodiscard]] Result<std::vector<NcclRun>> read_nccl_text(std::string_view text,
                                                          const std::string& where);

}  // namespace mfsdp
