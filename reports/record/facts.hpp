// Inputs of a run beside its plan: the cluster's figures, seeds, the recipe, versions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

using FactValue = std::variant<bool, std::int64_t, double, std::string>;

/// One of them. Topics are "cluster", "simulation", "recipe", "software", "hardware", "kernels",
/// "exposed", "measured", "import"; the name states the unit ("nic_latency_ns").
struct Fact {
  std::string topic;
  std::string name;
  FactValue value;

  friend bool operator==(const Fact&, const Fact&) = default;
};

using Facts = std::vector<Fact>;

/// Fact of topic "recipe": tokens that a resumed run had seen before, with a label or without.
inline constexpr std::string_view kResumedTokens = "resumed_tokens";
/// Fact of topic "simulation": the most that --memory-limit lets an engine's allocator reserve.
inline constexpr std::string_view kMemoryLimit = "memory_limit_bytes";

/// The fact of that topic and name; null where there is none.
[[nodiscard]] const Fact* find_fact(const Facts& facts, std::string_view topic,
                                    std::string_view name);

/// The basis of a prediction beside its tier, one sentence for each fact: the texts of
/// "simulation"'s engine_options, engine_basis, framework_options (of results before these were
/// engine_options), memory_error, gradient_reductions, power, priced_by, published_prices and
/// assumed, as far as it has them.
[[nodiscard]] std::vector<std::string> statements_of(const Facts& facts);

/// The value as text: "true", "8192", "0.02", the text itself.
[[nodiscard]] std::string fact_text(const FactValue& value);

/// {"topic": {"name": value}} on one line, in the order of the facts. Numbers that are not finite
/// become null, and are no facts when they are read back.
[[nodiscard]] std::string facts_json(const Facts& facts);

/// Reads the text that facts_json wrote. Errors name `where`.
[[nodiscard]] Result<Facts> facts_from_json(const std::string& text, const std::string& where);

}  // namespace mfsdp
