// The stream waits of a trace, and the order that follows from them. Private to the rules.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {

/// How well a trace records stream waits.
enum class WaitsKnown {
  recorded,  ///< some wait names the event record that it waits for
  dropped,   ///< there are waits, and none names its record: CUDA 12.9 and later, kineto 1552
  absent     ///< the profiler did not record waits
};
[[nodiscard]] WaitsKnown waits_known(const Trace& trace);

enum class Ordered { yes, no, unknown };

/// Correlation ids grow in the order of the host's calls. Work that is launched on a stream after
/// a wait runs after all work that was launched on the event's stream before its record:
///
///   reductions   reduce(5)  record(6)
///   compute                             wait(7: 6)  gemm(8)  record(9)
///   gathers                                                             wait(10: 9)  gather(11)
///
/// orders reduce before gather, through the compute stream. Streams without work are skipped: NCCL
/// orders its own launches through such a stream (launchOrder in src/enqueue.cc).
class StreamWaits {
 public:
  explicit StreamWaits(const Trace& trace);

  /// Whether waits order `later` after the end of `earlier`; both run on one device. Unknown if a
  /// wait that may order them lacks its record, or if a call lacks its correlation id.
  [[nodiscard]] Ordered orders(const CollectiveCall& earlier, const CollectiveCall& later) const;

 private:
  struct Wait {
    std::int64_t correlation;
    bool known;
    std::int64_t on_stream;
    std::int64_t record;
  };
  using Stream = std::pair<std::int32_t, std::int64_t>;  ///< device and stream
  std::map<Stream, std::vector<Wait>> by_stream_;        ///< by correlation
  std::set<Stream> with_work_;
};

}  // namespace mfsdp::traces
