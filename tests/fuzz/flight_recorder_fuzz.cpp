// Arbitrary bytes as a dump of the flight recorder, pickle or JSON: an error of one line, or groups
// that can be judged beside a copy of themselves and shown.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tests/fuzz/json_mutator.hpp"
#include "verify/findings/render_findings.hpp"
#include "verify/traces/flight_recorder.hpp"

namespace {

void check(const mfsdp::Error& error) {
  const std::string message = error.message();
  if (!message.starts_with("dump")) std::abort();
  if (message.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return mfsdp::fuzz::mutate_json(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp::traces;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto dump = read_flight_dump(bytes, "dump", 0);
  if (!dump) {
    check(dump.error());
    return 0;
  }
  FlightDump other = *dump;
  other.rank = 1;
  const auto groups = join_dumps({*std::move(dump), std::move(other)});
  if (!groups) {
    check(groups.error());
    return 0;
  }
  const mfsdp::RuleVerdict verdict = judge_records(*groups);
  mfsdp::FindingsOf of;
  of.not_judged = verdict.not_judged;
  if (!nlohmann::json::accept(render_findings_json(verdict.findings, of))) std::abort();
  for (const auto& [rule, reason] : verdict.not_judged)
    if (mfsdp::find_rule(rule) == nullptr || reason.empty()) std::abort();
  return 0;
}
