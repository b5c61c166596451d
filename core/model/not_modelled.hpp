// Known model names that no recipe computes. For a config.json see foreign_types.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

/// The part of a model that no recipe has, for messages: "mixtures of experts". `name`: a model's
/// name as users write it, with or without its organisation. None for modelled families and for
/// unknown names.
[[nodiscard]] std::optional<std::string_view> what_is_not_modelled(std::string_view name);

/// "mixtral is not modelled: it has a mixture of experts (docs/reference/limits.md)"
[[nodiscard]] std::string not_modelled_text(std::string_view name, std::string_view what);

}  // namespace mfsdp
