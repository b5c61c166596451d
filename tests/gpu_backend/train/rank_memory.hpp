// One rank's state buffers without any machine, each on its own.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "gpu_backend/train/parameter_places.hpp"

namespace mfsdp::test {

class RankMemory {
 public:
  /// Memory for the persistent buffers of units, full of NaN.
  explicit RankMemory(const Program& program) {
    for (const Buffer& buffer : program.buffers)
      if (buffer.persistent && buffer.unit)
        buffers_[buffer.id].assign(static_cast<std::size_t>(buffer.size.value), std::byte{0xff});
  }
  [[nodiscard]] BufferBytes bytes() {
    return [this](BufferId id) -> std::span<std::byte> { return buffers_.at(id); };
  }

 private:
  std::map<BufferId, std::vector<std::byte>> buffers_;
};

}  // namespace mfsdp::test
