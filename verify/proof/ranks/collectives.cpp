#include "verify/proof/ranks/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/instances.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

bool can_be_summed(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32 ||
         dtype == DType::fp64;
}

/// A message where a collective does not fit its operands; else empty.
std::string misfit(const Collective& collective, std::int64_t size) {
  if (is_point_to_point(collective.kind)) {
    const bool sends = collective.kind == CollectiveKind::send;
    const Operand& operand = sends ? collective.input : collective.output;
    if (operand.elements() != collective.count || operand.dtype != collective.dtype)
      return fmt::format("is a {} of {} {}, but its operand is {} {}", to_string(collective.kind),
                         collective.count, to_string(collective.dtype), operand.elements(),
                         to_string(operand.dtype));
    if (collective.reduction != Reduction::none)
      return fmt::format("is a {} with reduction '{}'", to_string(collective.kind),
                         to_string(collective.reduction));
    return is_contiguous(operand) ? "" : "has an operand that is not contiguous";
  }
  const auto per_rank = Int128{collective.count};
  const bool gathers = collective.kind == CollectiveKind::all_gather;
  const bool passes = collective.kind == CollectiveKind::shift;
  const bool moves = gathers || passes || collective.kind == CollectiveKind::all_to_all;
  const bool is_of_one = passes || collective.kind == CollectiveKind::all_reduce;
  const Int128 whole = is_of_one ? per_rank : per_rank * size;
  const Int128 input = gathers ? per_rank : whole;
  const Int128 output = collective.kind == CollectiveKind::reduce_scatter ? per_rank : whole;
  if (collective.input.elements() != input || collective.output.elements() != output)
    return fmt::format(
        "is a {} of count {} over {} ranks, but its input has {} and its output {} "
        "elements",
        to_string(collective.kind), collective.count, size, collective.input.elements(),
        collective.output.elements());
  if (collective.input.dtype != collective.dtype || collective.output.dtype != collective.dtype)
    return fmt::format("states dtype {}, but its operands are {} and {}",
                       to_string(collective.dtype), to_string(collective.input.dtype),
                       to_string(collective.output.dtype));
  const bool takes_max = collective.reduction == Reduction::max;
  if ((collective.reduction == Reduction::none) != moves ||
      (takes_max &&
       (collective.kind != CollectiveKind::all_reduce || collective.dtype != DType::fp32)))
    return fmt::format("is a {} of {} with reduction '{}'", to_string(collective.kind),
                       to_string(collective.dtype), to_string(collective.reduction));
  if (!is_contiguous(collective.input) || !is_contiguous(collective.output))
    return "has an operand that is not contiguous";
  return {};
}

/// Ranks of tp, and those of cp, add counts of the experts that their rows have.
bool sums_counts(const Collective& collective, const Communicator& communicator) {
  return collective.dtype == DType::int32 && collective.kind == CollectiveKind::all_reduce &&
         (communicator.axes == std::vector{Axis::tp} || communicator.axes == std::vector{Axis::cp});
}

/// Whether a communicator is over an axis of a grid, but for pp, which is of both.
bool has_any(const std::vector<MeshAxis>& grid, const Communicator& communicator) {
  return std::ranges::any_of(grid, [&](const MeshAxis& on) {
    return on.axis != Axis::pp && on.size > 1 &&
           std::ranges::find(communicator.axes, on.axis) != communicator.axes.end();
  });
}

using Chains = std::vector<std::vector<std::uint32_t>>;

/// Whether one instance of each chain can be chosen such that none is before another (Garg and
/// Waldecker's weak conjunctive predicate): whatever precedes another chain's candidate can never
/// be chosen beside it or anything after it.
bool have_concurrent(const UnrolledPlan& unrolled, const Chains& chains, std::uint32_t members) {
  std::vector<std::size_t> at(chains.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t a = 0; a < chains.size(); ++a)
      for (std::size_t b = 0; b < chains.size(); ++b) {
        if (a == b || (members >> a & 1U) == 0 || (members >> b & 1U) == 0) continue;
        while (unrolled.before(chains[a][at[a]], chains[b][at[b]])) {
          if (++at[a] == chains[a].size()) return false;
          moved = true;
        }
      }
  }
  return true;
}

/// Largest magnitudes of shards of weights, which model_values.cpp follows, lie beside all else.
bool is_of_magnitudes(const Program& program, const ProgramIndex& index,
                      const Collective& collective) {
  const Buffer& buffer = program.buffers[index.buffers[collective.output.buffer]];
  const bool of_history = buffer.holds && buffer.holds->port == Port::amax_history;
  return of_history || (program.config.fp8_gather && !buffer.holds);
}

}  // namespace

void check_collective_shapes(const Program& program, const ProgramIndex& index, bool of_model,
                             FindingList& findings) {
  const Mesh& mesh = program.config.mesh;
  for (const Communicator& communicator : program.communicators)
    if (has_any(mesh.dense, communicator) && has_any(mesh.experts, communicator) &&
        findings.wants("MF204"))
      findings.add({.rule = "MF204",
                    .message = fmt::format("communicator {} has axes of the dense mesh and of the "
                                           "expert mesh; expected axes of one",
                                           communicator.id.value)});
  for (const Plan& plan : program.plans)
    for (const Op& op : ops_of(plan)) {
      const auto* collective = std::get_if<Collective>(&op.body);
      if (collective == nullptr) continue;
      const Communicator& communicator =
          program.communicators[index.communicators[collective->communicator]];
      std::string why = misfit(*collective, communicator.size);
      if (of_model && why.empty() && collective->reduction == Reduction::max &&
          !is_of_magnitudes(program, index, *collective))
        why = "takes the maximum of values of the model, which has none over ranks";
      if (of_model && why.empty() && collective->reduction == Reduction::sum &&
          !can_be_summed(collective->dtype) && !sums_counts(*collective, communicator))
        why =
            fmt::format("sums {}; expected bf16, fp16, fp32 or fp64", to_string(collective->dtype));
      if (why.empty() || !findings.wants("MF204")) continue;
      const std::size_t stream = index.streams[op.stream];
      findings.add({.rule = "MF204",
                    .message = fmt::format("op {} ({}) {}", op.id.value, op.name, why),
                    .places = {place_in_plan(plan, op,
                                             std::string(to_string(program.streams[stream].role)))},
                    .buffer = collective->output.stated() ? collective->output.buffer
                                                          : collective->input.buffer});
    }
}

std::int64_t concurrent_collectives(const UnrolledPlan& unrolled) {
  constexpr std::size_t kMostChains = 10;  // subsets are tried; a plan has four communicators
  Chains chains(unrolled.program->communicators.size());
  for (std::uint32_t i = 0; i < unrolled.instances.size(); ++i)
    if (const OpFacts& facts = unrolled.facts(i); facts.kind == OpKind::collective)
      chains[facts.subject].push_back(i);
  std::erase_if(chains, [](const auto& chain) { return chain.empty(); });
  if (chains.size() > kMostChains) return std::ssize(chains);
  int most = 0;
  for (std::uint32_t members = 1; members < 1U << chains.size(); ++members)
    if (__builtin_popcount(members) > most && have_concurrent(unrolled, chains, members))
      most = __builtin_popcount(members);
  return most;
}

}  // namespace mfsdp
