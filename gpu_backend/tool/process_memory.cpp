#include "gpu_backend/tool/process_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace mfsdp {

Bytes resident_high_water() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return Bytes(0);
  return Bytes(checked_mul(usage.ru_maxrss, 1024));  // Linux counts in KiB
}

Bytes physical_memory() {
  return Bytes(checked_mul(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE)));
}

}  // namespace mfsdp
