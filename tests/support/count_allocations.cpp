// Preloaded into a run on GPUs (LD_PRELOAD), it writes a line for each call that asks the driver
// for device memory to the file that MFSDP_ALLOCATIONS names:
//
//   <process> <steps done> <function> <bytes>
//
// where a step is done when an op of the name in MFSDP_STEP_END has been issued. The run passes
// names of ops to NVTX, so NVTX_INJECTION64_PATH must name this library too.
//
// The runtime is linked statically. Like NCCL and other libraries, it loads the driver and asks
// dlsym and cuGetProcAddress for its functions. This library replaces the results of these two.
#include <dlfcn.h>
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

using Pointer = unsigned long long;  // CUdeviceptr
using Status = int;                  // CUresult

Status (*real_alloc)(Pointer*, std::size_t) = nullptr;
Status (*real_alloc_pitch)(Pointer*, std::size_t*, std::size_t, std::size_t, unsigned) = nullptr;
Status (*real_alloc_async)(Pointer*, std::size_t, void*) = nullptr;
Status (*real_create)(unsigned long long*, std::size_t, const void*, unsigned long long) = nullptr;

std::atomic<int> steps_done{0};

void note(const char* function, std::size_t bytes) {
  static const int file = [] {
    const char* path = std::getenv("MFSDP_ALLOCATIONS");
    return path == nullptr ? STDERR_FILENO : open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  }();
  char line[128];
  const int length = std::snprintf(line, sizeof line, "%d %d %s %zu\n", static_cast<int>(getpid()),
                                   steps_done.load(), function, bytes);
  if (write(file, line, static_cast<std::size_t>(length)) < 0) std::abort();
}

Status alloc(Pointer* to, std::size_t bytes) {
  note("cuMemAlloc", bytes);
  return real_alloc(to, bytes);
}
Status alloc_pitch(Pointer* to, std::size_t* pitch, std::size_t width, std::size_t height,
                   unsigned element) {
  note("cuMemAllocPitch", width * height);
  return real_alloc_pitch(to, pitch, width, height, element);
}
Status alloc_async(Pointer* to, std::size_t bytes, void* stream) {
  note("cuMemAllocAsync", bytes);
  return real_alloc_async(to, bytes, stream);
}
Status create(unsigned long long* handle, std::size_t bytes, const void* properties,
              unsigned long long flags) {
  note("cuMemCreate", bytes);
  return real_create(handle, bytes, properties, flags);
}

/// Keeps the driver's function and puts ours in its place.
template <class Function>
void stand_before(void** function, Function*& real, Function* ours) {
  real = reinterpret_cast<Function*>(*function);
  *function = reinterpret_cast<void*>(ours);
}

void replace(const char* name, void** function) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  if (is("cuMemAlloc") || is("cuMemAlloc_v2")) stand_before(function, real_alloc, alloc);
  if (is("cuMemAllocPitch") || is("cuMemAllocPitch_v2"))
    stand_before(function, real_alloc_pitch, alloc_pitch);
  if (is("cuMemAllocAsync") || is("cuMemAllocAsync_ptsz"))
    stand_before(function, real_alloc_async, alloc_async);
  if (is("cuMemCreate")) stand_before(function, real_create, create);
}

using GetAddress = Status(const char*, void**, int, unsigned long long);
using GetAddress2 = Status(const char*, void**, int, unsigned long long, int*);
GetAddress* real_get_address = nullptr;
GetAddress2* real_get_address2 = nullptr;

void replace_found(const char* name, void** function, int version);

Status get_address(const char* name, void** function, int version, unsigned long long flags) {
  const Status status = real_get_address(name, function, version, flags);
  if (status == 0) replace_found(name, function, version);
  return status;
}
Status get_address2(const char* name, void** function, int version, unsigned long long flags,
                    int* found) {
  const Status status = real_get_address2(name, function, version, flags, found);
  if (status == 0) replace_found(name, function, version);
  return status;
}

/// The runtime asks for the function that it asks with once more, by that function.
void replace_found(const char* name, void** function, int version) {
  constexpr int kSecondForm = 12000;
  if (function == nullptr || *function == nullptr) return;
  if (std::strcmp(name, "cuGetProcAddress_v2") == 0 ||
      (std::strcmp(name, "cuGetProcAddress") == 0 && version >= kSecondForm))
    stand_before(function, real_get_address2, get_address2);
  else if (std::strcmp(name, "cuGetProcAddress") == 0)
    stand_before(function, real_get_address, get_address);
  else
    replace(name, function);
}

/// The run's ops open a range of their name each, in the order in which they are issued.
int open_range(const char* name) {
  static const char* const end = std::getenv("MFSDP_STEP_END");
  if (end != nullptr && name != nullptr && std::strcmp(name, end) == 0) {
    ++steps_done;
    note("step_end", 0);
  }
  return 0;
}

}  // namespace

/// NVTX calls this at its first use.
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePushA)
    return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(open_range);
  return 1;
}

/// Everyone who loads the driver asks here for its functions.
extern "C" void* dlsym(void* library, const char* name) {
  using Find = void*(void*, const char*);
  static Find* const real = [] {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"})
      if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Find*>(found);
    std::abort();
  }();
  void* function = real(library, name);
  if (function == nullptr) return nullptr;
  constexpr int kFirstForm = 0;  // the name implies the form
  replace_found(name, &function, kFirstForm);
  return function;
}
