// The tokens of a sequence that a rank has where ranks share it and each has all heads.
#pragma once

#include <cstdint>

namespace mfsdp::kernels {

/// A sequence is 2 * parts equal chunks. A rank has the chunks `part` and 2 * parts - 1 - part, in
/// this order, so that all ranks have equally many pairs of a query and a key that it sees:
///
///   parts 2      part 0: chunks 0, 3      part 1: chunks 1, 2
///
/// One part is the whole sequence.
struct SequenceShare {
  std::int64_t parts = 1;
  std::int64_t part = 0;
  bool is_part = false;  ///< the kernel states which

  [[nodiscard]] constexpr bool is_whole() const { return parts <= 1; }
  /// `seq`: tokens of the sequence.
  [[nodiscard]] constexpr std::int64_t rows(std::int64_t seq) const {
    return is_whole() ? seq : seq / parts;
  }
  /// The place in the sequence of a row of this rank.
  [[nodiscard]] constexpr std::int64_t place(std::int64_t row, std::int64_t seq) const {
    return place_of(part, row, seq);
  }
  /// The place of a row of the rows of all ranks, which are in the order of ranks.
  [[nodiscard]] constexpr std::int64_t gathered_place(std::int64_t row, std::int64_t seq) const {
    return place_of(row / rows(seq), row % rows(seq), seq);
  }
  /// The row that a place has among those of all ranks.
  [[nodiscard]] constexpr std::int64_t gathered_row(std::int64_t place, std::int64_t seq) const {
    if (is_whole()) return place;
    const std::int64_t chunk = rows(seq) / 2;
    const std::int64_t number = place / chunk;
    const bool second = number >= parts;
    const std::int64_t rank = second ? 2 * parts - 1 - number : number;
    return (2 * rank + (second ? 1 : 0)) * chunk + place % chunk;
  }

  /// The part that is `shift` parts before this one, around.
  [[nodiscard]] constexpr SequenceShare before(std::int64_t shift) const {
    return {.parts = parts, .part = (part + parts - shift) % parts, .is_part = is_part};
  }
  /// Rows of this rank whose places are before that one.
  [[nodiscard]] constexpr std::int64_t rows_until(std::int64_t place, std::int64_t seq) const {
    if (is_whole()) return place;
    const std::int64_t chunk = rows(seq) / 2;
    const auto of_chunk = [&](std::int64_t number) {
      const std::int64_t seen = place - number * chunk;
      return seen < 0 ? 0 : seen < chunk ? seen : chunk;
    };
    return of_chunk(part) + of_chunk(2 * parts - 1 - part);
  }

  void state(auto& op) {
    op.attribute_if_any("parts", parts);
    op.rank_attribute_if_any("part", part, is_part);
    op.expect(parts >= 1 && part >= 0 && part < parts && is_part != is_whole(), "query",
              "expected the number of one of several parts, got ", part, " of ", parts);
  }
  void expect_chunks(auto& op, std::int64_t seq) const {
    op.expect(is_whole() || seq % (2 * parts) == 0, "query",
              "expected two equal chunks for each of ", parts, " parts, got ", seq, " tokens");
  }

 private:
  [[nodiscard]] constexpr std::int64_t place_of(std::int64_t rank, std::int64_t row,
                                                std::int64_t seq) const {
    if (is_whole()) return row;
    const std::int64_t chunk = rows(seq) / 2;
    const bool second = row >= chunk;
    const std::int64_t number = second ? 2 * parts - 1 - rank : rank;
    return number * chunk + row % chunk;
  }
};

}  // namespace mfsdp::kernels
