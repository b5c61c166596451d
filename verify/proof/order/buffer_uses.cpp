#include "verify/proof/order/buffer_uses.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "core/plan/instances.hpp"
#include "verify/proof/order/races.hpp"

namespace mfsdp {
namespace {

constexpr std::uint16_t kUntouched = 0xFFFF;

/// Calls visit(op, op index, facts, in a group) for every op of the plan.
void for_each_op(const UnrolledPlan& unrolled, auto visit) {
  std::uint32_t op_index = 0;
  for (std::size_t list = 0; list < count_op_lists(*unrolled.plan); ++list) {
    std::int64_t open = 0;
    for (const Op& op : op_list(*unrolled.plan, list)) {
      const OpFacts& facts = unrolled.ops[op_index];
      if (facts.kind == OpKind::group_begin) ++open;
      if (facts.kind == OpKind::group_end) --open;
      visit(op, op_index++, facts, open > 0);
    }
  }
}

/// The host's access to the port of a copy.
std::optional<ByteAccess> host_access_of(const Program& program, const Op& op, const OpFacts& facts,
                                         std::span<const ByteAccess> of_op) {
  if (facts.kind != OpKind::copy) return std::nullopt;
  return host_access(program, std::get<Copy>(op.body), of_op);
}

void find_shared(const UnrolledPlan& unrolled, const AccessTable& table,
                 std::vector<char>& shared) {
  std::vector<std::uint16_t> chain_of(shared.size(), kUntouched);
  for_each_op(unrolled, [&](const Op& op, std::uint32_t i, const OpFacts& facts, bool in_group) {
    for (const ByteAccess& access : table.of(i)) {
      std::uint16_t& only = chain_of[access.buffer];
      if (only == kUntouched) only = facts.chain;
      if (only != facts.chain || in_group) shared[access.buffer] = 1;
    }
    if (const auto access = host_access_of(*unrolled.program, op, facts, table.of(i)))
      shared[access->buffer] = 1;
  });
}

/// The bytes at which accesses to shared buffers begin and end, by buffer, each ascending.
struct Boundaries {
  std::vector<std::uint32_t> first;
  std::vector<std::int64_t> bytes;
};

Boundaries find_boundaries(const AccessTable& table, const std::vector<char>& shared) {
  Boundaries out;
  out.first.assign(shared.size() + 1, 0);
  for (const ByteAccess& access : table.accesses)
    if (shared[access.buffer] != 0) out.first[access.buffer + 1] += 2;
  for (std::size_t b = 0; b < shared.size(); ++b) out.first[b + 1] += out.first[b];
  out.bytes.resize(out.first.back());
  std::vector<std::uint32_t> at(out.first.begin(), out.first.end() - 1);
  for (const ByteAccess& access : table.accesses) {
    if (shared[access.buffer] == 0) continue;
    out.bytes[at[access.buffer]++] = access.begin;
    out.bytes[at[access.buffer]++] = access.end;
  }
  // Sorts each buffer's and closes the gaps that its doubles leave.
  std::uint32_t kept = 0;
  for (std::size_t b = 0; b < shared.size(); ++b) {
    const auto begin = out.bytes.begin() + out.first[b];
    const auto end = out.bytes.begin() + out.first[b + 1];
    std::sort(begin, end);
    const auto last = std::unique(begin, end);
    out.first[b] = kept;
    kept = static_cast<std::uint32_t>(std::copy(begin, last, out.bytes.begin() + kept) -
                                      out.bytes.begin());
  }
  out.first.back() = kept;
  return out;
}

}  // namespace

BufferUses buffer_uses(const UnrolledPlan& unrolled, const AccessTable& table) {
  const std::vector<Buffer>& buffers = unrolled.program->buffers;
  BufferUses uses{.shared = std::vector<char>(buffers.size(), 0)};
  find_shared(unrolled, table, uses.shared);
  const Boundaries boundaries = find_boundaries(table, uses.shared);
  // The number of a cell is that of the boundary that begins it: one per buffer stays unused.
  uses.first_cell = boundaries.first;
  const auto cell_of = [&](std::uint32_t buffer, std::int64_t byte) {
    const auto begin = boundaries.bytes.begin() + boundaries.first[buffer];
    const auto end = boundaries.bytes.begin() + boundaries.first[buffer + 1];
    return static_cast<std::uint32_t>(std::lower_bound(begin, end, byte) -
                                      boundaries.bytes.begin());
  };
  const auto add = [&](const ByteAccess& access) {
    CellAccess made{.buffer = access.buffer, .writes = access.writes};
    if (uses.shared[access.buffer] != 0) {
      made.begin = cell_of(access.buffer, access.begin);
      made.end = cell_of(access.buffer, access.end);
    }
    return made;
  };
  uses.accesses.reserve(table.accesses.size());
  uses.first_access.reserve(table.first.size());
  for_each_op(unrolled, [&](const Op& op, std::uint32_t i, const OpFacts& facts, bool) {
    if (facts.kind != OpKind::acquire && facts.kind != OpKind::release)
      for (const ByteAccess& access : table.of(i))
        if (uses.shared[access.buffer] != 0 || !buffers[access.buffer].persistent)
          uses.accesses.push_back(add(access));
    uses.first_access.push_back(static_cast<std::uint32_t>(uses.accesses.size()));
    if (const auto access = host_access_of(*unrolled.program, op, facts, table.of(i)))
      uses.host.emplace_back(i, add(*access));
  });
  return uses;
}

}  // namespace mfsdp
