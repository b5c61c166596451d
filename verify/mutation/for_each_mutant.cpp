#include <algorithm>

#include "core/plan/instances.hpp"
#include "verify/mutation/mutant.hpp"
#include "verify/mutation/operands.hpp"

namespace mfsdp {
namespace {

using enum MutantKind;

/// Another dtype of the same size, and one of another size.
constexpr std::array<DType, 2> others(DType dtype) {
  switch (dtype) {
    case DType::bf16: return {DType::fp16, DType::fp32};
    case DType::fp16: return {DType::bf16, DType::fp32};
    case DType::fp32: return {DType::int32, DType::bf16};
    case DType::fp64: return {DType::int64, DType::fp32};
    case DType::int32: return {DType::fp32, DType::int64};
    case DType::int64: return {DType::fp64, DType::int32};
    case DType::uint8: return {DType::fp8_e4m3, DType::int32};
    case DType::fp8_e4m3: return {DType::fp8_e5m2, DType::bf16};
    case DType::fp8_e5m2: return {DType::fp8_e4m3, DType::bf16};
    case DType::fp4_e2m1x2: return {DType::fp8_e4m3, DType::uint8};
    case DType::e8m0: return {DType::fp8_e4m3, DType::uint8};
  }
  return {dtype, dtype};
}

class Enumeration {
 public:
  Enumeration(const Program& program, const std::function<bool(const Mutant&)>& visit)
      : program_(program), visit_(visit) {}

  void run() {
    for (std::size_t p = 0; p < program_.plans.size(); ++p)
      for (std::size_t list = 0; list < count_op_lists(program_.plans[p]); ++list) {
        at_ = {.plan = static_cast<std::uint32_t>(p), .list = static_cast<std::uint32_t>(list)};
        if (list < program_.plans[p].segments.size())
          mutate_segment(program_.plans[p].segments[list]);
        const std::vector<Op>& ops = op_list(program_.plans[p], list);
        for (std::size_t i = 0; i < ops.size() && !ended_; ++i) {
          at_.index = static_cast<std::uint32_t>(i);
          mutate_order();
          if (ops[i].lag > 0) by(change_lag, 0, 0, 1);
          std::visit([this](const auto& body) { mutate(body); }, ops[i].body);
        }
      }
    at_ = {};
    mutate_buffers();
    mutate_groups();
  }

 private:
  void add(MutantKind kind, std::size_t part = 0, std::size_t dim = 0, std::int64_t amount = 0) {
    if (ended_) return;
    Mutant mutant = at_;
    mutant.kind = kind;
    mutant.part = static_cast<std::uint32_t>(part);
    mutant.dim = static_cast<std::uint32_t>(dim);
    mutant.by = amount;
    ended_ = !visit_(mutant);
  }
  void by(MutantKind kind, std::size_t part, std::size_t dim, std::int64_t amount) {
    add(kind, part, dim, amount);
    add(kind, part, dim, -amount);
  }
  void dtypes(MutantKind kind, std::size_t part, DType dtype) {
    for (const DType other : others(dtype)) add(kind, part, 0, static_cast<std::int64_t>(other));
  }

  void mutate_segment(const Segment& segment) {
    by(change_repeat, 0, 0, 1);
    by(change_microbatches, 0, 0, 1);
    for (std::size_t call = 0; call < segment.calls.size(); ++call) by(change_call_lag, call, 0, 1);
  }

  void mutate_order() {
    add(swap_neighbours);
    add(swap_on_stream);
    add(change_stream);
    add(change_op_group);
  }

  void mutate(const Wait& wait) { mutate_wait(wait); }
  void mutate(const HostWait& wait) { mutate_wait(wait); }
  void mutate_wait(const auto& wait) {
    add(drop_wait);
    const auto event = std::ranges::find(program_.events, wait.event, &Event::id);
    if (event == program_.events.end() || !event->instances) return;
    for (std::size_t i = 0; i < wait.bindings.size(); ++i) by(change_distance, i, 0, 1);
  }
  void mutate(const Record&) { add(drop_record); }
  void mutate(const Acquire&) {
    add(drop_acquire);
    add(acquire_late);
  }
  void mutate(const Release&) {
    add(drop_release);
    add(release_early);
  }
  void mutate(const GroupBegin&) {}
  void mutate(const GroupEnd&) {}

  void mutate(const Kernel& kernel) {
    add(drop_kernel);
    add(double_kernel);
    for (std::size_t i = 0; i < kernel.attributes.size(); ++i) by(change_attribute, i, 0, 1);
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      const Operand& operand = kernel.operands[i];
      mutate_operand(operand, i);
      dtypes(change_dtype, i, operand.dtype);
      if (operand.role == "loss" || operand.role == "norm") add(change_scale, i);
      for (std::size_t dim = 0; dim < operand.shape.size(); ++dim) by(change_shape, i, dim, 1);
    }
  }

  void mutate(const Copy& copy) {
    add(drop_copy);
    mutate_operand(copy.input, 0);
    mutate_operand(copy.output, 1);
    dtypes(change_dtype, 0, copy.input.dtype);
    dtypes(change_dtype, 1, copy.output.dtype);
    for (std::size_t dim = 0; dim < copy.input.shape.size(); ++dim) by(change_shape, 0, dim, 1);
  }

  void mutate(const Collective& collective) {
    add(drop_collective);
    add(double_collective);
    add(reorder_collectives, 0);
    add(reorder_collectives, 1);
    mutate_operand(collective.input, 0);
    mutate_operand(collective.output, 1);
    for (const std::size_t with_operands : {0, 1}) by(change_count, with_operands, 0, 1);
    for (const std::size_t part : {kCollectiveAlone, kWholeCollective})
      dtypes(change_dtype, part, collective.dtype);
    add(change_reduction);
    add(change_collective, 0, 0, 1);
    add(change_collective, 0, 0, 2);
    add(change_communicator);
    if (collective.peer) by(change_peer, 0, 0, 1);
  }

  void mutate_operand(const Operand& operand, std::size_t part) {
    if (!operand.stated()) return;
    by(shift_operand, part, 0, size_of(operand.dtype));
    for (std::size_t i = 0; i < operand.rank_strides.size(); ++i)
      by(shift_rank, part, i, size_of(operand.dtype));
  }

  void mutate_buffers() {
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      at_.index = static_cast<std::uint32_t>(i);
      const auto pool = std::ranges::find(program_.pools, buffer.pool, &Pool::id);
      by(shift_buffer, 0, 0, pool == program_.pools.end() ? 1 : pool->alignment);
      dtypes(change_buffer_dtype, 0, buffer.dtype);
      if (buffer.holds) mutate_contents(*buffer.holds, buffer.dtype);
      if (buffer.instances) by(change_instances, 0, 0, 1);
    }
    for (std::size_t i = 0; i < program_.events.size(); ++i) {
      at_.index = static_cast<std::uint32_t>(i);
      if (program_.events[i].instances) by(change_instances, 1, 0, 1);
    }
  }

  void mutate_contents(const Contents& holds, DType dtype) {
    if (holds.port) return add_part(change_contents, ContentsPart::port);
    for (std::size_t g = 0; g < holds.groups.size(); ++g) by(shift_group, g, 0, size_of(dtype));
    add_part(change_contents, ContentsPart::group);
    add_part(change_contents, ContentsPart::placement);
    add_part(change_contents, ContentsPart::kind);
  }
  void add_part(MutantKind kind, auto part) { add(kind, static_cast<std::size_t>(part)); }

  void mutate_groups() {
    for (std::size_t i = 0; i < program_.groups.size(); ++i) {
      const Group& group = program_.groups[i];
      at_.index = static_cast<std::uint32_t>(i);
      for (const PlacementPart part : {PlacementPart::weight, PlacementPart::gradient,
                                       PlacementPart::state, PlacementPart::reduce})
        add_part(change_placement, part);
      dtypes(change_group_dtype, 0, group.dtype);
      for (std::size_t p = 0; p < group.parameters.size(); ++p) by(shift_parameter, p, 0, 1);
    }
  }

  const Program& program_;
  const std::function<bool(const Mutant&)>& visit_;
  Mutant at_;
  bool ended_ = false;
};

}  // namespace

void for_each_mutant(const Program& program, const std::function<bool(const Mutant&)>& visit) {
  Enumeration(program, visit).run();
}

}  // namespace mfsdp
