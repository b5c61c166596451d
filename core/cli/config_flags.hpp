// The flags of the configuration's fields, made from the table in core/plan/config_fields.hpp.
#pragma once

#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/flags.hpp"
#include "core/plan/config_fields.hpp"

namespace mfsdp {

/// The flags of a topic's fields, in the order of --help. Each sets its field of `options.config`.
/// If make_plan_config computes a field, its flag sets the inputs of that computation. `options`
/// must outlive the parsing.
[[nodiscard]] std::vector<Flag> config_flags(FieldTopic topic, CommonOptions& options);

}  // namespace mfsdp
