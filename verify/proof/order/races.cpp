#include "verify/proof/order/races.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/order/buffer_uses.hpp"
#include "verify/proof/order/counterexample.hpp"
#include "verify/proof/order/pairwise.hpp"
#include "verify/proof/order/place_map.hpp"

namespace mfsdp {
namespace {

/// When a cell was last touched: position + 1 in a chain; 0 is never.
struct Cell {
  std::uint32_t write = 0;
  std::uint16_t write_chain = 0;
  bool read = false;             ///< since the write, on some chain
  std::uint32_t generation = 0;  ///< of the buffer's lifetime that this is about
};

struct BufferState {
  bool live = false;
  std::uint32_t generation = 0;
  std::uint32_t acquire = kNone;  ///< instance
  std::uint32_t release = kNone;  ///< instance
  std::uint32_t place_begin = 0;  ///< cells of the pool's place map
  std::uint32_t place_end = 0;
};

/// Live [begin, end) bytes of a buffer's place that another buffer shares.
BufferRange shared_range(const Program& program, std::uint32_t buffer, std::uint32_t other) {
  const Buffer& a = program.buffers[buffer];
  const Buffer& b = program.buffers[other];
  const std::int64_t begin = std::max(a.offset.value, b.offset.value);
  const std::int64_t end = std::min(a.offset.value + a.size.value, b.offset.value + b.size.value);
  return {.buffer = buffer, .begin = begin - a.offset.value, .end = end - a.offset.value};
}

class RaceCheck {
 public:
  RaceCheck(const UnrolledPlan& unrolled, const AccessTable& table, FindingList& findings)
      : u_(unrolled),
        program_(*unrolled.program),
        table_(table),
        findings_(findings),
        uses_(buffer_uses(unrolled, table)),
        states_(program_.buffers.size()),
        suspect_(program_.buffers.size(), 0),
        complained_(program_.buffers.size(), 0),
        cells_(uses_.first_cell.back() + 1),
        reads_(cells_.size() * unrolled.chains, 0),
        last_use_(program_.buffers.size() * unrolled.chains, 0) {
    make_places();
  }

  void run() {
    for (std::size_t r = 0; r < u_.runs.size(); ++r) {
      const bool is_last = r + 1 == u_.runs.size();
      const std::size_t end = is_last ? u_.instances.size() : u_.runs[r + 1].first;
      if (u_.runs[r].head == r) check_boundary(r, &Segment::live_in, "begins");
      for (std::size_t i = u_.runs[r].first; i < end; ++i) visit(static_cast<std::uint32_t>(i));
      if (is_last || u_.runs[r + 1].head == r + 1) check_boundary(r, &Segment::live_out, "ends");
    }
    compare_pairs(u_, table_, suspect_, findings_);
  }

 private:
  // ---- places ---------------------------------------------------------------------------------

  /// Places of the buffers that this plan acquires, and of those that are always there.
  void make_places() {
    std::vector<char> placed(program_.buffers.size(), 0);
    for (std::size_t b = 0; b < placed.size(); ++b)
      placed[b] = program_.buffers[b].persistent ? 1 : 0;
    for (const OpFacts& facts : u_.ops)
      if (facts.kind == OpKind::acquire) placed[facts.subject] = 1;
    std::vector<std::vector<std::int64_t>> bytes(program_.pools.size());
    for (std::size_t b = 0; b < placed.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (placed[b] == 0 || buffer.size.value == 0) continue;
      auto& pool = bytes[u_.index->pools[buffer.pool]];
      pool.push_back(buffer.offset.value);
      pool.push_back(buffer.offset.value + buffer.size.value);
    }
    for (auto& pool : bytes) {
      std::ranges::sort(pool);
      const auto doubles = std::ranges::unique(pool);
      pool.erase(doubles.begin(), doubles.end());
      places_.emplace_back(pool.size());
    }
    for (std::uint32_t b = 0; b < placed.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (placed[b] == 0 || buffer.size.value == 0) continue;
      const std::size_t p = u_.index->pools[buffer.pool];
      const auto cell = [&](std::int64_t byte) {
        return static_cast<std::uint32_t>(std::ranges::lower_bound(bytes[p], byte) -
                                          bytes[p].begin());
      };
      states_[b].place_begin = cell(buffer.offset.value);
      states_[b].place_end = cell(buffer.offset.value + buffer.size.value);
      if (!buffer.persistent) continue;
      states_[b].live = true;
      places_[p].claim(states_[b].place_begin, states_[b].place_end, b, [](std::uint32_t) {});
    }
  }

  /// The live buffers are those that the plan states, and none before the first step. Between two
  /// repetitions that begin or end lifetimes nothing is stated.
  void check_boundary(std::size_t run, std::vector<BufferId> Segment::* list, const char* verb) {
    const ListRun& of = u_.runs[run];
    const Segment& segment = u_.plan->segments[of.segment];
    const std::vector<BufferId>& stated = segment.*list;
    const std::int64_t stated_at = list == &Segment::live_in ? 0 : segment.repeat - 1;
    const bool changes = segment.repeat > 1 && segment.live_in != segment.live_out;
    if (changes && of.repetition != stated_at) return;
    std::size_t missing = 0;
    for (const BufferId id : stated)
      if (!states_[u_.index->buffers[id]].live) ++missing;
    const std::size_t extra = live_ - std::min(live_, stated.size() - missing);
    if (missing == 0 && extra == 0) return;
    if (std::ranges::find(bad_boundaries_, &segment) != bad_boundaries_.end()) return;
    bad_boundaries_.push_back(&segment);
    findings_.add({.rule = "MF006",
                   .message = fmt::format(
                       "segment '{}' of plan '{}' {} in {} with {} live buffers, but states {}, "
                       "of which {} are not live",
                       segment.name, u_.plan->name, verb, step_name(of.step), live_, stated.size(),
                       missing)});
  }

  // ---- instances ------------------------------------------------------------------------------

  void visit(std::uint32_t i) {
    const Instance& instance = u_.instances[i];
    const OpFacts& facts = u_.ops[instance.op_index];
    switch (facts.kind) {
      case OpKind::acquire: acquire(i, facts.subject); break;
      case OpKind::release: release(i, facts.subject); break;
      case OpKind::copy:
        if (instance.host_work) {
          touch_by_host(i);
          break;
        }
        [[fallthrough]];
      case OpKind::kernel:
      case OpKind::collective: {
        const std::uint32_t first = uses_.first_access[instance.op_index];
        const std::uint32_t last = uses_.first_access[instance.op_index + 1];
        touch(i, std::span(uses_.accesses).subspan(first, last - first));
        break;
      }
      default: break;
    }
  }

  void touch_by_host(std::uint32_t i) {
    const auto found = std::ranges::lower_bound(uses_.host, u_.instances[i].op_index, {},
                                                [](const auto& entry) { return entry.first; });
    if (found != uses_.host.end() && found->first == u_.instances[i].op_index)
      touch(i, {&found->second, 1});
  }

  /// Whether what happened at that position + 1 of a chain is before instance `i`.
  [[nodiscard]] bool follows(const Instance& i, const std::uint32_t* clock, std::uint32_t chain,
                             std::uint32_t after) const {
    return after <= (chain == i.chain ? i.position : clock[chain]);
  }

  void acquire(std::uint32_t i, std::size_t b) {
    BufferState& state = states_[b];
    const Buffer& buffer = program_.buffers[b];
    if (state.live) {
      report_mismatch(b, "MF106", {state.acquire, i}, "acquires a buffer that is live already");
      return;
    }
    const auto id = static_cast<std::uint32_t>(b);
    if (buffer.size.value > 0)
      places_[u_.index->pools[buffer.pool]].claim(
          state.place_begin, state.place_end, id,
          [&](std::uint32_t other) { take_over(i, id, other); });
    state = {.live = true,
             .generation = state.generation + 1,
             .acquire = i,
             .release = kNone,
             .place_begin = state.place_begin,
             .place_end = state.place_end};
    ++live_;
    if (uses_.shared[b] != 0)
      std::fill_n(last_use_.begin() + static_cast<std::ptrdiff_t>(b * u_.chains), u_.chains, 0);
  }

  /// Instance `i` acquires bytes that were the other buffer's last.
  void take_over(std::uint32_t i, std::uint32_t buffer, std::uint32_t other) {
    const BufferState& state = states_[other];
    if (state.live) {
      if (first_of(buffer, "MF103"))
        findings_.add(
            ordered_finding(u_, "MF103", {state.acquire, i}, shared_range(program_, buffer, other),
                            fmt::format("acquires bytes of buffer '{}', which is still live",
                                        program_.buffers[other].name)));
    } else if (!u_.before(state.release, i) && first_of(buffer, "MF101")) {
      findings_.add(
          unordered_finding(u_, "MF101", state.release, i, shared_range(program_, buffer, other)));
    }
  }

  void release(std::uint32_t i, std::size_t b) {
    BufferState& state = states_[b];
    if (!state.live) {
      report_mismatch(b, "MF107", {state.release, i}, "releases a buffer that is not live");
      return;
    }
    state.live = false;
    state.release = i;
    --live_;
    if (uses_.shared[b] == 0) return;
    const Instance& instance = u_.instances[i];
    const std::uint32_t* clock = u_.clock(i).data();
    for (std::uint32_t c = 0; c < u_.chains; ++c)
      if (!follows(instance, clock, c, last_use_[b * u_.chains + c])) suspect_[b] = 1;
    if (!u_.before(state.acquire, i)) suspect_[b] = 1;
  }

  void touch(std::uint32_t i, std::span<const CellAccess> accesses) {
    // All checks come before all updates: an op does not conflict with itself.
    for (const CellAccess& access : accesses) check(i, access);
    for (const CellAccess& access : accesses)
      if (uses_.shared[access.buffer] != 0) update(i, access);
  }

  void check(std::uint32_t i, const CellAccess& access) {
    const BufferState& state = states_[access.buffer];
    if (!state.live) {
      report_mismatch(access.buffer, "MF102", {state.acquire, state.release, i},
                      state.release == kNone ? "touches a buffer that nothing has acquired"
                                             : "touches a buffer after its release");
      return;
    }
    if (uses_.shared[access.buffer] == 0 || suspect_[access.buffer] != 0) return;
    const Instance& instance = u_.instances[i];
    const std::uint32_t* clock = u_.clock(i).data();
    bool fine = state.acquire == kNone || u_.before(state.acquire, i);
    for (std::uint32_t c = access.begin; c < access.end && fine; ++c) {
      const Cell& cell = cells_[c];
      if (cell.generation != state.generation) continue;
      fine = follows(instance, clock, cell.write_chain, cell.write);
      if (!fine || !access.writes || !cell.read) continue;
      const std::uint32_t* reads = &reads_[std::size_t{c} * u_.chains];
      for (std::uint32_t r = 0; r < u_.chains; ++r)
        fine = fine && follows(instance, clock, r, reads[r]);
    }
    if (!fine) suspect_[access.buffer] = 1;
  }

  void update(std::uint32_t i, const CellAccess& access) {
    const Instance& instance = u_.instances[i];
    const std::uint32_t generation = states_[access.buffer].generation;
    const std::uint32_t now = instance.position + 1;
    for (std::uint32_t c = access.begin; c < access.end; ++c) {
      Cell& cell = cells_[c];
      std::uint32_t* reads = &reads_[std::size_t{c} * u_.chains];
      const bool fresh = cell.generation != generation;
      if ((access.writes || fresh) && cell.read) {
        std::fill_n(reads, u_.chains, 0);
        cell.read = false;
      }
      if (fresh) cell = {.write = 0, .write_chain = 0, .read = false, .generation = generation};
      if (access.writes) {
        cell.write = now;
        cell.write_chain = instance.chain;
      } else {
        reads[instance.chain] = now;
        cell.read = true;
      }
    }
    last_use_[std::size_t{access.buffer} * u_.chains + instance.chain] = now;
  }

  /// Whether a finding of that rule about a buffer is new and wanted: one of each is enough.
  bool first_of(std::size_t buffer, std::string_view rule) {
    const auto bit = static_cast<std::uint8_t>(1U << (rule.back() - '0'));
    const bool fresh = (complained_[buffer] & bit) == 0 && findings_.wants(rule);
    complained_[buffer] |= bit;
    return fresh;
  }

  /// A lifetime that is wrong in host order.
  void report_mismatch(std::size_t b, const char* rule, std::vector<std::uint32_t> instances,
                       const char* what) {
    if (!first_of(b, rule)) return;
    findings_.add(ordered_finding(u_, rule, std::move(instances),
                                  {.buffer = static_cast<std::uint32_t>(b),
                                   .begin = 0,
                                   .end = program_.buffers[b].size.value},
                                  what));
  }

  const UnrolledPlan& u_;
  const Program& program_;
  const AccessTable& table_;
  FindingList& findings_;
  BufferUses uses_;
  std::vector<BufferState> states_;
  std::vector<char> suspect_;             // by buffer
  std::vector<std::uint8_t> complained_;  // by buffer: a bit for each rule
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> reads_;     // by cell and chain: position + 1
  std::vector<std::uint32_t> last_use_;  // by buffer and chain: position + 1, in this lifetime
  std::vector<PlaceMap> places_;         // by pool
  std::vector<const Segment*> bad_boundaries_;
  std::size_t live_ = 0;
};

}  // namespace

void check_races(const UnrolledPlan& unrolled, const AccessTable& table, FindingList& findings) {
  RaceCheck(unrolled, table, findings).run();
}

void check_persistent_places(const Program& program, FindingList& findings) {
  std::vector<const Buffer*> sorted;
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && buffer.size.value > 0) sorted.push_back(&buffer);
  std::ranges::sort(sorted, {}, [](const Buffer* b) { return std::pair(b->pool, b->offset); });
  const Buffer* highest = nullptr;  // of those before, the one that ends last
  for (const Buffer* buffer : sorted) {
    if (highest != nullptr && highest->pool == buffer->pool &&
        highest->offset.value + highest->size.value > buffer->offset.value) {
      findings.add(
          {.rule = "MF103",
           .message = fmt::format("persistent buffers '{}' and '{}' share bytes", highest->name,
                                  buffer->name),
           .buffer = buffer->id,
           .begin = 0,
           .end = std::min(buffer->size.value,
                           highest->offset.value + highest->size.value - buffer->offset.value)});
    }
    if (highest == nullptr || highest->pool != buffer->pool ||
        buffer->offset + buffer->size > highest->offset + highest->size)
      highest = buffer;
  }
}

std::optional<ByteAccess> host_access(const Program& program, const Copy& copy,
                                      std::span<const ByteAccess> of_copy) {
  for (ByteAccess access : of_copy)
    if (access.operand == copy.on_host() && program.buffers[access.buffer].is_port()) {
      access.writes = copy.kind == CopyKind::h2d;
      return access;
    }
  return std::nullopt;
}

}  // namespace mfsdp
