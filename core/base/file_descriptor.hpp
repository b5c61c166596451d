// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace mfsdp {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, kNone)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  void close() {
    if (number_ >= 0) ::close(release());
  }
  /// The caller closes it.
  [[nodiscard]] int release() { return std::exchange(number_, kNone); }
  [[nodiscard]] int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  static constexpr int kNone = -1;
  int number_ = kNone;
};

}  // namespace mfsdp
