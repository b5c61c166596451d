#include "reports/html/packed.hpp"

#include <string_view>

namespace mfsdp {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr unsigned kBits = 5;
constexpr std::uint64_t kMore = std::uint64_t{1} << kBits;

void append(std::string& text, std::int64_t number) {
  const bool negative = number < 0;
  const auto value = static_cast<std::uint64_t>(number);
  std::uint64_t rest = negative ? 0 - value : value;
  // The sign shares the first digit: four bits of the number stand there.
  std::uint64_t digit = (rest & (kMore / 2 - 1)) << 1 | (negative ? 1 : 0);
  rest >>= kBits - 1;
  while (rest != 0) {
    text += kDigits[digit | kMore];
    digit = rest & (kMore - 1);
    rest >>= kBits;
  }
  text += kDigits[digit];
}

}  // namespace

std::string pack(std::span<const std::int64_t> numbers) {
  std::string text;
  for (const std::int64_t number : numbers) append(text, number);
  return text;
}

std::string pack_differences(std::span<const std::int64_t> numbers) {
  std::string text;
  std::int64_t before = 0;
  for (const std::int64_t number : numbers) {
    // Differences wrap in 64 bits, and so does their sum.
    append(text, static_cast<std::int64_t>(static_cast<std::uint64_t>(number) -
                                           static_cast<std::uint64_t>(before)));
    before = number;
  }
  return text;
}

}  // namespace mfsdp
