#include "verify/proof/values/value_cells.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/plan/instances.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

/// Operands of more dims than these that are not 1 count as the bytes that they span.
constexpr std::size_t kMostDims = 8;

/// `count` rows of `run` bytes, `pitch` bytes apart; contiguous bytes are one row.
struct Block {
  std::int64_t begin = 0;
  std::int64_t run = 0;
  std::int64_t pitch = 0;
  std::int64_t count = 1;

  [[nodiscard]] std::int64_t end() const { return begin + (count - 1) * pitch + run; }
};

/// How a buffer is cut.
struct Cut {
  bool whole = true;       ///< every access is of all its bytes
  bool has_whole = false;  ///< one is
  bool even = true;        ///< accesses in rows have one pitch and count, others are of all rows
  std::int64_t pitch = 0;  ///< of accesses in rows, if there is one
  std::int64_t count = 0;
  std::int64_t furthest = 0;  ///< end of the accesses that are not in rows
  bool parts = false;         ///< one of these does not begin at 0, or ends elsewhere

  [[nodiscard]] bool in_columns() const {
    return pitch > 0 && even && !parts && (furthest == 0 || furthest == Int128{pitch} * count);
  }
};

/// Whether ranks differ in where the operand lies.
bool depends_on_rank(const Operand& operand, const Mesh& mesh) {
  return std::ranges::any_of(operand.rank_strides, [&](const RankStride& stride) {
    return stride.bytes != 0 && mesh.size(stride.axis) > 1;
  });
}

/// Dims from the innermost stride outwards: each continues the row, or the rows' pitch. Nothing
/// where one does neither.
std::optional<Block> rows_of(const Operand& operand) {
  std::array<std::pair<std::int64_t, std::int64_t>, kMostDims> dims;  // stride, count
  std::size_t used = 0;
  for (std::size_t d = 0; d < operand.shape.size(); ++d) {
    if (operand.shape[d] <= 1 || operand.strides[d] <= 0) continue;
    if (used == kMostDims) return std::nullopt;
    const std::pair dim{operand.strides[d], operand.shape[d]};
    std::size_t at = used++;
    for (; at > 0 && dims[at - 1] > dim; --at) dims[at] = dims[at - 1];
    dims[at] = dim;
  }
  const std::int64_t size = size_of(operand.dtype);
  Block rows{.begin = operand.offset, .run = size};
  for (const auto& [stride, count] : std::span(dims).first(used)) {
    const std::int64_t bytes = stride * size;  // fits: the span was checked
    if (rows.count == 1 && bytes == rows.run) {
      rows.run *= count;
    } else if (rows.count == 1 && bytes > rows.run) {
      rows.pitch = bytes;
      rows.count = count;
    } else if (rows.count > 1 && bytes == Int128{rows.pitch} * rows.count) {
      rows.count *= count;
    } else {
      return std::nullopt;
    }
  }
  return rows;
}

/// The bytes of an access, or all that it spans where they are no rows.
Block block_of(const ByteAccess& access, const Mesh& mesh, bool& exact) {
  exact = access.exact || access.operand == nullptr;
  if (!exact && !depends_on_rank(*access.operand, mesh)) {
    const Operand& operand = *access.operand;
    std::optional<Block> rows = Block{.begin = operand.offset, .run = operand.span_bytes()};
    if (!is_contiguous(operand)) rows = rows_of(operand);
    exact = rows.has_value();
    if (exact) return *rows;
  }
  return {.begin = access.begin, .run = access.end - access.begin};
}

class CellMaker {
 public:
  CellMaker(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts)
      : program_(*unrolled.program), plan_(*unrolled.plan), table_(table) {
    out_.followed.assign(program_.buffers.size(), 0);
    out_.pitch.assign(program_.buffers.size(), 0);
    for (std::size_t b = 0; b < program_.buffers.size(); ++b)
      out_.followed[b] = is_followed(unrolled, layouts, b) ? 1 : 0;
  }

  ValueCells make() && {
    find_uses();
    cut();
    place();
    return std::move(out_);
  }

 private:
  /// Weights and optimizer state come from outside, as does what the host writes.
  [[nodiscard]] bool is_followed(const UnrolledPlan& unrolled, const Layouts& layouts,
                                 std::size_t b) const {
    const Buffer& buffer = program_.buffers[b];
    if (layouts.homes[b].holds != Holds::other) return false;
    const bool on_host =
        program_.pools[unrolled.index->pools[buffer.pool]].space == MemorySpace::host;
    if (on_host && buffer.is_port()) return false;
    if (!buffer.persistent || !buffer.holds) return true;
    return buffer.holds->kind == ContentKind::gradient || buffer.holds->kind == ContentKind::port;
  }

  void find_uses() {
    out_.uses.reserve(table_.accesses.size());
    out_.first_use.reserve(table_.first.size());
    cuts_.resize(program_.buffers.size());
    std::size_t op_index = 0;
    for (const Op& op : ops_of(plan_)) {
      if (op.kind() != OpKind::acquire && op.kind() != OpKind::release)
        for (const ByteAccess& access : table_.of(op_index))
          if (out_.followed[access.buffer] != 0) add(access);
      out_.first_use.push_back(static_cast<std::uint32_t>(out_.uses.size()));
      ++op_index;
    }
  }

  void add(const ByteAccess& access) {
    bool exact = true;
    const Block block = block_of(access, program_.config.mesh, exact);
    const Access kind = access.operand == nullptr ? Access::read : access.operand->access;
    out_.uses.push_back({.buffer = access.buffer,
                         .reads = kind == Access::read || kind == Access::read_write,
                         .writes = kind == Access::write || kind == Access::read_write,
                         .scratch = kind == Access::scratch,
                         .exact = exact,
                         .operand = access.operand});
    Cut& cut = cuts_[access.buffer];
    const bool whole = block.count == 1 && block.begin == 0 &&
                       block.run == program_.buffers[access.buffer].size.value;
    if (!whole) parts_.push_back({static_cast<std::uint32_t>(out_.uses.size() - 1), block});
    if (block.count == 1) {
      cut.whole = cut.whole && whole;
      cut.has_whole = cut.has_whole || whole;
      cut.parts = cut.parts || block.begin != 0 || (cut.furthest != 0 && cut.furthest != block.run);
      cut.furthest = std::max(cut.furthest, block.end());
      return;
    }
    cut.whole = false;
    cut.even =
        cut.even && (cut.pitch == 0 || (cut.pitch == block.pitch && cut.count == block.count));
    cut.even = cut.even && block.begin + block.run <= block.pitch;
    cut.pitch = block.pitch;
    cut.count = block.count;
  }

  /// Where an access begins and ends among the cells of its buffer.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> ends_of(std::uint32_t buffer,
                                                              const Block& block) const {
    const Cut& cut = cuts_[buffer];
    if (!cut.in_columns()) return {block.begin, block.end()};
    return block.count == 1 ? std::pair{std::int64_t{0}, cut.pitch}
                            : std::pair{block.begin, block.begin + block.run};
  }

  /// A cell begins at each boundary but a buffer's last one, whose number stays unused.
  void cut() {
    const std::size_t buffers = program_.buffers.size();
    std::vector<std::uint32_t> at(buffers + 1, 0);
    for (const Part& part : parts_) at[out_.uses[part.use].buffer + 1] += 2;
    for (std::size_t b = 0; b < buffers; ++b) at[b + 1] += at[b] + (is_cut_and_whole(b) ? 2 : 0);
    std::vector<std::int64_t> ends(at.back());
    std::vector<std::uint32_t> next(at.begin(), at.end() - 1);
    const auto add_ends = [&](std::uint32_t b, std::pair<std::int64_t, std::int64_t> of_block) {
      ends[next[b]++] = of_block.first;
      ends[next[b]++] = of_block.second;
    };
    for (const Part& part : parts_) {
      const std::uint32_t b = out_.uses[part.use].buffer;
      add_ends(b, ends_of(b, part.block));
    }
    for (std::uint32_t b = 0; b < buffers; ++b)
      if (is_cut_and_whole(b)) add_ends(b, ends_of(b, whole_of(b)));
    out_.first_cell.reserve(buffers + 1);
    for (std::size_t b = 0; b < buffers; ++b) {
      out_.first_cell.push_back(static_cast<std::uint32_t>(out_.begin.size()));
      if (cuts_[b].in_columns()) out_.pitch[b] = cuts_[b].pitch;
      if (out_.followed[b] != 0 && cuts_[b].whole) out_.begin.push_back(0);
      const auto first = ends.begin() + at[b];
      const auto last = ends.begin() + at[b + 1];
      std::sort(first, last);
      out_.begin.insert(out_.begin.end(), first, std::unique(first, last));
    }
    out_.first_cell.push_back(static_cast<std::uint32_t>(out_.begin.size()));
  }

  void place() {
    std::size_t part = 0;
    for (std::uint32_t u = 0; u < out_.uses.size(); ++u) {
      CellUse& use = out_.uses[u];
      const Cut& cut = cuts_[use.buffer];
      use.first = out_.first_cell[use.buffer];
      use.last = use.first + 1;
      if (cut.whole) continue;
      const bool partial = part < parts_.size() && parts_[part].use == u;
      const Block block = partial ? parts_[part++].block : whole_of(use.buffer);
      const auto [begin, end] = ends_of(use.buffer, block);
      const auto first = out_.begin.begin() + use.first;
      const auto last = out_.begin.begin() + out_.first_cell[use.buffer + 1];
      use.first += static_cast<std::uint32_t>(std::lower_bound(first, last, begin) - first);
      use.last += static_cast<std::uint32_t>(std::lower_bound(first, last, end) - first) - 1;
      use.exact = use.exact && (block.count == 1 || cut.in_columns());
    }
  }

  [[nodiscard]] Block whole_of(std::size_t b) const {
    return {.begin = 0, .run = program_.buffers[b].size.value};
  }
  /// Some accesses are of all its bytes, and some are not.
  [[nodiscard]] bool is_cut_and_whole(std::size_t b) const {
    return cuts_[b].has_whole && !cuts_[b].whole;
  }

  /// An access that is not of all its buffer's bytes.
  struct Part {
    std::uint32_t use = 0;
    Block block;
  };

  const Program& program_;
  const Plan& plan_;
  const AccessTable& table_;
  ValueCells out_;
  std::vector<Part> parts_;  ///< in the order of uses
  std::vector<Cut> cuts_;    ///< by buffer
};

}  // namespace

ValueCells value_cells(const UnrolledPlan& unrolled, const AccessTable& table,
                       const Layouts& layouts) {
  return CellMaker(unrolled, table, layouts).make();
}

}  // namespace mfsdp
