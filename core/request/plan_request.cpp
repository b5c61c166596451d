#include "core/request/plan_request.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/cli/help.hpp"
#include "core/request/plan_file.hpp"
#include "core/request/plan_options.hpp"
#include "core/schedule/build.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/hardware/cluster_file.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

bool say_gpus(const std::vector<std::string>& given) {
  return contains(given, "--gpus") || contains(given, "--world-size");
}

Result<const NamedModel*> PlanRequests::model(const std::string& name) {
  if (const auto known = models_.find(name); known != models_.end()) return &known->second;
  MFSDP_LET(model, load_model(name, scenarios_ / "models"));
  return &(models_[name] = std::move(model));
}

Result<PlanRequests::Loaded> PlanRequests::job(const std::string& path) {
  if (const auto known = jobs_.find(path); known != jobs_.end()) return known->second;
  Loaded loaded;
  MFSDP_LET(job, load_job(path, notes_, &loaded.hash));
  loaded.job = std::make_shared<const Job>(std::move(job));
  return jobs_[path] = std::move(loaded);
}

Result<std::optional<std::int64_t>> PlanRequests::gpus_of_cluster(
    const CommonOptions& options) const {
  if (!options.cluster) return std::nullopt;
  MFSDP_LET(file, read_cluster_file(*options.cluster, scenarios_ / "clusters"));
  return file.gpus;
}

std::optional<std::int64_t> PlanRequests::usual_node(const std::string& gpu) {
  if (const auto known = nodes_.find(gpu); known != nodes_.end()) return known->second;
  std::optional<std::int64_t> size;
  if (const auto kind = load_gpu(gpu, scenarios_ / "gpus")) size = usual_node_size(*kind);
  return nodes_[gpu] = size;
}

Result<void> PlanRequests::tell_gaps(const NamedModel& model, bool runs) {
  Reasons reasons;
  for (const std::string& line : gap_lines(model.gaps)) {
    const std::string text = model.name + ": " + line;
    if (runs)
      reasons.add({"--model", text});
    else if (told_.insert(text).second && notes_.warn)
      notes_.warn(text);
  }
  for (const std::string& line : model.notes) {
    const std::string text = model.name + ": " + line;
    if (told_.insert(text).second && notes_.note) notes_.note(text);
  }
  return reasons.verdict();
}

namespace {

Result<void> check_that_it_runs(const PlanConfig& config) {
  if (config.base_dtype == BaseDType::compute) return {};
  return fail("--base-dtype",
              fmt::format("expected compute: a base of {} is predicted (mfsdp-sim), not run",
                          to_string(config.base_dtype)));
}

}  // namespace

Result<PlanRequest> PlanRequests::read(const CommonOptions& options, const RequestTerms& terms) {
  PlanRequest request;
  if (options.plan) {
    MFSDP_LET(loaded, job(*options.plan));
    request.job = loaded.job;
    request.hash = loaded.hash;
    if (!terms.takes_jobs)
      if (auto plain = check_plain(*request.job); !plain)
        return fail(fmt::format("{}: {}", *options.plan, plain.error().where), plain.error().what);
    request.program = {request.job, request.job->programs.data()};
    request.config = request.program->config;
    if (terms.runs) MFSDP_TRY(check_that_it_runs(request.config));
    return request;
  }
  MFSDP_LET(named, model(options.model));
  CommonOptions known = options;
  if (!terms.gpus_are_chosen) {
    MFSDP_LET(gpus, gpus_of_cluster(options));
    known.gpus = gpus.value_or(options.gpus);
  }
  if (!known.cluster && !known.gpus_per_node) known.gpus_per_node = usual_node(known.gpu);
  MFSDP_SET(request.config, make_plan_config(known, named->shape));
  MFSDP_TRY(tell_gaps(*named, terms.runs));
  if (terms.runs) MFSDP_TRY(check_that_it_runs(request.config));
  request.meta = {
      .model_name = named->name, .tool_version = std::string(version()), .stored_hash = ""};
  return request;
}

Result<std::shared_ptr<const Job>> PlanRequests::planned(const CommonOptions& options,
                                                         const RequestTerms& terms) {
  MFSDP_LET(request, read(options, terms));
  return build_requested(request);
}

Result<std::shared_ptr<const Program>> PlanRequests::program(const CommonOptions& options,
                                                             const RequestTerms& terms) {
  MFSDP_LET(job, planned(options, terms));
  MFSDP_TRY(check_plain(*job));
  return std::shared_ptr<const Program>(job, job->programs.data());
}

Result<std::shared_ptr<const Job>> build_requested(const PlanRequest& request) {
  if (request.job) return request.job;
  MFSDP_LET(job, build_job(request.config, request.meta));
  return std::make_shared<const Job>(std::move(job));
}

}  // namespace mfsdp
