#include "gpu_backend/tool/cuda_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "core/cli/format.hpp"
#include "core/cli/help.hpp"
#include "core/plan/job.hpp"
#include "core/plan/transport.hpp"
#include "gpu_backend/cuda/cuda_backend.hpp"
#include "gpu_backend/launch/rendezvous.hpp"
#include "gpu_backend/launch/watchdog.hpp"
#include "gpu_backend/tool/fault_of.hpp"
#include "gpu_backend/train/process_ranks.hpp"

namespace mfsdp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStart{300};     ///< deadline of each report to the supervisor during the start
constexpr seconds kTeardown{60};   ///< of a run that went well
constexpr seconds kFailedEnd{10};  ///< of a run that failed: abort, store, print
constexpr std::int64_t kSlowSteps = 20;  ///< limit of a host call, in predicted steps
constexpr seconds kLeastDeadline{30};
/// Approximate time of a search of algorithms. A shorter run uses cuBLASLt's first choice.
constexpr seconds kSearchTakes{60};

milliseconds deadline_of(const CudaRunInputs& inputs) {
  if (inputs.options.deadline) return seconds(*inputs.options.deadline);
  const std::int64_t step = inputs.predicted.time.step.value / 1'000'000;
  return kLeastDeadline + milliseconds(checked_mul(kSlowSteps, step));
}

cuda::GemmSettings gemm_settings(const CudaRunInputs& inputs) {
  const PlanConfig& config = inputs.job.programs.front().config;
  if (config.deterministic || config.exact_sums) return {.deterministic = true};
  const Nanos run(checked_mul(inputs.predicted.time.step.value, inputs.options.steps));
  const bool pays = run > Nanos(std::chrono::nanoseconds(kSearchTakes).count());
  switch (inputs.options.gemm_search) {
    case GemmSearch::off: return {};
    case GemmSearch::automatic: return pays ? cuda::kSearch : cuda::GemmSettings{};
    case GemmSearch::on: return cuda::kSearch;
    case GemmSearch::thorough: return cuda::kLongSearch;
  }
  return {};
}

std::optional<std::filesystem::path> gemm_cache(const ExecOptions& options) {
  if (options.gemm_cache) return *options.gemm_cache;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "mfsdp";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache" / "mfsdp";
  return std::nullopt;
}

/// `program`: of the rank's class. Another class may have the op to delay.
Result<cuda::Delays> delays_of(const CudaRunInputs& inputs, const Program& program) {
  cuda::Delays delays;
  if (inputs.options.chaos) delays.seed = static_cast<std::uint64_t>(*inputs.options.chaos);
  if (inputs.options.delay_op == kEachOp)
    delays.each_in_turn = true;
  else if (inputs.options.delay_op) {
    const auto find = [&](const Program& of_class) {
      return find_op(of_class, *inputs.options.delay_op, "--delay-op");
    };
    const auto has_it = [&](const Program& of_class) { return find(of_class).has_value(); };
    const auto op = find(program);
    if (op)
      delays.op = (*op)->id;
    else if (std::ranges::none_of(inputs.job.programs, has_it))
      return tl::unexpected<Error>(op.error());
  }
  return delays;
}

/// The fixed part of the figures that each rank sends to the others at the end. All ranks run one
/// build, so the bytes are sent as they are.
struct FiguresHead {
  Bytes runtime;
  CategoryBytes categories{};
  std::uint64_t pools = 0;
};
static_assert(std::is_trivially_copyable_v<FiguresHead> && std::is_trivially_copyable_v<OpLaunch>);

std::vector<std::byte> to_bytes(const RanRank& figures) {
  const FiguresHead head{.runtime = figures.runtime.value_or(Bytes()),
                         .categories = figures.memory.categories,
                         .pools = figures.memory.pools.size()};
  std::vector<std::byte> bytes;
  for (const std::span<const std::byte> part :
       {std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(figures.memory.pools)),
        std::as_bytes(std::span(figures.launches))})
    bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

Result<RanRank> from_bytes(std::span<const std::byte> bytes) {
  const auto wrong = [size = bytes.size()] {
    return fail("rendezvous", fmt::format("expected a rank's figures, got {} bytes", size),
                Fault::environment);
  };
  const auto take = [&](std::span<std::byte> to) {
    std::ranges::copy(bytes.first(to.size()), to.begin());
    bytes = bytes.subspan(to.size());
  };
  FiguresHead head;
  if (bytes.size() < sizeof head) return wrong();
  take(std::as_writable_bytes(std::span(&head, 1)));
  RanRank figures{.memory = {.pools = {}, .categories = head.categories},
                  .runtime = head.runtime,
                  .launches = {}};
  if (bytes.size() / sizeof(Bytes) < head.pools) return wrong();
  figures.memory.pools.resize(head.pools);
  take(std::as_writable_bytes(std::span(figures.memory.pools)));
  if (bytes.size() % sizeof(OpLaunch) != 0) return wrong();
  figures.launches.resize(bytes.size() / sizeof(OpLaunch));
  take(std::as_writable_bytes(std::span(figures.launches)));
  return figures;
}

class CudaRun final : public RankMachine {
 public:
  explicit CudaRun(const CudaRunInputs& inputs)
      : inputs_(inputs),
        place_(inputs.launch.place),
        program_(program_of(inputs.job.programs, place_.rank)),
        reporting_rank_(reporting_rank(inputs.job.programs)),
        patience_(deadline_of(inputs) + kStart) {}
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;
  CudaRun(CudaRun&&) = delete;
  CudaRun& operator=(CudaRun&&) = delete;
  ~CudaRun() override { watchdog_.end_within(failed_ ? kFailedEnd : kTeardown); }

  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<void> train(TrainInputs inputs, TrainSink* sink,
                                   std::span<const HfExport> exported) override;
  [[nodiscard]] bool abandon() override;
  [[nodiscard]] bool reports() const override { return place_.rank == reporting_rank_; }
  [[nodiscard]] bool told_elsewhere() const override;
  [[nodiscard]] bool stopped() const override { return stop_ != nullptr && stop_->stopped(); }
  [[nodiscard]] Bytes allocated() const override {
    return fullest_ ? *fullest_ : on_device(program_, backend_->allocated());
  }
  [[nodiscard]] const RanRun& measured() const override { return measured_; }
  [[nodiscard]] MachineFacts facts() const override;
  [[nodiscard]] std::vector<std::string> notes() const override { return backend_->notes(); }

 private:
  [[nodiscard]] Result<cuda::CudaSettings> settings();
  [[nodiscard]] cuda::Peers peers();
  [[nodiscard]] Result<void> alive() const;
  [[nodiscard]] Result<void> run(const TrainInputs& inputs, TrainSink* sink,
                                 std::span<const HfExport> exported);
  [[nodiscard]] Result<void> gather(std::vector<OpLaunch> launches);
  /// The error of the run, after all ranks are informed: another rank's if it came first.
  [[nodiscard]] Error failed(const Error& error);

  CudaRunInputs inputs_;
  RankPlace place_;
  const Program& program_;  ///< of the rank's class
  std::int64_t reporting_rank_;
  milliseconds patience_;
  std::atomic<bool> failed_ = false;
  Watchdog watchdog_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<ProcessStopPoint> stop_;
  std::unique_ptr<ProcessHostGather> gather_;
  RanRun measured_;
  std::optional<Bytes> fullest_;  ///< pools of the fullest rank, at the end of the run
  std::unique_ptr<cuda::CudaBackend> backend_;  ///< last: its thread uses the rest
};

Result<void> CudaRun::open() {
  const bool windows =
      std::ranges::any_of(program_.communicators, [](const Communicator& communicator) {
        return traits_of(communicator.transport).uses_windows;
      });
  cuda::set_environment(windows);  // before the process starts a second thread
  if (inputs_.launch.supervised) {
    MFSDP_LET(watchdog, Watchdog::attach(*inputs_.launch.supervised));
    watchdog_ = std::move(watchdog);
  }
  // Longer than the timeout of the rendezvous, which reports the missing ranks.
  watchdog_.feed(2 * RendezvousSettings{}.meet_deadline + kStart);
  MFSDP_LET(rendezvous,
            Rendezvous::meet(inputs_.launch, {.run_id = inputs_.launch.run_id,
                                              .plan_hash = plan_hash(inputs_.job),
                                              .build_id = render_version("mfsdp-exec")}));
  rendezvous_ = std::move(rendezvous);
  stop_ =
      std::make_unique<ProcessStopPoint>(*rendezvous_, inputs_.stop, [this] { return alive(); });
  gather_ = std::make_unique<ProcessHostGather>(*rendezvous_);
  MFSDP_LET(how, settings());
  auto backend = cuda::CudaBackend::create(program_, std::move(how));
  if (!backend) return tl::unexpected<Error>(failed(backend.error()));
  backend_ = std::move(*backend);
  return {};
}

Result<cuda::CudaSettings> CudaRun::settings() {
  const ExecOptions& options = inputs_.options;
  MFSDP_LET(delays, delays_of(inputs_, program_));
  cuda::CudaSettings settings;
  settings.kernels = {
      .program = &program_, .optimizer = inputs_.settings.optimizer, .ignore_index = kIgnoreIndex};
  settings.rank = place_.rank;
  if (inputs_.job.programs.size() > 1) settings.classes = class_of_ranks(inputs_.job);
  settings.local_rank = place_.local_rank;
  settings.peers = peers();
  settings.gemm = gemm_settings(inputs_);
  if (inputs_.options.attention == AttentionChoice::cudnn)
    settings.attention = cuda::AttentionKernels::library;
  if (!settings.gemm.deterministic) settings.gemm_cache = gemm_cache(options);
  settings.deadline = deadline_of(inputs_);
  settings.on_failure = [this](const Error& error) {
    const Error first = failed(error);
    if (!told_elsewhere()) inputs_.tell(first);
  };
  settings.timed_steps = kTimedSteps;
  settings.timed_from = std::max<std::int64_t>(options.steps - kTimedSteps, 0);
  settings.poison = options.poison;
  settings.delays = delays;
  if (options.fault) {
    MFSDP_LET(fault, fault_of(*options.fault, inputs_.job.programs));
    settings.fault = fault;
  }
  return settings;
}

cuda::Peers CudaRun::peers() {
  return {
      .all_gather = [this](const cuda::Peers::Bytes& own) { return rendezvous_->all_gather(own); },
      .alive = [this] { return alive(); }};
}

/// Called repeatedly while the host waits: it informs the supervisor that this process is not
/// stopped.
Result<void> CudaRun::alive() const {
  watchdog_.feed(patience_);
  if (const auto failure = rendezvous_->failure()) return tl::unexpected<Error>(failure->error());
  return {};
}

Error CudaRun::failed(const Error& error) {
  failed_ = true;
  watchdog_.end_within(kFailedEnd);
  rendezvous_->fail(error.message());
  const auto first = rendezvous_->failure();
  return first && first->rank != place_.rank ? first->error() : error;
}

/// The rank that failed prints its error. So do rank 0 and the reporting rank, because the other
/// process may be gone.
bool CudaRun::told_elsewhere() const {
  const auto failure = rendezvous_ == nullptr ? std::nullopt : rendezvous_->failure();
  return place_.rank != 0 && !reports() && failure && failure->rank != place_.rank;
}

Result<void> CudaRun::train(TrainInputs inputs, TrainSink* sink,
                            std::span<const HfExport> exported) {
  inputs.stop = stop_.get();
  inputs.gather = gather_.get();
  if (const auto ran = run(inputs, sink, exported); !ran)
    return tl::unexpected<Error>(failed(ran.error()));
  return {};
}

/// Ends without destructors: the system frees everything at once. Destroying a communicator would
/// wait for its other members. Aborting one reads memory that they may have freed (NCCL 2.28: a
/// segmentation fault if registered memory is also registered for rings).
bool CudaRun::abandon() {
  backend_->stop_watching();
  rendezvous_.reset();  // sends the remaining frames
  return true;
}

Result<void> CudaRun::run(const TrainInputs& inputs, TrainSink* sink,
                          std::span<const HfExport> exported) {
  MFSDP_TRY(agree_on_start(*gather_, place_.rank, inputs.start, [this] { return alive(); }));
  MemoryMeter meter(program_, PlanRole::train, *backend_);
  MFSDP_LET(trainer, Trainer::create(inputs_.job.programs, meter, place_.rank, inputs, sink));
  const auto ran = trainer->run();
  measured_.memory = meter.measured();
  MFSDP_TRY(ran);
  MFSDP_TRY(gather(launches_of(program_, place_.rank, backend_->take_timings())));
  for (const HfExport& to : exported)
    MFSDP_TRY(to.write(place_.rank, meter, trainer->parameters(), *gather_));
  return {};
}

/// A rank with more launches than fit into one collective sends none.
Result<void> CudaRun::gather(std::vector<OpLaunch> launches) {
  MFSDP_LET(runtime, backend_->runtime_memory());
  RanRank own{.memory = measured_.memory, .runtime = runtime, .launches = launches};
  if (to_bytes(own).size() > kMostRendezvousBytes) own.launches.clear();
  MFSDP_LET(all, rendezvous_->all_gather(to_bytes(own), [this] { return alive(); }));
  if (reports()) {
    std::vector<RanRank> ranks;
    for (const Rendezvous::Bytes& bytes : all) {
      MFSDP_LET(figures, from_bytes(bytes));
      runtime = std::max(runtime, *figures.runtime);
      ranks.push_back(std::move(figures));
    }
    ranks[static_cast<std::size_t>(place_.rank)].launches = std::move(launches);
    const std::span<const Program> programs = inputs_.job.programs;
    measured_ = ran_run(programs, std::move(ranks));
    measured_.runtime = runtime;
    fullest_ = on_device(program_of(programs, fullest_rank(programs)), measured_.memory.pools);
  }
  return rendezvous_->barrier([this] { return alive(); });
}

namespace {

Facts library_facts() {
  const cuda::LibraryVersions versions = cuda::library_versions();
  const auto software = [](std::string name, std::string version) {
    return Fact{.topic = "software", .name = std::move(name), .value = std::move(version)};
  };
  return {software("driver_cuda", versions.driver), software("cuda_runtime", versions.runtime),
          software("nccl", versions.nccl), software("cudnn", versions.cudnn),
          software("cublaslt", versions.cublaslt)};
}

}  // namespace

MachineFacts CudaRun::facts() const {
  Facts facts = library_facts();
  facts.push_back({.topic = "software",
                   .name = std::string(kAttentionFact),
                   .value = std::string(to_string(inputs_.options.attention))});
  const cuda::Device& device = backend_->device();
  const std::int64_t ranks = place_.world_size;
  return {.cluster = {.gpu = device.name,
                      .gpus = ranks,
                      .nodes = ranks / place_.local_world_size,
                      .gpus_per_node = place_.local_world_size,
                      .network = "NCCL"},
          .ranks = fmt::format("{} {} {}, started by {}", ranks, device.name,
                               ranks == 1 ? "GPU" : "GPUs", to_string(place_.source)),
          .capacity = device.memory,
          .sharing = 1,
          .runtime_source = "measured: what cudaMemGetInfo has lost beside the pools",
          .process = {},
          .facts = std::move(facts)};
}

Result<std::unique_ptr<RankMachine>> make_cuda_run(const CudaRunInputs& inputs) {
  auto made = std::make_unique<CudaRun>(inputs);
  MFSDP_TRY(made->open());
  return made;
}

}  // namespace

MakeCudaRun find_cuda_run() { return make_cuda_run; }

}  // namespace mfsdp
