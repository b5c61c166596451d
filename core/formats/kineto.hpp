// A trace of PyTorch's profiler (Kineto, Chrome trace format), reduced to the activities of GPUs.
//
// verify/traces/README.md has the fields that are read, and the source of each name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp::traces {

/// The collective of an NCCL kernel: by its name, else by the collective in the profiler's event.
enum class CollectiveOp {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  reduce,
  send_receive,
  other
};
inline constexpr std::array<std::string_view, 8> kCollectiveOpNames{
    "all_gather", "reduce_scatter", "all_reduce",   "all_to_all",
    "broadcast",  "reduce",         "send_receive", "other"};
[[nodiscard]] inline std::string_view to_string(CollectiveOp op) {
  return kCollectiveOpNames[static_cast<std::size_t>(op)];
}

/// An activity of a GPU other than NCCL's kernels.
enum class WorkKind { kernel, copy, fill };

/// Times are nanoseconds on the trace's own clock.
struct GpuWork {
  Nanos begin;
  Nanos end;
  std::int32_t device = 0;
  std::int32_t stream = 0;
  std::uint32_t name = 0;  ///< index in Trace::names
  WorkKind kind = WorkKind::kernel;
};

struct CollectiveCall {
  Nanos begin;
  Nanos end;
  std::optional<Nanos> launched;  ///< start of the host call that launched it
  std::int64_t correlation = 0;   ///< 0: none
  std::int32_t device = 0;
  std::int32_t stream = 0;
  std::uint32_t name = 0;         ///< kernel; index in Trace::names
  std::uint32_t group = 0;        ///< process group; index in Trace::names, "" where not written
  std::uint32_t dtype = 0;        ///< likewise
  std::uint32_t description = 0;  ///< of the group, likewise
  CollectiveOp op = CollectiveOp::other;
  std::int64_t in_elements = 0;  ///< 0: not written
  std::int64_t out_elements = 0;
  std::int64_t group_size = 0;
};

/// One "ProfilerStep#n" span of the host, or of one stream of a device.
struct StepMark {
  std::int64_t step = 0;
  Nanos begin;
  Nanos end;
  std::optional<std::int32_t> device;  ///< none: the host's
};

/// A stream or the host waited for an event ("cuda_sync"; only with enable_cuda_sync_events).
struct SyncMark {
  Nanos begin;
  std::int32_t device = 0;
  std::int64_t stream = 0;
  bool stream_wait = false;      ///< "Stream Wait Event": a stream waits, not the host
  std::int64_t correlation = 0;  ///< of the host call, ascending in call order; 0: none
  std::optional<std::int64_t> waits_on_stream;  ///< none where Kineto does not know it
  std::optional<std::int64_t>
      record_correlation;  ///< of the call that recorded the event, likewise
};

/// A host call that allocates or frees memory of the driver.
struct DriverAllocation {
  Nanos begin;
  bool gives_back = false;
};

/// A collective that moved its bytes by copies between GPUs, without an NCCL kernel.
struct CopiedCollective {
  CollectiveOp op = CollectiveOp::other;
  std::uint32_t group = 0;  ///< index in Trace::names
};

/// An operator of PyTorch on the host.
struct HostOperator {
  Nanos begin;
  Nanos end;
  std::int64_t thread = 0;
  std::uint32_t name = 0;        ///< index in Trace::names
  std::int64_t external_id = 0;  ///< equal to that of the activities it launches; 0: none
  /// Of each input; empty if it is not a tensor, or the profiler did not record shapes.
  std::vector<std::vector<std::int64_t>> dims{};
};

/// A host call that launches a kernel.
struct HostLaunch {
  Nanos begin;
  Nanos end;
  std::int64_t thread = 0;
  std::int64_t correlation = 0;
};

/// The origin of an activity of a GPU.
struct WorkOrigin {
  std::int64_t external_id = 0;  ///< of the operator; 0: none
  std::int64_t bytes = 0;        ///< of a copy; 0: not written
};

struct Trace {
  std::string where;  ///< the file's name in errors
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world_size;
  std::vector<std::string> names;  ///< each once; names[0] is ""
  std::vector<GpuWork> work;
  std::vector<CollectiveCall> collectives;
  std::vector<StepMark> steps;
  std::vector<SyncMark> syncs;
  std::vector<DriverAllocation> allocations;
  std::vector<CopiedCollective> copied_collectives;
  // Only with KinetoSettings::keep_operators:
  std::vector<HostOperator> operators;
  std::vector<HostLaunch> launches;
  std::vector<WorkOrigin> origins;  ///< of `work`, at the same positions
  std::string cta_policy;           ///< NCCL_CTA_POLICY in the trace's metadata; "" without
  std::int64_t events = 0;          ///< entries of traceEvents
  std::int64_t bytes = 0;           ///< unpacked
  std::int64_t event_records = 0;   ///< host calls of cudaEventRecord
  std::int64_t stream_waits = 0;    ///< host calls of cudaStreamWaitEvent
  std::int64_t graph_launches = 0;  ///< host calls of cudaGraphLaunch
};

struct KinetoSettings {
  /// Limit of what is kept: 32 bytes for each activity of a GPU, 96 for each collective, 16 for
  /// each launch, up to 80 for waits, allocator calls and copies that may be collectives, and the
  /// names. Unions and growing lists can take up to three times as much memory.
  std::size_t most_kept_bytes = std::size_t{512} << 20;
  /// Also keep the host's operators and launches, and the origins of activities.
  bool keep_operators = false;
};

/// Reads a trace, plain or gzip, as a stream; keeps only launches and events of GPUs. An error is
/// one line with the file and the event (counted from 0) or the byte: wrong JSON, type, time or
/// duration; a needed field that is missing or repeated; nesting deeper than 64 levels; a limit
/// that is exceeded.
[[nodiscard]] Result<Trace> read_kineto(const std::filesystem::path& path,
                                        const KinetoSettings& settings = {});
/// Reads a trace from bytes in memory.
[[nodiscard]] Result<Trace> parse_kineto(std::string_view bytes, const std::string& where,
                                         const KinetoSettings& settings = {});

/// "1234.567" microseconds -> 1234567 ns, exactly; further digits are rounded to the nearest,
/// halves up. None if it is not a JSON number or exceeds +-2^61 ns, 73 years.
[[nodiscard]] std::optional<Nanos> parse_microseconds(std::string_view text);

}  // namespace mfsdp::traces
