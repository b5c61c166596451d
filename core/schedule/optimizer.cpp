#include "core/schedule/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/fp8.hpp"
#include "core/schedule/orthogonal.hpp"

namespace mfsdp::schedule {
namespace {

Region vector_of(BufferId buffer, std::int64_t elements, DType dtype = DType::fp32) {
  return {.buffer = buffer, .offset = 0, .dtype = dtype, .shape = {elements}, .rank_strides = {}};
}

/// Gathers a small vector of every rank on token_axes() or loss_axes(); with one rank it is read in
/// place.
Region gather_small(Emitter& e, const std::string& name, Phase phase, const Region& own,
                    BufferId to, const std::vector<Axis>& axes) {
  const Mesh& mesh = e.config().mesh;
  const std::int64_t ranks = ranks_on(axes, mesh);
  if (ranks == 1) return own;
  const std::int64_t elements = own.shape[0];
  const Region output = vector_of(to, elements * ranks, own.dtype);
  e.emit(StreamRole::outer, phase, std::nullopt, name,
         Collective{.kind = CollectiveKind::all_gather,
                    .communicator = e.communicator(axes == token_axes(mesh) ? kWorld : kLosses),
                    .reduction = Reduction::none,
                    .count = elements,
                    .dtype = own.dtype,
                    .input = operand("input", Access::read, own),
                    .output = operand("output", Access::write, output)});
  return output;
}

class OptimizerSegment {
 public:
  OptimizerSegment(Emitter& e, const State& state)
      : e_(e), state_(state), config_(e.config()), stages_(stages_of(e.config())) {}

  void emit() {
    const bool by_norm = config_.updates_by_norm();
    if (state_.amax_history) reduce_amaxes();
    norm();
    step_block();
    e_.wait(StreamRole::compute, Phase::optimizer, by_norm ? "norm_ready" : "loss_ready");
    e_.wait(StreamRole::compute, Phase::optimizer, "step_block_ready");
    updates(update_order(by_norm));
    e_.record(StreamRole::compute, Phase::optimizer, "step_block_read");
    // No op above waited for the norm, and the next step overwrites its parts.
    if (!by_norm) e_.wait(StreamRole::compute, Phase::optimizer, "norm_ready");
    if (state_.amax_history) keep_amaxes();
    if (!state_.stage.is_last()) return;
    e_.emit(StreamRole::d2h, Phase::output, std::nullopt, "readback",
            HostWait{.event = e_.event("readback"), .bindings = {}});
    emit_readback(e_, state_, "norm_ready", "");
  }

 private:
  /// Updates that need the norm come when all gradients are complete: in the order in which the
  /// next step needs the weights. Others come as gradients arrive: head, blocks backwards,
  /// embedding.
  [[nodiscard]] std::vector<std::size_t> update_order(bool by_norm) const {
    std::vector<std::size_t> order;
    for (std::size_t u = 0; u < state_.units.size(); ++u)
      if (!state_.units[u].trainable.empty()) order.push_back(u);
    if (!by_norm) std::ranges::reverse(order);
    return order;
  }

  /// Rounds of orthogonalisation overlap: while one computes, directions of the next are received
  /// and those of the last are sent. Updates of other units hide the first and the last exchange.
  /// Expert-parallel groups have separate rounds, before all others.
  void updates(const std::vector<std::size_t>& order) {
    update_dealt_experts(order);
    OrthogonalRounds rounds(e_, state_, order);
    const auto is_of_round = [&](std::size_t u) {
      return state_.orthogonal_of(u, false) != nullptr;
    };
    const auto first = std::ranges::find_if(order, is_of_round);
    const auto ready = [&](std::size_t u) { await_gradient(u); };
    if (rounds.count() > 0) rounds.begin(0, ready);
    for (auto u = order.begin(); u != first; ++u) update_unit(*u, std::nullopt);
    for (std::size_t r = 0; r < rounds.count(); ++r) {
      if (r + 1 < rounds.count()) rounds.begin(r + 1, ready);
      rounds.orthogonalise(r);
      if (r > 0) update_round(rounds, r - 1);
    }
    for (auto u = first; u != order.end(); ++u)
      if (!is_of_round(*u)) update_unit(*u, std::nullopt);
    if (rounds.count() > 0) update_round(rounds, rounds.count() - 1);
  }

  void update_dealt_experts(const std::vector<std::size_t>& order) {
    OrthogonalRounds rounds(e_, state_, order, true);
    const auto begin = [&](std::size_t round) {
      rounds.begin(round, [&](std::size_t u) { await_gradient(u); });
    };
    const auto end = [&](std::size_t round) {
      rounds.await(round);
      for (const std::size_t u : rounds.units(round))
        update(state_.units[u], *state_.orthogonal_of(u, true), rounds.direction(round, u));
      rounds.end(round);
    };
    if (rounds.count() > 0) begin(0);
    for (std::size_t r = 0; r < rounds.count(); ++r) {
      if (r + 1 < rounds.count()) begin(r + 1);
      rounds.orthogonalise(r);
      if (r > 0) end(r - 1);
    }
    if (rounds.count() > 0) end(rounds.count() - 1);
  }

  void update_round(OrthogonalRounds& rounds, std::size_t round) {
    rounds.await(round);
    for (const std::size_t u : rounds.units(round)) update_unit(u, rounds.direction(round, u));
    rounds.end(round);
  }

  /// Without the norm nothing has waited for the gradient yet.
  void await_gradient(std::size_t u) {
    if (!config_.updates_by_norm())
      e_.wait(StreamRole::compute, Phase::optimizer, "synced." + state_.units[u].name);
  }

  /// `direction`: of the orthogonalised group, if there is one; its gradient was waited for.
  /// Expert-parallel groups were updated before.
  void update_unit(std::size_t u, const std::optional<Region>& direction) {
    const UnitState& unit = state_.units[u];
    const auto groups = state_.trainable_of(u);
    if (!direction) await_gradient(u);
    const GroupState* const updated = state_.orthogonal_of(u, true);
    for (const GroupState* group : groups)
      if (group != updated)
        update(unit, *group, group->matrices.empty() ? std::nullopt : direction);
    refresh(u, groups);
  }

  void norm() {
    const auto groups = static_cast<std::int64_t>(state_.trainable_groups);
    if (state_.norm_stream() != StreamRole::outer) {
      e_.record(state_.norm_stream(), Phase::optimizer, "norm_partials");
      e_.wait(StreamRole::outer, Phase::optimizer, "norm_partials");
    }
    if (!state_.stage.is_last()) return take_report();
    for (std::int64_t other = 0; other < state_.stage.index; ++other)
      transfer_partials(CollectiveKind::recv, other, other - state_.stage.index);
    Region parts = gather_small(e_, "norm.all_gather", Phase::optimizer,
                                vector_of(state_.norm_partials, groups, state_.norm_dtype),
                                state_.gathered_norms, token_axes(config_.mesh));
    // Replicas have equal slices: the norm is that of the first replica, whose ranks are the first
    // of the world.
    parts.shape = {groups * state_.norm_ranks()};
    Kernel finish{.kind = KernelKind::norm_finish,
                  .operands = {operand("input", Access::read, parts),
                               operand("loss", Access::read, state_.report_loss()),
                               operand("norm", Access::write, state_.report_norm())},
                  .attributes = {{"groups", groups}, {"limit", config_.clip}}};
    if (config_.scales_loss()) {
      finish.operands.push_back(
          operand("loss_scale", Access::read_write, vector_of(state_.loss_scale, 4)));
      if (config_.loss_scale_window != 0)
        finish.attributes.emplace_back("scale_window", config_.loss_scale_window);
    }
    e_.emit(StreamRole::outer, Phase::optimizer, std::nullopt, "norm.finish", std::move(finish));
    e_.record(StreamRole::outer, Phase::optimizer, "norm_ready");
    if (!state_.stage.is_first()) transfer_report(CollectiveKind::send, -1);
  }

  /// Sends or receives the parts of the stage `of`, to or from the stage that is `step` further.
  void transfer_partials(CollectiveKind kind, std::int64_t of, std::int64_t step) {
    for (const UnitSpan& chunk : stages_[static_cast<std::size_t>(of)].chunks) {
      const Interval parts = state_.norm_parts(chunk);
      Region partials = vector_of(state_.norm_partials, parts.size(), state_.norm_dtype);
      partials.offset = parts.begin * size_of(state_.norm_dtype);
      e_.transfer(StreamRole::outer, Phase::optimizer, kStages, step, kind, partials);
    }
  }

  void transfer_report(CollectiveKind kind, std::int64_t step) {
    e_.transfer(StreamRole::outer, Phase::optimizer, kStages, step, kind,
                vector_of(state_.report, 8));
  }

  /// A stage before the last one gives its parts of the norm, and gets the results for all.
  void take_report() {
    const std::int64_t ahead = state_.stage.count - 1 - state_.stage.index;
    transfer_partials(CollectiveKind::send, state_.stage.index, ahead);
    transfer_report(CollectiveKind::recv, 1);
    if (!config_.updates_by_norm()) e_.record(StreamRole::outer, Phase::optimizer, "loss_ready");
    e_.record(StreamRole::outer, Phase::optimizer, "norm_ready");
    if (!state_.stage.is_first()) transfer_report(CollectiveKind::send, -1);
  }

  /// Rows of the history of delayed scaling.
  [[nodiscard]] Region amaxes(std::int64_t row) const {
    const std::int64_t tensors = amax_history::tensors(config_);
    Region made = vector_of(*state_.amax_history, tensors);
    made.offset = row * tensors * size_of(DType::fp32);
    return made;
  }

  /// All ranks cast with one scale: the largest magnitude is that of all of them. The stream has
  /// waited for the step's casts with its loss.
  void reduce_amaxes() {
    if (config_.mesh.world_size() == 1) return;
    e_.max_over_ranks(Phase::optimizer, "amax.all_reduce", amaxes(0));
  }

  /// The next step's scales. The norm, for which compute has waited, came after the reduction.
  void keep_amaxes() {
    Region history = amaxes(2);
    history.shape = {amax_history::slots(config_), amax_history::tensors(config_)};
    Kernel kernel{.kind = KernelKind::amax_history,
                  .operands = {operand("next_amax", Access::read_write, amaxes(0)),
                               operand("amax", Access::read_write, amaxes(1)),
                               operand("history", Access::read_write, history)},
                  .attributes = {{"slots", history.shape[0]}, {"tensors", history.shape[1]}}};
    if (config_.fp8_amax == Fp8Amax::most_recent)
      kernel.attributes.insert(kernel.attributes.begin(), {"recent", 1});
    e_.emit(StreamRole::compute, Phase::optimizer, std::nullopt, "amax.history", std::move(kernel));
  }

  void step_block() {
    const Region host = vector_of(state_.pinned_step_block, 64, DType::uint8);
    const Region device = vector_of(state_.step_block, 64, DType::uint8);
    e_.wait(StreamRole::h2d, Phase::optimizer, "step_block_read");
    e_.emit(StreamRole::h2d, Phase::optimizer, std::nullopt, "step_block.h2d",
            Copy{.kind = CopyKind::h2d,
                 .input = operand("input", Access::read, host),
                 .output = operand("output", Access::write, device)});
    e_.record(StreamRole::h2d, Phase::optimizer, "step_block_ready");
  }

  void update(const UnitState& unit, const GroupState& group,
              const std::optional<Region>& direction) {
    const std::int64_t elements = state_.slice_elements(group);
    Kernel kernel{
        .kind = KernelKind::update,
        .operands = {direction ? operand("direction", Access::read, *direction)
                               : operand("grad", Access::read, state_.gradient_slice(group))},
        .attributes = {{"elements", elements}}};
    if (group.main_weight)
      kernel.operands.push_back(
          operand("main_weight", Access::read_write,
                  vector_of(*group.main_weight, elements, config_.main_dtype)));
    if (!direction) state_.add_states(group, kernel);
    // Without main weights the compute weights are updated.
    kernel.operands.push_back(operand("weight",
                                      group.main_weight ? Access::write : Access::read_write,
                                      state_.weight_slice(group)));
    state_.add_settings(kernel, !direction);
    e_.emit(StreamRole::compute, Phase::optimizer, unit.id,
            fmt::format("{}.{}", unit.name, to_string(*group.group->optimizer)), std::move(kernel),
            group.group->id);
  }

  /// Gathers updated slices for ranks that hold more of the weights than they update.
  void refresh(std::size_t u, const std::vector<const GroupState*>& groups) {
    const UnitState& unit = state_.units[u];
    const std::string fresh = "fresh." + unit.name;
    if (!state_.refreshes(u)) {
      if (state_.gathers(u)) e_.record(StreamRole::compute, Phase::refresh, fresh);
      return;
    }
    const auto refreshes = [](const GroupState* group) { return group->route.refresh.has_value(); };
    const GroupState* first = *std::ranges::find_if(groups, refreshes);
    const StreamRole stream = first->route.refresh->on->gather_stream;
    e_.record(StreamRole::compute, Phase::refresh, "updated." + unit.name);
    e_.wait(stream, Phase::refresh, "updated." + unit.name);
    for (const GroupState* group : groups)
      if (refreshes(group)) refresh(unit, *group);
    e_.record(stream, Phase::refresh, fresh);
  }

  void refresh(const UnitState& unit, const GroupState& group) {
    const AxisTraffic& on = *group.route.refresh->on;
    const std::vector<Axis>& axes = group.route.refresh->axes;
    const Region own = state_.weight_slice(group);
    Region whole = own;
    std::erase_if(whole.rank_strides, [&](const RankStride& s) {
      return std::ranges::find(axes, s.axis) != axes.end();
    });
    whole.shape[0] *= group.route.refresh->ranks;
    e_.emit(on.gather_stream, Phase::refresh, unit.id, unit.name + ".refresh",
            Collective{.kind = CollectiveKind::all_gather,
                       .communicator = e_.communicator(on.gather_communicator),
                       .reduction = Reduction::none,
                       .count = own.shape[0],
                       .dtype = config_.param_dtype,
                       .input = operand("input", Access::read, own),
                       .output = operand("output", Access::write, whole)},
            group.group->id);
  }

  Emitter& e_;
  const State& state_;
  const PlanConfig& config_;
  std::vector<PipelineStage> stages_;
};

}  // namespace

void emit_loss(Emitter& e, const State& state, const std::string& prefix, bool trains) {
  e.record(StreamRole::compute, Phase::output, prefix + "loss_summed");
  e.wait(StreamRole::outer, Phase::output, prefix + "loss_summed");
  const Region sums = gather_small(e, prefix + "loss.all_gather", Phase::output,
                                   vector_of(state.loss_sums, 2, e.config().statistic_dtype()),
                                   state.gathered_sums, loss_axes(e.config().mesh));
  // The report of the last step must be copied before it is overwritten.
  e.wait(StreamRole::outer, Phase::output, prefix + "readback");
  Kernel finish{.kind = KernelKind::loss_finish,
                .operands = {operand("input", Access::read, sums),
                             operand("loss", Access::write, state.report_loss())}};
  if (trains && e.config().scales_loss())
    finish.operands.push_back(operand("loss_scale", Access::read, vector_of(state.loss_scale, 4)));
  e.emit(StreamRole::outer, Phase::output, std::nullopt, prefix + "loss.finish", std::move(finish));
  e.record(StreamRole::outer, Phase::output, prefix + "loss_ready");
}

void emit_readback(Emitter& e, const State& state, const std::string& event,
                   const std::string& prefix) {
  e.wait(StreamRole::d2h, Phase::output, prefix + event);
  e.emit(StreamRole::d2h, Phase::output, std::nullopt, prefix + "report.d2h",
         Copy{.kind = CopyKind::d2h,
              .input = operand("input", Access::read, vector_of(state.report, 8)),
              .output = operand("output", Access::write, vector_of(state.pinned_report, 8))});
  e.record(StreamRole::d2h, Phase::output, prefix + "readback");
}

void emit_optimizer(Emitter& emitter, const State& state) {
  OptimizerSegment(emitter, state).emit();
}

}  // namespace mfsdp::schedule
