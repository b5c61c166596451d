// Pickles as data: the opcodes that build numbers, texts, lists, tuples and dicts, and no others.
//
// Nothing is called or imported: opcodes that would do so (GLOBAL, REDUCE, BUILD, INST, OBJ,
// NEWOBJ, persistent ids, extensions) are an error that names them. This is enough for the files of
// torch.cuda.memory._dump_snapshot (torch/cuda/memory.py: pickle.dump of _snapshot()). The opcodes
// are those of Python's pickletools, protocols 0 to 5.
//
// Checkpoints hold objects. read_pickle_objects() keeps the names and calls of a list as records,
// and calls nothing either: torch.Size((5, 3)) is a name with its arguments.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

struct PickleValue;

/// Index of a value in the document: pickles refer to earlier values, even in cycles.
using PickleRef = const PickleValue*;

struct PickleList {
  std::vector<PickleRef> items;
};

/// In the order of building; the last of equal keys applies.
struct PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items;
};

/// The name of a class or function: "torch.Size".
struct PickleName {
  std::string name;
};

/// A call that was not made, REDUCE or NEWOBJ, or a persistent id, which has no callee.
struct PickleObject {
  PickleRef callee = nullptr;  ///< a PickleName, usually
  PickleRef arguments = nullptr;
  PickleRef state = nullptr;  ///< of BUILD; null: none
  PickleDict items = {};      ///< that were set on it, as on an OrderedDict
};

/// None, a boolean, an integer, a float, a text (or bytes), a list (or tuple, or set), a dict. Names
/// and objects only from read_pickle_objects().
struct PickleValue {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, PickleList, PickleDict,
               PickleName, PickleObject>
      value;

  [[nodiscard]] const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value); }
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&value); }
  [[nodiscard]] const PickleList* list() const { return std::get_if<PickleList>(&value); }
  [[nodiscard]] const PickleDict* dict() const { return std::get_if<PickleDict>(&value); }
  [[nodiscard]] const PickleName* name() const { return std::get_if<PickleName>(&value); }
  [[nodiscard]] const PickleObject* object() const { return std::get_if<PickleObject>(&value); }
  /// The entries of a dict, or those that were set on an object; null for all others.
  [[nodiscard]] const PickleDict* entries() const;
  /// The name that an object calls; empty for a persistent id and for all others.
  [[nodiscard]] std::string_view type() const;
  /// The value of that key of entries(); null where there is none.
  [[nodiscard]] const PickleValue* find(std::string_view key) const;
};

struct PickleDocument {
  std::deque<PickleValue> values;  ///< in the order of building; addresses are stable
  const PickleValue* root = nullptr;
};

/// Errors name `where`, the byte and the opcode: an opcode that is not data, an incomplete file,
/// counts larger than the file, a decimal integer beyond 64 bits. A binary one becomes a float.
[[nodiscard]] Result<PickleDocument> read_pickle(std::string_view bytes, const std::string& where);

/// The same, with objects whose names `is_allowed` accepts; any other name is an error. Old forms
/// of objects (INST, OBJ, NEWOBJ_EX, PERSID, extensions) stay errors.
[[nodiscard]] Result<PickleDocument> read_pickle_objects(
    std::string_view bytes, const std::string& where,
    const std::function<bool(std::string_view name)>& is_allowed);

}  // namespace mfsdp
