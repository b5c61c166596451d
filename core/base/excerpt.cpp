#include "core/base/excerpt.hpp"

#include "core/base/text.hpp"

namespace mfsdp {

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 80;
  if (text.size() <= kMost) return printable(text);
  // Do not cut a character: in UTF-8, bytes that continue one are 10xxxxxx.
  std::size_t kept = kMost;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (kept > kMost - 4 && continues(kept)) --kept;
  return printable(text.substr(0, kept)) + "...";
}

}  // namespace mfsdp
