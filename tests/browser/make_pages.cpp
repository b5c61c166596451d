// Writes the pages that the browser tests open, each with what it is to show:
//   make_pages FOLDER   ->   FOLDER/{runs,hostile,large,empty,engines}.{html,json}
// Runs go through a store first, so that what is expected is what a store gives back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "reports/html/html_report.hpp"
#include "reports/store/store.hpp"
#include "reports/trace/replay.hpp"
#include "reports/trace/whole_step.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

template <class T>
T take(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

struct Sample {
  RunResult run;
  std::shared_ptr<const Program> program;
};

PredictedRun predicted(const std::string& name, const PlanConfig& config, const Program& program) {
  const fs::path scenarios = fs::path(MFSDP_SOURCE_DIR) / "scenarios";
  const Gpu gpu = take(load_gpu("h100", scenarios / "gpus"));
  const Cluster cluster = take(make_cluster(gpu, config.mesh.world_size(), 8));
  PredictedRun run = take(predict(program, take(make_cost_model(cluster)), {})).run;
  run.tool = "mfsdp-sim";
  run.version = "0.1.0";
  run.run_id = name + "-0123456789abcdef";
  run.name = name;
  run.created_unix_ns = 1'790'000'000'000'000'000;
  return run;
}

Sample simulated(const std::string& name, const std::string& model,
                 const std::function<void(PlanConfig&)>& change) {
  const fs::path scenarios = fs::path(MFSDP_SOURCE_DIR) / "scenarios";
  PlanConfig config;
  config.model = take(load_model(model, scenarios / "models")).shape;
  config.mesh = data_parallel_mesh(1, 64);
  config.seq_len = 8192;
  change(config);
  auto program = std::make_shared<const Program>(
      take(build_program(config, {.model_name = model, .tool_version = "", .stored_hash = ""})));
  return {.run = predicted(name, config, *program), .program = program};
}

/// As if a machine had run the sample's plan: every op takes a little longer or shorter.
Sample measured(const std::string& name, const Sample& sample, std::int64_t steps, double lowest) {
  MeasuredRun run;
  static_cast<RunFigures&>(run) = sample.run;
  run.tool = "mfsdp-exec";
  run.name = name;
  run.run_id = name + "-fedcba9876543210";
  run.status = RunStatus::complete;
  for (OpTime& op : run.timeline) {
    const std::int64_t length = (op.end - op.start).value;
    op.end = op.start + Nanos(length - length * (1 + op.op.value % 5) / 100);
  }
  run.time.step = Nanos(run.time.step.value * 26 / 25);
  run.time.median_step = run.time.step;
  run.time.compute = Nanos(run.time.compute.value * 24 / 25);
  run.time.idle = run.time.step - run.time.compute - run.time.exposed_communication;
  run.time.tokens_per_second_per_gpu *= 25.0 / 26;
  for (std::int64_t i = 1; i <= steps; ++i) {
    const double x = static_cast<double>(i);
    const double wave = std::sin(x * 12.9898) * 0.04;
    run.steps.push_back({.step = i,
                         .duration = Nanos(run.time.step.value + (i * 7919 % 1000) * 20'000),
                         .loss = lowest + 9 / (1 + x / 40) + wave,
                         .grad_norm = 1 + 4 / (1 + x / 20) + wave,
                         .tokens = 524'288,
                         .learning_rate = 3e-4 * std::min(1.0, x / 50),
                         .skipped = i == 77});
    if (i % 50 == 0)
      run.evaluations.push_back(
          {.step = i, .loss = lowest + 0.1 + 9 / (1 + x / 40), .tokens = 65'536});
  }
  return {.run = RunResult(std::move(run)), .program = sample.program};
}

Json op_json(const TimedOp& op, const std::unordered_map<OpId, OpWork>& facts) {
  const auto found = facts.find(op.op->op);
  Json waits = Json::array();
  if (found != facts.end())
    for (const OpId id : found->second.waits) waits.push_back(id.value);
  return {{"op", op.op->op.value},
          {"name", op.op->name},
          {"kind", op.op->kind},
          {"stream", op.op->stream},
          {"instance", op.instance},
          {"start", op.start.value},
          {"duration", (op.end - op.start).value},
          {"bytes", found != facts.end() ? Json(found->second.bytes) : Json(nullptr)},
          {"flops", found != facts.end() ? Json(found->second.flops) : Json(nullptr)},
          {"waits", std::move(waits)}};
}

/// The values that the page must show for a run.
Json expected(const RunResult& run, const Program* program) {
  Json object = {
      {"name", run.name},        {"run_id", run.run_id},        {"source", run.source()},
      {"model", run.model_name}, {"step", run.time.step.value}, {"peak", run.memory.peak.value}};
  const std::vector<TimedOp> whole = whole_step(run);
  std::unordered_map<OpId, OpWork> facts;
  if (program != nullptr) facts = op_facts(*program, *program->find_plan(PlanRole::train));
  Json ops = Json::array();
  for (std::size_t i = 0; i < whole.size(); i += std::max<std::size_t>(whole.size() / 60, 1))
    ops.push_back(op_json(whole[i], facts));
  object["ops"] = std::move(ops);
  object["op_count"] = whole.size();
  object["input_norms"] = std::ranges::count_if(whole, [](const TimedOp& op) {
    return op.op->name.find("layers.3.input_norm") != std::string::npos;
  });
  if (const Predicted* part = run.predicted()) {
    Json points = Json::array();
    for (const MemoryPoint& point : part->memory_timeline) {
      std::int64_t total = 0;
      for (const Bytes bytes : point.categories) total += bytes.value;
      points.push_back({point.at.value, total});
    }
    object["memory"] = std::move(points);
    object["peak_op"] = part->peak_op;
    object["capacity"] = run.memory.capacity.value;
  }
  return object;
}

void write_page(const fs::path& folder, const std::string& name, const std::vector<Sample>& samples,
                const std::string& title) {
  const fs::path file = folder / (name + ".sqlite");
  fs::remove(file);
  Store store = take(Store::open(file));
  std::vector<RunResult> runs;
  Json list = Json::array();
  for (const Sample& sample : samples) {
    runs.push_back(take(store.load(take(store.save(sample.run)))));
    list.push_back(expected(runs.back(), sample.program.get()));
  }
  HtmlOptions options;
  options.title = title;
  options.tool_version = "0.1.0";
  options.unix_ns = 1'790'000'000'000'000'000;
  options.program = [&](const RunResult& run) -> std::shared_ptr<const Program> {
    const auto found = std::ranges::find(samples, run.plan_hash,
                                         [](const Sample& sample) { return sample.run.plan_hash; });
    return found == samples.end() ? nullptr : found->program;
  };
  const std::string page = html_report(runs, options);
  std::ofstream(folder / (name + ".html"), std::ios::binary) << page;
  std::ofstream(folder / (name + ".json"), std::ios::binary)
      << Json{{"title", title}, {"runs", std::move(list)}}.dump(-1, ' ', false,
                                                                Json::error_handler_t::replace);
}

std::vector<std::string> hostile_texts() {
  return {"<script>window.hacked=1</script>",
          "\"><img src=x onerror=window.hacked=1>",
          "</script><script>window.hacked=1</script>",
          "</title></style></textarea><svg onload=window.hacked=1>",
          "<!--<script>",
          "'\"`${window.hacked=1}{{data}}{{script}}",
          "=HYPERLINK(\"http://example.invalid\",\"x\")",
          "javascript:window.hacked=1",
          "\xe2\x80\xae"
          "drow"
          "\xe2\x81\xa6"
          " \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
          "line\nbreak\ttab\x01\x7f\xe2\x80\xa8separator",
          "\xff\xfe not UTF-8",
          "__proto__",
          std::string(1 << 20, 'M') + "<b>end</b>"};
}

/// As another system's log has left it: a name, a model and losses, and nothing else is known.
Sample imported() {
  MeasuredRun run;
  run.tool = "import";
  run.run_id = "torchtitan-0001";
  run.name = "torchtitan's run";
  run.model_name = "llama3_8b";
  run.engine = "torchtitan";
  run.absent = FigureSet::all();
  for (std::int64_t i = 1; i <= 40; ++i) {
    StepResult step;
    step.step = i;
    step.loss = 9 / static_cast<double>(i);
    step.timed = false;
    run.steps.push_back(step);
  }
  return {.run = RunResult(std::move(run)), .program = nullptr};
}

/// As if an engine with a caching allocator had run the sample's plan: the allocator holds 5 GiB
/// that nothing uses, and the device holds 2 GiB beside it.
Sample cached(const Sample& sample) {
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  PredictedRun run;
  static_cast<RunFigures&>(run) = sample.run;
  static_cast<Predicted&>(run) = *sample.run.predicted();
  run.name = "theirs";
  run.run_id = "theirs-0123456789abcdef";
  run.engine = "fsdp2";
  MemorySummary& memory = run.memory;
  Bytes& runtime = memory.categories[static_cast<std::size_t>(Category::runtime)];
  memory.allocated = memory.peak = memory.peak - runtime;  // of the allocator alone
  runtime = Bytes(0);
  memory.cached = CachedMemory{.reserved = memory.allocated + Bytes(5 * gib)};
  memory.cached->device = memory.cached->reserved + Bytes(2 * gib);
  memory.headroom = memory.capacity - memory.deciding();
  return {.run = RunResult(run), .program = sample.program};
}

/// A hostile text in every field of text that a store keeps.
std::vector<Sample> hostile_samples(const Sample& nano) {
  std::vector<Sample> samples;
  int number = 0;
  for (const std::string& text : hostile_texts()) {
    PredictedRun run;
    static_cast<RunFigures&>(run) = nano.run;
    static_cast<Predicted&>(run) = *nano.run.predicted();
    const bool is_long = text.size() > 1000;
    run.name = text;
    if (!is_long) run.tool = run.version = run.model_name = run.engine = text;
    run.run_id = text + fmt::format("#{}", number++);
    run.plan_hash = text + "#plan";
    run.peak_op = text;
    if (!is_long) {
      run.cluster.gpu = run.cluster.network = run.memory.runtime_source = text;
      run.calibration = run.cost_model_version = text;
      run.config.frozen = {text};
      for (ExposedUnit& unit : run.exposed_units) unit.unit = text;
      for (PoolSummary& pool : run.plan.pools) pool.name = text;
    }
    run.timeline.resize(std::min<std::size_t>(is_long ? 1 : 40, run.timeline.size()));
    run.memory_timeline.resize(std::min<std::size_t>(20, run.memory_timeline.size()));
    for (OpTime& op : run.timeline) op.name = op.kind = op.stream = op.segment = text;
    samples.push_back({.run = RunResult(run), .program = nullptr});
  }
  // The plan's own texts, and a measured run of it.
  Program program = *nano.program;
  const std::vector<std::string> texts = hostile_texts();
  for (std::size_t i = 0; i < program.buffers.size(); ++i)
    program.buffers[i].name = texts[i % (texts.size() - 1)];
  for (Pool& pool : program.pools) pool.name = texts[1];
  const auto shared = std::make_shared<const Program>(std::move(program));
  Sample plain = nano;
  plain.program = shared;
  samples.push_back(plain);
  Sample ran = measured(texts[0], nano, 20, 2);
  ran.program = shared;
  samples.push_back(ran);
  return samples;
}

void make(const fs::path& folder) {
  fs::create_directories(folder);
  const Sample one = simulated("baseline", "llama3_8b", [](PlanConfig&) {});
  const Sample eight = simulated("eight microbatches", "llama3_8b",
                                 [](PlanConfig& config) { config.microbatches = 8; });
  const Sample zero2 = simulated(
      "zero2", "llama3_8b", [](PlanConfig& config) { config.strategy = Strategy::optim_grads; });
  write_page(folder, "runs",
             {one, eight, zero2, measured("baseline on the cluster", one, 300, 2.1),
              measured("second try", one, 260, 2.3)},
             "Llama-3-8B, week 47");
  const Sample nano = simulated("nano", "llama_nano", [](PlanConfig& config) {
    config.mesh = data_parallel_mesh(1, 8);
    config.seq_len = 128;
    config.microbatches = 3;
  });
  write_page(folder, "hostile", hostile_samples(nano), hostile_texts()[2]);
  // 56 microbatches of some 940 ops.
  write_page(
      folder, "large",
      {simulated("long step", "llama3_8b", [](PlanConfig& config) { config.microbatches = 56; })},
      "");
  write_page(folder, "empty", {}, "");
  write_page(folder, "imported", {imported(), one}, "");
  // On so few GPUs what lives is near what a GPU has.
  const Sample near = simulated("ours", "llama3_8b",
                                [](PlanConfig& config) { config.mesh = data_parallel_mesh(1, 8); });
  write_page(folder, "engines", {near, cached(near)}, "");
}

}  // namespace
}  // namespace mfsdp

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_pages FOLDER\n";
    return 2;
  }
  try {
    mfsdp::make(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "make_pages: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
