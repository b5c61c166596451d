#include "gpu_backend/convert/element_values.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace mfsdp {
namespace {

template <class Number>
Number at(std::span<const std::byte> bytes, std::size_t i) {
  Number number{};
  std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
  return number;
}

double half_to_double(std::uint16_t bits) {
  const int exponent = bits >> 10U & 31;
  const double mantissa = bits & 1023U;
  double value = 0;
  if (exponent == 31)
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    value = std::ldexp(mantissa, -24);
  else
    value = std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000U) != 0 ? -value : value;
}

std::uint16_t half_of(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::fabs(value);
  if (std::isnan(size)) return sign | 0x7e00U;
  if (size >= 65520) return sign | 0x7c00U;
  int exponent = 0;
  std::frexp(size, &exponent);  // size < 2^exponent
  exponent = std::max(exponent, -13);
  // The mantissa's last bit is 2^(exponent - 11); nearbyint rounds ties to even.
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return static_cast<std::uint16_t>(sign + (static_cast<std::uint32_t>(exponent + 13) << 10U) +
                                    units);
}

std::uint16_t bfloat_of(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 48U & 0x8000U);
  if (std::isnan(value)) return sign | 0x7fc0U;
  const double size = std::fabs(value);
  int exponent = 0;
  std::frexp(size, &exponent);
  if (size == 0) return sign;
  if (exponent > 128 || std::isinf(size)) return sign | 0x7f80U;
  exponent = std::max(exponent, -125);
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 8 - exponent)));
  return static_cast<std::uint16_t>(sign + (static_cast<std::uint32_t>(exponent + 125) << 7U) +
                                    units);
}

void store(const ElementType& type, double value, std::byte* out) {
  const auto put = [&](auto number) { std::memcpy(out, &number, sizeof number); };
  switch (*type.ours) {
    case DType::fp32: return put(static_cast<float>(value));
    case DType::fp64: return put(value);
    case DType::fp16: return put(half_of(value));
    default: return put(bfloat_of(value));
  }
}

}  // namespace

bool is_numeric(const ElementType& type) {
  return type.ours || type.safetensors == "BOOL" ||
         ((type.safetensors.starts_with('U') || type.safetensors.starts_with('I')) &&
          type.bits >= 8);
}

double number_at(const ElementType& type, std::span<const std::byte> bytes, std::size_t i) {
  if (type.ours == DType::fp32) return at<float>(bytes, i);
  if (type.ours == DType::bf16)
    return std::bit_cast<float>(static_cast<std::uint32_t>(at<std::uint16_t>(bytes, i)) << 16U);
  if (type.ours == DType::fp16) return half_to_double(at<std::uint16_t>(bytes, i));
  if (type.ours == DType::fp64) return at<double>(bytes, i);
  const bool is_signed = type.safetensors.starts_with('I');
  switch (type.bits) {
    case 8: return is_signed ? at<std::int8_t>(bytes, i) : at<std::uint8_t>(bytes, i);
    case 16: return is_signed ? at<std::int16_t>(bytes, i) : at<std::uint16_t>(bytes, i);
    case 32: return is_signed ? at<std::int32_t>(bytes, i) : at<std::uint32_t>(bytes, i);
    default:
      return is_signed ? static_cast<double>(at<std::int64_t>(bytes, i))
                       : static_cast<double>(at<std::uint64_t>(bytes, i));
  }
}

void cast_elements(const ElementType& from, std::span<const std::byte> in, const ElementType& to,
                   std::span<std::byte> out) {
  const auto count = in.size() / static_cast<std::size_t>(bytes_of(from));
  const auto size = static_cast<std::size_t>(bytes_of(to));
  for (std::size_t i = 0; i < count; ++i) store(to, number_at(from, in, i), out.data() + i * size);
}

}  // namespace mfsdp
