// Hugging Face checkpoints for tests: small models whose every element is known.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/safetensors.hpp"
#include "core/runtime/scalar.hpp"
#include "core/schedule/build.hpp"
#include "gpu_backend/weights/hf_model_config.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp::test {

/// Two blocks; rows of odd length, so that no shard begins where a row or a tensor does.
inline PlanConfig small_model(std::int64_t ranks = 2,
                              Strategy strategy = Strategy::optim_grads_params) {
  PlanConfig config;
  config.model = {.vocab = 30,
                  .hidden = 12,
                  .layers = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 4,
                  .intermediate = 20,
                  .max_seq_len = 64,
                  .rope_scaling = {}};
  config.mesh = data_parallel_mesh(1, ranks);
  config.strategy = strategy;
  config.seq_len = 16;
  config.logits_chunk = 16;
  return config;
}

inline PlanConfig small_gpt2(std::int64_t ranks = 2) {
  PlanConfig config = small_model(ranks);
  ModelShape& model = config.model;
  model.kv_heads = model.heads = 3;  // of 4 elements, 12 in all
  model.qkv_bias = model.tied_embeddings = true;
  make_family(model, Family::gpt2);
  return config;
}

/// A matrix of `rows` rows, transposed: element (r, c) from (c, r).
inline std::vector<double> transposed(const std::vector<double>& values, std::int64_t rows) {
  const std::int64_t columns = std::ssize(values) / rows;
  std::vector<double> out(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[static_cast<std::size_t>(r * columns + c)] =
          values[static_cast<std::size_t>(c * rows + r)];
  return out;
}

struct FileTensor {
  TensorShape shape;
  std::string bytes;
};

/// A value for each element, exact in every floating dtype: a multiple of 1/64 below 2.
inline double value_of(std::size_t tensor, std::int64_t element) {
  return static_cast<double>((static_cast<std::int64_t>(tensor) * 37 + element * 11) % 128) / 64;
}

inline std::string encode(DType dtype, const std::vector<double>& values) {
  std::string bytes;
  with_floating(dtype, [&]<class T>(T) {
    for (const double value : values) {
      const T element = narrow<T>(static_cast<Real<T>>(value));
      bytes.append(reinterpret_cast<const char*>(&element), sizeof element);
    }
  });
  return bytes;
}

/// All tensors of the program's model, with value_of their elements.
inline std::vector<FileTensor> tensors_of(const Program& program, DType dtype) {
  std::vector<FileTensor> tensors;
  const auto all = HfTensors::of(program).value();
  for (const HfTensor& tensor : all.all()) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < tensor.elements.size(); ++i)
      values.push_back(value_of(tensors.size(), i));
    tensors.push_back({.shape = {.name = tensor.name, .dtype = dtype, .shape = tensor.shape},
                       .bytes = encode(dtype, values)});
  }
  return tensors;
}

inline void write_safetensors(const std::filesystem::path& path,
                              const std::vector<FileTensor>& tensors) {
  std::vector<TensorShape> shapes;
  std::string data;
  for (const FileTensor& tensor : tensors) {
    shapes.push_back(tensor.shape);
    data += tensor.bytes;
  }
  write_file(path, safetensors_header(shapes, {}) + data);
}

inline void write_config(const std::filesystem::path& folder, const ModelShape& shape) {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", hf_config_text(shape, DType::bf16).value());
}

/// config.json and one model.safetensors.
inline void write_checkpoint(const std::filesystem::path& folder, const Program& program,
                             const std::vector<FileTensor>& tensors) {
  write_config(folder, program.config.model);
  write_safetensors(folder / "model.safetensors", tensors);
}

/// Every file of a folder and its bytes.
inline std::map<std::string, std::string> content(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

}  // namespace mfsdp::test
