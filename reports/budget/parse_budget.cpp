#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <utility>

#include "core/base/amount.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/base/toml_fields.hpp"
#include "reports/budget/budget.hpp"
#include "reports/budget/stamps.hpp"

namespace mfsdp {
namespace {

std::span<const UnitWord> words_of(MeasureUnit unit) {
  if (unit == MeasureUnit::bytes) return kByteWords;
  if (unit == MeasureUnit::nanoseconds) return kTimeWords;
  return {};
}

std::string expected_of(MeasureUnit unit) {
  std::string integer = "expected an integer from 0 to 2^63 - 1";
  switch (unit) {
    case MeasureUnit::bytes: return integer + " in bytes, or text such as \"48 GiB\"";
    case MeasureUnit::nanoseconds: return integer + " in nanoseconds, or text such as \"820 ms\"";
    case MeasureUnit::count: return integer;
    case MeasureUnit::fraction: return "expected a number from 0 to 1, or text such as \"45 %\"";
    case MeasureUnit::rate:
    case MeasureUnit::plain: break;
  }
  return "expected a number of 0 or more";
}

bool is_whole(MeasureUnit unit) {
  return unit == MeasureUnit::bytes || unit == MeasureUnit::nanoseconds ||
         unit == MeasureUnit::count;
}

/// "2 %" or "0.5%" -> 0.02 or 0.005.
std::optional<double> parse_percent(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  if (text.ends_with(' ')) text.remove_suffix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= 0 && value <= 1e6) || text.starts_with('-')) return std::nullopt;
  return value / 100;
}

std::optional<Figure> figure_of(const TomlEntry& entry, MeasureUnit unit) {
  if (is_whole(unit)) {
    if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
      return *integer >= 0 ? std::optional<Figure>(*integer) : std::nullopt;
    const auto* text = std::get_if<std::string>(&entry.value);
    if (text == nullptr) return std::nullopt;
    const auto amount = parse_amount(*text, words_of(unit));
    return amount ? std::optional<Figure>(*amount) : std::nullopt;
  }
  std::optional<double> value;
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    value = static_cast<double>(*integer);
  else if (const auto* real = std::get_if<double>(&entry.value))
    value = *real;
  else if (const auto* text = std::get_if<std::string>(&entry.value))
    value = unit == MeasureUnit::fraction ? parse_percent(*text) : std::nullopt;
  const double most = unit == MeasureUnit::fraction ? 1.0 : std::numeric_limits<double>::max();
  if (!value || !(*value >= 0 && *value <= most)) return std::nullopt;
  return *value;
}

std::string shown(const TomlEntry& entry) {
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&entry.value)) return fmt::format("{}", *real);
  if (const auto* text = std::get_if<std::string>(&entry.value))
    return fmt::format("\"{}\"", printable(std::string_view(*text).substr(0, 60)));
  return "of another type";
}

/// Reads the keys of one limit.
class LimitReader {
 public:
  LimitReader(TomlFields& fields, Measure measure) : fields_(fields) {
    limit_.measure = std::move(measure);
  }

  /// None where the file has no limit of that measure, or a wrong one.
  std::optional<Limit> read() {
    const MeasureUnit unit = limit_.measure.unit;
    const std::string& key = limit_.measure.key;
    if (const auto alone = figure(key))
      (limit_.measure.better == Better::lower ? limit_.most : limit_.least) = alone;
    if (const auto most = figure(key + ".most")) limit_.most = most;
    if (const auto least = figure(key + ".least")) limit_.least = least;
    limit_.expected = figure(key + ".expected");
    limit_.tolerance = difference(key + ".tolerance");
    limit_.worse_by = difference(key + ".worse_by");
    if (limit_.line == 0) return std::nullopt;
    if (limit_.expected && (limit_.most || limit_.least))
      fields_.reject(key + ".expected", "contradicts most and least; give one or the other");
    if (limit_.tolerance && !fields_.has(key + ".expected"))
      fields_.reject(key + ".tolerance", "needs expected: a tolerance around what");
    if (limit_.most && limit_.least && is_less(*limit_.most, *limit_.least))
      fields_.reject(key + ".least", fmt::format("is {}, more than most: nothing passes",
                                                 human_text(unit, *limit_.least)));
    return limit_;
  }

 private:
  const TomlEntry* find(const std::string& key) {
    const TomlEntry* entry = fields_.find(key);
    if (entry != nullptr && (limit_.line == 0 || entry->line < limit_.line))
      limit_.line = entry->line;
    return entry;
  }

  std::optional<Figure> figure(const std::string& key) {
    const TomlEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    const MeasureUnit unit = limit_.measure.unit;
    const auto value = figure_of(*entry, unit);
    if (!value)
      fields_.reject(entry->key, fmt::format("is {}; {}", shown(*entry), expected_of(unit)));
    return value;
  }

  std::optional<Difference> difference(const std::string& key) {
    const TomlEntry* entry = find(key);
    if (entry == nullptr) return std::nullopt;
    const MeasureUnit unit = limit_.measure.unit;
    if (const auto* text = std::get_if<std::string>(&entry->value))
      if (const auto share = parse_percent(*text)) return Difference{.share = share, .amount = {}};
    const auto amount = figure_of(*entry, unit);
    if (amount) return Difference{.share = std::nullopt, .amount = *amount};
    fields_.reject(entry->key,
                   fmt::format("is {}; expected a part such as \"2 %\", or an amount: {}",
                               shown(*entry), expected_of(unit).substr(9)));
    return std::nullopt;
  }

  TomlFields& fields_;
  Limit limit_;
};

void read_stamps(TomlFields& fields, Budget& budget) {
  for (const StampKind& kind : stamp_kinds()) {
    const TomlEntry* entry = fields.find(kind.key);
    if (entry == nullptr) continue;
    std::string text;
    if (kind.integer)
      text = fmt::format("{}", fields.integer(kind.key, {.least = 0, .most = 9e18}));
    else
      text = fields.text(kind.key);
    budget.stamps.push_back({.key = kind.key, .text = std::move(text), .line = entry->line});
  }
}

/// "loss.100.most" and similar: keys below [loss] are step numbers.
void read_limits_at_steps(TomlFields& fields, Budget& budget) {
  for (const std::string_view table : Names<StepMeasure>::values) {
    std::vector<std::int64_t> done;
    for (const std::string& below : fields.keys_below(table)) {
      std::int64_t step = 0;
      const std::string_view name = std::string_view(below).substr(0, below.find('.'));
      const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), step);
      if (code != std::errc() || end != name.data() + name.size() || step < 0) {
        const std::string key = std::string(table) + "." + below;
        if (fields.find(key) != nullptr)
          fields.reject(key, "is not named by a step: expected a whole number, such as 100");
        continue;
      }
      if (std::ranges::find(done, step) != done.end()) continue;
      done.push_back(step);
      const auto what = *parse<StepMeasure>(table);
      if (auto limit = LimitReader(fields, measure_at_step(what, step)).read())
        budget.limits.push_back(std::move(*limit));
    }
  }
}

/// "classes.stage_0.allocated_bytes.most" and similar.
void read_limits_of_classes(TomlFields& fields, Budget& budget) {
  std::vector<std::string> done;
  for (const std::string& below : fields.keys_below("classes")) {
    const std::size_t role = below.find('.');
    const std::string key = "classes." + below.substr(0, below.find('.', role + 1));
    const auto measure = class_measure_named(key);
    if (role == std::string::npos || !measure || std::ranges::find(done, key) != done.end())
      continue;
    done.push_back(key);
    if (auto limit = LimitReader(fields, *measure).read())
      budget.limits.push_back(std::move(*limit));
  }
}

}  // namespace

Result<Budget> parse_budget(std::string_view text, const std::string& file) {
  MFSDP_LET(fields, TomlFields::parse(text, file));
  Budget budget;
  budget.file = file;
  read_stamps(fields, budget);
  for (const Measure& measure : measures())
    if (auto limit = LimitReader(fields, measure).read())
      budget.limits.push_back(std::move(*limit));
  read_limits_of_classes(fields, budget);
  read_limits_at_steps(fields, budget);
  MFSDP_TRY(fields.finish());
  if (budget.limits.empty())
    return fail(file, "holds no limit; expected one at least, such as allocated_bytes in [memory]");
  std::ranges::stable_sort(budget.limits, {}, &Limit::line);
  return budget;
}

Result<Budget> load_budget(const std::string& file) {
  MFSDP_LET(text, read_file(file, "a budget in TOML", kMostTomlBytes));
  return parse_budget(text, file);
}

}  // namespace mfsdp
