// Writes files of the field, and what they must hold, for check_files.py:
//   make_files FOLDER   ->   FOLDER/{step,long,ranks}.json.gz, memory.pickle, events.out...,
//   expected.json
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "reports/trace/chrome_trace.hpp"
#include "reports/trace/memory_snapshot.hpp"
#include "reports/trace/replay.hpp"
#include "reports/trace/tensorboard.hpp"
#include "reports/trace/whole_step.hpp"
#include "tests/support/predicted.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

void check(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message());
}

/// The expected contents of a trace of the step, from the plan alone.
Json expected_trace(const Program& program, const Plan& plan, const PredictedRun& run) {
  const auto facts = op_facts(program, plan);
  Json ops = Json::object();
  std::int64_t slices = 0;
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      const auto found = facts.find(op.id);
      if (found == facts.end()) continue;
      slices += segment.repeat;
      ops[std::to_string(op.id.value)] = {{"name", op.name},
                                          {"times", segment.repeat},
                                          {"bytes", found->second.bytes},
                                          {"flops", found->second.flops}};
    }
  return {{"ops", std::move(ops)},
          {"slices", slices},
          {"step_ns", run.time.step.value},
          {"live_peak", run.live_peak->value},
          {"arrows", replay(program, plan, whole_step(run), run.time.step).waits.size()}};
}

/// The run as it is kept where its step is too long: two instances of "middle", and where the
/// others are about.
void keep_two_instances(PredictedRun& run, std::int64_t repeat) {
  std::map<std::int64_t, Nanos> begins;  // of instances, on compute
  for (const OpTime& op : run.timeline)
    if (op.segment == "middle" && op.stream == "compute") begins.emplace(op.instance, op.start);
  const Nanos period((begins.at(repeat - 1) - begins.at(1)).value / (repeat - 2));
  run.omitted = {{.segment = "middle",
                  .first = 2,
                  .count = repeat - 2,
                  .begin = begins.at(1) + period,
                  .period = period}};
  std::erase_if(run.timeline, [](const OpTime& op) { return op.instance >= 2; });
}

Json write_step(const fs::path& folder, const std::string& name, std::int64_t microbatches) {
  const auto predicted = test::predicted([&](PlanConfig& config) {
    config.microbatches = microbatches;
    config.recompute.kind = Recompute::full;
  });
  PredictedRun run = predicted.run();
  if (name == "long") keep_two_instances(run, microbatches - 2);
  run.name = "<script>\"quotes\" \xd7\xa9";
  check(write_chrome_trace(run, folder / (name + ".json.gz"), &predicted.program));
  if (name == "step")
    check(write_memory_snapshot(run, predicted.program, folder / "memory.pickle"));
  return expected_trace(predicted.program, predicted.plan(), run);
}

/// Two ranks of which one is late, with a pair of launches that overlap, as clocks may have it.
void write_ranks(const fs::path& folder) {
  const auto predicted = test::predicted([](PlanConfig&) {});
  MeasuredRun run;
  static_cast<RunFigures&>(run) = predicted.run();
  for (const std::int64_t rank : {0, 3})
    for (const OpTime& op : run.timeline)
      run.launches.push_back({.op = op.op,
                              .rank = rank,
                              .step = 7,
                              .stream = StreamId(0),
                              .drains = 0,
                              .issued = op.start,
                              .begin = op.start + Nanos(rank * 1000 + 5'000'000'000),
                              .end = op.end + Nanos(rank * 1000 + 5'000'000'000)});
  run.launches.push_back(run.launches.front());
  check(write_chrome_trace(run, folder / "ranks.json.gz", &predicted.program));
}

Json write_events(const fs::path& folder) {
  const auto predicted = test::predicted([](PlanConfig&) {});
  MeasuredRun run;
  static_cast<RunFigures&>(run) = predicted.run();
  run.run_id = "../<id>";
  run.created_unix_ns = 1'790'000'000'123'456'789;
  Json scalars = Json::array();
  for (std::int64_t i = 1; i <= 300; ++i) {
    const auto x = static_cast<double>(i);
    StepResult step;
    step.step = i;
    step.duration = Nanos(1'000'000 * i);
    step.loss = i == 7 ? std::numeric_limits<double>::quiet_NaN() : 10 / x;
    if (i % 2 == 0) step.grad_norm = 0.5 * x;
    if (i != 7) scalars.push_back({i, "loss_metrics/global_avg_loss", *step.loss});
    if (step.grad_norm) scalars.push_back({i, "grad_norm", *step.grad_norm});
    scalars.push_back({i, "time_metrics/end_to_end(s)", 1e-3 * x});
    scalars.push_back({i, "throughput(tps)",
                       run.time.tokens_per_second_per_gpu *
                           static_cast<double>(run.time.step.value) / (1e6 * x)});
    run.steps.push_back(step);
  }
  run.evaluations = {{.step = 0, .loss = 11, .tokens = 5}, {.step = 300, .loss = 1.5, .tokens = 5}};
  for (const EvaluationResult& one : run.evaluations)
    scalars.push_back({one.step, "validation_metrics/loss", one.loss});
  check(write_tensorboard(run, folder / tensorboard_file_name(run)));
  return {{"file", tensorboard_file_name(run)},
          {"begin", 1'790'000'000.123456789},
          {"active_gib", static_cast<double>(run.memory.peak.value) / (1 << 30)},
          {"scalars", std::move(scalars)}};
}

void make(const fs::path& folder) {
  fs::create_directories(folder);
  const Json expected = {{"step", write_step(folder, "step", 8)},
                         {"long", write_step(folder, "long", 40)},
                         {"events", write_events(folder)}};
  write_ranks(folder);
  std::ofstream(folder / "expected.json") << expected;
}

}  // namespace
}  // namespace mfsdp

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_files FOLDER\n";
    return 2;
  }
  try {
    mfsdp::make(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "make_files: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
