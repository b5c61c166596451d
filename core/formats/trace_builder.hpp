// Builds a Trace event by event. Private to the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/formats/event_fields.hpp"
#include "core/formats/kineto.hpp"

namespace mfsdp::traces {

/// The error in an event; none if it is right.
using Complaint = std::optional<std::string>;

class TraceBuilder {
 public:
  explicit TraceBuilder(const KinetoSettings& settings) : settings_(settings) {
    (void)number_of("");
  }

  /// Adds an event to the Trace, or ignores it.
  [[nodiscard]] Complaint add(const EventFields& event);
  /// The trace, for fields outside the events.
  [[nodiscard]] Trace& trace() { return trace_; }
  /// The finished trace, with collectives joined with their launches.
  [[nodiscard]] Trace finish();

 private:
  struct Launch {
    std::int64_t correlation = 0;
    Nanos begin;
  };
  /// A collective of the host; activities on GPUs have its external id.
  struct HostCollective {
    std::int64_t external_id = 0;
    CopiedCollective call;
  };

  [[nodiscard]] Complaint add_activity(const EventFields& event, WorkKind kind);
  [[nodiscard]] Complaint add_collective(const EventFields& event, const GpuWork& work);
  [[nodiscard]] Complaint add_copy(const EventFields& event);
  [[nodiscard]] Complaint add_host_collective(const EventFields& event);
  [[nodiscard]] Complaint add_host_call(const EventFields& event);
  [[nodiscard]] Complaint add_operator(const EventFields& event);
  [[nodiscard]] Complaint add_allocation(const EventFields& event, bool gives_back);
  [[nodiscard]] Complaint add_step(const EventFields& event, bool on_device);
  [[nodiscard]] Complaint add_sync(const EventFields& event);
  std::uint32_t number_of(const std::string& name);
  void join_launches();
  void join_copies();

  template <class Row>
  [[nodiscard]] Complaint keep(std::vector<Row>& rows, Row row);

  const KinetoSettings& settings_;
  Trace trace_;
  std::vector<Launch> launches_;
  std::vector<HostCollective> host_collectives_;
  std::vector<std::int64_t> copy_ids_;  ///< external ids of copies between places of GPUs
  std::unordered_map<std::string, std::uint32_t> numbers_;  ///< of names
  std::size_t kept_ = 0;                                    ///< bytes
};

}  // namespace mfsdp::traces
