#include <fmt/format.h>

#include <algorithm>

#include "core/formats/object_pickle.hpp"
#include "core/formats/torch_archive.hpp"
#include "gpu_backend/convert/writers.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";

/// An item of a file: a tensor's chunk, or an object.
struct WrittenItem {
  std::int64_t file = 0;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

struct WrittenChunk {
  TensorBox box;
  WrittenItem item;
};

struct WrittenEntry {
  std::string name;
  const ElementType* type = nullptr;  ///< null: an object
  std::vector<std::int64_t> shape;
  std::vector<WrittenChunk> chunks;
};

std::string name_of_file(std::int64_t rank) { return fmt::format("__{}_0.distcp", rank); }

/// The rows of a rank by Shard(0): equal parts, rounded up, so that the last ranks may have fewer or
/// none. Scalars and tensors without elements are rank 0's. None: the rank has none.
std::optional<TensorBox> rows_of(const std::vector<std::int64_t>& shape, std::int64_t rank,
                                 std::int64_t ranks) {
  TensorBox box{.offsets = std::vector<std::int64_t>(shape.size()), .sizes = shape};
  if (ranks == 1 || shape.empty() || product_of(shape) == 0)
    return rank == 0 ? std::optional(box) : std::nullopt;
  const std::int64_t part = ceil_div(shape.front(), ranks);
  const std::int64_t begin = std::min(rank * part, shape.front());
  const std::int64_t end = std::min(begin + part, shape.front());
  if (begin == end) return std::nullopt;
  box.offsets.front() = begin;
  box.sizes.front() = end - begin;
  return box;
}

void write_properties(ObjectPickle& pickle, const ElementType& type) {
  pickle.name(kMetadataModule, "TensorProperties");
  pickle.object();
  pickle.mark();
  pickle.name("torch", type.torch);
  pickle.name("torch.serialization", "_get_layout");
  pickle.mark();
  pickle.text("torch.strided");
  pickle.tuple();
  pickle.call();
  pickle.truth(false);
  pickle.name(kMetadataModule, "_MEM_FORMAT_ENCODING");
  pickle.mark();
  pickle.integer(0);
  pickle.tuple();
  pickle.call();
  pickle.truth(false);
  pickle.tuple();
  pickle.build();
}

void write_size(ObjectPickle& pickle, const std::vector<std::int64_t>& sizes) {
  pickle.name("torch", "Size");
  pickle.mark();
  pickle.integers(sizes);
  pickle.tuple();
  pickle.call();
}

void write_state_entry(ObjectPickle& pickle, const WrittenEntry& entry) {
  pickle.text(entry.name);
  if (entry.type == nullptr) {
    pickle.name(kMetadataModule, "BytesStorageMetadata");
    pickle.object();
    return;
  }
  pickle.name(kMetadataModule, "TensorStorageMetadata");
  pickle.object();
  pickle.dict();
  pickle.mark();
  pickle.text("properties");
  write_properties(pickle, *entry.type);
  pickle.text("size");
  write_size(pickle, entry.shape);
  pickle.text("chunks");
  pickle.list();
  pickle.mark();
  for (const WrittenChunk& chunk : entry.chunks) {
    pickle.name(kMetadataModule, "ChunkStorageMetadata");
    pickle.object();
    pickle.dict();
    pickle.mark();
    pickle.text("offsets");
    write_size(pickle, chunk.box.offsets);
    pickle.text("sizes");
    write_size(pickle, chunk.box.sizes);
    pickle.set_items();
    pickle.build();
  }
  pickle.append();
  pickle.set_items();
  pickle.build();
}

void write_storage_entry(ObjectPickle& pickle, const WrittenEntry& entry, std::size_t index) {
  const WrittenChunk& chunk = entry.chunks[index];
  pickle.name(kMetadataModule, "MetadataIndex");
  pickle.object();
  pickle.dict();
  pickle.mark();
  pickle.text("fqn");
  pickle.text(entry.name);
  pickle.text("index");
  if (entry.type == nullptr) {
    pickle.none();
  } else {
    pickle.integer(static_cast<std::int64_t>(index));
    pickle.text("offset");
    write_size(pickle, chunk.box.offsets);
  }
  pickle.set_items();
  pickle.build();
  pickle.name("torch.distributed.checkpoint.filesystem", "_StorageInfo");
  pickle.object();
  pickle.dict();
  pickle.mark();
  pickle.text("relative_path");
  pickle.text(name_of_file(chunk.item.file));
  pickle.text("offset");
  pickle.integer(chunk.item.offset);
  pickle.text("length");
  pickle.integer(chunk.item.length);
  pickle.set_items();
  pickle.build();
}

/// The pickle of .metadata, field by field in PyTorch's order.
std::string metadata_of(const std::vector<WrittenEntry>& entries) {
  ObjectPickle pickle(4);
  pickle.name(kMetadataModule, "Metadata");
  pickle.object();
  pickle.dict();
  pickle.mark();
  pickle.text("state_dict_metadata");
  pickle.dict();
  pickle.mark();
  for (const WrittenEntry& entry : entries) write_state_entry(pickle, entry);
  pickle.set_items();
  pickle.text("planner_data");
  pickle.dict();
  pickle.mark();
  for (const WrittenEntry& entry : entries) {
    pickle.text(entry.name);
    pickle.mark();
    pickle.text(entry.name);
    pickle.tuple();
  }
  pickle.set_items();
  pickle.text("storage_data");
  pickle.dict();
  pickle.mark();
  for (const WrittenEntry& entry : entries)
    for (std::size_t i = 0; i < entry.chunks.size(); ++i) write_storage_entry(pickle, entry, i);
  pickle.set_items();
  pickle.text("storage_meta");
  pickle.name(kMetadataModule, "StorageMeta");
  pickle.object();
  pickle.dict();
  pickle.mark();
  for (const char* field : {"checkpoint_id", "save_id", "load_id"}) {
    pickle.text(field);
    pickle.none();
  }
  pickle.text("modules");
  pickle.list();
  pickle.set_items();
  pickle.build();
  pickle.text("version");
  pickle.text("1.0.0");
  pickle.set_items();
  pickle.build();
  return pickle.finish();
}

/// One rank's file under construction.
class RankFile {
 public:
  RankFile(DurableFile file, std::int64_t rank) : file_(std::move(file)), rank_(rank) {}

  Result<WrittenItem> add(const OutputTensor& tensor, const TensorBox& box, ElementStream& stream) {
    const ZipFrame frame = frame_torch_tensor(*tensor.elements.type, box.sizes);
    const std::int64_t begin = end_;
    MFSDP_TRY(put(frame.before));
    // Whole rows: elements that follow each other.
    const std::int64_t first = box.offsets.empty() || product_of(tensor.elements.shape) == 0
                                   ? 0
                                   : box.offsets.front() * (product_of(tensor.elements.shape) /
                                                            tensor.elements.shape.front());
    MFSDP_TRY(stream.write(tensor, first, first + box.elements(), file_, end_));
    end_ += box.elements() * bytes_of(*tensor.elements.type);
    MFSDP_TRY(put(frame.after));
    return WrittenItem{.file = rank_, .offset = begin, .length = end_ - begin};
  }

  Result<WrittenItem> add(std::string_view archive) {
    const std::int64_t begin = end_;
    MFSDP_TRY(put(archive));
    return WrittenItem{.file = rank_, .offset = begin, .length = end_ - begin};
  }

  Result<void> close() { return file_.close(); }

 private:
  Result<void> put(std::string_view bytes) {
    MFSDP_TRY(file_.write(end_, std::as_bytes(std::span(bytes))));
    end_ += std::ssize(bytes);
    return {};
  }

  DurableFile file_;
  std::int64_t rank_;
  std::int64_t end_ = 0;
};

}  // namespace

Result<std::int64_t> write_dcp(const OutputFolder& folder, const std::vector<OutputTensor>& tensors,
                               const std::vector<OutputObject>& objects, std::int64_t ranks,
                               ElementStream& stream) {
  std::vector<WrittenEntry> entries;
  for (const OutputTensor& tensor : tensors) {
    if (tensor.elements.type->torch.empty())
      return fail(tensor.name, fmt::format("has dtype {}, which PyTorch does not have",
                                           tensor.elements.type->safetensors));
    entries.push_back({.name = tensor.name,
                       .type = tensor.elements.type,
                       .shape = tensor.elements.shape,
                       .chunks = {}});
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::string name = name_of_file(rank);
    MFSDP_LET(created, DurableFile::create(folder.path / name, (folder.shown / name).string()));
    RankFile file(std::move(created), rank);
    if (rank == 0)
      for (const OutputObject& object : objects) {
        MFSDP_LET(archive, stream.archive_of(object));
        MFSDP_LET(item, file.add(archive));
        entries.push_back(
            {.name = object.name, .shape = {}, .chunks = {{.box = {}, .item = item}}});
      }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto box = rows_of(tensors[i].elements.shape, rank, ranks);
      if (!box) continue;
      MFSDP_LET(item, file.add(tensors[i], *box, stream));
      entries[i].chunks.push_back({.box = *box, .item = item});
    }
    MFSDP_TRY(file.close());
  }
  MFSDP_TRY(write_whole(folder, ".metadata", metadata_of(entries)));
  return ranks + 1;
}

}  // namespace mfsdp
