// mfsdp-sim: reads flags, builds or reads a plan, predicts its step, stores and prints it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/explain.hpp"
#include "core/cli/format.hpp"
#include "core/cli/help.hpp"
#include "core/cli/output.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/plan_options.hpp"
#include "core/cli/scenarios.hpp"
#include "core/cli/sim_options.hpp"
#include "core/cli/table.hpp"
#include "core/model/hf_config.hpp"
#include "core/plan/plan_json.hpp"
#include "core/recipe/module_tree.hpp"
#include "core/schedule/build.hpp"
#include "reports/store/store.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "sim/engine/critical_path.hpp"
#include "sim/hardware/gpu.hpp"
#include "sim/predict/predict.hpp"

namespace {

using namespace mfsdp;
namespace fs = std::filesystem;

constexpr std::string_view tool = "mfsdp-sim";
/// Far above the plan of any built-in model.
constexpr std::size_t kMostPlanBytes = std::size_t{1} << 30;

Result<std::string> models_table(const fs::path& scenarios, OutputFormat format) {
  Table table{.columns = {{"model"},
                          {"parameters", Align::right},
                          {"layers", Align::right},
                          {"hidden", Align::right},
                          {"heads", Align::right},
                          {"kv heads", Align::right},
                          {"vocabulary", Align::right},
                          {"max sequence", Align::right}},
              .rows = {}};
  MFSDP_LET(names, list_models(scenarios / "models"));
  for (const std::string& name : names) {
    MFSDP_LET(model, load_model(name, scenarios / "models"));
    const ModelShape& shape = model.shape;
    table.rows.push_back({name, format_count(make_model(shape, DType::bf16).parameter_count()),
                          format_count(shape.layers), format_count(shape.hidden),
                          format_count(shape.heads), format_count(shape.kv_heads),
                          format_count(shape.vocab), format_count(shape.max_seq_len)});
  }
  return format == OutputFormat::md ? render_markdown_table(table) : render_table(table);
}

Result<std::string> gpus_table(const fs::path& scenarios, OutputFormat format) {
  Table table{.columns = {{"gpu"},
                          {"title"},
                          {"GiB", Align::right},
                          {"bf16 TFLOP/s", Align::right},
                          {"memory GB/s", Align::right},
                          {"link GB/s", Align::right},
                          {"GPUs linked", Align::right},
                          {"calibration"}},
              .rows = {}};
  MFSDP_LET(names, list_gpus(scenarios / "gpus"));
  for (const std::string& name : names) {
    MFSDP_LET(gpu, load_gpu(name, scenarios / "gpus"));
    table.rows.push_back({name, gpu.title, format_gib(gpu.capacity), format_real(gpu.bf16, 0),
                          format_real(gpu.memory_bandwidth, 0), format_real(gpu.link_bandwidth, 0),
                          format_count(gpu.domain), gpu.calibration});
  }
  return format == OutputFormat::md ? render_markdown_table(table) : render_table(table);
}

/// The program of --plan, checked; a note goes to `err` where its stored hash is stale.
Result<Program> read_program(const std::string& path, std::ostream& err) {
  MFSDP_LET(text, read_file(path, "a plan", kMostPlanBytes));
  MFSDP_LET(program, program_from_json(text, path));
  if (const auto valid = validate(program.config); !valid)
    return fail(path + ": config", valid.error().message());
  const std::string hash = plan_hash(program);
  if (!program.meta.stored_hash.empty() && program.meta.stored_hash != hash)
    err << fmt::format("{}: note: {}: the plan was changed since it was written, its hash is {}\n",
                       tool, printable(path), hash);
  return std::move(program);
}

Result<Program> make_program(const CommonOptions& options, const fs::path& scenarios,
                             std::ostream& err) {
  if (options.plan) return read_program(*options.plan, err);
  MFSDP_LET(model, load_model(options.model, scenarios / "models"));
  MFSDP_LET(config, make_plan_config(options, model.shape));
  return build_program(
      config,
      {.model_name = model.name, .tool_version = std::string(version()), .stored_hash = ""});
}

Result<CostModel> costs_of(const CommonOptions& options, std::int64_t gpus,
                           const fs::path& scenarios) {
  if (options.cluster) {
    MFSDP_LET(cluster,
              load_cluster(*options.cluster, scenarios / "gpus", gpus, options.gpus_per_node));
    return make_cost_model(cluster);
  }
  MFSDP_LET(gpu, load_gpu(options.gpu, scenarios / "gpus"));
  MFSDP_LET(cluster, make_cluster(gpu, gpus, options.node_size()));
  return make_cost_model(cluster);
}

/// 128 random bits as hexadecimal digits.
std::string random_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

void sign(RunResult& run, const CommonOptions& options) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  run.tool = tool;
  run.version = version();
  run.run_id = random_id();
  run.name = options.name;
  run.created_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Result<void> write_files(const CommonOptions& options, const Program& program,
                         const RunResult& run) {
  if (options.plan_out)
    MFSDP_TRY(write_file_atomically(*options.plan_out, to_canonical_json(program) + "\n"));
  if (options.trace) MFSDP_TRY(write_chrome_trace(run, *options.trace));
  if (options.memory_trace) MFSDP_TRY(write_memory_trace(run, *options.memory_trace));
  return {};
}

Result<void> save(const RunResult& run, const std::string& path) {
  MFSDP_LET(store, Store::open(path));
  MFSDP_TRY(store.save(run));
  return {};
}

/// Stores the run and says where. A default store that cannot be written is a warning, unless it is
/// a file that must not be touched: another program's, or a newer version's.
Result<std::string> store_run(const CommonOptions& options, const RunResult& run,
                              std::ostream& err) {
  if (options.no_save) return "not stored (--no-save)";
  const std::string path = options.store_path();
  const auto saved = save(run, path);
  if (saved) return "stored in " + path;
  std::error_code ignored;
  const bool foreign = saved.error().fault == Fault::input && fs::is_regular_file(path, ignored);
  if (options.db || foreign) return tl::unexpected<Error>(saved.error());
  report_warning(err, "the run is not stored: " + saved.error().message(), tool);
  return "not stored";
}

/// The largest shares of a path; what is left is one row.
std::string shares_table(const std::string& title, const std::vector<PathShare>& shares,
                         Nanos length) {
  constexpr std::size_t rows = 8;
  Table table{.columns = {{title}, {"time", Align::right}, {"share", Align::right}}, .rows = {}};
  const auto add = [&](const std::string& name, Nanos time) {
    const double whole = static_cast<double>(std::max<std::int64_t>(length.value, 1));
    table.rows.push_back(
        {name, format_duration(time), format_percent(static_cast<double>(time.value) / whole)});
  };
  Nanos rest;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (i < rows)
      add(shares[i].name, shares[i].time);
    else
      rest += shares[i].time;
  }
  if (shares.size() > rows) add(fmt::format("{} others", shares.size() - rows), rest);
  return render_table(table);
}

std::string explain_critical_path(const CriticalPath& path) {
  return fmt::format(
      "Critical path: {} ops, {}; the largest share is of {}.{}{}\n\n{}\n{}",
      format_count(std::ssize(path.ops)), format_duration(path.length),
      path.bounding_unit.empty() ? "nothing" : path.bounding_unit,
      path.before_step > Nanos(0)
          ? fmt::format("\nIts first {} lie before the step, under the end of the step before.",
                        format_duration(path.before_step))
          : "",
      path.abridged ? "\nRepeated microbatches are counted twice: the step is too long to keep."
                    : "",
      shares_table("kind", path.by_kind, path.length),
      shares_table("unit", path.by_unit, path.length));
}

std::string explanation(Explain what, const Program& program, const Prediction& prediction) {
  switch (what) {
    case Explain::memory: return explain_memory(prediction.run);
    case Explain::layout:
      return module_tree_text(make_model(program.config.model, program.config.param_dtype)) + "\n" +
             explain_layout(program);
    case Explain::critical_path: break;
  }
  const Plan* plan = program.find_plan(predicted_plan);
  return explain_critical_path(critical_path(program, *plan, prediction.simulation));
}

/// Everything after the flags; `out` is written last, when nothing can fail any more.
Result<ExitCode> predict_and_print(const SimOptions& options, std::ostream& out,
                                   std::ostream& err) {
  const CommonOptions& common = options.common;
  MFSDP_LET(scenarios, scenarios_dir());
  if (options.list_models || options.list_gpus) {
    MFSDP_LET(table, options.list_models ? models_table(scenarios, common.output)
                                         : gpus_table(scenarios, common.output));
    out << table;
    return ExitCode::good;
  }
  MFSDP_TRY(check_paths(common, scenarios));
  MFSDP_LET(program, make_program(common, scenarios, err));
  MFSDP_LET(costs, costs_of(common, program.config.mesh.world_size(), scenarios));
  MFSDP_LET(prediction, predict(program, costs));
  RunResult& run = prediction.run;
  sign(run, common);
  const std::string longer =
      options.explain ? "\n" + explanation(*options.explain, program, prediction) : "";
  MFSDP_TRY(write_files(common, program, run));
  MFSDP_LET(stored, store_run(common, run, err));
  out << render_runs({&run, 1}, common.output, style_of(describe_stdout()), stored) << longer;
  return options.require_fit && !run.memory.fits ? ExitCode::negative : ExitCode::good;
}

Result<ExitCode> run_tool(const std::vector<std::string>& args, std::ostream& out,
                          std::ostream& err) {
  MFSDP_LET(options, parse_sim_options(args));
  if (options.common.help) {
    SimOptions unused;
    out << render_help(sim_help(), sim_flags(unused));
    return ExitCode::good;
  }
  if (options.common.version) {
    out << render_version(tool);
    return ExitCode::good;
  }
  return predict_and_print(options, out, err);
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  // A limit on file sizes is then an error that names the file, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  Error error;
  try {
    const auto code = run_tool({argv + 1, argv + argc}, std::cout, std::cerr);
    if (code && std::cout.flush()) return static_cast<int>(*code);
    error = code ? Error{"standard output", "cannot be written", Fault::environment} : code.error();
  } catch (const std::bad_alloc&) {
    error = {"memory", "this machine has not enough for the plan", Fault::environment};
  } catch (const std::exception& fault) {
    error = {"internal error", fault.what(), Fault::environment};
  }
  return report_error(std::cerr, error, tool);
}
