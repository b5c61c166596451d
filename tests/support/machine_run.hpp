// Runs whole programs on the CPU's machine with the hash kernel, and returns their final states.
#pragma once

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/instances.hpp"
#include "core/runtime/interpreter.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/hash_kernel.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp::test {

/// Plans to run, in this order, and how many steps of each.
using Itinerary = std::vector<std::pair<std::string_view, std::int64_t>>;

/// One hash for each rank, over all persistent buffers but those that are scratch.
using States = std::vector<std::uint64_t>;

inline Program built(const PlanConfig& config) { return build_program(config, {}).value(); }

/// Keeps `kept` bytes of the compute stream's workspace, of which small models need little.
inline void shrink_gemm_workspace(Program& program, std::int64_t kept) {
  const auto workspace =
      std::ranges::find(program.buffers, std::string("gemm_workspace"), &Buffer::name);
  if (workspace == program.buffers.end()) return;
  const Bytes cut = workspace->size - Bytes(kept);
  workspace->size = Bytes(kept);
  for (Buffer& buffer : program.buffers)
    if (buffer.pool == workspace->pool && buffer.offset > workspace->offset)
      buffer.offset = buffer.offset - cut;
  for (Pool& pool : program.pools)
    if (pool.id == workspace->pool) pool.height = pool.height - cut;
  for (Plan& plan : program.plans)
    for (Op& op : ops_of(plan))
      if (auto* kernel = std::get_if<Kernel>(&op.body))
        for (Operand& operand : kernel->operands)
          if (operand.buffer == workspace->id) operand.shape = {kept};
}

/// For machines whose kernels hash: they need none of the 32 MiB, which take long to poison and to
/// touch.
inline Program built_small(const PlanConfig& config) {
  Program program = built(config);
  shrink_gemm_workspace(program, std::int64_t{1} << 15U);
  return program;
}

inline MachineSettings hashing() {
  MachineSettings settings;
  settings.kernel = hash_kernel;
  return settings;
}

/// gemm_workspace and norm_workspace hold junk between kernels.
inline bool is_state(const Buffer& buffer) {
  return buffer.persistent && !buffer.name.ends_with("_workspace");
}

/// Calls `visit` with every value of the persistent buffers that hold a run's state.
template <class Visit>
void for_each_state_value(const Program& program, const Interpreter& interpreter, Visit visit) {
  for (const Buffer& buffer : program.buffers) {
    if (!is_state(buffer)) continue;
    const std::span<std::byte> bytes = interpreter.buffer_bytes(buffer.id);
    const auto size = static_cast<std::size_t>(size_of(buffer.dtype));
    for (std::size_t at = 0; at + size <= bytes.size(); at += size)
      visit(buffer, bytes.data() + at, at);
  }
}

/// Every rank begins with other values in its persistent buffers.
inline void fill_state(const Program& program, const Interpreter& interpreter, std::int64_t rank) {
  for_each_state_value(program, interpreter,
                       [&](const Buffer& buffer, std::byte* value, std::size_t at) {
                         const auto seed = static_cast<std::uint64_t>(rank) << 32U;
                         put_value(value, buffer.dtype, mix(mix(seed, buffer.id.value), at));
                       });
}

inline std::uint64_t hash_state(const Program& program, const Interpreter& interpreter) {
  std::uint64_t hash = 0;
  for_each_state_value(program, interpreter,
                       [&](const Buffer& buffer, const std::byte* value, std::size_t) {
                         std::uint64_t bits = 0;
                         std::memcpy(&bits, value, static_cast<std::size_t>(size_of(buffer.dtype)));
                         hash = mix(hash, bits);
                       });
  return hash;
}

/// The work of a training loop's host: new tokens and settings before every copy to the device,
/// and every report that comes back is read.
class HostLoop {
 public:
  explicit HostLoop(std::int64_t rank) : rank_(static_cast<std::uint64_t>(rank)) {}

  Result<void> operator()(const BoundOp& copy, std::int64_t step, std::optional<Nanos> /*ended*/) {
    if (std::get<Copy>(copy.op->body).kind == CopyKind::d2h) {
      read(copy.operands[1]);
      return {};
    }
    const auto now = static_cast<std::uint64_t>(step);
    auto& [last_step, copies] = copies_[copy.op->id];  // a repeated segment copies several times
    copies = last_step == step ? copies + 1 : 0;
    last_step = step;
    std::uint64_t hash = mix(mix(mix(rank_, copy.op->id.value), now), copies);
    for_each_element(copy.operands[0], [&](std::byte* element) {
      hash = mix(hash, 1);
      put_value(element, copy.operands[0].dtype, hash);
    });
    return {};
  }
  [[nodiscard]] std::uint64_t heard() const { return heard_; }

 private:
  void read(const OperandView& report) {
    for_each_element(report, [&](const std::byte* element) {
      std::uint64_t value = 0;
      std::memcpy(&value, element, static_cast<std::size_t>(size_of(report.dtype)));
      heard_ = mix(heard_, value);
    });
  }

  std::uint64_t rank_;
  std::uint64_t heard_ = 0;
  std::map<OpId, std::pair<std::int64_t, std::uint64_t>> copies_;  ///< step, copies in it before
};

/// One rank's host: fills, runs the itinerary, hashes.
inline Result<std::uint64_t> run_rank(const Program& program, std::int64_t rank, Backend& backend,
                                      const Itinerary& itinerary) {
  HostLoop loop(rank);
  MFSDP_LET(interpreter, Interpreter::create(program, backend, rank, std::ref(loop)));
  fill_state(program, *interpreter, rank);
  for (const auto& [plan, steps] : itinerary) MFSDP_TRY(interpreter->run(plan, steps));
  MFSDP_TRY(interpreter->finish());
  return mix(hash_state(program, *interpreter), loop.heard());
}

inline Result<States> run_program(const Program& program, MachineSettings settings,
                                  const Itinerary& itinerary = {{"train", 3}}) {
  Machine machine(program, std::move(settings));
  States states(static_cast<std::size_t>(program.config.mesh.world_size()));
  MFSDP_TRY(machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MFSDP_LET(state, run_rank(program, rank, backend, itinerary));
    states[static_cast<std::size_t>(rank)] = state;
    return {};
  }));
  return states;
}

/// Runs with four chaos seeds from `first` on concurrently, as such runs mostly sleep; every other
/// one with poison.
inline std::vector<Result<States>> run_with_chaos(const Program& program, std::uint64_t first,
                                                  const MachineSettings& settings) {
  std::vector<std::future<Result<States>>> runs;
  for (std::uint64_t seed = first; seed < first + 4; ++seed) {
    MachineSettings shaken = settings;
    shaken.chaos = seed;
    shaken.poison = seed % 2 == 1;
    runs.push_back(std::async(std::launch::async,
                              [&program, shaken] { return run_program(program, shaken); }));
  }
  std::vector<Result<States>> outcomes;
  for (auto& run : runs) outcomes.push_back(run.get());
  return outcomes;
}

/// Every strategy on 1, 2 and 4 ranks, HSDP and HFSDP on 2 x 2; one and three microbatches.
inline std::vector<PlanConfig> machine_configs() {
  std::vector<PlanConfig> configs;
  for (const std::int64_t microbatches : {1, 3}) {
    const auto add = [&](Strategy strategy, Mesh mesh, Strategy outer = Strategy::no_shard) {
      PlanConfig config = small_config(1, 2);
      config.strategy = strategy;
      config.outer_strategy = outer;
      config.mesh = mesh;
      config.microbatches = microbatches;
      configs.push_back(config);
    };
    for (const Strategy strategy :
         {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
      for (const std::int64_t ranks : {1, 2, 4}) add(strategy, data_parallel_mesh(1, ranks));
    add(Strategy::optim_grads_params, data_parallel_mesh(2, 2));
    add(Strategy::optim_grads_params, data_parallel_mesh(2, 2), Strategy::optim);
  }
  return configs;
}

inline std::string name_of(const PlanConfig& config) {
  return std::string(to_string(config.strategy)) + " on " +
         std::to_string(config.mesh.size(Axis::dp_outer)) + " x " +
         std::to_string(config.mesh.size(Axis::dp_shard)) + ", " +
         std::to_string(config.microbatches) + " microbatches";
}

}  // namespace mfsdp::test
