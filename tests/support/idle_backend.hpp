// A backend that has memory, and runs nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime/backend.hpp"

namespace mfsdp::test {

/// Takes everything and does nothing but allocate and copy.
class IdleBackend : public Backend {
 public:
  Result<std::byte*> allocate(const Pool& pool) override {
    // Untouched, as pools are large and few bytes of them are read.
    const auto bytes = static_cast<std::size_t>(pool.height.value);
    return memory_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(bytes)).get();
  }
  Result<void> upload(std::span<const std::byte> from, std::byte* device) override {
    std::ranges::copy(from, device);
    return {};
  }
  Result<void> download(const std::byte* device, std::span<std::byte> to) override {
    std::copy_n(device, to.size(), to.data());
    return {};
  }
  Result<void> issue(const BoundOp&, std::int64_t) override { return {}; }
  Result<void> record(const BoundOp&, std::int64_t, std::int64_t) override { return {}; }
  Result<void> wait(const BoundOp&, std::int64_t, std::int64_t) override { return {}; }
  Result<Nanos> host_wait(const BoundOp&, std::int64_t, std::size_t, std::int64_t) override {
    return Nanos(0);
  }
  [[nodiscard]] Nanos now() const override { return Nanos(0); }
  Result<void> synchronise() override { return {}; }
  std::vector<OpTiming> take_timings() override { return {}; }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace mfsdp::test
