#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <system_error>
#include <tuple>

#include "core/base/excerpt.hpp"
#include "core/base/read_file.hpp"
#include "core/formats/read_pickle.hpp"
#include "core/formats/safetensors.hpp"
#include "core/formats/torch_archive.hpp"
#include "gpu_backend/convert/data_file.hpp"
#include "gpu_backend/convert/readers.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostMetadata = std::size_t{4} << 30;  ///< bytes

/// Classes of .metadata (torch/distributed/checkpoint/metadata.py, filesystem.py), by module.
bool is_name_of_metadata(std::string_view name) {
  constexpr std::array<std::string_view, 16> kNames{
      "torch.distributed.checkpoint.metadata.Metadata",
      "torch.distributed.checkpoint.metadata.StorageMeta",
      "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
      "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
      "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
      "torch.distributed.checkpoint.metadata.TensorProperties",
      "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
      "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
      "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
      "torch.distributed.checkpoint.metadata.MetadataIndex",
      "torch.distributed.checkpoint.filesystem._StorageInfo",
      "torch.serialization._get_layout",
      "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
      "megatron.core.dist_checkpointing.strategies.torch.MCoreSavePlan",
      "pathlib.WindowsPath",
      "torch.Size"};
  return std::ranges::find(kNames, name) != kNames.end() || is_name_of_torch_archive(name);
}

/// A field of an object's state.
const PickleValue* field_of(const PickleValue& object, std::string_view name) {
  const PickleObject* called = object.object();
  return called == nullptr || called->state == nullptr ? nullptr : called->state->find(name);
}

std::optional<std::vector<std::int64_t>> sizes_of(const PickleValue& object,
                                                  std::string_view name) {
  const PickleValue* value = field_of(object, name);
  return value == nullptr ? std::nullopt : integers_of(*value);
}

bool is_of_class(const PickleValue& value, std::string_view name) {
  return value.type().ends_with(name);
}

class MetadataReader {
 public:
  MetadataReader(const PickleValue& root, const std::string& where) : root_(root), where_(where) {}

  Result<DcpMetadata> read() {
    const PickleValue* tensors = field_of(root_, "state_dict_metadata");
    const PickleValue* storage = field_of(root_, "storage_data");
    if (!is_of_class(root_, "Metadata") || tensors == nullptr || tensors->dict() == nullptr ||
        storage == nullptr || storage->dict() == nullptr)
      return fail(where_, "expected the Metadata of a distributed checkpoint");
    MFSDP_TRY(read_storage(*storage->dict()));
    std::set<std::string_view> names;
    for (const auto& [key, value] : tensors->dict()->items) {
      if (key->text() == nullptr) return fail(where_, "has a key that is no text");
      if (!names.insert(*key->text()).second)
        return fail(fmt::format("{}: {}", where_, shown_name(*key->text())), "is there twice");
      MFSDP_TRY(read_entry(*key->text(), *value));
    }
    if (!places_.empty()) {
      const auto& [name, offsets] = places_.begin()->first;
      return fail(fmt::format("{}: {}", where_, shown_name(name)),
                  fmt::format("is stored at {}, where it has no chunk", shown_shape(offsets)));
    }
    if (const PickleValue* version = field_of(root_, "version");
        version != nullptr && version->text() != nullptr)
      read_.facts.emplace_back("metadata version", excerpt(*version->text()));
    return std::move(read_);
  }

 private:
  struct Place {
    std::string file;
    FileRange item;
  };
  using Key = std::pair<std::string, std::vector<std::int64_t>>;  ///< name, offsets

  Result<void> read_storage(const PickleDict& storage) {
    for (const auto& [index, info] : storage.items) {
      const PickleValue* name = field_of(*index, "fqn");
      const PickleValue* path = field_of(*info, "relative_path");
      const PickleValue* offset = field_of(*info, "offset");
      const PickleValue* length = field_of(*info, "length");
      if (name == nullptr || name->text() == nullptr || path == nullptr ||
          path->text() == nullptr || offset == nullptr || offset->integer() == nullptr ||
          length == nullptr || length->integer() == nullptr)
        return fail(where_ + ": storage_data", "expected name, relative_path, offset and length");
      const std::string place = fmt::format("{}: {}", where_, shown_name(*name->text()));
      if (!is_plain_file_name(*path->text()))
        return fail(place, fmt::format("expected a file in the checkpoint's folder, got {}",
                                       excerpt(*path->text())));
      if (*offset->integer() < 0 || *length->integer() <= 0)
        return fail(place, "expected an offset from 0 and a length from 1");
      if (const PickleValue* transforms = field_of(*info, "transform_descriptors");
          transforms != nullptr && transforms->list() != nullptr &&
          !transforms->list()->items.empty())
        return fail(place, "is compressed (transform_descriptors), which is not read");
      Key key(*name->text(), sizes_of(*index, "offset").value_or(std::vector<std::int64_t>()));
      const auto [at, fresh] = places_.try_emplace(
          std::move(key), Place{.file = *path->text(),
                                .item = {.offset = static_cast<std::uint64_t>(*offset->integer()),
                                         .size = static_cast<std::uint64_t>(*length->integer())}});
      if (!fresh) return fail(place, "has two places for one chunk");
    }
    return {};
  }

  /// Takes the place of a chunk; one without a size if there is none.
  Place take(const std::string& name, const std::vector<std::int64_t>& offsets) {
    const auto found = places_.find(Key(name, offsets));
    if (found == places_.end()) return {};
    Place place = std::move(found->second);
    places_.erase(found);
    return place;
  }

  Result<void> read_entry(const std::string& name, const PickleValue& value) {
    DcpEntry entry{.name = name, .shape = {}, .chunks = {}};
    if (is_of_class(value, "BytesStorageMetadata")) {
      Place place = take(name, {});
      entry.chunks.push_back({.box = {}, .file = std::move(place.file), .item = place.item});
      read_.entries.push_back(std::move(entry));
      return {};
    }
    const std::string where = fmt::format("{}: {}", where_, shown_name(name));
    const auto shape = sizes_of(value, "size");
    const PickleValue* chunks = field_of(value, "chunks");
    if (!is_of_class(value, "TensorStorageMetadata") || !shape || chunks == nullptr ||
        chunks->list() == nullptr)
      return fail(where, "expected a tensor with size and chunks, or bytes");
    entry.shape = *shape;
    entry.type = type_of(value);
    if (entry.type == nullptr) return fail(where, "has a dtype that is not known");
    MFSDP_TRY(check_size(entry, where));
    for (const PickleValue* chunk : chunks->list()->items) {
      auto offsets = sizes_of(*chunk, "offsets");
      auto sizes = sizes_of(*chunk, "sizes");
      if (!offsets || !sizes || offsets->size() != shape->size() || sizes->size() != shape->size())
        return fail(where, "expected a chunk with an offset and a size for each dim");
      for (std::size_t i = 0; i < shape->size(); ++i)
        if (offsets->at(i) > shape->at(i) || sizes->at(i) > shape->at(i) - offsets->at(i))
          return fail(where,
                      fmt::format("has a chunk of {} at {}, outside its size {}",
                                  shown_shape(*sizes), shown_shape(*offsets), shown_shape(*shape)));
      Place place = take(name, *offsets);
      entry.chunks.push_back({.box = {.offsets = std::move(*offsets), .sizes = std::move(*sizes)},
                              .file = std::move(place.file),
                              .item = place.item});
    }
    read_.entries.push_back(std::move(entry));
    return {};
  }

  [[nodiscard]] static const ElementType* type_of(const PickleValue& value) {
    constexpr std::string_view kTorch = "torch.";
    const PickleValue* properties = field_of(value, "properties");
    if (properties == nullptr || properties->object() == nullptr ||
        properties->object()->state == nullptr)
      return nullptr;
    const PickleValue* state = properties->object()->state;
    const PickleValue* dtype = state->find("dtype");
    if (dtype == nullptr && state->list() != nullptr && !state->list()->items.empty())
      dtype = state->list()->items[0];
    const PickleName* name = dtype == nullptr ? nullptr : dtype->name();
    if (name == nullptr || !name->name.starts_with(kTorch)) return nullptr;
    return type_of_torch(std::string_view(name->name).substr(kTorch.size()));
  }

  [[nodiscard]] static Result<void> check_size(const DcpEntry& entry, const std::string& where) {
    Int128 bytes = bytes_of(*entry.type);
    for (const std::int64_t size : entry.shape) {
      bytes *= size;
      if (bytes > (Int128{1} << 62)) return fail(where, "has 2^62 bytes or more");
    }
    return {};
  }

  const PickleValue& root_;
  const std::string& where_;
  DcpMetadata read_;
  std::map<Key, Place> places_;
};

/// Finds the bytes of chunks in the files.
class ChunkFinder {
 public:
  explicit ChunkFinder(Checkpoint& read) : read_(read) {}

  void add(const DcpEntry& entry) {
    if (entry.type == nullptr) return add_object(entry);
    CheckpointTensor tensor{
        .name = entry.name, .type = entry.type, .shape = entry.shape, .boxes = {}};
    for (const DcpChunk& chunk : entry.chunks) {
      if (chunk.box.elements() == 0) continue;
      auto box = find(entry, chunk);
      if (box)
        tensor.boxes.push_back(std::move(*box));
      else
        read_.problems.push_back(std::move(box.error()));
    }
    read_.tensors.push_back(std::move(tensor));
  }

 private:
  void add_object(const DcpEntry& entry) {
    const DcpChunk& chunk = entry.chunks.front();
    const auto file = open(entry, chunk);
    if (!file) {
      read_.problems.push_back(file.error());
      return;
    }
    read_.objects.push_back({.name = entry.name, .file = *file, .bytes = chunk.item});
  }

  /// The index of the chunk's file, which is long enough.
  [[nodiscard]] Result<std::size_t> open(const DcpEntry& entry, const DcpChunk& chunk) {
    const std::string where = fmt::format("{}: {}", read_.path.string(), shown_name(entry.name));
    if (chunk.item.size == 0)
      return fail(where,
                  fmt::format("its chunk at {} is stored nowhere", shown_shape(chunk.box.offsets)));
    const auto [at, fresh] = files_.try_emplace(chunk.file, read_.files.size());
    if (fresh) {
      const auto path = read_.path / chunk.file;
      const auto file = DataFile::open(path);
      read_.files.push_back({.path = path, .size = file ? file->size() : 0});
      if (!file) missing_.insert(at->second);
    }
    const CheckpointFile& file = read_.files[at->second];
    if (missing_.contains(at->second))
      return fail(file.path.string(),
                  fmt::format("is missing; {} is in it", shown_name(entry.name)));
    if (chunk.item.offset > file.size || chunk.item.size > file.size - chunk.item.offset)
      return fail(where, fmt::format("expected {} bytes from byte {} on in {}, which has {}",
                                     chunk.item.size, chunk.item.offset, chunk.file, file.size));
    return at->second;
  }

  [[nodiscard]] Result<StoredBox> find(const DcpEntry& entry, const DcpChunk& chunk) {
    MFSDP_LET(file, open(entry, chunk));
    MFSDP_TRY(keep_open(file));
    const ByteSource source = open_->source();
    MFSDP_LET(archive, read_torch_archive(source, chunk.item));
    const std::string where = fmt::format("{}: {}", source.where, shown_name(entry.name));
    if (archive.tensors.size() != 1) return fail(where, "expected one tensor in its archive");
    const TorchTensor& tensor = archive.tensors.front();
    if (tensor.type != entry.type)
      return fail(where, fmt::format("expected {}, as .metadata has it, got {}", entry.type->torch,
                                     tensor.type->torch));
    if (tensor.shape != chunk.box.sizes)
      return fail(where, fmt::format("expected a chunk of {}, as .metadata has it, got {}",
                                     shown_shape(chunk.box.sizes), shown_shape(tensor.shape)));
    return StoredBox{.box = chunk.box, .file = file, .offset = tensor.bytes.offset};
  }

  /// Chunks of one file often follow each other.
  [[nodiscard]] Result<void> keep_open(std::size_t file) {
    if (open_ && open_index_ == file) return {};
    MFSDP_LET(opened, DataFile::open(read_.files[file].path));
    open_.emplace(std::move(opened));
    open_index_ = file;
    return {};
  }

  Checkpoint& read_;
  std::map<std::string, std::size_t> files_;
  std::set<std::size_t> missing_;
  std::optional<DataFile> open_;
  std::size_t open_index_ = 0;
};

/// Megatron-FSDP keeps its own keys beside plain ones; Megatron-Core writes a file of its own.
CheckpointFormat format_of_dcp(const std::filesystem::path& folder, const DcpMetadata& metadata) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / "metadata.json", ignored))
    return CheckpointFormat::torch_dist;
  const bool is_megatrons = std::ranges::any_of(metadata.entries, [](const DcpEntry& entry) {
    return entry.name == "checkpoint_version" || entry.name.starts_with("model.module.") ||
           entry.name.starts_with("optimizer.state.module.") ||
           entry.name.starts_with("optimizer.param_to_group_meta.");
  });
  return is_megatrons ? CheckpointFormat::fsdp_dtensor : CheckpointFormat::dcp;
}

}  // namespace

Result<DcpMetadata> read_dcp_metadata(std::string_view pickle, const std::string& where) {
  MFSDP_LET(document, read_pickle_objects(pickle, where, is_name_of_metadata));
  return MetadataReader(*document.root, where).read();
}

Result<void> read_dcp(Checkpoint& read) {
  const auto path = read.path / ".metadata";
  MFSDP_LET(text, read_file(path, "the metadata of a distributed checkpoint", kMostMetadata));
  MFSDP_LET(metadata, read_dcp_metadata(text, path.string()));
  read.format = format_of_dcp(read.path, metadata);
  read.facts = std::move(metadata.facts);
  ChunkFinder finder(read);
  for (const DcpEntry& entry : metadata.entries) finder.add(entry);
  std::error_code ignored;
  if (const auto common = read.path / "common.pt"; std::filesystem::exists(common, ignored)) {
    MFSDP_LET(file, DataFile::open(common));
    MFSDP_LET(archive, read_torch_archive(file.source(), {.offset = 0, .size = file.size()}));
    for (auto& [name, value] : archive.values) {
      if (name == "iteration") read.facts.emplace_back("iteration", value);
      if (name == "checkpoint_version") read.facts.emplace_back("checkpoint_version", value);
    }
  }
  return {};
}

}  // namespace mfsdp
