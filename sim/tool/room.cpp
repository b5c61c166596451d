#include "sim/tool/room.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/plan/config_fields.hpp"
#include "sim/predict/routing.hpp"

namespace mfsdp {

std::optional<Error> lack_of_room(const Question& question) {
  if (!question.routed) return std::nullopt;
  const RoutingReport report =
      routing_report(question.routed->routing, question.routed->blocks, question.config);
  if (!report.room || report.room->holds) return std::nullopt;
  return Error{
      .where = "--capacity-factor",
      .what = fmt::format("expected {} at least with --routing {}",
                          flag_text(report.room->least_factor), printable(report.routing))};
}

}  // namespace mfsdp
