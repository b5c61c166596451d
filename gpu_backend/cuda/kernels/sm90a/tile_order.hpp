// The order in which blocks of attention begin tiles.
#pragma once

#include <algorithm>

namespace mfsdp::cuda {

/// A tile of a head; the first one of a head has the most work.
struct AttentionTile {
  int index = 0;
  int head = 0;
  int batch = 0;
};

/// Divides heads into sections of equally many heads, or one more. In a section the longest tiles
/// are first. A section fills the device about twice at most, unless a head has more tiles than
/// that, so that its operands and sums stay in the L2 cache. A last section of few heads would
/// begin its longest tiles when the device runs out of work: with 24 heads of 24 tiles it cost a
/// fifth of the time.
class TileOrder {
 public:
  constexpr TileOrder(int tiles_of_head, int heads, int batch)
      : length_(tiles_of_head), heads_(heads), all_heads_(heads * batch) {
    const int most = std::max(1, kSectionTiles / length_);
    const int sections = (all_heads_ + most - 1) / most;
    width_ = all_heads_ / sections;
    wider_ = all_heads_ % sections;
  }

  /// Number of tiles of a head.
  [[nodiscard]] constexpr int length() const { return length_; }
  [[nodiscard]] constexpr int size() const { return all_heads_ * length_; }
  [[nodiscard]] constexpr AttentionTile operator[](int at) const {
    int head = 0;
    int width = width_ + 1;  // of the first sections
    const int of_wider = wider_ * width * length_;
    if (at >= of_wider) {
      at -= of_wider;
      head = wider_ * width;
      width = width_;
    }
    const int section = at / (width * length_);
    at -= section * width * length_;
    head += section * width + at % width;
    return {.index = at / width, .head = head % heads_, .batch = head / heads_};
  }

 private:
  static constexpr int kSectionTiles = 256;

  int length_ = 0;
  int heads_ = 0;
  int all_heads_ = 0;  // heads of all sequences
  int width_ = 0;      // heads of a section
  int wider_ = 0;      // number of sections with one more head
};

}  // namespace mfsdp::cuda
