// Errors of a configuration from a file.
#pragma once

#include "core/base/error.hpp"

namespace mfsdp {

/// Replaces flags in an error of validate() ("--seq-len", "as --param-dtype") by fields
/// ("config.seq_len", "as param_dtype").
[[nodiscard]] Error named_by_field(const Error& error);

}  // namespace mfsdp
