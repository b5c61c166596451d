#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

#include "core/base/amount.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/base/toml_fields.hpp"
#include "reports/budget/budget.hpp"
#include "reports/budget/measures.hpp"

namespace mfsdp {
namespace {

std::span<const UnitWord> words_of(MeasureUnit unit) {
  switch (unit) {
    case MeasureUnit::bytes: return kByteWords;
    case MeasureUnit::nanoseconds: return kTimeWords;
    case MeasureUnit::count: break;
  }
  return {};
}

std::string expected(MeasureUnit unit) {
  const std::string integer = "expected an integer from 0 to 2^63 - 1";
  switch (unit) {
    case MeasureUnit::bytes: return integer + " in bytes, or text such as \"48 GiB\"";
    case MeasureUnit::nanoseconds: return integer + " in nanoseconds, or text such as \"820 ms\"";
    case MeasureUnit::count: break;
  }
  return integer;
}

void read_limit(TomlFields& fields, const BudgetMeasure& measure, Budget& budget) {
  const TomlEntry* entry = fields.find(measure.key());
  if (entry == nullptr) return;
  std::optional<std::int64_t> most;
  std::string shown = "of another type";
  if (const auto* integer = std::get_if<std::int64_t>(&entry->value)) {
    shown = fmt::format("{}", *integer);
    if (*integer >= 0) most = *integer;
  } else if (const auto* real = std::get_if<double>(&entry->value)) {
    shown = fmt::format("{}", *real);
  } else if (const auto* text = std::get_if<std::string>(&entry->value)) {
    shown = fmt::format("\"{}\"", printable(std::string_view(*text).substr(0, 60)));
    most = parse_amount(*text, words_of(measure.unit));
  }
  if (most)
    budget.limits.push_back({.key = entry->key, .most = *most, .line = entry->line});
  else
    fields.reject(entry->key, fmt::format("is {}; {}", shown, expected(measure.unit)));
}

std::optional<BudgetStamp> read_stamp(TomlFields& fields, std::string_view key) {
  const TomlEntry* entry = fields.find(key);
  if (entry == nullptr) return std::nullopt;
  return BudgetStamp{.text = fields.text(key), .line = entry->line};
}

}  // namespace

Result<Budget> parse_budget(std::string_view text, const std::string& file) {
  MFSDP_LET(fields, TomlFields::parse(text, file));
  Budget budget;
  budget.file = file;
  budget.cost_model_version = read_stamp(fields, "cost_model_version");
  budget.plan_hash = read_stamp(fields, "plan_hash");
  for (const BudgetMeasure& measure : budget_measures({})) read_limit(fields, measure, budget);
  MFSDP_TRY(fields.finish());
  if (budget.limits.empty())
    return fail(file, "holds no limit; expected one at least, such as allocated_bytes in [memory]");
  std::ranges::stable_sort(budget.limits, {}, &BudgetLimit::line);
  return budget;
}

Result<Budget> load_budget(const std::string& file) {
  MFSDP_LET(text, read_file(file, "a budget in TOML", kMostTomlBytes));
  return parse_budget(text, file);
}

}  // namespace mfsdp
