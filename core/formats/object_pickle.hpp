// Writes pickles of numbers, texts, tuples, dicts and objects.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace mfsdp {

/// Values are written in the order of a pickle machine: arguments first, then what is made of them.
/// Texts and names that occur again are written as references.
class ObjectPickle {
 public:
  /// `protocol` 2, as torch.save writes, or 4, as DCP does.
  explicit ObjectPickle(int protocol);

  void none();
  void truth(bool value);
  void integer(std::int64_t value);
  void text(std::string_view value);
  /// A class or function.
  void name(std::string_view module, std::string_view name);

  void mark();
  void tuple();                                         ///< of the values after the last mark
  void integers(std::span<const std::int64_t> values);  ///< a tuple
  void list();                                          ///< an empty one
  void append();         ///< the values after the last mark to the list before it
  void dict();           ///< an empty one
  void set_items();      ///< the keys and values after the last mark, in the dict before it
  void call();           ///< of a name with a tuple
  void object();         ///< of a class, without arguments
  void build();          ///< gives an object the state that follows it
  void persistent_id();  ///< makes it of the last value

  /// The whole pickle. Call once, last.
  [[nodiscard]] std::string finish();

 private:
  void number(std::uint64_t value, std::size_t bytes);
  /// Writes a reference to an earlier value if there is one.
  [[nodiscard]] bool recall(const std::string& key);
  void remember(const std::string& key);

  int protocol_;
  std::string bytes_;
  std::map<std::string, std::uint32_t, std::less<>> memo_;
};

}  // namespace mfsdp
