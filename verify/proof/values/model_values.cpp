#include "verify/proof/values/model_values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/order/overlap.hpp"
#include "verify/proof/values/context_parallel_steps.hpp"
#include "verify/proof/values/expert_parallel_steps.hpp"
#include "verify/proof/values/fp8_steps.hpp"
#include "verify/proof/values/held_key_steps.hpp"

namespace mfsdp {

/// Tokens belong to no block, and casts of weights to no microbatch.
ValueKey ModelValues::key_of(const OwnedValue& term, const ValueKey& base) const {
  const auto owner = static_cast<std::uint32_t>(static_cast<std::int64_t>(base.owner) + term.shift);
  ValueKey key{.value = term.value,
               .owner = term.value == Value::tokens ? 0 : owner,
               .microbatch = is_weight(term.value) ? step_number() : base.microbatch,
               .layout = base.layout,
               .form = term.form,
               .shift = base.shift,
               .steps = base.steps};
  keep_ring_step(term.value, key);
  return key;
}

ModelValues::ModelValues(const UnrolledPlan& unrolled, const Layouts& layouts,
                         const ValueCells& cells, ValueMemory& memory, FindingList& findings)
    : unrolled_(unrolled),
      cells_(cells),
      memory_(memory),
      findings_(findings),
      binding_(bind_model(unrolled, layouts, cells, findings)),
      fills_(unrolled.program->buffers.size()),
      complained_(cells.first_use.size() - 1, 0) {}

void ModelValues::fill(std::uint32_t instance) {
  const auto& copy = std::get<Copy>(unrolled_.instances[instance].op->body);
  if (copy.kind != CopyKind::h2d) return;
  Fills& fills = fills_[unrolled_.index->buffers[copy.input.buffer]];
  ++fills.count;
  fills.step = step_of(instance);
}

void ModelValues::read(std::uint32_t instance) {
  const Instance& at = unrolled_.instances[instance];
  now_ = instance;
  if (const std::uint32_t step = binding_.step_of[at.op_index]; step != kNone)
    return read_step(binding_.steps[step]);
  if (!binding_.applies) return;
  if (const auto* collective = std::get_if<Collective>(&at.op->body)) {
    base_ = {};
    moved_from_ = 0;
    amaxes_.clear();
    return is_of_history(*collective) ? read_reduced(*collective) : exchange(*collective);
  }
  if (const auto* copy = std::get_if<Copy>(&at.op->body)) return check_log_probs(*copy);
  const auto* kernel = std::get_if<Kernel>(&at.op->body);
  if (kernel == nullptr) return;
  if (kernel->kind == KernelKind::amax_history) read_history(*kernel);
  if (kernel->kind == KernelKind::token_copy) copy_tokens(*kernel);
  if (adds_in_ring(kernel->kind)) read_sum(*kernel);
  if (is_update(*kernel)) check_step_block(*kernel);
}

void ModelValues::write(std::uint32_t instance) {
  const Instance& at = unrolled_.instances[instance];
  if (!binding_.applies) return;
  if (const auto* copy = std::get_if<Copy>(&at.op->body)) return bring(*copy);
  if (const auto* collective = std::get_if<Collective>(&at.op->body)) {
    const CellUse* output = use_of(&collective->output);
    if (output == nullptr) return;
    if (!amaxes_.empty()) return write_reduced(*output);
    if (base_.value != Value::unknown) put(*output, base_, moved_from_);
    return;
  }
  const auto* kernel = std::get_if<Kernel>(&at.op->body);
  if (kernel == nullptr) return;
  if (kernel->kind == KernelKind::amax_history) return write_history(*kernel);
  if (binding_.step_of[at.op_index] == kNone && adds_in_ring(kernel->kind))
    return write_sum(*kernel);
  if (kernel->kind == KernelKind::token_copy) {
    if (const CellUse* output = use_of(operand_of(*kernel, "output")))
      put(*output, {.value = Value::tokens, .owner = 0, .microbatch = microbatch_}, 0);
    return;
  }
  const std::uint32_t bound = binding_.step_of[at.op_index];
  if (bound == kNone) return;
  const BoundStep& step = binding_.steps[bound];
  if (step.excused || base_.value == Value::excused) {
    for (const CellUse& use : cells_.of(at.op_index))
      if (use.writes) put(use, {.value = Value::excused}, 0);
    return;
  }
  for (std::uint32_t f = step.first_flow; f < step.last_flow; ++f) {
    const BoundFlow& flow = binding_.flows[f];
    if (flow.writes.value == Value::unknown) continue;
    const CellUse& use = cells_.uses[flow.use];
    const bool is_sum = use.operand->role == "partials" || use.operand->role == "counts" ||
                        use.operand->role == "d_turned";
    base_.layout = is_sum ? made_partials_ : made_;
    OwnedValue made = flow.writes;
    if (step.casts) made.value = cast_;
    if (made.form == ValueForm::next_amax) {
      put(use,
          {.value = cast_,
           .owner = base_.owner,
           .microbatch = static_cast<std::uint32_t>(step_of(now_)),
           .form = made.form},
          0);
      continue;
    }
    put(use, key_of(made, base_), flow.skip + first_row_ * flow.row_bytes);
    if (flow.left_alone != kNone) {
      const LeftAlone& alone = binding_.left_alone[flow.left_alone];
      const auto begin = [&](std::uint32_t c) { return cells_.begin[c] - cells_.begin[use.first]; };
      // A cell may reach into columns that an adapter has yet to add to, where none is seen to.
      for (std::uint32_t c = use.first; c < use.last; ++c)
        if (alone.has(begin(c), c + 1 < use.last ? begin(c + 1) : alone.row))
          memory_.cells[c].key = key_of(alone.value, base_);
    }
    if (flow.unrotated == 0) continue;
    const ValueKey rest = key_of({.value = binding_.unrotated}, base_);
    for (std::uint32_t c = use.first; c < use.last; ++c)
      if (cells_.begin[c] - cells_.begin[use.first] >= flow.unrotated) memory_.cells[c].key = rest;
  }
}

// ---- steps -------------------------------------------------------------------------------------

void ModelValues::read_step(const BoundStep& step) {
  base_ = {.value = Value::excused};
  first_row_ = 0;
  if (step.excused) return;
  if (step.casts)
    find_cast(step);
  else
    find_owner(step);
  if (base_.value == Value::excused) return;
  find_ring_step();
  check_fp8_block();
  check_window();
  layouts_.clear();
  for (std::uint32_t f = step.first_flow; f < step.last_flow; ++f) check(step, binding_.flows[f]);
  if (base_.value == Value::excused) return;
  find_layouts(step);
  if (step.contributes && base_.microbatch != worked_on())
    report_mismatch(
        fmt::format("adds a value of microbatch {} to a sum while it works on microbatch {}",
                    base_.microbatch, worked_on()));
  if (step.contributes && step.chunk) add_rows();
  if (step.contributes && !step.chunk) add_once(step);
}

/// The value of which a step takes the largest magnitude or makes a cast: a whole one, or a weight.
void ModelValues::find_cast(const BoundStep& step) {
  if (step.weight) {
    cast_ = *step.weight;
    base_ = {.value = Value::unknown, .owner = *step.owner, .microbatch = step_number()};
    return;
  }
  const CellUse& use = cells_.uses[binding_.flows[step.first_flow].use];
  const ValueKey key = whole(use);
  const ValueKey& first = memory_.cells[use.first].key;
  if (first.value == Value::excused) return;
  const ValueForm wanted =
      step.transposes ? binding_.flows[step.first_flow].reads.form : ValueForm::whole;
  if (key.value <= Value::tokens || key.form != wanted)
    return report_mismatch(fmt::format(
        "reads {} as operand 'input'; expected {} from its first byte on{}", in_words(first),
        step.transposes ? "the cast of one value" : "one value of the model",
        step.transposes ? "" : ", which no cast is"));
  cast_ = key.value;
  base_ = {.value = Value::unknown, .owner = key.owner, .microbatch = key.microbatch};
}

/// Layers of a block multiply in FP8 where the configuration has it, and nowhere else.
void ModelValues::check_fp8_block() {
  const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
  const PlanConfig& config = unrolled_.program->config;
  const auto layers = static_cast<std::uint32_t>(config.model.layers);
  if (!is_gemm(kernel.kind) || !config.has_fp8()) return;
  const bool of_block = base_.owner >= 1 && base_.owner <= layers;
  const bool wanted = of_block && config.has_fp8(static_cast<std::int64_t>(base_.owner) - 1);
  const bool is_cast = kernel.kind == fp8::product_kind(config.fp8);
  if (wanted != is_cast || (!is_cast && kernel.kind != KernelKind::gemm))
    report_mismatch(fmt::format("multiplies in {}; expected {} in this block",
                                wanted ? "other numbers than FP8" : "FP8",
                                wanted ? "FP8" : to_string(config.param_dtype)));
}

/// A step of a microbatch is added to a sum once, however often the microbatch is computed.
void ModelValues::add_once(const BoundStep& step) {
  const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
  const bool is_first =
      added_.emplace(kernel.kind, step.role, base_.owner, base_.microbatch).second;
  if (!is_first && kernel.attribute("beta") != 0)
    report_mismatch(fmt::format("adds a value of microbatch {} to a sum that contains it already",
                                base_.microbatch));
}

/// Chunks of one microbatch that are added to a sum have no row in common.
void ModelValues::add_rows() {
  const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
  const std::int64_t end =
      first_row_ + kernel.attribute(kernel.kind == KernelKind::gemm ? "m" : "rows");
  auto& [rows, last] = summed_[{kernel.kind, base_.microbatch}];
  last = now_;
  if (kernel.attribute("beta") == 0)  // a sum begins
    std::erase_if(rows, [&](const auto& of) { return of.first < end && first_row_ < of.second; });
  const auto next = rows.lower_bound(first_row_);
  const bool again = (next != rows.end() && next->first < end) ||
                     (next != rows.begin() && std::prev(next)->second > first_row_);
  if (again)
    report_mismatch(fmt::format(
        "adds rows [{}, {}) of microbatch {} to a sum that contains some of them already",
        first_row_, end, base_.microbatch));
  rows.emplace(first_row_, end);
}

void ModelValues::end() {
  const std::int64_t tokens = unrolled_.program->config.tokens_per_microbatch();
  for (const auto& [of, summed] : summed_) {
    std::int64_t all = 0;
    for (const auto& [begin, end] : summed.rows) all += end - begin;
    now_ = summed.last;
    if (all < tokens)
      report_mismatch(fmt::format("leaves a sum of {} rows of microbatch {}, which has {} tokens",
                                  all, of.second, tokens));
  }
}

/// The newest microbatch is that of the latest tokens; a class without tokens counts its segments.
std::uint32_t ModelValues::worked_on() const {
  const Instance& at = unrolled_.instances[now_];
  const ListRun& run = unrolled_.runs[at.run];
  const std::int64_t taken = run.head == token_run_ ? microbatch_ + token_lag_ : microbatch_;
  const std::int64_t newest = binding_.takes_tokens ? taken : run.before + run.begun;
  return static_cast<std::uint32_t>(newest - unrolled_.lag_of(now_));
}

/// Owner and microbatch of the step: parameters give the owner, the first value that is read gives
/// the rest.
void ModelValues::find_owner(const BoundStep& step) {
  const BoundFlow& flow = binding_.flows[step.first_flow];
  const ValueCell& cell = memory_.cells[cells_.uses[flow.use].first];
  const bool fits = cell.key.value == flow.reads.value &&
                    cell.lifetime == memory_.lifetimes[cells_.uses[flow.use].buffer];
  if (!fits && !step.owner) {
    if (cell.key.value != Value::excused)
      report_mismatch(
          fmt::format("reads {}; expected '{}'", in_words(cell.key), to_string(flow.reads.value)));
    return;
  }
  base_ = {.value = Value::unknown,
           .owner = step.owner.value_or(cell.key.owner),
           .microbatch = fits ? cell.key.microbatch : worked_on()};
  if (!step.chunk || !fits || flow.row_bytes == 0) return;
  const std::int64_t first_row = (cell.place - flow.skip) / flow.row_bytes;
  if (first_row >= 0 && first_row < unrolled_.program->config.tokens_per_microbatch())
    first_row_ = first_row;
}

void ModelValues::check(const BoundStep& step, const BoundFlow& flow) {
  if (step.casts && flow.reads.value != Value::unknown && flow.reads.form == ValueForm::whole)
    return;  // find_cast() has looked at it
  const bool of_cast = step.casts && flow.reads.form != ValueForm::whole;
  if (flow.reads.value == Value::unknown) return;
  const CellUse& use = cells_.uses[flow.use];
  if (flow.reads.value == Value::outside) return check_outside(use);
  OwnedValue read = flow.reads;
  if (of_cast) read.value = cast_;
  if (of_cast && read.form == ValueForm::kept_amax) return check_kept_amax(use);
  if (of_cast && read.form == ValueForm::next_amax) return check_next_amax(use);
  ValueKey wanted = key_of(read, base_);
  wanted.layout = memory_.cells[use.first].key.layout;
  if (follows_layouts()) layouts_.push_back({.role = use.operand->role, .layout = wanted.layout});
  const std::int64_t place = flow.skip + first_row_ * flow.row_bytes - cells_.begin[use.first];
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    const ValueCell& cell = memory_.cells[c];
    if (cell.key == wanted && cell.place == place + cells_.begin[c]) continue;
    if (cell.key.value == Value::excused || cell.lifetime != memory_.lifetimes[use.buffer]) return;
    if (cell.key != wanted)
      return report_mismatch(fmt::format("reads {1} as operand '{0}'; expected {2}",
                                         use.operand->role, in_words(cell.key), in_words(wanted)));
    return report_mismatch(fmt::format(
        "reads {1} as operand '{0}' from byte {2} on; expected it from byte {3} on{4}",
        use.operand->role, in_words(wanted), cell.place - cells_.begin[c] + cells_.begin[use.first],
        place + cells_.begin[use.first], step.chunk ? ", where its chunk begins" : ""));
  }
}

/// The layouts that the step reads are those of a rule, which gives those that it makes.
void ModelValues::find_layouts(const BoundStep& step) {
  made_ = made_partials_ = ValueLayout::whole;
  if (!follows_layouts()) return;
  const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
  const auto cut = cut_of(step.group == nullptr ? Placement{} : step.group->shard);
  if (!cut) return report_mismatch("has a weight that is cut in no way that a rule knows");
  const auto made = made_by(kernel.kind, kernel.attribute("kind"), *cut, layouts_);
  if (!made) {
    base_ = {.value = Value::excused};
    return report_mismatch(made.error().what);
  }
  const bool of_terms =
      std::ranges::find(layouts_, ValueLayout::partial, &ReadLayout::layout) != layouts_.end();
  if (of_terms && kernel.kind == KernelKind::gemm &&
      std::ranges::count(kernel.operands, "weight", &Operand::role) > 1) {
    base_ = {.value = Value::excused};
    return report_mismatch("adds a bias to the term of each rank");
  }
  const bool of_part = std::ranges::any_of(layouts_, [&](const ReadLayout& read) {
    return read.layout == ValueLayout::rows ||
           (read.layout == ValueLayout::partial && kernel.kind == KernelKind::norm_weight_grad);
  });
  if (of_part ? !step.of_own_rows : !step.of_whole_rows) {
    base_ = {.value = Value::excused};
    return report_mismatch(of_part ? "works on the rows of all ranks, but a rank has its own"
                                   : "works on the rows of one rank, but there are those of all");
  }
  made_ = made->values;
  made_partials_ = made->gradient;
  if (step.contributes && step.group != nullptr) check_gradient(step, made->gradient);
}

/// Terms of ranks are summed over the axis, and what each rank has whole is not.
void ModelValues::check_gradient(const BoundStep& step, ValueLayout layout) {
  const std::vector<Axis>& reduce = step.group->reduce;
  // On the experts' grid ranks of tp are data ranks, over which layouts.cpp has gradients summed.
  const bool of_experts = std::ranges::find(step.group->shard, Axis::ep, &AxisPlacement::axis) !=
                          step.group->shard.end();
  const bool sums = of_experts || std::ranges::find(reduce, kLayoutAxis) != reduce.end();
  if (sums == (layout == ValueLayout::partial)) return;
  report_mismatch(fmt::format("makes a gradient that is {} along {}, but its group {} it over {}",
                              to_string(layout), to_string(kLayoutAxis),
                              sums ? "sums" : "does not sum", to_string(kLayoutAxis)));
}

/// Attention has the window of its layer.
void ModelValues::check_window() {
  const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
  if (kernel.kind != KernelKind::attention_forward && kernel.kind != KernelKind::attention_backward)
    return;
  const PlanConfig& config = unrolled_.program->config;
  const bool slides = config.model.slides(static_cast<std::int64_t>(base_.owner) - 1);
  const std::int64_t wanted = config.model.window_of(slides, config.seq_len);
  if (const std::int64_t window = kernel.attribute("window"); window != wanted)
    report_mismatch(fmt::format("has window {}; expected {}, because block {} {}", window, wanted,
                                base_.owner,
                                slides ? "has a sliding window" : "has no sliding window"));
}

/// Tables of rotations are ports, which the host has filled before the first step. Layers that slide
/// or have no RoPE may have a second one.
void ModelValues::check_outside(const CellUse& use) {
  for (std::uint32_t c = use.first; c < use.last; ++c)
    if (memory_.cells[c].writer != kNone)
      return report_mismatch(fmt::format(
          "reads {1} as operand '{0}', which an op has written; expected a table from the host",
          use.operand->role, in_words(memory_.cells[c].key)));
  const ModelShape& model = unrolled_.program->config.model;
  const bool local = model.has_other_rope(static_cast<std::int64_t>(base_.owner) - 1);
  const Port wanted = local ? Port::local_rope_table : Port::rope_table;
  const Buffer& buffer = unrolled_.program->buffers[use.buffer];
  if (!buffer.holds || buffer.holds->port != wanted)
    report_mismatch(fmt::format("reads another buffer than {1} as operand '{0}'", use.operand->role,
                                to_string(wanted)));
}

/// Collectives move three kinds of model values, rows of experts, rows of heads, and keys: `base_`
/// is then the received value. Weights, gradients and sums are followed elsewhere.
void ModelValues::exchange(const Collective& collective) {
  const CellUse* input = use_of(&collective.input);
  if (input == nullptr || collective.kind == CollectiveKind::send ||
      collective.kind == CollectiveKind::recv)
    return;
  const ValueKey& first = memory_.cells[input->first].key;
  if (first.value == Value::unknown) return;
  base_ = {.value = Value::excused};
  if (first.value == Value::excused) return;
  if (first.form == ValueForm::amax_of_shard) return find_largest(collective, *input);
  const auto& communicator =
      unrolled_.program->communicators[unrolled_.index->communicators[collective.communicator]];
  if (with_several_ranks(communicator.axes, unrolled_.program->config.mesh) ==
      std::vector{kLayoutAxis})
    return move_layout(collective, first);
  const ValueKey key = whole(*input);
  const std::vector<Axis> axes =
      with_several_ranks(communicator.axes, unrolled_.program->config.mesh);
  const bool shares_sequences = unrolled_.program->config.mesh.size(Axis::cp) > 1;
  const bool deals = collective.kind == CollectiveKind::all_to_all;
  auto received = shares_sequences ? context_parallel::received_of(first.value, collective.kind,
                                                                   collective.reduction)
                                   : std::nullopt;
  const bool of_experts = !received && deals && expert_parallel::received_of(first.value);
  if (of_experts) received = expert_parallel::received_of(first.value);
  if (!received || axes != std::vector{of_experts ? Axis::ep : Axis::cp})
    return report_mismatch(
        fmt::format("moves {} by a {}; expected {}", in_words(first), to_string(collective.kind),
                    expected_move(first.value, of_experts || !shares_sequences)));
  if (key.value == Value::unknown)
    return report_mismatch(fmt::format("sends only a part of {}", in_words(first)));
  // Rows that several ranks of tp sent would be several rows at the experts; counts are summed over
  // tp before.
  const bool counts = *received == Value::expert_counts_of_sequences;
  const ValueLayout wanted = !follows_layouts() || counts ? ValueLayout::whole
                             : of_experts                 ? ValueLayout::rows
                                                          : ValueLayout::columns;
  if (key.layout != wanted)
    return report_mismatch(fmt::format("sends {}; expected layout {} along {}", in_words(first),
                                       to_string(wanted), to_string(kLayoutAxis)));
  base_ = {
      .value = *received, .owner = key.owner, .microbatch = key.microbatch, .layout = key.layout};
  if (collective.kind == CollectiveKind::shift) base_ = passed_on(key);
}

/// The collectives that move values of rows of experts, or of ranks that share sequences.
const char* ModelValues::expected_move(Value value, bool of_experts) const {
  const PlanConfig& config = unrolled_.program->config;
  if (!of_experts && value == Value::expert_counts)
    return "an all_reduce over cp, which makes them those of whole sequences";
  if (of_experts) return "an all_to_all over ep of a value that the ranks of its experts read";
  if (config.passes_keys())
    return "a shift over cp of one rank's keys, or of terms of their gradients";
  if (config.gathers_keys())
    return "an all_gather over cp of a rank's keys, or a reduce_scatter of terms of gradients of "
           "all "
           "keys";
  return "an all_to_all over cp of a value that is whole by rows or by heads";
}

/// Collectives over the axis of layouts move all of a value from one layout to another.
void ModelValues::move_layout(const Collective& collective, const ValueKey& key) {
  const CellUse& input = *use_of(&collective.input);
  if (key.value == Value::own_softmax) return gather_softmax(collective, input);
  const auto keys =
      held_keys::moved_keys(key.value, key.layout, collective.kind, collective.reduction);
  const auto to = keys ? std::optional(keys->layout)
                  : held_keys::is_moved(key.value)
                      ? std::nullopt
                      : moved_by(collective.kind, collective.reduction, key.layout);
  if (!to)
    return report_mismatch(fmt::format("moves {} by a {} over {}", in_words(key),
                                       to_string(collective.kind), to_string(kLayoutAxis)));
  if (whole(input) != key)
    return report_mismatch(fmt::format("sends only a part of {}", in_words(key)));
  base_ = key;
  base_.layout = *to;
  if (keys) base_.value = keys->value;
}

/// Each rank knows its part of the softmax of some rows, and learns those of the others. The parts
/// of a chunk of rows follow those of the chunk before.
void ModelValues::gather_softmax(const Collective& collective, const CellUse& input) {
  const ValueKey key = memory_.cells[input.first].key;
  const std::int64_t begin = memory_.cells[input.first].place;
  bool is_one = key.layout == ValueLayout::columns;
  for (std::uint32_t c = input.first; c < input.last; ++c)
    is_one = is_one && memory_.cells[c].key == key &&
             memory_.cells[c].place == begin + cells_.begin[c] - cells_.begin[input.first];
  if (collective.kind != CollectiveKind::all_gather || !is_one)
    return report_mismatch(fmt::format("moves {} by a {} over {}", in_words(key),
                                       to_string(collective.kind), to_string(kLayoutAxis)));
  base_ = {.value = Value::all_softmax, .owner = key.owner, .microbatch = key.microbatch};
  moved_from_ = checked_mul(begin, unrolled_.program->config.mesh.size(kLayoutAxis));
}

// ---- copies ------------------------------------------------------------------------------------

/// The host's log_probs are those of the head, of all tokens of the microbatch.
void ModelValues::check_log_probs(const Copy& copy) {
  const Buffer& to = unrolled_.program->buffers[unrolled_.index->buffers[copy.output.buffer]];
  if (!to.holds || to.holds->port != Port::log_probs) return;
  const ValueKey wanted{
      .value = Value::log_probs,
      .owner = static_cast<std::uint32_t>(unrolled_.program->config.model.layers) + 1,
      .microbatch = worked_on()};
  const CellUse* input = use_of(&copy.input);
  if (input != nullptr && memory_.cells[input->first].key.value == Value::excused) return;
  if (input == nullptr || whole(*input) != wanted)
    report_mismatch(fmt::format("copies {} to the host's log_probs; expected {}",
                                input == nullptr ? "bytes whose contents are unknown"
                                                 : in_words(memory_.cells[input->first].key),
                                in_words(wanted)));
}

/// Copies bring what the host has filled a port with, or the contents of another place, byte for
/// byte.
void ModelValues::bring(const Copy& copy) {
  const auto source = static_cast<std::uint32_t>(unrolled_.index->buffers[copy.input.buffer]);
  const bool from_port =
      copy.on_host() == &copy.input && unrolled_.program->buffers[source].is_port();
  if (!from_port && is_contiguous(copy.input) && is_contiguous(copy.output))
    return put_values(copy.output, values_in(copy.input));
  const CellUse* output = use_of(&copy.output);
  if (output == nullptr || !from_port) return;
  put(*output, {.value = Value::host_data, .owner = source, .microbatch = fills_[source].count},
      copy.input.offset);
}

/// Each microbatch takes the next tokens that the host has brought.
void ModelValues::copy_tokens(const Kernel& kernel) {
  const CellUse* input = use_of(operand_of(kernel, "input"));
  const ValueKey key = input == nullptr ? ValueKey{} : whole(*input);
  const std::uint32_t run = unrolled_.head_of(now_);
  const std::int64_t lag = unrolled_.lag_of(now_);
  const bool again = run == token_run_ && lag == token_lag_;
  const std::uint32_t wanted = again ? microbatch_ : microbatch_ + 1;
  const bool from_host = key.value == Value::host_data;
  if (from_host && !token_source_) token_source_ = key.owner;
  if (!from_host || key.owner != token_source_)
    report_mismatch("copies tokens from a buffer that the host has not filled");
  else if (!comes_from(key, Port::tokens))
    report_mismatch(fmt::format("copies tokens from {}; expected the buffer {}", in_words(key),
                                to_string(Port::tokens)));
  else if (key.microbatch != wanted)
    report_mismatch(
        fmt::format("copies the tokens of microbatch {}; expected those of microbatch {}",
                    key.microbatch, wanted));
  microbatch_ = wanted;
  token_run_ = run;
  token_lag_ = lag;
}

/// An update goes by what the host has brought for this step.
void ModelValues::check_step_block(const Kernel& kernel) {
  const CellUse* block = use_of(operand_of(kernel, "step_block"));
  if (block == nullptr)
    return report_mismatch("has operand 'step_block' at bytes whose contents are unknown");
  const ValueKey key = whole(*block);
  if (key.value != Value::host_data || key.owner == token_source_ ||
      !comes_from(key, Port::step_block))
    return report_mismatch(fmt::format("reads {} as operand 'step_block'", in_words(key)));
  if (const Fills& fills = fills_[key.owner];
      key.microbatch != fills.count || fills.step != step_of(now_))
    report_mismatch("reads the 'step_block' of another step");
}

/// Whether what the host has brought comes from that port.
bool ModelValues::comes_from(const ValueKey& key, Port port) const {
  const std::optional<Contents>& holds = unrolled_.program->buffers[key.owner].holds;
  return holds && holds->port == port;
}

// ---- from one place to another -----------------------------------------------------------------

SentValues ModelValues::sent() const {
  return values_in(std::get<Collective>(unrolled_.instances[now_].op->body).input);
}

void ModelValues::receive(const SentValues& values) {
  put_values(std::get<Collective>(unrolled_.instances[now_].op->body).output, values);
}

/// The values in a contiguous operand.
SentValues ModelValues::values_in(const Operand& operand) const {
  SentValues values;
  const CellUse* use = use_of(&operand);
  if (use == nullptr) return values;
  values.pitch = cells_.pitch[use->buffer];
  for (std::uint32_t c = use->first; c < use->last; ++c)
    values.parts.push_back({.begin = cells_.begin[c] - cells_.begin[use->first],
                            .key = memory_.cells[c].key,
                            .place = memory_.cells[c].place});
  return values;
}

/// To a contiguous operand of as many bytes, whose cells the instance has written. A cell of
/// several values has none.
void ModelValues::put_values(const Operand& operand, const SentValues& values) {
  const CellUse* use = use_of(&operand);
  const std::vector<SentPart>& parts = values.parts;
  if (use == nullptr || parts.empty()) return;
  const auto continues = [](const SentPart& a, const SentPart& b) {
    return a.key == b.key && a.place - a.begin == b.place - b.begin;
  };
  const auto is_of_first = [&](const SentPart& part) { return continues(parts.front(), part); };
  if (values.pitch != cells_.pitch[use->buffer]) {
    // Columns of one cut are no intervals of the other, unless there is one value from its start.
    if (parts.front().place == 0 && std::ranges::all_of(parts, is_of_first))
      put(*use, parts.front().key, 0);
    return;
  }
  auto part = parts.begin();
  for (std::uint32_t c = use->first; c < use->last; ++c) {
    const std::int64_t begin = cells_.begin[c] - cells_.begin[use->first];
    const auto lies_before_end = [&](const SentPart& other) {
      return c + 1 == use->last || other.begin < cells_.begin[c + 1] - cells_.begin[use->first];
    };
    while (std::next(part) != parts.end() && std::next(part)->begin <= begin) ++part;
    const SentPart first = *part;
    bool is_one = true;
    for (auto next = std::next(part); next != parts.end() && lies_before_end(*next); ++next)
      is_one = is_one && continues(first, *next);
    if (!is_one) continue;
    memory_.cells[c].key = first.key;
    memory_.cells[c].place = first.place + begin - first.begin;
  }
}

// ---- cells -------------------------------------------------------------------------------------

void ModelValues::put(const CellUse& use, const ValueKey& key, std::int64_t place) {
  for (std::uint32_t c = use.first; c < use.last; ++c) {
    memory_.cells[c].key = key;
    memory_.cells[c].place = place + cells_.begin[c] - cells_.begin[use.first];
  }
}

const CellUse* ModelValues::use_of(const Operand* operand) const {
  const auto uses = cells_.of(unrolled_.instances[now_].op_index);
  const auto found = std::ranges::find(uses, operand, &CellUse::operand);
  return operand == nullptr || found == uses.end() || !found->exact ? nullptr : &*found;
}

ValueKey ModelValues::whole(const CellUse& use) const {
  const ValueKey key = memory_.cells[use.first].key;
  for (std::uint32_t c = use.first; c < use.last; ++c)
    if (memory_.cells[c].key != key ||
        memory_.cells[c].place != cells_.begin[c] - cells_.begin[use.first])
      return {};
  return key;
}

void ModelValues::report_mismatch(const std::string& what) {
  const std::uint32_t op_index = unrolled_.instances[now_].op_index;
  if (complained_[op_index] != 0 || !findings_.wants("MF113")) return;
  complained_[op_index] = 1;
  findings_.add(finding_in_step(unrolled_, now_, "MF113", what));
}

std::string ModelValues::in_words(const ValueKey& key) const {
  if (key.value <= Value::outside) return std::string(to_string(key.value));
  if (key.value == Value::host_data)
    return fmt::format("data of the host in buffer '{}'",
                       unrolled_.program->buffers[key.owner].name);
  if (key.value == Value::tokens) return fmt::format("tokens of microbatch {}", key.microbatch);
  const auto layers = static_cast<std::uint32_t>(unrolled_.program->config.model.layers);
  const std::string owner = key.owner == 0       ? "the embedding"
                            : key.owner > layers ? "the head"
                                                 : fmt::format("layers.{}", key.owner - 1);
  const char* const unit = is_weight(key.value) ? "step" : "microbatch";
  const std::string form =
      key.form == ValueForm::whole ? "" : fmt::format("the {} of ", to_string(key.form));
  const std::string layout =
      key.layout == ValueLayout::whole
          ? ""
          : fmt::format(", {} along {}", to_string(key.layout), to_string(kLayoutAxis));
  return fmt::format("{}'{}' of {}, {} {}{}{}", form, to_string(key.value), owner, unit,
                     key.microbatch, layout, ring_words(key));
}

}  // namespace mfsdp
