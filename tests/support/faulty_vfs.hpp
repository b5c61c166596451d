// SQLite on files that fail, or whose process dies, at a chosen operation.
#pragma once

#include <sqlite3.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace mfsdp::test {

/// The fault at the operation, counted from 1. `kill` writes the first half of the data before the
/// process dies.
enum class FaultyMode { none, fail_once, fail_from_then_on, kill };

/// One for the process, as SQLite's file systems are.
struct FaultyPlan {
  FaultyMode mode = FaultyMode::none;
  std::int64_t at = 0;
  bool only_writes = false;  ///< count what changes files alone
  std::int64_t done = 0;     ///< operations so far
};

inline FaultyPlan& faulty_plan() {
  static FaultyPlan plan;
  return plan;
}

namespace faulty {

struct File {
  sqlite3_file base;
  // The data of the real file system follows.
  [[nodiscard]] sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

inline sqlite3_vfs* real_vfs() {
  static sqlite3_vfs* vfs = sqlite3_vfs_find("unix");
  return vfs;
}

/// Whether this operation is to fail.
inline bool fails(bool writes) {
  FaultyPlan& plan = faulty_plan();
  if (plan.mode == FaultyMode::none || (plan.only_writes && !writes)) return false;
  ++plan.done;
  if (plan.mode == FaultyMode::fail_from_then_on) return plan.done >= plan.at;
  if (plan.done != plan.at) return false;
  if (plan.mode == FaultyMode::kill) std::raise(SIGKILL);
  return true;
}

inline sqlite3_file* real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real(); }

inline int close_file(sqlite3_file* file) {
  sqlite3_file* inner = real(file);
  return inner->pMethods != nullptr ? inner->pMethods->xClose(inner) : SQLITE_OK;
}
inline int read_file(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
  if (fails(false)) return SQLITE_IOERR_READ;
  return real(file)->pMethods->xRead(real(file), to, size, at);
}
inline int write_file(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
  const FaultyPlan& plan = faulty_plan();
  const bool dies = plan.mode == FaultyMode::kill && plan.done + 1 == plan.at;
  if (dies) real(file)->pMethods->xWrite(real(file), from, size / 2, at);
  if (fails(true)) return SQLITE_FULL;
  return real(file)->pMethods->xWrite(real(file), from, size, at);
}
inline int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  if (fails(true)) return SQLITE_IOERR_TRUNCATE;
  return real(file)->pMethods->xTruncate(real(file), size);
}
/// The disk is not asked: processes die in these tests, power does not.
inline int sync_file(sqlite3_file*, int) { return fails(true) ? SQLITE_IOERR_FSYNC : SQLITE_OK; }
inline int file_size(sqlite3_file* file, sqlite3_int64* size) {
  if (fails(false)) return SQLITE_IOERR_FSTAT;
  return real(file)->pMethods->xFileSize(real(file), size);
}
inline int lock_file(sqlite3_file* file, int kind) {
  if (fails(false)) return SQLITE_IOERR_LOCK;
  return real(file)->pMethods->xLock(real(file), kind);
}
inline int unlock_file(sqlite3_file* file, int kind) {
  return real(file)->pMethods->xUnlock(real(file), kind);
}
inline int check_lock(sqlite3_file* file, int* held) {
  return real(file)->pMethods->xCheckReservedLock(real(file), held);
}
inline int control_file(sqlite3_file* file, int what, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), what, argument);
}
inline int sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
inline int characteristics(sqlite3_file* file) {
  return real(file)->pMethods->xDeviceCharacteristics(real(file));
}
inline int map_shared(sqlite3_file* file, int page, int size, int extend, void volatile** at) {
  if (fails(false)) return SQLITE_IOERR_SHMMAP;
  return real(file)->pMethods->xShmMap(real(file), page, size, extend, at);
}
inline int lock_shared(sqlite3_file* file, int offset, int count, int flags) {
  if ((flags & SQLITE_SHM_UNLOCK) == 0 && fails(false)) return SQLITE_IOERR_SHMLOCK;
  return real(file)->pMethods->xShmLock(real(file), offset, count, flags);
}
inline void fence_shared(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
inline int unmap_shared(sqlite3_file* file, int remove) {
  return real(file)->pMethods->xShmUnmap(real(file), remove);
}

inline const sqlite3_io_methods* methods() {
  static const sqlite3_io_methods table{2,
                                        close_file,
                                        read_file,
                                        write_file,
                                        truncate_file,
                                        sync_file,
                                        file_size,
                                        lock_file,
                                        unlock_file,
                                        check_lock,
                                        control_file,
                                        sector_size,
                                        characteristics,
                                        map_shared,
                                        lock_shared,
                                        fence_shared,
                                        unmap_shared,
                                        nullptr,
                                        nullptr};
  return &table;
}

inline int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
  file->pMethods = nullptr;
  real(file)->pMethods = nullptr;
  if (fails(false)) return SQLITE_CANTOPEN;
  const int code = real_vfs()->xOpen(real_vfs(), name, real(file), flags, out);
  if (code == SQLITE_OK) file->pMethods = methods();
  return code;
}
inline int delete_file(sqlite3_vfs*, const char* name, int sync) {
  if (fails(true)) return SQLITE_IOERR_DELETE;
  return real_vfs()->xDelete(real_vfs(), name, sync);
}
inline int access_file(sqlite3_vfs*, const char* name, int flags, int* result) {
  if (fails(false)) return SQLITE_IOERR_ACCESS;
  return real_vfs()->xAccess(real_vfs(), name, flags, result);
}

}  // namespace faulty

/// From here on every store of this process is on such files.
inline void use_faulty_files() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs own = *faulty::real_vfs();
    own.szOsFile += static_cast<int>(sizeof(faulty::File));
    own.zName = "faulty";
    own.pNext = nullptr;
    own.xOpen = faulty::open_file;
    own.xDelete = faulty::delete_file;
    own.xAccess = faulty::access_file;
    return own;
  }();
  if (sqlite3_vfs_register(&vfs, /*makeDflt=*/1) != SQLITE_OK)
    throw std::runtime_error("no file system of one's own");
}

}  // namespace mfsdp::test
