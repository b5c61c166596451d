// Python's pickle, as far as viewers of memory snapshots read it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace mfsdp {

/// Writes one value as a program for the stack of a reader, of protocol 4, with opcodes that
/// torch/utils/viz/MemoryViz.js knows. Texts that were written before are named, not repeated.
///
///   {"a": [1]}   dict(); text("a"); list(); integer(1); append(); set();
class PickleWriter {
 public:
  PickleWriter();

  void dict();  ///< pushes an empty dictionary
  void list();  ///< pushes an empty list
  void text(std::string_view utf8);
  void integer(std::int64_t number);
  void boolean(bool is_true);
  void set();     ///< the last two values become key and value of the dictionary below them
  void append();  ///< the last value becomes an item of the list below it
  void pair();    ///< the last two values become a tuple

  /// The bytes. Call once, last, when one value is left.
  [[nodiscard]] std::string finish();

 private:
  void little_endian(std::uint64_t number, int bytes);

  std::string out_;
  std::map<std::string, std::uint32_t, std::less<>> memo_;
};

}  // namespace mfsdp
