#include <fmt/format.h>

#include <cmath>

#include "core/cli/format.hpp"
#include "reports/measures/measure.hpp"

namespace mfsdp {
namespace {

std::int64_t whole_of(const Figure& figure) {
  if (const auto* whole = std::get_if<std::int64_t>(&figure)) return *whole;
  return std::llround(std::get<double>(figure));
}

std::string unsigned_text(MeasureUnit unit, const Figure& figure) {
  switch (unit) {
    case MeasureUnit::bytes: return format_bytes(Bytes(whole_of(figure)));
    case MeasureUnit::nanoseconds: return format_duration(Nanos(whole_of(figure)));
    case MeasureUnit::count: return format_count(whole_of(figure));
    case MeasureUnit::fraction: return format_percent(real_of(figure));
    case MeasureUnit::rate: return format_rate(real_of(figure));
    case MeasureUnit::plain: break;
  }
  return fmt::format("{:.6g}", real_of(figure));
}

}  // namespace

double real_of(const Figure& figure) {
  return std::visit([](auto value) { return static_cast<double>(value); }, figure);
}

bool is_less(const Figure& a, const Figure& b) {
  const auto* whole_a = std::get_if<std::int64_t>(&a);
  const auto* whole_b = std::get_if<std::int64_t>(&b);
  if (whole_a != nullptr && whole_b != nullptr) return *whole_a < *whole_b;
  return real_of(a) < real_of(b);
}

std::string human_text(MeasureUnit unit, const Figure& figure) {
  return unsigned_text(unit, figure);
}

std::string exact_text(const Figure& figure) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, figure);
}

std::string digits_text(MeasureUnit unit, const Figure& figure) {
  const auto* whole = std::get_if<std::int64_t>(&figure);
  if (whole == nullptr) return exact_text(figure);
  if (unit == MeasureUnit::bytes) return format_count(*whole) + " B";
  if (unit == MeasureUnit::nanoseconds) return format_count(*whole) + " ns";
  return unsigned_text(unit, figure);
}

std::string difference_text(MeasureUnit unit, const Figure& from, const Figure& to) {
  const bool more = is_less(from, to);
  if (!more && !is_less(to, from)) return "0";
  const Figure& low = more ? from : to;
  const Figure& high = more ? to : from;
  Figure amount;
  const auto* whole_low = std::get_if<std::int64_t>(&low);
  const auto* whole_high = std::get_if<std::int64_t>(&high);
  if (whole_low != nullptr && whole_high != nullptr)
    amount = *whole_high - *whole_low;
  else
    amount = real_of(high) - real_of(low);
  const std::string size = unit == MeasureUnit::fraction
                               ? format_real(real_of(amount) * 100, 2) + " points"
                               : unsigned_text(unit, amount);
  return (more ? "+" : "-") + size;
}

std::string relative_text(const Figure& from, const Figure& to) {
  const double whole = real_of(from);
  if (whole == 0 || !std::isfinite(whole)) return "";
  const double part = (real_of(to) - whole) / std::fabs(whole);
  if (part == 0) return "0.0 %";
  if (std::fabs(part) < 0.0005) return part > 0 ? "+<0.1 %" : "-<0.1 %";
  return (part > 0 ? "+" : "") + format_percent(part);
}

}  // namespace mfsdp
