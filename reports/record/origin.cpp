#include "reports/record/origin.hpp"

#include <nlohmann/json.hpp>

#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kOriginSchema = "mfsdp.origin/1";

}  // namespace

std::string origin_text(const RunResult& run) {
  nlohmann::ordered_json json{{"schema", kOriginSchema}, {"source", run.source()},
                              {"tool", run.tool},        {"run_id", run.run_id},
                              {"engine", run.engine},    {"model", run.model_name},
                              {"gpu", run.cluster.gpu}};
  if (!run.absent.has(ResultFigure::gpus)) json["gpus"] = run.cluster.gpus;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<RunOrigin> parse_origin(std::string_view text, const std::string& where) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (text_of("schema") != kOriginSchema)
    return fail(where, "expected a mark of schema " + std::string(kOriginSchema));
  RunOrigin origin{.source = text_of("source"),
                   .tool = text_of("tool"),
                   .run_id = text_of("run_id"),
                   .engine = text_of("engine"),
                   .model = text_of("model"),
                   .gpu = text_of("gpu")};
  if (origin.source != "simulated" && origin.source != "measured")
    return fail(where, "source: expected simulated or measured");
  const auto gpus = json.find("gpus");
  if (gpus == json.end()) return origin;
  const bool counts = gpus->is_number_integer() && *gpus >= 1 && *gpus <= config_limits::ranks;
  if (!counts) return fail(where, "gpus: expected how many GPUs the run had");
  origin.gpus = gpus->get<std::int64_t>();
  return origin;
}

}  // namespace mfsdp
