#include "core/runtime/metered_backend.hpp"

#include <charconv>
#include <fstream>
#include <string>

namespace mfsdp {

MeteredBackend::MeteredBackend(const Program& program, Backend& backend)
    : program_(program), backend_(backend), buffers_(program.buffers), pools_(program.pools) {
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.persistent || !on_device(buffer)) continue;
    total_ += buffer.size;
    live_.at(static_cast<std::size_t>(buffer.category)) += buffer.size;
  }
  memory_.peak = total_;
  memory_.categories = live_;
}

bool MeteredBackend::on_device(const Buffer& buffer) const {
  const auto pool = pools_.find(buffer.pool);
  return pool && program_.pools[*pool].space == MemorySpace::device;
}

Result<std::byte*> MeteredBackend::allocate(const Pool& pool) {
  auto data = backend_.allocate(pool);
  if (!data) return data;
  memory_.allocations.push_back(pool.height);
  if (pool.space == MemorySpace::device) memory_.allocated += pool.height;
  return data;
}

Result<void> MeteredBackend::issue(const BoundOp& op, std::int64_t step) {
  if (const auto* acquired = std::get_if<Acquire>(&op.op->body))
    acquire(program_.buffers[buffers_[acquired->buffer]]);
  else if (const auto* released = std::get_if<Release>(&op.op->body))
    release(program_.buffers[buffers_[released->buffer]]);
  return backend_.issue(op, step);
}

void MeteredBackend::acquire(const Buffer& buffer) {
  if (!on_device(buffer)) return;
  total_ += buffer.size;
  live_.at(static_cast<std::size_t>(buffer.category)) += buffer.size;
  if (total_ <= memory_.peak) return;
  memory_.peak = total_;
  memory_.categories = live_;
  memory_.peak_buffer = buffer.name;
}

void MeteredBackend::release(const Buffer& buffer) {
  if (!on_device(buffer)) return;
  total_ -= buffer.size;
  live_.at(static_cast<std::size_t>(buffer.category)) -= buffer.size;
}

Result<Bytes> peak_resident_bytes() {
  const std::string path = "/proc/self/status";
  std::ifstream status(path);
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmHWM:")) continue;
    const std::size_t digits = line.find_first_of("0123456789");
    std::int64_t kibibytes = 0;
    if (digits != std::string::npos) {
      const char* end = line.data() + line.size();
      if (std::from_chars(line.data() + digits, end, kibibytes).ec == std::errc())
        return Bytes(checked_mul(kibibytes, 1024));
    }
  }
  return fail(path, "expected a line VmHWM", Fault::environment);
}

}  // namespace mfsdp
