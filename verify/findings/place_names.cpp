#include "verify/findings/place_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/plan/instances.hpp"

namespace mfsdp {

namespace {

/// The name of the segment or the pass that has the op.
std::string name_of_list(const Plan& plan, const Op& op) {
  for (std::size_t list = 0; list < count_op_lists(plan); ++list) {
    const std::vector<Op>& ops = op_list(plan, list);
    if (&op >= ops.data() && &op < ops.data() + ops.size()) return list_name(plan, list);
  }
  return {};
}

}  // namespace

std::string stream_name(const Program& program, std::optional<std::size_t> stream) {
  if (!stream) return "host";
  const StreamRole role = program.streams[*stream].role;
  // Several streams may have one role in an edited plan.
  const bool alone = std::ranges::count(program.streams, role, &Stream::role) == 1;
  const std::string name(to_string(role));
  return alone ? name : fmt::format("{}.{}", name, program.streams[*stream].id.value);
}

std::string op_label(const Op& op) {
  switch (op.kind()) {
    case OpKind::kernel:
    case OpKind::collective:
    case OpKind::copy: return op.name;
    default: return fmt::format("{} {}", to_string(op.kind()), op.name);
  }
}

Place place_in_plan(const Plan& plan, const Op& op, std::string stream) {
  return {.plan = plan.name,
          .segment = name_of_list(plan, op),
          .op = op.id,
          .name = op.name,
          .stream = std::move(stream)};
}

std::string to_text(const Place& place) { return fmt::format("{} ({})", place.name, place.stream); }

std::string text_in_step(const Place& place) {
  return fmt::format("{} in {}", to_text(place), step_name(place.step));
}

std::string step_name(std::int64_t step) { return fmt::format("step {}", step + 1); }

std::string repetition_name(std::string_view segment, std::int64_t repetition) {
  if (repetition == 0) return std::string(segment);
  return fmt::format("{} repetition {}", segment, repetition + 1);
}

}  // namespace mfsdp
