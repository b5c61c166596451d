#include "sim/search/expert_capacity.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/plan/config_fields.hpp"
#include "sim/predict/routing.hpp"

namespace mfsdp {

std::optional<Error> lack_of_capacity(const PredictionRequest& request) {
  if (!request.routed) return std::nullopt;
  const RoutingReport report =
      routing_report(request.routed->routing, request.routed->blocks, request.config);
  if (!report.room || report.room->holds) return std::nullopt;
  return Error{
      .where = "--capacity-factor",
      .what = fmt::format("expected {} at least with --routing {}",
                          flag_text(report.room->least_factor), printable(report.routing))};
}

}  // namespace mfsdp
