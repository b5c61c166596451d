// A setting: one field of a job, by its flag, and a typed value. A search space is made of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/cli/strategy_names.hpp"
#include "core/plan/config_fields.hpp"
#include "sim/search/job_options.hpp"

namespace mfsdp {

/// Tokens of a step over all GPUs, where a global batch is given in tokens.
struct BatchTokens {
  std::int64_t tokens = 0;
};

template <class Member>
struct FieldValues;
template <class... T>
struct FieldValues<std::variant<T PlanConfig::*...>> {
  using type = std::variant<T..., std::string, NamedStrategy, BatchTokens, EngineKind, PriceTables>;
};

/// A value of a field: of a row of kConfigFields the type of its member, of the others:
///   --model, --gpu, --cluster                                  std::string
///   --gpus, --outer-dp, --seq-len, --power-limit               std::int64_t
///   --global-batch       std::int64_t (sequences) or BatchTokens
///   --strategy           NamedStrategy
///   --expert-strategy    Strategy
///   --network-gbps       Rational
///   --tables, --engine   PriceTables, EngineKind
using FieldValue = FieldValues<FieldMember>::type;

struct Setting {
  std::string flag;  ///< "--micro-batch"
  FieldValue value;
  std::string text;  ///< the value as the flag takes it
};

/// A setting whose text is the value's. Requires a flag of a field, and a value of its type; so do
/// the functions below.
[[nodiscard]] Setting setting(std::string_view flag, FieldValue value);

/// Settings of one field, one for each value.
[[nodiscard]] std::vector<Setting> settings(std::string_view flag, const auto& values) {
  std::vector<Setting> all;
  for (const auto& value : values) all.push_back(setting(flag, FieldValue(value)));
  return all;
}

/// The job's value of a field. Requires that the field has a value.
[[nodiscard]] FieldValue value_of(const JobOptions& job, std::string_view flag);

/// Gives the field its value, and names the flag in job.given.
void apply(const Setting& setting, JobOptions& job);

/// The job with the settings, in order.
[[nodiscard]] JobOptions with_settings(JobOptions job, std::span<const Setting> settings);

/// "--recompute full --prefetch 0".
[[nodiscard]] std::string flags_text(std::span<const Setting> settings);

}  // namespace mfsdp
