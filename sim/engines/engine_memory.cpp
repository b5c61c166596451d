#include "sim/engines/engine_memory.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kLeastSteps = 3;
constexpr std::int64_t kMostSteps = 8;

/// Simulates the host's allocations, step by step. `use(event, op)` receives them, and returns
/// whether to continue.
class Host {
 public:
  using Use = std::function<bool(const HostAllocation&, const Op*)>;

  Host(const EnginePlan& plan, Use use)
      : plan_(plan), use_(std::move(use)), slots_(first_slots(plan.program)) {
    for (const Renewal& renewal : plan.renewals) there_[renewal.next.value] = renewal;
    for (const KeptFrom& kept : plan.kept) {
      if (kept.by_renewal) unmade_.insert(kept.buffer.value);
      if (kept.before_steps) made_.insert(kept.buffer.value);
    }
  }

  bool start() {
    while (next_ < plan_.kept.size() && !plan_.kept[next_].before)
      if (!take(plan_.kept[next_++], nullptr)) return false;
    return true;
  }

  bool step() {
    bool goes_on = true;
    for_each_instance(*plan_.program.find_plan(PlanRole::train), {},
                      [&](const OpRun& run, const Op& op) { goes_on = goes_on && issue(run, op); });
    if (!goes_on) return false;
    ++steps_;
    at_ = 0;
    return plan_.moments.empty() || give_back_until(kLongAgo, nullptr);  // the host has waited
  }

 private:
  [[nodiscard]] bool is_due(const KeptFrom& kept, const Op& op) const {
    return kept.before == op.id && (!kept.in_second_step || steps_ > 0);
  }

  bool issue(const OpRun& run, const Op& op) {
    ++issued_;
    const OpMoment moment = plan_.moments.empty() ? OpMoment{} : plan_.moments[at_++];
    if (!plan_.moments.empty() && std::holds_alternative<Acquire>(op.body) &&
        !give_back_until(moment.issued, &op))
      return false;
    if (std::holds_alternative<Record>(op.body)) recorded_[op.id.value] = issued_;
    if (const auto* wait = std::get_if<HostWait>(&op.body);
        wait != nullptr && plan_.moments.empty() && !in_use_.empty())
      for (const Binding& binding : wait->bindings)
        if (const auto record = recorded_.find(binding.record.value); record != recorded_.end())
          if (!give_back(record->second, op)) return false;
    while (next_ < plan_.kept.size() && is_due(plan_.kept[next_], op))
      if (!take(plan_.kept[next_++], &op)) return false;
    if (const auto* acquire = std::get_if<Acquire>(&op.body)) {
      if (made_.erase(acquire->buffer.value) > 0) return true;
      return use_(event(made_by(acquire->buffer), false, &run), &op);
    }
    if (const auto* release = std::get_if<Release>(&op.body)) {
      const BufferId freed = freed_by(release->buffer);
      if (unmade_.erase(freed.value) > 0) return true;
      HostAllocation made = event(freed, true, &run);
      made.in_use = std::ranges::binary_search(plan_.in_use, op.id, {},
                                               [](const UseAfterFree& use) { return use.release; });
      if (made.in_use)
        in_use_.push_back({.buffer = freed, .freed = issued_, .passed = moment.passed});
      return use_(made, &op);
    }
    return true;
  }

  /// Memory freed before `passed` is no longer in use.
  bool give_back(std::int64_t passed, const Op& op) {
    while (!in_use_.empty() && in_use_.front().freed < passed)
      if (!give_back_first(&op)) return false;
    return true;
  }

  /// Memory that its stream has passed by then.
  bool give_back_until(std::int64_t now, const Op* op) {
    while (!in_use_.empty() && in_use_.front().passed <= now)
      if (!give_back_first(op)) return false;
    return true;
  }

  bool give_back_first(const Op* op) {
    HostAllocation made = event(in_use_.front().buffer, false);
    made.is_returned = true;
    in_use_.pop_front();
    return use_(made, op);
  }

  [[nodiscard]] BufferId made_by(BufferId buffer) const {
    const auto renewal = there_.find(buffer.value);
    return renewal == there_.end() ? buffer : renewal->second.next;
  }

  /// For a renewal, returns the old buffer; the new one takes its place.
  BufferId freed_by(BufferId buffer) {
    const auto renewal = there_.find(buffer.value);
    if (renewal == there_.end()) return buffer;
    std::swap(renewal->second.kept, renewal->second.next);
    return renewal->second.next;
  }

  bool take(const KeptFrom& kept, const Op* op) {
    if (kept.by_renewal) return true;
    if (kept.empties_cache) return use_({.empties_cache = true, .buffer = {}}, op);
    HostAllocation made = event(kept.buffer, kept.freed);
    if (kept.brief) made.size = kept.brief->value;
    return use_(made, op);
  }

  [[nodiscard]] HostAllocation event(BufferId id, bool is_free, const OpRun* run = nullptr) const {
    const Buffer& buffer = plan_.program.buffers[id.value];
    std::size_t slot = slots_[id.value];
    if (run != nullptr && buffer.instances)
      slot += static_cast<std::size_t>(run->instance(*buffer.instances));
    return {.is_free = is_free,
            .buffer = id,
            .slot = slot,
            .size = buffer.size.value,
            .stream = buffer.pool.value};
  }

  const EnginePlan& plan_;
  Use use_;
  std::vector<std::uint32_t> slots_;         // first one, by buffer
  std::size_t next_ = 0;                     // index of the next kept allocation
  std::int64_t steps_ = 0;                   // that ended
  std::map<std::int64_t, Renewal> there_{};  // current state, by the buffer that the step names
  std::set<std::int64_t> unmade_{};          // not freed in the first step
  std::set<std::int64_t> made_{};            // not allocated in the first step
  struct InUse {
    BufferId buffer;
    std::int64_t freed = 0;   // number of ops issued by then
    std::int64_t passed = 0;  // as OpMoment
  };
  std::deque<InUse> in_use_{};
  static constexpr std::int64_t kLongAgo = std::numeric_limits<std::int64_t>::max();
  std::size_t at_ = 0;                               // op of the step
  std::int64_t issued_ = 0;                          // ops
  std::map<std::int64_t, std::int64_t> recorded_{};  // by record: ops issued at its last run
};

class Accounts {
 public:
  Accounts(const EnginePlan& plan, const AllocatorSettings& settings)
      : program_(plan.program),
        allocator_(settings),
        places_(first_slots(plan.program).back()),
        of_stream_(plan.program.pools.size()),
        most_of_stream_(plan.program.pools.size()),
        withheld_of_stream_(plan.program.pools.size()) {}

  bool use(const HostAllocation& event, const Op* op) {
    if (event.empties_cache) {
      allocator_.release_cached();
      return true;
    }
    Place& place = places_[event.slot];
    const auto stream = static_cast<std::size_t>(event.stream);
    Bytes& live = live_[static_cast<std::size_t>(program_.buffers[event.buffer.value].category)];
    if (event.is_returned) {
      const Place& returned = in_use_.front();
      allocator_.free(returned.address);
      withheld_of_stream_[stream] -= returned.bytes;
      in_use_.pop_front();
      return true;
    }
    if (event.is_free) {
      if (event.in_use) {
        allocator_.retire(place.address);
        withheld_of_stream_[stream] += place.bytes;
        in_use_.push_back(place);
      } else {
        allocator_.free(place.address);
      }
      live -= Bytes(place.bytes);
      of_stream_[stream] -= place.bytes;
      return true;
    }
    const std::int64_t size = std::max<std::int64_t>(event.size, 1);
    const AllocatorCounters before = allocator_.counters();
    const auto address = allocator_.allocate(size, event.stream);
    if (!address) {
      memory_.out_of_memory = {.event = 0, .size = size, .stream = event.stream};
      return false;
    }
    const std::int64_t block = allocator_.counters().allocated - before.allocated;
    place = {.address = *address, .bytes = block};
    live += Bytes(block);
    of_stream_[stream] += block;
    most_of_stream_[stream] = std::max(most_of_stream_[stream], of_stream_[stream]);
    note_peaks(before, op);
    return true;
  }

  void count_step() { ++memory_.steps; }

  [[nodiscard]] std::int64_t reserved() const { return allocator_.counters().peak_reserved; }

  EngineMemory finish() {
    memory_.counters = allocator_.counters();
    std::map<std::int64_t, std::int64_t> free;
    for (const auto& stream : free_at_peak_) {
      memory_.idle_segments += Bytes(stream.whole);
      memory_.fragments += Bytes(stream.parts);
      free[stream.stream] = stream.whole + stream.parts;
    }
    for (std::size_t i = 0; i < of_stream_.size(); ++i)
      if (most_of_stream_[i] > 0)
        memory_.streams.push_back(
            {.name = program_.pools[i].name,
             .reserved = Bytes(std::max(held_at_peak_[i] + free[static_cast<std::int64_t>(i)],
                                        most_of_stream_[i])),
             .allocated = Bytes(most_of_stream_[i])});
    return std::move(memory_);
  }

 private:
  void note_peaks(const AllocatorCounters& before, const Op* op) {
    const AllocatorCounters& now = allocator_.counters();
    if (now.peak_allocated > before.peak_allocated) {
      memory_.at_peak = live_;
      memory_.peak_op = op == nullptr ? "start of the run" : op->name;
    }
    if (now.peak_reserved > before.peak_reserved) {
      free_at_peak_ = allocator_.free_bytes();
      held_at_peak_ = of_stream_;
      for (std::size_t i = 0; i < held_at_peak_.size(); ++i)
        held_at_peak_[i] += withheld_of_stream_[i];
    }
  }

  const Program& program_;
  CachingAllocator allocator_;
  struct Place {
    std::int64_t address = 0;
    std::int64_t bytes = 0;  ///< of its block
  };
  std::vector<Place> places_;   // by slot
  std::deque<Place> in_use_{};  // freed and not returned, in order
  std::vector<std::int64_t> of_stream_;
  std::vector<std::int64_t> most_of_stream_;
  std::vector<std::int64_t> withheld_of_stream_;  // of in_use_
  CategoryBytes live_{};
  EngineMemory memory_;
  std::vector<CachingAllocator::FreeBytes> free_at_peak_;
  std::vector<std::int64_t> held_at_peak_;  // allocated or withheld, by stream
};

}  // namespace

EngineMemory engine_memory(const EnginePlan& plan, const AllocatorSettings& settings) {
  Accounts accounts(plan, settings);
  Host host(plan,
            [&](const HostAllocation& event, const Op* op) { return accounts.use(event, op); });
  bool goes_on = host.start();
  std::int64_t before = 0;
  for (std::int64_t step = 0; goes_on && step < kMostSteps; ++step) {
    goes_on = host.step();
    accounts.count_step();
    if (step + 1 >= kLeastSteps && accounts.reserved() == before) break;
    before = accounts.reserved();
  }
  return accounts.finish();
}

std::vector<KindMemory> live_at_peak(const EnginePlan& plan, const AllocatorSettings& settings) {
  const std::vector<HostAllocation> made = host_allocations(plan, kLeastSteps);
  const auto rounded = [&](const HostAllocation& allocation) {
    return CachingAllocator::rounded(std::max<std::int64_t>(allocation.size, 1), settings);
  };
  // By slot: the bytes that its free returns.
  const std::vector<std::uint32_t> slots = first_slots(plan.program);
  std::vector<std::int64_t> held(slots.back());
  std::int64_t live = 0;
  std::int64_t most = 0;
  std::vector<std::int64_t> at_peak;
  const auto pass = [&](bool is_second) {
    for (const HostAllocation& one : made) {
      if (one.empties_cache || one.is_returned) continue;
      std::int64_t& bytes = held[one.slot];
      const std::int64_t change = one.is_free ? -bytes : rounded(one);
      bytes = one.is_free ? 0 : change;
      live += change;
      if (is_second && live == most) {
        at_peak = held;
        return;
      }
      most = std::max(most, live);
    }
  };
  pass(false);
  std::ranges::fill(held, 0);
  live = 0;
  pass(true);
  std::map<std::string, KindMemory> kinds;
  for (std::size_t i = 0; i < at_peak.size(); ++i) {
    if (at_peak[i] == 0) continue;
    const auto after = std::ranges::upper_bound(slots, i);
    const Buffer& buffer =
        plan.program.buffers[static_cast<std::size_t>(after - slots.begin() - 1)];
    const std::size_t unit =
        buffer.unit ? plan.program.units[buffer.unit->value].name.size() + 1 : 0;
    KindMemory& kind = kinds[buffer.name.substr(unit)];
    kind.name = buffer.name.substr(unit);
    ++kind.count;
    kind.bytes += Bytes(at_peak[i]);
  }
  std::vector<KindMemory> sorted;
  for (auto& [name, kind] : kinds) sorted.push_back(std::move(kind));
  std::ranges::stable_sort(sorted, std::greater{}, &KindMemory::bytes);
  return sorted;
}

std::vector<HostAllocation> host_allocations(const EnginePlan& plan, std::int64_t steps) {
  std::vector<HostAllocation> all;
  Host host(plan, [&](const HostAllocation& event, const Op*) {
    all.push_back(event);
    return true;
  });
  host.start();
  for (std::int64_t step = 0; step < steps; ++step) host.step();
  return all;
}

}  // namespace mfsdp
