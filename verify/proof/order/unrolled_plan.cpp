#include "verify/proof/order/unrolled_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

constexpr std::uint32_t kClockBlock = 8;  ///< clocks are compared in blocks that vectorise

class Unroller {
 public:
  Unroller(const Program& program, const ProgramIndex& index, const Plan& plan,
           FindingList& findings, std::span<const SegmentRun> unfolded)
      : index_(index), findings_(findings) {
    out_.program = &program;
    out_.index = &index;
    out_.plan = &plan;
    out_.unfolded = unfolded;
    out_.chains = static_cast<std::uint32_t>(program.streams.size()) + 1;
    out_.width = (out_.chains + kClockBlock - 1) / kClockBlock * kClockBlock;
    out_.clocks.assign(out_.width, 0);
    chains_.resize(out_.chains);
    latest_record_.assign(program.events.size(), kNone);
    latest_collective_.assign(program.communicators.size(), kNone);
    const auto ops = static_cast<std::size_t>(count_ops(plan));
    out_.ops.reserve(ops);
    copied_event_.reserve(ops);
    number_lists(plan);
    for (std::size_t list = 0; list < lists_.size(); ++list) {
      for (const Op& op : op_list(plan, list)) {
        out_.ops.push_back(facts_of(op));
        out_.lags = out_.lags || op.lag > 0;
      }
      find_copied_events(op_list(plan, list));
    }
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
      calls_.push_back(calls_of(plan, s));
      for (const ListCall& call : calls_.back())
        out_.lags = out_.lags || call.of.lag > 0 || call.of.lag_step > 0;
    }
    needed_.assign(copied_event_.size(), false);
    reported_.assign(copied_event_.size(), false);
    runs_.assign(lists_.size(), 0);
  }

  UnrolledPlan run(const ProofSettings& settings) {
    reserve(settings);
    std::int64_t before = 0;
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      std::int64_t begun = 0;
      runs_before_step_ = runs_;
      for (std::size_t s = 0; s < out_.plan->segments.size(); ++s) {
        const Segment& segment = out_.plan->segments[s];
        for (std::int64_t i = 0; i < std::min(segment.repeat, settings.repetitions); ++i) {
          begun = add_up(begun, segment.microbatches);
          const auto head = static_cast<std::uint32_t>(out_.runs.size());
          for (const ListCall& call : calls_[s]) {
            const List& list = lists_[call.list];
            out_.runs.push_back(
                {.segment = s,
                 .step = step,
                 .repetition = out_.unfolded.empty() ? i : out_.unfolded[s].repetition,
                 .first = out_.instances.size(),
                 .head = head,
                 .list = list.number,
                 .number = runs_[list.number]++,
                 .before = before,
                 .begun = begun,
                 .lag = call.lag_in(i),
                 .for_more = segment.repeat > settings.repetitions});
            const std::vector<Op>& ops = op_list(*out_.plan, call.list);
            for (std::uint32_t o = 0; o < ops.size(); ++o) issue(ops[o], list.first_op + o);
          }
        }
        leave_out(s);
      }
      before = add_up(before, begun);
    }
    list_redundant_waits();
    return std::move(out_);
  }

 private:
  struct List {
    std::uint32_t first_op = 0;  ///< position among all ops of the plan
    std::uint32_t number = 0;    ///< of the first list with the same ops
  };

  /// Runs of a segment that an unfolded plan leaves out.
  struct LeftOut {
    std::uint32_t first = 0;  ///< the first run of the segment in this step
    std::size_t segment = 0;  ///< one of the unfolded plan, with the same calls
    std::int64_t times = 0;
  };

  void leave_out(std::size_t s) {
    if (out_.unfolded.empty()) return;
    if (out_.unfolded[s].repetition == 0) first_of_segment_ = out_.runs.back().head;
    if (out_.unfolded[s].times > 1)
      left_out_.push_back(
          {.first = first_of_segment_, .segment = s, .times = out_.unfolded[s].times - 1});
  }

  /// Runs of a list that were left out in segments that began after a run. If its record is still
  /// the latest of the event, these have not recorded it.
  [[nodiscard]] std::int64_t left_out_after(std::int64_t run, std::uint32_t list) const {
    std::int64_t count = 0;
    for (const LeftOut& segment : left_out_)
      if (std::int64_t{segment.first} > run)
        for (const ListCall& call : calls_[segment.segment])
          if (lists_[call.list].number == list) count += segment.times;
    return count;
  }

  /// The variants of a pass are lists whose ops have the same ids: to waits they are one.
  void number_lists(const Plan& plan) {
    std::unordered_map<OpId, std::uint32_t> known;  // by the list's first op
    std::uint32_t first_op = 0;
    for (std::uint32_t l = 0; l < count_op_lists(plan); ++l) {
      const std::vector<Op>& ops = op_list(plan, l);
      const std::uint32_t number =
          ops.empty() ? l : known.try_emplace(ops.front().id, l).first->second;
      lists_.push_back({.first_op = first_op, .number = number});
      first_op += static_cast<std::uint32_t>(ops.size());
    }
  }

  struct Chain {
    std::uint32_t clock = 0;
    std::uint32_t issued = 0;
    std::uint32_t host_seen = 0;  ///< host instances that it knows of
  };

  /// A plan may state any number of microbatches.
  static std::int64_t add_up(std::int64_t a, std::int64_t b) {
    constexpr Int128 kMost = std::numeric_limits<std::int64_t>::max() / 4;
    return static_cast<std::int64_t>(std::min(Int128{a} + std::max<std::int64_t>(b, 0), kMost));
  }

  void reserve(const ProofSettings& settings) {
    std::size_t count = 0;
    for (std::size_t s = 0; s < out_.plan->segments.size(); ++s)
      count +=
          static_cast<std::size_t>(ops_in_run(*out_.plan, s) *
                                   std::min(out_.plan->segments[s].repeat, settings.repetitions));
    out_.instances.reserve(count * static_cast<std::size_t>(settings.steps) + 64);
  }

  [[nodiscard]] OpFacts facts_of(const Op& op) const {
    OpFacts facts{.kind = op.kind(),
                  .chain = static_cast<std::uint16_t>(index_.streams[op.stream])};
    if (op.unit) facts.unit = static_cast<std::uint32_t>(index_.units[*op.unit]);
    const auto names = [&](const auto& ids, auto id) {
      facts.subject = static_cast<std::uint32_t>(ids[id]);
    };
    if (const auto* acquire = std::get_if<Acquire>(&op.body))
      names(index_.buffers, acquire->buffer);
    if (const auto* release = std::get_if<Release>(&op.body))
      names(index_.buffers, release->buffer);
    if (const auto* record = std::get_if<Record>(&op.body)) names(index_.events, record->event);
    if (const auto* wait = std::get_if<Wait>(&op.body)) names(index_.events, wait->event);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) names(index_.events, wait->event);
    if (const auto* collective = std::get_if<Collective>(&op.body))
      names(index_.communicators, collective->communicator);
    return facts;
  }

  /// The host touches the port of a copy again when the next record on the copy's stream has run.
  void find_copied_events(const std::vector<Op>& ops) {
    const std::size_t first = copied_event_.size();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      copied_event_.push_back(kNone);
      if (out_.ops[first + i].kind != OpKind::copy) continue;
      const Op& op = ops[i];
      const auto* copy = std::get_if<Copy>(&op.body);
      const Operand* on_host = copy == nullptr ? nullptr : copy->on_host();
      if (on_host == nullptr || !out_.program->buffers[index_.buffers[on_host->buffer]].is_port())
        continue;
      const auto record = std::find_if(
          ops.begin() + static_cast<std::ptrdiff_t>(i), ops.end(),
          [&](const Op& o) { return o.stream == op.stream && o.kind() == OpKind::record; });
      if (record != ops.end()) {
        copied_event_.back() =
            static_cast<std::uint32_t>(index_.events[std::get<Record>(record->body).event]);
        continue;
      }
      const Place place = place_in_plan(*out_.plan, op);
      findings_.add(
          {.rule = "MF108",
           .message = fmt::format("op {} ({}) copies from or to a port of the host, but no event "
                                  "is recorded after it in segment '{}': the host cannot know "
                                  "when it has ended",
                                  op.id.value, op.name, place.segment),
           .places = {place},
           .buffer = on_host->buffer});
    }
  }

  [[nodiscard]] const std::uint32_t* clock(std::uint32_t id) const {
    return &out_.clocks[std::size_t{id} * out_.width];
  }

  /// `learner` comes to know all that was known when instance `source` ended. False: it knew.
  bool learn(std::uint32_t learner, std::uint32_t source) {
    const Instance& from = out_.instances[source];
    Chain& chain = chains_[learner];
    const std::uint32_t* known = clock(chain.clock);
    const std::uint32_t* news = clock(from.clock);
    bool fresh = from.chain != learner && known[from.chain] <= from.position;
    for (std::uint32_t c = 0; c < out_.width; ++c)
      fresh = fresh || (news[c] > known[c] && c != learner);
    if (!fresh) return false;
    const auto id = static_cast<std::uint32_t>(out_.clocks.size() / out_.width);
    out_.clocks.resize(out_.clocks.size() + out_.width);
    std::uint32_t* made = &out_.clocks[std::size_t{id} * out_.width];
    known = clock(chain.clock);
    news = clock(from.clock);
    for (std::uint32_t c = 0; c < out_.width; ++c) made[c] = std::max(known[c], news[c]);
    made[from.chain] = std::max(made[from.chain], from.position + 1);
    chain.clock = id;
    return true;
  }

  std::uint32_t add(const Op& op, std::uint32_t op_index, std::uint32_t chain,
                    std::uint32_t source) {
    out_.instances.push_back({.op = &op,
                              .op_index = op_index,
                              .run = static_cast<std::uint32_t>(out_.runs.size() - 1),
                              .position = chains_[chain].issued,
                              .clock = chains_[chain].clock,
                              .source = source,
                              .chain = static_cast<std::uint16_t>(chain)});
    return static_cast<std::uint32_t>(out_.instances.size() - 1);
  }

  void issue(const Op& op, std::uint32_t op_index) {
    if (copied_event_[op_index] != kNone) do_host_work(op, op_index);
    const OpFacts& facts = out_.ops[op_index];
    if (facts.kind == OpKind::host_wait) {
      issue_wait(op, op_index, std::get<HostWait>(op.body), out_.host_chain());
      latest_host_ = static_cast<std::uint32_t>(out_.instances.size() - 1);
      return;
    }
    const std::uint32_t chain = facts.chain;
    Chain& stream = chains_[chain];
    if (const std::uint32_t host = chains_[out_.host_chain()].issued; stream.host_seen != host) {
      learn(chain, latest_host_);
      stream.host_seen = host;
    }
    switch (facts.kind) {
      case OpKind::wait: issue_wait(op, op_index, std::get<Wait>(op.body), chain); return;
      case OpKind::collective: issue_collective(op, op_index, chain); return;
      case OpKind::record: latest_record_[facts.subject] = add(op, op_index, chain, kNone); break;
      case OpKind::group_begin:
        ++open_groups_;
        add(op, op_index, chain, kNone);
        return;  // its collectives have its position
      case OpKind::group_end:
        add(op, op_index, chain, kNone);
        if (--open_groups_ > 0) return;
        break;
      default: add(op, op_index, chain, kNone);
    }
    ++stream.issued;
  }

  void issue_collective(const Op& op, std::uint32_t op_index, std::uint32_t chain) {
    std::uint32_t& latest = latest_collective_[out_.ops[op_index].subject];
    const auto of_this_launch = [&](const Instance& other) {
      return other.chain == chain && other.position == chains_[chain].issued;
    };
    const std::uint32_t source = latest;
    if (latest != kNone && !of_this_launch(out_.instances[latest])) learn(chain, latest);
    latest = add(op, op_index, chain, source);
    if (open_groups_ == 0) ++chains_[chain].issued;
  }

  void do_host_work(const Op& copy, std::uint32_t op_index) {
    const std::uint32_t host = out_.host_chain();
    const std::uint32_t record = latest_record_[copied_event_[op_index]];
    if (record != kNone) learn(host, record);
    latest_host_ = add(copy, op_index, host, record);
    out_.instances.back().host_work = true;
    ++chains_[host].issued;
  }

  void issue_wait(const Op& op, std::uint32_t op_index, const auto& wait, std::uint32_t chain) {
    const std::uint32_t record = latest_record_[out_.ops[op_index].subject];
    check_bindings(op, op_index, wait, record);
    if (record != kNone && learn(chain, record)) needed_[op_index] = true;
    add(op, op_index, chain, record);
    ++chains_[chain].issued;
  }

  void check_bindings(const Op& op, std::uint32_t op_index, const auto& wait,
                      std::uint32_t record) {
    if (reported_[op_index]) return;
    const auto binds = [&](auto matches) {
      return std::any_of(wait.bindings.begin(), wait.bindings.end(), matches);
    };
    if (record == kNone) {
      if (out_.runs.back().step == 0 && binds([&](const Binding& b) { return reaches_back(b); }))
        return;
      report_wait(op, op_index, "MF104", "no op has recorded before it", record);
      return;
    }
    const Instance& source = out_.instances[record];
    const ListRun& there = out_.runs[source.run];
    const std::int64_t distance = runs_[there.list] - 1 - there.number + not_come_to(there.list) +
                                  left_out_after(source.run, there.list);
    if (binds(
            [&](const Binding& b) { return b.record == source.op->id && b.distance == distance; }))
      return;
    report_wait(
        op, op_index, "MF105",
        fmt::format(
            "op {} recorded last, at distance {}; none of the wait's bindings states that record",
            source.op->id.value, distance),
        record);
  }

  /// 1 for a list that has not run in this step so far.
  [[nodiscard]] std::int64_t not_come_to(std::size_t list) const {
    return runs_[list] == runs_before_step_[list] ? 1 : 0;
  }
  /// Few waits ask for it.
  void find_records() {
    for (std::size_t list = 0; list < lists_.size(); ++list)
      for (const Op& op : op_list(*out_.plan, list))
        if (op.kind() == OpKind::record) record_list_.emplace(op.id, lists_[list].number);
  }
  /// Whether the record is that of a run before the first one.
  [[nodiscard]] bool reaches_back(const Binding& binding) {
    if (record_list_.empty()) find_records();
    const auto at = record_list_.find(binding.record);
    return at != record_list_.end() && runs_[at->second] - 1 - binding.distance +
                                               not_come_to(at->second) +
                                               left_out_after(-1, at->second) <
                                           0;
  }

  void report_wait(const Op& op, std::uint32_t op_index, std::string rule, const std::string& why,
                   std::uint32_t record) {
    reported_[op_index] = true;
    if (!findings_.wants(rule)) return;
    // The wait's instance is about to be made: borrow its place.
    const std::uint32_t chain = op.kind() == OpKind::host_wait
                                    ? out_.host_chain()
                                    : static_cast<std::uint32_t>(index_.streams[op.stream]);
    const std::uint32_t instance = add(op, op_index, chain, record);
    Finding finding;
    finding.rule = std::move(rule);
    finding.places.push_back(place_of(out_, instance));
    if (record != kNone) finding.places.push_back(place_of(out_, record));
    out_.instances.pop_back();
    finding.message = fmt::format("op {}, {}, waits for an event that {}", op.id.value,
                                  to_text(finding.places.front()), why);
    findings_.add(std::move(finding));
  }

  void list_redundant_waits() {
    std::vector<OpId> needed;  // a wait is needed if one of its variants is
    std::uint32_t op_index = 0;
    for (const Op& op : ops_of(*out_.plan)) {
      const OpKind kind = out_.ops[op_index].kind;
      const bool waits = kind == OpKind::wait || kind == OpKind::host_wait;
      if (waits) (needed_[op_index] ? needed : out_.redundant_waits).push_back(op.id);
      ++op_index;
    }
    std::ranges::sort(needed);
    std::ranges::sort(out_.redundant_waits);
    const auto doubles = std::ranges::unique(out_.redundant_waits);
    out_.redundant_waits.erase(doubles.begin(), doubles.end());
    std::erase_if(out_.redundant_waits,
                  [&](OpId id) { return std::ranges::binary_search(needed, id); });
  }

  const ProgramIndex& index_;
  FindingList& findings_;
  UnrolledPlan out_;
  std::vector<List> lists_;
  std::vector<std::vector<ListCall>> calls_;  ///< by segment
  std::vector<Chain> chains_;
  std::vector<std::uint32_t> latest_record_;      ///< by event: instance
  std::vector<std::uint32_t> latest_collective_;  ///< by communicator: instance
  std::uint32_t latest_host_ = kNone;
  std::uint32_t open_groups_ = 0;
  std::vector<std::uint32_t>
      copied_event_;                ///< by op: for copies of ports, the event recorded after them
  std::vector<std::int64_t> runs_;  ///< by number of a list: its runs so far
  std::vector<std::int64_t> runs_before_step_;
  std::vector<LeftOut> left_out_;
  std::uint32_t first_of_segment_ = 0;  ///< a run
  std::unordered_map<OpId, std::uint32_t> record_list_;
  std::vector<bool> needed_;    ///< by op: a wait that ordered something new
  std::vector<bool> reported_;  ///< by op
};

}  // namespace

UnrolledPlan unroll(const Program& program, const ProgramIndex& index, const Plan& plan,
                    const ProofSettings& settings, FindingList& findings,
                    std::span<const SegmentRun> unfolded) {
  return Unroller(program, index, plan, findings, unfolded).run(settings);
}

std::uint32_t UnrolledPlan::work_run(std::size_t i) const {
  const std::uint32_t own = head_of(i);
  if (!lags) return own;
  const ListRun& run = runs[own];
  const std::int64_t microbatch = run.begun - lag_of(i);  // counted from 1
  const auto step = std::ranges::partition_point(
      runs, [&](const ListRun& other) { return other.step < run.step; });
  const auto began = std::partition_point(
      step, runs.begin() + own, [&](const ListRun& other) { return other.begun < microbatch; });
  return microbatch < 1 ? own : static_cast<std::uint32_t>(began - runs.begin());
}

Place place_of(const UnrolledPlan& unrolled, std::size_t instance) {
  const Instance& i = unrolled.instances[instance];
  const ListRun& run = unrolled.runs[i.run];
  std::string name = op_label(*i.op);
  if (i.host_work)
    name = (std::get<Copy>(i.op->body).kind == CopyKind::h2d ? "fill of " : "read of ") + name;
  const bool on_host = i.chain == unrolled.host_chain();
  return {.plan = unrolled.plan->name,
          .segment = unrolled.plan->segments[run.segment].name,
          .step = run.step,
          .repetition = run.repetition,
          .op = i.op->id,
          .name = std::move(name),
          .stream = stream_name(*unrolled.program,
                                on_host ? std::nullopt : std::optional<std::size_t>(i.chain))};
}

Finding finding_in_step(const UnrolledPlan& unrolled, std::size_t instance, std::string rule,
                        std::string_view what) {
  const Place place = place_of(unrolled, instance);
  return {.rule = std::move(rule),
          .message = fmt::format("{} {}", text_in_step(place), what),
          .places = {place}};
}

}  // namespace mfsdp
