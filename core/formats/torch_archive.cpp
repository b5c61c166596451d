#include "core/formats/torch_archive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/base/excerpt.hpp"
#include "core/formats/object_pickle.hpp"
#include "core/formats/safetensors.hpp"

namespace mfsdp {
namespace {

constexpr std::uint64_t kMostPickle = 1ULL << 30;  ///< bytes of data.pkl
constexpr std::size_t kMostVisits = 2'000'000;     ///< values; shared ones count again
constexpr int kMostDepth = 64;

/// Names in the pickles of tensors, of plain values and of Megatron-Core's common state
/// (megatron/core/safe_globals.py). A name that ends in a dot stands for all below it.
constexpr std::array<std::string_view, 36> kTorchNames{"torch._utils._rebuild_tensor_v2",
                                                       "torch._utils._rebuild_tensor_v3",
                                                       "torch._utils._rebuild_parameter",
                                                       "torch._C.Generator",
                                                       "torch.Size",
                                                       "torch.device",
                                                       "torch.storage.UntypedStorage",
                                                       "torch.storage.TypedStorage",
                                                       "torch.serialization._get_layout",
                                                       "collections.OrderedDict",
                                                       "collections.defaultdict",
                                                       "_codecs.encode",
                                                       "builtins.bytearray",
                                                       "builtins.set",
                                                       "builtins.dict",
                                                       "builtins.list",
                                                       "builtins.complex",
                                                       "__builtin__.bytearray",
                                                       "__builtin__.set",
                                                       "argparse.Namespace",
                                                       "types.SimpleNamespace",
                                                       "pathlib.PosixPath",
                                                       "pathlib._local.PosixPath",
                                                       "signal.Signals",
                                                       "io.BytesIO",
                                                       "datetime.timedelta",
                                                       "numpy.ndarray",
                                                       "numpy.dtype",
                                                       "numpy.dtypes.UInt32DType",
                                                       "numpy.core.multiarray._reconstruct",
                                                       "numpy._core.multiarray._reconstruct",
                                                       "numpy.core.multiarray.scalar",
                                                       "numpy._core.multiarray.scalar",
                                                       "megatron.core.",
                                                       "megatron.training.",
                                                       "megatron.bridge."};

std::string joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

/// A key of a dict as text; none for keys that are neither texts nor integers.
std::optional<std::string> text_of_key(const PickleValue& key) {
  if (const std::string* text = key.text()) return *text;
  if (const std::int64_t* number = key.integer()) return fmt::format("{}", *number);
  return std::nullopt;
}

std::string shown_value(const PickleValue& value) {
  if (std::holds_alternative<std::monostate>(value.value)) return "None";
  if (const bool* truth = std::get_if<bool>(&value.value)) return *truth ? "True" : "False";
  if (const std::int64_t* number = value.integer()) return fmt::format("{}", *number);
  if (const double* number = std::get_if<double>(&value.value)) return fmt::format("{}", *number);
  if (const std::string* text = value.text()) return excerpt(*text);
  if (const PickleName* name = value.name()) return excerpt(name->name);
  if (value.object() != nullptr) return excerpt(value.type());
  return value.list() != nullptr && value.list()->items.empty() ? "[]" : "{}";
}

/// Tensors and values below the root of a pickle.
class ArchiveWalk {
 public:
  ArchiveWalk(TorchArchive& archive, const std::map<std::string, FileRange>& storages,
              const std::string& where)
      : archive_(archive), storages_(storages), where_(where) {}

  // NOLINTNEXTLINE(misc-no-recursion): of bounded depth
  Result<void> visit(const std::string& path, const PickleValue& value, int depth) {
    if (depth > kMostDepth) return wrong(path, "is nested deeper than 64 levels, or in itself");
    if (++visits_ > kMostVisits) return wrong(path, "has too many values");
    if (value.type() == "torch._utils._rebuild_tensor_v2" ||
        value.type() == "torch._utils._rebuild_tensor_v3")
      return add_tensor(path, value);
    if (value.type() == "torch._utils._rebuild_parameter") {
      const PickleList* arguments = value.object()->arguments->list();
      if (arguments == nullptr || arguments->items.empty()) return wrong(path, "has no tensor");
      return visit(path, *arguments->items[0], depth + 1);
    }
    if (const PickleList* list = value.list(); list != nullptr && !list->items.empty()) {
      for (std::size_t i = 0; i < list->items.size(); ++i)
        MFSDP_TRY(visit(joined(path, fmt::format("{}", i)), *list->items[i], depth + 1));
      return {};
    }
    const PickleValue* state = value.object() == nullptr ? nullptr : value.object()->state;
    const PickleDict* entries = value.entries();
    if (entries != nullptr && entries->items.empty() && state != nullptr) entries = state->dict();
    if (entries == nullptr || entries->items.empty()) {
      archive_.values.emplace_back(path, shown_value(value));
      return {};
    }
    for (const auto& [key, item] : entries->items) {
      const auto text = text_of_key(*key);
      if (!text) return wrong(path, "has a key that is no text and no integer");
      MFSDP_TRY(visit(joined(path, *text), *item, depth + 1));
    }
    return {};
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong(const std::string& path, std::string what) const {
    return fail(path.empty() ? where_ : fmt::format("{}: {}", where_, shown_name(path)),
                std::move(what));
  }

  /// The storage's name, and its type if the storage has one.
  [[nodiscard]] static std::optional<std::pair<std::string, const ElementType*>> storage_of(
      const PickleValue& id) {
    constexpr std::string_view kTorch = "torch.";
    const PickleObject* object = id.object();
    if (object == nullptr || object->callee != nullptr) return std::nullopt;
    const PickleList* parts = object->arguments->list();
    if (parts == nullptr || parts->items.size() < 5) return std::nullopt;
    const PickleName* type = parts->items[1]->name();
    const std::string* key = parts->items[2]->text();
    if (type == nullptr || key == nullptr || !type->name.starts_with(kTorch)) return std::nullopt;
    return std::pair(*key, type_of_storage(std::string_view(type->name).substr(kTorch.size())));
  }

  [[nodiscard]] Result<void> add_tensor(const std::string& path, const PickleValue& value) {
    const PickleList* arguments = value.object()->arguments->list();
    if (arguments == nullptr || arguments->items.size() < 4) return wrong(path, "is no tensor");
    auto storage = storage_of(*arguments->items[0]);
    const std::int64_t* offset = arguments->items[1]->integer();
    const auto shape = integers_of(*arguments->items[2]);
    const auto strides = integers_of(*arguments->items[3]);
    if (!storage || offset == nullptr || *offset < 0 || !shape || !strides)
      return wrong(path, "expected a tensor with storage, offset, size and stride");
    if (value.type().ends_with("_v3") && arguments->items.size() > 6)
      if (const PickleName* dtype = arguments->items[6]->name();
          dtype != nullptr && dtype->name.starts_with("torch."))
        storage->second = type_of_torch(std::string_view(dtype->name).substr(6));
    if (storage->second == nullptr) return wrong(path, "has a dtype that is not known");
    return place_tensor(path, storage->first, *storage->second, *offset, *shape, *strides);
  }

  [[nodiscard]] Result<void> place_tensor(const std::string& path, const std::string& storage,
                                          const ElementType& type, std::int64_t offset,
                                          const std::vector<std::int64_t>& shape,
                                          const std::vector<std::int64_t>& strides) {
    const auto found = storages_.find(storage);
    if (found == storages_.end())
      return wrong(path, fmt::format("its storage data/{} is missing", excerpt(storage)));
    if (shape.size() != strides.size()) return wrong(path, "has another stride than size");
    Int128 elements = 1;
    constexpr Int128 kMost = Int128{1} << 62;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] > 1 && elements > 0 && strides[i] != static_cast<std::int64_t>(elements))
        return wrong(path, "is not row-major");
      elements *= shape[i];
      if (elements > kMost) return wrong(path, "has 2^62 elements or more");
    }
    const Int128 begin = Int128{offset} * bytes_of(type);
    const Int128 size = elements * bytes_of(type);
    if (begin + size > Int128{found->second.size})
      return wrong(path,
                   fmt::format("its storage data/{} has {} bytes, of which it needs {}",
                               excerpt(storage), found->second.size,
                               static_cast<std::int64_t>(std::min(begin + size, Int128{1} << 62))));
    archive_.tensors.push_back(
        {.name = path,
         .type = &type,
         .shape = shape,
         .bytes = {.offset = found->second.offset + static_cast<std::uint64_t>(begin),
                   .size = static_cast<std::uint64_t>(size)}});
    return {};
  }

  TorchArchive& archive_;
  const std::map<std::string, FileRange>& storages_;
  const std::string& where_;
  std::size_t visits_ = 0;
};

}  // namespace

bool is_name_of_torch_archive(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) {
    const std::string_view rest = name.substr(kTorch.size());
    if (type_of_storage(rest) != nullptr || type_of_torch(rest) != nullptr) return true;
  }
  return std::ranges::any_of(kTorchNames, [&](std::string_view known) {
    return known.ends_with('.') ? name.starts_with(known) : name == known;
  });
}

std::optional<std::vector<std::int64_t>> integers_of(const PickleValue& value) {
  const PickleValue* at = &value;
  if (value.type() == "torch.Size") {
    const PickleList* arguments = value.object()->arguments->list();
    if (arguments == nullptr || arguments->items.size() != 1) return std::nullopt;
    at = arguments->items[0];
  }
  const PickleList* list = at->list();
  if (list == nullptr) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const PickleValue* item : list->items) {
    if (item->integer() == nullptr || *item->integer() < 0) return std::nullopt;
    numbers.push_back(*item->integer());
  }
  return numbers;
}

Result<TorchArchive> read_torch_archive(const ByteSource& source, const FileRange& archive) {
  MFSDP_LET(records, read_stored_zip(source, archive));
  const std::string where =
      archive.offset == 0 && archive.size == source.size
          ? source.where
          : fmt::format("{}: archive at byte {}", source.where, archive.offset);
  const ZipRecord* pickle = nullptr;
  std::map<std::string, FileRange> storages;
  for (const ZipRecord& record : records) {
    const std::size_t slash = record.name.find('/');
    if (slash == std::string::npos) continue;
    const std::string rest = record.name.substr(slash + 1);
    if (rest == "data.pkl") pickle = &record;
    if (rest.starts_with("data/")) storages[rest.substr(5)] = record.bytes;
    if (rest == "byteorder" && record.bytes.size == 3)
      return fail(where, "expected little-endian bytes, its byteorder is another");
  }
  if (pickle == nullptr) return fail(where, "has no record data.pkl: no archive of torch.save");
  if (pickle->bytes.size > kMostPickle) return fail(where, "has a data.pkl of more than 1 GiB");
  std::string text(pickle->bytes.size, '\0');
  MFSDP_TRY(source.read(pickle->bytes.offset, std::as_writable_bytes(std::span(text))));
  TorchArchive read;
  MFSDP_SET(read.document,
            read_pickle_objects(text, where + ": data.pkl", is_name_of_torch_archive));
  MFSDP_TRY(ArchiveWalk(read, storages, where).visit("", *read.document.root, 0));
  return read;
}

ZipFrame frame_torch_tensor(const ElementType& type, const std::vector<std::int64_t>& shape) {
  ObjectPickle pickle(2);
  pickle.name("torch._utils", type.storage.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  const std::int64_t elements = product_of(shape);
  pickle.mark();
  pickle.mark();
  pickle.text("storage");
  if (type.storage.empty())
    pickle.name("torch.storage", "UntypedStorage");
  else
    pickle.name("torch", type.storage);
  pickle.text("0");
  pickle.text("cpu");
  pickle.integer(type.storage.empty() ? elements * bytes_of(type) : elements);
  pickle.tuple();
  pickle.persistent_id();
  pickle.integer(0);
  pickle.integers(shape);
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  pickle.integers(strides);
  pickle.truth(false);
  pickle.name("collections", "OrderedDict");
  pickle.mark();
  pickle.tuple();
  pickle.call();
  if (type.storage.empty()) pickle.name("torch", type.torch);
  pickle.tuple();
  pickle.call();
  const std::string text = pickle.finish();
  return frame_stored_zip(std::array<ZipContent, 5>{{
      {.name = "archive/data.pkl", .content = text},
      {.name = "archive/.format_version", .content = "1"},
      {.name = "archive/byteorder", .content = "little"},
      {.name = "archive/data/0", .size = static_cast<std::uint64_t>(elements * bytes_of(type))},
      {.name = "archive/version", .content = "3\n"},
  }});
}

}  // namespace mfsdp
