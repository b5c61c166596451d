#include "gpu_backend/tool/process_memory.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

namespace mfsdp {

Bytes resident_high_water() {
  // getrusage is no alternative: its ru_maxrss begins with the parent's resident memory.
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    std::int64_t kib = 0;
    if (name == "VmHWM:" && status >> kib) return Bytes(checked_mul(kib, 1024));
    std::getline(status, name);
  }
  return Bytes(0);
}

Bytes physical_memory() {
  return Bytes(checked_mul(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE)));
}

}  // namespace mfsdp
