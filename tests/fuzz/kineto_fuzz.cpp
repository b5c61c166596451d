// Arbitrary bytes as a profiler's trace, plain or gzip: an error of one line, or a report whose
// times add up and that every renderer can show.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "tests/fuzz/json_mutator.hpp"
#include "verify/traces/trace_report.hpp"

namespace {

void check(const mfsdp::Error& error) {
  const std::string message = error.message();
  if (!message.starts_with("trace.json")) std::abort();
  if (message.find('\n') != std::string::npos) std::abort();
}

void check(const mfsdp::traces::TimeSplit& time) {
  if (time.span != time.compute + time.exposed + time.copies + time.idle) std::abort();
  for (const mfsdp::Nanos part : {time.span, time.compute, time.exposed, time.copies, time.idle})
    if (part < mfsdp::Nanos(0)) std::abort();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return mfsdp::fuzz::mutate_json(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp::traces;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto trace = parse_kineto(bytes, "trace.json");
  if (!trace) {
    check(trace.error());
    return 0;
  }
  const auto report = analyse_trace(*trace);
  if (!report) {
    check(report.error());
    return 0;
  }
  for (const DeviceReport& device : report->devices) {
    check(device.time);
    for (const StepReport& step : device.steps) check(step.time);
  }
  const std::span reports(&*report, 1);
  if (!nlohmann::json::accept(render_trace_json(reports))) std::abort();
  if (render_trace_text(reports).empty() || render_trace_markdown(reports).empty()) std::abort();
  return 0;
}
