#include "verify/proof/ledger/scales.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "verify/proof/ledger/microbatches.hpp"
#include "verify/proof/ledger/roles.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

/// Of the norm, of a group of another class.
struct ReceivedPartial {
  GroupId group;
  std::uint32_t instance = 0;  ///< that received it
  std::int64_t bytes = 0;      ///< that it takes
};

/// Bytes of a buffer.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] bool has(std::int64_t from, std::int64_t bytes) const {
    return begin <= from && bytes <= end - from;
  }
};

/// What lies in a report for updates.
struct Finished {
  Scale what = Scale::loss;
  std::uint32_t by = 0;  ///< the instance that made it
};

/// A loss scale: where it lies, and how often it has changed.
struct ScaleRead {
  BufferId buffer;
  std::int64_t changes = 0;

  friend bool operator==(const ScaleRead&, const ScaleRead&) = default;
};
constexpr std::int64_t kReportBytes = 16;  ///< of a loss or a norm that is finished

/// A small buffer's contents: the instances that made them, by where they lie. What was gathered
/// keeps the places that it had on each rank.
struct Cells {
  std::multimap<std::int64_t, std::uint32_t> made_by;  ///< byte offset: instance
  std::map<std::int64_t, ReceivedPartial> received{};  ///< byte offset: from another class
  bool garbage = true;                                 ///< added to what nothing had written
  std::int64_t ranks = 1;                              ///< whose contents are here
  std::optional<CommunicatorId> over{};                ///< of these ranks, if they were gathered
  std::optional<std::int64_t> begin{};                 ///< where they begin, if they were gathered
  ByteRange there{};                                   ///< likewise: what lies in the buffer
  std::int64_t count = 0;                              ///< likewise: elements of each rank
};

}  // namespace

class ScaleRun::Impl {
 public:
  Impl(const UnrolledPlan& unrolled, const FollowedOps& followed, FindingList& findings)
      : unrolled_(unrolled),
        config_(unrolled.program->config),
        findings_(findings),
        follows_(followed),
        followed_(followed.bits),
        over_scales_(followed.over_scales) {
    for (const Group& group : unrolled.program->groups)
      if (group.requires_grad) trainable_.insert(group.id);
  }

  bool run(WireEnds<SentScales>* wires) {
    for (std::uint32_t& i = next_; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      if ((followed_[instance.op_index] & kFollowScales) == 0) continue;
      const auto* sent = std::get_if<Collective>(&instance.op->body);
      if (sent != nullptr && sent->kind == CollectiveKind::recv &&
          (wires == nullptr || !wires->has(*sent)))
        return false;
      if (pass_ == kNone || unrolled_.passes[pass_].step != step_of(i)) microbatches_ = 0;
      pass_ = instance.pass;
      now_ = i;
      for (const OverScales& write :
           std::ranges::equal_range(over_scales_, instance.op_index, {}, &OverScales::op))
        write_over(write.buffer, write.begin, write.end);
      if (const auto* kernel = std::get_if<Kernel>(&instance.op->body)) run_kernel(*kernel);
      if (const auto* copy = std::get_if<Copy>(&instance.op->body)) run_copy(*copy);
      if (sent == nullptr) continue;
      switch (sent->kind) {
        case CollectiveKind::send: send(*sent, wires); break;
        case CollectiveKind::recv: receive(*sent, *wires); break;
        default: gather(*sent);
      }
    }
    return true;
  }

 private:
  [[nodiscard]] std::int64_t step_of(std::uint32_t instance) const {
    return unrolled_.passes[unrolled_.instances[instance].pass].step;
  }
  [[nodiscard]] const Kernel& kernel_of(std::uint32_t instance) const {
    return std::get<Kernel>(unrolled_.instances[instance].op->body);
  }
  [[nodiscard]] std::int64_t step() const { return step_of(now_); }

  void run_kernel(const Kernel& kernel) {
    switch (kernel.kind) {
      case KernelKind::cross_entropy:
      case KernelKind::cross_entropy_loss: sum_loss(kernel); return;
      case KernelKind::router_backward: check_balance(kernel); return;
      case KernelKind::loss_finish: finish_loss(kernel); return;
      case KernelKind::norm_partial: keep_partial(kernel); return;
      case KernelKind::norm_finish: finish_norm(kernel); return;
      case KernelKind::token_copy: ++microbatches_; return;
      case KernelKind::momentum:
      case KernelKind::update: update(kernel); return;
      default: return;
    }
  }

  void run_copy(const Copy& copy) {
    if (copy.kind == CopyKind::d2h) tell_host(copy);
    if (copy.kind == CopyKind::d2d) copy_inside(copy.input, copy.output);
  }

  /// What is made for the host to hear of reaches it as it was made.
  void tell_host(const Copy& copy) {
    const auto check = [&](Scale what, std::int64_t begin, const char* name) {
      Operand part = copy.input;
      part.offset = checked_add(copy.input.offset, begin);
      const bool made = std::ranges::any_of(
          made_, [&](const auto& one) { return one.first == what && one.second == part.buffer; });
      if (made && !is_fresh(&part, what))
        report("MF115", fmt::format("tells the host what is not this step's {}", name));
    };
    check(Scale::loss, 0, "loss");
    check(Scale::norm, kReportBytes, "norm");
  }

  /// What lies in the input whole lies in the output too.
  void copy_inside(const Operand& from, const Operand& to) {
    const bool moves = is_contiguous(from) && is_contiguous(to) && from.rank_strides.empty() &&
                       to.rank_strides.empty();
    const ByteRange input{.begin = from.offset, .end = from.offset + from.span_bytes()};
    const std::int64_t further = checked_sub(to.offset, from.offset);
    std::vector<std::pair<std::int64_t, Finished>> finished;
    for (const auto& [place, made] : finished_)
      if (place.first == from.buffer && input.has(place.second, kReportBytes))
        finished.emplace_back(place.second + further, made);
    std::optional<Cells> copied;
    if (const auto found = cells_.find(from.buffer); found != cells_.end())
      copied = moved(found->second, input, further);
    write_over(to);
    if (!moves) return;
    for (const auto& [offset, made] : finished) {
      finished_[{to.buffer, offset}] = made;
      made_.emplace(made.what, to.buffer);
    }
    if (copied) cells_[to.buffer] = *std::move(copied);
  }
  [[nodiscard]] Cells moved(const Cells& from, const ByteRange& input, std::int64_t further) const {
    Cells cells = from;
    if (from.begin) {
      cells.begin = *from.begin + further;
      cells.there = {.begin = std::max(from.there.begin, input.begin) + further,
                     .end = std::min(from.there.end, input.end) + further};
      return cells;
    }
    cells.made_by.clear();
    cells.received.clear();
    for (const auto& [offset, instance] : from.made_by)
      if (input.has(offset, bytes_made(instance)))
        cells.made_by.emplace(offset + further, instance);
    for (const auto& [offset, partial] : from.received)
      if (input.has(offset, partial.bytes)) cells.received.emplace(offset + further, partial);
    return cells;
  }

  /// What lay in these bytes is no scale from now on.
  void write_over(BufferId buffer, std::int64_t begin, std::int64_t end) {
    std::erase_if(finished_, [&](const auto& entry) {
      const std::int64_t offset = entry.first.second;
      return entry.first.first == buffer && offset < end && begin < offset + kReportBytes;
    });
    const auto found = cells_.find(buffer);
    if (found == cells_.end()) return;
    Cells& cells = found->second;
    // What was gathered is known by where it was before, not by where it lies.
    const auto is_hit = [&](std::int64_t offset, std::int64_t bytes) {
      return cells.begin || (offset < end && begin < offset + bytes);
    };
    const auto hits = std::erase_if(cells.made_by,
                                    [&](const auto& made) {
                                      return is_hit(made.first, bytes_made(made.second));
                                    }) +
                      std::erase_if(cells.received, [&](const auto& partial) {
                        return is_hit(partial.first, partial.second.bytes);
                      });
    cells.garbage = cells.garbage || hits > 0;
  }
  void write_over(const Operand& operand) {
    write_over(operand.buffer, operand.offset, operand.offset + operand.span_bytes());
  }
  [[nodiscard]] std::int64_t bytes_made(std::uint32_t instance) const {
    const Kernel& kernel = kernel_of(instance);
    const bool sums = kernel.kind != KernelKind::norm_partial;
    return operand_of(kernel, sums ? "loss_sums" : "output")->span_bytes();
  }

  void sum_loss(const Kernel& kernel) {
    const Operand* sums = operand_of(kernel, "loss_sums");
    if (sums == nullptr) return;
    const bool begins = kernel.attribute("beta") == 0;
    if (begins) write_over(*sums);
    Cells& cells = cells_[sums->buffer];
    if (begins) cells = {.made_by = {}, .garbage = false};
    cells.made_by.emplace(sums->offset, now_);
    if (kernel.kind != KernelKind::cross_entropy) return;
    const auto scale = scale_of(kernel);
    if (scale.has_value() != config_.scales_loss())
      report("MF313", scale ? "scales its gradient, and no loss scale is configured"
                            : "does not scale its gradient by the configured loss scale");
    if (scale) scaled_by_[now_] = *scale;
  }

  /// What routers add to the loss has the scale of the loss itself.
  void check_balance(const Kernel& kernel) {
    const bool adds =
        kernel.find_attribute("aux_loss") != nullptr || kernel.find_attribute("z_loss") != nullptr;
    const auto scale = scale_of(kernel);
    if (scale.has_value() != (adds && config_.scales_loss()))
      return report("MF313", scale ? "scales losses of its own that it has not, or should not scale"
                                   : "does not scale its own losses by the configured loss scale");
    if (!scale) return;
    const bool is_the_loss = std::ranges::any_of(scaled_by_, [&](const auto& of) {
      return step_of(of.first) == step() && of.second == *scale;
    });
    if (!is_the_loss) report("MF313", "takes another loss scale than the loss of its step");
  }

  /// What a kernel takes for the loss scale, as it is then.
  [[nodiscard]] std::optional<ScaleRead> scale_of(const Kernel& kernel) {
    const Operand* operand = operand_of(kernel, "loss_scale");
    if (operand == nullptr) return std::nullopt;
    const Buffer& buffer = unrolled_.program->buffers[unrolled_.index->buffers[operand->buffer]];
    if (!buffer.holds || buffer.holds->port != Port::loss_scale)
      report("MF313", "takes a buffer for the loss scale that is not this port");
    return ScaleRead{.buffer = operand->buffer, .changes = changes_[operand->buffer]};
  }

  /// All gradients of a step have the scale that its 1/T is over.
  void check_removed(const Kernel& kernel, const Cells& summed) {
    const auto removed = scale_of(kernel);
    for (const auto& [offset, instance] : summed.made_by) {
      const auto found = scaled_by_.find(instance);
      const auto applied =
          found == scaled_by_.end() ? std::nullopt : std::optional<ScaleRead>(found->second);
      if (applied == removed) continue;
      return report("MF313", !removed ? "leaves the loss scale in 1/T"
                             : !applied
                                 ? "takes a loss scale out of 1/T that no gradient has"
                                 : "takes another loss scale out of 1/T than gradients have");
    }
  }

  /// The norm of a step makes the next step's scale, once.
  void keep_scale(const Kernel& kernel) {
    const auto scale = scale_of(kernel);
    if (scale.has_value() != config_.scales_loss())
      return report("MF313", scale ? "changes a loss scale that is not configured"
                                   : "does not keep the configured loss scale");
    if (!scale) return;
    const auto [last, first_time] = kept_in_.try_emplace(scale->buffer, step());
    if (!first_time && std::exchange(last->second, step()) == step())
      report("MF313", "changes the loss scale a second time in its step");
    ++changes_[scale->buffer];
  }

  void keep_partial(const Kernel& kernel) {
    const Operand* output = operand_of(kernel, "output");
    if (output == nullptr) return;
    write_over(*output);
    Cells& cells = cells_[output->buffer];
    cells.garbage = false;
    cells.made_by.emplace(output->offset, now_);
  }

  void gather(const Collective& collective) {
    const auto found = cells_.find(collective.input.buffer);
    if (found == cells_.end()) return write_over(collective.output);
    const auto& communicator =
        unrolled_.program->communicators[unrolled_.index->communicators[collective.communicator]];
    Cells gathered = found->second;
    write_over(collective.output);
    const auto is_left = [&](const auto& made) { return !lies_in(made.first, collective.input); };
    std::erase_if(gathered.made_by, is_left);
    std::erase_if(gathered.received, is_left);
    gathered.ranks = communicator.size;
    gathered.over = communicator.id;
    gathered.begin = collective.output.offset;
    gathered.there = {.begin = collective.output.offset,
                      .end = collective.output.offset + collective.output.span_bytes()};
    gathered.count = collective.count;
    cells_[collective.output.buffer] = std::move(gathered);
  }

  static bool lies_in(std::int64_t offset, const Operand& operand) {
    return offset >= operand.offset && offset - operand.offset < operand.span_bytes();
  }

  void send(const Collective& collective, WireEnds<SentScales>* wires) {
    if (wires == nullptr) return;
    SentScales sent;
    const Operand& from = collective.input;
    for (const auto& [place, made] : finished_)
      if (place.first == from.buffer && lies_in(place.second, from) && step_of(made.by) == step())
        sent.finished.emplace_back(place.second - from.offset, made.what);
    if (const auto found = cells_.find(from.buffer); found != cells_.end()) {
      for (const auto& [offset, instance] : found->second.made_by)
        if (const auto group = group_of(instance);
            group && lies_in(offset, from) && step_of(instance) == step())
          sent.partials.emplace_back(offset - from.offset, *group);
      for (const auto& [offset, partial] : found->second.received)
        if (lies_in(offset, from) && step_of(partial.instance) == step())
          sent.partials.emplace_back(offset - from.offset, partial.group);
    }
    wires->send(collective, std::move(sent));
  }

  void receive(const Collective& collective, WireEnds<SentScales>& wires) {
    const Operand& to = collective.output;
    const SentScales sent = wires.take(collective);
    write_over(to);
    for (const auto& [offset, what] : sent.finished)
      finished_[{to.buffer, to.offset + offset}] = {.what = what, .by = now_};
    for (const auto& [offset, group] : sent.partials) {
      Cells& cells = cells_[to.buffer];
      cells.garbage = false;
      cells.received[to.offset + offset] = {
          .group = group, .instance = now_, .bytes = size_of(collective.dtype)};
    }
  }

  [[nodiscard]] const Cells& input_of(const Kernel& kernel) {
    static const Cells none;
    const Operand* input = operand_of(kernel, "input");
    const auto found = input == nullptr ? cells_.end() : cells_.find(input->buffer);
    return found == cells_.end() ? none : found->second;
  }

  /// 1/T counts each token of each microbatch of this step on each rank.
  void finish_loss(const Kernel& kernel) {
    const Cells& input = input_of(kernel);
    std::int64_t rows = 0;
    bool stale = input.garbage;
    for (const auto& [offset, instance] : input.made_by) {
      stale = stale || step_of(instance) != step();
      rows = checked_add(rows, kernel_of(instance).attribute("rows"));
    }
    const std::int64_t tokens = checked_mul(microbatches_, config_.tokens_per_microbatch());
    if (!input.made_by.empty() && !is_one_sum(input, kernel))
      report("MF307", "makes 1/T of sums that are not one a rank, of all ranks and nothing else");
    if (stale)
      report("MF307", "makes 1/T of what was there before this step");
    else if (microbatches_ > 0 && rows != tokens)
      report("MF307", fmt::format("makes 1/T of {} tokens where {} microbatches have {}", rows,
                                  microbatches_, tokens));
    else if (input.ranks != data_ranks(config_.mesh))
      report("MF307", fmt::format("makes 1/T of the tokens of {} ranks of {}", input.ranks,
                                  data_ranks(config_.mesh)));
    check_removed(kernel, input);
    finish(operand_of(kernel, "loss"), Scale::loss);
  }

  /// All parts of a rank were added up in one place, which is what is gathered and finished.
  [[nodiscard]] bool is_one_sum(const Cells& input, const Kernel& kernel) const {
    const auto& [place, first] = *input.made_by.begin();
    const Operand* sums = operand_of(kernel_of(first), "loss_sums");
    if (sums == nullptr) return false;  // partials of a norm
    const std::int64_t one = sums->elements();
    const Operand& all = *operand_of(kernel, "input");
    return input.made_by.rbegin()->first == place && (!input.begin || input.count == one) &&
           all.offset == input.begin.value_or(place) &&
           all.elements() == checked_mul(one, input.ranks) && is_there(input, all);
  }
  /// Whether an operand is part of what was gathered, if anything was.
  static bool is_there(const Cells& input, const Operand& operand) {
    return !input.begin || input.there.has(operand.offset, operand.span_bytes());
  }
  /// Partials lie one behind the other, and all that is gathered of a rank are these.
  static bool is_dense(const Cells& input, const Kernel& kernel) {
    const std::int64_t size = size_of(operand_of(kernel, "input")->dtype);
    std::set<std::int64_t> places;
    for (const auto& [place, instance] : input.made_by) places.insert(place);
    for (const auto& [place, partial] : input.received) places.insert(place);
    return std::ssize(places) == made_in(input) &&
           *places.rbegin() - *places.begin() == (made_in(input) - 1) * size &&
           (!input.begin || input.count == made_in(input));
  }

  /// The norm is that of each trainable group's gradient of this step, scaled by its 1/T. In which
  /// order parts lie is the plan's choice: kernels add them up in fp64, and round the sum once.
  void finish_norm(const Kernel& kernel) {
    const Cells& input = input_of(kernel);
    std::set<GroupId> groups;
    std::optional<GroupId> doubled;
    const auto add = [&](GroupId group) {
      if (!groups.insert(group).second) doubled = group;
    };
    for (const auto& [offset, instance] : input.made_by)
      if (const auto group = group_of(instance); group && step_of(instance) == step()) add(*group);
    for (const auto& [offset, partial] : input.received)
      if (step_of(partial.instance) == step()) add(partial.group);
    // Partials of other stages come by sends.
    const std::int64_t ranks = config_.mesh.world_size() / config_.mesh.size(Axis::pp);
    if (groups != trainable_)
      report("MF311", fmt::format("makes the norm of {} groups of {} of this step", groups.size(),
                                  trainable_.size()));
    else if (doubled)
      report("MF311", fmt::format("makes the norm of two parts of '{}' a rank", name_of(*doubled)));
    else if (const auto whole = first_uncut(input))
      report("MF311",
             fmt::format("makes the norm of more of '{}' than each rank's slice", name_of(*whole)));
    else if (input.ranks != ranks)
      report("MF311", fmt::format("makes the norm of {} ranks of {}", input.ranks, ranks));
    else if (const std::int64_t made = made_in(input); kernel.attribute("groups") != made)
      report("MF311", fmt::format("makes the norm of {} parts a rank, which has {}",
                                  kernel.attribute("groups"), made));
    else if (const std::int64_t all = checked_mul(made_in(input), slices());
             config_.mesh.size(Axis::pp) == 1 && operand_of(kernel, "input")->elements() != all)
      report("MF311", fmt::format("makes the norm of {} parts, which has {} on all slices",
                                  operand_of(kernel, "input")->elements(), all));
    else if (config_.mesh.size(Axis::pp) == 1 && !is_dense(input, kernel))
      report("MF311", "makes the norm of parts between which others lie");
    else if (config_.mesh.size(Axis::pp) == 1 && !is_there(input, *operand_of(kernel, "input")))
      report("MF311", "makes the norm of more than was gathered");
    else if (config_.mesh.size(Axis::pp) == 1 && !begins_a_replica(input, kernel))
      report("MF311", "makes the norm of parts that do not begin where a replica's do");
    else if (const auto missed =
                 config_.mesh.size(Axis::pp) == 1 ? first_missed(input, kernel) : std::nullopt)
      report("MF311", fmt::format("makes the norm of parts that are not each slice of '{}' once",
                                  name_of(*missed)));
    if (!is_fresh(operand_of(kernel, "loss"), Scale::loss))
      report("MF307", "makes the norm without this step's 1/T");
    keep_scale(kernel);
    finish(operand_of(kernel, "norm"), Scale::norm);
  }

  static std::int64_t made_in(const Cells& input) {
    return std::ssize(input.made_by) + std::ssize(input.received);
  }
  /// Parts that a group's parameters are cut into, each with a partial norm of its own: the same
  /// number of all groups. 0 where they differ.
  [[nodiscard]] std::int64_t slices() const {
    std::int64_t slices = 0;
    for (const Group& group : unrolled_.program->groups) {
      if (!group.requires_grad) continue;
      std::int64_t of_group = 1;
      for (const Axis axis : group.cut) of_group = checked_mul(of_group, config_.mesh.size(axis));
      for (const AxisPlacement& on : group.shard)
        of_group = checked_mul(of_group, config_.mesh.size(on.axis));
      if (slices != 0 && of_group != slices) return 0;
      slices = of_group;
    }
    return slices;
  }

  /// Replicas have equal parts one behind the other; from the midst of one to the midst of the next
  /// all parts lie too, but in another order.
  static bool begins_a_replica(const Cells& input, const Kernel& kernel) {
    const Operand& parts = *operand_of(kernel, "input");
    const std::int64_t begin = input.begin.value_or(input.made_by.begin()->first);
    return (parts.offset - begin) % parts.span_bytes() == 0;
  }

  /// Axes along which ranks have other elements of the group each, or other parameters.
  [[nodiscard]] std::set<Axis> apart_on(const Group& group) const {
    std::set<Axis> axes;
    for (const Axis axis : group.cut)
      if (config_.mesh.size(axis) > 1) axes.insert(axis);
    for (const AxisPlacement& on : group.shard)
      if (config_.mesh.size(on.axis) > 1) axes.insert(on.axis);
    return axes;
  }

  /// A group of whose gradient a partial norm has more than the rank's own slice: what several
  /// ranks have counts that often.
  [[nodiscard]] std::optional<GroupId> first_uncut(const Cells& input) const {
    for (const auto& [offset, instance] : input.made_by)
      for (const FollowedOperand& operand : follows_.of(unrolled_.instances[instance].op_index)) {
        if (!operand.gradient) continue;
        const Group& group = unrolled_.program->groups[operand.located.group];
        for (const Axis axis : group.cut)
          if (config_.mesh.size(axis) > 1 && operand.located.region.strides[axis] == 0)
            return group.id;
      }
    return std::nullopt;
  }

  /// A group of which the ranks whose parts are read have some slice twice, and so miss another:
  /// ranks are counted along the last axis of the mesh first, whatever a group is cut along.
  [[nodiscard]] std::optional<GroupId> first_missed(const Cells& input,
                                                    const Kernel& kernel) const {
    if (!input.over) return std::nullopt;
    const Program& program = *unrolled_.program;
    const Mesh& mesh = config_.mesh;
    const Membership members(
        program.communicators[unrolled_.index->communicators[*input.over]].axes, mesh);
    const Operand& parts = *operand_of(kernel, "input");
    const std::int64_t begin = input.begin.value_or(parts.offset);
    const std::int64_t first = (parts.offset - begin) / parts.span_bytes() * slices();
    std::set<std::set<Axis>> seen;  // as most groups are cut alike
    for (const Group& group : program.groups) {
      const std::set<Axis> axes = apart_on(group);
      if (!group.requires_grad || !seen.insert(axes).second) continue;
      std::set<std::vector<std::int64_t>> places;
      for (std::int64_t member = first; member < first + slices(); ++member) {
        std::vector<std::int64_t> place;
        for (const Axis axis : axes) place.push_back(mesh.index(members.rank(0, member), axis));
        if (!places.insert(std::move(place)).second) return group.id;
      }
    }
    return std::nullopt;
  }

  /// The group's unit; null where the plan has none.
  [[nodiscard]] const PlanUnit* unit_of(GroupId id) const {
    const Program& program = *unrolled_.program;
    const auto group = std::ranges::find(program.groups, id, &Group::id);
    const auto unit = unrolled_.index->units.find(group->unit);
    return unit ? &program.units[*unit] : nullptr;
  }
  [[nodiscard]] std::string name_of(GroupId id) const {
    const PlanUnit* unit = unit_of(id);
    return unit != nullptr ? unit->name : "";
  }

  /// The group of whose gradient an instance made a partial norm.
  [[nodiscard]] std::optional<GroupId> group_of(std::uint32_t instance) const {
    for (const FollowedOperand& operand : follows_.of(unrolled_.instances[instance].op_index))
      if (operand.gradient) return unrolled_.program->groups[operand.located.group].id;
    // Where nothing lies as it says, it is still of that group: others report what is wrong.
    const Operand* input = operand_of(kernel_of(instance), "input");
    if (input == nullptr) return std::nullopt;
    const auto& holds = unrolled_.program->buffers[unrolled_.index->buffers[input->buffer]].holds;
    if (!holds || holds->kind != ContentKind::gradient) return std::nullopt;
    return holds->groups.front().group;
  }

  void finish(const Operand* output, Scale what) {
    if (output == nullptr) return;
    write_over(*output);
    finished_[{output->buffer, output->offset}] = {.what = what, .by = now_};
    made_.emplace(what, output->buffer);
  }
  [[nodiscard]] bool is_fresh(const Operand* operand, Scale what) const {
    if (operand == nullptr) return false;
    const auto found = finished_.find({operand->buffer, operand->offset});
    return found != finished_.end() && found->second.what == what &&
           step_of(found->second.by) == step();
  }

  void update(const Kernel& kernel) {
    const auto count = [&](std::string_view role) {
      return std::ranges::count(kernel.operands, role, &Operand::role);
    };
    // Directions have been scaled before they were orthogonalised.
    const bool scales = kernel.kind != KernelKind::update || count("direction") == 0;
    if (!scales && count("loss") > 0)
      report("MF308", "scales a direction, which is of a scaled gradient");
    if (scales && count("loss") == 0)
      report("MF307", "does not scale its gradient by 1/T");
    else if (scales && !is_fresh(operand_of(kernel, "loss"), Scale::loss))
      report("MF307", "scales its gradient by what is not this step's 1/T");
    if (count("loss") > 1) report("MF308", "scales its gradient by 1/T more than once");
    const bool by_norm = config_.updates_by_norm();
    if (count("norm") != (by_norm ? 1 : 0))
      report("MF311", fmt::format("clips its gradient {} times, where {} is configured",
                                  count("norm"), by_norm ? "once" : "never"));
    else if (by_norm && !is_fresh(operand_of(kernel, "norm"), Scale::norm))
      report("MF311", "clips its gradient by what is not this step's norm");
  }

  /// Once for each op: steps are alike.
  void report(const char* rule, const std::string& what) {
    if (!findings_.wants(rule) ||
        !reported_.emplace(rule, unrolled_.instances[now_].op_index).second)
      return;
    Finding finding;
    finding.rule = rule;
    finding.places = {place_of(unrolled_, now_)};
    finding.message = fmt::format("{} {}", text_in_step(finding.places.front()), what);
    findings_.add(std::move(finding));
  }

  const UnrolledPlan& unrolled_;
  const PlanConfig& config_;
  FindingList& findings_;
  std::set<GroupId> trainable_;
  const FollowedOps& follows_;
  const std::vector<std::uint8_t>& followed_;  ///< by op
  std::span<const OverScales> over_scales_;
  std::map<BufferId, Cells> cells_;
  std::map<std::pair<BufferId, std::int64_t>, Finished> finished_;  ///< by buffer and offset
  std::map<std::uint32_t, ScaleRead> scaled_by_;  ///< by instance of cross_entropy
  std::map<BufferId, std::int64_t> changes_;      ///< of loss scales
  std::map<BufferId, std::int64_t> kept_in_;      ///< the step in which a norm last did
  std::set<std::pair<Scale, BufferId>> made_;     ///< of what is finished where
  std::int64_t microbatches_ = 0;                 ///< that this step has begun
  std::uint32_t pass_ = kNone;                    ///< that runs
  std::set<std::pair<std::string, std::uint32_t>> reported_;
  std::uint32_t now_ = 0;   ///< the instance that runs
  std::uint32_t next_ = 0;  ///< the instance to go on with
};

ScaleRun::ScaleRun(const UnrolledPlan& unrolled, const FollowedOps& followed, FindingList& findings)
    : impl_(std::make_unique<Impl>(unrolled, followed, findings)) {
  check_microbatches(unrolled, findings);
}
ScaleRun::ScaleRun(ScaleRun&&) noexcept = default;
ScaleRun::~ScaleRun() = default;

bool ScaleRun::go_on(WireEnds<SentScales>* wires) { return impl_->run(wires); }

void check_scales(const UnrolledPlan& unrolled, const FollowedOps& followed,
                  FindingList& findings) {
  ScaleRun(unrolled, followed, findings).go_on(nullptr);
}

}  // namespace mfsdp
