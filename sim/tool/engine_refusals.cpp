#include "sim/tool/engine_refusals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "sim/search/prediction_requests.hpp"

namespace mfsdp {
namespace {

/// Flags that mfsdp-exec's plan has no use for.
void check_own(const SimOptions& options, Reasons& reasons) {
  const auto needs = [&](bool is_given, const char* flag, const char* what) {
    if (is_given) reasons.add(fail(flag, what));
  };
  const char* const other = "needs --replay or an --engine other than mfsdp";
  needs(!options.replay && options.alloc_conf, "--alloc-conf", other);
  needs(!options.replay && options.memory_limit, "--memory-limit", other);
  needs(options.memory_snapshot.has_value(), "--memory-snapshot",
        "needs another --engine: mfsdp allocates its memory once; see --memory-trace");
  needs(options.host_launch.has_value(), "--host-launch-us",
        "needs another --engine: mfsdp's plan needs no host time");
}

void check_other(const SimOptions& options, Reasons& reasons) {
  const std::string engine = fmt::format("--engine {}", to_string(options.engine));
  if (options.routing)
    reasons.add(fail(
        "--routing",
        engine + (traits_of(options.engine).has_experts
                      ? " is predicted with experts in balance alone; leave --engine out"
                      : " cannot be predicted with mixtures of experts yet; leave --engine out")));
  if (options.find && options.memory_limit)
    reasons.add(fail("--memory-limit", "contradicts --find; --memory-reserve keeps memory free"));
  for (const std::string& flag : options.given)
    if (flag == "--plan" || flag == "--tune-out" || !has_choice(options.engine, flag))
      reasons.add(fail(flag, engine + " has no such choice: it is mfsdp-exec's own"));
  if (std::ranges::find(options.given, "--plan-out") != options.given.end())
    reasons.add(
        fail("--plan-out", "contradicts " + engine + ": no tool takes its plan; --trace shows it"));
  if (options.explain == Explain::layout || options.explain == Explain::network)
    reasons.add(fail("--explain", "contradicts " + engine + ": ask for memory or critical-path"));
}

}  // namespace

Result<void> check_engine_flags(const SimOptions& options) {
  Reasons reasons;
  if (traits_of(options.engine).runs_plans)
    check_own(options, reasons);
  else
    check_other(options, reasons);
  return reasons.verdict();
}

Result<void> check_engine(const SimOptions& options, const Session& session) {
  Reasons reasons;
  if (reasons.add(check_engine_flags(options))) return {};
  PredictionRequests requests(session.scenarios);
  reasons.add(requests.read(options));
  return reasons.verdict();
}

}  // namespace mfsdp
