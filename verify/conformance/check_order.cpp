// Walks through the plan in host order and keeps, for each stream, the instances that must end
// before its next op. An op's times are compared only with those that it newly has to wait for: the
// rest follows from earlier comparisons.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "verify/conformance/checked_run.hpp"
#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

/// By stream: the number of instances that have ended.
using Clock = std::vector<std::uint32_t>;

void learn(Clock& learner, const Clock& news) {
  for (std::size_t s = 0; s < learner.size(); ++s) learner[s] = std::max(learner[s], news[s]);
}

bool is_wait(const Op& op) { return op.kind() == OpKind::wait || op.kind() == OpKind::host_wait; }

bool is_work(const Op& op) {
  return op.kind() == OpKind::kernel || op.kind() == OpKind::collective ||
         op.kind() == OpKind::copy;
}

class OrderWalk {
 public:
  OrderWalk(CheckedRun& run, const RankRecord& record)
      : run_(run),
        record_(record),
        streams_(run.program.streams.size()),
        host_(streams_.size(), 0),
        host_checked_(streams_.size(), 0),
        recorded_(run.program.events.size()),
        communicated_(run.program.communicators.size()) {
    for (Stream& stream : streams_) stream.knows = stream.checked = Clock(streams_.size(), 0);
  }

  void walk() {
    for (std::size_t step = 0; step < run_.steps.size(); ++step) {
      begin_step(step);
      for (std::size_t i = 0; i < run_.instances.size(); ++i)
        visit(step * run_.instances.size() + i);
    }
  }

 private:
  struct Stream {
    Clock knows;
    Clock checked;  ///< what of `knows` its launches were held against
    /// By position: the instance that ended last of those up to it, if any is timed.
    std::vector<std::optional<std::size_t>> last;
    std::optional<std::size_t> before_group;  ///< as `last`, where a group is open
  };
  struct Known {
    Clock clock;
    std::size_t instance = 0;
    std::int64_t drains = 0;
  };

  [[nodiscard]] const OpLaunch& launch(std::size_t i) const { return *record_.launches[i]; }
  [[nodiscard]] const Op& op_of(std::size_t i) const {
    return *run_.instances.at(i % run_.instances.size()).op;
  }
  /// The time before which all that the instance waits for must have ended.
  [[nodiscard]] Nanos came(std::size_t i) const {
    return is_wait(op_of(i)) ? launch(i).end : launch(i).begin;
  }
  /// The time from which others may rely on the instance; a record stands for the ops before it.
  [[nodiscard]] Nanos over(std::size_t i) const {
    return op_of(i).kind() == OpKind::record ? launch(i).begin : launch(i).end;
  }

  /// After a drain the host knows that all earlier ops have ended.
  void begin_step(std::size_t step) {
    for (std::size_t i = 0; i < run_.instances.size(); ++i) {
      const OpLaunch* first = record_.launches[step * run_.instances.size() + i];
      if (first == nullptr) continue;
      if (step > 0 && first->drains > drains_)
        for (std::size_t s = 0; s < streams_.size(); ++s)
          host_[s] = static_cast<std::uint32_t>(streams_[s].last.size());
      drains_ = first->drains;
      break;
    }
  }

  void visit(std::size_t i) {
    const StepInstances::Instance instance = run_.instances.at(i % run_.instances.size());
    const Op& op = *instance.op;
    note_missing(i, op);
    if (record_.timed[i]) check_issue(i, op);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) {
      if (const auto& known = recorded_[run_.events[wait->event]]) learn(host_, known->clock);
      if (record_.timed[i]) check_host_wait(i);
      return;
    }
    Stream& stream = streams_[*instance.stream];
    learn(stream.knows, host_);
    if (const auto* wait = std::get_if<Wait>(&op.body))
      if (const auto& known = recorded_[run_.events[wait->event]])
        learn(stream.knows, known->clock);
    if (const auto* collective = std::get_if<Collective>(&op.body))
      take_turn(i, *instance.stream, *collective);
    if (record_.timed[i]) check_launch(i, *instance.stream);
    pass(i, *instance.stream, op);
  }

  void note_missing(std::size_t i, const Op& op) {
    if (record_.launches[i] != nullptr) return;
    if (run_.settings.work_alone && !is_work(op)) return;
    std::optional<EventId> awaited;
    if (const auto* wait = std::get_if<Wait>(&op.body)) awaited = wait->event;
    if (const auto* wait = std::get_if<HostWait>(&op.body)) awaited = wait->event;
    if (awaited) {
      const auto& known = recorded_[run_.events[*awaited]];
      if (!known || known->drains < drains_) return;  // nothing is left to wait for
    }
    if (!run_.findings.wants("MF801")) return;
    const Place place = run_.place(i);
    run_.findings.add({.rule = "MF801",
                       .message = fmt::format("{}: {} was not launched", where(record_.rank, place),
                                              to_text(place)),
                       .places = {place}});
  }

  /// The host issues nothing while it waits, and does not access a port that a copy still uses.
  void check_issue(std::size_t i, const Op& op) {
    if (host_busy_)
      demand("MF806", *host_busy_, i, launch(*host_busy_).end, launch(i).issued, true);
    const auto* copy = std::get_if<Copy>(&op.body);
    const Operand* on_host = copy == nullptr ? nullptr : copy->on_host();
    if (on_host == nullptr || !is_port(on_host->buffer)) return;
    const std::size_t size = run_.instances.size();
    const StepInstances::Instance here = run_.instances.at(i % size);
    const Segment& segment = run_.plan.segments[here.segment];
    const auto* behind = &op + 1;
    const auto* end = segment.ops.data() + segment.ops.size();
    const auto* record = std::find_if(behind, end, [&](const Op& other) {
      return other.stream == op.stream && other.kind() == OpKind::record;
    });
    if (record == end) return;
    const auto& last = recorded_[run_.events[std::get<Record>(record->body).event]];
    if (last && record_.timed[last->instance])
      demand("MF806", last->instance, i, over(last->instance), launch(i).issued);
  }

  [[nodiscard]] bool is_port(BufferId id) const {
    return std::ranges::find(run_.program.buffers, id, &Buffer::id)->is_port();
  }

  void check_host_wait(std::size_t i) {
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if (host_[s] > std::exchange(host_checked_[s], host_[s]))
        if (const auto first = streams_[s].last[host_[s] - 1])
          demand("MF806", *first, i, over(*first), came(i));
    if (!host_busy_ || launch(*host_busy_).end < launch(i).end) host_busy_ = i;
  }

  /// Orders the op after the communicator's last collective, unless both belong to one launch.
  void take_turn(std::size_t i, std::size_t s, const Collective& collective) {
    auto& last = communicated_[run_.communicators[collective.communicator]];
    if (!last || (open_groups_ > 0 && last->instance >= group_begin_)) return;
    const std::size_t other = *run_.instances.at(last->instance % run_.instances.size()).stream;
    if (other != s && record_.timed[i] && record_.timed[last->instance]) {
      demand("MF807", last->instance, i, over(last->instance), came(i));
      streams_[s].checked[other] = std::max(streams_[s].checked[other], last->clock[other]);
    }
    learn(streams_[s].knows, last->clock);
  }

  void check_launch(std::size_t i, std::size_t s) {
    Stream& stream = streams_[s];
    const auto before = open_groups_ > 0      ? stream.before_group
                        : stream.last.empty() ? std::nullopt
                                              : stream.last.back();
    if (before) demand("MF805", *before, i, launch(*before).end, launch(i).begin, true);
    for (std::size_t t = 0; t < streams_.size(); ++t) {
      const std::uint32_t known = stream.knows[t];
      if (t == s || known <= std::exchange(stream.checked[t], std::max(known, stream.checked[t])))
        continue;
      if (const auto first = streams_[t].last[known - 1])
        demand("MF806", *first, i, over(*first), came(i));
    }
  }

  /// Updates the knowledge of the stream, the event and the communicator.
  void pass(std::size_t i, std::size_t s, const Op& op) {
    Stream& stream = streams_[s];
    std::optional<std::size_t> last = stream.last.empty() ? std::nullopt : stream.last.back();
    if (record_.timed[i] && (!last || over(*last) <= over(i))) last = i;
    stream.last.push_back(last);
    stream.knows[s] = static_cast<std::uint32_t>(stream.last.size());
    const auto known = [&] {
      return Known{.clock = stream.knows, .instance = i, .drains = drains_};
    };
    if (const auto* record = std::get_if<Record>(&op.body))
      recorded_[run_.events[record->event]] = known();
    if (const auto* collective = std::get_if<Collective>(&op.body))
      communicated_[run_.communicators[collective->communicator]] = known();
    if (op.kind() == OpKind::group_begin && ++open_groups_ == 1) {
      group_begin_ = i;
      stream.before_group = last;
    }
    if (op.kind() == OpKind::group_end) --open_groups_;
  }

  /// `abuts`: one thread does both, stream or host.
  void demand(std::string_view rule, std::size_t first, std::size_t then, Nanos over, Nanos came,
              bool abuts = false) {
    if (!holds(run_, {.rank = record_.rank,
                      .first = first,
                      .then = then,
                      .over = over,
                      .came = came,
                      .abuts = abuts}))
      report(rule, first, then, over, came);
  }

  void report(std::string_view rule, std::size_t first, std::size_t then, Nanos over, Nanos came) {
    if (!run_.findings.wants(rule)) return;
    const Place a = run_.place(first);
    const Place b = run_.place(then);
    const OpLaunch& late = launch(then);
    const std::string_view did = came == late.begin    ? "began"
                                 : came == late.issued ? "was issued"
                                                       : "went on";
    run_.findings.add({.rule = std::string(rule),
                       .message = fmt::format("{}: {} {} at {} ns, {} ns before {} was over",
                                              where(record_.rank, b), to_text(b), did, came.value,
                                              (over - came).value, to_text(a)),
                       .places = {a, b},
                       .missing = fmt::format("{} -> {}", to_text(a), to_text(b))});
  }

  CheckedRun& run_;
  const RankRecord& record_;
  std::vector<Stream> streams_;
  Clock host_;
  Clock host_checked_;
  std::optional<std::size_t> host_busy_;            ///< the host_wait that ended last
  std::vector<std::optional<Known>> recorded_;      ///< by event: its latest record
  std::vector<std::optional<Known>> communicated_;  ///< by communicator: its last collective
  std::int64_t drains_ = 0;
  std::int64_t open_groups_ = 0;
  std::size_t group_begin_ = 0;
};

}  // namespace

void check_order(CheckedRun& run, const RankRecord& record) { OrderWalk(run, record).walk(); }

}  // namespace mfsdp
