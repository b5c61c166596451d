#include "verify/checker/races.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "verify/checker/json.hpp"

namespace mfsdp::checker {
namespace {

constexpr std::int64_t kMostInstances = 20'000'000;

/// An instance that others may follow.
struct Moment {
  std::size_t chain = 0;
  std::int64_t position = -1;        ///< in its chain; -1: never
  std::vector<std::int64_t> clock{};  ///< by chain: instances that ended before it began
  const Op* op = nullptr;
  std::int64_t step = 0;
  const Segment* segment = nullptr;
  std::int64_t pass = 0;

  [[nodiscard]] std::int64_t knows(std::size_t of) const {
    if (position < 0) return 0;
    return of == chain ? position + 1 : clock[of];
  }
};

/// A touch that may have to come before another one.
struct Touch {
  std::size_t chain = 0;
  std::int64_t position = -1;  ///< -1: never
  const Op* op = nullptr;
};

struct Cell {
  int owner = -1;  ///< the live buffer
  Touch write;
  std::vector<Touch> reads;  ///< since; the last one of each chain
};

class Races {
 public:
  Races(const PlanView& view, const Plan& plan, const Json& clocks, CheckedPlan& figures)
      : view_(view),
        plan_(plan),
        clocks_(clocks),
        figures_(figures),
        host_(view.streams),
        chains_(host_ + 1),
        records_(view.events),
        collectives_(view.communicators.size()),
        pools_(view.pools.size()) {
    for (std::size_t c = 0; c < chains_.size(); ++c) {
      chains_[c].chain = c;
      chains_[c].clock.resize(chains_.size());
    }
    for (std::size_t p = 0; p < pools_.size(); ++p) pools_[p] = {{0, {}}, {view.pools[p], {}}};
    for (std::size_t b = 0; b < view.buffers.size(); ++b)
      if (view.buffers[b].persistent)
        for (Cell* cell : cells(static_cast<int>(b), view.buffers[b].begin, view.buffers[b].end)) {
          if (cell->owner >= 0) refuse("shares bytes with another persistent one", view.buffers[b].name);
          cell->owner = static_cast<int>(b);
        }
  }

  void run() {
    for (step_ = 0; step_ < 2; ++step_)
      for (const Segment& segment : plan_.segments)
        for (std::int64_t i = 0; i < std::min<std::int64_t>(segment.repeat, 2); ++i) {
          segment_ = &segment;
          ++pass_;
          check_live(segment.live_in, "begins");
          for (std::size_t o = 0; o < segment.ops.size(); ++o) issue(segment.ops, o);
          check_live(segment.live_out, "ends");
          if (open_groups_ != 0) refuse("ends within a group", segment.name);
        }
    if (next_clock_ != clocks_.size()) refuse("is of no instance", fmt::format("clock {}", next_clock_));
    figures_.instances += number_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& where) const {
    throw Refusal{fmt::format("plan '{}', step {}, {}", plan_.name, step_, where), what};
  }
  [[noreturn]] void refuse(const std::string& what) const {
    refuse(what, fmt::format("op {} ({})", now_->id, now_->name));
  }

  void check_live(const std::vector<int>& stated, const char* verb) const {
    if (!std::ranges::equal(live_, stated))
      refuse(fmt::format("{} with {} live buffers, which are not the {} stated ones", verb, live_.size(),
                         stated.size()),
             fmt::format("segment '{}'", segment_->name));
  }

  // ---- what is before what ----------------------------------------------------------------------

  /// The next instance of a chain, which follows that moment too.
  Moment& begin(std::size_t chain, const Moment* after, bool same_launch = false) {
    if (++number_ > kMostInstances) refuse("is one op too many");
    Moment& moment = chains_[chain];
    if (!same_launch) ++moment.position;
    moment.op = now_;
    moment.step = step_;
    moment.segment = segment_;
    moment.pass = pass_;
    if (next_clock_ == clocks_.size()) return moment;
    const Json& claim = clocks_[next_clock_];
    if (!claim.is_array() || claim.size() % 2 == 0) refuse("expected an instance and pairs", "clocks");
    if (as_integer(claim[0], "clocks") != number_ - 1) return moment;
    ++next_clock_;
    ++figures_.orderings;
    for (std::size_t i = 1; i < claim.size(); i += 2) {
      const auto of = static_cast<std::size_t>(as_integer(claim[i], "clocks", std::ssize(chains_) - 1));
      const std::int64_t claimed = as_integer(claim[i + 1], "clocks");
      const std::int64_t known = std::max({moment.clock[of], chain == host_ ? 0 : chains_[host_].knows(of),
                                           after == nullptr ? 0 : after->knows(of)});
      if (of == chain || claimed > known)
        refuse(fmt::format("is claimed to follow {} ops of chain {}, where {} is so", claimed, of, known));
      moment.clock[of] = std::max(moment.clock[of], claimed);
    }
    return moment;
  }

  void issue(const std::vector<Op>& ops, std::size_t o) {
    now_ = &ops[o];
    if (now_->kind == Kind::copy && now_->does != "d2d") do_host_work(ops, o);
    const auto chain = now_->stream;
    const bool in_group = open_groups_ > 0;
    if (in_group && (group_stream_ != now_->stream || (now_->kind != Kind::collective && !is_group())))
      refuse("is no collective of the group that it is in");
    switch (now_->kind) {
      case Kind::host_wait: begin(host_, awaited(host_)); break;
      case Kind::wait: begin(chain, awaited(chain)); break;
      case Kind::record:
        records_[now_->event] = begin(chain, nullptr);
        break;
      case Kind::collective: {
        Moment& latest = collectives_[now_->communicator];
        const Moment& moment = begin(chain, &latest, in_group);
        touch(moment, now_->operands);
        latest = moment;
        break;
      }
      case Kind::group_begin:
        begin(chain, nullptr, in_group);
        group_stream_ = now_->stream;
        ++open_groups_;
        break;
      case Kind::group_end:
        if (!in_group) refuse("ends no group");
        --open_groups_;
        begin(chain, nullptr, true);
        break;
      case Kind::acquire: acquire(begin(chain, nullptr), now_->operands[0]); break;
      case Kind::release: release(begin(chain, nullptr), now_->operands[0]); break;
      default: touch(begin(chain, nullptr), now_->operands);
    }
  }
  [[nodiscard]] bool is_group() const {
    return now_->kind == Kind::group_begin || now_->kind == Kind::group_end;
  }

  /// Before it issues a copy, the host waits for the last one of that op to end (the next record
  /// on its stream tells) and then fills its source or reads its destination.
  void do_host_work(const std::vector<Op>& ops, std::size_t o) {
    const bool fills = now_->does == "h2d";
    std::size_t r = o;
    while (r < ops.size() && (ops[r].kind != Kind::record || ops[r].stream != now_->stream)) ++r;
    if (r == ops.size()) refuse("copies the host's memory, and no record tells when it has ended");
    Operand touched = *now_->operand(fills ? "input" : "output");
    touched.writes = fills;
    touch(begin(host_, &records_[ops[r].event]), {touched});
  }

  /// The event's latest record, which must be one of those that the plan binds the wait to.
  const Moment* awaited(std::size_t chain) const {
    const Moment& record = records_[now_->event];
    const bool none = record.position < 0;
    const bool here = record.pass == pass_ || record.segment != segment_;
    const std::int64_t distance = none || (record.step == step_ && here) ? 0 : 1;
    const bool bound = std::ranges::any_of(now_->bindings, [&](const auto& binding) {
      return none ? step_ == 0 && binding.second == 1
                  : binding.first == record.op->id && binding.second == distance;
    });
    if (bound) return chain == record.chain ? nullptr : &record;
    if (none) refuse("waits for an event that nothing has recorded");
    refuse(fmt::format("gets the record of op {} at distance {}, which it does not name", record.op->id,
                       distance));
  }

  // ---- bytes ------------------------------------------------------------------------------------

  /// The cells of [begin, end), cut to it.
  std::vector<Cell*> cells(int buffer, std::int64_t begin, std::int64_t end) {
    auto& pool = pools_[view_.buffers[static_cast<std::size_t>(buffer)].pool];
    const auto cut = [&](std::int64_t at) {
      const auto found = pool.lower_bound(at);
      return found->first == at ? found : pool.emplace_hint(found, at, std::prev(found)->second);
    };
    std::vector<Cell*> found;
    if (begin >= end) return found;
    const auto first = cut(begin);
    const auto last = cut(end);
    for (auto cell = first; cell != last; ++cell) found.push_back(&cell->second);
    return found;
  }

  void follow(const Moment& now, const Touch& before, const Operand& operand) const {
    if (before.position < (before.chain == now.chain ? now.position : now.clock[before.chain])) return;
    refuse(fmt::format("does not surely follow op {} ({}) on bytes of buffer '{}'", before.op->id,
                       before.op->name, name_of(operand)));
  }
  [[nodiscard]] const std::string& name_of(const Operand& operand) const {
    return view_.buffers[operand.buffer].name;
  }

  void check(const Moment& now, const Cell& cell, const Operand& operand, int owner) {
    ++figures_.accesses;
    if (cell.owner != owner)
      refuse(fmt::format("touches bytes of buffer '{}' while {}", name_of(operand),
                         cell.owner < 0 ? "it is not live" : "another one is live there"));
    follow(now, cell.write, operand);
    if (operand.writes)
      for (const Touch& read : cell.reads) follow(now, read, operand);
  }

  void touch(const Moment& now, const std::vector<Operand>& operands) {
    // All checks come before all changes: an op does not conflict with itself.
    for (const Operand& operand : operands)
      for (const Cell* cell : cells(operand.buffer, operand.begin, operand.end))
        check(now, *cell, operand, operand.buffer);
    for (const Operand& operand : operands)
      for (Cell* cell : cells(operand.buffer, operand.begin, operand.end)) {
        const Touch made{now.chain, now.position, now_};
        if (operand.writes) {
          *cell = {.owner = cell->owner, .write = made, .reads = {}};
        } else {
          std::erase_if(cell->reads, [&](const Touch& read) { return read.chain == now.chain; });
          cell->reads.push_back(made);
        }
      }
  }

  void acquire(const Moment& now, const Operand& whole) {
    if (!live_.insert(whole.buffer).second) refuse("acquires a live buffer");
    take(now, whole, -1, whole.buffer);
  }
  void release(const Moment& now, const Operand& whole) {
    if (live_.erase(whole.buffer) == 0) refuse("releases a buffer that is not live");
    take(now, whole, whole.buffer, -1);
  }
  /// Writes all bytes of a buffer, which become one cell.
  void take(const Moment& now, const Operand& whole, int from, int to) {
    const std::vector<Cell*> taken = cells(whole.buffer, whole.begin, whole.end);
    for (const Cell* cell : taken) check(now, *cell, whole, from);
    if (taken.empty()) return;
    auto& pool = pools_[view_.buffers[static_cast<std::size_t>(whole.buffer)].pool];
    *taken[0] = {.owner = to, .write = {now.chain, now.position, now_}, .reads = {}};
    pool.erase(std::next(pool.find(whole.begin)), pool.find(whole.end));
  }

  const PlanView& view_;
  const Plan& plan_;
  const Json& clocks_;
  CheckedPlan& figures_;
  std::size_t host_;
  std::vector<Moment> chains_;       ///< their latest instances
  std::vector<Moment> records_;      ///< by event, the latest
  std::vector<Moment> collectives_;  ///< by communicator, the latest
  std::vector<std::map<std::int64_t, Cell>> pools_;  ///< by the cells' first bytes
  std::set<int> live_;
  const Op* now_ = nullptr;
  const Segment* segment_ = nullptr;
  std::int64_t step_ = 0;
  std::int64_t pass_ = 0;
  std::int64_t number_ = 0;  ///< of instances
  std::size_t next_clock_ = 0;
  int open_groups_ = 0;
  int group_stream_ = 0;
};

}  // namespace

void check_races(const PlanView& view, const Plan& plan, const Json& clocks, CheckedPlan& figures) {
  Races(view, plan, clocks, figures).run();
}

}  // namespace mfsdp::checker
