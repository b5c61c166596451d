#include "gpu_backend/train/text/bpe.hpp"

#include <fmt/format.h>

#include <bit>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "gpu_backend/train/data/random_bits.hpp"

namespace mfsdp {
namespace {

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U |
         static_cast<std::uint32_t>(right);
}

/// A token of the word while it is merged; neighbours by index, -1 at the ends.
struct Symbol {
  std::int32_t token = 0;
  std::int32_t before = -1;
  std::int32_t after = -1;
  bool is_gone = false;
};

struct Candidate {
  std::int32_t rank = 0;
  std::int32_t left = 0;  ///< index of its left symbol
  std::int32_t merged = 0;
  std::uint64_t pair = 0;  ///< the pair of tokens when it was found: outdated if the symbols have
                           ///< changed

  friend bool operator>(const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.left) > std::tie(b.rank, b.left);
  }
};

using Candidates = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

/// The symbols of one word as a list, and the merges that apply to neighbours.
class MergedWord {
 public:
  MergedWord(const MergeTable& merges, std::vector<Symbol> symbols)
      : merges_(merges), symbols_(std::move(symbols)) {
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) offer(static_cast<std::int32_t>(i));
  }

  void merge_all() {
    while (!candidates_.empty()) {
      const Candidate next = candidates_.top();
      candidates_.pop();
      if (applies(next)) apply(next);
    }
  }

  void append_to(std::vector<std::int32_t>& out) const {
    for (std::int32_t i = 0; i >= 0; i = at(i).after) out.push_back(at(i).token);
  }

 private:
  [[nodiscard]] const Symbol& at(std::int32_t i) const {
    return symbols_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] Symbol& at(std::int32_t i) { return symbols_[static_cast<std::size_t>(i)]; }

  void offer(std::int32_t left) {
    const Symbol& first = at(left);
    if (first.after < 0) return;
    const std::int32_t second = at(first.after).token;
    if (const Merge* merge = merges_.find(first.token, second))
      candidates_.push({merge->rank, left, merge->merged, merge->pair});
  }

  [[nodiscard]] bool applies(const Candidate& candidate) const {
    const Symbol& left = at(candidate.left);
    return !left.is_gone && left.after >= 0 &&
           pair_of(left.token, at(left.after).token) == candidate.pair;
  }

  void apply(const Candidate& candidate) {
    Symbol& left = at(candidate.left);
    Symbol& right = at(left.after);
    left.token = candidate.merged;
    left.after = right.after;
    right.is_gone = true;
    if (left.after >= 0) at(left.after).before = candidate.left;
    if (left.before >= 0) offer(left.before);
    offer(candidate.left);
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  Candidates candidates_;
};

}  // namespace

// ---- merges ------------------------------------------------------------------------------------

MergeTable::MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)) {}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t slot = mix_bits(pair) & (slots_.size() - 1);
  while (slots_[slot].rank >= 0 && slots_[slot].pair != pair)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, std::int32_t rank,
                        std::int32_t merged) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {.pair = pair, .rank = rank, .merged = merged};
}

const Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Merge& found = slots_[slot_of(pair_of(left, right))];
  return found.rank >= 0 ? &found : nullptr;
}

// ---- words -------------------------------------------------------------------------------------

Result<Bpe> Bpe::create(TextMap<std::int32_t> by_bytes, MergeTable merges, bool ignore_merges,
                        const std::string& where) {
  Bpe made(std::move(by_bytes), std::move(merges), ignore_merges);
  for (std::size_t byte = 0; byte < made.byte_token_.size(); ++byte) {
    const auto found = made.by_bytes_.find(std::string(1, static_cast<char>(byte)));
    if (found == made.by_bytes_.end())
      return fail(
          where + ": model.vocab",
          fmt::format("expected a token for each of the 256 bytes, 0x{:02x} has none", byte));
    made.byte_token_[byte] = found->second;
  }
  return made;
}

void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  if (ignore_merges_)
    if (const auto whole = by_bytes_.find(word); whole != by_bytes_.end()) {
      out.push_back(whole->second);
      return;
    }
  const auto count = static_cast<std::int32_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(i);
    symbols[place] = {.token = byte_token_[static_cast<unsigned char>(word[place])],
                      .before = i - 1,
                      .after = i + 1 < count ? i + 1 : -1};
  }
  MergedWord merged(merges_, std::move(symbols));
  merged.merge_all();
  merged.append_to(out);
}

}  // namespace mfsdp
