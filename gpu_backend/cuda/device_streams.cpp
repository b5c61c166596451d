#include "gpu_backend/cuda/device_streams.hpp"

#include <thread>
#include <utility>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

/// Streams of collectives have priority over others, because other ranks wait for them.
Result<DeviceStreams> DeviceStreams::create(const Program& program) {
  int least = 0;
  int greatest = 0;
  MFSDP_TRY(check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                  "cudaDeviceGetStreamPriorityRange"));
  DeviceStreams made;
  for (const Stream& stream : program.streams) {
    const bool communicates =
        stream.role == StreamRole::all_gather || stream.role == StreamRole::reduce_scatter ||
        stream.role == StreamRole::outer || stream.role == StreamRole::exchange;
    MFSDP_LET(owned, make_stream(communicates ? greatest : least));
    made.streams_.push_back(std::move(owned));
    MFSDP_LET(end, make_event(false));
    made.ends_.push_back(std::move(end));
  }
  MFSDP_LET(setup, make_stream(least));
  made.setup_ = std::move(setup);
  return made;
}

Result<void> DeviceStreams::record_ends() {
  for (std::size_t s = 0; s < streams_.size(); ++s)
    MFSDP_TRY(check(cudaEventRecord(ends_[s].get(), streams_[s].get()), "cudaEventRecord"));
  return {};
}

void DeviceStreams::let_end(std::chrono::seconds longest) const {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  for (const OwnedStream& stream : streams_)
    while (cudaStreamQuery(stream.get()) == cudaErrorNotReady &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  static_cast<void>(cudaGetLastError());
}

}  // namespace mfsdp::cuda
