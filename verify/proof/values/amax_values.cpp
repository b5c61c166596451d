// Largest magnitudes that collectives and the history (core/plan/fp8.hpp) keep. Delayed scaling, from
// step to step:
//
//   cast of x, step t   reads     kept amax of x for step t      (before the first step: the host's)
//                       raises    next amax of x in step t       of each microbatch once
//   all_reduce, max     next amaxes of step t  ->  those of all ranks
//   amax_history        all of them  ->  kept amaxes for step t + 1; next amaxes are 0 again
//
// A key's microbatch is the step. Those of shards of weights that casts are gathered of:
//
//   all_reduce, max     amaxes of shards  ->  those of the weights
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/plan/fp8.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/values/model_values.hpp"

namespace mfsdp {

/// A cast's scale is of its value's largest magnitude, which the step before kept. Plans that do not
/// train and first steps read what the host has brought.
void ModelValues::check_kept_amax(const CellUse& use) {
  const auto step = static_cast<std::uint32_t>(step_of(now_));
  const bool trains = unrolled_.plan->role() == PlanRole::train;
  const ValueKey wanted{
      .value = cast_, .owner = base_.owner, .microbatch = step, .form = ValueForm::kept_amax};
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const ValueCell& cell = memory_.cells[c];
    if (cell.writer == kNone && (!trains || step == 0)) continue;
    if (cell.key == wanted && cell.writer != kNone) continue;
    if (cell.key.value == Value::excused) return;
    return report_mismatch(fmt::format(
        "casts '{}' by {}; expected the largest magnitude of it that the step before kept",
        to_string(cast_), cell.writer == kNone ? "what no step has kept" : in_words(cell.key)));
  }
}

/// A step's largest magnitudes begin at 0, and are of one tensor.
void ModelValues::check_next_amax(const CellUse& use) {
  const auto step = static_cast<std::uint32_t>(step_of(now_));
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const ValueCell& cell = memory_.cells[c];
    const bool begins = (cell.writer == kNone && step == 0) ||
                        (cell.key.value == Value::no_amax && cell.key.microbatch == step);
    const bool goes_on =
        cell.key ==
        ValueKey{
            .value = cast_, .owner = base_.owner, .microbatch = step, .form = ValueForm::next_amax};
    if (cell.key.value == Value::excused) return;
    if (!begins && !goes_on)
      return report_mismatch(
          fmt::format("adds the largest magnitude of '{}' to {}; expected that of this step",
                      to_string(cast_), in_words(cell.key)));
    amax_of_[c].insert(base_.microbatch);
  }
}

/// A maximum that is written into the history.
bool ModelValues::is_of_history(const Collective& collective) const {
  const Buffer& buffer =
      unrolled_.program->buffers[unrolled_.index->buffers[collective.output.buffer]];
  return collective.reduction == Reduction::max && buffer.holds &&
         buffer.holds->port == Port::amax_history;
}

/// All ranks take part, after all casts of the step, which check_next_amax() sees to.
void ModelValues::read_reduced(const Collective& collective) {
  const CellUse* input = use_of(&collective.input);
  const auto& communicator =
      unrolled_.program->communicators[unrolled_.index->communicators[collective.communicator]];
  const Mesh& mesh = unrolled_.program->config.mesh;
  if (input == nullptr || collective.input.buffer != collective.output.buffer ||
      collective.input.offset != 0 || collective.output.offset != 0 ||
      collective.count != amax_history::tensors(unrolled_.program->config))
    return report_mismatch("takes a maximum elsewhere than in row 0 of the history");
  if (communicator.size != mesh.world_size())
    return report_mismatch(
        fmt::format("takes largest magnitudes over {} ranks; expected all {}, which cast with one "
                    "scale",
                    communicator.size, mesh.world_size()));
  for (std::uint32_t c = input->first; c < input->last; ++c) {
    ValueKey& key = amaxes_.emplace_back(memory_.cells[c].key);
    if (key.form == ValueForm::next_amax) key.form = ValueForm::reduced_amax;
  }
}

/// Largest magnitudes of shards of weights, one after another, become those of the weights: over all
/// ranks among which the weights are divided.
void ModelValues::find_largest(const Collective& collective, const CellUse& input) {
  const Program& program = *unrolled_.program;
  const auto& axes =
      program.communicators[unrolled_.index->communicators[collective.communicator]].axes;
  if (collective.kind != CollectiveKind::all_reduce || collective.reduction != Reduction::max)
    return report_mismatch(
        fmt::format("moves {} by a {} with reduction {}; expected an all_reduce that takes the "
                    "larger one",
                    in_words(memory_.cells[input.first].key), to_string(collective.kind),
                    to_string(collective.reduction)));
  if (collective.input.buffer != collective.output.buffer ||
      collective.input.offset != collective.output.offset)
    return report_mismatch("takes largest magnitudes to another place than they are in");
  std::vector<ValueKey> largest;
  for (std::uint32_t c = input.first; c < input.last; ++c) {
    const ValueKey& key = memory_.cells[c].key;
    if (key.form != ValueForm::amax_of_shard || key.microbatch != step_number() ||
        memory_.cells[c].place != 0)
      return report_mismatch(
          fmt::format("takes the larger one of {}; expected largest magnitudes "
                      "of this step's shards of weights",
                      in_words(key)));
    largest.push_back(key);
    largest.back().form = ValueForm::amax;
  }
  for (const Group& group : program.groups) {
    if (!group.fp8) continue;
    for (const Axis axis : with_several_ranks(flat_axes(group.weight), program.config.mesh))
      if (std::ranges::find(axes, axis) == axes.end())
        return report_mismatch(
            fmt::format("takes largest magnitudes over ranks that do not have all shards: not over "
                        "{}",
                        to_string(axis)));
  }
  amaxes_ = std::move(largest);
}

/// The maxima of either.
void ModelValues::write_reduced(const CellUse& output) {
  if (output.last - output.first != amaxes_.size()) return;
  for (std::uint32_t c = output.first; c < output.last; ++c)
    memory_.cells[c].key = amaxes_[c - output.first];
}

/// A column is of a tensor in all its microbatches and on all ranks, or of none: then nothing may
/// read it.
void ModelValues::read_history(const Kernel& kernel) {
  amaxes_.clear();
  const CellUse* next = use_of(operand_of(kernel, "next_amax"));
  if (next == nullptr) return report_mismatch("has operand 'next_amax' at unknown bytes");
  const PlanConfig& config = unrolled_.program->config;
  const auto step = static_cast<std::uint32_t>(step_of(now_));
  const std::uint32_t in_step = microbatch_ - std::exchange(kept_until_, microbatch_);
  const ValueForm wanted =
      config.mesh.world_size() > 1 ? ValueForm::reduced_amax : ValueForm::next_amax;
  for (std::uint32_t c = next->first; c < next->last; ++c) {
    const ValueKey& key = memory_.cells[c].key;
    amaxes_.push_back(key);
    const bool is_empty = memory_.cells[c].writer == kNone || key.value == Value::no_amax ||
                          key.value == Value::unknown;
    if (is_empty) continue;
    if (key.form != wanted || key.microbatch != step)
      return report_mismatch(
          fmt::format("keeps {}; expected the {} of this step", in_words(key), to_string(wanted)));
    const std::size_t seen = amax_of_[c].size();
    if (!is_weight(key.value) && seen != in_step)
      return report_mismatch(
          fmt::format("keeps the largest magnitude of '{}' of {} microbatches; the step has {}",
                      to_string(key.value), seen, in_step));
  }
  amax_of_.clear();
}

void ModelValues::write_history(const Kernel& kernel) {
  const CellUse* next = use_of(operand_of(kernel, "next_amax"));
  const CellUse* kept = use_of(operand_of(kernel, "amax"));
  if (next == nullptr || kept == nullptr || next->last - next->first != amaxes_.size()) return;
  const auto step = static_cast<std::uint32_t>(step_of(now_));
  // Both rows are cut in columns where casts touch both; a column is known by where it begins.
  std::uint32_t from = next->first;
  for (std::uint32_t c = kept->first; c < kept->last; ++c) {
    const std::int64_t begin = cells_.begin[c] - cells_.begin[kept->first];
    while (from + 1 < next->last && cells_.begin[from] - cells_.begin[next->first] < begin) ++from;
    ValueKey key = amaxes_[from - next->first];
    const bool is_here = cells_.begin[from] - cells_.begin[next->first] == begin &&
                         (key.form == ValueForm::next_amax || key.form == ValueForm::reduced_amax);
    if (is_here) {
      key.form = ValueForm::kept_amax;
      key.microbatch = step + 1;
    }
    memory_.cells[c].key = is_here ? key : ValueKey{};
  }
  for (std::uint32_t c = next->first; c < next->last; ++c)
    memory_.cells[c].key = {.value = Value::no_amax, .owner = 0, .microbatch = step + 1};
}

}  // namespace mfsdp
