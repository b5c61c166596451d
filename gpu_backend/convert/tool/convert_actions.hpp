// The actions of mfsdp-convert. Each prints its result.
#pragma once

#include <ostream>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/text_style.hpp"
#include "gpu_backend/convert/tool/convert_options.hpp"

namespace mfsdp {

struct ConvertStreams {
  std::ostream& out;
  std::ostream& err;
  TextStyle style = {};
};

/// Does the action that the options ask for.
[[nodiscard]] Result<ExitCode> run_convert(const ConvertOptions& options,
                                           const ConvertStreams& streams);

}  // namespace mfsdp
