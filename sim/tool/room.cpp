#include "sim/tool/room.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/plan/config_fields.hpp"
#include "sim/predict/routing.hpp"

namespace mfsdp {

std::optional<Error> lack_of_room(const Question& question) {
  if (!question.routing) return std::nullopt;
  const auto blocks = routed_blocks(*question.routing, question.config);
  if (!blocks) return blocks.error();
  const RoutingReport report = routing_report(*question.routing, *blocks, question.config);
  if (!report.room || report.room->holds) return std::nullopt;
  return Error{
      .where = "--capacity-factor",
      .what = fmt::format("expected {} at least with --routing {}",
                          flag_text(report.room->least_factor), printable(report.routing))};
}

}  // namespace mfsdp
