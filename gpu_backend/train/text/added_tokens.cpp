#include "gpu_backend/train/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

namespace mfsdp {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::stable_sort(tokens_, [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    by_first_[static_cast<unsigned char>(tokens_[i].content.front())].push_back(
        static_cast<std::uint32_t>(i));
}

/// The token that `text` begins with, if any.
const AddedToken* AddedTokens::at(std::string_view text) const {
  for (const std::uint32_t i : by_first_[static_cast<unsigned char>(text.front())])
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  return nullptr;
}

std::vector<TextPiece> AddedTokens::split(std::string_view text) const {
  std::vector<TextPiece> pieces;
  std::size_t begin = 0;
  for (std::size_t at_byte = 0; at_byte < text.size();) {
    const AddedToken* found = at(text.substr(at_byte));
    if (found == nullptr) {
      ++at_byte;
      continue;
    }
    if (at_byte > begin) pieces.push_back({.text = text.substr(begin, at_byte - begin)});
    pieces.push_back({.text = text.substr(at_byte, found->content.size()), .token = found});
    at_byte += found->content.size();
    begin = at_byte;
  }
  if (begin < text.size()) pieces.push_back({.text = text.substr(begin)});
  return pieces;
}

}  // namespace mfsdp
