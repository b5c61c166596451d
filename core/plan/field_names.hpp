// Errors of a configuration that came from a file.
#pragma once

#include "core/base/error.hpp"

namespace mfsdp {

/// An error of validate() that names fields ("config.seq_len", "as param_dtype") where it named
/// flags ("--seq-len", "as --param-dtype").
[[nodiscard]] Error named_by_field(const Error& error);

}  // namespace mfsdp
