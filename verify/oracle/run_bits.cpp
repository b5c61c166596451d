#include "verify/oracle/run_bits.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <future>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan_json.hpp"
#include "gpu_backend/checkpoint/saved_state.hpp"
#include "gpu_backend/checkpoint/saver.hpp"
#include "gpu_backend/train/data/random_bits.hpp"
#include "gpu_backend/train/held_values.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 32;
constexpr std::int64_t kMostPoolBytes = std::int64_t{512} << 20;  ///< of all ranks
constexpr std::int64_t kEvalEvery = 2;                            ///< steps; also of saves
constexpr std::uint64_t kDataSeed = 11;
constexpr std::uint64_t kEvalSeed = 12;
constexpr std::uint64_t kShakenRuns = 4;
constexpr std::size_t kMostFile = std::size_t{1} << 30;

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

/// Lowers each pool's height to the end of its highest buffer: the rest is unused and may exceed
/// the available memory.
Job fitted(Job job) {
  for (Program& program : job.programs)
    for (Pool& pool : program.pools) {
      Bytes reached{};
      for (const Buffer& buffer : program.buffers) {
        if (buffer.pool != pool.id) continue;
        const std::int64_t others = buffer.instances.value_or(1) - 1;
        reached = std::max(reached, buffer.offset + buffer.size +
                                        Bytes(others * instance_pitch(buffer, pool).value));
      }
      pool.height = std::min(pool.height, reached);
    }
  return job;
}

/// Rejects jobs that mfsdp-exec rejects, and those too large for a run of milliseconds.
Result<void> check_job(const Job& job) {
  const PlanConfig& config = job.programs.front().config;
  if (const auto valid = validate(config); !valid) return fail("config", valid.error().message());
  const std::int64_t ranks = config.mesh.world_size();
  if (ranks > kMostRanks)
    return fail("mesh", fmt::format("expected at most {} ranks, got {}", kMostRanks, ranks));
  for (const Program& program : job.programs) {
    std::int64_t left = kMostPoolBytes / ranks;
    for (const Pool& pool : program.pools) {
      if (pool.height.value > left)
        return fail("pools", fmt::format("expected at most {} bytes", kMostPoolBytes));
      left -= pool.height.value;
    }
  }
  return {};
}

/// Collects the ranks' results and the reports. Other ranks may end before the reporting one reports
/// the last evaluation.
class Collected final : public TrainSink {
 public:
  Result<void> step(const StepReport& report) override {
    const std::scoped_lock lock(mutex_);
    const std::string step = fmt::format("step {}, ", report.step);
    bits_[step + "loss"] = bits_of(report.loss);
    bits_[step + "grad_norm"] = bits_of(report.grad_norm);
    bits_[step + "clip_factor"] = bits_of(report.clip_factor);
    bits_[step + "tokens"] = static_cast<std::uint64_t>(report.tokens);
    bits_[step + "non_finite"] = report.non_finite ? 1 : 0;
    return {};
  }
  Result<void> evaluation(const EvalReport& report) override {
    const std::scoped_lock lock(mutex_);
    const std::string after = fmt::format("eval after step {}, ", report.after_step);
    bits_[after + "loss"] = bits_of(report.loss);
    bits_[after + "tokens"] = static_cast<std::uint64_t>(report.tokens);
    return {};
  }
  Result<void> saved(const SaveReport& /*report*/) override { return {}; }
  Result<void> norms(std::int64_t /*step*/, std::span<const ParameterNorm> /*norms*/) override {
    return {};
  }

  /// Weights and states of a rank whose run has ended. Hashes of sharded tensors are summed over
  /// ranks, so the result does not depend on the sharding.
  Result<void> state(Backend& backend, std::int64_t rank, const PlanConfig& config,
                     const std::vector<ParameterPlaces>& parameters) {
    for (const ParameterPlaces& places : parameters) {
      const std::string& name = places.parameter->name;
      MFSDP_TRY(
          add(backend, fmt::format("{}, weight on rank {}", name, rank), places, places.weight));
      if (!places.first_replica) continue;
      MFSDP_TRY(add(backend, name + ", main weight", places, places.own));
      if (!places.group->optimizer) continue;
      const std::vector<KeptState> kept = config.kept_states(*places.group->optimizer);
      for (std::size_t i = 0; i < places.states.size(); ++i)
        MFSDP_TRY(
            add(backend, fmt::format("{}, {}", name, kept[i].saved), places, places.states[i]));
    }
    return {};
  }

  [[nodiscard]] RunBits take() { return std::move(bits_); }

 private:
  Result<void> add(Backend& backend, const std::string& name, const ParameterPlaces& places,
                   const HeldElements& held) {
    std::uint64_t sum = 0;
    MFSDP_TRY(for_each_value(backend, held, [&](std::int64_t element, double value) {
      const auto place = static_cast<std::uint64_t>(places.place_of(element));
      sum += mix_bits(mix_bits(place) ^ bits_of(value));
    }));
    const std::scoped_lock lock(mutex_);
    bits_[name] += sum;
    return {};
  }

  std::mutex mutex_;
  RunBits bits_;
};

/// One run of a job.
class Run {
 public:
  Run(const Job& job, const RunBitsSettings& settings)
      : job_(job),
        program_(job.programs.front()),
        evaluates_(program_.find_plan(PlanRole::eval) != nullptr),
        deadline_(settings.deadline) {
    const PlanConfig& config = program_.config;
    const DatasetSettings form{.vocab = config.model.vocab, .seq_len = config.seq_len};
    data_ = synthetic_dataset(kDataSeed, form);
    eval_data_ = synthetic_dataset(kEvalSeed, form);
    training_.steps = settings.steps;
    training_.learning_rate = {.peak = 0.01, .minimum = 0.001, .warmup = 1};
    training_.seed = 1;
    training_.eval_every = kEvalEvery;
    training_.eval_samples = config.global_batch();
  }

  void shake(std::uint64_t seed) {
    chaos_ = seed;
    poison_ = seed % 2 == 1;
  }

  void save_to(const fs::path& folder) {
    saver_.emplace(SaveSettings{.folder = folder, .every = kEvalEvery}, identity());
  }

  void resume(const SavedState& saved) { saved_ = &saved; }

  void export_to(const HfExport& exported) { exported_ = &exported; }

  [[nodiscard]] Result<RunBits> bits() {
    const KernelSettings kernels{
        .program = &program_, .optimizer = training_.optimizer, .ignore_index = kIgnoreIndex};
    MachineSettings settings;
    settings.kernel = [&kernels](const KernelCall& call) { return run_kernel(call, kernels); };
    settings.deadline = deadline_;
    settings.chaos = chaos_;
    settings.poison = poison_;
    Machine machine(job_.programs, settings);
    SharedHostGather gather(program_.config.mesh.world_size(), [&](std::int64_t rank, bool waits) {
      machine.host_waits(rank, waits);
    });
    TrainInputs inputs{.settings = training_, .data = data_.get()};
    if (evaluates_) inputs.eval_data = eval_data_.get();
    inputs.gather = &gather;
    if (saver_) inputs.keeper = &*saver_;
    if (saved_ != nullptr) {
      inputs.source = saved_;
      inputs.start = saved_->manifest().position;
    }
    Collected collected;
    const std::int64_t reporting = reporting_rank(job_.programs);
    const auto train = [&](std::int64_t rank, Backend& backend) -> Result<void> {
      MFSDP_LET(trainer, Trainer::create(job_.programs, backend, rank, inputs,
                                         rank == reporting ? &collected : nullptr));
      MFSDP_TRY(trainer->run());
      MFSDP_TRY(collected.state(backend, rank, program_.config, trainer->parameters()));
      if (exported_ == nullptr) return {};
      return exported_->write(rank, backend, trainer->parameters(), gather);
    };
    MFSDP_TRY(machine.run(train));
    return collected.take();
  }

 private:
  [[nodiscard]] RunIdentity identity() const {
    return {.model_name = "oracle",
            .parameters = 0,
            .config = program_.config,
            .optimizer = training_.optimizer,
            .seed = training_.seed,
            .data = {.description = "synthetic", .samples = data_->samples(), .fingerprint = 0},
            .plan_hash = plan_hash(job_),
            .run_id = std::string(32, '0')};
  }

  const Job& job_;
  const Program& program_;  ///< with the configuration and groups of all
  bool evaluates_;
  std::chrono::milliseconds deadline_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Dataset> eval_data_;
  TrainSettings training_;
  std::optional<std::uint64_t> chaos_;
  bool poison_ = false;
  std::optional<Saver> saver_;
  const SavedState* saved_ = nullptr;
  const HfExport* exported_ = nullptr;
};

void add_all(RunBits& to, const std::string& prefix, const RunBits& from) {
  for (const auto& [name, bits] : from) to[prefix + name] = bits;
}

/// Adds the tensors of an export; its other files only describe them.
Result<void> add_files(RunBits& to, const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    MFSDP_LET(text, read_file(entry.path(), "an export", kMostFile));
    to["export, " + entry.path().filename().string()] = checksum_of(std::as_bytes(std::span(text)));
  }
  return {};
}

/// A folder of this process; removed with its contents on destruction.
class OwnFolder {
 public:
  explicit OwnFolder(const fs::path& in) : path_(in / std::to_string(::getpid())) {
    fs::create_directory(path_);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Saves, exports, and resumes from the first save.
Result<RunBits> saved_bits(const Job& job, const RunBitsSettings& settings) {
  const Program& program = job.programs.front();
  const OwnFolder folder(settings.folder);
  const fs::path saves = folder.path() / "saves";
  const fs::path exported_to = folder.path() / "export";
  MFSDP_LET(exported, HfExport::prepare(program, exported_to));
  Run first(job, settings);
  first.save_to(saves);
  first.export_to(exported);
  MFSDP_LET(straight, first.bits());
  RunBits bits;
  add_all(bits, "saving: ", straight);
  MFSDP_TRY(add_files(bits, exported_to));
  MFSDP_LET(saved, SavedState::open(saves / step_folder_name(kEvalEvery)));
  MFSDP_TRY(saved.check(expected_state(program)));
  Run second(job, settings);
  second.resume(saved);
  MFSDP_LET(resumed, second.bits());
  add_all(bits, "resumed: ", resumed);
  return bits;
}

}  // namespace

Result<RunBits> plain_run_bits(Job written, const RunBitsSettings& settings) {
  const Job job = fitted(std::move(written));
  MFSDP_TRY(check_job(job));
  return Run(job, settings).bits();
}

Result<RunBits> shaken_run_bits(Job written, const RunBitsSettings& settings) {
  const Job job = fitted(std::move(written));
  MFSDP_TRY(check_job(job));
  std::vector<std::future<Result<RunBits>>> runs;
  for (std::uint64_t seed = 0; seed < kShakenRuns; ++seed)
    runs.push_back(std::async(std::launch::async, [&job, &settings, seed] {
      Run run(job, settings);
      run.shake(seed);
      return run.bits();
    }));
  auto saved = saved_bits(job, settings);
  std::vector<Result<RunBits>> outcomes;
  for (auto& run : runs) outcomes.push_back(run.get());
  MFSDP_TRY(saved);
  RunBits bits = std::move(*saved);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    MFSDP_TRY(outcomes[i]);
    add_all(bits, fmt::format("delays {}: ", i), *outcomes[i]);
  }
  return bits;
}

}  // namespace mfsdp
