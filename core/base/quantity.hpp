// Sizes, times and identifiers as separate types: bytes cannot be added to nanoseconds, and an
// overflow is an error instead of a wrong result.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

namespace mfsdp {

/// Holds the result of multiplying two 63-bit numbers.
__extension__ using Int128 = __int128;

/// Thrown by checked arithmetic. Builders catch it at their entry point and name the input.
struct OverflowError : std::overflow_error {
  using std::overflow_error::overflow_error;
};

[[nodiscard]] inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw OverflowError("sum exceeds 2^63 - 1");
  return sum;
}

[[nodiscard]] inline std::int64_t checked_sub(std::int64_t a, std::int64_t b) {
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(a, b, &difference)) throw OverflowError("difference below -2^63");
  return difference;
}

[[nodiscard]] inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw OverflowError("product exceeds 2^63 - 1");
  return product;
}

[[nodiscard]] inline std::int64_t checked_narrow(Int128 value) {
  const auto narrow = static_cast<std::int64_t>(value);
  if (narrow != value) throw OverflowError("result leaves 64 bits");
  return narrow;
}

/// Multiplies any number of factors, checked.
[[nodiscard]] std::int64_t product_of(std::int64_t first, auto... rest) {
  ((first = checked_mul(first, static_cast<std::int64_t>(rest))), ...);
  return first;
}

/// Elements of a shape: the product of its dims, 1 without dims; checked.
[[nodiscard]] inline std::int64_t product_of(std::span<const std::int64_t> dims) {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims) product = checked_mul(product, dim);
  return product;
}

/// ceil(a / b) for a >= 0, b > 0.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Smallest multiple of `unit` that is not below `a`, checked. a >= 0, unit > 0.
[[nodiscard]] inline std::int64_t round_up(std::int64_t a, std::int64_t unit) {
  return checked_mul(ceil_div(a, unit), unit);
}

/// A 64-bit integer with a dimension.
template <class Dimension>
struct Quantity {
  std::int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t v) : value(v) {}

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend Quantity operator+(Quantity a, Quantity b) {
    return Quantity(checked_add(a.value, b.value));
  }
  friend Quantity operator-(Quantity a, Quantity b) {
    return Quantity(checked_sub(a.value, b.value));
  }
  friend Quantity operator*(Quantity a, std::int64_t n) {
    return Quantity(checked_mul(a.value, n));
  }
  Quantity& operator+=(Quantity b) { return *this = *this + b; }
  Quantity& operator-=(Quantity b) { return *this = *this - b; }
};

using Bytes = Quantity<struct BytesDimension>;
using Nanos = Quantity<struct NanosDimension>;

/// The id of an object of one kind. References in a plan are ids, so that a plan can be edited.
template <class Kind>
struct Id {
  std::uint32_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(std::size_t v) : value(static_cast<std::uint32_t>(v)) {}

  friend constexpr auto operator<=>(Id, Id) = default;
};

using OpId = Id<struct OpKindTag>;
using PassId = Id<struct PassTag>;
using BufferId = Id<struct BufferTag>;
using EventId = Id<struct EventTag>;
using StreamId = Id<struct StreamTag>;
using PoolId = Id<struct PoolTag>;
using CommunicatorId = Id<struct CommunicatorTag>;
using UnitId = Id<struct UnitTag>;
using GroupId = Id<struct GroupTag>;

}  // namespace mfsdp

template <class Kind>
struct std::hash<mfsdp::Id<Kind>> {
  std::size_t operator()(mfsdp::Id<Kind> id) const noexcept { return id.value; }
};
