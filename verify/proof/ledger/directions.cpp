// Muon: whether each update uses this step's momentum, with each matrix orthogonalised once as a
// whole. Followed are the kernels `momentum`, the all_to_alls that give each rank one whole block
// for its shards of all blocks, the orthogonalisation, and the updates.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/proof/ledger/checks.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp {
namespace {

/// A matrix as checkpoints have it, in a group's elements.
struct MatrixPlace {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// Query, key and value are matrices of their own, and gate and up, unless checkpoints fuse them.
std::vector<MatrixPlace> matrices_of(const Group& group, const PlanConfig& config) {
  const ModelShape& model = config.model;
  std::vector<MatrixPlace> matrices;
  for (const PlacedParameter& parameter : group.parameters) {
    if (parameter.shape.size() != 2) continue;
    std::vector<std::int64_t> rows{parameter.shape[0]};
    if (parameter.role == ParameterRole::qkv && !model.fused_weights)
      rows = {checked_mul(model.heads, model.head_dim), checked_mul(model.kv_heads, model.head_dim),
              checked_mul(model.kv_heads, model.head_dim)};
    if (parameter.role == ParameterRole::gate_up && !model.fused_weights)
      rows = {model.intermediate, model.intermediate};
    if (parameter.role == ParameterRole::shared_gate_up)
      rows = {model.shared_intermediate, model.shared_intermediate};
    // Each expert's are its own: gate and up, or down.
    const std::int64_t ranks = group.shard.empty() ? 1 : config.mesh.size(Axis::ep);
    const auto experts = static_cast<std::size_t>(model.experts / ranks);
    if (parameter.role == ParameterRole::experts_gate_up)
      rows = model.traits().interleaved_experts
                 ? std::vector(experts, checked_mul(2, model.expert_intermediate))
                 : std::vector(2 * experts, model.expert_intermediate);
    if (parameter.role == ParameterRole::experts_down) rows.assign(experts, model.hidden);
    std::int64_t begin = parameter.offset;
    for (const std::int64_t of_part : rows) {
      matrices.push_back({.begin = begin, .rows = of_part, .cols = parameter.shape[1]});
      begin = checked_add(begin, checked_mul(of_part, parameter.shape[1]));
    }
  }
  return matrices;
}

enum class Stage : std::uint8_t { nothing, momentum, orthogonal };

/// Contents of one matrix's elements, on ranks that hold its shard at that level and finer ones.
struct Mark {
  Stage stage = Stage::nothing;
  std::int64_t step = 0;
  int level = 0;

  friend bool operator==(const Mark&, const Mark&) = default;
};
using Marks = std::vector<Mark>;  ///< by matrix

/// A buffer of directions: marks of each of its groups. Groups that are distributed over ranks are
/// all at one stage and have one entry.
struct Directions {
  std::vector<Marks> entries;
  bool rest_is_zero = false;  ///< bytes after the last group
  std::vector<std::uint32_t>
      owners;  ///< the group that each rank has, where groups are distributed
};

class DirectionCheck {
 public:
  DirectionCheck(const UnrolledPlan& unrolled, const Layouts& layouts, const FollowedOps& followed,
                 FindingList& findings)
      : unrolled_(unrolled),
        program_(*unrolled.program),
        layouts_(layouts),
        followed_(followed),
        findings_(findings),
        held_(layouts.homes.size()),
        last_momentum_(layouts.groups.size(), -1) {
    for (const GroupLayout& layout : layouts.groups)
      matrices_.push_back(matrices_of(*layout.group, program_.config));
    for (std::uint32_t b = 0; b < held_.size(); ++b)
      if (layouts.homes[b].holds == Holds::direction) forget(b);
  }

  void run() {
    for (std::uint32_t i = 0; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      if ((followed_.bits[instance.op_index] & kFollowDirections) == 0 || instance.host_work)
        continue;
      now_ = i;
      const OpFacts& facts = unrolled_.ops[instance.op_index];
      const OpBody& body = instance.op->body;
      if (facts.kind == OpKind::acquire) forget(facts.subject);
      if (const auto* kernel = std::get_if<Kernel>(&body)) run_kernel(*kernel);
      if (const auto* collective = std::get_if<Collective>(&body)) run_collective(*collective);
      if (const auto* copy = std::get_if<Copy>(&body)) spoil(copy->output);
    }
  }

 private:
  [[nodiscard]] std::int64_t step() const {
    return unrolled_.runs[unrolled_.instances[now_].run].step;
  }
  [[nodiscard]] const Home& home_of(std::uint32_t buffer) const { return layouts_.homes[buffer]; }

  void forget(std::uint32_t buffer) {
    const Home& home = home_of(buffer);
    if (home.holds != Holds::direction) return;
    Directions& held = held_[buffer];
    held.rest_is_zero = false;
    held.owners.clear();
    held.entries.clear();
    for (const std::uint32_t group : home.groups) {
      held.entries.emplace_back(matrices_[group].size());
      if (home.distributed_over) break;
    }
  }

  /// Where an operand lies among directions; nothing for other operands.
  struct Place {
    std::uint32_t buffer = 0;
    Marks* marks = nullptr;  ///< of its group
    Located located;
  };
  std::optional<Place> place_of(const Operand& operand) {
    if (!operand.stated() || layouts_.holds(operand) != Holds::direction) return std::nullopt;
    const Located located = *layouts_.locate(operand);
    const Home& home = home_of(located.buffer);
    const auto entry = home.distributed_over
                           ? 0
                           : std::ranges::find(home.groups, located.group) - home.groups.begin();
    return Place{.buffer = located.buffer,
                 .marks = &held_[located.buffer].entries[static_cast<std::size_t>(entry)],
                 .located = located};
  }
  [[nodiscard]] std::optional<int> level_of(const Located& located) const {
    return located.exact ? layouts_.groups[located.group].level_of(located.region) : std::nullopt;
  }

  /// Nothing is known of what lies in the operand's buffer.
  void spoil(const Operand& operand) {
    if (const auto place = place_of(operand)) forget(place->buffer);
  }

  void run_kernel(const Kernel& kernel) {
    switch (kernel.kind) {
      case KernelKind::momentum: return make(kernel);
      case KernelKind::newton_schulz: return orthogonalise(kernel);
      case KernelKind::update: return step_along(kernel);
      case KernelKind::zero_padding:
        for (const Operand& operand : kernel.operands) zero(operand);
        return;
      default:
        for (const Operand& operand : kernel.operands)
          if (operand.access != Access::read) spoil(operand);
    }
  }

  void make(const Kernel& kernel) {
    const Operand* gradient = operand_of(kernel, "grad");
    const Operand* made = operand_of(kernel, "direction");
    if (gradient == nullptr || made == nullptr) return;  // updates.cpp reports it
    const auto from = layouts_.locate(*gradient);
    const auto to = place_of(*made);
    if (!from || !to) return;
    const std::uint32_t group = from->group;
    const auto level = level_of(to->located);
    if (home_of(to->buffer).distributed_over || !level || to->located.group != group ||
        to->located.region != from->region) {
      report(group, "writes its momentum to other elements than those of its gradient");
      return forget(to->buffer);
    }
    if (last_momentum_[group] == step()) report(group, "computes its momentum twice in a step");
    last_momentum_[group] = step();
    to->marks->assign(matrices_[group].size(),
                      {.stage = Stage::momentum, .step = step(), .level = *level});
  }

  void orthogonalise(const Kernel& kernel) {
    const Operand* operand = operand_of(kernel, "matrix");
    const auto place = operand == nullptr ? std::nullopt : place_of(*operand);
    if (!place)
      return report(std::nullopt, "orthogonalises a buffer that holds no update directions");
    const std::uint32_t group = place->located.group;
    const auto& matrices = matrices_[group];
    const auto matrix = std::ranges::find_if(matrices, [&](const MatrixPlace& m) {
      return m.begin == place->located.region.begin &&
             operand->shape == std::vector<std::int64_t>{m.rows, m.cols};
    });
    if (home_of(place->buffer).level != 0 || !place->located.exact ||
        !place->located.region.is_on_all_ranks() || matrix == matrices.end()) {
      report(group, "orthogonalises elements that are not one whole matrix");
      return forget(place->buffer);
    }
    Mark& mark = (*place->marks)[static_cast<std::size_t>(matrix - matrices.begin())];
    if (mark.stage == Stage::orthogonal) report(group, "orthogonalises a matrix twice");
    if (mark.stage == Stage::nothing || mark.step != step() || mark.level != 0)
      report(group, "orthogonalises a matrix that is not the whole momentum of this step");
    mark = {.stage = Stage::orthogonal, .step = step(), .level = 0};
  }

  void step_along(const Kernel& kernel) {
    const Operand* operand = operand_of(kernel, "direction");
    if (operand == nullptr) return;
    const auto place = place_of(*operand);
    if (!place)
      return report(std::nullopt, "updates weights from a buffer that holds no update directions");
    const std::uint32_t group = place->located.group;
    const auto level = level_of(place->located);
    const bool right =
        level && !home_of(place->buffer).distributed_over &&
        std::ranges::all_of(*place->marks, [&](const Mark& mark) {
          return mark.stage == Stage::orthogonal && mark.step == step() && mark.level <= *level;
        });
    if (!right)
      report(group,
             "updates weights from a direction that is not this step's orthogonalised momentum");
  }

  /// Bytes that belong to no group, or a part of directions, which are unknown then.
  void zero(const Operand& operand) {
    if (layouts_.holds(operand) != Holds::direction) return;
    const auto place = place_of(operand);
    const Home& home = home_of(place->buffer);
    const Buffer& buffer = program_.buffers[place->buffer];
    const std::int64_t end = std::ranges::max(home.offsets) + bytes_of_slice(home, buffer);
    if (!home.distributed_over && operand.rank_strides.empty() && operand.strides.empty() &&
        operand.offset == end && operand.offset + operand.touched_bytes() == buffer.size.value)
      held_[place->buffer].rest_is_zero = true;
    else
      forget(place->buffer);
  }

  [[nodiscard]] std::int64_t bytes_of_slice(const Home& home, const Buffer& buffer) const {
    const GroupLayout& layout = layouts_.groups[home.groups.front()];
    return bytes_of(layout.slices[static_cast<std::size_t>(home.level)].count, buffer.dtype).value;
  }

  void run_collective(const Collective& collective) {
    const auto from = place_of(collective.input);
    const auto to = place_of(collective.output);
    if (!to) return;
    const std::vector<Axis> axes = with_several_ranks(
        program_.communicators[unrolled_.index->communicators[collective.communicator]].axes,
        program_.config.mesh);
    if (!from || axes.size() > 1) {
      report(to->located.group, "moves values that are no update directions into their buffer");
      return forget(to->buffer);
    }
    if (collective.kind == CollectiveKind::all_gather)
      gather(*from, *to, axes);
    else if (collective.kind == CollectiveKind::all_to_all && !axes.empty())
      exchange(collective, *from, *to, axes[0]);
    else
      forget(to->buffer);
  }

  /// Slices along the axis, if there is one, of one group's directions become whole along it.
  void gather(const Place& from, const Place& to, const std::vector<Axis>& axes) {
    const auto part = level_of(from.located);
    const auto whole = level_of(to.located);
    if (from.marks != to.marks || home_of(to.buffer).distributed_over || !part || !whole ||
        part_of(to.located.region, axes, program_.config.mesh) != from.located.region) {
      report(to.located.group, "gathers shards that are not those of its ranks");
      return forget(to.buffer);
    }
    for (Mark& mark : *to.marks)
      if (mark.level <= *part)
        mark.level = *whole;
      else
        mark = {};
  }

  void exchange(const Collective& collective, const Place& from, const Place& to, Axis axis) {
    const bool in = !home_of(from.buffer).distributed_over;
    const std::uint32_t slices = in ? from.buffer : to.buffer;
    const std::uint32_t whole = in ? to.buffer : from.buffer;
    if (!is_distributed_by(slices, whole, axis) || !is_all_of(collective.input, from.buffer) ||
        !is_all_of(collective.output, to.buffer)) {
      report(to.located.group,
             "distributes update directions in another way than its buffers state");
      return forget(to.buffer);
    }
    Directions& distributed = held_[whole];
    Directions& cut = held_[slices];
    const int level = home_of(slices).level;
    std::vector<std::uint32_t> order = by_offset(home_of(slices));
    if (!in && !distributed.owners.empty() && distributed.owners != order) {
      report(to.located.group, "returns update directions to other groups than they came from");
      return forget(to.buffer);
    }
    if (!in) {
      for (Marks& marks : cut.entries) {
        marks = distributed.entries.front();
        for (Mark& mark : marks) mark.level = level;
      }
      return;
    }
    const bool full =
        cut.rest_is_zero || std::ssize(cut.entries) == program_.config.mesh.size(axis);
    Marks common = cut.entries.front();
    const bool same =
        std::ranges::all_of(cut.entries, [&](const Marks& marks) { return marks == common; });
    for (Mark& mark : common) {
      if (!full || !same || mark.level != level) mark = {};
      mark.level = 0;
    }
    if (!full)
      report(to.located.group,
             "distributes a buffer whose bytes after its parameter groups were not zeroed");
    distributed.entries.front() = std::move(common);
    distributed.owners = std::move(order);
  }

  /// The first buffer holds shards along that axis, consecutively, of the groups that the other has
  /// whole, one on each rank.
  [[nodiscard]] bool is_distributed_by(std::uint32_t slices, std::uint32_t whole, Axis axis) const {
    const Home& cut = home_of(slices);
    const Home& whole_home = home_of(whole);
    // Groups are listed in any order: offsets give the order of shards.
    if (cut.distributed_over || whole_home.distributed_over != axis ||
        sorted(cut.groups) != sorted(whole_home.groups))
      return false;
    const GroupLayout& layout = layouts_.groups[cut.groups.front()];
    const Region& part = layout.slices[static_cast<std::size_t>(cut.level)];
    if (part != part_of(layout.slices.front(), axis, program_.config.mesh)) return false;
    const std::int64_t bytes = bytes_of_slice(cut, program_.buffers[slices]);
    const auto offsets = sorted(cut.offsets);
    for (std::size_t i = 0; i < offsets.size(); ++i)
      if (offsets[i] != checked_mul(static_cast<std::int64_t>(i), bytes)) return false;
    return program_.buffers[slices].size.value ==
           checked_mul(bytes, program_.config.mesh.size(axis));
  }
  [[nodiscard]] static std::vector<std::uint32_t> by_offset(const Home& home) {
    std::vector<std::pair<std::int64_t, std::uint32_t>> places;
    for (std::size_t i = 0; i < home.groups.size(); ++i)
      places.emplace_back(home.offsets[i], home.groups[i]);
    std::ranges::sort(places);
    std::vector<std::uint32_t> groups;
    for (const auto& [offset, group] : places) groups.push_back(group);
    return groups;
  }
  template <class T>
  [[nodiscard]] static std::vector<T> sorted(std::vector<T> list) {
    std::ranges::sort(list);
    return list;
  }
  [[nodiscard]] bool is_all_of(const Operand& operand, std::uint32_t buffer) const {
    return operand.offset == 0 && operand.rank_strides.empty() && operand.strides.empty() &&
           operand.touched_bytes() == program_.buffers[buffer].size.value;
  }

  void report(std::optional<std::uint32_t> group, const std::string& what) {
    if (!findings_.wants("MF405") || !reported_.insert(unrolled_.instances[now_].op_index).second)
      return;
    const std::string of_group =
        group ? fmt::format(" ('{}')", layouts_.groups[*group].name) : std::string();
    findings_.add(finding_in_step(unrolled_, now_, "MF405", what + of_group));
  }

  const UnrolledPlan& unrolled_;
  const Program& program_;
  const Layouts& layouts_;
  const FollowedOps& followed_;
  FindingList& findings_;
  std::vector<std::vector<MatrixPlace>> matrices_;  ///< by group
  std::vector<Directions> held_;                    ///< by buffer
  std::vector<std::int64_t> last_momentum_;         ///< by group: the step
  std::uint32_t now_ = 0;                           ///< the instance that runs
  std::set<std::uint32_t> reported_;                ///< ops
};

}  // namespace

void check_directions(const UnrolledPlan& unrolled, const Layouts& layouts,
                      const FollowedOps& followed, FindingList& findings) {
  if (std::ranges::none_of(layouts.homes,
                           [](const Home& home) { return home.holds == Holds::direction; }))
    return;
  DirectionCheck(unrolled, layouts, followed, findings).run();
}

}  // namespace mfsdp
