#include "reports/commands/report_options.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "core/base/unix_time.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

/// "7d" before now; none where the text is not of that form.
std::optional<std::int64_t> parse_ago(const std::string& text, std::int64_t now_ns) {
  struct UnitOfTime {
    char letter;
    std::int64_t seconds;
  };
  constexpr std::array<UnitOfTime, 5> units{
      {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}, {'w', 604'800}}};
  constexpr std::int64_t most = 1'000'000'000 / 604'800;  // 31 years of weeks
  std::int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, count);
  if (code != std::errc() || stop + 1 != end || count < 0) return std::nullopt;
  for (const UnitOfTime& unit : units)
    if (*stop == unit.letter && count <= most * (604'800 / unit.seconds))
      return now_ns - count * unit.seconds * kSecond;
  return std::nullopt;
}

/// Reads a whole number of exactly `digits` digits and the character after it.
bool take(std::string_view& text, std::size_t digits, int& value, std::string_view after) {
  if (text.size() < digits) return false;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + digits, value);
  if (code != std::errc() || stop != text.data() + digits || *text.data() == '-') return false;
  text.remove_prefix(digits);
  if (after.empty() || text.empty()) return true;
  if (after.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return !text.empty();
}

std::optional<std::int64_t> parse_date(std::string_view text) {
  namespace chrono = std::chrono;
  int year = 0;
  int month = 0;
  int day = 0;
  if (!take(text, 4, year, "-") || !take(text, 2, month, "-") || !take(text, 2, day, "T "))
    return std::nullopt;
  const chrono::year_month_day date{chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || year < 1970 || year > 2200) return std::nullopt;
  int hours = 0;
  int minutes = 0;
  int seconds = 0;
  if (text.ends_with('Z')) text.remove_suffix(1);
  if (!text.empty()) {
    if (!take(text, 2, hours, ":") || text.empty() || !take(text, 2, minutes, ":"))
      return std::nullopt;
    if (!text.empty() && (!take(text, 2, seconds, "") || !text.empty())) return std::nullopt;
    if (hours > 23 || minutes > 59 || seconds > 59) return std::nullopt;
  }
  const auto days = chrono::sys_days(date).time_since_epoch();
  return (chrono::duration_cast<chrono::seconds>(days).count() + std::int64_t{hours} * 3600 +
          std::int64_t{minutes} * 60 + seconds) *
         kSecond;
}

Flag time_flag(const std::string& name, std::string help, std::optional<std::int64_t>& target) {
  return bound_flag(name, "TIME", std::move(help), target,
                    [](const std::string& text, const std::string& flag) {
                      return parse_time(text, flag, unix_now_ns());
                    });
}

Flag pattern_flag(const std::string& name, std::string help, std::optional<std::string>& target) {
  return bound_flag(name, "TEXT", std::move(help), target, parse_text);
}

}  // namespace

Result<std::int64_t> parse_time(const std::string& text, std::string_view flag,
                                std::int64_t now_ns) {
  if (const auto ago = parse_ago(text, now_ns)) return *ago;
  if (const auto date = parse_date(text)) return *date;
  return fail(std::string(flag),
              in_quotes(text) +
                  " is not a time: expected 2026-11-23, 2026-11-23T07:55 (UTC), or so "
                  "long ago as 90m, 12h, 7d or 2w");
}

FlagGroup filter_flags(ReportOptions& o) {
  return {
      .title = "Filters (texts may contain * and ?)",
      .flags = {pattern_flag("--model", "of that model", o.filter.model),
                pattern_flag("--cluster", "on a cluster of that GPU or network", o.filter.cluster),
                integer_flag("--gpus", "on N GPUs", o.filter.gpus, {.lowest = 1}),
                choice_flag("--kind", "K", "simulated, measured (both)", o.filter.kind),
                pattern_flag("--commit", "made by that commit of mfsdp", o.filter.commit),
                pattern_flag("--name", "of that name", o.filter.name),
                time_flag("--since", "made then or later: a date, or 7d", o.filter.since_ns),
                time_flag("--until", "made before: a date, or 7d", o.filter.until_ns)}};
}

FlagGroup store_flags(ReportOptions& o) {
  Flag db = bound_flag("--db", "FILE", "store of results (mfsdp.sqlite)", o.db, parse_path);
  db.values.paths = PathKind::file;
  return {.title = "Store and output",
          .flags = {db, choice_flag("--output", "F", "text, json, jsonl, csv, md (text)", o.output),
                    switch_flag("--help", "show this text", o.help),
                    switch_flag("--version", "show version and build", o.version)}};
}

Result<Store> open_store(const ReportOptions& options) {
  StoreOptions existing;
  existing.create = false;
  existing.for_reading = true;
  return Store::open(options.db, existing);
}

}  // namespace mfsdp
