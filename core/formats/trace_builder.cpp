#include "core/formats/trace_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/formats/collective_names.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kStep = "ProfilerStep#";
constexpr std::string_view kHostCollective = "record_param_comms";  // ParamCommsUtils.hpp
constexpr std::string_view kStreamWait = "Stream Wait Event";       // CuptiActivity.cpp
constexpr std::size_t kMostDigits = 18;                             ///< of a step's number

Complaint needs_span(const EventFields& event) {
  for (const Field field : {Field::name, Field::begin, Field::duration}) {
    if (event.is_wrong(field))
      return fmt::format("{}: expected {}", key_of(field),
                         field == Field::name ? "a text" : "microseconds, below 2^63 ns");
    if (!event.has(field)) return fmt::format("lacks \"{}\"", key_of(field));
  }
  if (*event.duration < Nanos(0))
    return fmt::format("dur: expected at least 0, got {} ns", event.duration->value);
  return std::nullopt;
}

Complaint needs_number(std::optional<std::int64_t> value, std::string_view what,
                       std::int32_t& into) {
  if (!value) return fmt::format("names no {}", what);
  if (!std::in_range<std::int32_t>(*value))
    return fmt::format("{}: expected a number below 2^31, got {}", what, *value);
  into = static_cast<std::int32_t>(*value);
  return std::nullopt;
}

/// Kineto writes a GPU's activities with the device as process and the stream as thread.
std::optional<std::int64_t> device_of(const EventFields& event) {
  if (event.device) return event.device;
  return event.in_device ? event.in_device : event.process;
}
std::optional<std::int64_t> stream_of(const EventFields& event) {
  return event.stream ? event.stream : event.thread;
}

}  // namespace

std::uint32_t TraceBuilder::number_of(const std::string& name) {
  const auto [at, is_new] = numbers_.try_emplace(name, static_cast<std::uint32_t>(numbers_.size()));
  if (is_new) kept_ += sizeof(*at) + name.size();
  return at->second;
}

template <class Row>
Complaint TraceBuilder::keep(std::vector<Row>& rows, Row row) {
  kept_ += sizeof(Row);
  if (kept_ > settings_.most_kept_bytes)
    return fmt::format("there is more to keep than {} MiB; trace fewer steps",
                       settings_.most_kept_bytes >> 20);
  rows.push_back(std::move(row));
  return std::nullopt;
}

Complaint TraceBuilder::add(const EventFields& event) {
  if (event.phase != "X") return std::nullopt;  // instants, flows, counters, names of tracks
  const std::string& category = event.category;
  if (category == "kernel") return add_activity(event, WorkKind::kernel);
  if (category == "gpu_memcpy") return add_activity(event, WorkKind::copy);
  if (category == "gpu_memset") return add_activity(event, WorkKind::fill);
  if (category == "cuda_runtime" || category == "cuda_driver") return add_host_call(event);
  if (category == "cuda_sync") return add_sync(event);
  if (category == "cpu_op" && event.name == kHostCollective) return add_host_collective(event);
  if (category == "cpu_op" && settings_.keep_operators) return add_operator(event);
  if (event.name.starts_with(kStep)) {
    if (category == "user_annotation") return add_step(event, false);
    if (category == "gpu_user_annotation") return add_step(event, true);
  }
  return std::nullopt;
}

Complaint TraceBuilder::add_activity(const EventFields& event, WorkKind kind) {
  for (const Field field : {Field::device, Field::in_device, Field::stream, Field::correlation,
                            Field::in_elements, Field::out_elements, Field::group_size})
    if (event.is_wrong(field)) return fmt::format("{}: expected a whole number", key_of(field));
  GpuWork work;
  if (auto wrong = needs_span(event)) return wrong;
  if (auto wrong = needs_number(device_of(event), "device", work.device)) return wrong;
  if (auto wrong = needs_number(stream_of(event), "stream", work.stream)) return wrong;
  work.begin = *event.begin;
  work.end = work.begin + *event.duration;
  work.kind = kind;
  work.name = number_of(event.name);
  if (kind == WorkKind::kernel && is_nccl_kernel(event.name)) return add_collective(event, work);
  if (kind == WorkKind::copy)
    if (auto wrong = add_copy(event)) return wrong;
  if (settings_.keep_operators)
    if (auto wrong = keep(trace_.origins, WorkOrigin{.external_id = event.external_id.value_or(0),
                                                     .bytes = event.bytes.value_or(0)}))
      return wrong;
  return keep(trace_.work, work);
}

Complaint TraceBuilder::add_collective(const EventFields& event, const GpuWork& work) {
  for (const auto& [field, number] : {std::pair(Field::in_elements, event.in_elements),
                                      std::pair(Field::out_elements, event.out_elements),
                                      std::pair(Field::group_size, event.group_size)})
    if (number && *number < 0)
      return fmt::format("{}: expected at least 0, got {}", key_of(field), *number);
  return keep(trace_.collectives, CollectiveCall{.begin = work.begin,
                                                 .end = work.end,
                                                 .launched = std::nullopt,
                                                 .correlation = event.correlation.value_or(0),
                                                 .device = work.device,
                                                 .stream = work.stream,
                                                 .name = work.name,
                                                 .group = number_of(event.group),
                                                 .dtype = number_of(event.dtype),
                                                 .description = number_of(event.description),
                                                 .op = collective_op(event.name, event.collective),
                                                 .in_elements = event.in_elements.value_or(0),
                                                 .out_elements = event.out_elements.value_or(0),
                                                 .group_size = event.group_size.value_or(0)});
}

Complaint TraceBuilder::add_copy(const EventFields& event) {
  const auto has = [&](std::string_view part) {
    return event.name.find(part) != std::string::npos;
  };
  if (!event.external_id || (!has("PtoP") && !has("DtoD"))) return std::nullopt;
  return keep(copy_ids_, *event.external_id);
}

Complaint TraceBuilder::add_host_collective(const EventFields& event) {
  if (!event.external_id || event.collective.empty()) return std::nullopt;
  const CopiedCollective call{.op = collective_op("", event.collective),
                              .group = number_of(event.group)};
  return keep(host_collectives_, HostCollective{*event.external_id, call});
}

Complaint TraceBuilder::add_allocation(const EventFields& event, bool gives_back) {
  if (auto wrong = needs_span(event)) return wrong;
  return keep(trace_.allocations, DriverAllocation{*event.begin, gives_back});
}

Complaint TraceBuilder::add_host_call(const EventFields& event) {
  const std::string& name = event.name;
  if (name == "cudaMalloc" || name == "cuMemCreate") return add_allocation(event, false);
  if (name == "cudaFree" || name == "cuMemRelease") return add_allocation(event, true);
  if (name.starts_with("cudaEventRecord")) ++trace_.event_records;
  if (name.starts_with("cudaStreamWaitEvent")) ++trace_.stream_waits;
  if (name.starts_with("cudaGraphLaunch")) ++trace_.graph_launches;
  if (name.find("Launch") == std::string::npos || !event.correlation) return std::nullopt;
  if (auto wrong = needs_span(event)) return wrong;
  if (settings_.keep_operators)
    if (auto wrong = keep(trace_.launches, HostLaunch{.begin = *event.begin,
                                                      .end = *event.begin + *event.duration,
                                                      .thread = event.thread.value_or(0),
                                                      .correlation = *event.correlation}))
      return wrong;
  return keep(launches_, Launch{*event.correlation, *event.begin});
}

Complaint TraceBuilder::add_operator(const EventFields& event) {
  if (auto wrong = needs_span(event)) return wrong;
  for (const auto& dims : event.dims) kept_ += dims.size() * sizeof(std::int64_t);
  return keep(trace_.operators, HostOperator{.begin = *event.begin,
                                             .end = *event.begin + *event.duration,
                                             .thread = event.thread.value_or(0),
                                             .name = number_of(event.name),
                                             .external_id = event.external_id.value_or(0),
                                             .dims = event.dims});
}

Complaint TraceBuilder::add_step(const EventFields& event, bool on_device) {
  if (auto wrong = needs_span(event)) return wrong;
  const std::string_view digits = std::string_view(event.name).substr(kStep.size());
  if (digits.empty() || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    return fmt::format("expected a step's number after {}", kStep);
  StepMark mark;
  for (const char c : digits) mark.step = mark.step * 10 + (c - '0');
  mark.begin = *event.begin;
  mark.end = mark.begin + *event.duration;
  if (on_device) {
    std::int32_t device = 0;
    if (auto wrong = needs_number(device_of(event), "device", device)) return wrong;
    mark.device = device;
  }
  return keep(trace_.steps, mark);
}

Complaint TraceBuilder::add_sync(const EventFields& event) {
  SyncMark mark;
  if (auto wrong = needs_span(event)) return wrong;
  if (auto wrong = needs_number(device_of(event), "device", mark.device)) return wrong;
  mark.begin = *event.begin;
  mark.stream = stream_of(event).value_or(-1);  // in Kineto, -1 means all streams
  mark.stream_wait = event.name == kStreamWait;
  mark.correlation = event.correlation.value_or(0);
  // Kineto writes -1 where it has no record of the event.
  if (event.wait_on_stream.value_or(-1) >= 0) mark.waits_on_stream = event.wait_on_stream;
  if (event.record_correlation.value_or(-1) >= 0)
    mark.record_correlation = event.record_correlation;
  return keep(trace_.syncs, mark);
}

void TraceBuilder::join_launches() {
  std::ranges::sort(launches_, {}, &Launch::correlation);
  for (CollectiveCall& call : trace_.collectives) {
    const auto found =
        std::ranges::lower_bound(launches_, call.correlation, {}, &Launch::correlation);
    if (call.correlation != 0 && found != launches_.end() && found->correlation == call.correlation)
      call.launched = found->begin;
  }
}

void TraceBuilder::join_copies() {
  std::ranges::sort(copy_ids_);
  for (const HostCollective& row : host_collectives_)
    if (std::ranges::binary_search(copy_ids_, row.external_id))
      trace_.copied_collectives.push_back(row.call);
}

Trace TraceBuilder::finish() {
  join_launches();
  join_copies();
  trace_.names.resize(numbers_.size());
  while (!numbers_.empty()) {
    auto node = numbers_.extract(numbers_.begin());
    trace_.names[node.mapped()] = std::move(node.key());
  }
  return std::move(trace_);
}

}  // namespace mfsdp::traces
