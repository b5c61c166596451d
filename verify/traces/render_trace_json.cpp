#include <nlohmann/json.hpp>

#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TimeSplit& time) {
  return {{"span_ns", time.span.value},
          {"compute_ns", time.compute.value},
          {"exposed_ns", time.exposed.value},
          {"copies_ns", time.copies.value},
          {"idle_ns", time.idle.value}};
}

template <class Row>
Json list_of(const std::vector<Row>& rows, auto to_json) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

Json json_of(const CollectiveSummary& row) {
  return {{"op", to_string(row.op)},
          {"group", row.group},
          {"dtype", row.dtype},
          {"group_size", row.group_size},
          {"calls", row.calls},
          {"bytes", row.bytes ? Json(row.bytes->value) : Json()},
          {"time_ns", row.time.value},
          {"exposed_ns", row.exposed.value},
          {"most_exposed_ns", row.most_exposed.value}};
}

Json json_of(const LateGather& late) {
  Json json{{"begin_ns", late.begin.value},
            {"end_ns", late.end.value},
            {"stream", late.stream},
            {"group", late.group},
            {"stall_ns", late.stall.value},
            {"could_hide_ns", late.could_hide.value},
            {"free_before_launch_ns", nullptr},
            {"free_after_launch_ns", nullptr}};
  if (late.launch_known) {
    json["free_before_launch_ns"] = late.free_before_launch.value;
    json["free_after_launch_ns"] = late.free_after_launch.value;
  }
  return json;
}

Json json_of(const QueuedBehind& row) {
  return {{"op", to_string(row.second)},
          {"behind", to_string(row.first)},
          {"calls", row.calls},
          {"queued_ns", row.queued.value},
          {"exposed_ns", row.exposed.value}};
}

Json json_of(const StepReport& step) {
  return {{"step", step.step},
          {"begin_ns", step.begin.value},
          {"time", json_of(step.time)},
          {"collectives", list_of(step.collectives, [](const auto& row) { return json_of(row); })}};
}

Json json_of(const DeviceReport& device) {
  const auto to_json = [](const auto& row) { return json_of(row); };
  return {{"device", device.device},
          {"begin_ns", device.begin.value},
          {"time", json_of(device.time)},
          {"steps_bounded_by", device.steps_of_device ? "device" : "host"},
          {"steps", list_of(device.steps, to_json)},
          {"collectives", list_of(device.collectives, to_json)},
          {"late_gathers",
           {{"count", device.late_gather_count},
            {"could_hide_ns", device.could_hide.value},
            {"worst", list_of(device.late_gathers, to_json)}}},
          {"queued", list_of(device.queued, to_json)},
          {"launches_unknown", device.launches_unknown},
          {"reductions_in_flight",
           {{"most_running", device.reductions.most_running},
            {"most_queued", device.reductions.most_queued},
            {"most_pending", device.reductions.most_pending}}},
          {"kinds", list_of(device.kinds, [](const KindTime& row) {
             return Json{
                 {"kind", row.kind}, {"activities", row.kernels}, {"time_ns", row.time.value}};
           })}};
}

Json finding_json(const Finding& row) {
  return {{"rule", row.rule},
          {"level", is_error(row.rule) ? "error" : "note"},
          {"message", row.message}};
}

Json not_judged_json(const NotJudged& row) { return {{"rule", row.rule}, {"reason", row.reason}}; }

}  // namespace

std::string render_trace_json(std::span<const TraceReport> reports) {
  Json list = Json::array();
  for (const TraceReport& report : reports)
    list.push_back(
        {{"trace", report.where},
         {"rank", report.rank ? Json(*report.rank) : Json()},
         {"world_size", report.world_size ? Json(*report.world_size) : Json()},
         {"events", report.events},
         {"bytes", report.bytes},
         {"devices", list_of(report.devices, [](const auto& row) { return json_of(row); })},
         {"findings", list_of(report.verdict.findings, finding_json)},
         {"not_judged", list_of(report.verdict.not_judged, not_judged_json)},
         {"cannot_show", report.limits}});
  const Json json{{"schema", "mfsdp.traces/1"}, {"traces", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mfsdp::traces
