// The plans whose mutants are judged, and how many of them: few by default, all with
// MFSDP_MUTATION=full.
#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/verify/mutation/llama_run.hpp"
#include "verify/mutation/mutate.hpp"

namespace mfsdp::test {

[[nodiscard]] inline bool is_full_run() {
  const char* asked = std::getenv("MFSDP_MUTATION");
  return asked != nullptr && std::string_view(asked) == "full";
}

/// llama_nano: every strategy with every recomputation and 1, 2 and 3 microbatches on two ranks;
/// HSDP and HFSDP on two by two.
inline std::vector<Program> llama_plans() {
  std::vector<Program> plans;
  const auto add = [&](Strategy strategy, Recompute recompute, std::int64_t microbatches, Mesh mesh,
                       Strategy outer) {
    PlanConfig config = llama_nano(2, microbatches);
    config.strategy = strategy;
    config.recompute.kind = recompute;
    config.mesh = mesh;
    config.outer_strategy = outer;
    plans.push_back(built(config));
    shrink_gemm_workspace(plans.back(), std::int64_t{1} << 16);
  };
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      add(strategy, recompute, 1 + static_cast<std::int64_t>(recompute), data_parallel_mesh(1, 2),
          Strategy::no_shard);
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim})
    add(Strategy::optim_grads_params, Recompute::selective, 2, data_parallel_mesh(2, 2), outer);
  return plans;
}

inline std::string name_of(const Program& program) {
  return name_of(program.config) + ", " + std::string(to_string(program.config.recompute.kind)) +
         " recomputation";
}

/// A mutant of one of the plans, and the program that it makes.
struct Altered {
  const Program* plan = nullptr;
  MutantVerdict verdict;

  [[nodiscard]] Program program() const { return apply(*plan, verdict.mutant).value(); }
  [[nodiscard]] std::string name() const {
    return name_of(*plan) + ": " + describe(*plan, verdict.mutant);
  }
};

}  // namespace mfsdp::test
