#include "verify/proof/values/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/plan/instances.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/order/overlap.hpp"
#include "verify/proof/values/configured_model.hpp"
#include "verify/proof/values/kernel_operands.hpp"
#include "verify/proof/values/rank_config.hpp"

namespace mfsdp {
namespace {

/// The forms that fit. Most kernels of a plan are like one before, with other buffers: those need
/// a comparison and no proof of their own.
class FittingForms {
 public:
  /// Whether a kernel differs from one that fits in nothing that counts.
  [[nodiscard]] bool has(const Kernel& kernel, std::size_t hash) const {
    const auto found = forms_.find(hash);
    return found != forms_.end() && alike(*found->second.kernel, kernel) &&
           std::ranges::all_of(found->second.columns,
                               [&](const ColumnOf& column) { return column.fits(kernel); });
  }

  void add(const Kernel& kernel, std::size_t hash, std::vector<ColumnOf> columns) {
    if (forms_.size() < kMostForms) forms_.try_emplace(hash, &kernel, std::move(columns));
  }

  /// Equal for kernels that are alike, and mostly for no others.
  [[nodiscard]] static std::size_t hash_of(const Kernel& kernel) {
    auto hash = static_cast<std::uint64_t>(kernel.kind);
    const auto mix = [&](std::uint64_t value) {
      hash = (hash ^ value) * 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio, odd
      hash ^= hash >> 29U;
    };
    mix(kernel.operands.size());
    for (const Attribute& attribute : kernel.attributes)
      mix(static_cast<std::uint64_t>(attribute.value.num) ^
          static_cast<std::uint64_t>(attribute.value.den - 1) << 32U);
    if (!kernel.operands.empty())
      for (const std::int64_t dim : kernel.operands.front().shape)
        mix(static_cast<std::uint64_t>(dim));
    return hash;
  }

 private:
  struct Form {
    const Kernel* kernel = nullptr;
    std::vector<ColumnOf> columns;
  };

  /// Buffers, offsets and FLOPs may differ.
  static bool alike(const Kernel& a, const Kernel& b) {
    return a.kind == b.kind && a.attributes == b.attributes &&
           std::ranges::equal(a.operands, b.operands, [](const Operand& x, const Operand& y) {
             return x.access == y.access && x.dtype == y.dtype && x.role == y.role &&
                    x.shape == y.shape && x.strides == y.strides &&
                    (x.role != "workspace" ||
                     x.offset % kWorkspaceAlignment == y.offset % kWorkspaceAlignment);
           });
  }

  static constexpr std::size_t kMostForms = 1024;

  std::unordered_map<std::size_t, Form> forms_;
};

class ProgramForms {
 public:
  ProgramForms(const Program& program, const ProgramIndex& index, FindingList& findings)
      : program_(program),
        index_(index),
        findings_(findings),
        of_model_(computes_model(program, index)),
        config_(config_on_rank(program.config)) {}

  void run() {
    for (const Plan& plan : program_.plans)
      for (std::size_t list = 0; list < count_op_lists(plan); ++list) {
        for (const Op& op : op_list(plan, list)) {
          where_ = {&plan, &op};
          check(op);
        }
        if (list < plan.segments.size()) check_recomputed(plan, list);
      }
  }

 private:
  /// A forward kernel, by the parameter and the rows that it works on.
  struct Computed {
    KernelKind kind = KernelKind::gemm;
    std::uint32_t group = 0;
    std::int64_t weight = 0;  ///< bytes into the group
    std::int64_t input = 0;   ///< bytes into its buffer

    friend auto operator<=>(const Computed&, const Computed&) = default;
  };

  /// Nothing where the op has no parameter.
  [[nodiscard]] std::optional<Computed> computed_by(const Op& op) const {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel == nullptr || !is_forward(*kernel)) return std::nullopt;
    const bool casts = casts_to_fp8(kernel->kind);
    const Operand* weight = operand_of(*kernel, casts ? "input" : "weight");
    if (weight == nullptr || kernel->operands.empty()) return std::nullopt;
    const Buffer& buffer = program_.buffers[*index_.buffers.find(weight->buffer)];
    if (!buffer.holds) return std::nullopt;
    const HeldGroup* held = nullptr;  // the last that begins at or before the weight
    for (const HeldGroup& other : buffer.holds->groups)
      if (other.offset <= weight->offset && (held == nullptr || other.offset > held->offset))
        held = &other;
    if (held == nullptr) return std::nullopt;
    return Computed{.kind = kernel->kind,
                    .group = held->group.value,
                    .weight = weight->offset - held->offset,
                    .input = kernel->operands.front().offset};
  }

  /// Uses of parameters in recomputation get no gradient: in this microbatch each
  /// was computed once before. Segments of several microbatches, and those in which none begins, are
  /// left to what follows microbatches.
  void check_recomputed(const Plan& plan, std::size_t segment) {
    std::vector<const Op*> ops;
    for_each_op_of_run(plan, segment, [&](const Op& op) { ops.push_back(&op); });
    const bool again_at_all = std::ranges::find(ops, Phase::recompute, &Op::phase) != ops.end();
    const bool of_several =
        std::ranges::any_of(ops, [](const Op* op) { return op->lag != 0; }) ||
        std::ranges::any_of(plan.segments[segment].calls,
                            [](const PassCall& call) { return call != PassCall{call.pass}; });
    if (!again_at_all || of_several || plan.segments[segment].microbatches == 0) return;
    std::vector<Computed> first;
    for (const Op* op : ops) {
      if (op->phase == Phase::recompute) continue;
      if (const auto computed = computed_by(*op)) first.push_back(*computed);
    }
    std::ranges::sort(first);
    for (const Op* op : ops) {
      if (op->phase != Phase::recompute) continue;
      const auto again = computed_by(*op);
      if (!again || std::ranges::binary_search(first, *again)) continue;
      where_ = {&plan, op};
      report("is marked as recomputation, but no forward op of its microbatch computes the same");
    }
  }

  void check(const Op& op) {
    if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
      for (const Operand& operand : kernel->operands)
        check(operand, MemorySpace::device, is_update(*kernel) || is_momentum(*kernel));
      check_form(*kernel);
    }
    using enum MemorySpace;
    if (const auto* collective = std::get_if<Collective>(&op.body)) {
      if (collective->kind != CollectiveKind::recv)
        check_end(collective->input, "input", Access::read, device);
      if (collective->kind != CollectiveKind::send)
        check_end(collective->output, "output", Access::write, device);
    }
    if (const auto* copy = std::get_if<Copy>(&op.body)) {
      check_end(copy->input, "input", Access::read, copy->kind == CopyKind::h2d ? host : device);
      check_end(copy->output, "output", Access::write, copy->kind == CopyKind::d2h ? host : device);
      for (const Operand* end : {&copy->input, &copy->output})
        if (!is_contiguous(*end)) report(fmt::format("operand '{}' is not contiguous", end->role));
    }
  }

  void check_form(const Kernel& kernel) {
    const std::size_t hash = FittingForms::hash_of(kernel);
    if (fitting_.has(kernel, hash)) return;
    if (const auto wrong = kernel_fault(kernel, config_, of_model_))
      report(fmt::format("{}: {}", to_string(kernel.kind), *wrong));
    else
      fitting_.add(kernel, hash, columns_of(kernel));
  }

  /// Checks an operand of a collective or a copy.
  void check_end(const Operand& operand, std::string_view role, Access access, MemorySpace space) {
    if (operand.role != role || operand.access != access)
      report(fmt::format("has operand '{1}' with access {0}; expected '{3}' with access {2}",
                         to_string(operand.access), operand.role, to_string(access), role));
    if (operand.stated()) check(operand, space, false);
  }

  /// Only updates write optimizer states and main parameters.
  void check_kept(const Operand& operand, const Buffer& buffer) {
    const bool kept = buffer.holds && (buffer.holds->kind == ContentKind::main_parameter ||
                                       buffer.holds->kind == ContentKind::optimizer_state);
    if (kept && operand.access != Access::read)
      report(fmt::format("operand '{}' has access {} in buffer '{}', which only updates may write",
                         operand.role, to_string(operand.access), buffer.name));
  }

  /// Only slices lie elsewhere on other ranks: values are followed on one rank for all.
  void check_ranks(const Operand& operand, const Buffer& buffer) {
    const bool of_slices = buffer.holds && buffer.holds->kind != ContentKind::port;
    const bool moves = std::ranges::any_of(operand.rank_strides, [&](const RankStride& stride) {
      return stride.bytes != 0 && program_.config.mesh.size(stride.axis) > 1;
    });
    if (moves && !of_slices)
      report(
          fmt::format("operand '{}' is at another offset on each rank, but its buffer '{}' holds "
                      "no shards",
                      operand.role, buffer.name));
  }

  void check(const Operand& operand, MemorySpace space, bool of_update) {
    const Buffer& buffer = program_.buffers[*index_.buffers.find(operand.buffer)];
    const Pool& pool = program_.pools[*index_.pools.find(buffer.pool)];
    if (pool.space != space)
      report(fmt::format("operand '{}' is in pool '{}' of the {}; expected a pool of the {}",
                         operand.role, pool.name, to_string(pool.space), to_string(space)));
    if (operand.dtype != buffer.dtype)
      report(fmt::format("operand '{}' has dtype {} in buffer '{}', which has dtype {}",
                         operand.role, to_string(operand.dtype), buffer.name,
                         to_string(buffer.dtype)));
    if (!of_update) check_kept(operand, buffer);
    if (of_model_) check_ranks(operand, buffer);
    // Heads, and columns: the rows that an operand has are those of its buffer, be they wide or
    // narrow.
    const bool columns = operand.shape.size() == 2 && operand.strides.size() == 2;
    if (operand.shape.size() != 3 && !columns) return;
    const std::int64_t row = operand.strides.empty()
                                 ? checked_mul(operand.shape[1], operand.shape[2])
                                 : operand.strides.front();
    const std::int64_t rows =
        checked_mul(checked_mul(operand.shape[0], row), size_of(operand.dtype));
    if (rows != buffer.size.value)
      report(fmt::format("operand '{}' has rows of {} bytes in all, but buffer '{}' has {} bytes",
                         operand.role, rows, buffer.name, buffer.size.value));
  }

  void report(const std::string& what) {
    if (!findings_.wants("MF007")) return;
    const auto& [plan, op] = where_;
    findings_.add(
        {.rule = "MF007",
         .message = fmt::format("{}/{} op {} ({}): {}", plan->name,
                                place_in_plan(*plan, *op).segment, op->id.value, op->name, what)});
  }

  struct Where {
    const Plan* plan = nullptr;
    const Op* op = nullptr;
  };

  const Program& program_;
  const ProgramIndex& index_;
  FindingList& findings_;
  bool of_model_;
  PlanConfig config_;  ///< as one rank's kernels have it
  FittingForms fitting_;
  Where where_;
};

}  // namespace

void check_kernels(const Program& program, const ProgramIndex& index, FindingList& findings) {
  ProgramForms(program, index, findings).run();
}

}  // namespace mfsdp
