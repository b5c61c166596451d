#include "core/schedule/collective_placement.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mfsdp::schedule {
namespace {

StreamId id_of(StreamRole role) { return StreamId(static_cast<std::size_t>(role)); }

bool is_attention(const Op& op) {
  const auto* kernel = std::get_if<Kernel>(&op.body);
  return kernel != nullptr && (kernel->kind == KernelKind::attention_forward ||
                               kernel->kind == KernelKind::attention_backward);
}

/// The event that an op waits for, if it is a wait.
const EventId* awaited(const Op& op) {
  if (const auto* wait = std::get_if<Wait>(&op.body)) return &wait->event;
  if (const auto* wait = std::get_if<HostWait>(&op.body)) return &wait->event;
  return nullptr;
}

/// Ops of some streams that are not issued yet, in their order.
class HeldBack {
 public:
  explicit HeldBack(std::vector<StreamId> streams) : streams_(std::move(streams)) {}

  [[nodiscard]] bool takes(const Op& op) const {
    return std::ranges::find(streams_, op.stream) != streams_.end();
  }
  void take(Op op) { ops_.push_back(std::move(op)); }

  [[nodiscard]] bool has_collective(StreamId stream) const {
    return std::ranges::any_of(
        ops_, [&](const Op& op) { return op.stream == stream && op.kind() == OpKind::collective; });
  }
  [[nodiscard]] bool has_collective() const {
    return std::ranges::any_of(streams_, [&](StreamId stream) { return has_collective(stream); });
  }
  [[nodiscard]] bool records(EventId event) const {
    return std::ranges::any_of(ops_, [&](const Op& op) {
      const auto* record = std::get_if<Record>(&op.body);
      return record != nullptr && record->event == event;
    });
  }

  void issue(std::vector<Op>& out) {
    std::ranges::move(ops_, std::back_inserter(out));
    ops_.clear();
  }
  [[nodiscard]] const std::vector<StreamId>& streams() const { return streams_; }

 private:
  std::vector<StreamId> streams_;
  std::vector<Op> ops_;
};

class SegmentPlacement {
 public:
  SegmentPlacement(Emitter& emitter, const std::string& prefix)
      : e_(emitter), prefix_(prefix), placement_(emitter.config().placement) {
    if (placement_ == CollectivePlacement::gathers) return;
    reductions_ = HeldBack({id_of(StreamRole::reduce_scatter), id_of(StreamRole::outer)});
  }

  std::vector<Op> run(std::vector<Op> ops) {
    for (Op& op : ops) visit(std::move(op));
    gathers_.issue(out_);
    reductions_.issue(out_);
    return std::move(out_);
  }

 private:
  void visit(Op op) {
    const std::array<HeldBack*, 2> both{&gathers_, &reductions_};
    for (HeldBack* held : both)
      if (held->takes(op)) return held->take(std::move(op));
    const EventId* event = awaited(op);
    for (HeldBack* held : both)
      if (event != nullptr && held->records(*event)) held->issue(out_);
    if (!is_attention(op)) return out_.push_back(std::move(op));
    const Op attention = op;  // the records are attributed to it
    const bool reductions_follow = placement_ == CollectivePlacement::after_attention;
    begin_with(attention, gathers_, reductions_follow ? nullptr : &reductions_, "begins");
    out_.push_back(std::move(op));
    if (reductions_follow) begin_with(attention, reductions_, nullptr, "ended");
  }

  /// Issues the delayed ops after a record at this point of the attention kernel's stream.
  void begin_with(const Op& attention, HeldBack& first, HeldBack* second, const char* when) {
    const bool any = first.has_collective() || (second != nullptr && second->has_collective());
    if (!any) return;
    const EventId event = e_.event(prefix_ + attention.name + "." + when);
    const auto emit = [&](StreamId stream, OpBody body) {
      out_.push_back({.id = {},
                      .stream = stream,
                      .phase = attention.phase,
                      .unit = std::nullopt,
                      .group = std::nullopt,
                      .name = e_.program().events[event.value].name,
                      .body = std::move(body)});
    };
    emit(attention.stream, Record{.event = event});
    for (HeldBack* held : {&first, second}) {
      if (held == nullptr || !held->has_collective()) continue;
      for (const StreamId stream : held->streams())
        if (held->has_collective(stream)) emit(stream, Wait{.event = event, .bindings = {}});
      held->issue(out_);
    }
  }

  Emitter& e_;
  const std::string& prefix_;
  CollectivePlacement placement_;
  HeldBack gathers_{std::vector{id_of(StreamRole::all_gather)}};
  HeldBack reductions_{std::vector<StreamId>{}};
  std::vector<Op> out_;
};

}  // namespace

void place_collectives(Emitter& emitter) {
  Program& program = emitter.program();
  if (program.config.placement == CollectivePlacement::earliest) return;
  std::size_t ids = 0;
  for (Plan& plan : program.plans) {
    const std::string prefix = plan.role() == PlanRole::train ? "" : plan.name + ".";
    for (Segment& segment : plan.segments) {
      // In a segment without attention, such as the optimizer's, nothing is delayed.
      if (std::ranges::any_of(segment.ops, is_attention))
        segment.ops = SegmentPlacement(emitter, prefix).run(std::move(segment.ops));
      for (Op& op : segment.ops) op.id = OpId(ids++);
    }
  }
}

}  // namespace mfsdp::schedule
