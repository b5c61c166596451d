#include "verify/mutation/edit_pairs.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/plan/instances.hpp"
#include "core/plan/plan_json.hpp"
#include "verify/mutation/pair_editor.hpp"

namespace mfsdp {
namespace {

using enum KernelKind;
using Spots = std::pair<PairEditor::Spot, PairEditor::Spot>;

bool is_wait(const Op& op) { return op.kind() == OpKind::wait; }
bool is_record(const Op& op) { return op.kind() == OpKind::record; }
bool is_acquire(const Op& op) { return op.kind() == OpKind::acquire; }
bool is_release(const Op& op) { return op.kind() == OpKind::release; }

// ---- order and access ---------------------------------------------------------------------------

bool read_and_drop_wait(PairEditor& pair) {
  const auto wait = pair.any(is_wait);
  const auto next = PairEditor::behind(wait, PairEditor::writes);
  return next && PairEditor::call_read(next.op()) && pair.drop(wait);
}
bool read_and_move_record(PairEditor& pair) {
  const auto record = pair.any(is_record);
  if (!record || record.index == 0) return false;
  auto& ops = record.segment->ops;
  if (!PairEditor::writes(ops[record.index - 1]) || !PairEditor::call_read(ops[record.index - 1]))
    return false;
  std::swap(ops[record.index], ops[record.index - 1]);
  return pair.bind();
}
bool exchange_waits(PairEditor& pair) {
  const auto [a, b] = pair.two(is_wait);
  if (!a) return false;
  std::swap(a.op().body, b.op().body);
  return pair.bind();
}
bool exchange_records(PairEditor& pair) {
  const auto [a, b] = pair.two(is_record);
  if (!a) return false;
  std::swap(a.op().body, b.op().body);
  return pair.bind();
}
bool exchange_records_and_waits(PairEditor& pair) {
  const auto [a, b] = pair.two(is_record);
  if (!a) return false;
  const EventId first = std::get<Record>(a.op().body).event;
  const EventId second = std::get<Record>(b.op().body).event;
  for (const auto& spot : pair.all(is_wait))
    if (auto& event = std::get<Wait>(spot.op().body).event; event == first || event == second)
      event = event == first ? second : first;
  return pair.bind();
}
bool exchange_streams(PairEditor& pair) {
  const auto [a, b] = pair.two([](const Op& op) { return op.kind() == OpKind::collective; });
  if (!a || a.op().stream == b.op().stream) return false;
  std::swap(a.op().stream, b.op().stream);
  return true;
}
bool wait_after_and_read(PairEditor& pair) {
  const auto wait = pair.any(is_wait);
  const auto next = PairEditor::behind(wait, PairEditor::writes);
  if (!next || next.index != wait.index + 1) return false;
  PairEditor::call_read(next.op());
  std::swap(wait.op(), next.op());
  return pair.bind();
}
bool exchange_acquires(PairEditor& pair) {
  const auto [a, b] = pair.two(is_acquire);
  if (!a) return false;
  std::swap(a.op().body, b.op().body);
  return true;
}
bool exchange_releases(PairEditor& pair) {
  const auto [a, b] = pair.two(is_release);
  if (!a) return false;
  std::swap(a.op().body, b.op().body);
  return true;
}
bool drop_release_and_acquire(PairEditor& pair) {
  const auto release = pair.any(is_release);
  if (!release) return false;
  const BufferId buffer = std::get<Release>(release.op().body).buffer;
  const bool dropped = pair.drop(release);
  return dropped && pair.drop(pair.any([&](const Op& op) {
    return is_acquire(op) && std::get<Acquire>(op.body).buffer == buffer;
  }));
}

// ---- places -------------------------------------------------------------------------------------

/// A buffer begins earlier, and all its operands later in it.
bool shift_buffer_and_operands(PairEditor& pair) {
  std::vector<Buffer*> list;
  for (Buffer& buffer : pair.program().buffers)
    if (buffer.offset.value >= 256 && !PairEditor::is_scratch(buffer)) list.push_back(&buffer);
  Buffer* buffer = pair.any(list);
  if (buffer == nullptr) return false;
  buffer->offset.value -= 256;
  buffer->size.value += 256;
  pair.for_each_operand_in(buffer->id, [](Operand& operand) { operand.offset += 256; });
  return true;
}
bool exchange_places(PairEditor& pair, bool equal) {
  const auto [a, b] = pair.two_buffers(equal, false);
  if (a == nullptr) return false;
  std::swap(a->offset, b->offset);
  return true;
}
bool exchange_places_of_equal(PairEditor& pair) { return exchange_places(pair, true); }
bool exchange_places_of_unequal(PairEditor& pair) { return exchange_places(pair, false); }
/// In every op, lifetimes with them or not.
bool exchange_buffers(PairEditor& pair, bool lifetimes) {
  const auto [a, b] = pair.two_buffers(true, false);
  if (a == nullptr) return false;
  const BufferId one = a->id;
  const BufferId other = b->id;
  const auto turn = [&](BufferId& id) {
    if (id == one || id == other) id = id == one ? other : one;
  };
  for (Op& op : ops_of(pair.program().plans.front())) {
    for_each_operand(op, [&](Operand& operand) { turn(operand.buffer); });
    if (!lifetimes) continue;
    if (auto* acquire = std::get_if<Acquire>(&op.body)) turn(acquire->buffer);
    if (auto* release = std::get_if<Release>(&op.body)) turn(release->buffer);
  }
  return true;
}
bool exchange_buffers_whole(PairEditor& pair) { return exchange_buffers(pair, true); }
bool exchange_buffers_in_operands(PairEditor& pair) { return exchange_buffers(pair, false); }
/// All that a plan, or the whole program, does in one buffer it does in another that stays and is
/// as large: what lies there already is written over, or lies where an op writes too.
bool merge_buffers(PairEditor& pair, std::span<Plan> plans) {
  std::vector<std::pair<BufferId, BufferId>> list;
  for (const Buffer& from : pair.program().buffers)
    for (const Buffer& to : pair.program().buffers)
      if (from.id != to.id && to.persistent && from.size.value <= to.size.value)
        list.emplace_back(from.id, to.id);
  const auto chosen = pair.any(list);
  bool done = false;
  for (Plan& plan : plans) done = move_operands(plan, chosen.first, chosen.second) || done;
  return done;
}
bool merge_buffers_of_a_plan(PairEditor& pair) {
  std::vector<Plan>& plans = pair.program().plans;
  return merge_buffers(pair, std::span(plans).subspan(pair.draw(plans.size()), 1));
}
bool merge_buffers_whole(PairEditor& pair) { return merge_buffers(pair, pair.program().plans); }
/// Moves the operand that makes a value and one that reads it by the same distance.
bool shift_maker_and_reader(PairEditor& pair) {
  const auto maker = pair.any([](const Op& op) { return PairEditor::has(op, rms_norm_forward); });
  if (!maker) return false;
  Operand* made = PairEditor::find(maker.op(), "normed");
  const auto reader = PairEditor::behind(maker, [&](const Op& op) {
    const Operand* input = PairEditor::find(op, "input");
    return PairEditor::has(op, gemm) && input != nullptr && input->buffer == made->buffer;
  });
  if (!reader) return false;
  made->offset += 32;
  PairEditor::find(reader.op(), "input")->offset += 32;
  return true;
}
bool halve_count_and_shapes(PairEditor& pair) {
  const auto spot = pair.any([](const Op& op) { return op.kind() == OpKind::collective; });
  if (!spot) return false;
  auto& collective = std::get<Collective>(spot.op().body);
  for (Operand* operand : {&collective.input, &collective.output})
    for (std::int64_t& dim : operand->shape) dim /= 2;
  collective.count /= 2;
  return true;
}
bool clear_rank_strides(PairEditor& pair) {
  const auto strided = [](const Op& op) {
    bool found = false;
    for_each_operand(
        op, [&](const Operand& operand) { found = found || !operand.rank_strides.empty(); });
    return found;
  };
  const auto [a, b] = pair.two(strided);
  if (!a) return false;
  for (const auto& spot : {a, b})
    for_each_operand(spot.op(), [](Operand& operand) { operand.rank_strides.clear(); });
  return true;
}
/// Each rank takes the slice of another: the last one's begins the buffer.
bool turn_rank_strides(PairEditor& pair) {
  std::set<std::uint32_t> turned;
  for (const auto& spot : pair.all([](const Op&) { return true; }))
    for_each_operand(spot.op(), [&](Operand& operand) {
      if (operand.rank_strides.size() != 1) return;
      if (turned.empty()) turned.insert(operand.buffer.value);
      if (!turned.contains(operand.buffer.value)) return;
      const std::int64_t ranks = pair.program().config.mesh.size(operand.rank_strides[0].axis);
      operand.offset += operand.rank_strides[0].bytes * (ranks - 1);
      operand.rank_strides[0].bytes = -operand.rank_strides[0].bytes;
    });
  return !turned.empty();
}

// ---- types --------------------------------------------------------------------------------------

bool retype(PairEditor& pair, DType from, DType to) {
  std::vector<Buffer*> list;
  for (Buffer& buffer : pair.program().buffers)
    if (buffer.dtype == from) list.push_back(&buffer);
  Buffer* buffer = pair.any(list);
  if (buffer == nullptr) return false;
  buffer->dtype = to;
  pair.for_each_operand_in(buffer->id, [&](Operand& operand) { operand.dtype = to; });
  for (const auto& spot : pair.all([](const Op& op) { return op.kind() == OpKind::collective; }))
    if (auto& collective = std::get<Collective>(spot.op().body);
        collective.input.buffer == buffer->id || collective.output.buffer == buffer->id)
      collective.dtype = to;
  return true;
}
bool retype_half(PairEditor& pair) { return retype(pair, DType::bf16, DType::fp16); }
bool retype_narrower(PairEditor& pair) { return retype(pair, DType::fp32, DType::bf16); }
bool retype_bytes(PairEditor& pair) { return retype(pair, DType::bf16, DType::uint8); }

// ---- values -------------------------------------------------------------------------------------

/// Two blocks take each other's values, and give them to each other.
bool exchange_inputs_and_outputs(PairEditor& pair) {
  const Spots spots = pair.twins(gemm, "output");
  return PairEditor::exchange(spots, "input") && PairEditor::exchange(spots, "output");
}
bool exchange_weights_and_outputs(PairEditor& pair) {
  const Spots spots = pair.twins(gemm, "output");
  return PairEditor::exchange(spots, "weight") && PairEditor::exchange(spots, "output");
}
bool exchange_weights_and_inputs(PairEditor& pair) {
  const Spots spots = pair.twins(gemm, "output");
  return PairEditor::exchange(spots, "weight") && PairEditor::exchange(spots, "input");
}
bool exchange_units_and_weights(PairEditor& pair) {
  const Spots spots = pair.twins(gemm, "weight");
  if (!PairEditor::exchange(spots, "weight")) return false;
  std::swap(spots.first.op().unit, spots.second.op().unit);
  return true;
}
bool exchange_gradients_and_inputs(PairEditor& pair) {
  const Spots spots = pair.twins(gemm, "weight_grad");
  return PairEditor::exchange(spots, "d_output") && PairEditor::exchange(spots, "input");
}
bool exchange_gradients_and_sums(PairEditor& pair) {
  const Spots spots = pair.twins(gemm, "weight_grad");
  return PairEditor::exchange(spots, "weight_grad") && PairEditor::exchange(spots, "input");
}
/// Exchanges key and value of one block.
bool exchange_key_and_value(PairEditor& pair) {
  const auto forward =
      pair.any([](const Op& op) { return PairEditor::has(op, attention_forward); });
  if (!forward) return false;
  const auto backward = pair.any([&](const Op& op) {
    return PairEditor::has(op, attention_backward) && op.unit == forward.op().unit;
  });
  return PairEditor::exchange(forward, "key", "value") &&
         PairEditor::exchange(backward, "key", "value");
}
bool recompute_and_drop_gradient(PairEditor& pair) {
  const auto forward = pair.any([](const Op& op) {
    return PairEditor::has(op, gemm, "output") && op.phase == Phase::forward && op.unit;
  });
  if (!forward) return false;
  const auto unit = forward.op().unit;
  forward.op().phase = Phase::recompute;
  const auto shape = PairEditor::find(forward.op(), "weight")->shape;
  return pair.drop(pair.any([&](const Op& op) {
    const Operand* made = PairEditor::find(op, "weight_grad");
    return PairEditor::has(op, gemm) && made != nullptr && op.unit == unit && made->shape == shape;
  }));
}
bool drop_forward_and_backward(PairEditor& pair, KernelKind forward, KernelKind backward) {
  const auto spot = pair.any([&](const Op& op) { return PairEditor::has(op, forward); });
  if (!spot) return false;
  const auto unit = spot.op().unit;
  if (!pair.drop(spot)) return false;
  return pair.drop(
      pair.any([&](const Op& op) { return PairEditor::has(op, backward) && op.unit == unit; }));
}
bool drop_rotations(PairEditor& pair) {
  return drop_forward_and_backward(pair, rope_forward, rope_backward);
}
bool drop_norms(PairEditor& pair) {
  return drop_forward_and_backward(pair, rms_norm_forward, rms_norm_backward);
}

// ---- sums, scales and updates -------------------------------------------------------------------

bool exchange_betas(PairEditor& pair) {
  const auto adds = [&](std::int64_t beta) {
    return pair.any([&](const Op& op) {
      const Kernel* kernel = PairEditor::kernel(op);
      return PairEditor::has(op, gemm, "weight_grad") && kernel->attribute("beta") == beta;
    });
  };
  const auto begins = adds(0);
  if (!begins) return false;
  const BufferId sum = PairEditor::find(begins.op(), "weight_grad")->buffer;
  const auto goes_on = pair.any([&](const Op& op) {
    return PairEditor::has(op, gemm, "weight_grad") &&
           PairEditor::kernel(op)->attribute("beta") == 1 &&
           PairEditor::find(op, "weight_grad")->buffer == sum;
  });
  return pair.set_beta(begins, "weight_grad", 1) && pair.set_beta(goes_on, "weight_grad", 0);
}
bool exchange_loss_betas(PairEditor& pair) {
  const auto sums = pair.all([](const Op& op) { return PairEditor::has(op, cross_entropy); });
  if (sums.size() < 2) return false;
  return pair.set_beta(sums.front(), "loss_sums", 1) && pair.set_beta(sums.back(), "loss_sums", 0);
}
bool exchange_chunks(PairEditor& pair) {
  const Spots spots = pair.two([](const Op& op) { return PairEditor::has(op, cross_entropy); });
  if (!spots.first) return false;
  std::swap(PairEditor::find(spots.first.op(), "labels")->offset,
            PairEditor::find(spots.second.op(), "labels")->offset);
  return true;
}
bool drop_padding_and_begin(PairEditor& pair) {
  return pair.drop(pair.any([](const Op& op) { return PairEditor::has(op, zero_padding); })) &&
         pair.set_beta(
             pair.any([](const Op& op) { return PairEditor::has(op, gemm, "weight_grad"); }),
             "weight_grad", 1);
}
bool drop_reduction_and_accumulate(PairEditor& pair) {
  const auto reduce = pair.any([](const Op& op) {
    return PairEditor::gathers_or_reduces(op, CollectiveKind::reduce_scatter) ||
           PairEditor::gathers_or_reduces(op, CollectiveKind::all_to_all);
  });
  if (!reduce) return false;
  const BufferId output = std::get<Collective>(reduce.op().body).output.buffer;
  return pair.drop(reduce) && pair.drop(pair.any([&](const Op& op) {
    const Operand* input = PairEditor::find(op, "input");
    return (PairEditor::has(op, accumulate) || PairEditor::has(op, sum_ranks) ||
            PairEditor::has(op, norm_partial)) &&
           input != nullptr && input->buffer == output;
  }));
}
bool exchange_partials(PairEditor& pair) {
  const Spots spots = pair.two([](const Op& op) { return PairEditor::has(op, norm_partial); });
  if (!spots.first) return false;
  std::swap(PairEditor::find(spots.first.op(), "output")->offset,
            PairEditor::find(spots.second.op(), "output")->offset);
  return true;
}
bool one_partial_less(PairEditor& pair) {
  const Spots spots = pair.two([](const Op& op) { return PairEditor::has(op, norm_partial); });
  const auto finish = pair.any([](const Op& op) { return PairEditor::has(op, norm_finish); });
  if (!spots.first || !finish) return false;
  PairEditor::find(spots.first.op(), "output")->offset =
      PairEditor::find(spots.second.op(), "output")->offset;
  return pair.set(finish, "groups", PairEditor::kernel(finish.op())->attribute("groups") - 1);
}
bool exchange_loss_and_norm(PairEditor& pair) {
  bool done = false;
  for (const auto& spot : pair.all([](const Op& op) { return PairEditor::has(op, update); }))
    done = PairEditor::exchange(spot, "loss", "norm") || done;
  return done;
}
bool exchange_moments(PairEditor& pair) {
  bool done = false;
  for (const auto& spot : pair.all([](const Op& op) { return PairEditor::has(op, update); }))
    done = PairEditor::exchange(spot, "exp_avg", "exp_avg_sq") || done;
  return done;
}
bool exchange_moments_and_names(PairEditor& pair) {
  for (Buffer& buffer : pair.program().buffers)
    if (buffer.holds && buffer.holds->kind == ContentKind::optimizer_state)
      buffer.holds->state = buffer.holds->state == "exp_avg" ? "exp_avg_sq" : "exp_avg";
  return exchange_moments(pair);
}
bool exchange_updates(PairEditor& pair, std::string_view one, std::string_view other) {
  const Spots spots = pair.twins(update, one);
  return PairEditor::exchange(spots, one) && PairEditor::exchange(spots, other);
}
bool exchange_main_weights(PairEditor& pair) {
  return exchange_updates(pair, "main_weight", "weight");
}
bool exchange_gradients(PairEditor& pair) { return exchange_updates(pair, "grad", "weight"); }
bool exchange_first_moments(PairEditor& pair) {
  return exchange_updates(pair, "exp_avg", "exp_avg_sq");
}

// ---- bindings -----------------------------------------------------------------------------------

std::pair<Group*, Group*> two_groups(PairEditor& pair) {
  std::vector<std::pair<Group*, Group*>> list;
  for (Group& a : pair.program().groups)
    for (Group& b : pair.program().groups)
      if (a.id.value < b.id.value && a.elements == b.elements && a.requires_grad == b.requires_grad)
        list.emplace_back(&a, &b);
  return pair.any(list);
}
bool exchange_groups(PairEditor& pair) {
  const auto [a, b] = two_groups(pair);
  if (a == nullptr) return false;
  std::swap(a->unit, b->unit);
  std::swap(a->parameters, b->parameters);
  return true;
}
bool exchange_gathers(PairEditor& pair) {
  const Spots spots = pair.two(
      [](const Op& op) { return PairEditor::gathers_or_reduces(op, CollectiveKind::all_gather); });
  if (!spots.first) return false;
  auto& a = std::get<Collective>(spots.first.op().body);
  auto& b = std::get<Collective>(spots.second.op().body);
  if (a.count != b.count || a.input.buffer == b.input.buffer) return false;
  std::swap(a.input, b.input);
  std::swap(spots.first.op().group, spots.second.op().group);
  return true;
}
bool shift_parameter_and_uses(PairEditor& pair) {
  std::vector<Group*> list;
  for (Group& group : pair.program().groups)
    if (group.parameters.size() > 1) list.push_back(&group);
  Group* group = pair.any(list);
  if (group == nullptr) return false;
  const std::int64_t from = group->parameters[0].offset;
  group->parameters[0].offset += 8;  // into the padding after it
  for (const Buffer& buffer : pair.program().buffers) {
    if (!buffer.holds || buffer.holds->groups.size() != 1 ||
        buffer.holds->groups[0].group != group->id)
      continue;
    const std::int64_t size = size_of(buffer.dtype);
    pair.for_each_operand_in(buffer.id, [&](Operand& operand) {
      if (operand.shape == group->parameters[0].shape && operand.offset == from * size)
        operand.offset += 8 * size;
    });
  }
  return true;
}
bool exchange_communicators(PairEditor& pair) {
  const auto gather = pair.any(
      [](const Op& op) { return PairEditor::gathers_or_reduces(op, CollectiveKind::all_gather); });
  const auto reduce = pair.any([](const Op& op) {
    return PairEditor::gathers_or_reduces(op, CollectiveKind::reduce_scatter);
  });
  if (!gather || !reduce) return false;
  std::swap(std::get<Collective>(gather.op().body).communicator,
            std::get<Collective>(reduce.op().body).communicator);
  return true;
}
bool repeat_and_microbatches(PairEditor& pair) {
  std::vector<Segment*> list;
  for (Segment& segment : pair.program().plans.front().segments)
    if (segment.microbatches > 0) list.push_back(&segment);
  if (list.size() < 2) return false;
  list.front()->repeat += 1;
  list.back()->microbatches = 0;
  return pair.bind();
}

struct Pattern {
  std::string_view name;
  bool (*apply)(PairEditor&) = nullptr;
};

constexpr std::array kPatterns{
    Pattern{"access read, wait dropped", read_and_drop_wait},
    Pattern{"access read, record before it", read_and_move_record},
    Pattern{"access read, wait after it", wait_after_and_read},
    Pattern{"two waits exchanged", exchange_waits},
    Pattern{"two records exchanged", exchange_records},
    Pattern{"waits of two records exchanged", exchange_records_and_waits},
    Pattern{"streams of two collectives exchanged", exchange_streams},
    Pattern{"two acquires exchanged", exchange_acquires},
    Pattern{"two releases exchanged", exchange_releases},
    Pattern{"release and acquire dropped", drop_release_and_acquire},
    Pattern{"buffer earlier, operands later", shift_buffer_and_operands},
    Pattern{"places of equal buffers exchanged", exchange_places_of_equal},
    Pattern{"places of unequal buffers exchanged", exchange_places_of_unequal},
    Pattern{"buffers exchanged everywhere", exchange_buffers_whole},
    Pattern{"buffers exchanged but for lifetimes", exchange_buffers_in_operands},
    Pattern{"one buffer for two in a plan", merge_buffers_of_a_plan},
    Pattern{"one buffer for two everywhere", merge_buffers_whole},
    Pattern{"maker and one reader shifted", shift_maker_and_reader},
    Pattern{"count and shapes halved", halve_count_and_shapes},
    Pattern{"rank strides of two ops cleared", clear_rank_strides},
    Pattern{"ranks' slices in opposite order", turn_rank_strides},
    Pattern{"bf16 buffer and operands fp16", retype_half},
    Pattern{"fp32 buffer and operands bf16", retype_narrower},
    Pattern{"bf16 buffer and operands uint8", retype_bytes},
    Pattern{"inputs and outputs of two blocks", exchange_inputs_and_outputs},
    Pattern{"weights and outputs of two blocks", exchange_weights_and_outputs},
    Pattern{"weights and inputs of two blocks", exchange_weights_and_inputs},
    Pattern{"weights and units of two ops", exchange_units_and_weights},
    Pattern{"inputs of two weight gradients", exchange_gradients_and_inputs},
    Pattern{"inputs and sums of weight gradients", exchange_gradients_and_sums},
    Pattern{"key and value, forward and backward", exchange_key_and_value},
    Pattern{"forward recomputes, gradient dropped", recompute_and_drop_gradient},
    Pattern{"rotation dropped, forward and backward", drop_rotations},
    Pattern{"norm dropped, forward and backward", drop_norms},
    Pattern{"one sum begins, another goes on", exchange_betas},
    Pattern{"loss begins at the last chunk", exchange_loss_betas},
    Pattern{"labels of two chunks", exchange_chunks},
    Pattern{"padding not cleared, sum not begun", drop_padding_and_begin},
    Pattern{"reduction and its reader dropped", drop_reduction_and_accumulate},
    Pattern{"partial norms of two groups", exchange_partials},
    Pattern{"one partial over another, one less", one_partial_less},
    Pattern{"loss for norm, norm for loss", exchange_loss_and_norm},
    Pattern{"moments exchanged", exchange_moments},
    Pattern{"moments and their names exchanged", exchange_moments_and_names},
    Pattern{"main weights and weights of two groups", exchange_main_weights},
    Pattern{"gradients and weights of two groups", exchange_gradients},
    Pattern{"both moments of two groups", exchange_first_moments},
    Pattern{"units and parameters of two groups", exchange_groups},
    Pattern{"two gathers take each other's slices", exchange_gathers},
    Pattern{"parameter and its uses shifted", shift_parameter_and_uses},
    Pattern{"communicators of gather and reduction", exchange_communicators},
    Pattern{"one segment more, another less", repeat_and_microbatches},
};

/// For each that is wanted: not every place that is drawn is one.
constexpr std::size_t kTries = 16;

constexpr auto kNames = [] {
  std::array<std::string_view, kPatterns.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names.at(i) = kPatterns.at(i).name;
  return names;
}();

}  // namespace

std::span<const std::string_view> edit_pairs() { return kNames; }

std::vector<FieldMutant> pair_mutants(const Program& program, std::size_t per_pattern,
                                      std::uint64_t seed) {
  const auto plan = nlohmann::json::parse(to_canonical_json(program));
  std::vector<FieldMutant> list;
  std::mt19937_64 random(seed);
  for (const Pattern& pattern : kPatterns) {
    std::set<std::string> seen;
    for (std::size_t tries = 0; tries < kTries * per_pattern && seen.size() < per_pattern;
         ++tries) {
      Program edited = program;
      PairEditor pair(edited, random);
      if (!pattern.apply(pair) || edited == program) continue;
      if (!seen.insert(plan_hash(edited)).second) continue;
      const auto patch =
          nlohmann::json::diff(plan, nlohmann::json::parse(to_canonical_json(edited)));
      list.push_back({.number = std::ssize(list),
                      .field = std::string(pattern.name),
                      .place = fmt::format("{} changes", patch.size()),
                      .edit = FieldEdit::pair,
                      .before = {},
                      .after = patch.empty() ? "" : patch[0].dump().substr(0, 120),
                      .patch = patch.dump()});
    }
  }
  return list;
}

}  // namespace mfsdp
