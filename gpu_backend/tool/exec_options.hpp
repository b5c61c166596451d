// The flags of mfsdp-exec: the common ones and its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/help.hpp"
#include "core/plan/attention_choice.hpp"
#include "core/plan/rate_schedule.hpp"
#include "gpu_backend/tool/data_options.hpp"

namespace mfsdp {

/// The device that runs the plan. `automatic`: CUDA if there is a GPU and the build supports it,
/// else the CPU.
enum class BackendChoice { automatic, cuda, cpu };

template <>
struct Names<BackendChoice> {
  static constexpr std::array<std::string_view, 3> values{"auto", "cuda", "cpu"};
};

/// Whether GEMM algorithms are timed before the first step. `automatic`: if the predicted run takes
/// longer than the search.
enum class GemmSearch { automatic, on, off, thorough };

template <>
struct Names<GemmSearch> {
  static constexpr std::array<std::string_view, 4> values{"auto", "on", "off", "long"};
};

/// Faults that a run injects on purpose, to test how it ends.
enum class FaultKind { fail, stop, miscount, kill };

template <>
struct Names<FaultKind> {
  static constexpr std::array<std::string_view, 4> values{"fail", "stop", "miscount", "kill"};
};

/// A rank fails in an op, never ends it, calls a collective with one element less, or dies.
struct FaultFlag {
  FaultKind kind = FaultKind::fail;
  std::int64_t rank = 0;
  std::string op;         ///< name in the train plan
  std::int64_t step = 1;  ///< from 1
};

/// The value of --resume for a run that resumes from the newest save in --save's folder, or begins
/// if there is none. The same command line can start a job again and again.
inline constexpr std::string_view kResumeAuto = "auto";

/// The value of --delay-op for one op after another, a step each.
inline constexpr std::string_view kEachOp = "each";

/// Flags that are valid only for ranks on GPUs.
inline constexpr std::array kGpuFlags{
    "--nproc",       "--nnodes",     "--node-rank", "--master",   "--insecure-rendezvous",
    "--gemm-search", "--gemm-cache", "--delay-op",  "--attention"};

struct ExecOptions {
  CommonOptions common;
  std::vector<std::string> given;  ///< names of the flags on the command line
  BackendChoice backend = BackendChoice::automatic;
  bool dry_run = false;
  // Ranks that are processes, one for each GPU.
  std::optional<std::int64_t> ranks_per_node;  ///< to start here
  std::optional<std::int64_t> nodes;
  std::optional<std::int64_t> node_rank;
  std::optional<std::string> master;  ///< ADDRESS:PORT of rank 0
  bool insecure_rendezvous = false;   ///< ranks on several hosts do not need a secret
  AttentionChoice attention = AttentionChoice::warpgroups;
  GemmSearch gemm_search = GemmSearch::automatic;
  std::optional<std::string> gemm_cache;  ///< folder
  // Training.
  DataOptions data;
  std::int64_t steps = 10;
  double learning_rate = 3e-4;  ///< the highest
  std::optional<double> min_learning_rate;
  std::optional<std::int64_t> warmup;  ///< steps
  RateSchedule schedule = RateSchedule::cosine;
  std::optional<std::int64_t> decay;  ///< steps, of wsd
  double weight_decay = 0.1;
  double beta1 = 0.9;
  std::optional<double> beta2;  ///< none: the optimizer's default
  double epsilon = 1e-8;
  double momentum = 0.95;  ///< Muon's
  std::int64_t seed = 1;
  std::int64_t eval_every = 0;  ///< steps; 0: never
  std::optional<std::string> eval_data;
  std::int64_t eval_batches = 8;      ///< global batches of training's size
  std::optional<std::string> logits;  ///< file for the first evaluation's first microbatch
  // Saves.
  std::optional<std::string> save;    ///< folder
  std::int64_t save_every = 0;        ///< steps; 0: only at the end
  std::int64_t keep_saves = 0;        ///< 0: all
  std::optional<std::string> resume;  ///< a save, a folder of saves, or kResumeAuto
  // Weights, as folders in Hugging Face's format.
  std::optional<std::string> init_from;
  std::optional<std::string> export_to;
  // Adapters, as folders in PEFT's format.
  std::optional<std::string> init_adapters;
  std::optional<std::string> export_adapters;
  // Output about the run.
  std::int64_t log_every = 1;
  bool log_param_norms = false;
  bool check_nan = false;
  // Tests of the machine.
  std::optional<std::int64_t> deadline;  ///< seconds
  std::optional<std::int64_t> chaos;     ///< seed
  bool poison = false;
  std::optional<std::string> delay_op;  ///< name in the train plan, or kEachOp
  std::optional<FaultFlag> fault;

  [[nodiscard]] bool resumes_if_it_can() const { return resume == kResumeAuto; }
  [[nodiscard]] double lowest_rate() const {
    return min_learning_rate.value_or(learning_rate / 10);
  }
  [[nodiscard]] std::int64_t warmup_steps() const { return warmup.value_or(steps / 10); }
  [[nodiscard]] std::int64_t decay_steps() const { return decay.value_or(steps / 10); }
};

/// All flag groups of mfsdp-exec, bound to `options`.
[[nodiscard]] std::vector<FlagGroup> exec_flags(ExecOptions& options);

/// Parses the arguments (without the program's name) and checks that they fit together.
[[nodiscard]] Result<ExecOptions> parse_exec_options(const std::vector<std::string>& args);

/// The texts of --help around the flags.
[[nodiscard]] HelpText exec_help();

}  // namespace mfsdp
